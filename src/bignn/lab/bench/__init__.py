"""Speed and memory, measured: float contenders beside the packed engine."""

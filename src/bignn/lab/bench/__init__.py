"""Benchmarks: speed and memory of float contenders beside the packed engine."""

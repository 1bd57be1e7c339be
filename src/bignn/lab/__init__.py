"""The laboratory: everything that measures, compares or reproduces. Only ``cli`` imports it."""

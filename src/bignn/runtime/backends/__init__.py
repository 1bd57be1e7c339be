"""Backends: each takes a packed model and a packed graph, binds them to its buffers, and runs."""

"""Readers of graph files, one module per format."""

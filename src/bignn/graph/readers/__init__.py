"""Graphs read from files, a file per format."""

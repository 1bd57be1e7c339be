"""Graphs in parts, one for each of several processes: cut, written to files, run layer by layer."""

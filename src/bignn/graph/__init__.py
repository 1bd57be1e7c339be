"""Graphs and where they come from. NumPy only."""

from bignn.graph.datasets import EMBEDDED, load, save
from bignn.graph.graph import SPLITS, Graph, SparseRows, from_arrays, to_arrays

__all__ = [
    "EMBEDDED",
    "SPLITS",
    "Graph",
    "SparseRows",
    "from_arrays",
    "load",
    "save",
    "to_arrays",
]

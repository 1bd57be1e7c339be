"""Graphs, and reading and writing them. NumPy only."""

from bignn.graph.datasets import EMBEDDED, load, save
from bignn.graph.graph import SPLITS, Graph, SparseRows, from_arrays, to_arrays
from bignn.graph.pyg import DataLike, GraphLike, as_graph, from_pyg, to_pyg
from bignn.graph.several import Graphs, join

__all__ = [
    "EMBEDDED",
    "SPLITS",
    "DataLike",
    "Graph",
    "GraphLike",
    "Graphs",
    "SparseRows",
    "as_graph",
    "from_arrays",
    "from_pyg",
    "join",
    "load",
    "save",
    "to_arrays",
    "to_pyg",
]

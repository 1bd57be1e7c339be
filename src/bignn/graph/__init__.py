"""Graphs, and reading and writing them. NumPy only."""

from bignn.graph.datasets import EMBEDDED, load, save
from bignn.graph.graph import SPLITS, Graph, SparseRows, from_arrays, to_arrays
from bignn.graph.libraries import from_dgl, from_ogb, from_scipy
from bignn.graph.names import Names
from bignn.graph.networkx_graph import from_networkx
from bignn.graph.pyg import DataLike, GraphLike, as_graph, from_pyg, to_pyg
from bignn.graph.several import Graphs, join

__all__ = [
    "EMBEDDED",
    "SPLITS",
    "DataLike",
    "Graph",
    "GraphLike",
    "Graphs",
    "Names",
    "SparseRows",
    "as_graph",
    "from_arrays",
    "from_dgl",
    "from_networkx",
    "from_ogb",
    "from_pyg",
    "from_scipy",
    "join",
    "load",
    "save",
    "to_arrays",
    "to_pyg",
]

"""Layers and models. May import torch, ``binarize`` and ``ops``."""

from bignn.nn.adjacency import Adjacency, normalized_adjacency
from bignn.nn.gcn_conv import GCNConv
from bignn.nn.gnn import GCN
from bignn.nn.input_norm import InputNorm
from bignn.nn.linear import Linear
from bignn.nn.rows import BinaryRows

__all__ = [
    "GCN",
    "Adjacency",
    "BinaryRows",
    "GCNConv",
    "InputNorm",
    "Linear",
    "normalized_adjacency",
]

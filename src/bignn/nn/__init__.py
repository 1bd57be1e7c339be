"""Layers and models. May import torch, ``binarize`` and ``ops``."""

from bignn.nn.adjacency import normalized_adjacency
from bignn.nn.batch_norm import BatchNorm, exact_statistics
from bignn.nn.binary_product import DropMode
from bignn.nn.features import BinaryRows, SparseFeatures
from bignn.nn.gcn_conv import GCNConv
from bignn.nn.gnn import GCN, NormMode
from bignn.nn.input_norm import InputNorm
from bignn.nn.linear import Linear
from bignn.nn.sparse import SparseMatrix

__all__ = [
    "GCN",
    "BatchNorm",
    "BinaryRows",
    "DropMode",
    "GCNConv",
    "InputNorm",
    "Linear",
    "NormMode",
    "SparseFeatures",
    "SparseMatrix",
    "exact_statistics",
    "normalized_adjacency",
]

"""Layers and models. May import torch, ``config``, ``binarize`` and ``ops``."""

from bignn.config import Activation, ConvName, DropMode, JumpMode, NormMode
from bignn.nn.adjacency import normalized_adjacency
from bignn.nn.batch_norm import BatchNorm, exact_statistics
from bignn.nn.evaluation import evaluating
from bignn.nn.features import BinaryRows, SparseFeatures
from bignn.nn.gat_conv import GATConv
from bignn.nn.gcn_conv import GCNConv
from bignn.nn.gin_conv import GINConv
from bignn.nn.gnn import GAT, GCN, GNN, MODELS, GraphSAGE
from bignn.nn.input_stage import InputStage
from bignn.nn.jumping import JumpingHead
from bignn.nn.linear import Linear
from bignn.nn.sage_conv import SAGEConv
from bignn.nn.sg_conv import SGConv
from bignn.nn.sparse import SparseMatrix

__all__ = [
    "GAT",
    "GCN",
    "GNN",
    "MODELS",
    "Activation",
    "BatchNorm",
    "BinaryRows",
    "ConvName",
    "DropMode",
    "GATConv",
    "GCNConv",
    "GINConv",
    "GraphSAGE",
    "InputStage",
    "JumpMode",
    "JumpingHead",
    "Linear",
    "NormMode",
    "SAGEConv",
    "SGConv",
    "SparseFeatures",
    "SparseMatrix",
    "evaluating",
    "exact_statistics",
    "normalized_adjacency",
]

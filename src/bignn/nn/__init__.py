"""Layers and models.

The names below are the public surface; what users do not construct is imported from its module.
"""

from bignn.nn.batch_norm import BatchNorm
from bignn.nn.gat_conv import GATConv
from bignn.nn.gcn_conv import GCNConv
from bignn.nn.gin_conv import GINConv
from bignn.nn.gnn import GAT, GCN, GNN, MODELS, GraphSAGE
from bignn.nn.input_stage import InputStage
from bignn.nn.jumping import JumpingHead
from bignn.nn.linear import Linear
from bignn.nn.sage_conv import SAGEConv
from bignn.nn.sg_conv import SGConv

__all__ = [
    "GAT",
    "GCN",
    "GNN",
    "MODELS",
    "BatchNorm",
    "GATConv",
    "GCNConv",
    "GINConv",
    "GraphSAGE",
    "InputStage",
    "JumpingHead",
    "Linear",
    "SAGEConv",
    "SGConv",
]

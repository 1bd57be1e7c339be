"""Models and arguments that ``binarize_`` refuses, in one line each."""

from collections.abc import Callable
from typing import Any

import pytest
import torch_geometric.nn as pyg
from pyg_models import Own
from torch import nn

import bignn
from bignn import InputError
from bignn.nn import GCNConv


def test_what_cannot_be_binarized_says_so() -> None:
    layer: Callable[[], nn.Module]
    for layer, line in (
        (
            lambda: pyg.TransformerConv(4, 4),
            "'0' is a TransformerConv, which bignn cannot binarize",
        ),
        (lambda: pyg.SAGEConv(4, 4, aggr="max"), "or make it with aggr='mean'"),
        (lambda: pyg.SAGEConv(4, 4, project=True), "SAGEConv with project=True"),
        (lambda: pyg.SAGEConv(4, 4, normalize=True), "SAGEConv with normalize=True"),
        (lambda: pyg.SAGEConv(4, 4, root_weight=False), "SAGEConv with root_weight=False"),
        (lambda: pyg.SAGEConv((4, 5), 4), r"SAGEConv with in_channels=\(4, 5\)"),
        (lambda: pyg.GATConv(4, 4, edge_dim=2), "or make it without edge_dim"),
        (lambda: pyg.GATConv(4, 4, residual=True), "GATConv with residual=True"),
        (lambda: pyg.GATConv(4, 4, add_self_loops=False), "GATConv with add_self_loops=False"),
        (lambda: pyg.GCNConv(4, 4, improved=True), "GCNConv with improved=True"),
        (lambda: pyg.GCNConv(4, 4, normalize=False), "GCNConv with add_self_loops=False"),
        (lambda: pyg.GCNConv(4, 4, flow="target_to_source"), "with flow='target_to_source'"),
        (lambda: pyg.GINConv(nn.Sequential(nn.ReLU(), nn.Linear(4, 4))), "begins with no Linear"),
        (lambda: pyg.GCNConv(-1, 4), "'0' with in_channels=-1; call it once before"),
        (nn.ReLU, "nothing to binarize"),
        (lambda: GCNConv(4, 4), "bignn's layers already"),
    ):
        model = nn.ModuleList([layer()])
        before = str(model)
        with pytest.raises(InputError, match=line) as caught:
            bignn.binarize_(model)
        assert "\n" not in str(caught.value)
        assert str(model) == before


def test_bad_arguments_say_so() -> None:
    options: Any
    for options, line in (
        ({"binarize": "all"}, "'binarize' must be one of"),
        ({"ste": "none"}, "'ste' must be one of"),
        ({"dropout": 1.0}, r"'dropout' must be in \[0, 1\)"),
        (
            {"skip": ["conv9"]},
            "'skip' must be names of modules of the model, such as .'conv1', 'conv2'",
        ),
        ({"first": "conv9"}, "'first' must be names of modules of the model"),
    ):
        with pytest.raises(InputError, match=line):
            bignn.binarize_(Own(), **options)
    with pytest.raises(InputError, match=r"'model' must be a torch\.nn\.Module, got str"):
        bignn.binarize_("gcn")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a module that contains layers, got a GCNConv itself"):
        bignn.binarize_(pyg.GCNConv(4, 4))
    model = Own()
    bignn.binarize_(model)
    with pytest.raises(InputError, match="bignn's layers already"):
        bignn.binarize_(model)

"""Models and arguments that ``binarize_`` refuses, in one line each."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from pyg_models import Own
from torch import Tensor, nn

import bignn
from bignn import InputError
from bignn.nn import GCNConv


def test_what_cannot_be_binarized_says_so() -> None:
    layer: Callable[[], nn.Module]
    for layer, line in (
        (
            lambda: pyg.GCNConv(-1, 4),
            "'0' with in_channels=-1; give binarize_",
        ),
        (nn.ReLU, "nothing to binarize"),
        (lambda: GCNConv(4, 4), "one of PyG's layers, got one with bignn's already"),
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
    with pytest.raises(InputError, match="got one with bignn's already; build it anew"):
        bignn.binarize_(model)


def test_a_second_input_is_named_before_training() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.text = pyg.GCNConv(20, 16), nn.Linear(24, 16)

        def forward(self, x: Tensor, edge_index: Tensor, text: Tensor) -> Tensor:
            return torch.cat([self.conv(x, edge_index), self.text(text)], dim=1)

    obstacle = bignn.binarize_(Two()).obstacle
    assert obstacle is not None
    assert "its forward reads 'text', which packed graphs do not have" in obstacle

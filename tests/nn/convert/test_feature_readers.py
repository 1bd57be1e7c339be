"""Which layers read the features: dropped ones, ones that other weights have changed."""

from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from pyg_models import CLASSES, D, make_data
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data

import bignn
from bignn.errors import InputError
from bignn.nn.convert.wrapped_layer import input_maps


@pytest.fixture
def data() -> Data:
    return make_data()


class DropsFeatures(nn.Module):
    """The common example, which drops the features too."""

    def __init__(self, p: float = 0.6) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.GCNConv(D, 16), pyg.GCNConv(16, CLASSES)
        self.p = p

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = functional.dropout(x, self.p, training=self.training)
        out: Tensor = self.conv2(self.conv1(x, edge_index).relu(), edge_index)
        return out


def test_dropped_features_are_read_before_they_are_dropped(data: Data) -> None:
    """A dropped number is 0, whose sign would be +1."""
    model = DropsFeatures()
    report = bignn.binarize_(model, center=True)
    assert "The input of 'conv2' is centred" in str(report)
    assert not hasattr(model.conv1, "center")
    read: list[Any] = []
    linear: Any = input_maps(model.conv1)[0]
    linear.check_input = read.append
    model(data.x, data.edge_index)
    model(data.x, data.edge_index)
    assert linear.dropout == 0.6
    # The same features in every call, with nothing dropped yet.
    assert torch.equal(read[0], read[1])
    assert torch.equal(read[0], model.input_stage(data.x))  # type: ignore[operator]


class Made(nn.Module):
    """A first layer that reads what other weights make of the features, or of nothing."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.weight = nn.Parameter(torch.randn(D, 16))
        self.rows = nn.Parameter(torch.randn(120, 16))
        self.lin = nn.utils.parametrizations.weight_norm(nn.Linear(D, 16))
        self.conv = pyg.SAGEConv(16, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.kind == "norm":
            x = self.lin(x)
        else:
            x = x @ self.weight if self.kind == "product" else self.rows
        out: Tensor = self.conv(x.relu(), edge_index)
        return out


@pytest.mark.parametrize("kind", ["norm", "product", "rows"])
def test_a_layer_behind_other_weights_gets_no_input_stage(kind: str, data: Data) -> None:
    torch.manual_seed(0)
    model = Made(kind)
    report = bignn.binarize_(model)
    assert "'conv' reads what other weights make of the features" in str(report)
    assert not hasattr(model, "input_stage")
    for _ in range(2):
        model(data.x, data.edge_index)
    model.eval()
    if kind == "norm":
        assert report.obstacle is None
        expected = model(data.x, data.edge_index).argmax(dim=1)
        assert np.array_equal(bignn.pack(model).predict(data), expected)


class Untraced(Made):
    """The same where nothing shows it."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(-x if x.sum() > 1e9 else x, edge_index)


def test_what_does_not_show_is_told_when_it_fails(data: Data) -> None:
    model = Untraced("product")
    bignn.binarize_(model)
    match = r"'x' must be \[nodes, 16\], as 'conv' reads, got .*first='conv'"
    with pytest.raises(InputError, match=match):
        model(data.x, data.edge_index)


class NoForward(nn.Module):
    """A model that is called by a method of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(D, CLASSES)


def test_models_that_cannot_be_converted_say_why(data: Data) -> None:
    with pytest.raises(InputError, match="must be a module with a forward, got a NoForward"):
        bignn.binarize_(NoForward())
    bignn.binarize_(NoForward(), center=True)  # whose layers may be called alone
    with pytest.raises(InputError, match="must be a module with a forward, got NoForward"):
        bignn.fit(NoForward(), data, progress=False)
    with pytest.raises(InputError, match="'first' must be the name of one layer"):
        bignn.binarize_(DropsFeatures(), first=["conv1"])  # type: ignore[arg-type]
    old = nn.Sequential(nn.utils.spectral_norm(nn.Linear(D, 4)), nn.Linear(4, CLASSES))
    with pytest.raises(InputError, match=r"'0', whose weight is computed anew.*skip=\['0'\]"):
        bignn.binarize_(old)
    assert type(old[1]) is nn.Linear  # nothing was changed

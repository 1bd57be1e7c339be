"""Which layers read the features: dropped ones, ones that other weights have changed."""

from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from pyg_models import CLASSES, D, make_data
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
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


class Masked(DropsFeatures):
    """Features are masked by columns, in training alone."""

    def __init__(self, kept: float) -> None:
        super().__init__()
        self.mask: Tensor
        self.register_buffer("mask", kept * (torch.arange(D) % 4 > 0).float())

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.training:
            x = self.mask * x
        out: Tensor = self.conv2(self.conv1(x, edge_index).relu(), edge_index)
        return out


@pytest.mark.parametrize("kept", [1.0, 4 / 3])
def test_masked_features_are_read_before_they_are_masked(kept: float, data: Data) -> None:
    model = Masked(kept)
    bignn.binarize_(model)
    linear: Any = input_maps(model.conv1)[0]
    read: list[Any] = []
    linear.check_input = read.append
    model(data.x, data.edge_index)
    assert linear.dropout == 0.25
    assert torch.equal(read[0], model.input_stage(data.x))  # type: ignore[operator]
    model.mask += torch.rand(D)
    model(data.x, data.edge_index)
    assert linear.dropout == 0.0  # numbers, not a mask
    assert not torch.equal(read[1], read[0])


class AlwaysMasked(Masked):
    """Features are masked in evaluation too, by a forward that cannot be traced."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.mask * x if float(x.sum()) < 1e9 else x
        out: Tensor = self.conv2(self.conv1(x, edge_index).relu(), edge_index)
        return out


def test_masks_of_evaluation_are_the_models_own(data: Data) -> None:
    model = AlwaysMasked(1.0)
    bignn.binarize_(model)
    model.fit_input(data.x)  # type: ignore[operator]
    read: list[Any] = []
    linear: Any = input_maps(model.conv1)[0]
    linear.check_input = read.append
    model.eval()(data.x, data.edge_index)
    assert torch.equal(read[0], model.mask * model.input_stage(data.x))  # type: ignore[operator]


class GivenMask(DropsFeatures):
    """The caller may mask features, in evaluation too, and one branch does not."""

    def forward(self, x: Tensor, edge_index: Tensor, mask: Tensor | None = None) -> Tensor:
        masked = x if mask is None else x * mask
        out: Tensor = self.conv2(self.conv1(masked, edge_index).relu(), edge_index)
        return out


class OneBranch(DropsFeatures):
    """One of two readers of the features reads masked ones, always."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(D, 16)
        self.mask: Tensor
        self.register_buffer("mask", (torch.arange(D) % 4 > 0).float())

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.conv1(x * self.mask, edge_index) + self.lin(x)
        out: Tensor = self.conv2(h.relu(), edge_index)
        return out


def test_masks_that_evaluation_may_have_too_are_kept(data: Data) -> None:
    mask = torch.rand(120, 1) < 0.5
    for model, options in (
        (GivenMask(), {"mask": mask}),
        (GivenMask(), {"mask": mask.float()}),
        (OneBranch(), {}),
    ):
        bignn.binarize_(model)
        linear: Any = input_maps(model.conv1)[0]
        read: list[Any] = []
        linear.check_input = read.append
        model(data.x, data.edge_index, **options)
        assert linear.dropout == 0
        if options:
            assert torch.equal(read[0], model.input_stage(data.x) * options["mask"])  # type: ignore[operator]
        else:  # centred
            assert (read[0][:, ::4] == 0).all()


class Unused(DropsFeatures):
    """A layer that the forward does not call comes first."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Linear(D, 16), pyg.GCNConv(16, CLASSES)
        self.reader = pyg.GCNConv(D, 16)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.conv2(self.reader(x.exp(), edge_index).relu(), edge_index)
        return out


def test_a_layer_that_is_not_called_reads_nothing(data: Data) -> None:
    model: Any = Unused()
    report = bignn.binarize_(model)
    assert "The input of 'reader', which the forward computes of the features" in str(report)
    assert not hasattr(model, "fit_input")  # which would take the features for what it reads
    model(data.x, data.edge_index)
    torch.testing.assert_close(model.reader.input_stage.mean, data.x.exp().mean(dim=0))


def test_sparse_features_are_refused_in_one_line(data: Data) -> None:
    for make in (lambda: pyg.GCN(D, 16, 2, CLASSES), DropsFeatures):
        model = make()
        bignn.binarize_(model)
        with pytest.raises(InputError, match=r"'x' must be a dense tensor, .* pass x.to_dense"):
            model(data.x.to_sparse(), data.edge_index)


def test_other_layers_that_read_the_features_are_named() -> None:
    class Both(DropsFeatures):
        def __init__(self) -> None:
            super().__init__()
            self.side = pyg.GCNConv(D, 16)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.conv1(x, edge_index) + self.side(x, edge_index)
            out: Tensor = self.conv2(h, edge_index)
            return out

    report = str(bignn.binarize_(Both(), input_bits="learned:2", first="conv1"))
    assert "The features that 'side' reads stay one bit each." in report
    assert "stay one bit each" not in str(bignn.binarize_(Both(), first="conv1"))


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


class Alike(nn.Module):
    """A first layer that reads the features after what leaves their columns what they were."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.scale = nn.Parameter(torch.ones(1))
        self.mask: Tensor
        self.register_buffer("mask", torch.ones(D))
        self.last, self.first = nn.Linear(16, CLASSES), nn.Linear(D, 16)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        made = {
            "scale": lambda: self.scale * x,
            "mask": lambda: self.mask * x,
            "adjacency": lambda: edge_index @ (edge_index @ x),
            "float": x.float,
        }
        out: Tensor = self.last(self.first(made[self.kind]()).relu())
        return out


@pytest.mark.parametrize("kind", ["scale", "mask", "adjacency", "float"])
def test_columns_that_stay_what_they_were_are_standardised(kind: str, data: Data) -> None:
    model = Alike(kind)
    report = bignn.binarize_(model)
    assert "other weights" not in str(report)
    computed = kind in ("scale", "mask")  # standardised after that
    stage: Any = model.first.input_stage if computed else model.input_stage
    assert stage.num_features == D


class OfData(nn.Module):
    """Called with a Data; the layer that reads its features is the last in the module."""

    def __init__(self) -> None:
        super().__init__()
        self.conv2, self.conv1 = pyg.GCNConv(16, CLASSES), pyg.GCNConv(D, 16)
        self.edges = nn.Linear(4, 16)

    def forward(self, data: Data) -> Tensor:
        x = functional.dropout(data.x.float(), 0.5, training=self.training)
        out: Tensor = self.conv2(self.conv1(x, data.edge_index).relu(), data.edge_index)
        return out


@pytest.mark.parametrize("center", ["auto", True])
def test_the_features_of_a_data_are_found(center: Any, data: Data) -> None:
    model = OfData()
    bignn.binarize_(model, center=center)
    stage: Any = model.input_stage
    assert stage.num_features == D
    assert not hasattr(model.conv1, "center")
    assert model(data).shape == (120, CLASSES)


class Shared(DropsFeatures):
    """One layer for the features and for what it makes of them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.GCNConv(D, D)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(functional.dropout(x, 0.6, training=self.training), edge_index)
        out: Tensor = self.conv2(x[:, :16], edge_index)
        return out


@pytest.mark.parametrize("own", [None, 0.2])
def test_what_the_forward_drops_is_dropped_where_the_features_are_read(
    own: float | None, data: Data
) -> None:
    model = Shared()
    bignn.binarize_(model, center=True, dropout=own)
    linear: Any = input_maps(model.conv1)[0]
    model(data.x, data.edge_index)
    assert linear.dropout == (0.6 if own is None else own)
    model.conv1(torch.randn(120, D), data.edge_index)  # other values, in a call of its own
    assert linear.dropout == (0.0 if own is None else own)


def test_features_that_were_changed_since_are_read_as_they_are(data: Data) -> None:
    class Changed(DropsFeatures):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            dropped = functional.dropout(x, 0.6, training=self.training)
            x.mul_(1)
            out: Tensor = self.conv2(self.conv1(dropped, edge_index), edge_index)
            return out

    model = Changed()
    bignn.binarize_(model, center=True)
    linear: Any = input_maps(model.conv1)[0]
    model(data.x, data.edge_index)
    assert linear.dropout == 0


def test_a_layer_that_is_computed_again_is_refused(data: Data) -> None:
    class Checkpointed(DropsFeatures):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            x = functional.dropout(x, 0.6, training=self.training)
            h: Any = checkpoint(self.conv1, x, edge_index, use_reentrant=False)
            out: Tensor = self.conv2(h, edge_index)
            return out

    model = Checkpointed()
    bignn.binarize_(model, center=True)
    loss = model(data.x, data.edge_index).sum()
    with pytest.raises(InputError, match="'conv1' is computed again in the backward pass"):
        loss.backward()


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
    for options in ({"center": True}, {"binarize": "weights"}, {"binarize": "none"}):
        bignn.binarize_(NoForward(), **options)  # whose layers may be called alone
    with pytest.raises(InputError, match="must be a module with a forward, got NoForward"):
        bignn.fit(NoForward(), data, progress=False)
    with pytest.raises(InputError, match="'first' must be the name of one layer"):
        bignn.binarize_(DropsFeatures(), first=["conv1"])  # type: ignore[arg-type]
    old = nn.Sequential(nn.utils.spectral_norm(nn.Linear(D, 4)), nn.Linear(4, CLASSES))
    with pytest.raises(InputError, match=r"'0', whose weight is computed anew.*skip=\['0'\]"):
        bignn.binarize_(old)
    assert type(old[1]) is nn.Linear  # nothing was changed

"""What ``binarize_`` makes of a model: its layers, parameters, formulas and report."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from pyg_models import CLASSES, NAMES, D, Modules, Own, family, make_data, train
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data

import bignn
from bignn import InputError
from bignn.binarize import binarize_features, sign
from bignn.nn import GCNConv, Linear
from bignn.nn.adjacency import normalized_adjacency
from bignn.nn.convert import Report
from bignn.nn.convert.converted_input import mark_features, signs_of_features
from bignn.nn.convert.wrapped_layer import MOST_DROPPED, input_maps
from bignn.nn.gin_conv import GINConv
from bignn.nn.sparse import SparseMatrix


@pytest.fixture
def data() -> Data:
    return make_data()


@pytest.mark.parametrize("name", NAMES)
def test_not_binarized_it_computes_what_it_did(name: str, data: Data) -> None:
    options: Any
    for options in (
        {},
        {"norm": "BatchNorm", "jk": "cat", "act": "elu"},
        {"norm": "BatchNorm", "act_first": True},
    ):
        model = family(**options)[name].eval()
        expected = model(data.x, data.edge_index)
        report = bignn.binarize_(model, binarize="none")
        assert torch.allclose(model(data.x, data.edge_index), expected, atol=1e-5), options
        assert report.bytes_before == report.bytes_after
        model.train()
        model(data.x, data.edge_index)  # dropout and batch statistics as they were


def test_not_binarized_models_of_ones_own_compute_what_they_did(data: Data) -> None:
    weight = torch.rand(data.num_edges)
    own = Own().eval()
    expected = own(data.x, data.edge_index, weight)
    bignn.binarize_(own, binarize="none")
    assert torch.allclose(own(data.x, data.edge_index, weight), expected, atol=1e-5)
    modules = Modules().eval()
    expected = modules(data)
    bignn.binarize_(modules, binarize="none")
    assert torch.allclose(modules(data), expected, atol=1e-5)


def test_parameters_are_the_same_objects() -> None:
    for model in family(norm="BatchNorm", jk="cat").values():
        before = {id(p): p.detach().clone() for p in model.parameters()}
        bignn.binarize_(model)
        after = {id(p): p for p in model.parameters()}
        assert before.keys() == after.keys()
        assert all(torch.equal(before[key], after[key]) for key in before)


def signs_of(x: Tensor) -> Tensor:
    """``β sign(x)``."""
    signs, beta = binarize_features(x)
    return signs * beta


def weights_of(linear: Linear) -> Tensor:
    """``α sign(W - median(W))``."""
    weight = linear.weight - linear.weight.median(dim=1, keepdim=True).values
    if linear.in_channels % 2 == 0:
        ordered = linear.weight.sort(dim=1).values
        middle = ordered[:, linear.in_channels // 2 - 1 : linear.in_channels // 2 + 1]
        weight = linear.weight - middle.mean(dim=1, keepdim=True)
    return sign(weight) * weight.abs().mean(dim=1, keepdim=True)


def standardized(x: Tensor) -> Tensor:
    return (x - x.mean(dim=0)) / x.std(dim=0, correction=0)


@torch.no_grad()
def test_the_functional_relu_and_dropout_are_looked_past(data: Data) -> None:
    """``Â W̃₂ sign(Â W̃₁ sign(standardised x) + b₁) + b₂``, with no ReLU between."""
    torch.manual_seed(0)
    model, plain = Own(dropout=0.5), Own(act=False)
    model.conv1.bias.normal_(std=0.1)  # so that no sum is close to 0
    plain.load_state_dict(model.state_dict())
    bignn.binarize_(model)
    bignn.binarize_(plain)
    for some in (model, plain):
        some.fit_input(data.x)  # type: ignore[operator]
        some.eval()
    out = model(data.x, data.edge_index)
    assert torch.equal(out, plain(data.x, data.edge_index))
    conv1, conv2 = model.conv1, model.conv2
    adjacency = normalized_adjacency(data.edge_index, None, data.num_nodes)
    h = adjacency @ (signs_of(standardized(data.x)) @ weights_of(conv1.lin).t()) + conv1.bias
    expected = adjacency @ (signs_of(h) @ weights_of(conv2.lin).t()) + conv2.bias
    assert torch.allclose(out, expected, atol=1e-4)
    model.train()
    model(data.x, data.edge_index)
    assert conv2.lin.dropout == MOST_DROPPED
    assert conv1.lin.dropout == 0.5  # features drop what the forward does


@torch.no_grad()
def test_the_first_layer_drops_as_the_next_one_unless_its_input_is_dropped(data: Data) -> None:
    class Dropped(Own):
        def forward(
            self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None
        ) -> Tensor:
            x = functional.dropout(x, 0.2, self.training)
            return super().forward(x, edge_index, edge_weight)

    for kind, dropout, asked, expected in (
        (Own, 0.3, None, 0.3),
        (Own, 0.3, 0.1, 0.1),
        (Own, 0.0, None, 0.0),
        (Dropped, 0.3, None, 0.2),
    ):
        model = kind(dropout=dropout)
        report = bignn.binarize_(model, dropout=asked)
        assert ("'conv1' drops 0.3" in str(report)) == (dropout == 0.3 and asked is None)
        model.train()
        model(data.x, data.edge_index)
        assert model.conv1.lin.dropout == pytest.approx(expected)


class LinearFirst(nn.Module):
    """A linear map of the features, then a convolution."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.lin, self.conv, self.head = nn.Linear(D, 32), conv, nn.Linear(32, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = functional.dropout(self.lin(x).relu(), 0.5, self.training)
        out: Tensor = self.head(self.conv(h, edge_index))
        return out


@torch.no_grad()
def test_linear_maps_of_features_drop_words_and_not_their_absence(data: Data) -> None:
    """A node without words is the same in every draw; convolutions drop all kinds of bits."""
    torch.manual_seed(0)
    words = (torch.rand(data.num_nodes, D) < 0.1).float()
    words[0] = 0
    model = LinearFirst(pyg.GCNConv(32, 32))
    report = bignn.binarize_(model)
    assert "'lin' drops 0.5" in str(report)
    seen: list[Tensor] = []
    model.lin.register_forward_hook(lambda module, args, out: seen.append(out.clone()))
    model.train()
    for _ in range(2):
        model(words, data.edge_index)
    assert model.lin.dropout == 0.5
    assert torch.equal(seen[0][0], seen[1][0])
    assert not torch.equal(seen[0], seen[1])
    own: Any = Own()
    bignn.binarize_(own)
    assert own.conv1.lin.drop == "all"


@torch.no_grad()
def test_maps_of_features_within_an_unknown_convolution_drop_words(data: Data) -> None:
    class Unknown(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = pyg.LEConv(D, 32), pyg.LEConv(32, CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.conv1(x, edge_index).relu()
            out: Tensor = self.conv2(functional.dropout(h, 0.3, self.training), edge_index)
            return out

    model: Any = Unknown()
    report = bignn.binarize_(model)
    model.train()(data.x, data.edge_index)
    maps = ("lin1", "lin2", "lin3")
    for name in maps:
        first, second = getattr(model.conv1, name), getattr(model.conv2, name)
        assert (first.dropout, first.drop) == (0.3, "present")
        assert second.drop == "all"
    assert "'conv1.lin1' drops 0.3 of its input (only bits that are unusual in their" in str(report)


@torch.no_grad()
def test_only_what_reads_the_features_drops_words(data: Data) -> None:
    """However many read them, in any order of modules; sums and hidden values are others."""

    class Parallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin, self.conv = nn.Linear(D, 32), pyg.SAGEConv(D, 32, aggr="max")
            self.head, self.skip = nn.Linear(32, CLASSES), nn.Linear(D, 32)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.lin(x) + self.skip(x) + self.conv(x, edge_index)
            out: Tensor = self.head(functional.dropout(h, 0.4, self.training))
            return out

    model: Any = Parallel()
    bignn.binarize_(model)
    model.train()(data.x, data.edge_index)
    for layer in (model.lin, model.skip, model.conv.lin_r):
        assert (layer.drop, layer.dropout) == ("present", 0.4)
    assert model.head.drop == model.conv.lin_l.drop == "all"
    plain: Any = Parallel()
    bignn.binarize_(plain, binarize="none")
    plain.train()(data.x, data.edge_index)
    assert plain.lin.drop == "all"


def test_signs_of_features_are_made_once_unless_these_change() -> None:
    x = torch.tensor([[1.0, -2.0], [-3.0, 4.0]])
    mark_features(x)
    made = signs_of_features(x)
    assert signs_of_features(x) is made
    assert torch.equal(made.signs, torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
    x.neg_()
    assert torch.equal(signs_of_features(x).signs, torch.tensor([[-1.0, 1.0], [1.0, -1.0]]))


@torch.no_grad()
def test_module_activations_and_a_data_argument(data: Data) -> None:
    torch.manual_seed(0)
    model: Any = Modules()
    report = bignn.binarize_(model)
    assert any(isinstance(module, GINConv) for module in model.modules())
    assert isinstance(model.gin.rest[0], nn.Identity)  # a ReLU before
    before = data.x.clone()
    model.train()
    model(data)  # fits the input
    assert torch.equal(data.x, before)
    assert model.conv.lin_l.dropout == model.conv.lin_r.dropout == MOST_DROPPED
    model.eval()
    out = model(data)
    x = signs_of(standardized(data.x))
    z = x @ weights_of(model.gin.lin).t()
    summed = z.clone().index_add_(0, data.edge_index[1], z[data.edge_index[0]])
    last = model.gin.rest[1]
    centred = last.center(summed + model.gin.lin.bias)
    h = signs_of(centred) @ weights_of(last).t() + last.bias
    h = signs_of(model.bn(h))
    mean = torch.zeros(len(h), 16).index_add_(
        0, data.edge_index[1], (h @ weights_of(model.conv.lin_l).t())[data.edge_index[0]]
    )
    degree = torch.bincount(data.edge_index[1], minlength=len(h)).clamp(min=1)
    h = mean / degree[:, None] + h @ weights_of(model.conv.lin_r).t() + model.conv.lin_l.bias
    expected = signs_of(h) @ weights_of(model.lin_out).t() + model.lin_out.bias
    assert torch.allclose(out, expected.log_softmax(dim=-1), atol=1e-4)
    assert "bn" in str(report)


@torch.no_grad()
def test_gin_in_floats_is_gin(data: Data) -> None:
    """``W ((1 + ε) x_i + Σ x_j) + b`` is ``(1 + ε) W x_i + Σ W x_j + b``."""
    network = nn.Sequential(nn.Linear(D, 8), nn.Tanh(), nn.Linear(8, 3))
    conv = pyg.GINConv(network, eps=0.3, train_eps=True)
    model = nn.ModuleDict({"conv": conv})
    expected = conv(data.x, data.edge_index)
    bignn.binarize_(model, binarize="none")
    assert torch.allclose(model["conv"](data.x, data.edge_index), expected, atol=1e-5)
    assert "conv.eps" in dict(model.named_parameters())


def test_edge_weights_and_sparse_matrices_go_where_they_went(data: Data) -> None:
    weight = torch.rand(data.num_edges)
    order = torch.argsort(data.edge_index[1] * data.num_nodes + data.edge_index[0])
    size = (data.num_nodes, data.num_nodes)
    matrix = SparseMatrix.from_entries(
        data.edge_index[1][order], data.edge_index[0][order], weight[order], size
    ).matrix
    model = family()["gcn"]
    bignn.binarize_(model)
    model.fit_input(data.x)
    plain = model(data.x, data.edge_index)
    weighted = model(data.x, data.edge_index, edge_weight=weight)
    assert not torch.allclose(plain, weighted)
    assert torch.allclose(model(data.x, matrix), weighted, atol=1e-5)


def test_activation_and_dropout_of_pygs_models(data: Data) -> None:
    for model in family(dropout=0.5, jk="cat").values():
        bignn.binarize_(model)
        assert isinstance(model.act, nn.Identity)
        assert model.dropout.p == 0
        shares = [[linear.dropout for linear in input_maps(conv)] for conv in model.convs]
        assert set(shares[0]) == {0.5}
        assert all(set(share) == {MOST_DROPPED} for share in shares[1:])
        assert model.lin.dropout == MOST_DROPPED
        model.train()
        assert not torch.equal(model(data.x, data.edge_index), model(data.x, data.edge_index))
        model.eval()
        assert torch.equal(model(data.x, data.edge_index), model(data.x, data.edge_index))


def test_dropout_can_be_given(data: Data) -> None:
    model = Own(dropout=0.5)
    bignn.binarize_(model, dropout=0.25)
    model(data.x, data.edge_index)
    assert model.conv1.lin.dropout == model.conv2.lin.dropout == 0.25


def test_an_activation_in_two_places_is_taken_out_of_both(data: Data) -> None:
    """PyG's MLP has one ``act`` for all its layers."""
    network = pyg.MLP([D, 16, 16, CLASSES], norm=None, dropout=0.25)
    model: Any = nn.ModuleDict({"conv": pyg.GINConv(network)})
    bignn.binarize_(model)
    rest = model["conv"].rest
    assert not any(isinstance(part, nn.ReLU) for part in rest)
    assert rest.lin1.dropout == rest.lin2.dropout == MOST_DROPPED
    act = nn.ReLU()
    maps = [nn.Linear(width, 8) for width in (D, 8, 8)]
    chain = nn.Sequential(maps[0], act, maps[1], act, maps[2], act)
    twin = nn.ModuleDict({"conv": pyg.GINConv(copy.deepcopy(chain))})
    expected = twin["conv"](data.x, data.edge_index)
    bignn.binarize_(twin, binarize="none")
    assert torch.allclose(twin["conv"](data.x, data.edge_index), expected, atol=1e-5)
    model = nn.ModuleDict({"chain": chain})
    bignn.binarize_(model, narrow=0)
    kinds = [type(part) for part in model["chain"]]
    assert kinds == [Linear, nn.Identity, Linear, nn.Identity, Linear, nn.ReLU]


def test_skip_keeps_modules_float_and_their_activations(data: Data) -> None:
    torch.manual_seed(0)
    model = Modules()
    report = bignn.binarize_(model, skip=["lin_out"])
    assert type(model.lin_out) is nn.Linear
    seen: list[Tensor] = []
    model.lin_out.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model(data)
    assert float(seen[0].detach().min()) >= -1  # after the ELU
    entry = next(entry for entry in report.entries if entry.name == "lin_out")
    assert entry.note == "float: in 'skip'"
    gcn = family(dropout=0.5)["gcn"]
    report = bignn.binarize_(gcn, skip=["convs.0"])
    assert isinstance(gcn.act, nn.ReLU)
    assert not hasattr(gcn, "fit_input")
    assert "not standardised" in str(report)
    gcn(data.x, data.edge_index)
    assert gcn.convs[1].lin.dropout == MOST_DROPPED
    given = family(dropout=0.5)["gcn"]
    bignn.binarize_(given, dropout=0.4)
    given(data.x, data.edge_index)
    assert given.convs[1].lin.dropout == 0.4


def test_first_names_the_layer_that_reads_the_features(data: Data) -> None:
    class Backwards(Own):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = pyg.GCNConv(16, CLASSES), pyg.GCNConv(D, 16)

        def forward(self, x: Tensor, edge_index: Tensor, _: Tensor | None = None) -> Tensor:
            out: Tensor = self.conv1(self.conv2(x, edge_index).relu(), edge_index)
            return out

    for options in ({}, {"first": "conv2"}):  # the forward shows it too
        model = Backwards()
        bignn.binarize_(model, **options)  # type: ignore[arg-type]
        model.fit_input(data.x)  # type: ignore[operator]
        assert model(data.x, data.edge_index).shape == (120, CLASSES)


def test_a_shared_layer_stays_shared(data: Data) -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = pyg.GCNConv(D, D)
            self.b = self.a

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            out: Tensor = self.b(self.a(x, edge_index).relu(), edge_index)
            return out

    model = Shared()
    bignn.binarize_(model)
    assert model.a is model.b
    assert isinstance(model.a, GCNConv)
    model(data.x, data.edge_index)


def test_the_report_counts_bytes() -> None:
    model = pyg.GCN(64, 128, 2, 8)
    report = bignn.binarize_(model)
    assert isinstance(report, Report)
    assert report.bytes_before == 4 * (64 * 128 + 128 + 128 * 8 + 8)
    assert report.bytes_after == (64 * 128 + 128 * 8) // 8 + 4 * 2 * (128 + 8)
    assert [entry.name for entry in report.entries] == ["convs.0", "convs.1"]
    assert "features+weights" in str(report)


def test_bits_that_only_our_own_models_choose_are_refused() -> None:
    with pytest.raises(InputError, match=r"got 'auto'; 'auto' is for models of bignn\.nn"):
        bignn.binarize_(pyg.GCN(5, 4, 2, 2), input_bits="auto")


def test_a_bare_sequential_is_standardised_at_its_first_layer(data: Data) -> None:
    model = nn.Sequential(nn.Linear(D, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    report = bignn.binarize_(model)
    assert len(model) == 3
    assert report.obstacle is None
    bignn.fit(model, data, {"epochs": 3}, progress=False)
    assert np.array_equal(bignn.pack(model).predict(data), model(data.x).argmax(dim=1))


def test_detached_values_are_looked_past_as_packing_does(data: Data) -> None:
    class Detached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = pyg.GCNConv(D, 32), pyg.GCNConv(32, 32)
            self.lin = nn.Linear(32, CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.conv1(x, edge_index).relu().detach()
            out: Tensor = self.lin(self.conv2(h, edge_index).relu().detach())
            return out

    model = Detached()
    bignn.binarize_(model)
    assert not hasattr(model.conv2, "center")
    train(model, data, lambda: model(data.x, data.edge_index), epochs=20)
    expected = model(data.x, data.edge_index).detach().numpy()
    logits = bignn.pack(model).predict(data, output="values")
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


def test_pairs_of_equal_sizes_pack(data: Data) -> None:
    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = pyg.SAGEConv((-1, -1), 16)
            self.conv2 = pyg.SAGEConv((16, 16), CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            out: Tensor = self.conv2(self.conv1(x, edge_index).relu(), edge_index)
            return out

    model = Pairs()
    assert bignn.binarize_(model, example=data).obstacle is None
    train(model, data, lambda: model(data.x, data.edge_index), epochs=20)
    expected = model(data.x, data.edge_index).argmax(dim=1)
    assert np.array_equal(bignn.pack(model).predict(data), expected)


def test_a_model_that_has_diverged_is_not_packed(data: Data) -> None:
    model = pyg.GCN(D, 16, 2, CLASSES)
    bignn.binarize_(model)
    model(data.x, data.edge_index)
    with torch.no_grad():
        model.convs[1].lin.weight[0, 0] = torch.nan
    with pytest.raises(InputError, match=r"NaN or infinite values in 'convs.1.lin.weight'; it has"):
        bignn.pack(model.eval())

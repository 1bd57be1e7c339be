"""Binary layers read signs that carry information: centring by itself, and warnings."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from pyg_models import CLASSES, NAMES, Between, D, Own, family, make_data, train
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data

import bignn
from bignn import InputError
from bignn.nn import BatchNorm
from bignn.nn.convert.center import Center
from bignn.nn.convert.sign_watch import warn_of_equal_rows
from bignn.nn.convert.wrapped_layer import MOST_DROPPED


@pytest.fixture
def data() -> Data:
    return make_data()


def centred(model: nn.Module) -> set[str]:
    return {
        name.removesuffix(".center")
        for name, module in model.named_modules()
        if isinstance(module, BatchNorm)
    }


def between(function: Callable[..., Tensor]) -> nn.Module:
    torch.manual_seed(0)
    model = Between(function)
    bignn.binarize_(model)
    return model


class HeadAfter(nn.Module):
    """A convolution, something of its output, and a linear map of that."""

    def __init__(self, conv: nn.Module, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.conv, self.norm, self.head = conv, norm, nn.Linear(32, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.conv(x, edge_index)
        out: Tensor = self.head(h if self.norm is None else self.norm(h.relu()))
        return out


def test_what_may_have_one_sign_or_hardly_any_size_is_centred() -> None:
    """An unknown convolution may end in a ReLU, a norm that scales may leave next to nothing."""
    for conv, norm, expected in (
        (pyg.GCNConv(D, 32), None, False),
        (pyg.LEConv(D, 32), None, True),
        (pyg.GCNConv(D, 32), pyg.GraphSizeNorm(), True),
        (pyg.GCNConv(D, 32), pyg.BatchNorm(32), False),
    ):
        model = HeadAfter(conv, norm)
        bignn.binarize_(model)
        assert ("head" in centred(model)) == expected


class Scaled(nn.Module):
    """A convolution of features that a norm, or a function, has had first."""

    def __init__(self, first: nn.Module | Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.conv = first, pyg.GCNConv(D, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.conv(self.first(x), edge_index)
        return out


def test_normalised_features_are_centred_again() -> None:
    """The shift of a norm would flip all zeros of a column."""
    for first, expected in ((nn.BatchNorm1d(D), True), (nn.Identity(), False)):
        model = Scaled(first)
        bignn.binarize_(model)
        assert ("conv" in centred(model)) == expected


class DropsFirst(Scaled):
    """The same, of dropped features."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(functional.dropout(x, 0.5, self.training), edge_index)


def test_normalised_dropped_features_are_centred_again() -> None:
    model = DropsFirst(nn.BatchNorm1d(D))
    bignn.binarize_(model)
    assert centred(model) == {"conv"}


def test_numbers_that_are_none_are_told_of(data: Data) -> None:
    model: Any = Own()
    bignn.binarize_(model)
    model.conv1.bias.data.fill_(-1.0)
    model.conv1.register_forward_hook(lambda module, args, out: out.log())
    with pytest.warns(UserWarning, match="of the numbers that 'conv2' reads are NaN"):
        model(data.x, data.edge_index)


@pytest.mark.parametrize(
    "computed", [functional.normalize, torch.sqrt, lambda x: x / x.sum(dim=1, keepdim=True)]
)
def test_what_a_forward_computes_of_the_features_is_standardised(
    computed: Callable[[Tensor], Tensor], data: Data
) -> None:
    """It is given the features as they are: standardised ones have no root, and sums of about 0."""
    data.x = data.x.abs() + 0.1
    model: Any = Scaled(computed)
    bignn.binarize_(model)
    assert not hasattr(model, "input_stage")
    model(data.x, data.edge_index)
    expected = computed(data.x)
    torch.testing.assert_close(model.conv.input_stage.mean, expected.mean(dim=0))
    assert centred(model) == set()


def test_convolutions_that_stay_float_are_known() -> None:
    model: Any = Own()
    bignn.binarize_(model, skip="conv1")
    assert centred(model) == set()


def test_statistics_of_centred_inputs_follow_the_weights_closely(data: Data) -> None:
    """They are the last batch's, where all batches have as many rows."""
    model: Any = between(lambda h, y: h.relu() + y.relu())
    center = model.head.center
    assert isinstance(center, BatchNorm)
    seen: list[Tensor] = []
    center.register_forward_pre_hook(lambda module, args: seen.append(args[0].mean(dim=0)))
    for _ in range(2):
        model(data.x, data.edge_index)
        with torch.no_grad():
            model.conv.bias += 1
    assert center.running_mean is not None
    assert not torch.allclose(seen[0], seen[1], atol=0.1)
    assert torch.allclose(center.running_mean, seen[1], atol=1e-5)


def test_a_small_last_batch_hardly_moves_the_statistics() -> None:
    """A batch moves them by a fifth of its rows' share in the largest so far."""
    torch.manual_seed(0)
    center = Center(3)
    whole, few = 5 + torch.randn(100, 3), -5 + torch.randn(2, 3)
    center(whole)
    assert center.running_mean is not None
    assert center.running_var is not None
    assert torch.allclose(center.running_mean, whole.mean(dim=0))
    assert torch.allclose(center.running_var, whole.var(dim=0))
    before = center.running_mean.clone()
    center(few)
    assert torch.allclose(center.running_mean, 0.996 * before + 0.004 * few.mean(dim=0))
    before = center.running_mean.clone()
    center(whole)
    assert torch.allclose(center.running_mean, 0.8 * before + 0.2 * whole.mean(dim=0))


@pytest.mark.parametrize(
    "function",
    [
        lambda h, y: h,
        lambda h, y: h.relu(),
        lambda h, y: h + y,
        lambda h, y: (0.5 * h + y).relu(),
        lambda h, y: torch.cat([h, y.relu()], dim=1)[:, :16],
        lambda h, y: functional.dropout(h.relu(), 0.5, False),
        lambda h, y: h + functional.elu(y),
        lambda h, y: functional.layer_norm(h.relu(), [16]),
    ],
)
def test_centred_inputs_stay_as_they_are(function: Callable[..., Tensor]) -> None:
    assert centred(between(function)) == set()


@pytest.mark.parametrize(
    "function",
    [
        lambda h, y: h.relu() + y.relu(),
        lambda h, y: h + y.relu(),
        lambda h, y: (h.relu() + y).relu(),
        lambda h, y: h.clamp(min=0),
        lambda h, y: functional.normalize(h.relu(), dim=1),
        lambda h, y: 0.5 * h.relu(),
        lambda h, y: h * y,
        lambda h, y: torch.maximum(h, y),
        lambda h, y: torch.cat([h, y.square()], dim=1)[:, :16],
        lambda h, y: h + 1.0,
        lambda h, y: h if h.sum() > 0 else y,  # cannot be traced
    ],
)
def test_uncentred_inputs_are_centred(function: Callable[..., Tensor], data: Data) -> None:
    model = between(function)
    assert "head" in centred(model)
    seen: list[Tensor] = []
    model.head.register_forward_pre_hook(lambda _, args: seen.append(args[0]))  # type: ignore
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(data.x, data.edge_index)
    assert torch.allclose(seen[0].mean(dim=0), torch.zeros(16), atol=1e-5)


def test_the_report_names_what_is_centred() -> None:
    model = Between(lambda h, y: h.relu() + y.relu())
    assert "The input of 'head' is centred by batch normalisation" in str(bignn.binarize_(model))
    model = Between(lambda h, y: h if h.sum() > 0 else y)
    assert "'side', 'head' is centred" in str(bignn.binarize_(model))
    report = bignn.binarize_(Between(lambda h, y: h.relu()))
    assert "centred" not in str(report)


def test_an_embedding_and_a_pooling_are_centred(data: Data) -> None:
    class Graphs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.GCNConv(D, 16)
            self.embed = nn.Embedding(3, 16)
            self.lin, self.lin2 = nn.Linear(16, 16), nn.Linear(16, CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            x = self.conv(x, edge_index).relu()
            pooled = pyg.global_add_pool(x, batch, 3)
            out: Tensor = self.lin2(self.lin(self.embed(batch)) + pooled[batch])
            return out

    model = Graphs()
    bignn.binarize_(model)
    assert centred(model) == {"lin", "lin2"}


def test_pygs_models_of_two_layers_need_none_but_jk_max_and_the_networks_of_gin() -> None:
    expected = {"gcn": {"convs.2"}, "sage": set(), "gat": set(), "gin": {"convs.0.rest.lin1"}}
    for name, model in family().items():
        bignn.binarize_(model)
        assert centred(model) == expected[name]
    for model in (*family(norm="batch", jk="cat").values(), Own()):
        bignn.binarize_(model)
        assert centred(model) == set()
    for jump in ("max", "cat"):  # a head is the third layer in a row
        model = pyg.GCN(D, 16, 2, CLASSES, jk=jump)
        bignn.binarize_(model)
        assert centred(model) == {"lin"}


def test_the_third_layer_in_a_row_is_centred_and_every_second_after_it(data: Data) -> None:
    model: Any = pyg.GAT(D, 32, 6, CLASSES, heads=4)
    report = bignn.binarize_(model)
    assert centred(model) == {"convs.2", "convs.4"}
    assert "'convs.2', 'convs.4' is centred" in str(report)
    normalised = pyg.GCN(D, 16, 5, CLASSES, norm="layer")
    bignn.binarize_(normalised)
    assert centred(normalised) == set()
    for _ in range(3):
        model(data.x, data.edge_index)
    packed = bignn.pack(model.eval())
    with torch.no_grad():
        expected = model(data.x, data.edge_index).argmax(dim=1)
    assert np.array_equal(packed.predict(data), expected)


def test_layers_of_few_bits_are_noted() -> None:
    narrow = pyg.GCN(D, 8, 2, CLASSES)
    wide = pyg.GCN(D, 16, 2, CLASSES)
    assert "'convs.1' reads 8 bits of each node" in str(bignn.binarize_(narrow))
    assert "bits of each node" not in str(bignn.binarize_(wide))


class Residual(nn.Module):
    def __init__(self, *, sum_last: bool) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.GCNConv(D, 32), pyg.GCNConv(32, 32)
        self.conv3 = pyg.GCNConv(32, CLASSES)
        self.sum_last = sum_last

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(x, edge_index).relu()
        h = self.conv2(x, edge_index)
        x = x + h.relu() if self.sum_last else (x + h).relu()
        out: Tensor = self.conv3(x, edge_index)
        return out


@pytest.mark.parametrize("sum_last", [True, False])
def test_residual_models_train_pack_and_keep_their_state(sum_last: bool, data: Data) -> None:
    torch.manual_seed(0)
    model = Residual(sum_last=sum_last)
    before = copy.deepcopy(model)
    bignn.binarize_(model)
    assert centred(model) == {"conv3"}
    assert train(model, data, lambda: model(data.x, data.edge_index), 30) > 0.8
    expected = model(data.x, data.edge_index)
    assert torch.equal(torch.from_numpy(bignn.pack(model).predict(data)), expected.argmax(dim=-1))
    other = Residual(sum_last=sum_last)
    bignn.binarize_(other)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.eval()(data.x, data.edge_index), expected)
    plain = before(data.x, data.edge_index)
    bignn.binarize_(before, binarize="none")
    assert torch.allclose(before(data.x, data.edge_index), plain, atol=1e-5)


def test_dead_columns_are_told_once_and_in_training_only(data: Data) -> None:
    torch.manual_seed(0)
    model = Residual(sum_last=True)
    bignn.binarize_(model, center=False)
    model.fit_input(data.x)  # type: ignore[operator]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.eval()(data.x, data.edge_index)
        model.train()(data.x[:20], data.edge_index[:, :0])  # too few rows to tell
    told = r"'conv3' reads have one sign at all 120 rows.*center=True"
    with pytest.warns(UserWarning, match=told) as caught:
        for _ in range(40):
            model(data.x, data.edge_index)
    assert len(caught) == 1


def test_columns_that_die_later_are_told(data: Data) -> None:
    model = Own()
    bignn.binarize_(model)
    for _ in range(20):
        model(data.x, data.edge_index)
    with torch.no_grad():
        model.conv1.bias.fill_(100.0)
    with pytest.warns(UserWarning, match=r"100% of the columns that 'conv2' reads"):
        for _ in range(20):
            model(data.x, data.edge_index)


def test_equal_outputs_are_told(data: Data) -> None:
    model = Own()
    bignn.binarize_(model, skip=["conv2"])
    with torch.no_grad():
        model.conv2.lin.weight.zero_()
    for _ in range(7):  # a good model may begin so
        model(data.x, data.edge_index)
    with pytest.warns(UserWarning, match="outputs are equal at all 120 rows"):
        model(data.x, data.edge_index)


def test_equal_outputs_in_evaluation_are_told_after_training(data: Data) -> None:
    """As where the running statistics of a centred layer fall behind its weights."""
    model = Residual(sum_last=True)
    bignn.binarize_(model)
    for _ in range(8):
        model(data.x, data.edge_index)
    model.eval()
    with torch.no_grad():
        model.conv3.lin.weight.fill_(0.0)
    with pytest.warns(UserWarning, match="outputs are equal at all 120 rows") as told:
        for _ in range(4):
            model(data.x, data.edge_index)
    assert len(told) == 1


def test_outputs_that_are_equal_at_nearly_all_rows_are_told() -> None:
    out = torch.randn(1, CLASSES).repeat(100, 1)
    out[:4] += 1.0
    with pytest.warns(UserWarning, match=r"outputs are equal at 96\.0% of 100 rows"):
        assert warn_of_equal_rows(out)
    out[:10] += torch.randn(10, 1)
    assert not warn_of_equal_rows(out)


def test_learned_embeddings_are_no_dense_features(data: Data) -> None:
    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.conv = nn.Embedding(200, 16), pyg.GCNConv(16, CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            out: Tensor = self.conv(self.embed(x.squeeze(-1)), edge_index)
            return out

    model = Embedded()
    bignn.binarize_(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(torch.arange(data.num_nodes)[:, None], data.edge_index)


def test_fit_tells_of_equal_outputs(data: Data) -> None:
    class Equal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits = nn.Parameter(torch.zeros(1, CLASSES))

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.logits.expand(len(x), -1)

    with pytest.warns(UserWarning, match="outputs are equal at all 120 rows"):
        bignn.fit(Equal(), data, bignn.Settings(epochs=1), progress=False)


def test_identity_features_name_the_first_layer() -> None:
    edges = torch.randint(200, (2, 600), generator=torch.Generator().manual_seed(0))
    layers = [
        (pyg.GCNConv(200, 32), "x, edge_index -> x"),
        nn.ReLU(),
        (pyg.GCNConv(32, 4), "x, edge_index -> x"),
    ]
    models: list[tuple[nn.Module, str]] = [
        (pyg.GCN(200, 32, 2, 4), r"convs\.0"),
        (pyg.Sequential("x, edge_index", layers), "module_0"),
    ]
    for model, first in models:
        bignn.binarize_(model)
        with pytest.warns(UserWarning, match=rf"skip=\['{first}'\]") as warned:
            for _ in range(4):
                model(torch.eye(200), edges)
        assert len(warned) == 1


def test_few_dense_features_are_told() -> None:
    x = torch.randn(200, 16, generator=torch.Generator().manual_seed(0))
    edges = torch.randint(200, (2, 600), generator=torch.Generator().manual_seed(0))
    told = r"'{}' reads 16 dense features .* binarize_\(model, {}\), .*or .* skip=\['{}'\]"
    models: list[tuple[nn.Module, str, str]] = [
        (pyg.GCN(16, 32, 2, 4), "convs.0", "input_bits='learned:32'"),
        (pyg.Sequential("x, edge_index", [(pyg.GCNConv(16, 4), "x, edge_index -> x")]), "module_0",
         "input_bits='learned:32', first='module_0'"),
    ]  # fmt: skip
    for model, name, options in models:
        unconverted = copy.deepcopy(model)
        bignn.binarize_(model)
        with pytest.warns(UserWarning, match=told.format(name, options, name)):
            model(x, edges)
        first = None if name == "convs.0" else name
        bignn.binarize_(unconverted, input_bits="learned:32", first=first)
        for some, features in ((unconverted, x), (pyg.GCN(16, 32, 2, 4), (x > 1).float())):
            if some is not unconverted:
                bignn.binarize_(some)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                some(features, edges)
    model = pyg.Sequential("x, edge_index", [(pyg.TAGConv(16, 4), "x, edge_index -> x")])
    bignn.binarize_(model)
    with pytest.warns(UserWarning, match=r"so few; put a Linear before it, .*, or keep it float"):
        model(x, edges)
    # Its linear maps centre their input themselves.
    model = pyg.Sequential("x, edges", [(pyg.SAGEConv(16, 4, aggr="max"), "x, edges -> x")])
    bignn.binarize_(model)
    with pytest.warns(UserWarning, match="'module_0.* reads 16 dense features by their signs"):
        model(x, edges)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(x, edges)  # once is enough


def test_equal_features_are_told(data: Data) -> None:
    model = Own()
    bignn.binarize_(model, first="conv1")
    # The first layer's warning is enough: others read what it makes.
    with pytest.warns(UserWarning, match=r"'conv1' reads.*check that the features differ") as told:
        model(torch.ones_like(data.x), data.edge_index)
    assert len(told) == 1


@pytest.mark.parametrize("name", NAMES)
def test_healthy_models_train_in_silence(name: str, data: Data) -> None:
    model = family(dropout=0.5)[name]
    bignn.binarize_(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, data, lambda: model(data.x, data.edge_index), epochs=40)


def test_narrow_linear_maps_stay_float(data: Data) -> None:
    """GIN's last network maps classes to classes: a handful of signs."""
    torch.manual_seed(0)
    model = pyg.GIN(D, 16, 2, CLASSES)
    report = bignn.binarize_(model)
    last = model.convs[1].rest
    assert type(last.lin1) is pyg.Linear
    assert isinstance(last.act0, nn.ReLU)  # a float map reads activated values
    assert isinstance(model.act, nn.Identity)
    assert f"float: reads {CLASSES} numbers" in str(report)
    train(model, data, lambda: model(data.x, data.edge_index), epochs=5)
    expected = model(data.x, data.edge_index).argmax(dim=-1)
    assert torch.equal(torch.from_numpy(bignn.pack(model).predict(data)), expected)
    model = pyg.GIN(D, 16, 2, CLASSES)
    bignn.binarize_(model, narrow=0)
    assert isinstance(model.convs[1].rest.lin1, bignn.nn.Linear)
    with pytest.raises(InputError, match=r"nothing to binarize.*16 inputs or more"):
        bignn.binarize_(nn.Sequential(nn.Linear(4, 4)))


def test_hidden_layers_of_a_chain_drop_little_though_centred() -> None:
    chain = nn.Sequential(
        nn.Linear(D, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 32), nn.Dropout(0.1),
        nn.Linear(32, 2),
    )  # fmt: skip
    bignn.binarize_(chain, center=True)
    shares = [part.dropout for part in chain if hasattr(part, "wrapping")]
    assert shares == pytest.approx([0.0, MOST_DROPPED, 0.1])


def test_dropout_within_a_part_is_kept(data: Data) -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gnn = pyg.GCN(D, 16, 2, 16, dropout=0.5)
            self.lin = nn.Linear(16, CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            out: Tensor = self.lin(functional.dropout(self.gnn(x, edge_index), 0.1, self.training))
            return out

    model = Whole()
    bignn.binarize_(model)
    model(data.x, data.edge_index)
    assert model.gnn.convs[1].lin.dropout == pytest.approx(MOST_DROPPED)
    assert model.lin.dropout == pytest.approx(0.1)


def test_bad_options_say_so() -> None:
    with pytest.raises(InputError, match="'center' must be True, False or 'auto', got 'yes'"):
        bignn.binarize_(Own(), center="yes")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'narrow' must be a whole number, 0 or more, got -1"):
        bignn.binarize_(Own(), narrow=-1)

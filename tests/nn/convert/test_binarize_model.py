"""PyG's models made binary in place."""

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from conftest import make_arrays
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data

import bignn
from bignn import InputError
from bignn.binarize import binarize_features, sign
from bignn.nn import BatchNorm, GCNConv, Linear
from bignn.nn.convert.binarize_model import Report
from bignn.nn.convert.trace import trace
from bignn.nn.convert.wrapped_layer import entrances
from bignn.nn.gin_conv import GINConv

D, CLASSES = 20, 2


class Own(nn.Module):
    """The common example: a functional ReLU and dropout."""

    def __init__(self, *, act: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv1 = pyg.GCNConv(D, 16)
        self.conv2 = pyg.GCNConv(16, CLASSES)
        self.act, self.p = act, dropout

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        x = self.conv1(x, edge_index, edge_weight)
        x = x.relu() if self.act else x
        x = functional.dropout(x, p=self.p, training=self.training)
        out: Tensor = self.conv2(x, edge_index, edge_weight)
        return out


class Modules(nn.Module):
    """Module activations, a norm, a head, and a GIN layer."""

    def __init__(self) -> None:
        super().__init__()
        self.gin = pyg.GINConv(nn.Sequential(nn.Linear(D, 16), nn.ReLU(), nn.Linear(16, 16)))
        self.bn = nn.BatchNorm1d(16)
        self.relu = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.25)
        self.conv = pyg.SAGEConv(16, 16)
        self.elu = nn.ELU()
        self.lin_out = nn.Linear(16, CLASSES)

    def forward(self, data: Data) -> Tensor:
        x, edge_index = data.x, data.edge_index
        x = self.drop(self.relu(self.bn(self.gin(x, edge_index))))
        x = self.elu(self.conv(x, edge_index))
        return functional.log_softmax(self.lin_out(x), dim=-1)


def family(**options: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    return {
        "gcn": pyg.GCN(D, 16, 3, CLASSES, **options),
        "sage": pyg.GraphSAGE(D, 16, 2, CLASSES, **options),
        "gat": pyg.GAT(D, 16, 2, CLASSES, heads=4, **options),
        "gin": pyg.GIN(D, 16, 2, CLASSES, train_eps=True, **options),
    }


NAMES = list(family())


@pytest.fixture
def data() -> Data:
    arrays = make_arrays(num_nodes=120, num_features=D)
    edges = torch.from_numpy(arrays["edge_index"])
    data = Data(torch.from_numpy(arrays["x"]), edges, y=torch.from_numpy(arrays["y"]))
    for name in ("train", "val", "test"):
        mask = torch.zeros(120, dtype=torch.bool)
        mask[torch.from_numpy(arrays[f"{name}_idx"])] = True
        data[f"{name}_mask"] = mask
    return data


def train(model: nn.Module, data: Data, call: Callable[[], Tensor], epochs: int = 60) -> float:
    """A plain loop; the accuracy on test nodes."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        loss = functional.cross_entropy(call()[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        correct = call().argmax(dim=-1) == data.y
    return float(correct[data.test_mask].float().mean())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": "BatchNorm", "jk": "cat", "act": "elu"},
        {"norm": "BatchNorm", "act_first": True},
    ],
    ids=str,
)
def test_not_binarized_it_computes_what_it_did(
    name: str, options: dict[str, Any], data: Data
) -> None:
    model = family(**options)[name].eval()
    expected = model(data.x, data.edge_index)
    report = bignn.binarize_(model, binarize="none")
    assert torch.allclose(model(data.x, data.edge_index), expected, atol=1e-5)
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


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_the_same_objects(name: str) -> None:
    model = family(norm="BatchNorm", jk="cat")[name]
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
    adjacency = bignn.nn.normalized_adjacency(data.edge_index, None, data.num_nodes)
    h = adjacency @ (signs_of(standardized(data.x)) @ weights_of(conv1.lin).t()) + conv1.bias
    expected = adjacency @ (signs_of(h) @ weights_of(conv2.lin).t()) + conv2.bias
    assert torch.allclose(out, expected, atol=1e-4)
    model.train()
    model(data.x, data.edge_index)
    assert conv2.lin.dropout == 0.5
    assert conv1.lin.dropout == 0


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
    assert model.conv.lin_l.dropout == model.conv.lin_r.dropout == 0.25
    model.eval()
    out = model(data)
    x = signs_of(standardized(data.x))
    z = x @ weights_of(model.gin.lin).t()
    summed = z.clone().index_add_(0, data.edge_index[1], z[data.edge_index[0]])
    last = model.gin.rest[1]
    h = signs_of(summed + model.gin.lin.bias) @ weights_of(last).t() + last.bias
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
    matrix = bignn.nn.SparseMatrix.from_entries(
        data.edge_index[1][order], data.edge_index[0][order], weight[order], size
    ).matrix
    model = family()["gcn"]
    bignn.binarize_(model)
    model.fit_input(data.x)
    plain = model(data.x, data.edge_index)
    weighted = model(data.x, data.edge_index, edge_weight=weight)
    assert not torch.allclose(plain, weighted)
    assert torch.allclose(model(data.x, matrix), weighted, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@torch.no_grad()
def test_compiled_models_compute_the_same(data: Data) -> None:
    for name in ("sage", "gin"):
        model = family()[name]
        bignn.binarize_(model)
        model.fit_input(data.x)
        model.eval()
        compiled: Any = torch.compile(model, backend="eager")
        out = compiled(data.x, data.edge_index)
        assert torch.allclose(out, model(data.x, data.edge_index), atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_familys_act_and_dropout(name: str, data: Data) -> None:
    model = family(dropout=0.5, jk="cat")[name]
    bignn.binarize_(model)
    assert isinstance(model.act, nn.Identity)
    assert model.dropout.p == 0
    shares = [[linear.dropout for linear in entrances(conv)] for conv in model.convs]
    assert set(shares[0]) == {0.0}
    assert set(shares[1]) == {0.5}
    assert model.lin.dropout == 0.5
    model.train()
    assert not torch.equal(model(data.x, data.edge_index), model(data.x, data.edge_index))
    model.eval()
    assert torch.equal(model(data.x, data.edge_index), model(data.x, data.edge_index))


def test_dropout_can_be_given(data: Data) -> None:
    model = Own(dropout=0.5)
    bignn.binarize_(model, dropout=0.25)
    model(data.x, data.edge_index)
    assert model.conv1.lin.dropout == model.conv2.lin.dropout == 0.25


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("norm", [None, "BatchNorm"])
def test_a_plain_loop_trains_the_family(name: str, norm: str | None, data: Data) -> None:
    model = family(norm=norm, dropout=0.2)[name]
    bignn.binarize_(model)
    assert train(model, data, lambda: model(data.x, data.edge_index)) > 0.8


def test_a_plain_loop_trains_models_of_ones_own(data: Data) -> None:
    torch.manual_seed(0)
    own, modules = Own(dropout=0.3), Modules()
    for model in (own, modules):
        bignn.binarize_(model)
    assert train(own, data, lambda: own(data.x, data.edge_index)) > 0.8
    assert train(modules, data, lambda: modules(data)) > 0.8


def test_after_a_relu_alone_all_signs_are_plus(data: Data) -> None:
    """What looking past is for; and what batch normalisation before the sign does for it."""

    class Hidden(Own):
        def forward(self, x: Tensor, edge_index: Tensor, _: Tensor | None = None) -> Tensor:
            out: Tensor = self.conv2(self.conv1(x, edge_index).clamp(min=0), edge_index)
            return out

    torch.manual_seed(0)
    model = Hidden()
    bignn.binarize_(model)
    with pytest.warns(UserWarning, match="'conv2' has no number below 0.*center=True"):
        model(data.x, data.edge_index)
    model = Hidden()
    bignn.binarize_(model, center=True)
    assert isinstance(model.conv2.center, BatchNorm)
    assert train(model, data, lambda: model(data.x, data.edge_index)) > 0.8


def test_bignn_fit_trains_it(data: Data) -> None:
    for model in (family()["sage"], Own()):
        bignn.binarize_(model)
        settings = bignn.Settings(lr=0.01, epochs=40)
        result = bignn.fit(model, data, settings, progress=False)
        assert result.test_acc is not None
        assert result.test_acc > 80


@pytest.mark.parametrize("make", [lambda: family(norm="BatchNorm")["gat"], Own], ids=["gat", "own"])
def test_copies_and_states(make: Callable[[], nn.Module], data: Data) -> None:
    model = make()
    bignn.binarize_(model)
    with pytest.raises(InputError, match="no input statistics yet"):
        model.eval()(data.x, data.edge_index)
    model.train()
    model(data.x, data.edge_index)
    model.eval()
    expected = model(data.x, data.edge_index)
    twin = copy.deepcopy(model)
    assert torch.equal(twin(data.x, data.edge_index), expected)
    other = make()
    bignn.binarize_(other)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.eval()(data.x, data.edge_index), expected)
    twin.fit_input(2 * data.x + 1)  # type: ignore[operator]
    assert torch.equal(model(data.x, data.edge_index), expected)  # its own statistics
    assert not torch.equal(twin(data.x, data.edge_index), expected)
    thawed = pickle.loads(pickle.dumps(model))
    assert torch.equal(thawed(data.x, data.edge_index), expected)


def test_a_trained_model_is_a_start(data: Data) -> None:
    """Its binary version knows something before it has trained; an optimiser goes on."""
    torch.manual_seed(0)
    model = pyg.GraphSAGE(D, 64, 2, CLASSES, norm="BatchNorm")
    train(model, data, lambda: model(data.x, data.edge_index))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    bignn.binarize_(model)
    before = model.convs[0].lin_l.weight.detach().clone()
    model.train()
    functional.cross_entropy(model(data.x, data.edge_index), data.y).backward()
    optimizer.step()
    assert not torch.equal(before, model.convs[0].lin_l.weight)


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
    assert gcn.convs[1].lin.dropout == 0.5


def test_first_names_the_layer_that_reads_the_features(data: Data) -> None:
    class Backwards(Own):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = pyg.GCNConv(16, CLASSES), pyg.GCNConv(D, 16)

        def forward(self, x: Tensor, edge_index: Tensor, _: Tensor | None = None) -> Tensor:
            out: Tensor = self.conv1(self.conv2(x, edge_index).relu(), edge_index)
            return out

    model = Backwards()
    bignn.binarize_(model)
    with pytest.raises(InputError, match=r"'x' must be \[nodes, 16\]"):
        model(data.x, data.edge_index)
    model = Backwards()
    bignn.binarize_(model, first="conv2")
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


@pytest.mark.parametrize(
    ("layer", "line"),
    [
        (
            lambda: pyg.TransformerConv(4, 4),
            "'0' is a TransformerConv, which bignn cannot binarize",
        ),
        (lambda: pyg.SAGEConv(4, 4, aggr="max"), "SAGEConv with aggr='max'"),
        (lambda: pyg.SAGEConv(4, 4, project=True), "SAGEConv with project=True"),
        (lambda: pyg.SAGEConv(4, 4, normalize=True), "SAGEConv with normalize=True"),
        (lambda: pyg.SAGEConv(4, 4, root_weight=False), "SAGEConv with root_weight=False"),
        (lambda: pyg.SAGEConv((4, 5), 4), r"SAGEConv with in_channels=\(4, 5\)"),
        (lambda: pyg.GATConv(4, 4, edge_dim=2), "GATConv with edge_dim=2"),
        (lambda: pyg.GATConv(4, 4, residual=True), "GATConv with residual=True"),
        (lambda: pyg.GATConv(4, 4, add_self_loops=False), "GATConv with add_self_loops=False"),
        (lambda: pyg.GCNConv(4, 4, improved=True), "GCNConv with improved=True"),
        (lambda: pyg.GCNConv(4, 4, normalize=False), "GCNConv with add_self_loops=False"),
        (lambda: pyg.GCNConv(4, 4, flow="target_to_source"), "with flow='target_to_source'"),
        (lambda: pyg.GINConv(nn.Sequential(nn.ReLU(), nn.Linear(4, 4))), "begins with no Linear"),
        (lambda: pyg.GCNConv(-1, 4), "'0' with in_channels=-1; call it once before"),
        (nn.ReLU, "nothing to binarize"),
        (lambda: GCNConv(4, 4), "bignn's layers already"),
    ],
)
def test_what_cannot_be_binarized_says_so(layer: Callable[[], nn.Module], line: str) -> None:
    model = nn.ModuleList([layer()])
    before = str(model)
    with pytest.raises(InputError, match=line) as caught:
        bignn.binarize_(model)
    assert "\n" not in str(caught.value)
    assert str(model) == before


def test_bad_arguments_say_so(data: Data) -> None:
    options: Any
    for options, line in (
        ({"binarize": "all"}, "'binarize' must be one of"),
        ({"ste": "none"}, "'ste' must be one of"),
        ({"dropout": 1.0}, r"'dropout' must be in \[0, 1\)"),
        ({"skip": ["conv9"]}, "'skip' must be names of modules, such as .'conv1', 'conv2'"),
        ({"first": "conv9"}, "'first' must be names of modules"),
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


def test_bad_calls_say_so(data: Data) -> None:
    model = Own()
    bignn.binarize_(model)
    with pytest.raises(InputError, match="'conv2' was called from outside the model's forward"):
        model.conv2(torch.ones(3, 16), data.edge_index)
    with pytest.raises(InputError, match="name the layer that reads the features"):
        model(None, data.edge_index)
    with pytest.raises(InputError, match="'edge_index' must be a tensor"):
        model(data.x, None)
    # A failed call leaves nothing behind.
    assert not torch.overrides._get_current_function_mode_stack()
    sage = family()["gat"]
    bignn.binarize_(sage)
    with pytest.raises(InputError, match="no 'edge_attr'"):
        sage(data.x, data.edge_index, edge_attr=torch.ones(data.num_edges, 1))
    with pytest.raises(InputError, match="'x' must be a tensor"):
        sage((data.x, data.x), data.edge_index)


def packed_like_torch(model: nn.Module, call: Callable[[], Tensor], data: Data) -> None:
    """Every class, and the logits up to rounding; biases are random so that no sum is near 0."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
        model.train()
        for _ in range(3):
            call()
        modes = [module.training for module in model.modules()]
        packed = bignn.pack(model)
        assert modes == [module.training for module in model.modules()]
        expected = call_in_eval(model, call)
    graph = bignn.from_pyg(data)
    logits = torch.from_numpy(packed.predict(bignn.pack_graph(graph, like=packed), output="logits"))
    scores = logits.log_softmax(dim=-1)
    assert torch.allclose(scores, expected.log_softmax(dim=-1), atol=1e-4)
    classes = torch.from_numpy(packed.predict(bignn.pack_graph(graph, like=packed)))
    assert torch.equal(classes.long(), expected.argmax(dim=-1))


def call_in_eval(model: nn.Module, call: Callable[[], Tensor]) -> Tensor:
    model.eval()
    return call()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "options",
    [{}, {"norm": "BatchNorm", "dropout": 0.5}, {"norm": "BatchNorm", "jk": "cat"}],
    ids=str,
)
@pytest.mark.parametrize("binarize", ["both", "weights"])
def test_the_family_packs(name: str, options: dict[str, Any], binarize: Any, data: Data) -> None:
    model = family(**options)[name]
    bignn.binarize_(model, binarize=binarize)
    packed_like_torch(model, lambda: model(data.x, data.edge_index), data)


def test_models_of_ones_own_pack(data: Data) -> None:
    torch.manual_seed(0)
    own, modules, head, centered = Own(dropout=0.5), Modules(), Modules(), Own()
    bignn.binarize_(own)
    bignn.binarize_(modules)
    bignn.binarize_(head, skip=["lin_out"])  # its ELU counts
    bignn.binarize_(centered, center=True)  # its ReLU counts
    packed_like_torch(own, lambda: own(data.x, data.edge_index), data)
    packed_like_torch(modules, lambda: modules(data), data)
    packed_like_torch(head, lambda: head(data), data)
    packed_like_torch(centered, lambda: centered(data.x, data.edge_index), data)
    steps = [step["op"] for step in bignn.pack(centered).operations]
    assert "relu" in steps
    assert "relu" not in [step["op"] for step in bignn.pack(own).operations]


def test_what_cannot_be_packed_says_so(data: Data) -> None:
    class Branching(Own):
        def forward(self, x: Tensor, edge_index: Tensor, _: Tensor | None = None) -> Tensor:
            x = self.conv1(x, edge_index)
            return x if x.sum() > 0 else self.conv2(x, edge_index)

    class Scaled(Own):
        def forward(self, x: Tensor, edge_index: Tensor, _: Tensor | None = None) -> Tensor:
            out: Tensor = self.conv2(self.conv1(x, edge_index) * 2, edge_index.flip(0))
            return out

    unfitted = family()["gcn"]
    bignn.binarize_(unfitted)
    with pytest.raises(InputError, match="no input statistics yet"):
        bignn.pack(unfitted)
    with pytest.raises(InputError, match=r"one that bignn\.binarize_ has converted, got Own"):
        bignn.pack(Own())

    class Block(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.exp()

    class Nested(Own):
        def __init__(self, block: nn.Module) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([block])

        def forward(self, x: Tensor, edge_index: Tensor, _: Tensor | None = None) -> Tensor:
            out: Tensor = self.conv2(self.blocks[0](self.conv1(x, edge_index)), edge_index)
            return out

    class Deciding(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    for model, line in (
        (Branching(), "packed: its forward cannot be followed"),
        (Nested(Deciding()), r"that of Deciding 'blocks\.0' cannot be followed"),
        (Nested(Block()), r"does what 'exp' in Block 'blocks\.0' does"),
        (Nested(nn.BatchNorm1d(16, track_running_stats=False)), r"'blocks\.0' has no running"),
        (Nested(pyg.GraphNorm(16)), r"GraphNorm 'blocks\.0' does; take a BatchNorm"),
        (Scaled(), "'conv2' is not given the model's own edges"),
        (family(jk="max")["gcn"], "JumpingKnowledge 'jk' with mode 'max' does; take 'cat'"),
        (family(jk="lstm")["gcn"], "JumpingKnowledge 'jk' with mode 'lstm' does; take 'cat'"),
        (family(norm="layer")["gcn"], r"LayerNorm 'norms\.\d' does; take a BatchNorm"),
    ):
        report = bignn.binarize_(model)
        assert re.search(line, str(report).splitlines()[-1])  # before it is trained
        model.fit_input(data.x)  # type: ignore[operator]
        with pytest.raises(InputError, match=line) as caught:
            bignn.pack(model)
        assert "\n" not in str(caught.value)


def test_the_report_of_what_can_be_packed_is_silent_and_leaves_the_model_alone(data: Data) -> None:
    class Keeping(Own):
        last: Any = None
        calls = 0

        def forward(self, x: Tensor, edge_index: Tensor, _: Tensor | None = None) -> Tensor:
            self.calls += 1
            self.last = out = super().forward(x, edge_index)
            return out

    model = Keeping()
    report = bignn.binarize_(model)
    assert report.obstacle is None and "packed:" not in str(report)
    assert model.last is None and model.calls == 0 and model.training
    model(data.x, data.edge_index)
    assert isinstance(model.last, Tensor) and model.calls == 1


def test_values_moved_after_an_activation_are_followed(data: Data) -> None:
    class Jumping(nn.Module):
        def __init__(self, act: Callable[[Tensor], Tensor]) -> None:
            super().__init__()
            self.conv1, self.conv2 = pyg.GCNConv(D, 8), pyg.GCNConv(8, 8)
            self.lin = nn.Linear(16, CLASSES)
            self.act = act

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            a = self.act(self.conv1(x, edge_index))
            b = self.act(self.conv2(a, edge_index))
            out: Tensor = self.lin(torch.cat([a, b], dim=-1)[:10])
            return out

    outputs = []
    for act in (
        lambda h: h,
        torch.relu,
        functional.elu,
        lambda h: functional.relu_(h),
        lambda h: functional.relu(h, True),
        Tensor.relu_,
    ):
        torch.manual_seed(0)
        model = Jumping(act)
        bignn.binarize_(model)
        model.fit_input(data.x)  # type: ignore[operator]
        outputs.append(model(data.x, data.edge_index))
    for other in outputs[1:]:
        assert torch.equal(outputs[0], other)


def test_a_value_changed_in_place_is_not_looked_past(data: Data) -> None:
    class Changed(Own):
        def forward(self, x: Tensor, edge_index: Tensor, _: Tensor | None = None) -> Tensor:
            x = self.conv1(x, edge_index).relu()
            x -= 0.1
            out: Tensor = self.conv2(x, edge_index)
            return out

    model = Changed()
    bignn.binarize_(model)
    seen: list[Tensor] = []
    model.conv2.lin.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model(data.x, data.edge_index)
    assert float(seen[0].detach().min()) == pytest.approx(-0.1)


def test_a_change_in_place_of_what_was_before_says_so(data: Data) -> None:
    """``r = relu(h); h += y``: r is what it was, but what it was made from is gone."""

    class Changed(Own):
        moves = False

        def forward(self, x: Tensor, edge_index: Tensor, _: Tensor | None = None) -> Tensor:
            h = self.conv1(x, edge_index)
            r = h.relu()
            with torch.no_grad():
                h += 1
            r = functional.dropout(torch.cat([r], dim=1), 0.5, self.training) if self.moves else r
            out: Tensor = self.conv2(r, edge_index)
            return out

    for moves in (False, True):
        model = Changed()
        model.moves = moves
        bignn.binarize_(model)
        for training in (True, False):
            model.train(training)
            with pytest.raises(InputError, match=r"'conv2' reads was.*changed in place") as caught:
                model(data.x, data.edge_index)
            assert "\n" not in str(caught.value)
        float_reader = Changed()
        float_reader.moves = moves
        bignn.binarize_(float_reader, skip=["conv2"])
        float_reader(data.x, data.edge_index)  # it reads r itself


def test_parts_with_different_dropout_keep_their_origins(data: Data) -> None:
    """Side by side the layer drops the largest share; signs are those from before the ReLU."""

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = pyg.GCNConv(D, 8), pyg.GCNConv(D, 8)
            self.lin = nn.Linear(16, CLASSES)
            self.by_name = False

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            a = self.conv1(x, edge_index).relu()
            b = functional.dropout(self.conv2(x, edge_index).relu(), 0.5, self.training)
            both = torch.cat(tensors=[a, b], dim=1) if self.by_name else torch.cat([a, b], dim=1)
            out: Tensor = self.lin(both)
            return out

    for by_name in (False, True):
        model = Parts()
        model.by_name = by_name
        bignn.binarize_(model)
        seen: list[Tensor] = []
        model.lin.register_forward_pre_hook(lambda _, args, to=seen: to.append(args[0]))
        model(data.x, data.edge_index)
        assert model.lin.dropout == 0.5
        model.eval()
        model(data.x, data.edge_index)
        assert float(seen[0].detach().min()) < 0
        assert torch.equal(seen[0], seen[1])


def test_inference_mode(data: Data) -> None:
    model = Own(dropout=0.5)
    bignn.binarize_(model)
    model.fit_input(data.x)  # type: ignore[operator]
    model.eval()
    expected = model(data.x, data.edge_index)
    with torch.inference_mode():
        assert torch.equal(model(data.x, data.edge_index), expected)
        assert torch.equal(model(data.x.clone(), data.edge_index), expected)
        assert torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()


def test_an_activation_in_two_places_is_taken_out_of_both(data: Data) -> None:
    """PyG's MLP has one ``act`` for all its layers."""
    network = pyg.MLP([D, 16, 16, CLASSES], norm=None, dropout=0.25)
    model: Any = nn.ModuleDict({"conv": pyg.GINConv(network)})
    bignn.binarize_(model)
    rest = model["conv"].rest
    assert not any(isinstance(part, nn.ReLU) for part in rest)
    assert rest.lin1.dropout == rest.lin2.dropout == 0.25
    act = nn.ReLU()
    maps = [nn.Linear(width, 8) for width in (D, 8, 8)]
    chain = nn.Sequential(maps[0], act, maps[1], act, maps[2], act)
    twin = nn.ModuleDict({"conv": pyg.GINConv(copy.deepcopy(chain))})
    expected = twin["conv"](data.x, data.edge_index)
    bignn.binarize_(twin, binarize="none")
    assert torch.allclose(twin["conv"](data.x, data.edge_index), expected, atol=1e-5)
    model = nn.ModuleDict({"chain": chain})
    bignn.binarize_(model)
    kinds = [type(part) for part in model["chain"]]
    assert kinds == [Linear, nn.Identity, Linear, nn.Identity, Linear, nn.ReLU]


class Between(nn.Module):
    """A function of h and of a second branch y, before a linear map."""

    def __init__(self, between: Callable[..., Tensor], last: Any = None) -> None:
        super().__init__()
        self.conv, self.side = pyg.GCNConv(D, 16), pyg.GCNConv(D, 16)
        self.head = nn.Linear(16, CLASSES)
        self.between, self.last = between, last

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h, y = self.conv(x, edge_index), self.side(x, edge_index)
        out: Tensor = self.head(self.between(h, y))
        return out if self.last is None else self.last(out)


def changed_by_add(h: Tensor, y: Tensor) -> Tensor:
    alias = h
    h += y
    return alias


def changed_by_add_alone(h: Tensor, y: Tensor) -> Tensor:
    h.add_(y)
    return h


def changed_under_another_name(h: Tensor, y: Tensor) -> Tensor:
    alias = functional.dropout(h, 0.5, training=False)
    functional.relu(h, True)
    return alias


def changed_by_product(h: Tensor, y: Tensor) -> Tensor:
    alias = h
    h *= y
    return alias


@pytest.mark.parametrize(
    ("between", "options"),
    [
        (lambda h, y: torch.add(h, y, alpha=1), {}),
        (lambda h, y: torch.add(h, other=y), {}),
        (changed_by_add, {}),
        (changed_by_add_alone, {}),
        (changed_under_another_name, {"skip": ["head"]}),
        (lambda h, y: functional.elu_(h, 1.0), {"skip": ["head"]}),
        (lambda h, y: functional.leaky_relu(h, 0.5), {}),
    ],
)
@torch.no_grad()
def test_functions_between_layers_pack(between: Any, options: Any, data: Data) -> None:
    torch.manual_seed(0)
    for last in (None, lambda out: out.log_softmax(1), lambda out: functional.softmax(out, dim=-1)):
        model = Between(between, last)
        bignn.binarize_(model, **options)
        model.fit_input(data.x)  # type: ignore[operator]
        model.eval()
        expected = model(data.x, data.edge_index).argmax(dim=-1)
        packed = bignn.pack(model)
        classes = packed.predict(bignn.pack_graph(bignn.from_pyg(data), like=packed))
        assert torch.equal(torch.from_numpy(classes).long(), expected)


@pytest.mark.parametrize(
    ("between", "line"),
    [
        (lambda h, y: torch.add(h, y, alpha=2), "'add' with alpha=2 does"),
        (lambda h, y: h.add(y, alpha=-1), "'add' with alpha=-1 does"),
        (lambda h, y: h.add_(y, alpha=3), "'add_' with alpha=3 does"),
        (changed_by_product, "what 'imul' does"),
        (lambda h, y: functional.elu(h, alpha=2.0), "what 'elu' does"),
        (lambda h, y: functional.elu_(h, 2.0), "what 'elu' does"),
        (lambda h, y: functional.leaky_relu(h, 0.5), "what 'leaky_relu' does"),
        (lambda h, y: torch.cat([h, y]), "what 'cat' does"),
        (lambda h, y: torch.cat(tensors=[h, y], dim=0), "what 'cat' does"),
        (lambda h, y: h.mean(dim=1), "what 'mean' does"),
        (lambda h, y: h.softmax(dim=1), "what 'softmax' does"),
        (lambda h, y: functional.dropout(h, 0.5), "dropout acts in evaluation too"),
    ],
)
def test_arguments_of_functions_that_packing_lacks_say_so(
    between: Any, line: str, data: Data
) -> None:
    model = Between(between)
    bignn.binarize_(model, skip=["head"])  # it reads what comes after the activation
    model.fit_input(data.x)  # type: ignore[operator]
    with pytest.raises(InputError, match=line) as caught:
        trace(model)
    assert "\n" not in str(caught.value)


def test_a_softmax_over_the_nodes_is_not_dropped(data: Data) -> None:
    lasts: list[Any] = [
        lambda out: out.softmax(0),
        lambda out: torch.log_softmax(out, dim=-2),
        lambda out: functional.log_softmax(out, dim=0).log_softmax(dim=1),
    ]
    for last in lasts:
        model = Between(lambda h, y: h, last)
        bignn.binarize_(model)
        model.fit_input(data.x)  # type: ignore[operator]
        with pytest.raises(
            InputError, match=r"softmax' at its end is over dimension (0|-2), not 1"
        ):
            bignn.pack(model)

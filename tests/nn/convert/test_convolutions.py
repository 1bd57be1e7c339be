"""PyG's convolutions: converted, trained, packed; and those that train by the general rule."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from pyg_models import CLASSES, D
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data

import bignn
from bignn import InputError
from bignn.nn import BatchNorm, Linear
from bignn.nn.convert.inner_linear import InnerLinear
from bignn.nn.convert.wrapped_layer import Wrapping
from bignn.nn.convolution import TransformFirst

H = 16
Make = Callable[[int, int], nn.Module]


def make_graph(seed: int, *, weights: bool = False) -> Data:
    """50 random nodes: directed edges, some twice, self-loops, and five nodes without any."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(50, D, generator=generator)
    edges = torch.randint(0, 45, (2, 130), generator=generator)
    edges = torch.cat([edges, torch.tensor([[1, 2, 2], [1, 2, 2]])], dim=1)
    data = Data(x, edges, y=(x[:, 0] > 0).long())
    if weights:
        data.edge_weight = torch.rand(edges.shape[1], generator=generator) + 0.1
    return data


class Two(nn.Module):
    """Two convolutions with a ReLU and dropout between."""

    def __init__(self, make: Make) -> None:
        super().__init__()
        self.conv1, self.conv2 = make(D, H), make(H, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h = functional.dropout(self.conv1(x, edge_index).relu(), 0.2, self.training)
        out: Tensor = self.conv2(h, edge_index)
        return out


class Weighted(Two):
    """The same, with edge weights."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h = self.conv1(x, edge_index, edge_weight).relu()
        out: Tensor = self.conv2(h, edge_index, edge_weight)
        return out


class Initial(nn.Module):
    """GCNII: convolutions that read the first hidden layer too."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.lin, self.out = nn.Linear(D, H), nn.Linear(H, CLASSES)
        self.conv1 = pyg.GCN2Conv(H, alpha=0.1, theta=0.5, layer=1, **options)
        self.conv2 = pyg.GCN2Conv(H, alpha=0.2, **options)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        x_0 = self.lin(x).relu()
        x = self.conv1(x_0, x_0, edge_index, edge_weight).relu()
        x = self.conv2(x, x_0=x_0, edge_index=edge_index, edge_weight=edge_weight).relu()
        out: Tensor = self.out(x)
        return out


class Propagated(nn.Module):
    """Linear maps, and propagation without weights after or before them."""

    def __init__(self, propagate: nn.Module, *, before: bool = False) -> None:
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(D, H), nn.Linear(H, CLASSES)
        self.propagate, self.before = propagate, before

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if self.before:
            x = self.propagate(x, edge_index, edge_weight)
        out: Tensor = self.lin2(self.lin1(x).relu())
        return out if self.before else self.propagate(out, edge_index, edge_weight)


def heads(conv: Any, **options: Any) -> Make:
    """Four heads side by side, then their mean."""

    def make(inputs: int, outputs: int) -> nn.Module:
        is_last = outputs == CLASSES
        width = outputs if is_last else outputs // 4
        made: nn.Module = conv(inputs, width, heads=4, concat=not is_last, **options)
        return made

    return make


def options_of(conv: Any, **options: Any) -> Make:
    return lambda inputs, outputs: conv(inputs, outputs, **options)


PACKED: dict[str, Callable[[], nn.Module]] = {
    "gcn improved": lambda: Weighted(options_of(pyg.GCNConv, improved=True)),
    "gcn without self-loops": lambda: Weighted(options_of(pyg.GCNConv, add_self_loops=False)),
    "gcn not normalised": lambda: Weighted(options_of(pyg.GCNConv, normalize=False)),
    "sg without self-loops": lambda: Weighted(options_of(pyg.SGConv, K=2, add_self_loops=False)),
    "sage max": lambda: Two(options_of(pyg.SAGEConv, aggr="max")),
    "sage add": lambda: Two(options_of(pyg.SAGEConv, aggr="add")),
    "sage of neighbours": lambda: Two(options_of(pyg.SAGEConv, aggr="sum", root_weight=False)),
    "sage project": lambda: Two(options_of(pyg.SAGEConv, project=True)),
    "sage normalize": lambda: Two(options_of(pyg.SAGEConv, normalize=True)),
    "sage max project": lambda: Two(
        options_of(pyg.SAGEConv, aggr="max", project=True, normalize=True)
    ),
    "graph add": lambda: Weighted(pyg.GraphConv),
    "graph mean": lambda: Weighted(options_of(pyg.GraphConv, aggr="mean")),
    "graph max": lambda: Weighted(options_of(pyg.GraphConv, aggr="max")),
    "tag": lambda: Weighted(pyg.TAGConv),
    "tag not normalised": lambda: Weighted(options_of(pyg.TAGConv, K=2, normalize=False)),
    "cheb": lambda: Weighted(options_of(pyg.ChebConv, K=4)),
    "cheb of one": lambda: Weighted(options_of(pyg.ChebConv, K=1)),
    "gatv2": lambda: Two(heads(pyg.GATv2Conv, dropout=0.1)),
    "gatv2 residual": lambda: Two(heads(pyg.GATv2Conv, residual=True)),
    "gatv2 shared": lambda: Two(heads(pyg.GATv2Conv, share_weights=True, add_self_loops=False)),
    "gat residual": lambda: Two(heads(pyg.GATConv, residual=True)),
    "transformer": lambda: Two(heads(pyg.TransformerConv, dropout=0.1)),
    "transformer beta": lambda: Two(heads(pyg.TransformerConv, beta=True)),
    "transformer of neighbours": lambda: Two(heads(pyg.TransformerConv, root_weight=False)),
    "gcn2": Initial,
    "gcn2 of two weights": lambda: Initial(shared_weights=False),
    "gcn2 not normalised": lambda: Initial(normalize=False),
    "appnp": lambda: Propagated(pyg.APPNP(5, 0.1)),
    "appnp first": lambda: Propagated(pyg.APPNP(2, 0.2, dropout=0.1), before=True),
    "appnp without self-loops": lambda: Propagated(pyg.APPNP(3, 0.2, add_self_loops=False)),
    "lg": lambda: Propagated(pyg.LGConv()),
    "ssg": lambda: Weighted(options_of(pyg.SSGConv, alpha=0.1, K=3)),
    "a model of gatv2": lambda: pyg.GAT(D, H, 2, CLASSES, v2=True, heads=2),
    "a model of sage max": lambda: pyg.GraphSAGE(D, H, 2, CLASSES, aggr="max", dropout=0.2),
}


def arguments_of(model: nn.Module, seed: int) -> tuple[Data, tuple[Tensor, ...]]:
    has_weights = isinstance(model, Weighted | Initial | Propagated) and seed % 2 == 1
    data = make_graph(seed, weights=has_weights)
    more = (data.edge_weight,) if has_weights else ()
    return data, (data.x, data.edge_index, *more)


def train(model: nn.Module, arguments: tuple[Tensor, ...], y: Tensor, epochs: int = 5) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        functional.cross_entropy(model(*arguments), y).backward()
        optimizer.step()
    model.eval()


@pytest.mark.parametrize("name", PACKED)
def test_not_binarized_it_computes_what_pygs_does(name: str) -> None:
    for seed in range(2):
        torch.manual_seed(seed)
        model = PACKED[name]().eval()
        _, arguments = arguments_of(model, seed)
        expected = model(*arguments)
        bignn.binarize_(model, binarize="none")
        assert torch.allclose(model(*arguments), expected, atol=1e-5)


@pytest.mark.parametrize("name", PACKED)
def test_packed_it_predicts_what_torch_does(name: str) -> None:
    for seed in range(3):
        torch.manual_seed(seed)
        model = PACKED[name]()
        data, arguments = arguments_of(model, seed)
        report = bignn.binarize_(model)
        assert report.obstacle is None
        train(model, arguments, data.y)
        with torch.no_grad():
            expected = model(*arguments).numpy()
        packed = bignn.pack(model)
        logits = packed.predict(data, output="logits")
        assert np.abs(logits - expected).max() < 1e-4 * max(1, np.abs(expected).max())
        classes = packed.predict(data)
        assert np.array_equal(classes, expected.argmax(axis=1))
        assert np.array_equal(packed.predict(data, nodes=[47, 3, 3]), classes[[47, 3, 3]])


def test_what_is_skipped_stays_float_and_packs() -> None:
    for name in ("gatv2 residual", "sage max", "tag", "gcn improved"):
        torch.manual_seed(0)
        model: Any = PACKED[name]()
        data, arguments = arguments_of(model, 1)
        report = bignn.binarize_(model, skip=["conv2"])
        assert report.obstacle is None
        assert isinstance(model.conv2, pyg.MessagePassing)
        train(model, arguments, data.y)
        with torch.no_grad():
            expected = model(*arguments).numpy()
        logits = bignn.pack(model).predict(data, output="logits")
        assert np.abs(logits - expected).max() < 1e-4 * max(1, np.abs(expected).max())


def test_fit_trains_them_and_they_pack() -> None:
    for name in ("sage max", "tag", "gcn2"):
        torch.manual_seed(0)
        model = PACKED[name]()
        data, arguments = arguments_of(model, 0)
        for key, nodes in (("train", range(30)), ("val", range(30, 40)), ("test", range(40, 50))):
            data[f"{key}_mask"] = torch.tensor([node in nodes for node in range(50)])
        bignn.binarize_(model)
        bignn.fit(model, data, bignn.Settings(lr=0.01, epochs=5), progress=False)
        model.eval()
        with torch.no_grad():
            expected = model(*arguments).argmax(dim=1).numpy()
        assert np.array_equal(bignn.pack(model).predict(data), expected)


def test_sums_run_in_native_layers() -> None:
    """What is a product of bits and one sum over neighbours is left to the packed layers."""
    for name in ("graph add", "graph mean", "sage add", "gcn improved", "gcn not normalised"):
        model = PACKED[name]()
        data, arguments = arguments_of(model, 1)
        bignn.binarize_(model)
        train(model, arguments, data.y, epochs=1)
        network = bignn.pack(model).network
        assert len(network.layers) == 2, name
        assert not network.rest, name


def test_linear_maps_read_the_signs_of_the_input_not_of_sums() -> None:
    torch.manual_seed(0)
    model: Any = Weighted(pyg.TAGConv)
    data = make_graph(0)
    bignn.binarize_(model)
    model.fit_input(data.x)
    model.eval()
    z = [linear(model.input_stage(data.x)) for linear in model.conv1.lins]
    assert isinstance(model.conv1, TransformFirst)
    out, power = z[0], pyg.LGConv()
    for k in range(1, 4):
        summed = z[k]
        for _ in range(k):
            summed = power(summed, data.edge_index)
        out = out + summed
    expected = out + model.conv1.bias
    got = model.conv1.compute(
        model.conv1.operations(data.edge_index, None), model.input_stage(data.x)
    )
    assert torch.allclose(got, expected, atol=1e-4)


def network(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, H), nn.ReLU(), nn.Linear(H, outputs))


# Convolutions that bignn has no layer for, the number of linear maps of nodes, and what the report
# names.
GENERAL: dict[str, tuple[Callable[[], nn.Module], int, str]] = {
    "edge features": (lambda: pyg.GATConv(H, H, edge_dim=4), 1, "GATConv 'conv' with edge_dim=4"),
    "gine": (
        lambda: pyg.GINEConv(network(H, H), edge_dim=4),
        2,
        "GINEConv 'conv' of edge features",
    ),
    "pna": (
        lambda: pyg.PNAConv(H, H, ["mean", "max", "std"], ["identity"], torch.tensor([5, 20, 20])),
        3,
        "PNAConv 'conv'",
    ),
    "edge": (lambda: pyg.EdgeConv(network(2 * H, H)), 2, "EdgeConv 'conv'"),
    "cheb rw": (
        lambda: pyg.ChebConv(H, H, 3, normalization="rw"),
        3,
        "ChebConv 'conv' with normalization='rw'",
    ),
    "flow": (
        lambda: pyg.GCNConv(H, H, flow="target_to_source"),
        1,
        "GCNConv 'conv' with flow='target_to_source'",
    ),
    "lstm": (lambda: pyg.SAGEConv(H, H, aggr="lstm"), 2, "SAGEConv 'conv' with aggr='lstm'"),
    "several": (
        lambda: pyg.SAGEConv(H, H, aggr=["mean", "max"]),
        2,
        "SAGEConv 'conv' with aggr=['mean', 'max']",
    ),
    "several of graph": (
        lambda: pyg.GraphConv(H, H, aggr=["mean", "max"], aggr_kwargs={"mode": "sum"}),
        2,
        "GraphConv 'conv' with aggr=['mean', 'max']",
    ),
    "rgcn": (
        lambda: pyg.RGCNConv(H, H, 3, num_blocks=4),
        0,
        "RGCNConv 'conv' with num_blocks=4",
    ),
    "arma": (lambda: pyg.ARMAConv(H, H, act=None), 0, "ARMAConv 'conv'"),
    "point": (lambda: pyg.ResGatedGraphConv(H, H), 4, "ResGatedGraphConv 'conv'"),
}


class General(nn.Module):
    """A convolution between linear maps, with whatever of edges it reads."""

    def __init__(self, conv: nn.Module, edges: Any) -> None:
        super().__init__()
        self.lin, self.conv, self.out = nn.Linear(D, H), conv, nn.Linear(H, CLASSES)
        self.edges = edges

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.lin(x).relu()
        out: Tensor = self.out(self.conv(h, edge_index, **self.edges).relu())
        return out


@pytest.mark.parametrize("name", GENERAL)
def test_any_convolution_trains_by_the_general_rule(name: str) -> None:
    torch.manual_seed(0)
    make, num_binary, title = GENERAL[name]
    data = make_graph(0)
    data.edge_index = data.edge_index[:, data.edge_index[1].argsort()]
    conv, edges = make(), {}
    if "edge_dim" in title or "features" in title:
        edges["edge_attr"] = torch.rand(data.num_edges, 4)
    if "RGCN" in title:
        edges["edge_type"] = torch.arange(data.num_edges) % 3
    model = General(conv, edges).eval()
    plain = copy.deepcopy(model)
    bignn.binarize_(plain, binarize="none")
    assert torch.equal(plain(data.x, data.edge_index), model(data.x, data.edge_index))
    report = bignn.binarize_(model)
    assert title in str(report.obstacle)
    assert "in torch it trains and predicts all the same" in str(report.obstacle)
    binary = [part for part in model.conv.modules() if isinstance(part, Linear)]
    assert len(binary) == num_binary
    assert all(isinstance(part, InnerLinear) for part in binary)
    assert all(isinstance(part.center, BatchNorm) for part in binary)
    losses = []
    for epochs in (1, 20):
        train(model, (data.x, data.edge_index), data.y, epochs)
        losses.append(functional.cross_entropy(model(data.x, data.edge_index), data.y).item())
    assert losses[1] < losses[0]
    with pytest.raises(InputError, match="cannot be packed"):
        bignn.pack(model)


def test_convolutions_without_weights_stay_as_they_are() -> None:
    model = Propagated(pyg.APPNP(2, 0.1))
    report = bignn.binarize_(model)
    assert isinstance(model.propagate, pyg.APPNP)
    assert {entry.name: entry.note for entry in report.entries}["propagate"] == (
        "float: has no weights"
    )
    model = Propagated(pyg.APPNP(2, 0.1, flow="target_to_source"))
    title = "APPNP 'propagate' with flow='target_to_source'"
    assert title in str(bignn.binarize_(model).obstacle)


def test_a_shared_convolution_is_converted_once() -> None:
    conv = pyg.ResGatedGraphConv(H, H)
    model: Any = nn.ModuleDict({"a": nn.ModuleList([conv]), "b": nn.ModuleList([conv])})
    report = bignn.binarize_(model)
    assert model["a"][0] is model["b"][0] is conv
    assert isinstance(conv.lin_key, InnerLinear)
    assert sum(entry.name.endswith("lin_key") for entry in report.entries) == 1
    skipped: Any = nn.ModuleDict({"a": pyg.ResGatedGraphConv(H, H)})
    bignn.binarize_(skipped, skip=["a.lin_key"])
    assert not isinstance(skipped["a"].lin_key, InnerLinear)
    assert isinstance(skipped["a"].lin_query, InnerLinear)


def test_linear_maps_of_edges_stay_float() -> None:
    model = nn.ModuleList([pyg.GATConv(H, H, edge_dim=4), pyg.NNConv(H, H, network(4, H * H))])
    report = bignn.binarize_(model)
    binary = {entry.name for entry in report.entries if entry.binary}
    assert binary == {"0.lin", "1.lin"}
    notes = {entry.name: entry.note for entry in report.entries}
    assert "does not pack" in notes["0"]


def test_an_inner_linear_map_reads_any_number_of_dimensions() -> None:
    linear = InnerLinear(4, 3, binarize="both")
    linear.wrapping = Wrapping("lin", reads_before_activation=False, own_dropout=False)  # type: ignore[assignment]
    x = torch.randn(5, 6, 4)
    out = linear.eval()(x)
    assert torch.equal(out[2], linear(x[2]))


@pytest.mark.parametrize("binarize", ["none", "both"])
@pytest.mark.parametrize("conv", [pyg.GATv2Conv, pyg.TransformerConv])
def test_attention_is_dropped_in_training_alone(conv: Any, binarize: Any) -> None:
    data = make_graph(0)
    for p in (0.0, 0.5):
        torch.manual_seed(0)
        model: Any = Propagated(heads(conv, dropout=p)(D, D), before=True)
        bignn.binarize_(model, binarize=binarize)
        if binarize == "both":
            model.fit_input(data.x)
        for training in (False, True):
            model.train(training)
            outputs = [model(data.x, data.edge_index) for _ in range(2)]
            assert torch.allclose(outputs[0], outputs[1]) == (p == 0 or not training)


@pytest.mark.parametrize("aggr", ["max", "mean", "add"])
def test_learned_edge_weights_get_gradients(aggr: str) -> None:
    torch.manual_seed(0)
    model = Weighted(options_of(pyg.GraphConv, aggr=aggr))
    converted = copy.deepcopy(model)
    bignn.binarize_(converted, binarize="none")
    data = make_graph(0, weights=True)
    gradients = []
    for some in (model, converted):
        weight = data.edge_weight.clone().requires_grad_()
        some(data.x, data.edge_index, weight).square().sum().backward()
        assert weight.grad is not None
        gradients.append(weight.grad)
    assert float(gradients[0].abs().max()) > 0
    assert torch.allclose(gradients[0], gradients[1], atol=1e-4, rtol=1e-4)


class Sized(Two):
    """Convolutions that are given the number of nodes by position, as PyG's SAGEConv takes it."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        h = self.conv1(x, edge_index, None).relu()
        out: Tensor = self.conv2(h, edge_index, (len(x), len(x)))
        return out


@pytest.mark.parametrize("options", [{"aggr": "max"}, {"aggr": "add"}, {}])
def test_a_size_is_not_taken_for_edge_weights(options: dict[str, Any]) -> None:
    data = make_graph(0)
    model = Sized(options_of(pyg.SAGEConv, **options))
    model(data.x, data.edge_index)
    bignn.binarize_(model, binarize="none")
    with pytest.raises(InputError, match="no 'size'"):
        model(data.x, data.edge_index)


def test_a_model_without_linear_maps_stays_float_and_trains() -> None:
    """ARMAConv's weights are plain parameters: nothing is binary, and the report tells."""
    data = make_graph(0)
    model = pyg.Sequential(
        "x, edge_index",
        [
            (pyg.ARMAConv(D, H), "x, edge_index -> x"),
            (nn.Dropout(0.5), "x -> x"),
            (pyg.ARMAConv(H, CLASSES), "x, edge_index -> x"),
        ],
    )
    report = str(bignn.binarize_(model))
    assert "bytes (1.0x less)" in report
    assert "packs: no: no packed operation does what ARMAConv" in report
    model(data.x, data.edge_index).sum().backward()
    assert sum(parameter.grad is not None for parameter in model.parameters()) >= 4

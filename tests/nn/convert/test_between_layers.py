"""What stands between convolutions packs: norms, activations, arithmetic, jumps, embeddings."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from pyg_models import CLASSES, Between, D, Own, family, make_data
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data

import bignn
from bignn import InputError

NORMS: dict[str, Callable[[], nn.Module]] = {
    "torch BatchNorm1d": lambda: nn.BatchNorm1d(16),
    "BatchNorm without statistics": lambda: pyg.BatchNorm(16, track_running_stats=False),
    "torch LayerNorm": lambda: nn.LayerNorm(16),
    "torch LayerNorm, not affine": lambda: nn.LayerNorm(16, elementwise_affine=False),
    "torch RMSNorm": lambda: nn.RMSNorm(16),
    "torch GroupNorm": lambda: nn.GroupNorm(4, 16),
    "LayerNorm, graph": lambda: pyg.LayerNorm(16),
    "LayerNorm, node": lambda: pyg.LayerNorm(16, mode="node"),
    "GraphNorm": lambda: pyg.GraphNorm(16),
    "InstanceNorm": lambda: pyg.InstanceNorm(16, affine=True),
    "InstanceNorm, running": lambda: pyg.InstanceNorm(16, track_running_stats=True),
    "PairNorm": lambda: pyg.PairNorm(scale=2.0),
    "PairNorm, individually": lambda: pyg.PairNorm(scale_individually=True),
    "MeanSubtractionNorm": lambda: pyg.MeanSubtractionNorm(),
    "GraphSizeNorm": lambda: pyg.GraphSizeNorm(),
    "DiffGroupNorm": lambda: pyg.DiffGroupNorm(16, groups=3, lamda=0.5),
}


@pytest.fixture
def data() -> Data:
    return make_data()


def check_packed(model: Any, data: Data, scores: Any = lambda logits, dim: logits) -> None:
    """Equal classes and near logits, of all nodes and of a few."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
        model.train()
        for _ in range(3):
            model(data.x, data.edge_index)
        model.eval()
        expected = model(data.x, data.edge_index)
    packed = bignn.pack(model)
    packed = type(packed)(packed.operations, packed.arrays, packed.num_features)
    graph = bignn.pack_graph(data, like=packed)
    logits = packed.predict(graph, output="logits")
    made = scores(torch.from_numpy(logits), dim=1)
    assert np.allclose(made, expected, atol=2e-4, rtol=1e-4)
    assert np.array_equal(packed.predict(graph), expected.argmax(dim=1))
    some = [3, 119, 3, 40]
    assert np.allclose(packed.predict(graph, some, output="logits"), logits[some], atol=1e-5)


class Normed(nn.Module):
    """A norm between two convolutions, read by a binary layer and by a float head."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.GCNConv(D, 16), pyg.SAGEConv(16, 16)
        self.norm, self.head = norm, nn.Linear(16, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.norm(self.conv1(x, edge_index))
        out: Tensor = self.head(h + self.conv2(h, edge_index))
        return out


@pytest.mark.parametrize("name", NORMS)
def test_norms_pack(name: str, data: Data) -> None:
    torch.manual_seed(0)
    model = Normed(NORMS[name]())
    bignn.binarize_(model, skip=["head"])
    check_packed(model, data)


def test_a_message_norm_packs(data: Data) -> None:
    torch.manual_seed(0)
    norm = pyg.MessageNorm(learn_scale=True)
    model = Between(lambda h, y: norm(h, y))
    model.norm = norm
    bignn.binarize_(model, skip=["head"])
    check_packed(model, data)


def test_a_message_norm_takes_its_arguments_by_name(data: Data) -> None:
    torch.manual_seed(0)
    norm = pyg.MessageNorm(learn_scale=True)
    model = Between(lambda h, y: norm(p=2.0, msg=y, x=3 * h))
    model.norm = norm
    bignn.binarize_(model, skip=["head"])
    check_packed(model, data)


@pytest.mark.parametrize(
    "call", [lambda norm, h, y: norm(h, y, 1.0), lambda norm, h, y: norm(h, y, p=1.0)]
)
def test_a_message_norm_with_another_p_is_refused(call: Any) -> None:
    norm = pyg.MessageNorm()
    model = Between(lambda h, y: call(norm, h, y))
    model.norm = norm
    report = bignn.binarize_(model, skip=["head"])
    assert "MessageNorm 'norm' packs with p=2 only" in str(report.obstacle)


@pytest.mark.parametrize("options", [{"p": 1.0}, {"dim": 0}])
def test_rows_of_other_lengths_do_not_pack(options: dict[str, Any]) -> None:
    model = Between(lambda h, y: functional.normalize(h, **options) + y)
    assert "normalize" in str(bignn.binarize_(model).obstacle)


def parameters(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape))


BETWEEN: dict[str, Callable[[Tensor, Tensor, nn.Parameter, nn.Parameter], Any]] = {
    "residual": lambda h, y, a, b: h + functional.relu(y),
    "difference": lambda h, y, a, b: h - y,
    "mixture": lambda h, y, a, b: h * 0.5 + 0.25 * y,
    "from one": lambda h, y, a, b: 1 - h / 2,
    "unit length": lambda h, y, a, b: (
        functional.normalize(h) - functional.normalize(y, 2.0, -1, 1e-3)
    ),
    "negative": lambda h, y, a, b: -h + (-y).neg(),
    "alpha": lambda h, y, a, b: torch.add(h, y, alpha=2).sub(y, alpha=3),
    "in place": lambda h, y, a, b: h.mul_(2).add_(y, alpha=3),
    "by a parameter": lambda h, y, a, b: a * h + (1 - torch.sigmoid(a)) * y,
    "by columns": lambda h, y, a, b: h * b + y / b.exp() - b,
    "gate": lambda h, y, a, b: h * torch.sigmoid(y),
    "python's sum": lambda h, y, a, b: sum([h, y, h]),
    "cat": lambda h, y, a, b: torch.cat([h, y], dim=1).relu(),
    "stacked sum": lambda h, y, a, b: torch.stack([h, y, h]).sum(0),
    "stacked mean": lambda h, y, a, b: torch.stack([h, y], dim=-1).mean(dim=-1),
    "stacked max": lambda h, y, a, b: torch.stack([h, y], dim=1).max(dim=1)[0],
    "stacked values": lambda h, y, a, b: torch.stack([h, y], 1).max(1).values,
    "stacked amax": lambda h, y, a, b: torch.stack([h, y], 1).amax(1),
    "maximum": lambda h, y, a, b: torch.maximum(h, torch.max(y, -h)),
    "softmax": lambda h, y, a, b: functional.softmax(h, dim=1),
    "dimensions": lambda h, y, a, b: h if h.dim() == 2 and y.ndim == 2 else y,
}


class Arithmetic(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.conv, self.side = pyg.GCNConv(D, 16), pyg.GCNConv(D, 16)
        self.name, self.a, self.b = name, parameters(1), parameters(16)
        width = 32 if name == "cat" else 16
        self.conv2, self.head = pyg.SAGEConv(width, CLASSES), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, strength: float = 0.5) -> Tensor:
        h, y = self.conv(x, edge_index), self.side(x, edge_index)
        h = BETWEEN[self.name](h, y, self.a, self.b)
        out: Tensor = strength * self.head(h) + self.conv2(h, edge_index)
        return out


@pytest.mark.parametrize("name", BETWEEN)
def test_arithmetic_between_layers_packs(name: str, data: Data) -> None:
    torch.manual_seed(1)  # 0 has a hidden sum within rounding of 0, whose bit turns
    model = Arithmetic(name)
    bignn.binarize_(model, skip=["head"], center=True)
    check_packed(model, data)


ONE_COLUMN: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda h, gate: h + gate,
    "difference": lambda h, gate: gate - h,
    "maximum": lambda h, gate: torch.maximum(gate, h),
    "product": lambda h, gate: gate * h,
}


class OneColumn(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.conv, self.gate = pyg.GCNConv(D, 16), nn.Linear(16, 1)
        self.name, self.head = name, nn.Linear(16, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.conv(x, edge_index)
        out: Tensor = self.head(ONE_COLUMN[self.name](h, self.gate(h)))
        return out


@pytest.mark.parametrize("name", ONE_COLUMN)
def test_a_value_of_one_column_meets_every_column(name: str, data: Data) -> None:
    torch.manual_seed(0)
    model = OneColumn(name)
    assert bignn.binarize_(model, skip=["head", "gate"]).obstacle is None
    check_packed(model, data)


ACTIVATIONS: list[Any] = [
    *(nn.LeakyReLU(0.3), nn.PReLU(), nn.PReLU(16), nn.RReLU(), nn.GELU(), nn.GELU("tanh")),
    *(nn.SiLU(), nn.SELU(), nn.CELU(0.5), nn.ELU(2.0), nn.ReLU6(), nn.Softplus(2.0), nn.Mish()),
    *(nn.Hardswish(), nn.Tanh(), nn.Sigmoid(), nn.Hardtanh(-0.5, 0.5)),
    *(functional.leaky_relu, lambda h: functional.elu(h, alpha=2.0), functional.hardsigmoid),
    *(lambda h: functional.leaky_relu(h, 0.5), functional.softsign, functional.logsigmoid),
    *(functional.tanhshrink, lambda h: functional.gelu(h, approximate="tanh"), torch.celu_),
    *(nn.Hardsigmoid(), nn.Softsign(), nn.LogSigmoid(), nn.Tanhshrink()),
    lambda h: functional.softplus(h, 0.5, threshold=20),
]


@pytest.mark.parametrize("number", range(len(ACTIVATIONS)))
def test_activations_pack(number: int, data: Data) -> None:
    torch.manual_seed(0)
    act = ACTIVATIONS[number]
    model = Between(lambda h, y: act(10 * h))
    model.act = act if isinstance(act, nn.Module) else nn.Identity()
    bignn.binarize_(model, skip=["head"])  # the head reads what comes after the activation
    check_packed(model, data)


@pytest.mark.parametrize(
    "act",
    [
        *(nn.Softplus(1.0, 0.1), lambda h: functional.softplus(h, 1.0, 0.1)),
        lambda h: functional.softplus(h, threshold=0.1),
    ],
)
def test_a_softplus_with_a_threshold_of_its_own_is_refused(act: Any) -> None:
    model = Between(lambda h, y: act(h))
    model.act = act if isinstance(act, nn.Module) else nn.Identity()
    report = bignn.binarize_(model, skip=["head"])
    assert "oftplus" in str(report.obstacle)
    with pytest.raises(InputError, match="no packed operation does what"):
        bignn.pack(model)


@pytest.mark.parametrize("jk", ["max", "lstm"])
def test_jumping_knowledge_packs(jk: str, data: Data) -> None:
    for name in ("gcn", "sage"):
        model = family(jk=jk)[name]
        bignn.binarize_(model)
        check_packed(model, data)


@pytest.mark.parametrize("norm", ["layer", "graph", "pair", "instance"])
def test_norms_of_pygs_models_pack(norm: str, data: Data) -> None:
    torch.manual_seed(0)
    for kind, options in ((pyg.GCN, {}), (pyg.GIN, {}), (pyg.GAT, {"heads": 2})):
        model = kind(D, 16, 3, CLASSES, norm=norm, act="leakyrelu", dropout=0.2, **options)
        bignn.binarize_(model)
        check_packed(model, data)


FLOAT_LAYERS: dict[str, Callable[[], nn.Module]] = {
    "gcn": lambda: pyg.GCNConv(16, 16),
    "sage": lambda: pyg.SAGEConv(16, 16),
    "gat": lambda: pyg.GATConv(16, 8, heads=2),
    "gin": lambda: pyg.GINConv(pyg.MLP([16, 16, 16], norm="layer_norm", act="gelu")),
    "sgc": lambda: pyg.SGConv(16, 16, K=2),
}


@pytest.mark.filterwarnings("ignore:.*have one sign")
@pytest.mark.parametrize("name", FLOAT_LAYERS)
def test_layers_that_stay_float_pack(name: str, data: Data) -> None:
    class Skipping(Own):
        def __init__(self) -> None:
            super().__init__()
            self.middle = FLOAT_LAYERS[name]()

        def forward(self, x: Tensor, edge_index: Tensor, _: Tensor | None = None) -> Tensor:
            h = functional.gelu(self.middle(self.conv1(x, edge_index).relu(), edge_index))
            out: Tensor = self.conv2(h, edge_index)
            return out

    torch.manual_seed(0)
    for skip in (["middle"], ["middle", "conv1"], ["middle", "conv1", "conv2"][:2]):
        model = Skipping()
        report = bignn.binarize_(model, skip=skip)
        assert report.obstacle is None
        check_packed(model, data)


def test_a_float_layer_without_a_packed_form_is_named(data: Data) -> None:
    class Skipping(Own):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = pyg.SAGEConv(D, 16, aggr="median")

    report = bignn.binarize_(Skipping(), skip=["conv1"])
    assert "SAGEConv 'conv1' with aggr='median'" in str(report.obstacle)


def test_a_perceptron_and_a_sequence_pack(data: Data) -> None:
    torch.manual_seed(0)
    for binarize in ("both", "weights", "none"):
        mlp = pyg.MLP([16, 24, 16], norm="layer_norm", dropout=0.3, act="silu")
        model = pyg.Sequential(
            "x, edge_index",
            [
                (pyg.GCNConv(D, 16), "x, edge_index -> h"),
                nn.Dropout(0.2),
                (mlp, "h -> y"),
                (lambda h, y: h + y, "h, y -> h"),
                (pyg.GCNConv(16, CLASSES), "h, edge_index -> h"),
                nn.LogSoftmax(dim=-1),
            ],
        )
        bignn.binarize_(model, binarize=binarize)
        check_packed(model, data, scores=torch.log_softmax)


class Embedded(nn.Module):
    """Ids of two kinds per node, as in molecules."""

    def __init__(self) -> None:
        super().__init__()
        self.kind, self.place = nn.Embedding(9, 16), nn.Embedding(5, 16)
        self.conv1, self.conv2 = pyg.GCNConv(16, 16), pyg.GCNConv(16, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = x.long()
        h = self.kind(x[:, 0]) + self.place(x[:, 1])
        out: Tensor = self.conv2(self.conv1(h, edge_index).relu(), edge_index)
        return out


@pytest.mark.parametrize("first", ["conv1", None])  # None: found in the forward
def test_embeddings_pack(data: Data, first: str | None) -> None:
    torch.manual_seed(0)
    model = Embedded()
    report = str(bignn.binarize_(model, first=first))
    assert "The input of 'conv1' is standardised" in report
    assert report.endswith("packs: yes")
    assert "kind    Embedding  -                 stays float" in report
    ids = torch.stack([torch.randint(0, 9, (120,)), torch.randint(0, 5, (120,))], dim=1)
    data.x = ids.float()
    check_packed(model, data)
    packed = bignn.pack(model)
    data.x[7, 1] = 5
    with pytest.raises(InputError, match="the features have id 5; the model's embedding has 5"):
        packed.predict(data)
    data.x[7, 1] = 0.5
    with pytest.raises(
        InputError, match=r"have id 0\.5; the model's embedding takes whole numbers"
    ):
        packed.predict(data)


def test_embeddings_that_cannot_be_followed_name_the_remedy(data: Data) -> None:
    class Untraced(Embedded):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x if x.max() < 9 else x % 9, edge_index)

    model = Untraced()
    report = str(bignn.binarize_(model))
    assert "packs: no: its forward decides by a tensor's numbers or size" in report
    with pytest.raises(InputError, match=r"'x' must be features, .* first='conv1'"):
        model(torch.zeros(120, 2, dtype=torch.long), data.edge_index)


def test_training_on_no_nodes_is_refused(data: Data) -> None:
    model = pyg.GCN(data.num_features, 8, 2, CLASSES)
    bignn.binarize_(model)
    with pytest.raises(InputError, match="'x' must be of at least one node"):
        model.train()(data.x[:0], data.edge_index[:, :0])

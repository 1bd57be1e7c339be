"""Edge types: RGCNConv converted, trained and packed; graphs and files that carry relations."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from pyg_models import CLASSES, D
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Batch, Data

import bignn
from bignn import FileError, InputError
from bignn.nn.relational_conv import RelationalConv
from bignn.runtime.network import PackedStep

H, RELATIONS = 20, 4

OPTIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "mean": (pyg.RGCNConv, {}),
    "bases": (pyg.RGCNConv, {"num_bases": 2}),
    "sum of neighbours": (pyg.RGCNConv, {"aggr": "add", "root_weight": False, "bias": False}),
    "fast": (pyg.FastRGCNConv, {"num_bases": 3}),
}


class Relational(nn.Module):
    """Two relational convolutions with a ReLU between."""

    def __init__(self, conv: Any, relations: int = RELATIONS, **options: Any) -> None:
        super().__init__()
        self.conv1 = conv(D, H, relations, **options)
        self.conv2 = conv(H, CLASSES, relations, **options)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor | None = None) -> Tensor:
        h = self.conv1(x, edge_index, edge_type).relu()
        out: Tensor = self.conv2(h, edge_index, edge_type)
        return out


class Mixed(nn.Module):
    """A relational convolution beside one that takes all edges alike, with their weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.RGCNConv(D, H, RELATIONS)
        self.conv2 = pyg.GCNConv(D, H)
        self.lin = nn.Linear(H, CLASSES)

    def forward(self, data: Data) -> Tensor:
        h = self.conv1(data.x, data.edge_index, data.edge_type)
        h = h + self.conv2(data.x, data.edge_index, data.edge_weight)
        out: Tensor = self.lin(h)
        return out


def make_graph(seed: int = 0, nodes: int = 60) -> Data:
    """Random nodes with edges of four relations, none of them of relation 2; some edges twice."""
    draw = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, nodes - 4, (2, 250), generator=draw)
    kinds = torch.tensor([0, 1, 3])[torch.randint(0, 3, (250,), generator=draw)]
    edges, kinds = torch.cat([edges, edges[:, :9]], 1), torch.cat([kinds, kinds[:5], kinds[:4]])
    x = torch.randn(nodes, D, generator=draw)
    return Data(x, edges, edge_type=kinds, y=(x[:, 0] > 0).long())


def train(model: nn.Module, *arguments: Any, y: Tensor) -> np.ndarray[Any, Any]:
    """Train a few epochs in a plain loop; return the logits in evaluation."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        model.train()
        optimizer.zero_grad()
        functional.cross_entropy(model(*arguments), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        logits: np.ndarray[Any, Any] = model(*arguments).numpy()
    return logits


def trained(data: Data, **options: Any) -> tuple[bignn.PackedModel, np.ndarray[Any, Any]]:
    torch.manual_seed(0)
    model = Relational(pyg.RGCNConv, **options)
    bignn.binarize_(model)
    expected = train(model, data.x, data.edge_index, data.edge_type, y=data.y)
    return bignn.pack(model), expected


@pytest.mark.parametrize("name", OPTIONS)
def test_it_trains_and_packs(name: str) -> None:
    conv, options = OPTIONS[name]
    for seed in range(2):
        torch.manual_seed(seed)
        data, model = make_graph(seed), Relational(conv, **options)
        arguments = data.x, data.edge_index, data.edge_type
        plain = copy.deepcopy(model)
        bignn.binarize_(plain, binarize="none")
        assert torch.allclose(plain(*arguments), model(*arguments), atol=1e-5)
        parameters = dict(model.named_parameters())
        assert bignn.binarize_(model).obstacle is None
        assert all(model.get_parameter(name) is some for name, some in parameters.items())
        expected = train(model, *arguments, y=data.y)
        assert all(some.grad is not None for some in parameters.values())
        packed = bignn.pack(model)
        classes = packed.predict(data)
        assert np.array_equal(classes, expected.argmax(axis=1))
        assert np.array_equal(packed.predict(data, nodes=[59, 3, 3]), classes[[59, 3, 3]])
        assert packed.num_hops == 2


def test_each_relation_is_a_native_sum() -> None:
    packed, _ = trained(make_graph())
    steps = [step for step in packed.network.rest if isinstance(step, PackedStep)]
    assert [step.layer.aggr for step in steps] == 2 * [f"mean/{r}" for r in range(RELATIONS)]
    assert packed.network.num_relations == RELATIONS


def test_weights_of_relations_are_binary_and_balanced() -> None:
    model: Any = Relational(pyg.RGCNConv, num_bases=2)
    report = bignn.binarize_(model)
    conv = model.conv1
    assert isinstance(conv, RelationalConv)
    mixed = torch.einsum("rb,bio->roi", conv.comp, conv.weight)
    signs, alpha = conv.input_maps()[1].binary_weight()
    centred = mixed[1] - mixed[1].median(dim=1, keepdim=True).values
    if D % 2 == 0:
        upper = -(-mixed[1]).median(dim=1, keepdim=True).values
        centred = mixed[1] - (mixed[1].median(dim=1, keepdim=True).values + upper) / 2
    assert torch.equal(signs, torch.where(centred >= 0, 1.0, -1.0))
    assert torch.allclose(alpha, centred.abs().mean(dim=1, keepdim=True))
    widths = [(D, H), (H, CLASSES)]
    words = sum((RELATIONS + 1) * outputs * (8 * -(-d // 64) + 4) for d, outputs in widths)
    assert report.bytes_after == words + 4 * (H + CLASSES)


def test_a_copy_has_weights_of_its_own() -> None:
    model: Any = Relational(pyg.RGCNConv)
    bignn.binarize_(model)
    again = copy.deepcopy(model)
    with torch.no_grad():
        again.conv1.weight.zero_()
    assert not again.conv1.lins[0].weight.any()
    assert model.conv1.lins[0].weight.any()
    assert set(again.state_dict()) == set(model.state_dict())
    assert not any("lins" in name for name in again.state_dict())


def test_edges_of_all_relations_count_elsewhere_in_the_model() -> None:
    torch.manual_seed(0)
    data, model = make_graph(), Mixed()
    data.edge_weight = torch.rand(data.num_edges) + 0.1
    assert bignn.binarize_(model).obstacle is None
    expected = train(model, data, y=data.y)
    assert np.array_equal(bignn.pack(model).predict(data), expected.argmax(axis=1))


def test_fit_gives_models_the_relations() -> None:
    torch.manual_seed(0)
    data, model = make_graph(), Relational(pyg.RGCNConv)
    for key, nodes in (("train", range(30)), ("val", range(30, 45)), ("test", range(45, 60))):
        data[f"{key}_mask"] = torch.tensor([node in nodes for node in range(60)])
    bignn.binarize_(model)
    bignn.fit(model, data, bignn.Settings(lr=0.01, epochs=3), progress=False)
    model.eval()
    with torch.no_grad():
        expected = model(data.x, data.edge_index, data.edge_type).argmax(dim=1).numpy()
    assert np.array_equal(bignn.pack(model).predict(data), expected)


def test_skipped_it_stays_float_and_packs() -> None:
    torch.manual_seed(0)
    data, model = make_graph(), Relational(pyg.RGCNConv)
    bignn.binarize_(model, skip=["conv2"])
    expected = train(model, data.x, data.edge_index, data.edge_type, y=data.y)
    logits = bignn.pack(model).predict(data, output="logits")
    assert np.allclose(logits, expected, atol=1e-4)


def test_files_and_orders_keep_the_relations(tmp_path: Path) -> None:
    data = make_graph()
    packed, expected = trained(data)
    graph = bignn.from_pyg(data)
    bignn.save(graph, tmp_path / "graph.npz")
    again = bignn.load(tmp_path / "graph.npz")
    assert again.edge_type is not None
    assert again.edge_type.tolist() == data.edge_type.tolist()
    assert again.digest() == graph.digest()
    assert again.digest() != replace(graph, edge_type=None).digest()
    assert bignn.to_pyg(again).edge_type.tolist() == data.edge_type.tolist()
    packed.save(tmp_path / "model.bignn")
    model = bignn.PackedModel.open(tmp_path / "model.bignn")
    orders: list[Any] = [None, "locality"]
    for order in orders:
        bignn.pack_graph(again, like=packed, order=order).save(tmp_path / "graph.bigraph")
        opened = bignn.PackedGraph.open(tmp_path / "graph.bigraph")
        assert np.array_equal(model.predict(opened), expected.argmax(axis=1))
        assert opened.num_relations == RELATIONS


def test_many_graphs_as_one() -> None:
    graphs = [make_graph(seed, nodes) for seed, nodes in ((0, 60), (1, 30))]
    packed, _ = trained(graphs[0])
    expected = np.concatenate([packed.predict(graph) for graph in graphs])
    assert np.array_equal(packed.predict(graphs), expected)
    assert np.array_equal(packed.predict(Batch.from_data_list(graphs)), expected)
    del graphs[1].edge_type
    with pytest.raises(InputError, match="all have 'edge_type', or none, got 1 of 2"):
        packed.predict(graphs)


def test_a_changed_relation_is_noticed() -> None:
    data = make_graph()
    packed, _ = trained(data)
    packed.predict(data)
    data.edge_type = 3 - data.edge_type
    other = bignn.pack_graph(data, like=packed)
    assert np.array_equal(
        packed.predict(data, output="logits"), packed.predict(other, output="logits")
    )


def test_bad_input_is_one_line() -> None:
    data = make_graph()
    packed, _ = trained(data)
    model: Any = Relational(pyg.RGCNConv)
    bignn.binarize_(model)
    for kinds, line in (
        (None, r"'edge_type' must be the relation of each edge \[259\], got NoneType"),
        (data.edge_type[:5], r"'edge_type' must be whole numbers, one relation per edge \[259\]"),
        (data.edge_type.float(), "'edge_type' must be whole numbers"),
        (data.edge_type - 1, "'edge_type' must be relations from 0, got -1"),
        (data.edge_type + 1, r"'edge_type' must be relations in 0\.\.3, got 4"),
    ):
        with pytest.raises(InputError, match=line):
            model(data.x, data.edge_index, kinds)
    without = Data(data.x, data.edge_index)
    with pytest.raises(InputError, match="'graph' must be one with 'edge_type'"):
        packed.predict(without)
    for kinds in (data.edge_type[1:], data.edge_type.float()):
        with pytest.raises(InputError, match=r"'edge_type' must be whole numbers, .* \[259\], got"):
            packed.predict(Data(data.x, data.edge_index, edge_type=kinds))
    more = Data(data.x, data.edge_index, edge_type=data.edge_type + 1)
    with pytest.raises(InputError, match="edge types below 4, the model's relations, got 4"):
        packed.predict(more)
    made = bignn.pack_graph(data, like=packed)
    with pytest.raises(InputError, match="one with edge types, got one packed without"):
        packed.predict(replace(made, edge_types=None))
    assert made.edge_types is not None
    for types, message in (
        (made.edge_types[1:], "array 'edge_types' must be int32"),
        (made.edge_types - 1, "array 'edge_types' has negative values"),
    ):
        with pytest.raises(FileError, match=message):
            replace(made, edge_types=types)
    graph = bignn.from_pyg(data)
    with pytest.raises(InputError, match="'edge_type' must be one relation per edge"):
        replace(graph, edge_type=np.zeros(3, dtype=np.int64))
    with pytest.raises(InputError, match="'edge_type' must be a relation's id in"):
        replace(graph, edge_type=np.full(259, -1))
    operations: Any = [dict(step) for step in packed.operations]
    place = next(n for n, step in enumerate(operations) if "relation" in step)
    operations[place]["relation"] = 1 << 16
    with pytest.raises(FileError, match="'relation' of 'aggregate' must be one of range"):
        bignn.PackedModel(operations, packed.arrays, packed.num_features)


def test_models_without_relations_leave_edge_types_out() -> None:
    model = pyg.GCN(D, H, 2, CLASSES)
    bignn.binarize_(model)
    data = make_graph()
    train(model, data.x, data.edge_index, y=data.y)
    assert bignn.pack_graph(data, like=bignn.pack(model)).edge_types is None
    data.edge_type = ["likes"] * data.num_edges  # something else of that name
    assert bignn.from_pyg(data).edge_type is None
    assert len(bignn.pack(model).predict(data)) == data.num_nodes


def test_new_nodes_and_updates_cannot_name_relations_yet() -> None:
    data = make_graph()
    model = Relational(pyg.RGCNConv)
    bignn.binarize_(model)
    model(data.x, data.edge_index, data.edge_type)
    packed = bignn.pack(model.eval())
    with pytest.raises(InputError, match=r"types of edges.*pack the changed graph instead"):
        packed.predict_new(data, data.x[:1], [[0], [60]])
    with pytest.raises(InputError, match=r"live graph|types of edges"):
        packed.live(data)

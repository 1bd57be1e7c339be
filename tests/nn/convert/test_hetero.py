"""Heterogeneous models: to_hetero and HeteroConv converted, trained and packed; their files."""

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from conftest import make_packed_model
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data, HeteroData

import bignn
from bignn import FileError, InputError
from bignn.kernels.layer import DenseBits
from bignn.nn.pair_conv import PairConv
from bignn.runtime import tensors
from bignn.runtime.hetero_graph import PackedHeteroGraph
from bignn.runtime.network import PackedStep
from bignn.runtime.predict_file import predict_file

H, CLASSES = 20, 3
CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")
HAS = ("paper", "has", "author")
Outputs = Tensor | dict[str, Tensor]


def make_graph(seed: int = 0) -> HeteroData:
    """Papers and authors with features of two widths; some nodes have no edges."""
    draw = torch.Generator().manual_seed(seed)

    def edges(sources: int, targets: int, count: int) -> Tensor:
        pair = (torch.randint(0, n, (count,), generator=draw) for n in (sources, targets))
        return torch.stack([*pair])

    data = HeteroData()
    data["paper"].x = torch.randn(60, 24, generator=draw)
    data["author"].x = torch.randn(40, 70, generator=draw) + 1
    for kind in ("paper", "author"):
        data[kind].y = (data[kind].x[:, 0] > 0.5).long()
    data[CITES].edge_index = edges(60, 50, 150)
    data[WRITES].edge_index = edges(40, 60, 120)
    data[HAS].edge_index = edges(55, 40, 100)
    return data


class Plain(nn.Module):
    """A model of one type of nodes, for to_hetero: a norm, a residual sum, a head."""

    def __init__(self, conv: Any, **options: Any) -> None:
        super().__init__()
        self.conv1, self.conv2 = (conv((-1, -1), H, **options) for _ in range(2))
        self.norm, self.lin = pyg.BatchNorm(H), pyg.Linear(-1, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.norm(self.conv1(x, edge_index)).relu()
        x = x + self.conv2(x, edge_index).relu()
        out: Tensor = self.lin(x)
        return out


class Relations(nn.Module):
    """HeteroConvs of several kinds of convolution, and classes of papers alone."""

    def __init__(self, *aggrs: str) -> None:
        super().__init__()
        self.encode = nn.ModuleDict({"paper": nn.Linear(24, H), "author": nn.Linear(70, H)})
        self.convs = nn.ModuleList(pyg.HeteroConv(self.make(), aggr=aggr) for aggr in aggrs)
        self.lin = nn.Linear(H, CLASSES)

    def make(self) -> dict[Any, nn.Module]:
        return {
            CITES: pyg.SAGEConv(H, H, normalize=True),
            WRITES: pyg.GraphConv((H, H), H),
            HAS: pyg.SAGEConv((H, H), H, aggr="max", root_weight=False),
        }

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        x_dict = {kind: self.encode[kind](x).relu() for kind, x in x_dict.items()}
        for conv in self.convs:
            x_dict = {kind: x.relu() for kind, x in conv(x_dict, edge_index_dict).items()}
        out: Tensor = self.lin(x_dict["paper"])
        return out


def by_to_hetero(conv: Any, aggr: str = "sum", **options: Any) -> nn.Module:
    data = make_graph()
    model: nn.Module = pyg.to_hetero(Plain(conv, **options), data.metadata(), aggr=aggr)
    with torch.no_grad():
        model(data.x_dict, data.edge_index_dict)  # sets the sizes
    return model


def test_an_example_sets_the_sizes() -> None:
    data = make_graph()
    for example in (data, (data.x_dict, data.edge_index_dict)):
        model = pyg.to_hetero(Plain(pyg.SAGEConv), data.metadata())
        assert bignn.binarize_(model, example=example).obstacle is None
        assert model.training
    plain = Data(data["paper"].x, data[CITES].edge_index)
    lazy = pyg.GCN(-1, H, 2, CLASSES)
    with pytest.raises(InputError, match=r"whose sizes are set, .* give binarize_\(model, example"):
        bignn.binarize_(lazy)
    with pytest.raises(InputError, match="'example' must be a PyG Data or HeteroData, or a tuple"):
        bignn.binarize_(lazy, example=5)
    assert bignn.binarize_(lazy, example=plain).obstacle is None
    assert lazy.convs[0].lin.weight.shape == (H, 24)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "sage": lambda: by_to_hetero(pyg.SAGEConv),
    "graph, mean of relations": lambda: by_to_hetero(pyg.GraphConv, "mean"),
    "sage max": lambda: by_to_hetero(
        lambda inputs, outputs: pyg.SAGEConv(inputs, outputs, aggr="max")
    ),
    "relations": lambda: Relations("sum", "mean"),
    "maxima over relations": lambda: Relations("max", "max"),
}


def outputs_of(model: nn.Module, data: HeteroData) -> dict[str | None, Tensor]:
    """The logits of each type of nodes, by the type to name where there are several."""
    out: Outputs = model(data.x_dict, data.edge_index_dict)
    if isinstance(out, Tensor):
        return {None: out}
    return {kind: logits for kind, logits in out.items()}  # noqa: C416, for its type


def train(model: nn.Module, data: HeteroData, epochs: int = 5) -> dict[str | None, Any]:
    """Train in a plain loop; return the logits in evaluation."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        losses = [
            functional.cross_entropy(logits, data[kind or "paper"].y)
            for kind, logits in outputs_of(model, data).items()
        ]
        torch.stack(losses).sum().backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return {kind: logits.numpy() for kind, logits in outputs_of(model, data).items()}


def trained(data: HeteroData) -> tuple[bignn.PackedModel, Any]:
    torch.manual_seed(0)
    model = MODELS["sage"]()
    bignn.binarize_(model)
    expected = train(model, data)["paper"]
    return bignn.pack(model, node_type="paper"), expected


@pytest.mark.parametrize("name", MODELS)
def test_it_trains_and_packs(name: str) -> None:
    torch.manual_seed(0)
    data, model = make_graph(), MODELS[name]().eval()
    plain = copy.deepcopy(model)
    bignn.binarize_(plain, binarize="none")
    for kind, logits in outputs_of(plain, data).items():
        assert torch.allclose(logits, outputs_of(model, data)[kind], atol=1e-5)
    assert bignn.binarize_(model).obstacle is None
    assert any(isinstance(module, PairConv) for module in model.modules())
    for kind, expected in train(model, data).items():
        packed = bignn.pack(model, node_type=kind)
        values = packed.predict(data, output="logits")
        assert np.abs(values - expected).max() < 1e-4 * max(1, np.abs(expected).max())
        classes = packed.predict(data)
        assert np.array_equal(classes, expected.argmax(axis=1))
        for nodes in ([39, 3, 3], [21]):
            assert np.array_equal(packed.predict(data, nodes), classes[nodes])


def test_features_are_bits_and_relations_native() -> None:
    data = make_graph()
    packed, _ = trained(data)
    graph: Any = bignn.pack_graph(data, like=packed)
    assert isinstance(graph, PackedHeteroGraph)
    assert isinstance(graph.nodes["author"].features, DenseBits)
    assert graph.nodes["author"].features.words.shape == (40, 2)
    native = [step for step in packed.network.rest if isinstance(step, PackedStep)]
    # Authors are reached over papers: five of the six sums lead to papers' classes.
    sums = sorted(step.layer.aggr for step in native)
    assert sums == [*2 * ["mean/0"], *2 * ["mean/1"], "mean/2"]
    assert packed.network.num_features == {"author": 70, "paper": 24}
    assert packed.num_hops == 2


def test_only_what_a_prediction_needs_is_packed() -> None:
    """A last layer's relations into another type are no part of the model."""
    data = make_graph()

    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            convs: Any = {HAS: pyg.SAGEConv((24, 70), H), WRITES: pyg.SAGEConv((70, 24), H)}
            self.conv = pyg.HeteroConv(convs)

        def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
            return self.conv(x_dict, edge_index_dict)

    model = One()
    bignn.binarize_(model)
    expected = train(model, data)
    packed = bignn.pack(model, node_type="author")
    assert packed.network.relations == (HAS,)
    assert np.array_equal(packed.predict(data), expected["author"].argmax(axis=1))


def test_files_give_everything_back(tmp_path: Path) -> None:
    data = make_graph()
    packed, expected = trained(data)
    packed.save(tmp_path / "model.bignn")
    model = bignn.PackedModel.open(tmp_path / "model.bignn")
    bignn.pack_graph(data, like=model).save(tmp_path / "graph.bigraph")
    for graph in (
        bignn.open(tmp_path / "graph.bigraph"),
        PackedHeteroGraph.open(tmp_path / "graph.bigraph", verify=True),
    ):
        assert isinstance(graph, PackedHeteroGraph)
        assert np.array_equal(model.predict(graph), expected.argmax(axis=1))
    report = predict_file(str(tmp_path / "model.bignn"), str(tmp_path / "graph.bigraph"))
    assert report["predictions"] == expected.argmax(axis=1).tolist()
    assert "60 paper" in repr(graph)
    assert "24 paper" in repr(model)
    line = "holds a packed heterogeneous graph, expected a packed graph; .* open it with bignn.open"
    with pytest.raises(FileError, match=line):
        bignn.PackedGraph.open(tmp_path / "graph.bigraph")


def test_files_of_something_else_are_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "graph.bigraph"
    packed, _ = trained(make_graph())
    bignn.pack_graph(make_graph(), like=packed).save(path)
    arrays, header = tensors.read(path)
    arrays = {name: np.array(array) for name, array in arrays.items()}
    types, relations = header["node_types"], header["relations"]
    for change, line in (
        ({"version": 2}, "version 2 is not known, expected 1"),
        ({"version": True}, "version True is not known"),
        ({"more": 1}, "it has an unknown part 'more'"),
        ({"node_types": None}, "'node_types' must list names"),
        ({"node_types": [*types, types[0]]}, "'node_types' must list names"),
        ({"node_types": [[*types[0][:1], -1, *types[0][2:]], *types[1:]]}, "must list names"),
        ({"node_types": [[*types[0][:2], 0, ""], *types[1:]]}, "an unknown part 'beta.0'"),
        (
            {"node_types": [*types, ["venue", 5, 3, "a"]]},
            r"array 'features\.2\.offsets' is missing",
        ),
        ({"relations": [relations[0]]}, "it has an unknown part 'ids"),
        ({"relations": [["paper", 1, "paper"]]}, "'relations' must be a list of different triples"),
        ({"relations": [*relations, relations[0]]}, "'relations' must be a list of different"),
        ({"relations": [*relations, ["a", "b", "c"]]}, r"array 'offsets\.3' is missing"),
    ):
        tensors.write(path, arrays, {**header, **change})
        with pytest.raises(FileError, match=line) as caught:
            bignn.open(path)
        assert "\n" not in str(caught.value)


def test_a_changed_graph_is_packed_again() -> None:
    data = make_graph()
    packed, _ = trained(data)
    before = packed.predict(data, output="logits")
    data["author"].x = -data["author"].x
    after = packed.predict(data, output="logits")
    assert not np.array_equal(before, after)
    again = bignn.pack_graph(data, like=packed)
    assert np.array_equal(after, packed.predict(again, output="logits"))


def test_what_does_not_pack_trains_and_says_so() -> None:
    torch.manual_seed(0)
    data = make_graph()
    model = by_to_hetero(lambda inputs, outputs: pyg.GATConv(inputs, outputs, add_self_loops=False))
    obstacle = str(bignn.binarize_(model).obstacle)
    assert "GATConv 'conv1.paper__cites__paper' of a relation" in obstacle
    assert "in torch it trains and predicts all the same" in obstacle
    train(model, data)
    with pytest.raises(InputError, match="cannot be packed"):
        bignn.pack(model, node_type="paper")


def test_an_example_of_another_kind_is_refused() -> None:
    data = make_graph()
    plain = Data(data["paper"].x, data["paper", "cites", "paper"].edge_index)
    with pytest.raises(
        InputError, match=r"'example' must be a HeteroData with nodes of .*got Data"
    ):
        bignn.binarize_(by_to_hetero(pyg.SAGEConv), example=plain)
    with pytest.raises(InputError, match=r"'example' must be a Data .*HeteroData; .*to_hetero"):
        bignn.binarize_(pyg.GraphSAGE(-1, 8, 2, 3), example=data)


@pytest.mark.filterwarnings("ignore:There exist node types")
def test_edge_weights_count_in_torch() -> None:
    data = make_graph()

    weights = {WRITES: torch.rand(120)}
    torch.manual_seed(0)
    conv = pyg.GraphConv((70, 24), H)
    model: Any = nn.ModuleDict({"conv": pyg.HeteroConv({WRITES: conv})})
    given = ({WRITES: data[WRITES].edge_index}, weights)
    expected = model["conv"](data.x_dict, *given)["paper"]
    bignn.binarize_(model, binarize="none")
    got = model["conv"](data.x_dict, *given)["paper"]
    assert torch.allclose(got, expected, atol=1e-5)


def test_bad_input_is_one_line() -> None:
    data = make_graph()
    model = MODELS["sage"]()
    bignn.binarize_(model)
    train(model, data, epochs=1)
    with pytest.raises(InputError, match=r"'node_type' must be one of \['paper', 'author'\]"):
        bignn.pack(model)
    with pytest.raises(InputError, match="whose classes are wanted, got 'venue'"):
        bignn.pack(model, node_type="venue")
    packed, _ = trained(data)
    with pytest.raises(InputError, match=r"a PyG HeteroData with nodes of \['author', 'paper'\]"):
        packed.predict(Data(data["paper"].x, data[CITES].edge_index))
    with pytest.raises(InputError, match="'order' must be None for a heterogeneous model"):
        bignn.pack_graph(data, like=packed, order="locality")
    changes: list[tuple[Callable[[Any], Any], str]] = [
        (lambda some: some["author"].pop("x"), "one with features of 'author' nodes"),
        (lambda some: some["author"].update({"x": torch.ones(40, 3)}), "one with 70 features per"),
        (lambda some: some[HAS].pop("edge_index"), r"one with edges \('paper', 'has', 'author'\)"),
        (lambda some: some[HAS].edge_index.add_(30), r"between 'paper' nodes in 0\.\.59"),
    ]
    for change, line in changes:
        other = copy.deepcopy(data)
        change(other)
        with pytest.raises(InputError, match=line):
            packed.predict(other)
    gcn = pyg.GCN(24, H, 2, CLASSES)
    bignn.binarize_(gcn)
    gcn(data["paper"].x, data[CITES].edge_index)
    with pytest.raises(InputError, match=r"'graph' must be a bignn\.Graph, a PyG Data"):
        bignn.pack(gcn).predict(data)
    graph: Any = bignn.pack_graph(data, like=packed)
    with pytest.raises(InputError, match="'graph' must be one packed for this model"):
        bignn.pack(gcn).predict(graph)


def test_arrays_that_do_not_fit_are_refused() -> None:
    packed, _ = trained(make_graph())
    graph: Any = bignn.pack_graph(make_graph(), like=packed)
    with pytest.raises(FileError, match=r"array 'ids\.0' has numbers that are not in 0\.\.59"):
        replace(graph, ids=(graph.ids[0] + 30, *graph.ids[1:]))
    with pytest.raises(FileError, match=r"array 'offsets\.1' must be int64 \[61\]"):
        replace(graph, offsets=(graph.offsets[0], graph.offsets[1][:-1], graph.offsets[2]))
    few = replace(graph.nodes["author"], beta=None)
    with pytest.raises(FileError, match=r"array 'beta\.\d' is missing"):
        replace(graph, nodes={**graph.nodes, "author": few})
    with pytest.raises(FileError, match="relation 1 is between types that have no nodes"):
        replace(graph, nodes={"paper": graph.nodes["paper"]})
    operations: Any = [dict(step) for step in packed.operations]
    widths: Any = packed.network.num_features

    def refused(line: str, **change: Any) -> None:
        place = next(n for n, step in enumerate(operations) if step["op"] == "aggregate")
        steps = [*operations]
        steps[place] = {**steps[place], **change}
        if change.get("relation", 0) is None:
            del steps[place]["relation"]
        with pytest.raises(FileError, match=line):
            bignn.PackedModel(steps, packed.arrays, widths, relations=packed.network.relations)

    with pytest.raises(FileError, match="relations are listed, but features are of one type"):
        one = make_packed_model([20, 8, 2])
        bignn.PackedModel(one.operations, one.arrays, 20, relations=packed.network.relations)
    refused("reads relation 7, which is not from such nodes", relation=7)
    refused("reads edges of no relation", relation=None)
    refused("reads edges of no relation", aggr="gcn")

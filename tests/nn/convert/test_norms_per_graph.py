"""Norms that are given the graph of each node: statistics per graph, in torch and packed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from pyg_models import CLASSES, D
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

import bignn
from bignn import FileError
from bignn.runtime.neighbourhood import Surroundings

H = 16

NORMS: dict[str, Callable[[], nn.Module]] = {
    "layer": lambda: pyg.LayerNorm(H, eps=0.3),
    "layer without affine": lambda: pyg.LayerNorm(H, affine=False),
    "layer of each node": lambda: pyg.LayerNorm(H, mode="node"),
    "graph": lambda: pyg.GraphNorm(H),
    "instance": lambda: pyg.InstanceNorm(H, affine=True),
    "instance with running statistics": lambda: pyg.InstanceNorm(H, track_running_stats=True),
    "pair": lambda: pyg.PairNorm(scale=0.7),
    "pair individually": lambda: pyg.PairNorm(scale_individually=True),
    "mean subtraction": pyg.MeanSubtractionNorm,
    "size": pyg.GraphSizeNorm,
}


class Pooled(nn.Module):
    """A norm between a convolution and the pooling."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.conv, self.norm, self.lin = pyg.GCNConv(D, H), norm, nn.Linear(H, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        h = self.norm(self.conv(x, edge_index), batch=batch).relu()
        out: Tensor = self.lin(pyg.global_mean_pool(h, batch))
        return out


class Nodes(Pooled):
    """A norm, and classes of nodes that depend on two hops of normalised values."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__(norm)
        self.conv2 = pyg.SAGEConv(H, H)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:  # type: ignore[override]
        h = self.conv2(self.norm(self.conv(x, edge_index), batch), edge_index)
        out: Tensor = self.lin(h)
        return out


def make_graphs() -> list[Data]:
    """Graphs of several sizes, one of a single node; the features of each are shifted."""
    draw = torch.Generator().manual_seed(0)
    return [
        Data(
            torch.randn(nodes, D, generator=draw) + torch.randn(D, generator=draw),
            torch.randint(0, nodes, (2, 3 * nodes), generator=draw),
        )
        for nodes in (12, 5, 1, 20)
    ]


def prepare(model: nn.Module, batch: Any) -> np.ndarray[Any, Any]:
    """Give parameters of norms values, let statistics settle; return the logits in evaluation."""
    assert bignn.binarize_(model).obstacle is None
    norm: Any = model.norm
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.uniform_(0.5, 1.5)
        model(batch.x, batch.edge_index, batch.batch)
        model.eval()
        logits: np.ndarray[Any, Any] = model(batch.x, batch.edge_index, batch.batch).numpy()
    return logits


@pytest.mark.parametrize("name", NORMS)
def test_graphs_are_normalised_one_by_one(name: str) -> None:
    torch.manual_seed(3)  # no column is equal at all nodes of a graph, which rounding decides
    graphs = make_graphs()
    batch: Any = Batch.from_data_list(graphs)
    model = Pooled(NORMS[name]())
    expected = prepare(model, batch)
    packed = bignn.pack(model)
    assert np.allclose(packed.predict(graphs, output="logits"), expected, atol=1e-5)
    some = packed.predict(batch, [3, 0, 3], output="logits")
    assert np.allclose(some, expected[[3, 0, 3]], atol=1e-5)
    alone = packed.predict(graphs[1], output="logits")
    assert np.allclose(alone, expected[1:2], atol=1e-5)


@pytest.mark.parametrize("name", ["layer", "graph", "pair"])
def test_nodes_depend_on_their_own_graph_alone(name: str) -> None:
    torch.manual_seed(0)
    graphs = make_graphs()
    batch: Any = Batch.from_data_list(graphs)
    model = Nodes(NORMS[name]())
    expected = prepare(model, batch)
    packed = bignn.pack(model)
    orders: list[Any] = [None, "locality"]
    read = Surroundings(bignn.pack_graph(batch, like=packed), packed.network, np.array([13])).first
    assert read.tolist() == [12, 13, 14, 15, 16]
    for order in orders:
        graph = bignn.pack_graph(batch, like=packed, order=order)
        assert np.allclose(packed.predict(graph, output="logits"), expected, atol=1e-4)
        for nodes in ([13], [17, 2, 17], [0, 37]):
            some = packed.predict(graph, nodes, output="logits")
            assert np.allclose(some, expected[nodes], atol=1e-4)


def test_a_batch_of_its_own_making_does_not_pack() -> None:
    class Other(Pooled):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            h = self.norm(self.conv(x, edge_index), x[:, 0].long())
            out: Tensor = self.lin(pyg.global_mean_pool(h, batch))
            return out

    obstacle = str(bignn.binarize_(Other(pyg.GraphNorm(H))).obstacle)
    assert "GraphNorm 'norm' is given something other than a value of the nodes" in obstacle


def test_values_of_graphs_have_no_graphs_of_their_own() -> None:
    torch.manual_seed(0)
    model = Pooled(pyg.MeanSubtractionNorm())
    batch: Any = Batch.from_data_list(make_graphs())
    prepare(model, batch)
    packed = bignn.pack(model)
    operations: Any = [dict(step) for step in packed.operations]
    last = operations[-1]["out"]
    norm = next(step for step in operations if step["op"] == "graph_norm")
    with pytest.raises(FileError, match=r"'graph_norm' takes .* which has no nodes any more"):
        bignn.PackedModel([*operations, {**norm, "in": [last], "out": "n"}], packed.arrays, D)
    norm["per_graph"] = 1
    with pytest.raises(FileError, match="'per_graph' of 'graph_norm' must be one of"):
        bignn.PackedModel(operations, packed.arrays, D)

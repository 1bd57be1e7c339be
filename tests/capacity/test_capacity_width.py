"""Layers of trained models as they are, and the widths that follow."""

import operator
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from conftest import make_arrays
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

import bignn
from bignn.capacity import entropy, layer_entropies, lower_bound
from bignn.capacity.layers import visit_layers
from bignn.capacity.width import ESTIMATES, LayerEntropy, bound_of, estimate_bits
from bignn.errors import InputError
from bignn.graph import Graph, from_arrays


def layers_of(model: nn.Module, graph: Graph) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {}
    visit_layers(model, graph, lambda name, values: found.update({name: values}))
    return found


def shapes_of(model: nn.Module, graph: Graph) -> dict[str, tuple[int, ...]]:
    return {name: values.shape for name, values in layers_of(model, graph).items()}


def propagation(graph: Graph) -> NDArray[np.float64]:
    """``D^{-1/2} (A + I) D^{-1/2}``, dense."""
    dense = np.eye(graph.num_nodes)
    dense[graph.edge_index[1], graph.edge_index[0]] += 1
    scale = np.diag(dense.sum(axis=1) ** -0.5)
    return scale @ dense @ scale


def test_a_gcn_by_hand(graph: Graph) -> None:
    torch.manual_seed(0)
    model = bignn.nn.GCN(graph.num_features, 8, 3, 2, dropout=0.9)
    with torch.no_grad():
        for conv in model.layers:
            assert conv.bias is not None
            conv.bias.normal_()
    x = graph.dense_x()
    h = x / np.maximum(np.abs(x).sum(axis=1, keepdims=True), 1e-30)
    hidden = []
    for conv in model.layers:
        assert conv.bias is not None
        weight, bias = conv.lin.weight.detach().numpy(), conv.bias.detach().numpy()
        h = propagation(graph) @ (h @ weight.T) + bias
        if conv is not model.layers[-1]:
            h = np.maximum(h, 0)
            hidden.append(h)
    found = layers_of(model, graph)
    assert list(found) == ["input", "hidden 1", "hidden 2", "output"]
    np.testing.assert_array_equal(found["input"], x)
    np.testing.assert_allclose(found["hidden 1"], hidden[0], atol=1e-6)
    np.testing.assert_allclose(found["hidden 2"], hidden[1], atol=1e-6)
    np.testing.assert_allclose(found["output"], h, atol=1e-6)
    assert (found["hidden 1"] == 0).any()
    layers = layer_entropies(model, graph, 5)
    assert [(layer.width, layer.samples) for layer in layers] == [
        (20, 60),
        (8, 60),
        (8, 60),
        (2, 60),
    ]
    expected = [float(entropy(values, 5).sum()) for values in (hidden[0], hidden[1])]
    # A value on an edge may fall to the other side in float32.
    assert [layer.bits for layer in layers[1:3]] == pytest.approx(expected, rel=1e-2)
    assert lower_bound(model, graph, 5) == int(np.ceil(max(layer.bits for layer in layers[1:3])))


def test_modes_gradients_and_hooks_stay_as_they_were(graph: Graph) -> None:
    model = bignn.nn.GCN(graph.num_features, 8, 2, 2, norm="batch")
    model.train()
    model.norms[0].eval()
    before = [module.training for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    layer_entropies(model, graph)
    assert [module.training for module in model.modules()] == before
    assert all(not module._forward_pre_hooks for module in model.modules())
    assert all(p.grad is None for p in model.parameters())
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name])

    def fail(name: str, values: object) -> None:
        raise InputError(name)

    with pytest.raises(InputError, match="input"):
        visit_layers(model, graph, fail)
    assert [module.training for module in model.modules()] == before
    assert all(not module._forward_pre_hooks for module in model.modules())


def test_every_model_of_ours(graph: Graph) -> None:
    conv: Any
    for conv in ["mean-gcn", "sage", "gat"]:
        heads = 2 if conv == "gat" else 1
        model = bignn.nn.GNN(graph.num_features, 6, 3, 2, conv=conv, heads=heads)
        assert shapes_of(model, graph) == {
            **{"input": (60, 20), "output": (60, 2)},
            **{f"hidden {number}": (60, 6 * heads) for number in (1, 2)},
        }


def test_a_jumping_head_reads_layers_one_by_one(graph: Graph) -> None:
    model = bignn.nn.GNN(graph.num_features, 6, 3, 2, conv="sage", jk="cat")
    shapes = shapes_of(model, graph)
    assert [shapes[f"hidden {number}"] for number in (1, 2, 3)] == [(60, 6)] * 3
    assert len(shapes) == 5


class Own(nn.Module):
    """As PyG's users write them: functional activations, a linear map beside a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.skip = nn.Linear(20, 6)
        self.conv1 = pyg.GCNConv(20, 6)
        self.conv2 = pyg.GCNConv(6, 6)
        self.side = nn.Linear(6, 6)
        self.last = nn.Linear(6, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = functional.relu(self.conv1(x, edge_index)) + self.skip(x)
        h = functional.dropout(h, 0.5, training=self.training)
        h = functional.elu(self.conv2(x=h, edge_index=edge_index) + self.side(h))
        out: Tensor = self.last(h)
        return out


def test_models_of_other_people(graph: Graph) -> None:
    torch.manual_seed(0)
    own = Own()
    found = layers_of(own, graph)
    assert list(found) == ["input", "hidden 1", "hidden 2", "output"]
    own.eval()
    x, edges = torch.from_numpy(graph.dense_x()), torch.from_numpy(graph.edge_index)
    with torch.no_grad():
        h = functional.relu(own.conv1(x, edges)) + own.skip(x)
        np.testing.assert_array_equal(found["hidden 1"], h.numpy())
        np.testing.assert_array_equal(found["output"], own(x, edges).numpy())
    for model, hidden in (
        (pyg.GCN(20, 6, 3, 2), 2),
        (pyg.GIN(20, 6, 3, 2), 2),
        (pyg.GraphSAGE(20, 6, 3, 2, jk="cat"), 3),
        (pyg.GAT(20, 6, 2, 2, heads=2, jk="max"), 2),
    ):
        shapes = shapes_of(model, graph)
        assert list(shapes) == ["input", *(f"hidden {k + 1}" for k in range(hidden)), "output"]
        assert all(shape == (60, 6) for name, shape in shapes.items() if "hidden" in name)


def test_converted_models(graph: Graph) -> None:
    model = Own()
    bignn.binarize_(model)
    model.fit_input(torch.from_numpy(graph.dense_x()))  # type: ignore[operator]
    assert list(shapes_of(model, graph)) == ["input", "hidden 1", "hidden 2", "output"]
    with pytest.raises(InputError, match="'model' must be a trained float model, got one with bin"):
        bignn.recommend_width(model, graph)


def test_graphs_of_any_kind() -> None:
    arrays = make_arrays()
    weighted = from_arrays({**arrays, "edge_weight": np.ones(arrays["edge_index"].shape[1])})
    plain = Graph(arrays["x"], arrays["edge_index"])  # no labels
    model = bignn.nn.GCN(20, 4, 2, 2)
    expected = layer_entropies(model, plain)
    assert layer_entropies(model, bignn.to_pyg(plain)) == expected
    assert layer_entropies(model, weighted)[1].bits == pytest.approx(expected[1].bits, rel=1e-2)


def test_advice(graph: Graph) -> None:
    torch.manual_seed(0)
    model = bignn.nn.GCN(graph.num_features, 16, 2, 2)
    bignn.fit(model, graph, bignn.Settings(lr=0.01, epochs=20), progress=False)
    advice = bignn.recommend_width(model, graph)
    hidden = layers_of(model, graph)["hidden 1"]
    bits = float(entropy(hidden).sum())
    assert advice.lower_bound == lower_bound(model, graph) == int(np.ceil(bits))
    assert advice.layers[1].bits == pytest.approx(bits)
    for estimate in ESTIMATES:
        found = bignn.recommend_width(model, graph, estimate=estimate)
        assert found.width == int(found) == operator.index(found)
        bits = estimate_bits(hidden, estimate)
        assert bits <= found.width < bits + 64
        assert found.width % 64 == 0
        assert found.lower_bound == advice.lower_bound
        assert found.estimate == estimate
    assert estimate_bits(hidden, "copula") < advice.lower_bound
    assert bignn.recommend_width(model, graph, 20).lower_bound < advice.lower_bound
    # A size, wherever one is wanted.
    assert bignn.nn.GCN(20, int(advice), 2, 2, binarize="both").config["hidden_channels"] > 16
    assert f"width {advice.width}" in str(advice)
    assert "hidden 1" in str(advice)


def test_the_largest_hidden_layer_decides() -> None:
    layers = [
        LayerEntropy(name, 4, 9, {"independent": bits})
        for name, bits in (("input", 99.0), ("hidden 1", 3.2), ("hidden 2", 5.0), ("output", 7.0))
    ]
    assert bound_of(layers) == 5
    assert bound_of(layers[:2]) == 4
    assert bound_of([LayerEntropy("hidden 1", 4, 9, {"independent": 0.0})]) == 1


def test_what_is_refused(graph: Graph) -> None:
    single = bignn.nn.GCN(20, 4, 1, 2)
    with pytest.raises(InputError, match="no hidden layer"):
        lower_bound(single, graph)
    with pytest.raises(InputError, match=r"'model' must be a trained torch\.nn\.Module, got str"):
        layer_entropies("gcn", graph)  # type: ignore[arg-type]
    model = bignn.nn.GCN(20, 4, 2, 2)
    with pytest.raises(InputError, match=r"'estimate' must be one of .*'rate'\], got 'best'"):
        bignn.recommend_width(model, graph, estimate="best")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'bins' must be at least 2, got 1"):
        bignn.recommend_width(model, graph, 1)
    with torch.no_grad():
        model.layers[0].lin.weight.fill_(torch.nan)
    with pytest.raises(InputError, match=r"the hidden 1 layer of GCN: 'values' must be numbers"):
        layer_entropies(model, graph)
    with pytest.raises(InputError, match="a tensor \\[nodes, classes\\], got tuple"):
        layer_entropies(_Pair(), graph)


class _Pair(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


def test_dead_layers_are_layers(graph: Graph) -> None:
    model = bignn.nn.GCN(20, 4, 4, 2)
    with torch.no_grad():
        for conv in model.layers[:-1]:
            conv.lin.weight.zero_()
    found = layer_entropies(model, graph)
    assert [layer.name for layer in found] == [
        "input",
        "hidden 1",
        "hidden 2",
        "hidden 3",
        "output",
    ]
    assert [layer.bits for layer in found[1:4]] == [0, 0, 0]

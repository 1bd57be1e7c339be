"""Packed models predict what torch does."""

from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from conftest import make_arrays
from numpy.typing import NDArray

import bignn
from bignn import Graph, InputError, PackedModel
from bignn.config import BinarizeMode, ConvName, NormMode
from bignn.graph import from_arrays
from bignn.nn import GCN, GNN

MODES: tuple[BinarizeMode, ...] = ("none", "features", "weights", "both")
NORMS: tuple[NormMode, ...] = ("none", "batch")


def toy_graphs() -> dict[str, Graph]:
    """Everything that edges can be."""
    rng = np.random.default_rng(0)
    plain = make_arrays(num_nodes=60, num_features=20)
    x = rng.standard_normal((40, 20)).astype(np.float32)
    x[3] = 0
    # Directed; nodes from 30 on are isolated, two with self-loops of their own; repeated edges.
    edges = rng.integers(0, 30, (2, 90))
    loops = np.array([[5, 5, 7, 31, 32], [5, 5, 7, 31, 32]])
    edges = np.concatenate([edges, edges[:, :20], loops, loops[:, ::-1]], axis=1)
    weights = rng.random((len(edges.T),), dtype=np.float32)
    weights[::9] = 0
    weights[-3:] = [0, 2.5, 0]  # the last weight of a node's self-loops counts: 5's is 0 here
    return {
        "undirected": from_arrays(plain, name="undirected"),
        "directed": Graph(x, edges, name="directed"),
        "weighted": Graph(x, edges, weights, name="weighted"),
        "weights of 1": Graph(x, edges, np.ones(edges.shape[1], dtype=np.float32), name="ones"),
        "no edges": Graph(x, np.empty((2, 0), dtype=np.int64), name="no edges"),
        "one node": Graph(x[:1], np.array([[0], [0]]), name="one node"),
    }


def make_model(
    graph: Graph, binarize: BinarizeMode, norm: NormMode = "none", num_layers: int = 2, **rest: Any
) -> GCN:
    """An untrained model with random biases, fitted, its running statistics moved.

    Its neighbours have float weights: rounded ones have tests of their own below.
    """
    torch.manual_seed(num_layers)
    rest.setdefault("edge_bits", None)
    model = GCN(
        graph.num_features, 24, num_layers, 5, binarize=binarize, norm=norm, dropout=0.0, **rest
    )
    with torch.no_grad():
        for conv in model.layers:
            if conv.bias is not None:
                conv.bias.normal_(std=0.1)
    fit_statistics(model, graph)
    return model


def fit_statistics(model: GNN, graph: Graph) -> None:
    """Fits the input stage and moves the running statistics, as training does."""
    x, edge_index, edge_weight = tensors(graph)
    model.fit_input(x)
    if graph.num_nodes > 1:
        model.train()
        model(x, edge_index, edge_weight)
    model.eval()


def tensors(graph: Graph) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    weight = None if graph.edge_weight is None else torch.from_numpy(graph.edge_weight)
    return torch.from_numpy(graph.dense_x()), torch.from_numpy(graph.edge_index), weight


@torch.no_grad()
def torch_logits(model: GNN, graph: Graph) -> NDArray[np.float32]:
    logits = model.eval()(*tensors(graph))
    return cast(NDArray[np.float32], logits.numpy())


def assert_predicts_alike(model: GNN, graph: Graph, *case: Any) -> None:
    packed = bignn.pack(model)
    packed_graph = bignn.pack_graph(graph, like=packed)
    expected = torch_logits(model, graph)
    logits = packed.predict(packed_graph, output="logits")
    assert logits.shape == expected.shape, case
    assert np.abs(logits - expected).max() <= 1e-4 * np.abs(expected).max(), case
    classes = packed.predict(packed_graph)
    second, first = np.sort(expected, axis=1)[:, -2:].T
    clear = first - second > 1e-4
    assert clear.mean() > 0.9, case
    assert np.array_equal(classes[clear], expected.argmax(axis=1)[clear]), case
    assert np.array_equal(classes, logits.argmax(axis=1)), case


@pytest.mark.parametrize("binarize", MODES)
def test_a_packed_model_predicts_what_torch_does(binarize: BinarizeMode) -> None:
    for graph in toy_graphs().values():
        for norm in NORMS:
            for num_layers in (1, 2, 3):
                model = make_model(graph, binarize, norm, num_layers)
                assert_predicts_alike(model, graph, graph.name, norm, num_layers)


def test_rows_that_are_not_normalised_and_layers_without_bias() -> None:
    graph = toy_graphs()["weighted"]
    for binarize in MODES:
        model = make_model(graph, binarize, normalize_rows=False)
        model.layers[0].bias = None
        assert_predicts_alike(model, graph, binarize)
        assert not any(step["op"] == "normalize_rows" for step in bignn.pack(model).operations)


def test_every_node_of_cora_gets_torchs_class() -> None:
    graph = bignn.load("cora")
    for binarize in MODES:
        torch.manual_seed(0)
        model = GCN(graph.num_features, 64, 2, graph.num_classes, binarize=binarize)
        model.fit_input(torch.from_numpy(graph.dense_x()))
        packed = bignn.pack(model)
        classes = packed.predict(bignn.pack_graph(graph, like=packed))
        assert np.array_equal(classes, torch_logits(model, graph).argmax(axis=1)), binarize
        assert len(np.unique(classes)) > 1, binarize


def test_a_trained_model_survives_packing_saving_and_opening(graph: Graph, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = GCN(graph.num_features, 16, 2, graph.num_classes, binarize="both")
    bignn.fit(model, graph, bignn.Settings(epochs=20))
    assert_predicts_alike(model, graph)
    packed = bignn.pack(model)
    packed.save(tmp_path / "model.bignn")
    opened = bignn.open(tmp_path / "model.bignn")
    assert isinstance(opened, PackedModel)
    packed_graph = bignn.pack_graph(graph, like=packed)
    expected = packed.predict(packed_graph, output="logits")
    assert np.array_equal(opened.predict(packed_graph, output="logits"), expected)


def test_what_is_binary_is_stored_as_bits() -> None:
    graph = toy_graphs()["undirected"]
    packed = bignn.pack(make_model(graph, "both", "batch"))
    assert [step["op"] for step in packed.operations] == [
        *["normalize_rows", "standardize"],
        *["binarize", "binary_linear", "aggregate", "batch_norm"],
        *["binarize", "binary_linear", "aggregate", "bias"],
    ]
    assert packed.arrays["layers.0.words"].shape == (24, 1)
    assert packed.network.is_binary
    assert [layer.edge_bits for layer in packed.network.layers] == [17, 20]
    # 24 and 5 outputs: a word of bits and a scale each, 24 means and scales, 5 biases.
    assert packed.sizes == ((24 + 5) * (8 + 4), 24 * 8 + 5 * 4, 2 * 4 * 20)
    assert packed.nbytes == sum(packed.sizes)
    floats = bignn.pack(make_model(graph, "none", "batch"))
    assert [step["op"] for step in floats.operations] == [
        *["normalize_rows", "linear", "aggregate", "batch_norm", "relu"],
        *["linear", "aggregate", "bias"],
    ]
    assert not floats.network.is_binary


def test_packing_leaves_the_model_alone_and_training_leaves_the_packed_one() -> None:
    graph = toy_graphs()["undirected"]
    model = make_model(graph, "both", "batch").train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    packed = bignn.pack(model)
    assert model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    packed_graph = bignn.pack_graph(graph, like=packed)
    logits = packed.predict(packed_graph, output="logits")
    arrays = {key: values.copy() for key, values in packed.arrays.items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=10.0)
    model(*tensors(graph)).square().sum().backward()
    optimizer.step()
    model.fit_input(torch.rand(9, 20))
    changed = [
        key for key, value in model.state_dict().items() if not torch.equal(value, before[key])
    ]
    assert {
        "convs.0.lin.weight",
        "convs.1.bias",
        "input_stage.mean",
        "norms.0.running_mean",
    } <= set(changed)
    assert all(np.array_equal(values, arrays[key]) for key, values in packed.arrays.items())
    assert np.array_equal(packed.predict(packed_graph, output="logits"), logits)
    again = bignn.pack(model).arrays["layers.0.alpha"]
    assert not np.array_equal(again, arrays["layers.0.alpha"])


def test_a_model_that_reads_signs_needs_input_statistics() -> None:
    graph = toy_graphs()["directed"]
    for binarize in MODES:
        torch.manual_seed(0)
        model = GCN(20, 8, 2, 3, binarize=binarize).eval()
        if binarize in ("none", "weights"):
            assert_predicts_alike(model, graph, binarize)
            continue
        match = r"no input statistics yet; .*model\.fit_input\(x\)"
        with pytest.raises(InputError, match=match):
            bignn.pack(model)


def test_what_is_no_gcn_is_refused() -> None:
    with pytest.raises(InputError, match=r"^'model' must be a bignn\.nn\.GNN or .*, got Linear"):
        bignn.pack(torch.nn.Linear(2, 3))
    with pytest.raises(InputError, match="got GCNConv"):
        bignn.pack(bignn.nn.GCNConv(2, 3))
    with pytest.raises(InputError, match="got str"):
        bignn.pack(cast(torch.nn.Module, "model.safetensors"))


# --- The family --------------------------------------------------------------------------------

CONVS: tuple[ConvName, ...] = ("mean-gcn", "sage", "gat", "sgc")
HEADS = {"no head": {}, "float head": {"jk": "cat"}} | {
    "binary head": {"jk": "cat", "binarize_head": True}
}


def make_member(
    graph: Graph, conv: ConvName, binarize: BinarizeMode, *, bias: float = 0.1, **rest: Any
) -> GNN:
    """As make_model, of another convolution."""
    torch.manual_seed(2)  # without a hidden sum within rounding of 0, whose bit turns
    options = {"num_layers": 3, "out_channels": 5, "edge_bits": None} | rest
    if conv == "gat":
        options = {"heads": 2, "out_heads": 3} | options
    model = GNN(
        graph.num_features, 12, conv=conv, binarize=binarize, dropout=0.0, activation="elu",
        **options,
    )  # fmt: skip
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=bias)
    fit_statistics(model, graph)
    return model


@pytest.mark.parametrize("conv", ["gcn", *CONVS])
def test_the_family_predicts_what_torch_does(conv: ConvName) -> None:
    for number, (binarize, (head, options)) in enumerate(product(MODES, HEADS.items())):
        for graph in toy_graphs().values():
            norm = NORMS[number % 2]  # both with every mode, and with every head
            model = make_member(graph, conv, binarize, norm=norm, **options)
            assert_predicts_alike(model, graph, binarize, head, graph.name, norm)
        packed = bignn.pack(model)
        if binarize == "both" and conv != "sgc":
            assert len(packed.network.layers) == 3, head
            assert packed.network.is_binary == (head != "float head"), head
        elif binarize != "both":
            assert not packed.network.is_binary, (binarize, head)


@pytest.mark.parametrize("conv", ["gcn", *CONVS])
def test_every_node_of_cora_gets_torchs_class_from_the_family(conv: ConvName) -> None:
    graph = bignn.load("cora")
    for head, of_head in HEADS.items():
        options: dict[str, Any] = {"num_layers": 2, "out_channels": graph.num_classes}
        # Biases of the usual size would decide every class of an untrained model.
        model = make_member(graph, conv, "both", bias=1e-3, **(options | of_head))
        packed = bignn.pack(model)
        packed_graph = bignn.pack_graph(graph, like=packed)
        classes = packed.predict(packed_graph)
        expected = torch_logits(model, graph)
        second, first = np.sort(expected, axis=1)[:, -2:].T
        clear = first - second > 1e-6  # one node of one model is nearer to a tie
        assert clear.sum() >= graph.num_nodes - 1, head
        assert np.array_equal(classes[clear], expected.argmax(axis=1)[clear]), head
        assert len(np.unique(classes)) > 1, head
        nodes = np.arange(0, graph.num_nodes, 300)
        assert np.array_equal(packed.predict(packed_graph, nodes), classes[nodes]), head


# --- Rounded edge weights ------------------------------------------------------------------------

ROUNDED: tuple[ConvName, ...] = ("gcn", "mean-gcn", "sage", "gat")


def assert_equal_to_the_last_bit(model: GNN, graph: Graph, *case: Any) -> PackedModel:
    packed = bignn.pack(model)
    packed_graph = bignn.pack_graph(graph, like=packed)
    expected = torch_logits(model, graph)
    assert np.array_equal(packed.predict(packed_graph, output="logits"), expected), case
    assert np.array_equal(packed.predict(packed_graph), expected.argmax(axis=1)), case
    return packed


def with_a_hub(graph: Graph) -> Graph:
    """The graph with a node that has 300 neighbours more, some of them repeated."""
    hub = np.zeros(300, dtype=np.int64)
    edges = np.concatenate([graph.edge_index, [np.arange(300) % graph.num_nodes, hub]], axis=1)
    return Graph(graph.dense_x(), edges, name="hub")


@pytest.mark.parametrize("conv", ROUNDED)
def test_rounded_weights_give_torchs_logits_to_the_last_bit(conv: ConvName) -> None:
    graphs = toy_graphs()
    graphs["hub"] = with_a_hub(graphs["undirected"])
    for number, graph in enumerate(graphs.values()):
        for edge_bits in (2, 6, 7, 8):
            norm = NORMS[(number + edge_bits) % 2]
            model = make_member(graph, conv, "both", norm=norm, edge_bits=edge_bits)
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    if "att_" in name:
                        parameter.normal_()
            packed = assert_equal_to_the_last_bit(model, graph, graph.name, edge_bits, norm)
            assert [layer.edge_bits for layer in packed.network.layers] == 3 * [edge_bits]


@pytest.mark.parametrize("conv", ROUNDED)
def test_models_trained_with_rounded_weights_pack_to_the_last_bit(
    graph: Graph, conv: ConvName, tmp_path: Path
) -> None:
    for norm in NORMS:
        torch.manual_seed(0)
        heads: Any = {"heads": 2, "out_heads": 3} if conv == "gat" else {}
        model = GNN(20, 16, 2, 2, conv=conv, binarize="both", norm=norm, edge_bits=7, **heads)
        path = tmp_path / f"{norm}.safetensors"
        settings = bignn.Settings(epochs=15)
        bignn.fit(model, graph, settings, checkpoint_path=path)
        packed = assert_equal_to_the_last_bit(model.eval(), graph, norm)
        loaded = bignn.load_model(path)
        assert loaded.config["edge_bits"] == 7
        assert np.array_equal(torch_logits(loaded, graph), torch_logits(model, graph))
        packed.save(tmp_path / f"{norm}.bignn")
        opened = PackedModel.open(tmp_path / f"{norm}.bignn")
        assert opened.operations == packed.operations
        packed_graph = bignn.pack_graph(graph, like=packed)
        logits = packed.predict(packed_graph, output="logits")
        assert np.array_equal(opened.predict(packed_graph, output="logits"), logits)


@pytest.mark.parametrize("conv", ROUNDED)
def test_every_node_of_cora_gets_torchs_logits_with_rounded_weights(conv: ConvName) -> None:
    graph = bignn.load("cora")
    torch.manual_seed(0)
    model = GNN(
        graph.num_features, 16, 2, graph.num_classes, conv=conv, binarize="both", edge_bits=7
    )
    bignn.fit(model, graph, bignn.Settings(epochs=20))
    assert_equal_to_the_last_bit(model, graph)


def test_converted_models_pack_to_the_last_bit_with_rounded_weights(graph: Graph) -> None:
    x, edges, _ = tensors(graph)
    for kind in (pyg.GCN, pyg.GraphSAGE, pyg.GAT):
        torch.manual_seed(0)
        model = kind(20, 16, 2, 2)
        bignn.binarize_(model, edge_bits=6)
        bignn.fit(model, graph, bignn.Settings(epochs=5))
        packed = bignn.pack(model)
        assert [layer.edge_bits for layer in packed.network.layers] == [6, 6]
        with torch.no_grad():
            expected = model.eval()(x, edges).numpy()
        packed_graph = bignn.pack_graph(graph, like=packed)
        assert np.array_equal(packed.predict(packed_graph, output="logits"), expected), kind


def test_a_type_of_nodes_is_refused_where_there_is_one() -> None:
    converted = pyg.GCN(5, 4, 2, 2)
    bignn.binarize_(converted)
    for model in (GCN(5, 4, 2, 2), converted):
        with pytest.raises(InputError, match=r"'node_type' must be left out .*, got 'paper'"):
            bignn.pack(model, node_type="paper")

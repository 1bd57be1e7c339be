"""Every function that takes a graph takes a PyG ``Data`` too, and refuses anything else."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.edge_index import EdgeIndex

import bignn
from bignn import Graph, InputError
from bignn.capacity import layer_entropies, lower_bound
from bignn.cost import Sizes
from bignn.graph import as_graph
from bignn.graph.readers.convert import with_split
from bignn.train.recipes import settings_for


def model_of(graph: Graph) -> bignn.nn.GCN:
    torch.manual_seed(0)
    model = bignn.nn.GCN(graph.num_features, 8, 2, graph.num_classes)
    model.fit_input(torch.from_numpy(graph.dense_x()))
    return model.eval()


def fit(model: Any, graph: Any) -> Any:
    result = bignn.fit(model, graph, bignn.Settings(epochs=2), progress=False)
    return round(result.val_loss, 5), result.test_acc  # splits are in another order


def pack_graph(model: Any, graph: Any) -> Any:
    packed = bignn.pack(model)
    return packed.predict(bignn.pack_graph(graph, like=packed), output="logits").tobytes()


def split(model: Any, graph: Any) -> Any:
    found = with_split(graph, (50, 25, 25)).train_idx
    assert found is not None
    return found.tolist()


def build(model: Any, graph: Any) -> Any:
    return bignn.recipe("gcn").build(graph).config


TAKERS: list[Callable[[Any, Any], Any]] = [
    fit,
    pack_graph,
    split,
    build,
    lambda model, graph: int(bignn.recommend_width(model, graph)),
    lambda model, graph: [layer.bits for layer in layer_entropies(model, graph)],
    lambda model, graph: lower_bound(model, graph),
    lambda model, graph: bignn.cost.estimate(model, graph).cycle_ops,
    lambda model, graph: Sizes.of(graph),
    lambda model, graph: bignn.to_pyg(graph).edge_index.tolist(),
    lambda model, graph: bignn.recipe("gcn", graph=graph),
    lambda model, graph: settings_for(model, graph),
]


def test_a_data_serves_as_the_graph_it_was_made_from(graph: Graph) -> None:
    data = bignn.to_pyg(graph)
    for number, take in enumerate(TAKERS):
        assert take(model_of(graph), data) == take(model_of(graph), graph), number


def test_anything_else_is_refused(graph: Graph) -> None:
    line = r"^'graph' must be a bignn\.Graph.* a PyG Data.*, got \w+"
    no_labels = r"^'graph' has nothing to learn: no type of nodes has labels"
    for take in TAKERS:
        for other in (7, {"x": 1}, HeteroData(), np.zeros((2, 3))):
            # Training takes a HeteroData, but none that is empty.
            lines = f"{line}|{no_labels}" if isinstance(other, HeteroData) else line
            with pytest.raises(InputError, match=lines):
                take(model_of(graph), other)


def test_a_data_is_saved_as_the_graph_it_is(graph: Graph, tmp_path: Path) -> None:
    bignn.save(bignn.to_pyg(graph), tmp_path / "mine.npz")
    again = bignn.load(tmp_path / "mine.npz")
    assert np.array_equal(again.edge_index, graph.edge_index)
    assert np.array_equal(again.dense_x(), graph.dense_x())


def test_tensors_of_other_layouts_and_kinds(graph: Graph) -> None:
    data = bignn.to_pyg(graph)
    data.x = data.x.to_sparse().to(torch.float64)
    data.edge_index = EdgeIndex(data.edge_index, sparse_size=(60, 60))
    data.edge_weight = torch.full((graph.num_edges,), 2, dtype=torch.bfloat16)
    again = bignn.from_pyg(data)
    assert np.array_equal(again.dense_x(), graph.dense_x())
    assert np.array_equal(again.edge_index, graph.edge_index)
    assert again.edge_weight is not None
    assert again.edge_weight.tolist() == [2.0] * graph.num_edges
    data.x = graph.dense_x()
    with pytest.raises(InputError, match="'x' must be a tensor in the PyG Data, got ndarray"):
        bignn.from_pyg(data)
    for name in ("x", "edge_index", "y"):
        data = bignn.to_pyg(graph)
        data[name] = data[name].to("meta")
        with pytest.raises(InputError, match=f"'{name}' must be a tensor with values, got one on"):
            bignn.from_pyg(data)


def test_looking_at_a_graph_imports_no_torch() -> None:
    code = (
        "import bignn, sys\n"
        "bignn.cost.estimate({'hidden_channels': 8, 'num_layers': 2}, bignn.load('cora'))\n"
        "try:\n    bignn.save(3, 'a.npz')\nexcept bignn.InputError as error:\n    print(error)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, last = done.stdout.splitlines()
    assert first.startswith("'graph' must be a bignn.Graph or a PyG Data, got int")
    assert last == "False"


def test_masks_without_labels_are_left_out(graph: Graph) -> None:
    data = bignn.to_pyg(graph)
    data.y = None
    found = as_graph(data)
    assert found.y is None
    assert found.train_idx is None


def test_complex_features_are_refused(graph: Graph) -> None:
    data = bignn.to_pyg(graph)
    data.x = data.x.to(torch.complex64)
    with pytest.raises(InputError, match=r"^'x' must be of real numbers, got torch\.complex64"):
        as_graph(data)

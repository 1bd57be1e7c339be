"""Messages about wrong input: one sentence each, with the offending place."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from conftest import make_arrays

import bignn
from bignn.cli import main
from bignn.errors import InputError, offsets_error
from bignn.graph import Graph, SparseRows
from bignn.kernels.sampling import Choice
from bignn.loaders import LayerLoader, NeighborLoader, SaintEdgeLoader, SaintNodeLoader
from bignn.nn.evaluation import naming_width_errors


def test_offsets_name_the_first_wrong_one() -> None:
    for offsets, got in (
        ([1, 2, 3], "1 at 0"),
        ([0, 3, 2, 3], "2 at 2"),
        ([0, 1, 2], "2 at 2"),
        ([-1, 3], "-1 at 0"),
    ):
        assert str(offsets_error("at", offsets, 3)) == f"'at' must be rising from 0 to 3, got {got}"


def graph_of(**changes: Any) -> Graph:
    return Graph(**make_arrays() | changes, name="toy")


def data_without(key: str) -> Any:
    data = bignn.to_pyg(graph_of())
    data[key] = None
    return data


def sparse_x(indptr: list[int]) -> SparseRows:
    ones = np.ones(2, dtype=np.float32)
    return SparseRows(np.array(indptr), np.zeros(2, dtype=np.int64), ones, (2, 3))


def weighted_matrix() -> Any:
    dense = torch.zeros(3, 3)
    dense[0, 1], dense[2, 0] = 1.0, 0.5
    return dense.to_sparse_csr()


def train_on_layers(**options: Any) -> None:
    graph = graph_of()
    model = bignn.nn.GNN(graph.num_features, 8, 2, graph.num_classes, **options)
    sampling = bignn.Sampling("layer", 8, fan_outs=(9, 9))
    bignn.fit(model, graph, bignn.Settings(epochs=1, sampling=sampling), progress=False)


class Taken(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fit_input = 3
        self.conv = pyg.GCNConv(4, 2)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.conv(x, edge_index)
        return out


def data_with_norm() -> Any:
    data = bignn.to_pyg(graph_of())
    data.node_norm = torch.ones(60)
    return data


def edgeless() -> Any:
    data = bignn.to_pyg(graph_of())
    data.edge_index = data.edge_index[:, :0]
    return data


CASES: dict[str, tuple[Callable[[], object], str]] = {
    "repeated": (
        lambda: graph_of(train_idx=np.array([4, 9, 4])),
        "toy: 'train_idx' must be free of repetitions, got node 4 more than once",
    ),
    "indptr": (
        lambda: Graph(sparse_x([0, 3, 2]), np.zeros((2, 0), dtype=np.int64)),
        "graph: 'x_indptr' must be rising from 0 to 2, got 2 at 2",
    ),
    "no x": (
        lambda: bignn.from_pyg(data_without("x")),
        "'data' has no node features x; give every node a feature vector",
    ),
    "no edges": (
        lambda: bignn.from_pyg(data_without("edge_index")),
        "'data' has no edge_index; leave out ToSparseTensor, which drops it",
    ),
    "no x to sample": (
        lambda: LayerLoader(data_without("x"), [3], batch_size=2),
        "'data' has no node features x; give every node a feature vector",
    ),
    "no edges to sample": (
        lambda: SaintEdgeLoader(edgeless(), 3),
        "'data' has no edges; use SaintNodeLoader",
    ),
    "a norm": (
        lambda: SaintNodeLoader(data_with_norm(), 3),
        "'data' has a node_norm already; del data.node_norm first",
    ),
    "a batch sampler": (
        lambda: NeighborLoader(bignn.to_pyg(graph_of()), [2], batch_sampler=[[1]]),
        "'batch_sampler' is not supported; pass batch_size, shuffle or sampler",
    ),
    "weights": (
        lambda: Choice([0.5, -2.0, np.nan]),
        "'weights' must be finite numbers, none below 0, got -2.0 at 1",
    ),
    "no weight": (
        lambda: Choice([0.0, 0.0]),
        "'weights' must have a finite sum above 0, theirs is 0.0",
    ),
    "weighted matrix": (
        lambda: bignn.nn.SAGEConv(2, 2)(torch.ones(3, 2), weighted_matrix()),
        "'edge_index' must be a sparse adjacency of ones for this layer, got 0.5 from 0 to 2; give "
        "its edges as [2, E] to leave weights out",
    ),
    "layers of another kind": (
        lambda: train_on_layers(conv="sage"),
        "'sampler' cannot be 'layer' for a model with 'sage' convolutions: it is for plain GCNs",
    ),
    "layers with a head": (
        lambda: train_on_layers(jk="cat"),
        "'sampler' cannot be 'layer' for a model with jk='cat': it is for plain GCNs",
    ),
    "no sampler": (
        lambda: bignn.recipe("gcn", batch_size=7),
        "'batch_size' must be left out without a sampler, got 7; name a sampler, "
        "one of ['neighbor', 'walk', 'node', 'edge', 'layer']",
    ),
    "nothing to binarize": (
        lambda: bignn.binarize_(torch.nn.Sequential(torch.nn.ReLU())),
        "'model' has nothing to binarize: no PyG convolutions or linear maps of 16 inputs or more",
    ),
    "a name that is taken": (
        lambda: bignn.binarize_(Taken()),
        "'model' has an attribute 'fit_input' already, which binarize_ sets; rename it",
    ),
    "labels of other nodes": (
        lambda: graph_of(x=np.ones((50, 4), dtype=np.float32)),
        "toy: 'y' must be one class per node (50 rows of x), got 60 values; give features and "
        "labels of the same nodes",
    ),
    "beyond float32": (
        lambda: graph_of(x=np.full((60, 4), 1e300)),
        "toy: 'x' must be within float32's range, 3.4e+38 at most in size, got 1e+300 at [0, 0] "
        "(240 in all); scale them first",
    ),
    "a number to load": (
        lambda: bignn.load(5),  # type: ignore[arg-type]
        "'name_or_path' must be a name such as 'cora' or a path, got 5",
    ),
    "disjoint": (
        lambda: NeighborLoader(bignn.to_pyg(graph_of()), [2], disjoint=True),
        "'disjoint' is not supported; leave it out, or take torch_geometric.loader's "
        "NeighborLoader (with pyg-lib)",
    ),
    "weighted": (
        lambda: NeighborLoader(bignn.to_pyg(graph_of()), [2], weight_attr="edge_weight"),
        "'weight_attr' is not supported; leave it out, or take torch_geometric.loader's "
        "NeighborLoader (with pyg-lib)",
    ),
    "induced": (
        lambda: NeighborLoader(bignn.to_pyg(graph_of()), [2], subgraph_type="induced"),
        "'subgraph_type' is not supported; leave it out, or take torch_geometric.loader's "
        "NeighborLoader (with pyg-lib)",
    ),
    "a model of another width": (
        lambda: bignn.fit(pyg.GCN(9, 8, 2, 2), graph_of(), progress=False),
        "'model' must be one that takes the graph's 20 features per node, got torch's error: "
        "mat1 and mat2 shapes cannot be multiplied (60x20 and 9x8)",
    ),
    "a width of another width": (
        lambda: bignn.recommend_width(pyg.GCN(9, 8, 2, 2), graph_of()),
        "'model' must be one that takes the graph's 20 features per node, got torch's error: "
        "mat1 and mat2 shapes cannot be multiplied (60x20 and 9x8)",
    ),
    "epochs in words": (
        lambda: bignn.Settings(epochs="10"),  # type: ignore[arg-type]
        "'epochs' must be a whole number, at least 1, got '10'",
    ),
    "a rate in words": (
        lambda: bignn.Settings(lr="a"),  # type: ignore[arg-type]
        "'lr' must be a positive number, got 'a'",
    ),
    "a width in words": (
        lambda: bignn.nn.GCN("24", 32, 2, 4),  # type: ignore[arg-type]
        "'in_channels' must be a whole number, at least 1, got '24'",
    ),
    "NaN": (
        lambda: bignn.capacity.entropy(np.array([[1.0, np.nan], [2.0, 3.0]])),
        "'values' must be numbers, none beyond 1e+300 in size, got NaN in neuron 1; did training "
        "diverge?",
    ),
}


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_messages_are_sentences() -> None:
    got = {}
    for case, (call, _) in CASES.items():
        with pytest.raises(InputError) as error:
            call()
        got[case] = str(error.value)
    assert got == {case: line for case, (_, line) in CASES.items()}


def test_commands_name_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, line in (
        (
            ["convert", "a.npz", "--edges", "e.csv"],
            "--features is missing; give --features FILE, or --",
        ),
        (["convert", "a.npz", "--features", "x.csv"], "--edges is missing; give --edges and"),
        (
            ["convert", "a.npz", "--graph", "b.npz", "--labels", "y.csv", "--undirected"],
            "--graph has its tables already; leave out --undirected",
        ),
        (["convert", "a.npz", "--graph", "b.npz"], "--graph needs --labels FILE, or --split"),
        (
            ["train", "cora", "--temperature", "2"],
            "error: --temperature needs --distill or --teacher",
        ),
        (["train", "cora", "--teachers", "2"], "error: --teachers needs --distill or --teacher"),
        (["train", "cora", "--weight-decay", "-1"], "error: --weight-decay must be 0 or more"),
        (
            ["train", "cora", "--fan-outs", "10"],
            "error: --fan-outs must be a number per layer (2), got 10",
        ),
        (["compare", "cora", "--bi-hidden", "-3"], "error: --bi-hidden must be a whole number"),
    ):
        code = main(arguments)
        error = capsys.readouterr().err
        assert code == (2 if "error: --" in error else 1)
        assert line in error
        assert error.count("\n") == 1


def test_files_in_the_wrong_place_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = graph_of()
    bignn.save(graph, "g.npz")
    model = bignn.nn.GCN(graph.num_features, 8, 2, 2, binarize="both")
    model.fit_input(torch.from_numpy(graph.dense_x()))
    bignn.pack(model).save("m.bignn")
    for arguments, line in (
        (["predict", "g.npz", "m.bignn"], "'g.npz' is no packed model; the model comes first"),
        (["predict", "cora", "m.bignn"], "'cora' is no packed model; the model comes first"),
        (["pack", "m.bignn", "c.safetensors"], "the checkpoint comes first: 'bignn pack c.safe"),
        (["pack", "m.bignn", "n.bignn"], "'m.bignn' is a packed model, expected a checkpoint"),
        (["pack", "g.npz", "n.bignn"], "'g.npz' is a graph's .npz or another archive, expected"),
        (["report", ".", "-o", "rep.pdf"], "--out must be a file name ending in .html, got"),
    ):
        code = main(arguments)
        error = capsys.readouterr().err
        assert code == (2 if "error: --" in error else 1)
        assert line in error
        assert error.count("\n") == 1
    with pytest.raises(InputError, match=r"'m\.bignn' is a packed model, expected a checkpoint"):
        bignn.load_model("m.bignn")
    with pytest.raises(InputError, match=r"'g\.npz' is a \.npz or another archive, expected a pa"):
        bignn.PackedModel.open("g.npz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g.npz", "m.bignn"]


def test_only_the_first_products_width_is_the_graphs() -> None:
    refused = pytest.raises(InputError, match="one that takes the graph's 5 features per node")
    with refused, naming_width_errors("model", 5):
        torch.ones(2, 5) @ torch.ones(6, 3)
    with pytest.raises(RuntimeError, match=r"\(2x4 and 6x3\)"), naming_width_errors("model", 5):
        torch.ones(2, 4) @ torch.ones(6, 3)

"""Graphs of SciPy, NetworkX, PyG's data sets, OGB and DGL, and refusals of what is none."""

import warnings
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.utils import from_networkx, from_scipy_sparse_matrix

import bignn
from bignn import InputError
from bignn.graph import SparseRows, join


def edges_of(graph: bignn.Graph) -> list[tuple[int, int, float]]:
    weight = np.ones(graph.num_edges) if graph.edge_weight is None else graph.edge_weight
    return sorted(zip(*graph.edge_index.tolist(), weight.tolist(), strict=True))


# SciPy


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok"])
@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csr_array])
def test_an_adjacency_of_scipy(kind: str, make: Any) -> None:
    dense = np.array([[0, 2, 0], [0, 1, 0.5], [3, 0, 0]])
    adjacency = make(dense).asformat(kind)
    x = np.arange(6).reshape(3, 2)
    graph = bignn.from_scipy(adjacency, x, y=[0, 1, -1], class_names=["a", "b"])
    assert edges_of(graph) == [(0, 1, 2), (1, 1, 1), (1, 2, 0.5), (2, 0, 3)]
    theirs, weight = from_scipy_sparse_matrix(sp.csr_matrix(dense))
    rows = zip(*theirs.tolist(), weight.tolist(), strict=True)
    assert edges_of(graph) == sorted(rows)
    assert graph.dense_x().tolist() == x.tolist()
    assert graph.y is not None and graph.y.tolist() == [0, 1, -1]
    assert bignn.from_scipy(adjacency, x, weighted=False).edge_weight is None
    assert bignn.from_scipy(adjacency != 0, x).edge_weight is None


def test_scipy_means_what_its_matrix_means() -> None:
    """Entries given twice add up, stored zeros are none; the matrix stays as it was."""
    pieces = np.array([1.0, 1.0, 0.0]), (np.array([0, 0, 1]), np.array([1, 1, 0]))
    adjacency = sp.coo_matrix(pieces, shape=(2, 2))
    features = sp.csr_matrix(([1.0, 2.0], ([1, 1], [2, 2])), shape=(2, 3))
    graph = bignn.from_scipy(adjacency, features)
    assert edges_of(graph) == [(0, 1, 2)]
    assert adjacency.nnz == 3
    assert isinstance(graph.x, SparseRows)
    assert graph.dense_x().tolist() == [[0, 0, 0], [0, 0, 3]]


def test_features_are_made_from_structure() -> None:
    star = sp.csr_matrix(np.array([[0] * 6, *[[1] + [0] * 5] * 5]))  # five edges end at node 0
    degree = bignn.from_scipy(star, features="degree")
    assert degree.dense_x().tolist() == [[1, 1, 1], *[[0, 0, 0]] * 5]  # at least 1, 2, 4
    assert bignn.from_scipy(star, features="constant").dense_x().tolist() == [[1]] * 6
    random = bignn.from_scipy(star, features="random:7", seed=3).dense_x()
    assert random.shape == (6, 7)
    assert len(np.unique(random)) == 42
    assert (random == bignn.from_scipy(star, features="random:7", seed=3).dense_x()).all()
    assert not (random == bignn.from_scipy(star, features="random:7", seed=4).dense_x()).any()
    assert bignn.from_scipy(star, features="random").num_features == 64


SQUARE = sp.csr_matrix(np.eye(3))


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: bignn.from_scipy(np.eye(3)), "'adjacency' must be a SciPy sparse matrix, got nd"),
        (lambda: bignn.from_scipy(SQUARE[:2]), r"'adjacency' must be square, .*, got shape \[2, 3"),
        (lambda: bignn.from_scipy(SQUARE), r"^scipy: the nodes have no features; give 'x', or mak"),
        (lambda: bignn.from_scipy(SQUARE, np.eye(2)), r"'x' must be a row per node \(3\), got 2"),
        (lambda: bignn.from_scipy(SQUARE, np.eye(3), features="degree"), "'features' must be left"),
        (lambda: bignn.from_scipy(SQUARE, features="height"), "'features' must be 'degree', 'con"),
        (lambda: bignn.from_scipy(SQUARE, features="degree:3"), "'features' must be 'degree', 'co"),
        (lambda: bignn.from_scipy(SQUARE, features="random:0"), "with 1 to 65536 columns, got 'ra"),
        (lambda: bignn.from_scipy(-SQUARE, np.eye(3)), "'edge_weight' must be non-negative"),
        (lambda: bignn.from_scipy(SQUARE, np.eye(3), [0.5, 1, 1]), "'y' must be whole numbers, wh"),
        (
            lambda: bignn.from_scipy(SQUARE, np.eye(3), split=(50, 50, 0)),
            "'split' must be left out",
        ),
        (
            lambda: bignn.from_scipy(SQUARE, np.eye(3), [0, 1, 1], split={"dev": [0]}),
            r"'split' must be \{'train': ids, 'val': ids, 'test': ids\}, got \['dev'\]",
        ),
        (
            lambda: bignn.from_scipy(SQUARE, np.eye(3), [0, 1, 1], split={"val": [True] * 3}),
            r"'split' must be node ids, got masks; pass np\.flatnonzero\(mask\)",
        ),
        (
            lambda: bignn.from_scipy(SQUARE, np.eye(3), [0, 1, 1], split="60,20,20"),  # type: ignore[arg-type]
            r"'split' must be three percentages such as \(60, 20, 20\), got '60,20,20'",
        ),
        (lambda: bignn.from_networkx({}), "'graph' must be a NetworkX graph, got dict"),
        (lambda: bignn.from_networkx(nx.path_graph(2)), "^networkx: the nodes have no features"),
        (lambda: bignn.from_networkx(nx.path_graph(2), "age"), "'age' must be at every node, got"),
        (lambda: bignn.from_ogb({"edge_index": 1}), r"'edge_index' and 'num_nodes', got \['edge"),
        (lambda: bignn.from_ogb(3), "'graph' must be OGB's dictionary .*, got int"),
        (lambda: bignn.from_dgl(3), "'graph' must be a DGL graph, got int"),
        (lambda: bignn.from_dgl([1, 2]), "'graph' must be a data set of one graph, got one of 2"),
    ],
)
def test_wrong_input_is_one_line(call: Any, line: str) -> None:
    with pytest.raises(InputError, match=line) as error:
        call()
    assert "\n" not in str(error.value)


# NetworkX


def test_a_graph_of_networkx() -> None:
    graph = nx.Graph()
    for node, (x, y) in {
        "ann": ([1, 2], "cook"),
        "bob": ([3, 4], None),
        "cid": ([5, 6], "baker"),
    }.items():
        graph.add_node(node, x=x, y=y, train_mask=node == "ann", val_mask=node == "cid")
    graph.add_edge("ann", "bob", weight=2)
    graph.add_edge("cid", "cid")
    graph.add_edge("bob", "cid")
    made = bignn.from_networkx(graph)
    assert made.node_names is not None and list(made.node_names) == ["ann", "bob", "cid"]
    assert made.class_names == ("baker", "cook")
    assert made.y is not None and made.y.tolist() == [1, -1, 0]
    assert made.train_idx is not None and made.train_idx.tolist() == [0]
    assert made.val_idx is not None and made.val_idx.tolist() == [2]
    assert made.test_idx is None
    assert made.dense_x().tolist() == [[1, 2], [3, 4], [5, 6]]
    # Both directions, a loop once, 1 where an edge has no weight.
    assert edges_of(made) == [(0, 1, 2), (1, 0, 2), (1, 2, 1), (2, 1, 1), (2, 2, 1)]
    assert bignn.from_networkx(graph, weight=None).edge_weight is None
    split = bignn.from_networkx(graph, split={"train": [2], "val": [0]})
    assert split.train_idx is not None and split.train_idx.tolist() == [2]


def test_networkx_is_read_as_pyg_reads_it() -> None:
    random = nx.gnp_random_graph(30, 0.2, seed=1)
    assert bignn.from_networkx(random, features="constant").node_names is None
    for graph in (random, nx.DiGraph(random), nx.gnp_random_graph(30, 0.2, seed=2, directed=True)):
        made = bignn.from_networkx(graph, features="constant")
        theirs = zip(*from_networkx(graph).edge_index.tolist(), strict=True)
        assert [edge[:2] for edge in edges_of(made)] == sorted(theirs)
    parallel = nx.MultiDiGraph([(0, 1), (0, 1), (1, 0)])
    made = bignn.from_networkx(parallel, features="constant")
    assert edges_of(made) == [(0, 1, 1), (0, 1, 1), (1, 0, 1)]


def test_attributes_of_networkx_are_chosen() -> None:
    graph = nx.path_graph(["a", "b"], create_using=nx.DiGraph)
    for node in graph:
        graph.nodes[node].update(age=3, at=[1.5, 2], kind=1)
    graph.edges["a", "b"]["cost"] = 0.25
    made = bignn.from_networkx(graph, ["at", "age"], "kind", weight="cost")
    assert made.dense_x().tolist() == [[1.5, 2, 3]] * 2
    assert made.y is not None and made.y.tolist() == [1, 1]
    assert made.class_names is None
    assert edges_of(made) == [(0, 1, 0.25)]
    with pytest.raises(InputError, match="'weight' must be an edge attribute, got 'cots', which"):
        bignn.from_networkx(graph, "at", weight="cots")
    with pytest.raises(InputError, match="'y' must be a node attribute, got 'knid', which no node"):
        bignn.from_networkx(graph, "at", "knid")
    assert bignn.from_networkx(graph, "at").y is None  # nobody has the default
    assert bignn.from_networkx(graph, "at", None).y is None
    graph.nodes["b"]["age"] = "old"
    with pytest.raises(InputError, match="'x' must be numbers, or lists of one length, in 'age'"):
        bignn.from_networkx(graph, "age")
    graph.edges["a", "b"]["cost"] = "high"
    with pytest.raises(InputError, match="'weight' must be an edge attribute of numbers, got 'hi"):
        bignn.from_networkx(graph, "at", weight="cost")
    graph.nodes["b"]["kind"] = 0.5
    with pytest.raises(InputError, match="'y' must be whole numbers or texts in 'kind'"):
        bignn.from_networkx(graph, "at", "kind")
    clash = nx.Graph([(1, "1")])
    with pytest.raises(InputError, match="'node_names' must be different names, got '1' more"):
        bignn.from_networkx(clash, features="degree")


# PyG's data sets, OGB


class OneGraph(InMemoryDataset):  # type: ignore[misc]
    """A data set that holds some graphs, as PyG's do."""

    def __init__(self, *graphs: Data) -> None:
        super().__init__()
        self.data, self.slices = self.collate(list(graphs))


class OneOfOGB(OneGraph):
    """A data set of OGB's PyG loader: the split is not in the graph."""

    def get_idx_split(self) -> dict[str, torch.Tensor]:
        return {
            "train": torch.tensor([0, 3]),
            "valid": torch.tensor([1]),
            "test": torch.tensor([2]),
        }


def make_data() -> Data:
    edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    return Data(x=torch.eye(4), edge_index=edges, y=torch.tensor([[0], [1], [1], [0]]))


def test_a_data_set_of_one_graph_is_a_graph() -> None:
    dataset = OneOfOGB(make_data())
    for graph in (bignn.from_pyg(dataset), bignn.from_ogb(dataset)):
        assert graph.num_nodes == 4
        assert [ids.tolist() for ids in (graph.train_idx, graph.val_idx, graph.test_idx)] == [  # type: ignore[union-attr]
            [0, 3],
            [1],
            [2],
        ]
    model = bignn.nn.GCN(4, 8, 2, 2, binarize="both")
    settings = bignn.Settings(epochs=2)
    result = bignn.fit(model, dataset, settings, progress=False)
    assert result.metric == "accuracy" and result.test_acc is not None
    packed = bignn.pack(model)
    assert (packed.predict(dataset) == packed.predict(dataset[0])).all()
    many = OneGraph(make_data(), make_data())
    with pytest.raises(InputError, match="'data' must be a data set of one graph, got one of 2"):
        bignn.from_pyg(many)
    joined, offsets = join(many)
    assert joined.num_nodes == 8
    assert offsets is not None and offsets.tolist() == [0, 4, 8]


def test_the_dictionary_of_ogb() -> None:
    graph = {
        "edge_index": np.array([[0, 2], [1, 1]]),
        "edge_feat": None,
        "node_feat": np.arange(6, dtype=np.float32).reshape(3, 2),
        "num_nodes": 3,
    }
    labels = np.array([[0.0], [np.nan], [1.0]])
    split = {"train": np.array([0]), "valid": np.array([2]), "test": np.array([], dtype=np.int64)}
    with pytest.raises(InputError, match="'test_idx' must be at least one node"):
        bignn.from_ogb(graph, labels, split)
    del split["test"]
    made = bignn.from_ogb(graph, labels, split)
    assert edges_of(made) == [(0, 1, 1), (2, 1, 1)]
    assert made.y is not None and made.y.tolist() == [0, -1, 1]
    assert made.val_idx is not None and made.val_idx.tolist() == [2]
    both = bignn.from_ogb(graph, undirected=True)
    assert edges_of(both) == [(0, 1, 1), (1, 0, 1), (1, 2, 1), (2, 1, 1)]

    class Agnostic:
        """As OGB's NodePropPredDataset."""

        def __getitem__(self, _: int) -> tuple[Any, Any]:
            return graph, labels

        def get_idx_split(self) -> dict[str, Any]:
            return split

    again = bignn.from_ogb(Agnostic())
    assert again.digest() == made.digest()
    without = {**graph, "node_feat": None}
    assert bignn.from_ogb(without, features="degree").dense_x().tolist() == [[0, 0], [1, 1], [0, 0]]
    with pytest.raises(InputError, match=r"'edge_index' must be node ids in 0\.\.1, got 2"):
        bignn.from_ogb({**graph, "num_nodes": 2})


# DGL


class LikeDGL:
    """What a DGLGraph has of what is read."""

    is_homogeneous = True

    def __init__(self) -> None:
        self.ndata = {
            "feat": torch.eye(3),
            "label": torch.tensor([0, 1, 1]),
            "train_mask": torch.tensor([True, False, False]),
            "val_mask": torch.tensor([False, True, False]),
            "test_mask": torch.tensor([False, False, False]),
        }
        self.edata: dict[str, Any] = {}

    def edges(self) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor([0, 1]), torch.tensor([1, 2])

    def num_nodes(self) -> int:
        return 3


def test_a_graph_of_dgl() -> None:
    theirs = LikeDGL()
    graph = bignn.from_dgl(theirs)
    assert edges_of(graph) == [(0, 1, 1), (1, 2, 1)]
    assert graph.dense_x().tolist() == np.eye(3).tolist()
    assert graph.y is not None and graph.y.tolist() == [0, 1, 1]
    assert graph.train_idx is not None and graph.train_idx.tolist() == [0]
    assert graph.val_idx is not None and graph.val_idx.tolist() == [1]
    assert graph.test_idx is None
    theirs.edata["w"] = torch.tensor([0.5, 2.0])
    with pytest.warns(UserWarning, match=r"edata\['w'\] is not used; .* pass weight='w'"):
        assert bignn.from_dgl(theirs).edge_weight is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weighted = bignn.from_dgl([theirs], weight="w")
    assert edges_of(weighted) == [(0, 1, 0.5), (1, 2, 2)]
    with pytest.raises(
        InputError, match=r"'weight' must be an entry of edata \(\['w'\]\), got 'z'"
    ):
        bignn.from_dgl(theirs, weight="z")
    with pytest.raises(InputError, match=r"'x' must be an entry of ndata \(\['feat', .*, got 'h'"):
        bignn.from_dgl(theirs, "h", weight="w")
    assert bignn.from_dgl(theirs, "h", weight="w", features="degree").num_features == 1
    theirs.is_homogeneous = False
    with pytest.raises(InputError, match="'graph' must be with one type of nodes and edges"):
        bignn.from_dgl(theirs)


def test_what_can_be_converted_is_named() -> None:
    model = bignn.nn.GCN(3, 8, 2, 2)
    for given, function in (
        (nx.path_graph(3), "from_networkx"),
        (SQUARE, "from_scipy"),
        ({"edge_index": 1}, "from_ogb"),
    ):
        with pytest.raises(InputError, match=f"convert it with bignn.{function}"):
            bignn.fit(model, given)
        with pytest.raises(InputError, match=f"convert it with bignn.{function}"):
            bignn.save(given, "g.npz")  # type: ignore[arg-type]

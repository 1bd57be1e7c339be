"""Many graphs side by side, and labels that packing does not need."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from conftest import make_arrays
from torch_geometric.data import Batch, Data

import bignn
from bignn.errors import FileError, InputError
from bignn.graph import from_arrays, join
from bignn.graph.graph import SparseRows


def test_graphs_are_put_side_by_side() -> None:
    weighted = Data(
        x=torch.ones(2, 3), edge_index=torch.tensor([[0], [1]]), edge_weight=torch.tensor([0.5])
    )
    plain = Data(x=torch.zeros(1, 3), edge_index=torch.tensor([[0], [0]]), y=torch.tensor([[0.5]]))
    for graphs in ([weighted, plain, weighted], [weighted, [plain, weighted]]):
        graph, offsets = join(graphs)
        assert offsets is not None
        assert offsets.tolist() == [0, 2, 3, 5]
        assert graph.edge_index.tolist() == [[0, 2, 3], [1, 2, 4]]
        assert graph.edge_weight is not None
        assert graph.edge_weight.tolist() == [0.5, 1.0, 0.5]
        assert np.array_equal(graph.dense_x()[:, 0], [1, 1, 0, 1, 1])
    batch = Batch.from_data_list([plain, plain])
    found = join(batch)[1]
    assert found is not None
    assert found.tolist() == [0, 1, 2]
    assert join(plain)[1] is None


def test_sparse_features_stay_sparse() -> None:
    rows = SparseRows(np.array([0, 1, 1]), np.array([2]), np.ones(1, np.float32), (2, 3))
    graph = bignn.Graph(rows, np.zeros((2, 0), np.int64))
    joined, _ = join([graph, graph])
    assert isinstance(joined.x, SparseRows)
    assert np.array_equal(joined.dense_x(), np.tile(rows.toarray(), (2, 1)))


def test_what_cannot_be_joined_is_refused_in_one_line() -> None:
    edges = torch.zeros(2, 0, dtype=torch.long)
    narrow, wide = (
        Data(x=torch.ones(2, 3), edge_index=edges),
        Data(x=torch.ones(2, 4), edge_index=edges),
    )
    unsorted, gap, short = (narrow.clone() for _ in range(3))
    unsorted.batch, gap.batch = torch.tensor([1, 0]), torch.tensor([0, 2])
    short.batch = torch.tensor([0])
    for graphs, message in (
        ([], "'graph' must be at least one graph, got an empty list"),
        ([narrow, wide], r"'graph' must be graphs with equally many features .* \[3, 4\]"),
        ([narrow, 3], "'graph' must be a bignn.Graph, a PyG Data or Batch, .* got int"),
        (unsorted, "'batch' must be the graph of each node .* sort the nodes by graph"),
        (gap, "'graph' must be graphs with at least one node each, got graph 1 without any"),
        (short, r"'batch' must be the graph of each node \[2\], .* got int64 \[1\]"),
    ):
        with pytest.raises(InputError, match=message):
            join(graphs)


def test_packing_leaves_labels_out_that_it_does_not_use() -> None:
    model = pyg.GCN(20, 8, 2, 2)
    data = bignn.to_pyg(from_arrays(make_arrays()))
    bignn.binarize_(model)
    model.fit_input(data.x)
    packed = bignn.pack(model)
    expected = packed.predict(data)
    assert "y" in bignn.pack_graph(data, like=packed).labels
    for y in (
        *(torch.rand(60), torch.rand(60, 3), torch.full((60,), torch.nan), torch.full((60,), -7)),
        *(torch.ones(60, dtype=torch.bfloat16), torch.zeros(3), "missing", ["a"] * 60),
    ):
        odd = data.clone()
        odd.y = y
        assert not bignn.pack_graph(odd, like=packed).labels
        assert np.array_equal(packed.predict(odd), expected)
    del data.y
    assert np.array_equal(packed.predict(data), expected)


def test_operations_and_files_of_pooling_are_checked() -> None:
    weight = {"w.weight": np.ones((2, 3), np.float32)}
    linear = {"op": "linear", "in": ["x"], "out": "a", "weight": "w.weight"}
    mean = {"op": "pool", "in": ["a"], "out": "b", "aggr": "mean"}
    for steps, message in (
        ([linear, {**mean, "aggr": "median"}], "'aggr' of 'pool' must be one of"),
        ([linear, mean, {**mean, "in": ["b"], "out": "c"}], "'b', which has no nodes any more"),
        ([linear, mean, {"op": "add", "in": ["a", "b"], "out": "c"}], "of nodes and of graphs"),
    ):
        with pytest.raises(FileError, match=message):
            bignn.PackedModel(steps, weight, 3)
    model = bignn.PackedModel([linear, mean], weight, 3)
    graph = bignn.Graph(np.eye(3, dtype=np.float32), np.zeros((2, 0), np.int64))
    made = bignn.pack_graph([graph, graph], like=model)
    assert model.predict(made, output="values").tolist() == [[1, 1], [1, 1]]
    for offsets in ([0, 6, 6], [0, 7], [1, 6], [0, 4, 3, 6]):
        with pytest.raises(FileError, match="array 'graph_offsets' does not rise from 0 to 6"):
            replace(made, graph_offsets=np.array(offsets, dtype=np.int64))

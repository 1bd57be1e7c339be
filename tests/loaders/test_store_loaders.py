"""PyG's loaders over a store read bits, and unpack what they sampled alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_stores import in_memory, make_store
from torch_geometric.data.graph_store import EdgeLayout
from torch_geometric.loader import NodeLoader

from bignn.bits import unpack
from bignn.errors import InputError
from bignn.graph.pyg import to_pyg
from bignn.loaders import NeighborLoader, NeighborSampler, open_store
from bignn.runtime.store import Store


def expected_rows(store: Store, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
    signs = unpack(store.words[nodes], store.num_bits)
    return np.asarray(signs * store.beta[nodes][:, None])


def test_batches_are_those_of_the_graph_in_memory(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    pair, nodes = open_store(store), torch.arange(0, 700, 7)
    data = to_pyg(in_memory(store))
    torch.manual_seed(3)
    stored = list(NeighborLoader(pair, [3, 4], nodes, batch_size=32, shuffle=True))
    torch.manual_seed(3)
    held = list(NeighborLoader(data, [3, 4], nodes, batch_size=32, shuffle=True))
    assert len(stored) == len(held) == 4
    for mine, theirs in zip(stored, held, strict=True):
        assert (mine.n_id == theirs.n_id).all()
        assert (mine.edge_index == theirs.edge_index).all()
        assert (mine.y == theirs.y).all()
        assert mine.batch_size == theirs.batch_size
        np.testing.assert_array_equal(mine.x.numpy(), expected_rows(store, mine.n_id.numpy()))
        # Its signs are those of the raw features, whose mean over classes is 0.
        assert (torch.sign(mine.x) == torch.where(theirs.x >= 0, 1.0, -1.0)).all()


def test_pygs_own_loader_takes_it(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    pair = open_store(store)
    loader = NodeLoader(pair, NeighborSampler(pair, [-1]), torch.arange(10), batch_size=10)
    (batch,) = list(loader)
    degrees = torch.bincount(batch.edge_index[1], minlength=10)[:10]
    assert (degrees.numpy() == np.diff(store.offsets)[:10]).all()
    every = sum(len(batch.y) for batch in NeighborLoader(pair, [1], batch_size=300))
    assert every >= store.num_nodes


def test_the_stores_are_what_pyg_asks_for(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    features, edges = open_store(store)
    assert features.get_tensor_size(group_name=None, attr_name="x") == (700, 70)
    assert features.get_tensor(None, "y", index=None).shape == (700,)
    row, colptr = edges.get_edge_index(None, EdgeLayout.CSC)
    assert row.dtype == torch.int32
    assert (row.numpy() == store.ids).all()
    assert (colptr.numpy() == store.offsets).all()
    with pytest.raises(InputError, match="cannot be written to"):
        features.put_tensor(torch.ones(1), group_name=None, attr_name="x", index=None)
    with pytest.raises(InputError, match="cannot be written to"):
        edges.put_edge_index((row, colptr), None, EdgeLayout.CSC, False, None)

"""A store of bits behind PyG's ``FeatureStore`` and ``GraphStore``: loaders unpack batches only."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import FeatureStore, GraphStore
from torch_geometric.data.feature_store import TensorAttr
from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout

from bignn import bits
from bignn.errors import InputError
from bignn.kernels.sampling import CompressedGraph
from bignn.runtime.store import Store
from bignn.runtime.store.row_edges import RowEdges

#: Rows whose edges are looked at together when damage is searched for.
_BLOCK_ROWS = 1 << 18


class BitFeatures(FeatureStore):  # type: ignore[misc]  # PyG has no types
    """The features of a store: ``x`` are a node's signs times its scale β, ``y`` its class.

    Args:
        store: the store.

    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """List ``x``, and ``y`` where there are labels."""
        names = ["x"] if self.store.labels is None else ["x", "y"]
        return [TensorAttr(group_name=None, attr_name=name) for name in names]

    def _get_tensor(self, attr: TensorAttr) -> Tensor | None:
        rows = _rows(attr.index)
        if attr.attr_name == "y":
            return torch.from_numpy(self.store.y[rows].astype(np.int64))
        if attr.attr_name != "x":
            return None
        signs = bits.unpack(self.store.words[rows], self.store.num_bits).astype(np.float32)
        return torch.from_numpy(signs * self.store.beta[rows][:, None])

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        if attr.attr_name == "y":
            return (self.store.num_nodes,)
        return (self.store.num_nodes, self.store.num_bits)

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        raise InputError("a store of bits cannot be written to; pack it again")

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        raise InputError("a store of bits cannot be written to; pack it again")


class MappedEdges(GraphStore):  # type: ignore[misc]
    """The edges of a store, mapped: PyG's CSC layout, with sources of 32 bits.

    Args:
        store: the store.

    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self._compressed: CompressedGraph | None = None

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.store.num_nodes

    def compressed(self) -> CompressedGraph:
        """Return the edges as our samplers read them; checked when they are first asked for."""
        if self._compressed is None:
            try:
                self._compressed = CompressedGraph(self.store.offsets, self.store.ids)
            except InputError:
                RowEdges(self.store, _BLOCK_ROWS).check_all()  # names the file and the row
                raise
        return self._compressed

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """List the one kind of edges there is."""
        size = (self.num_nodes, self.num_nodes)
        return [EdgeAttr(edge_type=None, layout=EdgeLayout.CSC, is_sorted=True, size=size)]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        if edge_attr.layout != EdgeLayout.CSC:
            return None
        return _mapped(self.store.ids), _mapped(self.store.offsets)

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        raise InputError("a store's edges cannot be written to; pack them again")

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        raise InputError("a store's edges cannot be written to; pack them again")


def open_store(store: Store) -> tuple[BitFeatures, MappedEdges]:
    """Return a store as the pair that PyG's loaders take in the place of a ``Data``."""
    return BitFeatures(store), MappedEdges(store)


def _rows(index: Any) -> Any:
    if index is None:
        return slice(None)
    return index.numpy() if isinstance(index, Tensor) else index


def _mapped(array: Any) -> Tensor:
    """Return a tensor over a mapped array; torch has no read-only ones, so nobody may write it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)

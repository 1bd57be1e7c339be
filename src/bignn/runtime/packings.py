"""Packings of raw graphs, kept while the graphs live and do not change."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from bignn.errors import InputError
from bignn.graph import SPLITS, Graph, GraphLike, Graphs, SparseRows
from bignn.graph.hetero import HeteroDataLike, is_hetero
from bignn.graph.names import Names
from bignn.graph.pyg import array_of, is_dataset
from bignn.kernels.native import checksum
from bignn.runtime.neighbourhood import AnyPackedGraph
from bignn.runtime.packed_graph import pack_graph

if TYPE_CHECKING:
    from bignn.runtime.packed_model import PackedModel

# What of a graph a packing depends on; labels travel with it too.
_LABELS = ("y", *SPLITS)
_READ = ("x", "edge_index", "edge_weight", "batch")
_NAMES = ("node_names", "class_names", "label_names")


class Packings:
    """The graphs that a model was asked to predict, packed for it.

    A graph is packed again when any number in it was changed, however it was: its arrays are read
    at every prediction and their checksums compared. Of dense float features that takes longer than
    a small model's prediction; a graph packed by :func:`pack_graph` is not read again.
    """

    def __init__(self, model: PackedModel) -> None:
        self._model = weakref.ref(model)
        self._known: dict[int, tuple[weakref.ref[Any], object, AnyPackedGraph]] = {}
        # A graph may be collected, and forgotten, while this thread holds the lock.
        self._lock = threading.RLock()

    def of(self, graph: Graphs | HeteroDataLike) -> AnyPackedGraph:
        """Return the packing of a graph, made if there is none or the graph has changed."""
        model = self._model()
        assert model is not None
        # A list has no weak references, and a data set makes its graphs anew.
        if isinstance(graph, Sequence) or is_dataset(graph):
            return pack_graph(graph, like=model)
        # Taken before packing: what another thread changes meanwhile is then noticed next time.
        checksums = _checksums(graph)
        with self._lock:
            known = self._known.get(id(graph))
        if known is not None and known[0]() is graph and known[1] == checksums:
            return known[2]
        packed = pack_graph(graph, like=model)
        key = id(graph)

        def forget(_: Any) -> None:
            with self._lock:
                self._known.pop(key, None)

        with self._lock, suppress(TypeError):  # objects without weak references are not kept
            self._known[key] = weakref.ref(graph, forget), checksums, packed
        return packed


def _checksums(graph: GraphLike | HeteroDataLike) -> tuple[object, ...]:
    """Return types, shapes and checksums of all that a packing depends on."""
    if is_hetero(graph):
        return _hetero_checksums(graph)
    labels: tuple[str, ...] = _LABELS
    if not isinstance(graph, Graph):
        labels = tuple(name.replace("_idx", "_mask") for name in labels)
    return (
        *(_checksum(name, getattr(graph, name, None)) for name in _READ),
        *(_optional_checksum(name, getattr(graph, name, None)) for name in ("edge_type", *labels)),
        *(_names_checksum(getattr(graph, name, None)) for name in _NAMES),
    )


def _hetero_checksums(data: Any) -> tuple[object, ...]:
    """Return types, and checksums of the features and edges of each."""
    parts = [(kind, "x", data[kind]) for kind in data.node_types]
    parts += [(kind, "edge_index", data[kind]) for kind in data.edge_types]
    return (
        *((kind, _checksum(name, getattr(store, name, None))) for kind, name, store in parts),
        *(store["num_nodes"] for *_, store in parts if "num_nodes" in store),
    )


def _names_checksum(names: Any) -> object:
    """Return a checksum of names, in whatever form a graph has them."""
    if isinstance(names, Names):
        return checksum(names.data), checksum(names.offsets)
    if isinstance(names, list | tuple):
        return hash(tuple(map(str, names)))
    return None if names is None else str(names)


def _optional_checksum(name: str, part: Any) -> object:
    """Return the checksum of labels or edge types; None where packing leaves them out."""
    with suppress(InputError, TypeError):
        return _checksum(name, part)
    return None


def _checksum(name: str, part: Any) -> object:
    if part is None:
        return None
    if isinstance(part, SparseRows):
        arrays = part.indptr, part.indices, part.values
        return part.shape, *(_checksum(name, array) for array in arrays)
    if (stored := _stored(part)) is not None:
        return tuple(part.shape), *(_checksum(name, tensor) for tensor in stored)
    if not isinstance(part, np.ndarray):
        part = array_of(name, part, as_floats=name in ("x", "edge_weight"))
    return part.dtype.str, part.shape, checksum(part)


def _stored(tensor: Any) -> tuple[Any, ...] | None:
    """Return the tensors that a sparse tensor is stored as; None for others."""
    match str(getattr(tensor, "layout", "")):
        case "torch.sparse_csr":
            return tensor.crow_indices(), tensor.col_indices(), tensor.values()
        case "torch.sparse_coo":
            return tensor._indices(), tensor._values()
    return None

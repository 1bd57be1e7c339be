"""Packings of raw graphs, kept while the graphs live and their tensors do not change."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from bignn.graph import Graph, GraphLike
from bignn.runtime.packed_graph import PackedGraph, pack_graph

if TYPE_CHECKING:
    from bignn.runtime.packed_model import PackedModel

# What of a PyG ``Data`` a packing depends on; labels travel with it too.
_READ = ("x", "edge_index", "edge_weight", "y", "train_mask", "val_mask", "test_mask")


class Packings:
    """The graphs that a model was asked to predict, packed for it.

    A :class:`bignn.Graph` is constant. A PyG ``Data`` is not: it is packed again when one of its
    tensors was replaced or changed in place.
    """

    def __init__(self, model: PackedModel) -> None:
        self._model = weakref.ref(model)
        self._known: dict[int, tuple[weakref.ref[Any], _State, PackedGraph]] = {}
        # A graph may be collected, and forgotten, while this thread holds the lock.
        self._lock = threading.RLock()

    def of(self, graph: GraphLike) -> PackedGraph:
        """Return the packing of a graph, made if there is none or the graph has changed."""
        with self._lock:
            known = self._known.get(id(graph))
        if known is not None and known[0]() is graph and known[1].is_of(graph):
            return known[2]
        model = self._model()
        assert model is not None
        packed = pack_graph(graph, like=model)
        key = id(graph)

        def forget(_: Any) -> None:
            with self._lock:
                self._known.pop(key, None)

        with self._lock:
            self._known[key] = weakref.ref(graph, forget), _State(graph), packed
        return packed


class _State:
    """The tensors of a PyG ``Data``, and how often each was changed in place."""

    def __init__(self, graph: GraphLike) -> None:
        self._parts = [
            (None if part is None else weakref.ref(part), _changes(part)) for part in _parts(graph)
        ]

    def is_of(self, graph: GraphLike) -> bool:
        """Whether the graph still has these tensors, unchanged."""
        return all(
            part is None
            if reference is None
            else reference() is part and changes is not None and changes == _changes(part)
            for (reference, changes), part in zip(self._parts, _parts(graph), strict=True)
        )


def _parts(graph: GraphLike) -> list[Any]:
    return [] if isinstance(graph, Graph) else [getattr(graph, name, None) for name in _READ]


def _changes(part: Any) -> int | None:
    """How often a tensor was changed in place; None for tensors of inference mode, uncounted."""
    try:
        return None if part is None else int(part._version)
    except RuntimeError:
        return None

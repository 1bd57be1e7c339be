"""One batch of changes to a live graph, as checked arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn import kernels
from bignn.bits import Words, words_per_row
from bignn.errors import FileError, InputError, input_error
from bignn.graph import Graph, SparseRows
from bignn.graph.libraries import is_scipy, sparse_rows
from bignn.graph.names import Names
from bignn.graph.pyg import array_of
from bignn.kernels.edge_kinds import WeightUse
from bignn.kernels.layer import dense_words
from bignn.runtime.features import read_features
from bignn.runtime.input_stage import InputSpec, absolute_sums, row_scales
from bignn.runtime.predicted_values import checked_rows, numbered

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

_NO_EDGES: Ints = np.empty((2, 0), dtype=np.int64)
_NO_NODES: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Changes:
    """Changes by rows of the live graph, in the order in which they are made.

    Attributes:
        num_added: new nodes, numbered from the number of nodes on.
        nodes: nodes that get other features.
        words, beta: features of ``nodes``, then of the new nodes, as bits and scales.
        removed_edges: int64 [2, n]; every copy of each goes.
        added_edges: int64 [2, n].
        weights: float32 [n] of the added edges; None for all ones.
        removed_nodes: nodes that lose all their edges and have no answer from then on.

    """

    num_added: int
    nodes: Ints
    words: Words
    beta: Floats
    removed_edges: Ints
    added_edges: Ints
    weights: Floats | None
    removed_nodes: Ints

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a journal's record holds."""
        made: dict[str, NDArray[Any]] = {
            "nodes": self.nodes,
            "words": self.words,
            "beta": self.beta,
            "removed_edges": self.removed_edges,
            "added_edges": self.added_edges,
            "removed_nodes": self.removed_nodes,
        }
        if self.weights is not None:
            made["weights"] = self.weights
        return {name: array for name, array in made.items() if array.size}


def from_arrays(arrays: Mapping[str, NDArray[Any]], num_added: int, num_words: int) -> Changes:
    """Make changes of a journal's record."""
    known: dict[str, tuple[Any, Any]] = {
        "nodes": (np.int64, _NO_NODES),
        "words": (np.uint64, np.empty((0, num_words), dtype=np.uint64)),
        "beta": (np.float32, np.empty(0, dtype=np.float32)),
        "removed_edges": (np.int64, _NO_EDGES),
        "added_edges": (np.int64, _NO_EDGES),
        "weights": (np.float32, None),
        "removed_nodes": (np.int64, _NO_NODES),
    }
    if unknown := sorted(set(arrays) - set(known)):
        raise FileError(f"a record has an unknown part '{unknown[0][:40]}'")
    taken: dict[str, Any] = {}
    for name, (dtype, default) in known.items():
        array = arrays.get(name, default)
        if array is not None and array.dtype != dtype:
            raise FileError(f"'{name}' of a record must be {np.dtype(dtype)}, got {array.dtype}")
        taken[name] = None if array is None else np.ascontiguousarray(array)
    return Changes(num_added=num_added, **taken)


def no_rows(stage: InputSpec) -> tuple[Words, Floats]:
    """Return the bits and scales of no node."""
    width = words_per_row(stage.num_columns)
    return np.empty((0, width), dtype=np.uint64), np.empty(0, dtype=np.float32)


def read_rows(stage: InputSpec, x: Any, argument: str) -> tuple[Words, Floats]:
    """Apply a model's input stage to rows of features: bits and scales."""
    graph = checked_features(stage, x, argument)
    if graph is None:
        return no_rows(stage)
    if isinstance(graph.x, SparseRows):
        features, beta = read_features(stage, graph)
        assert beta is not None
        assert not isinstance(features, np.ndarray)
        return dense_words(features), beta
    made = stage.normalized(graph.x)
    return kernels.pack_rows(made), row_scales(made, absolute_sums)[:, 0]


def checked_features(stage: InputSpec, x: Any, argument: str) -> Graph | None:
    """Check rows of features that a model reads; return them as a graph, None of no rows."""
    if is_scipy(x):
        x = sparse_rows(argument, x)
    if not isinstance(x, SparseRows):
        x = _array(argument, x, as_floats=True)
    if len(x.shape) in (1, 2) and x.shape[0] == 0:
        return None
    if len(x.shape) == 1:
        x = x[None]
    try:
        graph = Graph(x, _NO_EDGES, name=argument)  # checks numbers and shapes
    except InputError as error:
        # Its arrays are called 'x', or 'x_data' and so on where they are sparse.
        line = re.sub(rf"^{argument}: 'x(_[a-z]+)?'", f"'{argument}'", str(error))
        raise InputError(line) from None
    if graph.num_features != stage.num_features:
        expected = f"rows of {stage.num_features} features"
        raise input_error(argument, expected, f"rows of {graph.num_features}")
    return graph


def read_edges(argument: str, edges: Any, num_nodes: int, names: Names | None = None) -> Ints:
    """Check edges [2, n] between nodes, by number or name; None is no edge."""
    if edges is None:
        return _NO_EDGES
    found = _ids(argument, edges, names)
    if found.shape == (0,):  # an empty list
        return _NO_EDGES
    if found.ndim != 2 or len(found) != 2:
        raise input_error(argument, "edges [2, n]", f"shape {list(found.shape)}")
    return checked_rows(argument, found.reshape(-1), num_nodes, "node ids").reshape(2, -1)


def with_new_numbers(
    argument: str, edges: Any, num_nodes: int, num_new: int, names: Names | None
) -> Any:
    """Give new nodes, called -1, -2, ..., their numbers from the number of nodes on."""
    if edges is None:
        return None
    found = _ids(argument, edges, names)
    if found.dtype.kind != "i" or found.size == 0:
        return found
    if (least := int(found.min())) < -num_new:
        of_new = "" if num_new == 0 else f", and -1 to {-num_new} for the new nodes"
        of_new = of_new if num_new != 1 else ", and -1 for the new node"
        raise input_error(argument, f"node ids from 0 on{of_new}", least)
    return np.where(found < 0, num_nodes - 1 - found, found)


def read_nodes(argument: str, nodes: Any, num_nodes: int, names: Names | None = None) -> Ints:
    """Check numbers or names of nodes, each once; None is no node."""
    if nodes is None:
        return _NO_NODES
    found = checked_rows(argument, _ids(argument, nodes, names), num_nodes, "node ids")
    given, counts = np.unique(found, return_counts=True)
    if len(given) != len(found):
        twice = int(given[counts > 1][0])
        raise input_error(argument, "free of repetitions", f"node {twice} more than once")
    return found


def read_weights(
    argument: str, weights: Any, num_edges: int, use: WeightUse = "used"
) -> Floats | None:
    """Check weights of edges, one each, for a model that reads them; None for all ones."""
    if weights is None:
        return None
    if use != "used":
        expected = "left out for a model that was trained without edge weights"
        raise input_error(argument, expected, type(weights).__name__)
    found = _array(argument, weights, as_floats=True)
    if found.dtype.kind not in "fiub" or found.shape != (num_edges,):
        is_list = found.dtype.kind in "fiub" and found.ndim == 1
        got = f"{len(found)}" if is_list else f"{found.dtype} of shape {list(found.shape)}"
        raise input_error(argument, f"one number per added edge ({num_edges})", got)
    taken = np.ascontiguousarray(found, dtype=np.float32)
    if not np.isfinite(taken).all() or (taken < 0).any():
        bad = taken[~np.isfinite(taken) | (taken < 0)][0]
        raise input_error(argument, "finite and not negative", bad)
    return taken


def _ids(argument: str, values: Any, names: Names | None) -> NDArray[Any]:
    """Convert numbers and names of nodes to an array of numbers, which are not checked."""
    return numbered(argument, values, _array(argument, values), "node ids", names)


def _array(argument: str, values: Any, *, as_floats: bool = False) -> NDArray[Any]:
    """Convert lists and tensors to an array."""
    if hasattr(values, "layout"):
        return array_of(argument, values, as_floats=as_floats)
    try:
        return np.asarray(values)
    except ValueError:  # lists of unequal lengths
        raise input_error(argument, "an array", "lists of several lengths") from None

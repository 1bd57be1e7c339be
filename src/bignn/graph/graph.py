"""A graph with node features, labels and a split, checked when it is made.

NumPy only: deployment uses it too. May import ``errors`` and ``names``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import InputError, input_error, offsets_error
from bignn.graph.names import Names, class_names_of, names_from_arrays, names_to_arrays

SPLITS = ("train_idx", "val_idx", "test_idx")
UNLABELLED = -1

_OTHERS = ("edge_index", "edge_weight", "edge_type", "y", *SPLITS)
#: The arrays of the .npz format that may hold text.
TEXT_ARRAYS = frozenset({"node_names", "class_names"})
_NAME_ARRAYS = frozenset({*TEXT_ARRAYS, *(f"{key}_offsets" for key in TEXT_ARRAYS)})
#: The arrays of the .npz format.
ARRAYS = frozenset({"x", "x_indptr", "x_indices", "x_data", "x_shape", *_OTHERS, *_NAME_ARRAYS})

# No real graph comes near these bounds; damaged and malicious files that ask for memory do.
_MAX_SIZE = 1 << 31
_MAX_CLASSES = 1 << 16
_MAX_RELATIONS = 1 << 16
_MAX_TOTAL_WEIGHT = 1e30  # degrees are float32 sums


@dataclass(frozen=True, eq=False)
class SparseRows:
    """A float32 matrix in compressed rows: row i has ``values[indptr[i]:indptr[i + 1]]``."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    values: NDArray[np.float32]
    shape: tuple[int, int]

    def toarray(self) -> NDArray[np.float32]:
        """Return the matrix as a dense array. Entries given twice add up."""
        dense = np.zeros(self.shape, dtype=np.float32)
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))
        np.add.at(dense, (rows, self.indices), self.values)
        return dense


@dataclass(frozen=True, eq=False)
class Graph:
    """An attributed graph.

    Attributes:
        x: node features, dense float32 [N, d] or :class:`SparseRows`.
        edge_index: int64 [2, E], row 0 the sources, row 1 the targets, as in PyG. It is kept as
            given: an undirected edge is stored in both directions; self-loops and duplicates are
            allowed.
        edge_weight: float32 [E], or None for all ones.
        y: int64 [N] class per node, -1 where unknown; None when there are no labels.
        train_idx, val_idx, test_idx: int64 node ids, disjoint; None where not given.
        name: name or path that the graph was loaded from, for messages.
        edge_type: int64 [E], the relation that each edge is of, counted from 0; None where there is
            one kind of edge.
        node_names: a different name for each node; None where nodes go by their numbers.
        class_names: names of the classes in the order of their numbers; None where classes go by
            their numbers.

    """

    x: NDArray[np.float32] | SparseRows
    edge_index: NDArray[np.int64]
    edge_weight: NDArray[np.float32] | None = None
    y: NDArray[np.int64] | None = None
    train_idx: NDArray[np.int64] | None = None
    val_idx: NDArray[np.int64] | None = None
    test_idx: NDArray[np.int64] | None = None
    name: str = "graph"
    edge_type: NDArray[np.int64] | None = None
    node_names: Names | Sequence[str] | NDArray[Any] | None = None
    class_names: Sequence[str] | NDArray[Any] | None = None

    def __post_init__(self) -> None:
        try:
            if self.node_names is not None:
                object.__setattr__(self, "node_names", Names.of(self.node_names))
            if self.class_names is not None:
                object.__setattr__(self, "class_names", class_names_of(self.class_names))
            for key in ("edge_index", "edge_type", "y", *SPLITS):
                if (values := getattr(self, key)) is not None:
                    object.__setattr__(self, key, _integers(key, np.asarray(values)))
            object.__setattr__(self, "edge_weight", _floats("edge_weight", self.edge_weight))
            if not isinstance(self.x, SparseRows):
                object.__setattr__(self, "x", _floats("x", np.asarray(self.x)))
            _check(self)
        except InputError as error:
            raise type(error)(f"{self.name}: {error}") from None

    @property
    def num_nodes(self) -> int:
        """Number of nodes, N."""
        return int(self.x.shape[0])

    @property
    def num_features(self) -> int:
        """Number of features per node, d."""
        return int(self.x.shape[1])

    @property
    def num_edges(self) -> int:
        """Number of directed edges, as stored."""
        return int(self.edge_index.shape[1])

    @property
    def num_classes(self) -> int:
        """Number of classes: of names, or the largest label plus one (0 without labels)."""
        if self.class_names is not None:
            return len(self.class_names)
        return 0 if self.y is None or self.y.size == 0 else max(int(self.y.max()) + 1, 0)

    def dense_x(self) -> NDArray[np.float32]:
        """Return the features as a dense array [N, d]."""
        return self.x.toarray() if isinstance(self.x, SparseRows) else self.x

    def digest(self) -> str:
        """Return a fingerprint of all numbers; names are not part of it."""
        state = hashlib.blake2b(digest_size=16)
        for key, values in sorted(_numbers_to_arrays(self).items()):
            state.update(f"{key} {values.dtype} {values.shape};".encode())
            state.update(np.ascontiguousarray(values).data)
        return state.hexdigest()

    def __repr__(self) -> str:
        parts = [
            f"nodes={self.num_nodes}",
            f"edges={self.num_edges}",
            f"features={self.num_features}",
        ]
        if self.y is not None:
            parts.append(f"classes={self.num_classes}")
        split = [len(part) for key in SPLITS if (part := getattr(self, key)) is not None]
        if split:
            parts.append("split=" + "/".join(map(str, split)))
        return f"Graph({self.name!r}, {', '.join(parts)})"


def from_arrays(arrays: Mapping[str, NDArray[Any]], name: str = "graph") -> Graph:
    """Make a graph from the arrays of the .npz format (``docs/format.md``), of any dtypes."""
    unknown = sorted(set(arrays) - ARRAYS)
    if unknown:
        raise InputError(f"{name}: unknown arrays {unknown}; known are {sorted(ARRAYS)}")
    if "edge_index" not in arrays:
        raise InputError(f"{name}: 'edge_index' is missing; give an integer array [2, E]")
    try:
        y = arrays.get("y")
        if y is not None and y.ndim == 2 and y.shape[1] == 1:  # as OGB stores it
            arrays = {**arrays, "y": y[:, 0]}
        others: dict[str, Any] = {key: arrays.get(key) for key in _OTHERS}
        for key in TEXT_ARRAYS:
            if (names := names_from_arrays(key, arrays)) is not None:
                others[key] = names.checked()
        return Graph(x=_features(arrays), **others, name=name)
    except InputError as error:
        line = str(error)
        raise InputError(line if line.startswith(f"{name}: ") else f"{name}: {line}") from None


def to_arrays(graph: Graph) -> dict[str, NDArray[Any]]:
    """Return the arrays that :func:`from_arrays` reads, in the smallest dtypes that hold them."""
    arrays = _numbers_to_arrays(graph)
    for key in TEXT_ARRAYS:
        if (names := getattr(graph, key)) is not None:
            arrays |= names_to_arrays(key, names)
    return arrays


def _numbers_to_arrays(graph: Graph) -> dict[str, NDArray[Any]]:
    """Return the arrays of all that is not a name."""
    arrays: dict[str, NDArray[Any]] = {"edge_index": _smallest(graph.edge_index)}
    if isinstance(graph.x, SparseRows):
        arrays["x_indptr"] = _smallest(graph.x.indptr)
        arrays["x_indices"] = _smallest(graph.x.indices)
        arrays["x_shape"] = np.array(graph.x.shape, dtype=np.int64)
        if not np.all(graph.x.values == 1):
            arrays["x_data"] = graph.x.values
    else:
        arrays["x"] = graph.x
    if graph.edge_weight is not None:
        arrays["edge_weight"] = graph.edge_weight
    for key in ("edge_type", "y", *SPLITS):
        if (values := getattr(graph, key)) is not None:
            arrays[key] = _smallest(values)
    return arrays


def _features(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.float32] | SparseRows:
    sparse_keys = [key for key in ("x_indptr", "x_indices", "x_shape") if key in arrays]
    if "x" in arrays:
        if sparse_keys:
            raise InputError(f"features are given twice, as 'x' and as {sparse_keys}; keep one")
        dense = _floats("x", arrays["x"])
        assert dense is not None
        return dense
    missing = sorted({"x_indptr", "x_indices", "x_shape"} - set(sparse_keys))
    if missing:
        raise InputError(
            f"features are missing: give 'x', or 'x_indptr', 'x_indices', 'x_shape' (no {missing})"
        )
    shape = _integers("x_shape", arrays["x_shape"])
    if shape.shape != (2,) or (shape < 0).any() or (shape >= _MAX_SIZE).any():
        raise input_error("x_shape", "two sizes [nodes, features] below 2**31", shape.tolist())
    indices = _integers("x_indices", arrays["x_indices"])
    values = _floats("x_data", arrays.get("x_data"))
    return SparseRows(
        indptr=_integers("x_indptr", arrays["x_indptr"]),
        indices=indices,
        values=np.ones(indices.size, dtype=np.float32) if values is None else values,
        shape=(int(shape[0]), int(shape[1])),
    )


def _integers(key: str, values: NDArray[Any]) -> NDArray[np.int64]:
    if values.dtype.kind not in "iu":
        raise input_error(key, "integers", f"dtype {values.dtype}")
    if values.dtype.kind == "u" and values.size and int(values.max()) > np.iinfo(np.int64).max:
        raise input_error(key, "within 64-bit signed range", int(values.max()))
    return np.ascontiguousarray(values, dtype=np.int64)


def _floats(key: str, values: NDArray[Any] | None) -> NDArray[np.float32] | None:
    if values is None:
        return None
    if values.dtype.kind not in "fiub":
        raise input_error(key, "real numbers", f"dtype {values.dtype}")
    with np.errstate(over="ignore"):
        taken = np.ascontiguousarray(values, dtype=np.float32)
    if values.dtype.kind == "f" and values.dtype.itemsize > 4:
        beyond = np.isinf(taken) & np.isfinite(values)
        if beyond.any():
            where = np.argwhere(beyond)[0].tolist()
            largest = np.finfo(np.float32).max
            raise input_error(
                key,
                f"within float32's range, {largest:.1e} at most in size",
                f"{values[tuple(where)]} at {where} ({int(beyond.sum())} in all)",
                "scale them first",
            )
    return taken


def _smallest(values: NDArray[np.int64]) -> NDArray[Any]:
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    for dtype in (np.int16, np.int32):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return values.astype(dtype)
    return values


def _check(graph: Graph) -> None:
    _check_features(graph.x)
    num_nodes = graph.num_nodes
    if graph.y is not None:
        _check_labels(graph.y, num_nodes)
    if graph.edge_index.ndim != 2 or graph.edge_index.shape[0] != 2:
        raise input_error("edge_index", "of shape [2, E]", f"shape {list(graph.edge_index.shape)}")
    _check_ids("edge_index", graph.edge_index, num_nodes)
    if graph.edge_weight is not None:
        if graph.edge_weight.shape != (graph.num_edges,):
            raise input_error(
                "edge_weight",
                f"one number per edge ({graph.num_edges})",
                f"shape {list(graph.edge_weight.shape)}",
            )
        _check_finite("edge_weight", graph.edge_weight)
        if (graph.edge_weight < 0).any():
            raise input_error(
                "edge_weight", "non-negative (degrees are sums of weights)", graph.edge_weight.min()
            )
        total = float(graph.edge_weight.sum(dtype=np.float64))
        if total > _MAX_TOTAL_WEIGHT:
            raise input_error(
                "edge_weight", f"{_MAX_TOTAL_WEIGHT:.0e} at most in all", f"{total:.1e}"
            )
    if graph.edge_type is not None:
        _check_edge_types(graph.edge_type, graph.num_edges)
    if graph.node_names is not None and len(graph.node_names) != num_nodes:
        expected = f"one name per node ({num_nodes} rows of x)"
        raise input_error("node_names", expected, f"{len(graph.node_names)} names")
    if graph.class_names is not None and graph.y is not None:
        highest = int(graph.y.max())
        if highest >= len(graph.class_names):
            expected = f"a name for every class ({highest + 1} by 'y')"
            raise input_error("class_names", expected, f"{len(graph.class_names)} names")
    check_splits(graph.y, {key: getattr(graph, key) for key in SPLITS}, num_nodes)


def _check_edge_types(edge_type: NDArray[np.int64], num_edges: int) -> None:
    if edge_type.shape != (num_edges,):
        expected = f"one relation per edge ({num_edges})"
        raise input_error("edge_type", expected, f"shape {list(edge_type.shape)}")
    _check_ids("edge_type", edge_type, _MAX_RELATIONS, what="a relation's")


def _check_labels(y: NDArray[np.int64], num_nodes: int) -> None:
    if y.ndim == 2:
        raise input_error(
            "y",
            "one class per node",
            f"shape {list(y.shape)} (multi-label)",
            "multi-label targets are not supported: give one class id per node",
        )
    if y.shape != (num_nodes,):
        fix = "give features and labels of the same nodes"
        raise input_error(
            "y", f"one class per node ({num_nodes} rows of x)", f"{y.size} values", fix
        )
    if y.min() < UNLABELLED or y.max() >= _MAX_CLASSES:
        bad = int(y.min()) if y.min() < UNLABELLED else int(y.max())
        raise input_error("y", f"class ids from 0 below {_MAX_CLASSES}, or -1 for unknown", bad)


def _check_features(x: NDArray[np.float32] | SparseRows) -> None:
    if len(x.shape) != 2:
        raise input_error("x", "a matrix [nodes, features]", f"shape {list(x.shape)}")
    if x.shape[0] == 0:
        raise input_error("x", "at least one node", "zero nodes")
    if x.shape[1] == 0:
        raise input_error("x", "at least one feature per node", "zero features")
    if not isinstance(x, SparseRows):
        _check_finite("x", x)
        return
    rows, columns = x.shape
    if x.indptr.shape != (rows + 1,):
        raise input_error(
            "x_indptr", f"of length nodes + 1 ({rows + 1})", f"shape {list(x.indptr.shape)}"
        )
    if x.indices.ndim != 1 or x.values.shape != x.indices.shape:
        raise input_error("x_data", f"one value per index ({x.indices.size})", f"{x.values.size}")
    if x.indptr[0] != 0 or x.indptr[-1] != x.indices.size or (np.diff(x.indptr) < 0).any():
        raise offsets_error("x_indptr", x.indptr.tolist(), x.indices.size)
    _check_ids("x_indices", x.indices, columns, what="a feature")
    _check_finite("x_data", x.values)


def _check_ids(key: str, ids: NDArray[np.int64], limit: int, what: str = "a node") -> None:
    if ids.size == 0:
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= limit:
        bad = low if low < 0 else high
        raise input_error(key, f"{what} id in 0..{limit - 1}", bad, "ids count from 0")


def _check_finite(key: str, values: NDArray[np.float32]) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        where = np.argwhere(~finite)[0].tolist()
        raise input_error(
            key,
            "finite",
            f"{values[tuple(where)]} at {where} ({int((~finite).sum())} in all)",
            "clean or impute them first",
        )


def check_splits(
    y: NDArray[Any] | None, splits: Mapping[str, NDArray[Any] | None], num_nodes: int
) -> None:
    """Refuse splits that are not distinct, labelled nodes, each in one split only."""
    seen = np.zeros(num_nodes, dtype=np.bool_)
    for key, ids in splits.items():
        if ids is None:
            continue
        if y is None:
            raise input_error(key, "given together with 'y'", "a split without labels")
        if ids.ndim != 1:
            raise input_error(key, "a list of node ids", f"shape {list(ids.shape)}")
        if ids.size == 0:
            raise input_error(key, "at least one node", "an empty split", "leave it out instead")
        _check_ids(key, ids, num_nodes)
        found, counts = np.unique(ids, return_counts=True)
        if found.size != ids.size:
            node = int(found[counts > 1][0])
            raise input_error(key, "free of repetitions", f"node {node} more than once")
        if seen[ids].any():
            node = int(ids[seen[ids]][0])
            raise input_error(key, "disjoint from the other splits", f"node {node} in two of them")
        if (y[ids] == UNLABELLED).any():
            node = int(ids[y[ids] == UNLABELLED][0])
            raise input_error(key, "labelled nodes only", f"node {node}, whose y is -1")
        seen[ids] = True

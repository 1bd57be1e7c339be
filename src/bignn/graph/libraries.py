"""Converts graphs of SciPy, OGB and DGL, by what their objects have; imports none of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import InputError, input_error
from bignn.graph.edges import both_directions
from bignn.graph.graph import SPLITS, UNLABELLED, Graph, SparseRows
from bignn.graph.pyg import any_array, from_pyg, is_data, is_dataset
from bignn.graph.split import random_split
from bignn.graph.structure import check_structure_features, structure_features

#: A split: ids of nodes by the name of their part, or percentages of a random one.
Split = Mapping[str, Any] | Sequence[float]

_PARTS = {"train": "train_idx", "valid": "val_idx", "val": "val_idx", "test": "test_idx"}
MAKE_FEATURES = "give 'x', or make some: features='degree', 'constant' or 'random'"


def from_scipy(
    adjacency: Any,
    x: Any = None,
    y: Any = None,
    *,
    features: str | None = None,
    weighted: bool = True,
    split: Split | None = None,
    seed: int = 0,
    node_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    name: str = "scipy",
) -> Graph:
    """Convert a SciPy sparse matrix or array to a :class:`bignn.Graph`.

    Args:
        adjacency: the adjacency [N, N], in any format; a number in row i and column j is an edge
            from node i to node j, as PyG's ``from_scipy_sparse_matrix`` has it. Entries given
            twice add up, and stored zeros are no edges.
        x: node features [N, d]: an array, a tensor, or a sparse matrix, which stays sparse.
        y: a class per node, -1 where unknown.
        features: makes features of nodes that have none: ``"degree"``, ``"constant"``,
            ``"random"`` or ``"random:COLUMNS"`` (:mod:`bignn.graph.structure`).
        weighted: whether the numbers are edge weights; where all are 1 there are none.
        split: node ids as ``{"train": ids, "val": ids, "test": ids}``, or percentages of a random
            split of the labelled nodes, such as ``(60, 20, 20)``.
        seed: seed of a random split and of random features.
        node_names: as of a :class:`bignn.Graph`.
        class_names: as of a :class:`bignn.Graph`.
        name: name of the graph, for messages.

    """
    if not is_scipy(adjacency):
        raise input_error("adjacency", "a SciPy sparse matrix", type(adjacency).__name__)
    if len(adjacency.shape) != 2 or adjacency.shape[0] != adjacency.shape[1]:
        got = f"shape {list(adjacency.shape)}"
        raise input_error("adjacency", "square, a row and a column per node", got)
    rows = adjacency.tocsr(copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    coordinates = rows.tocoo()
    edges = np.stack([coordinates.row, coordinates.col]).astype(np.int64)
    weight = np.asarray(coordinates.data)
    is_plain = not weighted or weight.dtype == np.bool_ or bool((weight == 1).all())
    return made_graph(
        edges,
        None if is_plain else weight,
        adjacency.shape[0],
        x,
        features,
        name,
        y=y,
        split=split,
        seed=seed,
        node_names=node_names,
        class_names=class_names,
    )


def from_ogb(
    graph: Any,
    labels: Any = None,
    split: Split | None = None,
    *,
    undirected: bool = False,
    features: str | None = None,
    seed: int = 0,
    name: str = "ogb",
) -> Graph:
    """Convert a graph of OGB's to a :class:`bignn.Graph`.

    Args:
        graph: the dictionary ``{"edge_index", "node_feat", "num_nodes", ...}`` of OGB's
            library-agnostic loaders, or a node property dataset itself, which has labels and split.
            ``edge_feat`` is not used.
        labels: a class per node, [N] or [N, 1]; NaN and -1 are unknown.
        split: what ``dataset.get_idx_split()`` returns, or as in :func:`from_scipy`.
        undirected: whether to add the reverse of every edge; repeated edges become one.
        features: makes features of nodes that have none, as in :func:`from_scipy`.
        seed: as in :func:`from_scipy`.
        name: name of the graph, for messages.

    """
    if hasattr(graph, "get_idx_split"):
        if is_dataset(graph) or is_data(graph[0]):  # of PyG's loader
            return from_pyg(graph, name)
        split = graph.get_idx_split() if split is None else split
        graph, labels = graph[0] if labels is None else (graph[0][0], labels)
    if not isinstance(graph, Mapping) or "edge_index" not in graph or "num_nodes" not in graph:
        expected = "OGB's dictionary with 'edge_index' and 'num_nodes'"
        got = list(graph) if isinstance(graph, Mapping) else type(graph).__name__
        raise input_error("graph", expected, got)
    edges = any_array("edge_index", graph["edge_index"])
    if undirected:
        edges = _both_directions(edges)
    count = any_array("num_nodes", graph["num_nodes"]).reshape(-1)
    if count.size != 1 or count.dtype.kind not in "iu":
        raise input_error("num_nodes", "a whole number", graph["num_nodes"])
    x = graph.get("node_feat")
    return made_graph(
        edges, None, int(count[0]), x, features, name, y=labels, split=split, seed=seed
    )


def from_dgl(
    graph: Any,
    x: str = "feat",
    y: str | None = "label",
    *,
    weight: str | None = None,
    features: str | None = None,
    split: Split | None = None,
    seed: int = 0,
    name: str = "dgl",
) -> Graph:
    """Convert a DGL graph to a :class:`bignn.Graph`.

    Args:
        graph: a homogeneous ``DGLGraph`` (or a DGL dataset of one): ``edges()``, ``num_nodes()``,
            ``ndata`` and ``edata`` are read.
        x: the entry of ``ndata`` that holds features.
        y: the entry of ``ndata`` that holds classes; None for no labels.
        weight: the entry of ``edata`` that holds edge weights; None for no weights.
        features: makes features of nodes that have none, as in :func:`from_scipy`.
        split: as in :func:`from_scipy`; by default the entries ``train_mask``, ``val_mask`` and
            ``test_mask`` of ``ndata``, where there are any.
        seed: as in :func:`from_scipy`.
        name: name of the graph, for messages.

    """
    if not hasattr(graph, "ndata") and hasattr(graph, "__getitem__") and hasattr(graph, "__len__"):
        if len(graph) != 1:
            raise input_error("graph", "a data set of one graph", f"one of {len(graph)}")
        graph = graph[0]
    if not all(hasattr(graph, part) for part in ("edges", "ndata", "edata", "num_nodes")):
        raise input_error("graph", "a DGL graph", type(graph).__name__)
    if not getattr(graph, "is_homogeneous", True):
        fix = "convert one relation: dgl.edge_type_subgraph, or dgl.to_homogeneous"
        raise input_error("graph", "with one type of nodes and edges", "several", fix)
    source, target = (any_array("edges", ends) for ends in graph.edges())
    of_nodes, of_edges = graph.ndata, graph.edata
    if weight is not None and weight not in of_edges:
        raise input_error("weight", f"an entry of edata ({list(of_edges)})", repr(weight))
    if weight is None and (found := [key for key in ("weight", "w") if key in of_edges]):
        warnings.warn(
            f"edata['{found[0]}'] is not used; if it holds edge weights, pass weight='{found[0]}'",
            stacklevel=2,
        )
    if x not in of_nodes and features is None:
        expected = f"an entry of ndata ({list(of_nodes)})"
        raise input_error("x", expected, repr(x), "or make features: features='degree'")
    labels = of_nodes[y] if y is not None and y in of_nodes else None
    if split is None and labels is not None:
        masks = {key: key.replace("_idx", "_mask") for key in SPLITS}
        split = without_empty(
            {
                key: np.flatnonzero(any_array(mask, of_nodes[mask]))
                for key, mask in masks.items()
                if mask in of_nodes
            }
        )
    return made_graph(
        np.stack([source, target]),
        None if weight is None else any_array("weight", of_edges[weight]).reshape(-1),
        int(graph.num_nodes()),
        of_nodes.get(x),
        features,
        name,
        y=labels,
        split=split,
        seed=seed,
    )


def made_graph(
    edges: NDArray[Any],
    weight: NDArray[Any] | None,
    num_nodes: int,
    x: Any,
    features: str | None,
    name: str,
    *,
    y: Any = None,
    split: Split | None = None,
    seed: int = 0,
    node_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
) -> Graph:
    """Make a graph of what a library had; errors begin with the graph's name."""
    try:
        if features is not None:
            check_structure_features(features)
        if x is not None and features is not None:
            raise input_error("features", "left out where nodes have features", repr(features))
        if x is None and features is None:
            raise InputError(f"the nodes have no features; {MAKE_FEATURES}")
        if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
            got = f"{edges.dtype} of shape {list(edges.shape)}"
            raise input_error("edge_index", "whole numbers [2, E]", got)
        if edges.size and not 0 <= int(edges.min()) <= int(edges.max()) < num_nodes:
            bad = int(edges.min()) if int(edges.min()) < 0 else int(edges.max())
            raise input_error("edge_index", f"node ids in 0..{num_nodes - 1}", bad)
        made: Any = _feature_rows(x) if x is not None else None
        if made is None:
            assert features is not None
            made = structure_features(features, edges, num_nodes, seed)
        if made.shape[0] != num_nodes:
            expected = f"a row per node ({num_nodes})"
            raise input_error("x", expected, f"{made.shape[0]} rows")
        classes = None if y is None else _classes(y)
        parts: dict[str, Any] = {} if not split else _split_arrays(split, classes, seed)
    except InputError as error:
        raise type(error)(f"{name}: {error}") from None
    return Graph(
        made,
        edges,
        weight,
        classes,
        name=name,
        node_names=node_names,
        class_names=class_names,
        **parts,
    )


def _feature_rows(x: Any) -> NDArray[Any] | SparseRows:
    """Return features as an array, or as sparse rows if they are a SciPy matrix."""
    if is_scipy(x):
        return sparse_rows("x", x)
    rows = any_array("x", x)
    return rows[:, None] if rows.ndim == 1 else rows


def is_scipy(value: object) -> bool:
    """Whether a value is a sparse matrix or array of SciPy's."""
    return hasattr(value, "tocsr") and hasattr(value, "nnz")


def sparse_rows(argument: str, x: Any) -> SparseRows:
    """Convert a SciPy matrix of features, or an array of one row, to sparse rows."""
    sparse = (x.reshape((1, -1)) if len(x.shape) == 1 else x).tocsr(copy=True)
    sparse.sum_duplicates()
    if sparse.dtype.kind not in "fiub":
        raise input_error(argument, "real numbers", f"dtype {sparse.dtype}")
    return SparseRows(
        sparse.indptr.astype(np.int64),
        sparse.indices.astype(np.int64),
        sparse.data.astype(np.float32),
        (int(sparse.shape[0]), int(sparse.shape[1])),
    )


def _classes(y: Any) -> NDArray[Any]:
    """Return classes as whole numbers; NaN is unknown."""
    labels = any_array("y", y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind == "f":
        labels = np.where(np.isnan(labels), UNLABELLED, labels)
        if (labels != np.floor(labels)).any():
            got = labels[labels != np.floor(labels)].flat[0]
            raise input_error("y", "whole numbers, which are classes", got)
        labels = labels.astype(np.int64)
    return labels


def _split_arrays(split: Any, y: NDArray[Any] | None, seed: int) -> dict[str, NDArray[Any]]:
    """Return the ids of each part of a split, by the names that graphs have for them."""
    if not isinstance(split, Mapping):
        if y is None:
            raise input_error("split", "left out without labels", split)
        return dict(random_split(y, split, seed))
    keys = _PARTS | {key: key for key in SPLITS}
    if not set(split) <= set(keys):
        raise input_error("split", "{'train': ids, 'val': ids, 'test': ids}", list(split))
    parts = {keys[key]: any_array("split", ids).reshape(-1) for key, ids in split.items()}
    if any(ids.dtype == np.bool_ for ids in parts.values()):
        raise input_error("split", "node ids", "masks", "pass np.flatnonzero(mask)")
    return parts


def without_empty(parts: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Leave out the parts of a split that have no nodes."""
    return {key: ids for key, ids in parts.items() if ids.size}


def _both_directions(edges: NDArray[Any]) -> NDArray[np.int64]:
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        return edges  # refused later
    return both_directions(*edges)[0]

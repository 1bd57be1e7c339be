"""Checks of a packed graph's arrays: types, shapes, and numbers that fit each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bignn.bits import words_per_row
from bignn.errors import FileError
from bignn.kernels.compressed_rows import offsets_fit
from bignn.kernels.layer import DenseBits, PackedFeatures

if TYPE_CHECKING:
    from bignn.runtime.packed_graph import PackedGraph


def check_graph(graph: PackedGraph) -> None:
    """Refuse arrays that do not fit each other."""
    if not 0 < graph.num_features < 2**31:
        raise FileError("the number of features is out of range")
    check_array("degree_scale", graph.degree_scale, [np.float32], (None,))
    num_nodes = graph.num_nodes
    check_compressed("offsets", graph.offsets, "ids", graph.ids, num_nodes, num_nodes)
    check_array("ids", graph.ids, [np.int32, np.int64], (None,))
    if graph.weights is not None:
        check_array("weights", graph.weights, [np.float32], graph.ids.shape)
    if graph.edge_types is not None:
        _check_edge_types(graph)
    check_features("", graph.features, graph.beta, num_nodes, graph.num_features)
    for key in ("weights", "degree_scale"):
        values = getattr(graph, key)
        if values is not None and (values < 0).any():
            raise FileError(f"array '{key}' has negative values")
    if graph.node_ids is not None:
        check_array("node_ids", graph.node_ids, [np.int32, np.int64], (num_nodes,))
        _check_node_ids(graph.node_ids)
    if graph.graph_offsets is not None:
        check_array("graph_offsets", graph.graph_offsets, [np.int64], (None,))
        offsets = graph.graph_offsets
        if not offsets_fit(offsets, num_nodes) or (np.diff(offsets) == 0).any():
            raise FileError(f"array 'graph_offsets' does not rise from 0 to {num_nodes}")
    if graph.node_names is not None and len(graph.node_names) > num_nodes:
        raise FileError(f"'node_names' has {len(graph.node_names)} names for {num_nodes} nodes")
    for key, values in graph.labels.items():
        check_array(f"labels.{key}", values, [np.int64], (None,))
        if key == "y":
            if len(values) != num_nodes:
                raise FileError(f"array 'labels.y' has {len(values)} values for {num_nodes} nodes")
            if graph.class_names is not None and values.max() >= len(graph.class_names):
                raise FileError(f"'class_names' has no name for class {values.max()}")
        elif values.size and not 0 <= int(values.min()) <= int(values.max()) < num_nodes:
            raise FileError(f"array 'labels.{key}' has numbers that are not nodes")


def check_features(
    suffix: str,
    features: PackedFeatures | NDArray[np.float32],
    beta: NDArray[np.float32] | None,
    num_nodes: int,
    num_features: int,
) -> None:
    """Refuse features that do not fit their sizes; names in messages end in ``suffix``."""
    name = f"features{suffix}"
    if isinstance(features, np.ndarray):
        check_array(f"{name}.x", features, [np.float32], (num_nodes, num_features))
    elif beta is None:
        raise FileError(f"array 'beta{suffix}' is missing")
    else:
        check_array(f"beta{suffix}", beta, [np.float32], (num_nodes,))
        _check_bits(name, features, num_nodes, num_features)
    if beta is not None and (beta < 0).any():
        raise FileError(f"array 'beta{suffix}' has negative values")


def _check_edge_types(graph: PackedGraph) -> None:
    types = graph.edge_types
    assert types is not None
    check_array("edge_types", types, [np.int32], graph.ids.shape)
    if graph.adjacency != "plain":
        raise FileError("array 'edge_types' needs edges as they were given")
    if types.size and int(types.min()) < 0:
        raise FileError("array 'edge_types' has negative values")


def _check_node_ids(node_ids: NDArray[Any]) -> None:
    num_nodes = len(node_ids)
    if num_nodes and not 0 <= int(node_ids.min()) <= int(node_ids.max()) < num_nodes:
        raise FileError("array 'node_ids' has numbers that are not nodes")
    is_there = np.zeros(num_nodes, dtype=np.bool_)
    is_there[node_ids] = True
    if not is_there.all():
        raise FileError("array 'node_ids' does not have every node once")


def _check_bits(name: str, features: PackedFeatures, num_nodes: int, num_features: int) -> None:
    width = words_per_row(num_features)
    if isinstance(features, DenseBits):
        check_array(f"{name}.words", features.words, [np.uint64], (num_nodes, width))
        words = features.words
    else:
        offsets, inputs = features.offsets, features.inputs
        check_compressed(
            f"{name}.offsets", offsets, f"{name}.inputs", inputs, num_nodes, num_features
        )
        check_array(f"{name}.inputs", inputs, [np.int32], (None,))
        check_array(f"{name}.base", features.base, [np.uint64], (width,))
        # A bit flipped twice would count twice in one way and not at all in another.
        starts = np.zeros(len(inputs) + 1, dtype=np.bool_)
        starts[offsets] = True
        if (~starts[1:-1] & (inputs[1:] <= inputs[:-1])).any():
            raise FileError(f"array '{name}.inputs' does not rise within each row")
        words = features.base
    spare = np.uint64(-num_features % 64)
    if spare and words.size and (words[..., -1] >> (np.uint64(64) - spare)).any():
        raise FileError("padding bits of the features are not 0")


def check_compressed(
    offsets_name: str,
    offsets: NDArray[Any],
    ids_name: str,
    ids: NDArray[Any],
    num_rows: int,
    limit: int,
) -> None:
    """Refuse offsets that do not rise from 0 to the number of ids, and ids from ``limit`` on."""
    check_array(offsets_name, offsets, [np.int64], (num_rows + 1,))
    if not offsets_fit(offsets, len(ids)):
        raise FileError(f"array '{offsets_name}' does not rise from 0 to {len(ids)}")
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= limit):
        raise FileError(f"array '{ids_name}' has numbers that are not in 0..{limit - 1}")


def check_array(
    name: str, array: NDArray[Any], dtypes: list[Any], shape: tuple[int | None, ...]
) -> None:
    """Refuse an array of another type or shape, or with numbers that are not finite."""
    fits = array.ndim == len(shape) and all(
        wanted in (None, size) for size, wanted in zip(array.shape, shape, strict=True)
    )
    if array.dtype not in dtypes or not fits:
        raise FileError(
            f"array '{name}' must be {np.dtype(dtypes[0])} {list(shape)}, "
            f"got {array.dtype} {list(array.shape)}"
        )
    if array.dtype == np.float32 and not np.isfinite(array).all():
        raise FileError(f"array '{name}' has values that are not finite")

"""Files of packed graphs (``.bigraph``): the arrays and the header that they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError, InputError
from bignn.graph import SPLITS
from bignn.graph.names import class_names_of, names_from_arrays, names_to_arrays
from bignn.kernels.layer import DenseBits, PackedFeatures, SparseBits
from bignn.runtime import tensors

if TYPE_CHECKING:
    from bignn.runtime.packed_graph import PackedGraph

VERSION = 2

#: ``"gcn"``: every node once among its neighbours; ``"plain"``: edges as they were given.
Adjacency = Literal["gcn", "plain"]
#: What of a graph's labels travels with it.
LABELS = ("y", *SPLITS)
#: Arrays that a graph need not have, by the name of its attribute too.
OPTIONAL_ARRAYS = ("beta", "weights", "node_ids", "graph_offsets", "edge_types")
_NAMES = ("node_names", "node_names_offsets")
#: Those of them that files of version 1 do not know.
_NEW_ARRAYS = frozenset(["node_ids", "graph_offsets", "edge_types", *_NAMES])
_SPARSE = ("offsets", "inputs", "base")
#: The arrays that features may be stored as.
FEATURE_PARTS = ("words", "x", *_SPARSE)
#: The arrays that a file may hold.
_ARRAYS = frozenset(
    [
        *["offsets", "ids", "degree_scale", *OPTIONAL_ARRAYS],
        *[f"features.{part}" for part in FEATURE_PARTS],
        *[f"labels.{key}" for key in LABELS],
        *_NAMES,
    ]
)
_HEADER = frozenset(["format", "version", "num_features", "adjacency", "input", "class_names"])


def graph_parts(graph: PackedGraph) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and the header of a graph's file."""
    arrays: dict[str, NDArray[Any]] = {
        "offsets": graph.offsets,
        "ids": graph.ids,
        "degree_scale": graph.degree_scale,
    }
    arrays |= features_to_arrays("features", graph.features)
    for key in OPTIONAL_ARRAYS:
        if (values := getattr(graph, key)) is not None:
            arrays[key] = values
    for key, values in graph.labels.items():
        arrays[f"labels.{key}"] = values
    if graph.node_names is not None:
        arrays |= names_to_arrays("node_names", graph.node_names)
    header: dict[str, Any] = {
        "format": tensors.GRAPH_FORMAT,
        "version": VERSION,
        "num_features": graph.num_features,
        "adjacency": graph.adjacency,
        "input": graph.input_digest,
    }
    if graph.class_names is not None:
        header["class_names"] = list(graph.class_names)
    return arrays, header


def graph_attributes(
    arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any]
) -> dict[str, Any]:
    """Find a graph's attributes, but for its name, in the arrays and the header of a file."""
    version, known = header.get("version"), get_args(Adjacency)
    adjacency: Any = header.get("adjacency")
    if type(version) is not int or version not in (1, VERSION) or adjacency not in known:
        raise FileError(
            f"version {version!r} with adjacency {adjacency!r} is not known, expected version "
            f"{VERSION} with one of {list(known)}"
        )
    if version == 1 and "norm" in arrays:
        arrays = {("degree_scale" if key == "norm" else key): arrays[key] for key in arrays}
    known_arrays, known_keys = _ARRAYS, _HEADER
    if version == 1:
        known_arrays, known_keys = _ARRAYS - _NEW_ARRAYS, _HEADER - {"class_names"}
    if unknown := sorted({*(set(arrays) - known_arrays), *(set(header) - known_keys)}):
        raise FileError(f"it has an unknown part '{unknown[0][:40]}'; a newer bignn may read it")
    num_features, fingerprint = header.get("num_features"), header.get("input")
    if type(num_features) is not int or not 0 < num_features < 2**31:
        raise FileError("the number of features is missing or out of range")
    if not isinstance(fingerprint, str):
        raise FileError("the fingerprint of the input statistics is missing")
    needed = ("degree_scale", "offsets", "ids")
    for key in needed if "features.x" in arrays else (*needed, "beta"):
        if key not in arrays:
            raise FileError(f"array '{key}' is missing")
    return {
        "features": features_from_arrays("features", arrays),
        "num_features": num_features,
        **{key: arrays[key] for key in needed},
        **{key: arrays.get(key) for key in OPTIONAL_ARRAYS},
        "input_digest": fingerprint,
        "labels": {key: arrays[f"labels.{key}"] for key in LABELS if f"labels.{key}" in arrays},
        "adjacency": adjacency,
        **_names(arrays, header),
    }


def _names(arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any]) -> dict[str, Any]:
    """Find the names of nodes and classes in a file."""
    classes = header.get("class_names")
    try:
        return {
            "node_names": names_from_arrays("node_names", arrays),
            "class_names": None if classes is None else class_names_of(classes),
        }
    except InputError as error:
        raise FileError(str(error)) from None


def features_to_arrays(
    name: str, features: PackedFeatures | NDArray[np.float32]
) -> dict[str, NDArray[Any]]:
    """Name the arrays of features, as files hold them."""
    if isinstance(features, np.ndarray):
        return {f"{name}.x": features}
    if isinstance(features, DenseBits):
        return {f"{name}.words": features.words}
    assert isinstance(features, SparseBits)
    return {f"{name}.{part}": getattr(features, part) for part in _SPARSE}


def features_from_arrays(
    name: str, arrays: Mapping[str, NDArray[Any]]
) -> PackedFeatures | NDArray[np.float32]:
    """Find features among the arrays of a file."""
    if f"{name}.x" in arrays:
        return arrays[f"{name}.x"]
    if f"{name}.words" in arrays:
        return DenseBits(arrays[f"{name}.words"])
    parts = [f"{name}.{part}" for part in _SPARSE]
    for key in parts:
        if key not in arrays:
            raise FileError(f"array '{key}' is missing")
    return SparseBits(*(arrays[key] for key in parts))

"""A graph as a packed model reads it: features as bits, neighbours in compressed rows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bignn.bits import words_per_row
from bignn.errors import FileError, wrong
from bignn.graph import SPLITS, Graph
from bignn.kernels.layers import DenseBits, Edges, Features, SparseBits
from bignn.runtime import tensors
from bignn.runtime.features import digest, read_features

if TYPE_CHECKING:
    from bignn.runtime.packed_model import PackedModel

Floats = NDArray[np.float32]

FORMAT = "bignn-graph"
VERSION = 1


@dataclass(frozen=True, eq=False)
class PackedGraph:
    """Packed features and a graph's neighbours, made by :func:`pack_graph`.

    Attributes:
        features: bits (:class:`DenseBits` or :class:`SparseBits`), or floats [N, d] for models that
            do not binarize their input.
        num_features: d.
        beta: scale of each row of bits, float32 [N]; None with float features.
        offsets, ids, weights: the neighbours of each node, itself among them: those of i are
            ``ids[offsets[i]:offsets[i + 1]]``; weights are None where all are 1.
        norm: ``1 / sqrt(degree)``, float32 [N].
        input_digest: fingerprint of the input statistics the features were packed with.
        labels: ``y`` and the splits, where the graph had them.
        name: where it came from, for messages.

    """

    features: Features | Floats
    num_features: int
    beta: Floats | None
    offsets: NDArray[np.int64]
    ids: NDArray[Any]
    weights: Floats | None
    norm: Floats
    input_digest: str
    labels: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    name: str = "graph"

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.norm)

    @property
    def num_entries(self) -> int:
        """Number of neighbours in all, every node itself included."""
        return len(self.ids)

    @property
    def feature_bytes(self) -> int:
        """Bytes that the features take, β included."""
        if isinstance(self.features, DenseBits):
            size = self.features.words.nbytes
        elif isinstance(self.features, SparseBits):
            size = sum(
                array.nbytes
                for array in (self.features.offsets, self.features.inputs, self.features.base)
            )
        else:
            size = self.features.nbytes
        return size + (0 if self.beta is None else self.beta.nbytes)

    def edges(self) -> Edges:
        """The neighbours of all nodes."""
        return Edges(self.offsets, self.ids, self.weights, self.norm, self.num_nodes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the graph; :func:`bignn.open` reads it, mapped into memory."""
        arrays: dict[str, NDArray[Any]] = {
            "offsets": self.offsets,
            "ids": self.ids,
            "norm": self.norm,
        }
        if isinstance(self.features, DenseBits):
            arrays["features.words"] = self.features.words
        elif isinstance(self.features, SparseBits):
            arrays["features.offsets"] = self.features.offsets
            arrays["features.inputs"] = self.features.inputs
            arrays["features.base"] = self.features.base
        else:
            arrays["features.x"] = self.features
        for key in ("beta", "weights"):
            if (values := getattr(self, key)) is not None:
                arrays[key] = values
        for key, values in self.labels.items():
            arrays[f"labels.{key}"] = values
        header = {
            "format": FORMAT,
            "version": VERSION,
            "num_features": self.num_features,
            "adjacency": "gcn",
            "input": self.input_digest,
        }
        tensors.write(path, arrays, header)

    def __repr__(self) -> str:
        form = type(self.features).__name__ if not isinstance(self.features, np.ndarray) else "x"
        return (
            f"PackedGraph({self.name!r}, nodes={self.num_nodes}, entries={self.num_entries}, "
            f"features={self.num_features} ({form}, {self.feature_bytes:,} bytes))"
        )


def pack_graph(graph: Graph, *, like: PackedModel) -> PackedGraph:
    """Packs a graph for a model, with the model's input statistics.

    Args:
        graph: the graph; its features must be as many as the model's.
        like: the model that will read it (or any with the same statistics).

    """
    if not isinstance(graph, Graph):
        raise wrong("graph", "a bignn.Graph", type(graph).__name__, "see bignn.from_pyg")
    stage = getattr(getattr(like, "network", None), "input", None)
    if stage is None:
        raise wrong("like", "a packed model", type(like).__name__, "make one with bignn.pack")
    if graph.num_features != stage.num_features:
        raise wrong("graph", f"one with {stage.num_features} features per node", graph.num_features)
    features, beta = read_features(stage, graph)
    offsets, ids, weights, norm = _gcn_neighbours(graph)
    labels = {key: values for key in ("y", *SPLITS) if (values := getattr(graph, key)) is not None}
    return PackedGraph(
        features, graph.num_features, beta, offsets, ids, weights, norm, digest(stage), labels,
        graph.name,
    )  # fmt: skip


def _gcn_neighbours(
    graph: Graph,
) -> tuple[NDArray[np.int64], NDArray[Any], Floats | None, Floats]:
    """A + I in compressed rows of targets, and D^-1/2 of it, as ``bignn.nn.GCNConv`` has them: a
    node that has self-loops keeps them (as the last one's weight) instead of getting another.
    """
    num_nodes = graph.num_nodes
    source, target = graph.edge_index
    is_loop = source == target
    loops = np.arange(num_nodes, dtype=np.int64)
    own = np.ones(num_nodes, dtype=np.float32)
    given = graph.edge_weight
    if given is not None:
        own[target[is_loop]] = given[is_loop]
    target = np.concatenate([target[~is_loop], loops])
    source = np.concatenate([source[~is_loop], loops])
    weights: Floats | None = None
    if given is not None:
        weights = np.concatenate([given[~is_loop], own])
        if (weights == 1).all():
            weights = None
    order = np.lexsort((source, target))
    offsets = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(target, minlength=num_nodes), out=offsets[1:])
    degree: NDArray[Any]
    if weights is None:
        degree = np.diff(offsets).astype(np.float64)
    else:
        degree = np.bincount(target, weights.astype(np.float64), minlength=num_nodes)
        weights = weights[order]
    with np.errstate(divide="ignore"):
        norm = np.where(degree > 0, 1 / np.sqrt(degree), 0).astype(np.float32)
    small = num_nodes < 2**31
    return offsets, source[order].astype(np.int32 if small else np.int64), weights, norm


def from_file(
    arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any], name: str
) -> PackedGraph:
    """A graph from the arrays of a file, every one of them checked."""
    if header.get("version") != VERSION or header.get("adjacency") != "gcn":
        raise FileError(
            f"version {header.get('version')!r} with adjacency {header.get('adjacency')!r} is not "
            f"known, expected {VERSION} with 'gcn'"
        )
    num_features, fingerprint = header.get("num_features"), header.get("input")
    if not isinstance(num_features, int) or not 0 < num_features < 2**31:
        raise FileError("the number of features is missing or out of range")
    if not isinstance(fingerprint, str):
        raise FileError("the fingerprint of the input statistics is missing")
    norm = _checked(arrays, "norm", [np.float32], (None,))
    num_nodes = len(norm)
    offsets, ids = _compressed(arrays, "offsets", "ids", [np.int32, np.int64], num_nodes, num_nodes)
    weights = None
    if "weights" in arrays:
        weights = _checked(arrays, "weights", [np.float32], ids.shape)
    features: Features | Floats
    beta: Floats | None = None
    if "features.x" in arrays:
        features = _checked(arrays, "features.x", [np.float32], (num_nodes, num_features))
    else:
        beta = _checked(arrays, "beta", [np.float32], (num_nodes,))
        features = _bits(arrays, num_nodes, num_features)
    for key, values in (("beta", beta), ("weights", weights), ("norm", norm)):
        if values is not None and (values < 0).any():
            raise FileError(f"array '{key}' has negative values")
    labels = {
        key: _checked(arrays, f"labels.{key}", [np.int64], (None,))
        for key in ("y", *SPLITS)
        if f"labels.{key}" in arrays
    }
    _check_labels(labels, num_nodes)
    return PackedGraph(
        features, num_features, beta, offsets, ids, weights, norm, fingerprint, labels, name
    )


def _bits(arrays: Mapping[str, NDArray[Any]], num_nodes: int, num_features: int) -> Features:
    width = words_per_row(num_features)
    spare = np.uint64(-num_features % 64)

    def padded(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
        if spare and words.size and (words[..., -1] >> (np.uint64(64) - spare)).any():
            raise FileError("padding bits of the features are not 0")
        return words

    if "features.words" in arrays:
        words = _checked(arrays, "features.words", [np.uint64], (num_nodes, width))
        return DenseBits(padded(words))
    offsets, inputs = _compressed(
        arrays, "features.offsets", "features.inputs", [np.int32], num_nodes, num_features
    )
    base = _checked(arrays, "features.base", [np.uint64], (width,))
    return SparseBits(offsets, inputs, padded(base))


def _compressed(
    arrays: Mapping[str, NDArray[Any]],
    offsets_name: str,
    ids_name: str,
    dtypes: list[Any],
    num_rows: int,
    limit: int,
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Offsets that rise from 0 to the number of ids, and ids below ``limit``."""
    offsets = _checked(arrays, offsets_name, [np.int64], (num_rows + 1,))
    ids = _checked(arrays, ids_name, dtypes, (None,))
    if offsets[0] != 0 or offsets[-1] != len(ids) or (offsets[1:] < offsets[:-1]).any():
        raise FileError(f"array '{offsets_name}' does not rise from 0 to {len(ids)}")
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= limit):
        raise FileError(f"array '{ids_name}' has numbers that are not in 0..{limit - 1}")
    return offsets, ids


def _checked(
    arrays: Mapping[str, NDArray[Any]], name: str, dtypes: list[Any], shape: tuple[int | None, ...]
) -> NDArray[Any]:
    if name not in arrays:
        raise FileError(f"array '{name}' is missing")
    array = arrays[name]
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
    return array


def _check_labels(labels: Mapping[str, NDArray[np.int64]], num_nodes: int) -> None:
    for key, values in labels.items():
        if key == "y":
            if len(values) != num_nodes:
                raise FileError(f"array 'labels.y' has {len(values)} values for {num_nodes} nodes")
        elif values.size and not 0 <= int(values.min()) <= int(values.max()) < num_nodes:
            raise FileError(f"array 'labels.{key}' has numbers that are not nodes")

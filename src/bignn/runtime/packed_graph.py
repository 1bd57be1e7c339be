"""A graph as a packed model reads it: features as bits, neighbours in compressed rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bignn.bits import words_per_row
from bignn.errors import FileError, input_error
from bignn.graph import SPLITS, GraphLike, as_graph
from bignn.kernels.operands import DenseBits, Edges, Features, SparseBits
from bignn.runtime import tensors
from bignn.runtime.features import digest, read_features

if TYPE_CHECKING:
    from bignn.runtime.packed_model import PackedModel

Floats = NDArray[np.float32]

VERSION = 1

#: ``"gcn"``: every node once among its neighbours; ``"plain"``: edges as they were given.
Adjacency = Literal["gcn", "plain"]
_AS_GIVEN = ("mean", "sum")


@dataclass(frozen=True, eq=False)
class PackedGraph:
    """Packed features and a graph's neighbours, made by :func:`pack_graph`.

    Attributes:
        features: bits (:class:`DenseBits` or :class:`SparseBits`), or floats [N, d] for models that
            do not binarize their input.
        num_features: d.
        beta: scale of each row of bits, float32 [N]; None with float features.
        offsets, ids, weights: the neighbours of each node: those of i are
            ``ids[offsets[i]:offsets[i + 1]]``; weights are None where all are 1.
        norm: ``1 / sqrt(degree)`` of A + I, float32 [N].
        input_digest: fingerprint of the input statistics the features were packed with.
        labels: ``y`` and the splits, where the graph had them.
        name: where it came from, for messages.
        adjacency: whether every node is among its neighbours, once (``"gcn"``), or the edges are as
            they were given (``"plain"``), which layers that tell a node from its neighbours need.

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
    adjacency: Adjacency = "gcn"
    _edges: dict[str, Edges] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        # Native code takes the arrays at their word, so nobody gets past this, file or caller.
        _check(self)

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.norm)

    @property
    def num_entries(self) -> int:
        """Number of neighbours in all."""
        return len(self.ids)

    @property
    def edge_bytes(self) -> int:
        """Of the neighbours and what they are weighed with."""
        arrays = (self.offsets, self.ids, self.weights, self.norm)
        return sum(array.nbytes for array in arrays if array is not None)

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

    def edges(self, norm: str = "gcn") -> Edges:
        """The neighbours of all nodes, as a norm of ``aggregate`` (or ``"attention"``) weighs them.

        Edge weights count in ``"gcn"`` alone, as in PyG's layers.
        """
        if norm not in self._edges:
            self._edges[norm] = self._made_edges(norm)
        return self._edges[norm]

    def _made_edges(self, norm: str) -> Edges:
        offsets, ids, weights = self.offsets, self.ids, self.weights
        if norm not in _AS_GIVEN and self.adjacency == "plain":
            rows = np.repeat(np.arange(self.num_nodes), np.diff(offsets))
            offsets, ids, weights, _ = gcn_neighbours(ids, rows, weights, self.num_nodes)
        if norm == "gcn":
            return Edges(offsets, ids, weights, self.norm, self.num_nodes, None, self.norm)
        count = np.maximum(np.diff(offsets), 1).astype(np.float32)
        return Edges(offsets, ids, None, np.float32(1) / count, self.num_nodes)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, verify: bool = False) -> PackedGraph:
        """Opens the file of a packed graph: mapped into memory, read from disk when used.

        With ``verify`` all of it is read once, and refused if its digest is not that of its
        content.
        """
        known = {tensors.GRAPH_FORMAT: graph_reader(path)}
        return tensors.open_as(path, known, verify=verify)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the graph; :meth:`open` reads it."""
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
            "format": tensors.GRAPH_FORMAT,
            "version": VERSION,
            "num_features": self.num_features,
            "adjacency": self.adjacency,
            "input": self.input_digest,
        }
        tensors.write(path, arrays, header)

    def __repr__(self) -> str:
        form = type(self.features).__name__ if not isinstance(self.features, np.ndarray) else "x"
        return (
            f"PackedGraph({self.name!r}, nodes={self.num_nodes}, entries={self.num_entries}, "
            f"features={self.num_features} ({form}, {self.feature_bytes:,} bytes))"
        )


def pack_graph(graph: GraphLike, *, like: PackedModel) -> PackedGraph:
    """Packs a graph for a model, with the model's input statistics.

    Args:
        graph: a :class:`bignn.Graph` or a PyG ``Data``; its features must be as many as the
            model's.
        like: the model that will read it (or any with the same statistics).

    """
    graph = as_graph(graph)
    network = getattr(like, "network", None)
    stage = getattr(network, "input", None)
    if network is None or stage is None:
        raise input_error("like", "a packed model", type(like).__name__, "make one with bignn.pack")
    if graph.num_features != stage.num_features:
        raise input_error(
            "graph", f"one with {stage.num_features} features per node", graph.num_features
        )
    features, beta = read_features(stage, graph)
    source, target = graph.edge_index
    adjacency: Adjacency = "gcn" if network.norms.isdisjoint(_AS_GIVEN) else "plain"
    offsets, ids, weights, norm = gcn_neighbours(source, target, graph.edge_weight, graph.num_nodes)
    if adjacency == "plain":
        offsets, ids, weights = compressed_rows(source, target, graph.edge_weight, graph.num_nodes)
    labels = {key: values for key in ("y", *SPLITS) if (values := getattr(graph, key)) is not None}
    return PackedGraph(
        features, graph.num_features, beta, offsets, ids, weights, norm, digest(stage), labels,
        graph.name, adjacency,
    )  # fmt: skip


def gcn_neighbours(
    source: NDArray[Any], target: NDArray[Any], given: Floats | None, num_nodes: int
) -> tuple[NDArray[np.int64], NDArray[Any], Floats | None, Floats]:
    """A + I in compressed rows of targets, and D^-1/2 of it, as ``bignn.nn.GCNConv`` has them: a
    node that has self-loops keeps them (as the last one's weight) instead of getting another.
    """
    is_loop = source == target
    loops = np.arange(num_nodes, dtype=np.int64)
    own = np.ones(num_nodes, dtype=np.float32)
    if given is not None:
        own[target[is_loop]] = given[is_loop]
    target = np.concatenate([target[~is_loop], loops])
    source = np.concatenate([source[~is_loop], loops])
    weights = None if given is None else np.concatenate([given[~is_loop], own])
    offsets, ids, ordered = compressed_rows(source, target, weights, num_nodes)
    degree: NDArray[Any] = np.diff(offsets).astype(np.float64)
    if ordered is not None:
        assert weights is not None
        degree = np.bincount(target, weights.astype(np.float64), minlength=num_nodes)
    with np.errstate(divide="ignore"):
        norm = np.where(degree > 0, 1 / np.sqrt(degree), 0).astype(np.float32)
    return offsets, ids, ordered, norm


def compressed_rows(
    source: NDArray[Any], target: NDArray[Any], weights: Floats | None, num_nodes: int
) -> tuple[NDArray[np.int64], NDArray[Any], Floats | None]:
    """Edges in compressed rows of targets; no weights where all are 1."""
    order = np.lexsort((source, target))
    offsets = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(target, minlength=num_nodes), out=offsets[1:])
    if weights is not None:
        weights = None if (weights == 1).all() else weights[order]
    ids = source[order].astype(np.int32 if num_nodes < 2**31 else np.int64)
    return offsets, ids, weights


def from_file(
    arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any], name: str
) -> PackedGraph:
    """A graph from the arrays of a file, every one of them checked."""
    version, known = header.get("version"), get_args(Adjacency)
    given: Any = header.get("adjacency")
    if type(version) is not int or version != VERSION or given not in known:
        raise FileError(
            f"version {version!r} with adjacency {given!r} is not known, expected {VERSION} with "
            f"one of {list(known)}"
        )
    adjacency: Adjacency = given
    num_features, fingerprint = header.get("num_features"), header.get("input")
    if type(num_features) is not int or not 0 < num_features < 2**31:
        raise FileError("the number of features is missing or out of range")
    if not isinstance(fingerprint, str):
        raise FileError("the fingerprint of the input statistics is missing")
    for key in ("norm", "offsets", "ids", *(["beta"] if "features.x" not in arrays else [])):
        if key not in arrays:
            raise FileError(f"array '{key}' is missing")
    labels = {key: arrays[f"labels.{key}"] for key in ("y", *SPLITS) if f"labels.{key}" in arrays}
    return PackedGraph(
        _features(arrays), num_features, arrays.get("beta"), arrays["offsets"], arrays["ids"],
        arrays.get("weights"), arrays["norm"], fingerprint, labels, name, adjacency,
    )  # fmt: skip


def graph_reader(
    path: str | os.PathLike[str],
) -> Callable[[Mapping[str, NDArray[Any]], Mapping[str, Any]], PackedGraph]:
    """:func:`from_file` for a graph that is named by its path."""
    return lambda arrays, header: from_file(arrays, header, os.fspath(path))


def _features(arrays: Mapping[str, NDArray[Any]]) -> Features | Floats:
    if "features.x" in arrays:
        return arrays["features.x"]
    if "features.words" in arrays:
        return DenseBits(arrays["features.words"])
    parts = [f"features.{part}" for part in ("offsets", "inputs", "base")]
    for key in parts:
        if key not in arrays:
            raise FileError(f"array '{key}' is missing")
    return SparseBits(*(arrays[key] for key in parts))


def _check(graph: PackedGraph) -> None:
    """Refuses arrays that do not fit each other."""
    if not 0 < graph.num_features < 2**31:
        raise FileError("the number of features is out of range")
    _check_array("norm", graph.norm, [np.float32], (None,))
    num_nodes = graph.num_nodes
    _check_compressed("offsets", graph.offsets, "ids", graph.ids, num_nodes, num_nodes)
    _check_array("ids", graph.ids, [np.int32, np.int64], (None,))
    if graph.weights is not None:
        _check_array("weights", graph.weights, [np.float32], graph.ids.shape)
    if isinstance(graph.features, np.ndarray):
        shape = (num_nodes, graph.num_features)
        _check_array("features.x", graph.features, [np.float32], shape)
    else:
        if graph.beta is None:
            raise FileError("array 'beta' is missing")
        _check_array("beta", graph.beta, [np.float32], (num_nodes,))
        _check_bits(graph.features, num_nodes, graph.num_features)
    for key in ("beta", "weights", "norm"):
        values = getattr(graph, key)
        if values is not None and (values < 0).any():
            raise FileError(f"array '{key}' has negative values")
    for key, values in graph.labels.items():
        _check_array(f"labels.{key}", values, [np.int64], (None,))
        if key == "y":
            if len(values) != num_nodes:
                raise FileError(f"array 'labels.y' has {len(values)} values for {num_nodes} nodes")
        elif values.size and not 0 <= int(values.min()) <= int(values.max()) < num_nodes:
            raise FileError(f"array 'labels.{key}' has numbers that are not nodes")


def _check_bits(features: Features, num_nodes: int, num_features: int) -> None:
    width = words_per_row(num_features)
    if isinstance(features, DenseBits):
        _check_array("features.words", features.words, [np.uint64], (num_nodes, width))
        words = features.words
    else:
        offsets, inputs = features.offsets, features.inputs
        _check_compressed(
            "features.offsets", offsets, "features.inputs", inputs, num_nodes, num_features
        )
        _check_array("features.inputs", inputs, [np.int32], (None,))
        _check_array("features.base", features.base, [np.uint64], (width,))
        # A bit flipped twice would count twice in one way and not at all in another.
        starts = np.zeros(len(inputs) + 1, dtype=np.bool_)
        starts[offsets] = True
        if (~starts[1:-1] & (inputs[1:] <= inputs[:-1])).any():
            raise FileError("array 'features.inputs' does not rise within each row")
        words = features.base
    spare = np.uint64(-num_features % 64)
    if spare and words.size and (words[..., -1] >> (np.uint64(64) - spare)).any():
        raise FileError("padding bits of the features are not 0")


def _check_compressed(
    offsets_name: str,
    offsets: NDArray[Any],
    ids_name: str,
    ids: NDArray[Any],
    num_rows: int,
    limit: int,
) -> None:
    """Offsets that rise from 0 to the number of ids, and ids below ``limit``."""
    _check_array(offsets_name, offsets, [np.int64], (num_rows + 1,))
    if offsets[0] != 0 or offsets[-1] != len(ids) or (offsets[1:] < offsets[:-1]).any():
        raise FileError(f"array '{offsets_name}' does not rise from 0 to {len(ids)}")
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= limit):
        raise FileError(f"array '{ids_name}' has numbers that are not in 0..{limit - 1}")


def _check_array(
    name: str, array: NDArray[Any], dtypes: list[Any], shape: tuple[int | None, ...]
) -> None:
    fits = array.ndim == len(shape) and all(
        wanted in (None, size) for size, wanted in zip(array.shape, shape, strict=True)
    )
    if array.dtype not in dtypes or not fits or not array.flags.c_contiguous:
        raise FileError(
            f"array '{name}' must be {np.dtype(dtypes[0])} {list(shape)}, contiguous, "
            f"got {array.dtype} {list(array.shape)}"
        )
    if array.dtype == np.float32 and not np.isfinite(array).all():
        raise FileError(f"array '{name}' has values that are not finite")

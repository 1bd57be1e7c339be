"""The packed graph: features as bits, edges in compressed rows; packs, saves and opens itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from bignn.bits import words_per_row
from bignn.errors import FileError, InputError, input_error
from bignn.graph import SPLITS, Graphs, join
from bignn.kernels.compressed_rows import compress_edges, entries_of, offsets_fit
from bignn.kernels.edge_kinds import EDGE_KINDS, WITH_SELF_LOOPS, weigh_edges
from bignn.kernels.gcn_degrees import gcn_degree_scale, with_self_loops
from bignn.kernels.layer import DenseBits, Edges, PackedFeatures, SparseBits
from bignn.runtime import tensors
from bignn.runtime.features import read_features
from bignn.runtime.node_order import Order, check_order, in_locality_order

if TYPE_CHECKING:
    from bignn.runtime.packed_model import PackedModel

Floats = NDArray[np.float32]

VERSION = 2

#: ``"gcn"``: every node once among its neighbours; ``"plain"``: edges as they were given.
Adjacency = Literal["gcn", "plain"]
_LABELS = ("y", *SPLITS)
#: The arrays that a file may hold.
_ARRAYS = frozenset(
    [
        *["offsets", "ids", "weights", "degree_scale", "beta", "node_ids", "graph_offsets"],
        *["features.words", "features.x"],
        *["features.offsets", "features.inputs", "features.base"],
        *[f"labels.{key}" for key in _LABELS],
    ]
)
_HEADER = frozenset(["format", "version", "num_features", "adjacency", "input"])


class Members(NamedTuple):
    """The nodes of some graphs: those of graph g are ``rows[offsets[g]:offsets[g + 1]]``."""

    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PackedGraph:
    """Packed features and a graph's neighbours, made by :func:`pack_graph`.

    Rows are the nodes as they were given, or in another order (``node_ids``). Predictions, their
    ``nodes`` and the labels are by the nodes' given numbers whatever the order is.

    Attributes:
        features: bits (:class:`DenseBits` or :class:`SparseBits`), or floats [N, d] for models that
            do not binarize their input.
        num_features: d, the columns of ``features``; where the model encodes its input, its bits.
        beta: scale of each row of bits, float32 [N]; None with float features.
        offsets, ids, weights: row i has the neighbours ``ids[offsets[i]:offsets[i + 1]]``;
            weights are None where all are 1.
        degree_scale: ``1 / sqrt(degree)`` of A + I, float32 [N].
        input_digest: fingerprint of the input stage that the features were packed with.
        labels: ``y`` and the splits, where the graph had them.
        name: where the graph came from, for messages.
        adjacency: ``"gcn"`` if every node is among its neighbours, once; ``"plain"`` if the edges
            are as they were given, which layers that tell a node from its neighbours need.
        node_ids: the given number of the node in each row, int32 or int64 [N]; None where row i is
            node i.
        graph_offsets: of many graphs packed as one, graph g has the nodes (by their given numbers)
            from ``graph_offsets[g]`` up to ``graph_offsets[g + 1]``; None for one graph.

    All arrays are read-only, since native code relies on their having been checked; of arrays that
    could be written to through another name, the graph has copies.

    """

    features: PackedFeatures | Floats
    num_features: int
    beta: Floats | None
    offsets: NDArray[np.int64]
    ids: NDArray[Any]
    weights: Floats | None
    degree_scale: Floats
    input_digest: str
    labels: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    name: str = "graph"
    adjacency: Adjacency = "gcn"
    node_ids: NDArray[Any] | None = None
    graph_offsets: NDArray[np.int64] | None = None
    _edges: dict[str, Edges] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        # Native code relies on the arrays, so they are checked and cannot be written to after.
        arrays = ("beta", "offsets", "ids", "weights", "degree_scale", "node_ids", "graph_offsets")
        for name in arrays:
            object.__setattr__(self, name, _read_only(getattr(self, name)))
        object.__setattr__(self, "features", _read_only_features(self.features))
        labels = {key: _read_only(values) for key, values in self.labels.items()}
        object.__setattr__(self, "labels", labels)
        _check(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedGraph, tuple(getattr(self, field.name) for field in fields(self) if field.init)

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.degree_scale)

    @property
    def num_graphs(self) -> int:
        """Number of graphs that were packed as one."""
        return 1 if self.graph_offsets is None else len(self.graph_offsets) - 1

    def members(self, graphs: NDArray[np.int64] | None = None) -> Members:
        """Return the rows of the nodes of some graphs, or of all."""
        offsets = self.graph_offsets
        if offsets is None:
            offsets = np.array([0, self.num_nodes])
        if graphs is None:
            nodes = np.arange(self.num_nodes)
        else:
            offsets, nodes = entries_of(offsets, graphs)
        return Members(nodes if self.places is None else self.places[nodes], offsets)

    @cached_property
    def places(self) -> NDArray[np.int64] | None:
        """The row of each node, int64 [N]; None where row i is node i."""
        if self.node_ids is None:
            return None
        places = np.empty(self.num_nodes, dtype=np.int64)
        places[self.node_ids] = np.arange(self.num_nodes)
        _freeze(places)
        return places

    @property
    def bits(self) -> tuple[PackedFeatures, Floats]:
        """The features as bits, and their scales β; an error where features are floats."""
        if isinstance(self.features, np.ndarray) or self.beta is None:
            raise InputError("the graph was packed for a model that reads floats; it has no bits")
        return self.features, self.beta

    @property
    def num_entries(self) -> int:
        """Number of entries of all neighbour lists."""
        return len(self.ids)

    @property
    def edge_bytes(self) -> int:
        """Bytes of the neighbour lists and edge weights."""
        arrays = (self.offsets, self.ids, self.weights, self.degree_scale)
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def feature_bytes(self) -> int:
        """Bytes of the features, β included."""
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

    def edges(self, aggr: str = "gcn") -> Edges:
        """Return edges of all nodes, weighed as an aggregation (or ``"attention"``) asks for.

        Edge weights count in ``"gcn"`` and its kin and where the name says so, as in PyG's layers.
        """
        if aggr not in self._edges:
            self._edges[aggr] = self._made_edges(aggr)
        return self._edges[aggr]

    def _made_edges(self, aggr: str) -> Edges:
        kind = EDGE_KINDS[aggr]
        has_loops = kind.loops == ("added" if self.adjacency == "gcn" else "given")
        if has_loops and (aggr == "gcn" or kind.factor in ("none", "mean")):
            offsets, ids = self.offsets, self.ids
            weights = self.weights if kind.is_weighted else None
            scale, factor = None, np.ones(self.num_nodes, dtype=np.float32)
            if kind.factor == "mean":
                factor /= np.maximum(np.diff(offsets), 1).astype(np.float32)
        else:
            target = np.repeat(np.arange(self.num_nodes), np.diff(self.offsets))
            weighed = weigh_edges(aggr, self.ids, target, self.weights, self.num_nodes)
            offsets, ids, weights = compress_edges(*weighed[:3], self.num_nodes)
            scale, factor = weighed.source_factor, weighed.target_factor
            _freeze(offsets, ids, weights)
        if aggr == "gcn":
            scale = factor = self.degree_scale
        _freeze(scale, factor)
        return Edges(offsets, ids, weights, factor, self.num_nodes, None, scale)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, verify: bool = False) -> PackedGraph:
        """Open a packed graph's file: mapped into memory, read from disk when used.

        The header and small arrays are always compared with their digest. With ``verify`` all of
        the file is read once and compared with its digest too.
        """
        known = {tensors.GRAPH_FORMAT: graph_reader(path)}
        return tensors.open_as(path, known, verify=verify)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph to a ``.bigraph`` file; :meth:`open` reads it."""
        tensors.check_suffix(path, tensors.GRAPH_SUFFIX)
        arrays: dict[str, NDArray[Any]] = {
            "offsets": self.offsets,
            "ids": self.ids,
            "degree_scale": self.degree_scale,
        }
        if isinstance(self.features, DenseBits):
            arrays["features.words"] = self.features.words
        elif isinstance(self.features, SparseBits):
            arrays["features.offsets"] = self.features.offsets
            arrays["features.inputs"] = self.features.inputs
            arrays["features.base"] = self.features.base
        else:
            arrays["features.x"] = self.features
        for key in ("beta", "weights", "node_ids", "graph_offsets"):
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
            f"features={self.num_features} ({form}, {self.feature_bytes:,} bytes)"
            f"{'' if self.node_ids is None else ', in an order of its own'})"
        )


def pack_graph(graph: Graphs, *, like: PackedModel, order: Order | None = None) -> PackedGraph:
    """Pack a graph, or many as one, for a model, with the model's input statistics.

    Labels are not needed; classes of nodes come along, all others are left out.

    Args:
        graph: a :class:`bignn.Graph` or a PyG ``Data`` with as many features as the model reads; or
            many graphs: a list of them, or a PyG ``Batch``.
        like: the model that will read it, or any with the same statistics.
        order: ``"locality"`` packs nodes so that neighbours are near each other in memory, which
            makes predictions of large graphs with communities faster (docs/design.md); None packs
            them as given. Predictions are by the given numbers, and the same, either way.

    """
    check_order(order)
    graph, graph_offsets = join(graph)
    network = getattr(like, "network", None)
    stage = getattr(network, "input", None)
    if network is None or stage is None:
        raise input_error("like", "a packed model", type(like).__name__, "make one with bignn.pack")
    if graph.num_features != stage.num_features:
        expected = f"one with {stage.num_features} features per node"
        raise input_error("graph", expected, graph.num_features)
    features, beta = read_features(stage, graph)
    source, target = graph.edge_index
    edges = source, target, graph.edge_weight
    scale = gcn_degree_scale(*edges, graph.num_nodes)
    adjacency: Adjacency = "gcn" if network.aggregations <= {*WITH_SELF_LOOPS} else "plain"
    if adjacency == "gcn":
        edges = with_self_loops(*edges, graph.num_nodes)
    offsets, ids, weights = compress_edges(*edges, graph.num_nodes)
    _freeze(beta, offsets, ids, weights, scale, graph_offsets)
    if isinstance(features, DenseBits):
        _freeze(features.words)
    elif isinstance(features, SparseBits):
        _freeze(features.offsets, features.inputs, features.base)
    labels = {key: values for key in _LABELS if (values := getattr(graph, key)) is not None}
    packed = PackedGraph(
        features, stage.num_columns, beta, offsets, ids, weights, scale, stage.digest(), labels,
        graph.name, adjacency, None, graph_offsets,
    )  # fmt: skip
    return packed if order is None else in_locality_order(packed)


def from_file(
    arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any], name: str
) -> PackedGraph:
    """Make a graph from the arrays of a file, every one of them checked."""
    version, known = header.get("version"), get_args(Adjacency)
    given: Any = header.get("adjacency")
    if type(version) is not int or version not in (1, VERSION) or given not in known:
        raise FileError(
            f"version {version!r} with adjacency {given!r} is not known, expected version "
            f"{VERSION} with one of {list(known)}"
        )
    adjacency: Adjacency = given
    if version == 1 and "norm" in arrays:
        arrays = {("degree_scale" if key == "norm" else key): arrays[key] for key in arrays}
    arrays_known = _ARRAYS if version > 1 else _ARRAYS - {"node_ids", "graph_offsets"}
    if unknown := sorted({*(set(arrays) - arrays_known), *(set(header) - _HEADER)}):
        raise FileError(f"it has an unknown part '{unknown[0][:40]}'; a newer bignn may read it")
    num_features, fingerprint = header.get("num_features"), header.get("input")
    if type(num_features) is not int or not 0 < num_features < 2**31:
        raise FileError("the number of features is missing or out of range")
    if not isinstance(fingerprint, str):
        raise FileError("the fingerprint of the input statistics is missing")
    for key in (
        "degree_scale",
        "offsets",
        "ids",
        *(["beta"] if "features.x" not in arrays else []),
    ):
        if key not in arrays:
            raise FileError(f"array '{key}' is missing")
    labels = {key: arrays[f"labels.{key}"] for key in _LABELS if f"labels.{key}" in arrays}
    return PackedGraph(
        _features(arrays), num_features, arrays.get("beta"), arrays["offsets"], arrays["ids"],
        arrays.get("weights"), arrays["degree_scale"], fingerprint, labels, name, adjacency,
        arrays.get("node_ids"), arrays.get("graph_offsets"),
    )  # fmt: skip


def graph_reader(
    path: str | os.PathLike[str],
) -> Callable[[Mapping[str, NDArray[Any]], Mapping[str, Any]], PackedGraph]:
    """Make a reader of arrays and headers (:func:`from_file`) that names the graph by its path."""
    return lambda arrays, header: from_file(arrays, header, os.fspath(path))


def _features(arrays: Mapping[str, NDArray[Any]]) -> PackedFeatures | Floats:
    if "features.x" in arrays:
        return arrays["features.x"]
    if "features.words" in arrays:
        return DenseBits(arrays["features.words"])
    parts = [f"features.{part}" for part in ("offsets", "inputs", "base")]
    for key in parts:
        if key not in arrays:
            raise FileError(f"array '{key}' is missing")
    return SparseBits(*(arrays[key] for key in parts))


def _read_only(array: Any) -> Any:
    """View a contiguous array that nobody can write to: itself if it is one, else a copy."""
    if array is None:
        return None
    array = np.asarray(array, order="C")
    if any(part.flags.writeable for part in _owners(array)):
        array = array.copy()
        array.flags.writeable = False
    return array.view()


def _freeze(*arrays: NDArray[Any] | None) -> None:
    """Make arrays of our own read-only, so that they need no copy to be."""
    for array in arrays:
        for part in _owners(array):
            part.flags.writeable = False


def _owners(array: Any) -> Iterator[NDArray[Any]]:
    """Go through an array and those that it is a view of."""
    while isinstance(array, np.ndarray):
        yield array
        array = array.base


def _read_only_features(features: PackedFeatures | Floats) -> PackedFeatures | Floats:
    if isinstance(features, DenseBits):
        return DenseBits(_read_only(features.words))
    if isinstance(features, SparseBits):
        parts = (features.offsets, features.inputs, features.base)
        return SparseBits(*map(_read_only, parts))
    view: Floats = _read_only(features)
    return view


def _check(graph: PackedGraph) -> None:
    """Refuse arrays that do not fit each other."""
    if not 0 < graph.num_features < 2**31:
        raise FileError("the number of features is out of range")
    _check_array("degree_scale", graph.degree_scale, [np.float32], (None,))
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
    for key in ("beta", "weights", "degree_scale"):
        values = getattr(graph, key)
        if values is not None and (values < 0).any():
            raise FileError(f"array '{key}' has negative values")
    if graph.node_ids is not None:
        _check_array("node_ids", graph.node_ids, [np.int32, np.int64], (num_nodes,))
        _check_node_ids(graph.node_ids)
    if graph.graph_offsets is not None:
        _check_array("graph_offsets", graph.graph_offsets, [np.int64], (None,))
        offsets = graph.graph_offsets
        if not offsets_fit(offsets, num_nodes) or (np.diff(offsets) == 0).any():
            raise FileError(f"array 'graph_offsets' does not rise from 0 to {num_nodes}")
    for key, values in graph.labels.items():
        _check_array(f"labels.{key}", values, [np.int64], (None,))
        if key == "y":
            if len(values) != num_nodes:
                raise FileError(f"array 'labels.y' has {len(values)} values for {num_nodes} nodes")
        elif values.size and not 0 <= int(values.min()) <= int(values.max()) < num_nodes:
            raise FileError(f"array 'labels.{key}' has numbers that are not nodes")


def _check_node_ids(node_ids: NDArray[Any]) -> None:
    num_nodes = len(node_ids)
    if num_nodes and not 0 <= int(node_ids.min()) <= int(node_ids.max()) < num_nodes:
        raise FileError("array 'node_ids' has numbers that are not nodes")
    is_there = np.zeros(num_nodes, dtype=np.bool_)
    is_there[node_ids] = True
    if not is_there.all():
        raise FileError("array 'node_ids' does not have every node once")


def _check_bits(features: PackedFeatures, num_nodes: int, num_features: int) -> None:
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
    """Refuse offsets that do not rise from 0 to the number of ids, and ids from ``limit`` on."""
    _check_array(offsets_name, offsets, [np.int64], (num_rows + 1,))
    if not offsets_fit(offsets, len(ids)):
        raise FileError(f"array '{offsets_name}' does not rise from 0 to {len(ids)}")
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= limit):
        raise FileError(f"array '{ids_name}' has numbers that are not in 0..{limit - 1}")


def _check_array(
    name: str, array: NDArray[Any], dtypes: list[Any], shape: tuple[int | None, ...]
) -> None:
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

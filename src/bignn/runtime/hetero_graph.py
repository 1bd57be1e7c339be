"""The packed graph of several types of nodes: features of each, neighbours of each relation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError
from bignn.graph.hetero import EdgeType, HeteroDataLike, read_hetero
from bignn.kernels.compressed_rows import order_of_entries
from bignn.kernels.edge_kinds import EDGE_KINDS, split_relation
from bignn.kernels.layer import Edges, PackedFeatures
from bignn.runtime import tensors
from bignn.runtime.features import read_features
from bignn.runtime.graph_checks import check_array, check_compressed, check_features
from bignn.runtime.graph_file import FEATURE_PARTS, features_from_arrays, features_to_arrays
from bignn.runtime.read_only import freeze, read_only, read_only_features

if TYPE_CHECKING:
    from bignn.runtime.network import Network

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

VERSION = 1
_HEADER = frozenset(["format", "version", "node_types", "relations"])


@dataclass(frozen=True, eq=False)
class PackedNodes:
    """The nodes of one type.

    Attributes:
        num_nodes: how many there are.
        num_features: features per node; 0 where the model reads none.
        features, beta: as of a :class:`PackedGraph`.
        input_digest: fingerprint of the input stage that the features were packed with.

    """

    num_nodes: int
    num_features: int = 0
    features: PackedFeatures | Floats | None = None
    beta: Floats | None = None
    input_digest: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", read_only(self.beta))
        if self.features is not None:
            object.__setattr__(self, "features", read_only_features(self.features))


@dataclass(frozen=True, eq=False)
class PackedHeteroGraph:
    """Nodes of each type with their features, and compressed rows of each relation.

    Made by :func:`bignn.pack_graph` for a heterogeneous model.

    Attributes:
        nodes: the nodes of each type.
        relations: types of sources and targets, and the name, of each relation.
        offsets, ids: of each relation, target i has the sources ``ids[offsets[i]:offsets[i + 1]]``.
        name: where the graph came from, for messages.

    All arrays are read-only.

    """

    nodes: Mapping[str, PackedNodes]
    relations: tuple[EdgeType, ...]
    offsets: tuple[Ints, ...]
    ids: tuple[NDArray[Any], ...]
    name: str = "graph"
    _edges: dict[str, Edges] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for key in ("offsets", "ids"):
            object.__setattr__(self, key, tuple(map(read_only, getattr(self, key))))
        _check(self)

    def edges(self, name: str) -> Edges:
        """Return the edges of a relation, weighed as an aggregation asks for: ``"mean/3"``."""
        if name not in self._edges:
            aggr, relation = split_relation(name)
            assert relation is not None
            offsets, ids = self.offsets[relation], self.ids[relation]
            factor = np.ones(len(offsets) - 1, dtype=np.float32)
            if EDGE_KINDS[aggr].factor == "mean":
                factor /= np.maximum(np.diff(offsets), 1).astype(np.float32)
            source, _, target = self.relations[relation]
            own_ids = None if source == target else np.zeros(len(factor), dtype=np.int32)
            freeze(factor, own_ids)
            num_sources = self.nodes[source].num_nodes
            self._edges[name] = Edges(offsets, ids, None, factor, num_sources, own_ids)
        return self._edges[name]

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, verify: bool = False) -> PackedHeteroGraph:
        """Open a packed graph's file; with ``verify`` all of it is compared with its digest."""
        return tensors.open_as(path, {tensors.HETERO_FORMAT: from_file}, verify=verify)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph to a ``.bigraph`` file; ``bignn.open`` reads it."""
        tensors.check_suffix(path, tensors.GRAPH_SUFFIX)
        arrays: dict[str, NDArray[Any]] = {}
        for number, nodes in enumerate(self.nodes.values()):
            if nodes.features is not None:
                arrays |= features_to_arrays(f"features.{number}", nodes.features)
            if nodes.beta is not None:
                arrays[f"beta.{number}"] = nodes.beta
        for number, (offsets, ids) in enumerate(zip(self.offsets, self.ids, strict=True)):
            arrays[f"offsets.{number}"], arrays[f"ids.{number}"] = offsets, ids
        header = {
            "format": tensors.HETERO_FORMAT,
            "version": VERSION,
            "node_types": [
                [kind, nodes.num_nodes, nodes.num_features, nodes.input_digest]
                for kind, nodes in self.nodes.items()
            ],
            "relations": [list(relation) for relation in self.relations],
        }
        tensors.write(path, arrays, header)

    def __repr__(self) -> str:
        nodes = ", ".join(f"{some.num_nodes} {kind}" for kind, some in self.nodes.items())
        return f"PackedHeteroGraph({self.name!r}, {nodes}, {len(self.relations)} relations)"


def pack_hetero_graph(data: HeteroDataLike, network: Network) -> PackedHeteroGraph:
    """Pack a PyG ``HeteroData`` for a model."""
    widths = network.num_features
    assert isinstance(widths, dict)
    arrays = read_hetero(data, widths, network.relations)
    nodes = {kind: PackedNodes(count) for kind, count in arrays.num_nodes.items()}
    for kind, (stage, _) in network.inputs.items():
        graph = arrays.features[kind]
        features, beta = read_features(stage, graph)
        nodes[kind] = PackedNodes(
            graph.num_nodes, stage.num_columns, features, beta, stage.digest()
        )
    rows = []
    for (source, _, target), (sources, targets) in zip(
        network.relations, arrays.edges, strict=True
    ):
        shape = arrays.num_nodes[target], arrays.num_nodes[source]
        offsets, order = order_of_entries(targets, sources, shape)
        rows.append((offsets, sources[order].astype(np.int32)))
    return PackedHeteroGraph(
        nodes,
        tuple(network.relations),
        tuple(offsets for offsets, _ in rows),
        tuple(ids for _, ids in rows),
        "data",
    )


def from_file(arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any]) -> PackedHeteroGraph:
    """Make a graph from the arrays and the header of a file, checked."""
    if header.get("version") != VERSION or type(header["version"]) is not int:
        raise FileError(f"version {header.get('version')!r} is not known, expected {VERSION}")
    if unknown := sorted(set(header) - _HEADER):
        raise FileError(f"it has an unknown part '{unknown[0][:40]}'; a newer bignn may read it")
    types = _checked_types(header.get("node_types"))
    relations = checked_relations(header.get("relations"))
    keys = [[f"{part}.{n}" for n in range(len(relations))] for part in ("offsets", "ids")]
    for key in (*keys[0], *keys[1]):
        if key not in arrays:
            raise FileError(f"array '{key}' is missing")
    with_features = [number for number, (_, _, width, _) in enumerate(types) if width]
    known = {f"features.{n}.{part}" for n in with_features for part in FEATURE_PARTS}
    known |= {f"beta.{n}" for n in with_features}
    if others := sorted(set(arrays) - {*known, *keys[0], *keys[1]}):
        raise FileError(f"it has an unknown part '{others[0][:40]}'; a newer bignn may read it")
    nodes = {}
    for number, (kind, count, width, digest) in enumerate(types):
        features = features_from_arrays(f"features.{number}", arrays) if width else None
        nodes[kind] = PackedNodes(count, width, features, arrays.get(f"beta.{number}"), digest)
    offsets, ids = (tuple(arrays[key] for key in some) for some in keys)
    return PackedHeteroGraph(nodes, tuple(relations), offsets, ids)


def _checked_types(given: Any) -> list[tuple[str, int, int, str]]:
    fits = isinstance(given, list) and all(
        isinstance(some, list)
        and [type(part) for part in some] == [str, int, int, str]
        and all(0 <= number < 2**31 for number in some[1:3])
        for some in given
    )
    if not fits or len({some[0] for some in given}) != len(given):
        raise FileError("'node_types' must list names, numbers of nodes and features, digests")
    return [tuple(some) for some in given]


def checked_relations(given: Any) -> list[EdgeType]:
    """Check a list of relations, as JSON has it."""
    fits = isinstance(given, list) and all(
        isinstance(some, list) and len(some) == 3 and all(isinstance(part, str) for part in some)
        for some in given
    )
    if not fits or len(set(map(tuple, given))) != len(given):
        raise FileError("'relations' must be a list of different triples of names")
    return [(source, name, target) for source, name, target in given]


def _check(graph: PackedHeteroGraph) -> None:
    """Refuse arrays that do not fit each other."""
    for number, nodes in enumerate(graph.nodes.values()):
        if nodes.features is not None:
            check_features(
                f".{number}", nodes.features, nodes.beta, nodes.num_nodes, nodes.num_features
            )
    for number, (source, _, target) in enumerate(graph.relations):
        if source not in graph.nodes or target not in graph.nodes:
            raise FileError(f"relation {number} is between types that have no nodes")
        ids = graph.ids[number]
        check_array(f"ids.{number}", ids, [np.int32], (None,))
        check_compressed(
            f"offsets.{number}", graph.offsets[number], f"ids.{number}", ids,
            graph.nodes[target].num_nodes, graph.nodes[source].num_nodes,
        )  # fmt: skip

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
from bignn.kernels.layer import Edges
from bignn.runtime import tensors
from bignn.runtime.graph_checks import check_array, check_compressed
from bignn.runtime.read_only import freeze, read_only

if TYPE_CHECKING:
    from bignn.runtime.network import Network

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

VERSION = 1
_HEADER = frozenset(["format", "version", "node_types", "relations"])


@dataclass(frozen=True, eq=False)
class PackedHeteroGraph:
    """Features of each type of nodes, and compressed rows of each relation.

    Made by :func:`bignn.pack_graph` for a heterogeneous model. Features stay floats: each layer
    that reads them centres them by itself.

    Attributes:
        num_nodes: number of nodes of each type.
        x: features float32 [N_t, d_t] of the types that have any.
        relations: types of sources and targets, and the name, of each relation.
        offsets, ids: of each relation, target i has the sources ``ids[offsets[i]:offsets[i + 1]]``.
        name: where the graph came from, for messages.

    All arrays are read-only.

    """

    num_nodes: Mapping[str, int]
    x: Mapping[str, Floats]
    relations: tuple[EdgeType, ...]
    offsets: tuple[Ints, ...]
    ids: tuple[NDArray[Any], ...]
    name: str = "graph"
    _edges: dict[str, Edges] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", {key: read_only(values) for key, values in self.x.items()})
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
            num_sources = self.num_nodes[source]
            self._edges[name] = Edges(offsets, ids, None, factor, num_sources, own_ids)
        return self._edges[name]

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, verify: bool = False) -> PackedHeteroGraph:
        """Open a packed graph's file; with ``verify`` all of it is compared with its digest."""
        return tensors.open_as(path, {tensors.HETERO_FORMAT: from_file}, verify=verify)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph to a ``.bigraph`` file; ``bignn.open`` reads it."""
        tensors.check_suffix(path, tensors.GRAPH_SUFFIX)
        numbers = {kind: number for number, kind in enumerate(self.num_nodes)}
        arrays: dict[str, NDArray[Any]] = {
            f"features.{numbers[kind]}": values for kind, values in self.x.items()
        }
        for number, (offsets, ids) in enumerate(zip(self.offsets, self.ids, strict=True)):
            arrays[f"offsets.{number}"], arrays[f"ids.{number}"] = offsets, ids
        header = {
            "format": tensors.HETERO_FORMAT,
            "version": VERSION,
            "node_types": [[kind, count] for kind, count in self.num_nodes.items()],
            "relations": [list(relation) for relation in self.relations],
        }
        tensors.write(path, arrays, header)

    def __repr__(self) -> str:
        nodes = ", ".join(f"{count} {kind}" for kind, count in self.num_nodes.items())
        return f"PackedHeteroGraph({self.name!r}, {nodes}, {len(self.relations)} relations)"


def pack_hetero_graph(data: HeteroDataLike, network: Network) -> PackedHeteroGraph:
    """Pack a PyG ``HeteroData`` for a model."""
    arrays = read_hetero(data, network.node_types, network.relations)
    rows = []
    for (source, _, target), (sources, targets) in zip(
        network.relations, arrays.edges, strict=True
    ):
        shape = arrays.num_nodes[target], arrays.num_nodes[source]
        offsets, order = order_of_entries(targets, sources, shape)
        rows.append((offsets, sources[order].astype(np.int32)))
    return PackedHeteroGraph(
        arrays.num_nodes,
        arrays.x,
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
    num_nodes = _checked_types(header.get("node_types"))
    relations = checked_relations(header.get("relations"))
    features = {f"features.{number}": kind for number, kind in enumerate(num_nodes)}
    keys = [[f"{part}.{n}" for n in range(len(relations))] for part in ("offsets", "ids")]
    for key in (*keys[0], *keys[1]):
        if key not in arrays:
            raise FileError(f"array '{key}' is missing")
    if others := sorted(set(arrays) - {*features, *keys[0], *keys[1]}):
        raise FileError(f"it has an unknown part '{others[0][:40]}'; a newer bignn may read it")
    x = {kind: arrays[key] for key, kind in features.items() if key in arrays}
    offsets, ids = (tuple(arrays[key] for key in some) for some in keys)
    return PackedHeteroGraph(num_nodes, x, tuple(relations), offsets, ids)


def _checked_types(given: Any) -> dict[str, int]:
    fits = isinstance(given, list) and all(
        isinstance(some, list)
        and len(some) == 2
        and isinstance(some[0], str)
        and type(some[1]) is int
        and 0 <= some[1] < 2**31
        for some in given
    )
    if not fits or len(dict(given)) != len(given):
        raise FileError("'node_types' must be a list of pairs of a new name and a number of nodes")
    return dict(given)


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
    for kind, x in graph.x.items():
        if kind not in graph.num_nodes:
            raise FileError(f"features of '{kind[:40]}' have no nodes")
        check_array(f"features of '{kind[:40]}'", x, [np.float32], (graph.num_nodes[kind], None))
    for number, (source, _, target) in enumerate(graph.relations):
        if source not in graph.num_nodes or target not in graph.num_nodes:
            raise FileError(f"relation {number} is between types that have no nodes")
        ids = graph.ids[number]
        check_array(f"ids.{number}", ids, [np.int32], (None,))
        check_compressed(
            f"offsets.{number}", graph.offsets[number], f"ids.{number}", ids,
            graph.num_nodes[target], graph.num_nodes[source],
        )  # fmt: skip

"""Synthetic graphs of published shapes, written to a store row by row.

Node i has a slot, ``(a i + b) mod N``, and the class ``slot mod C``, so that classes and neighbours
are spread over all ids: no order of rows makes reads local. Everything else about a node is a hash
of its number and the seed, so that the same seed gives the same bytes whatever memory, threads or
interruptions there were:

- P(degree > d) = (1 + d / mean)^-2: skewed, some nodes have none, some thousands of neighbours;
- a neighbour is of the node's own class with probability 0.55 and any node otherwise; with u in
  [0, 1), it is the ``u² n``-th of these n, so that few nodes are neighbours of many;
- features are 0.25 or -0.25 by class and column, plus noise of standard deviation 1.

One node's bits tell little of its class and its neighbours' bits much more, so that accuracy shows
whether a model has learned to use them.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.bits import words_per_row
from bignn.errors import InputError, counted, input_error
from bignn.files import checked_path
from bignn.graph.graph import SPLITS
from bignn.graph.published_sizes import PUBLISHED_SIZES, PublishedSizes
from bignn.kernels import native
from bignn.kernels.random import random_word
from bignn.runtime.features import pack_rows_of
from bignn.runtime.input_stage import InputSpec
from bignn.runtime.store.pack_edges import finish_edges
from bignn.runtime.store.pack_features import finish_features
from bignn.runtime.store.pack_labels import write_labels
from bignn.runtime.store.progress import ProgressLines, duration
from bignn.runtime.store.store import EDGES, FEATURES, LABELS, MOST_NODES, StorePart
from bignn.runtime.store.unfinished import UnfinishedPart

_OWN_CLASS_SHARE = 0.55
_STRENGTH = 0.25
_MOST_NEIGHBOURS = 100_000
#: Nodes that are made at a time.
_BLOCK_ROWS = 1 << 16
#: Rises when the same seed gives another graph.
_GENERATION = 1


#: Sizes by name; ``edges`` counts entries of all neighbour lists.
SHAPES: dict[str, PublishedSizes] = {
    name: replace(sizes, edges=2 * sizes.edges) for name, sizes in PUBLISHED_SIZES.items()
} | {
    # Edges of ogbn-papers100M go from a paper to one that it cites; they are kept in one direction.
    "papers100M": PublishedSizes(
        111_059_956, 1_615_685_872, 128, 172, 1_207_179, 125_265, 214_338
    )
}  # fmt: skip


def scaled(sizes: PublishedSizes, scale: float) -> PublishedSizes:
    """Return a shape with a share of its nodes, edges and labels."""
    nodes = max(sizes.classes, round(sizes.nodes * scale))
    splits = [max(1, math.floor(size * scale)) for size in (sizes.train, sizes.val, sizes.test)]
    edges = round(sizes.edges * nodes / sizes.nodes)
    return PublishedSizes(nodes, edges, sizes.features, sizes.classes, *splits)


class SyntheticRows:
    """Any rows of a synthetic graph.

    Args:
        shape: its sizes.
        seed: decides everything else.

    """

    def __init__(self, shape: PublishedSizes, seed: int) -> None:
        if not native.is_available():
            raise InputError(f"synthetic graphs need the native core: {native.why_not('portable')}")
        if not 0 < shape.nodes <= MOST_NODES:
            raise input_error("scale", f"one with 1 to {MOST_NODES:,} nodes", f"{shape.nodes:,}")
        self.shape = shape
        #: A number without a common divisor with N, near the golden section of it.
        multiplier = max(1, round(shape.nodes * 0.6180339887) % shape.nodes)
        while math.gcd(multiplier, shape.nodes) != 1:
            multiplier += 1
        multiplier %= shape.nodes
        self._graph = native.synthetic_graph(
            seed=seed,
            num_nodes=shape.nodes,
            num_classes=shape.classes,
            multiplier=multiplier,
            inverse=pow(multiplier, -1, shape.nodes) if shape.nodes > 1 else 0,
            shift=random_word(seed, 0) % shape.nodes,
            mean_degree=shape.edges / shape.nodes,
            most_neighbours=_MOST_NEIGHBOURS,
            own_class_share=round(_OWN_CLASS_SHARE * 2**32),
            strength=_STRENGTH,
        )
        self._seed = seed

    def classes(self, begin: int, end: int) -> NDArray[np.int16]:
        """Return the classes of some nodes."""
        made = np.empty(end - begin, dtype=np.int16)
        self._graph.classes(begin, end, made)
        return made

    def neighbours(self, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return offsets and ids of some nodes' neighbours."""
        offsets = np.empty(end - begin + 1, dtype=np.int64)
        self._graph.degrees(begin, end, offsets)
        ids = np.empty(int(offsets[-1]), dtype=np.int32)
        count = self._graph.neighbours(begin, end, offsets, ids)
        return offsets, ids[:count]

    def features(self, begin: int, end: int) -> NDArray[np.float32]:
        """Return the raw features of some nodes."""
        made = np.empty((end - begin, self.shape.features), dtype=np.float32)
        self._graph.features(begin, end, made)
        return made

    def splits(self) -> dict[str, NDArray[np.int64]]:
        """Draw the nodes of each split, rising."""
        shape = self.shape
        wanted = [shape.train, shape.val, shape.test]
        total = sum(wanted)
        if total > shape.nodes:
            wanted = [size * shape.nodes // total for size in wanted]
            total = sum(wanted)
        drawn = np.random.default_rng([self._seed, 1]).choice(
            shape.nodes, total, replace=False, shuffle=True
        )
        parts = np.split(drawn.astype(np.int64), np.cumsum(wanted)[:-1])
        return {name: np.sort(part) for name, part in zip(SPLITS, parts, strict=True)}


def write_synthetic(
    shape_name: str,
    out: str | os.PathLike[str],
    *,
    scale: float = 1.0,
    seed: int = 0,
    progress: bool = True,
) -> dict[str, Any]:
    """Write a synthetic graph to a store; a killed run is continued by the next one.

    Args:
        shape_name: a key of :data:`SHAPES`.
        out: the store's folder.
        scale: the share of nodes, edges and labels.
        seed: decides the graph.
        progress: write lines about it on stderr.

    """
    if shape_name not in SHAPES:
        raise input_error("shape", f"one of {', '.join(SHAPES)}", repr(shape_name))
    if not 0 < scale <= 16:
        raise input_error("scale", "above 0, at most 16", scale)
    if not 0 <= seed < 2**63:
        raise input_error("seed", "0 or more, below 2**63", seed)
    shape = scaled(SHAPES[shape_name], scale)
    rows = SyntheticRows(shape, seed)
    folder = checked_path(out)
    identity = {"shape": shape_name, "scale": scale, "seed": seed, "generation": _GENERATION}
    start = time.perf_counter()
    _write_features(rows, UnfinishedPart(folder, FEATURES, identity), progress=progress)
    features_seconds = time.perf_counter() - start
    num_edges = _write_edges(rows, UnfinishedPart(folder, EDGES, identity), progress=progress)
    with UnfinishedPart(folder, LABELS, identity) as part:
        part.note_replaced()
        blocks = [rows.classes(begin, end) for begin, end in _blocks(shape.nodes)]
        write_labels(part, np.concatenate(blocks), rows.splits())
    return {
        "out": str(out),
        "shape": shape_name,
        "scale": scale,
        "num_nodes": shape.nodes,
        "num_edges": num_edges,
        "num_features": shape.features,
        "num_classes": shape.classes,
        "seconds": time.perf_counter() - start,
        "features_seconds": features_seconds,
    }


def describe(report: dict[str, Any]) -> str:
    """Format the report of :func:`write_synthetic`."""
    return (
        f"{counted(report['num_nodes'], 'node')}, {counted(report['num_edges'], 'edge')}, "
        f"{counted(report['num_features'], 'feature')}, {report['num_classes']} classes in "
        f"{duration(report['seconds'])}\nwrote {report['out']}"
    )


def _blocks(num_rows: int, first: int = 0) -> list[tuple[int, int]]:
    return [
        (begin, min(begin + _BLOCK_ROWS, num_rows)) for begin in range(first, num_rows, _BLOCK_ROWS)
    ]


def _write_features(rows: SyntheticRows, part: UnfinishedPart, *, progress: bool) -> None:
    shape = rows.shape
    # Features have mean 0 over the classes and standard deviation 1 already.
    mean = np.zeros(shape.features, dtype=np.float32)
    stage = InputSpec(shape.features, False, mean, np.ones_like(mean), True)
    with part:
        if part.is_finished():
            return
        part.note_replaced()
        bits = part.writer("bits", "<u8", [words_per_row(shape.features)])
        beta = part.writer("beta", "<f4", [])
        lines = ProgressLines("features", shape.nodes, bits.part.num_rows, is_shown=progress)
        for begin, end in _blocks(shape.nodes, bits.part.num_rows):
            words, scales = pack_rows_of(stage, rows.features(begin, end))
            bits.append(words)
            beta.append(scales)
            part.record()
            lines.add(end - begin)
        finish_features(part, stage, shape.nodes)


def _write_edges(rows: SyntheticRows, part: UnfinishedPart, *, progress: bool) -> int:
    num_nodes = rows.shape.nodes
    with part:
        if part.is_finished():
            return StorePart.open(part.folder, EDGES).number("num_edges")
        part.note_replaced()
        offsets = part.writer("offsets", "<i8", [])
        ids = part.writer("ids", "<i4", [])
        if not offsets.part.num_rows:
            offsets.append(np.zeros(1, dtype=np.int64))
        lines = ProgressLines("edges", num_nodes, offsets.part.num_rows - 1, is_shown=progress)
        for begin, end in _blocks(num_nodes, offsets.part.num_rows - 1):
            starts, some = rows.neighbours(begin, end)
            offsets.append(starts[1:] + ids.part.num_rows)
            ids.append(some)
            part.record()
            lines.add(end - begin)
        num_edges = ids.part.num_rows
        finish_edges(part, num_nodes, num_edges)
    return num_edges

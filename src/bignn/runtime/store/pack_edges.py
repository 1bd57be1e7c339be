"""Packs lists of edges of any size to a store's compressed rows, by external sort.

First all edges go to buckets of targets, a file each; then bucket after bucket is read whole,
sorted and appended. A bucket that is too large, as of nodes that most edges reach, is read once for
each range of its targets that is not. So memory is bounded by the budget, and by the edges of the
one node that most edges reach.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError, counted, input_error
from bignn.files import checked_path
from bignn.graph.readers.edge_lists import EdgeFile, edge_files
from bignn.kernels.edge_buckets import BucketEdges, sort_bucket, to_buckets
from bignn.runtime.store.array_file import write_error
from bignn.runtime.store.memory import memory_bytes
from bignn.runtime.store.progress import ProgressLines, describe_files, duration, files_report
from bignn.runtime.store.store import EDGES, MOST_NODES, check_same_nodes
from bignn.runtime.store.unfinished import UnfinishedPart

_EDGE_BYTES = 8
#: Most buckets, each an open file.
_MOST_BUCKETS = 512
#: Most and fewest edges that are read at a time.
_MOST_AT_ONCE, _FEWEST_AT_ONCE = 1 << 23, 1 << 16


def pack_edges(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    num_nodes: int,
    undirected: bool = False,
    memory: str | int = "1G",
    progress: bool = True,
) -> dict[str, Any]:
    """Pack a list of edges, or a folder of them, to the edges of a store.

    A killed run is continued by the next one of the same arguments, to the same bytes.

    Args:
        path: a .npy ([edges, 2] or [2, edges]), .parquet or text file, or a folder of them; an edge
            is its source, then its target. Files of a folder are read in natural order, where
            ``part-2`` comes before ``part-10``.
        out: the store's folder.
        num_nodes: N; ids are 0 to N - 1.
        undirected: add the reverse of every edge, and keep repeated edges once.
        memory: bytes that may be used, as ``"1G"``.
        progress: write lines about it on stderr.

    """
    if not 0 < num_nodes <= MOST_NODES:
        raise input_error("nodes", f"1 to {MOST_NODES:,}", f"{num_nodes:,}")
    budget = memory_bytes(memory, least=64 << 20)
    check_same_nodes(checked_path(out), EDGES, num_nodes)
    files = edge_files(path)
    for file in files:
        if file.may_be_cut_off():
            print(f"note: '{file.path}' does not end with a newline: was it cut off?",
                  file=sys.stderr, flush=True)  # fmt: skip
    at_once = int(np.clip(budget // (16 * _EDGE_BYTES), _FEWEST_AT_ONCE, _MOST_AT_ONCE))
    identity = {
        "files": [file.facts() for file in files],
        "num_nodes": num_nodes,
        "undirected": undirected,
        "at_once": at_once,
        "shift": (shift := _bucket_shift(files, num_nodes, undirected, budget)),
    }
    start = time.perf_counter()
    with UnfinishedPart(checked_path(out), EDGES, identity) as part:
        part.note_replaced()
        resumed = part.was_begun
        sort = _ExternalSort(part, files, num_nodes, undirected, shift, budget)
        sort.to_buckets(at_once, progress=progress)
        partition_seconds = time.perf_counter() - start
        num_edges = sort.to_rows(progress=progress)
        finish_edges(part, num_nodes, num_edges)
    return {
        "out": str(out),
        "num_nodes": num_nodes,
        "num_edges": num_edges,
        "resumed": resumed,
        **files_report([file.path for file in files]),
        "bytes_read": sum(file.size for file in files),
        "seconds": time.perf_counter() - start,
        "partition_seconds": partition_seconds,
    }


def describe(report: dict[str, Any]) -> str:
    """Format the report of :func:`pack_edges`."""
    rate = report["num_edges"] / max(report["seconds"], 1e-9) / 1e6
    return (
        f"{counted(report['num_edges'], 'edge')} of {counted(report['num_nodes'], 'node')} in "
        f"{duration(report['seconds'])} ({rate:.1f} million a second)\n"
        f"{describe_files(report)}wrote {report['out']}"
    )


def finish_edges(part: UnfinishedPart, num_nodes: int, num_edges: int) -> None:
    """Write the manifest of a store's edges."""
    part.finish({"num_nodes": num_nodes, "num_edges": num_edges})


def _bucket_shift(files: list[EdgeFile], num_nodes: int, undirected: bool, budget: int) -> int:
    """Choose buckets of 2^shift nodes each, whose edges and offsets take a part of the budget."""
    # Text takes about a byte per digit; binary edges 8 bytes or more.
    likely = sum(file.size for file in files) / _EDGE_BYTES * (2 if undirected else 1)
    # A bucket is held as edges and as ids, beside four numbers per row; degrees are skewed.
    wanted = int((6 * _EDGE_BYTES * likely + 64 * num_nodes) / budget) + 1
    count = max(1, min(wanted, _MOST_BUCKETS // 2, num_nodes))
    return max(0, (num_nodes // count).bit_length() - 1)  # up to twice as many buckets


def _read(file: EdgeFile, at_once: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield a file's edges; an error of the system is one of reading."""
    try:
        yield from file.read(at_once)
    except OSError as error:
        raise FileError(f"cannot read '{file.path}': {error.strerror or error}") from error


class _ExternalSort:
    """Edges on their way from files to rows; ``part.state`` says how far they are."""

    def __init__(
        self,
        part: UnfinishedPart,
        files: list[EdgeFile],
        num_nodes: int,
        undirected: bool,
        shift: int,
        budget: int,
    ) -> None:
        self.part, self.files = part, files
        self.num_nodes, self.undirected, self.shift = num_nodes, undirected, shift
        self.folder = part.scratch = part.folder / "edges.buckets"
        self.num_buckets = max(1, -(-num_nodes >> shift))
        self.most_edges = budget // (3 * _EDGE_BYTES)  # held as edges, as ids, and while written
        state = part.state.setdefault("buckets", {"file": 0, "block": 0, "sizes": None, "done": 0})
        if state["sizes"] is None:
            state["sizes"] = [0] * self.num_buckets
        self.state = state

    def _path(self, bucket: int) -> Path:
        return self.folder / f"{bucket:04d}.bin"

    def to_buckets(self, at_once: int, *, progress: bool) -> None:
        """Distribute what is not distributed yet."""
        state, total = self.state, sum(file.size for file in self.files)
        if state["file"] >= len(self.files):
            return
        before = sum(file.size for file in self.files[: state["file"]])
        lines = ProgressLines("edges to buckets", total, before, is_shown=progress)
        opened = self._open_buckets()
        try:
            for number in range(state["file"], len(self.files)):
                file = self.files[number]
                edge = 0
                for block, (sources, targets) in enumerate(_read(file, at_once)):
                    if block >= state["block"]:
                        self._distribute(opened, file, edge, sources, targets)
                        state["block"] = block + 1
                        self._record(opened)
                    edge += len(sources)
                    lines.add(min(file.size, sources.itemsize * 2 * len(sources)))
                state["file"], state["block"] = number + 1, 0
                self._record(opened)
            for bucket in opened:
                bucket.flush()
                os.fsync(bucket.fileno())
            self.part.record(force=True)
        except OSError as error:
            raise write_error(self.folder, error) from error
        finally:
            for bucket in opened:
                bucket.close()

    def _open_buckets(self) -> list[io.FileIO]:
        self.folder.mkdir(exist_ok=True)
        opened = []
        for bucket, size in enumerate(self.state["sizes"]):
            file = self._path(bucket).open("r+b" if size else "w+b", buffering=0)
            file.truncate(size)  # what came after the last record
            file.seek(size)
            opened.append(file)
        return opened

    def _record(self, opened: list[io.FileIO]) -> None:
        def flush() -> None:
            for bucket in opened:
                os.fsync(bucket.fileno())

        self.part.record(before=flush)

    def _distribute(
        self,
        opened: list[io.FileIO],
        file: EdgeFile,
        first_edge: int,
        sources: NDArray[Any],
        targets: NDArray[Any],
    ) -> None:
        ends = [(sources, targets), (targets, sources)] if self.undirected else [(sources, targets)]
        for source, target in ends:
            made = to_buckets(source, target, self.num_nodes, self.shift)
            if isinstance(made, int):
                row, got = file.row_of(first_edge + made), f"{sources[made]} -> {targets[made]}"
                raise FileError(
                    f"'{file.path}': row {row} has edge {got}, expected node ids in "
                    f"0..{self.num_nodes - 1}"
                )
            edges, counts = made
            content, begin = edges.reshape(-1).view(np.uint8).data, 0
            for bucket, count in enumerate(counts.tolist()):
                size = count * _EDGE_BYTES
                if size:
                    opened[bucket].write(content[begin : begin + size])
                    self.state["sizes"][bucket] += size
                    begin += size

    def to_rows(self, *, progress: bool) -> int:
        """Sort bucket after bucket; return the number of edges."""
        offsets = self.part.writer("offsets", "<i8", [])
        ids = self.part.writer("ids", "<i4", [])
        sizes = self.state["sizes"]
        done = self.state["done"]
        lines = ProgressLines("buckets to rows", sum(sizes), sum(sizes[:done]), is_shown=progress)
        if not done and not offsets.part.num_rows:
            offsets.append(np.zeros(1, dtype=np.int64))
        for bucket in range(done, self.num_buckets):
            first = bucket << self.shift
            rows = min(1 << self.shift, self.num_nodes - first)
            for num_rows, edges in self._ranges(bucket, rows):
                starts, some = sort_bucket(edges, num_rows, merges=self.undirected)
                offsets.append(starts[1:] + ids.part.num_rows)
                ids.append(some)
            self.state["done"] = bucket + 1
            self.part.record()
            lines.add(sizes[bucket])
        return ids.part.num_rows

    def _ranges(self, bucket: int, num_rows: int) -> Iterator[tuple[int, BucketEdges]]:
        """Yield the rows and edges of a bucket, by ranges of rows that memory holds."""
        path, size = self._path(bucket), self.state["sizes"][bucket]
        if path.stat().st_size != size:
            raise FileError(
                f"'{path}' was changed; remove '{self.part.folder}' and run the command again"
            )
        if size <= self.most_edges * _EDGE_BYTES:
            yield num_rows, np.fromfile(path, np.int32).reshape(-1, 2)
            return
        degrees = np.zeros(num_rows, dtype=np.int64)
        for edges in self._pieces(bucket):
            degrees += np.bincount(edges[:, 1], minlength=num_rows)
        ends = np.cumsum(degrees)
        begin = 0
        while begin < num_rows:
            before = ends[begin] - degrees[begin]
            end = max(begin + 1, int(np.searchsorted(ends, before + self.most_edges, "right")))
            some: BucketEdges = np.empty((int(ends[end - 1] - before), 2), dtype=np.int32)
            filled = 0
            for edges in self._pieces(bucket):
                chosen = edges[(edges[:, 1] >= begin) & (edges[:, 1] < end)]
                some[filled : filled + len(chosen)] = chosen
                filled += len(chosen)
            some[:, 1] -= begin
            yield end - begin, some
            begin = end

    def _pieces(self, bucket: int) -> Iterator[BucketEdges]:
        """Read a bucket's edges piece by piece."""
        step = max(_FEWEST_AT_ONCE, min(self.most_edges // 8, _MOST_AT_ONCE)) * _EDGE_BYTES
        for begin in range(0, self.state["sizes"][bucket], step):
            yield np.fromfile(self._path(bucket), np.int32, step // 4, offset=begin).reshape(-1, 2)

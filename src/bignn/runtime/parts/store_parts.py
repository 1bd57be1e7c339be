"""Parts of a store, by ranges of node numbers: streamed from its files to those of the parts.

Beside blocks of a few megabytes there are two arrays in memory, whatever the number of edges: a
byte and, later, an eighth and a sixteenth of one for each node of the whole graph.
"""

from __future__ import annotations

import bisect
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bignn.config.input_bits import SIGN
from bignn.errors import FileError, input_error
from bignn.files import prepare
from bignn.graph import SPLITS
from bignn.kernels.compressed_rows import offsets_fit
from bignn.runtime import tensors
from bignn.runtime.parts.assignment import By, check_count
from bignn.runtime.parts.graph_part import Ints, Partition, PartSizes
from bignn.runtime.parts.part_files import (
    checked_folder,
    part_header,
    part_path,
    remove_parts,
    stage_arrays,
)
from bignn.runtime.store.store import Store, StorePart
from bignn.runtime.tensors import StreamedArray

#: Bytes that are read at a time.
_BLOCK_BYTES = 1 << 24


def write_store_parts(
    path: str | os.PathLike[str],
    num_parts: int,
    folder: str | os.PathLike[str],
    by: By = "auto",
    report: Callable[[PartSizes], object] = lambda _sizes: None,
) -> Partition:
    """Cut a store into parts by ranges and write a file for each; earlier parts are removed.

    The store is compared with its digests first, so that damage does not spread. ``report`` is
    called with the sizes of every part that is written.
    """
    if by == "metis":
        fix = "METIS takes graphs in memory"
        raise input_error("by", "'ranges' or 'auto' for a store", repr(by), fix)
    target = checked_folder(folder)
    store = Store(path)
    check_count(num_parts, store.num_nodes)
    store.verify()
    remove_parts(target)
    prepare(part_path(target, 0))
    bounds = _bounds(store.offsets, num_parts)
    is_read = np.zeros(store.num_nodes, dtype=np.bool_)
    # Gone when it is closed, or the process killed.
    with tempfile.TemporaryFile(dir=target) as file:
        halos = _halos(store, bounds, is_read, file)
        partition = _facts(store, bounds, halos)
        for number in range(num_parts):
            sizes = _write_part(store, partition, number, bounds, halos, is_read, target)
            report(sizes)
    return partition


def _bounds(offsets: NDArray[np.int64], num_parts: int) -> list[int]:
    """Return where each part begins, and N: as many edges and nodes together in each."""
    num_nodes = len(offsets) - 1
    total = int(offsets[-1]) + num_nodes

    def owner(node: int) -> int:
        # The middle of a node's share, as by_ranges takes it; twice, to be whole.
        middle = int(offsets[node]) + int(offsets[node + 1]) + 2 * node + 1
        return middle * num_parts // (2 * total)

    bounds = [0]
    for part in range(1, num_parts):
        found = bisect.bisect_left(range(num_nodes), part, key=owner)
        # At least one node for each part.
        bounds.append(min(max(found, bounds[-1] + 1), num_nodes - num_parts + part))
    return [*bounds, num_nodes]


class _Halo:
    """The nodes that a part reads of others, rising.

    Attributes:
        ids: their numbers, mapped.
        num_cut: edges that come from them.

    """

    def __init__(self, ids: Ints, num_cut: int) -> None:
        self.ids, self.num_cut = ids, num_cut

    def offsets(self, bounds: Sequence[int]) -> Ints:
        """Return where the nodes of each part begin."""
        return np.searchsorted(self.ids, np.asarray(bounds)).astype(np.int64)


def _halos(
    store: Store, bounds: Sequence[int], is_read: NDArray[np.bool_], file: IO[bytes]
) -> list[_Halo]:
    """Find the halos of all parts, one after the other in a file that is then mapped."""
    counts = [_write_halo(store, begin, end, is_read, file) for begin, end in pairwise(bounds)]
    file.flush()
    places = np.cumsum([0, *(size for size, _ in counts)])
    # A file without bytes cannot be mapped.
    ids = np.memmap(file, np.int64, "r") if places[-1] else _NONE
    return [
        _Halo(ids[begin:end], num_cut)
        for (begin, end), (_, num_cut) in zip(pairwise(places), counts, strict=True)
    ]


def _write_halo(
    store: Store, begin: int, end: int, is_read: NDArray[np.bool_], file: IO[bytes]
) -> tuple[int, int]:
    """Append the nodes outside of a range that edges come from; count them and those edges."""
    is_read[:] = False
    num_cut = 0
    for ids in _sources(store, begin, end):
        outside = ids[(ids < begin) | (ids >= end)]
        is_read[outside] = True
        num_cut += len(outside)
    size = 0
    for first in range(0, len(is_read), _BLOCK_BYTES):
        some = np.flatnonzero(is_read[first : first + _BLOCK_BYTES]) + first
        file.write(some.tobytes())
        size += len(some)
    return size, num_cut


_NONE = np.empty(0, dtype=np.int64)


def _sources(store: Store, begin: int, end: int) -> Iterator[NDArray[np.int32]]:
    """Read the sources of the edges of some rows, in blocks."""
    first, last = int(store.offsets[begin]), int(store.offsets[end])
    for ids in _blocks(store.edges, "ids", first, last):
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < store.num_nodes:
            raise FileError(f"'{store.edges.path('ids')}' names nodes that are not there")
        yield ids


def _blocks(part: StorePart, name: str, begin: int, end: int) -> Iterator[NDArray[Any]]:
    """Read rows of an array in blocks."""
    step = max(1, _BLOCK_BYTES // part.arrays[name].row_bytes)
    for first in range(begin, end, step):
        yield part.read(name, first, min(first + step, end))


class _Ranks:
    """The place of every node of a halo among its nodes."""

    def __init__(self, is_there: NDArray[np.bool_]) -> None:
        octets = np.packbits(is_there, bitorder="little")
        self._words = np.zeros(-(-len(is_there) // 64), dtype="<u8")
        self._words.view(np.uint8)[: len(octets)] = octets
        self._before = np.zeros(len(self._words), dtype=np.int32)
        counts = np.bitwise_count(self._words[:-1])
        np.cumsum(counts, dtype=np.int32, out=self._before[1:])

    def of(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """Count the nodes of the halo before each of some nodes."""
        word = ids >> 6
        below = (np.uint64(1) << (ids & 63).astype(np.uint64)) - np.uint64(1)
        count = np.bitwise_count(self._words[word] & below)
        return np.asarray(self._before[word] + count, dtype=np.int32)


def _write_part(
    store: Store,
    partition: Partition,
    number: int,
    bounds: Sequence[int],
    halos: Sequence[_Halo],
    is_read: NDArray[np.bool_],
    folder: Path,
) -> PartSizes:
    begin, end = bounds[number : number + 2]
    num_nodes, halo = end - begin, halos[number]
    is_read[:] = False
    is_read[halo.ids] = True
    first, last = int(store.offsets[begin]), int(store.offsets[end])
    # Each other part's halo has the nodes of this one in a row.
    slices = [
        other.ids[slice(*np.searchsorted(other.ids, (begin, end)).tolist())] for other in halos
    ]
    sent_offsets = np.cumsum([0, *map(len, slices)], dtype=np.int64)

    def offsets() -> Iterator[Ints]:
        step = _BLOCK_BYTES // 8
        for at in range(begin, end + 1, step):
            block = store.edges.read("offsets", at, min(at + step, end + 1)) - first
            if not offsets_fit(block - block[0], int(block[-1] - block[0])):
                raise FileError(f"'{store.edges.path('offsets')}' is damaged; pack it again")
            yield block

    def local_ids() -> Iterator[NDArray[np.int32]]:
        ranks = _Ranks(is_read)
        for ids in _sources(store, begin, end):
            is_mine = (ids >= begin) & (ids < end)
            yield np.where(is_mine, ids - np.int32(begin), ranks.of(ids) + np.int32(num_nodes))

    width = store.features.arrays["bits"].row_shape[0]
    arrays = {
        "nodes": StreamedArray("<i8", [num_nodes], _in_blocks(range(begin, end))),
        "halo": StreamedArray("<i8", [len(halo.ids)], _in_blocks(halo.ids)),
        "halo_offsets": _whole(halo.offsets(bounds)),
        "sent": StreamedArray(
            "<i8", [int(sent_offsets[-1])],
            (block - begin for some in slices for block in _in_blocks(some)),
        ),
        "sent_offsets": _whole(sent_offsets),
        "offsets": StreamedArray("<i8", [num_nodes + 1], offsets()),
        "ids": StreamedArray("<i4", [last - first], local_ids()),
        "x_words": StreamedArray(
            "<u8", [num_nodes, width], _blocks(store.features, "bits", begin, end)
        ),
        "x_beta": StreamedArray("<f4", [num_nodes], _blocks(store.features, "beta", begin, end)),
        **{name: _whole(array) for name, array in stage_arrays(store.stage).items()},
        **_labels(store, begin, end),
    }  # fmt: skip
    header = part_header(partition, number, store.stage)
    tensors.write_streamed(part_path(folder, number), arrays, header)
    return PartSizes(number, num_nodes, last - first, len(halo.ids))


def _labels(store: Store, begin: int, end: int) -> dict[str, StreamedArray]:
    if store.labels is None:
        return {}
    blocks = (block.astype(np.int64) for block in _blocks(store.labels, "y", begin, end))
    made = {"y": StreamedArray("<i8", [end - begin], blocks)}
    for key in SPLITS:
        if (nodes := store.split(key)) is None:
            continue
        mine = [
            block[(block >= begin) & (block < end)] - begin
            for block in _blocks(store.labels, key, 0, len(nodes))
        ]
        made[key] = _whole(np.concatenate([_NONE, *mine]))
    return made


def _whole(array: NDArray[Any]) -> StreamedArray:
    return StreamedArray(array.dtype.str, array.shape, iter([array]))


def _in_blocks(numbers: Ints | range) -> Iterator[Ints]:
    """Yield numbers of eight bytes in blocks."""
    for first in range(0, len(numbers), _BLOCK_BYTES // 8):
        yield np.asarray(numbers[first : first + _BLOCK_BYTES // 8], dtype=np.int64)


def _facts(store: Store, bounds: Sequence[int], halos: Sequence[_Halo]) -> Partition:
    described = f"{store.digest()} {store.stage.digest()} {list(bounds)}"
    train = store.train_idx
    input_bits = store.stage.input_bits
    return Partition(
        digest=hashlib.blake2b(described.encode(), digest_size=16).hexdigest(),
        num_parts=len(halos),
        by="ranges",
        name=store.path.resolve().name,
        num_nodes=store.num_nodes,
        num_edges=store.num_edges,
        num_features=store.num_features,
        num_classes=0 if store.labels is None else store.num_classes,
        num_train=0 if train is None else len(train),
        num_halo=sum(len(halo.ids) for halo in halos),
        num_cut=sum(halo.num_cut for halo in halos),
        x_entries=None,
        input_bits=input_bits,
        # Features that have more than a bit each were taken for dense ones.
        is_dense=input_bits != SIGN,
    )

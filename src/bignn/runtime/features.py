"""Turns a graph's raw features into what a packed model reads: bits with scales, or floats."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bignn import bits, kernels
from bignn.bits import Words
from bignn.graph import Graph, SparseRows
from bignn.kernels import native
from bignn.kernels.compressed_rows import entries_of, order_of_entries
from bignn.kernels.layer import DenseBits, PackedFeatures, SparseBits
from bignn.runtime.input_stage import InputSpec, absolute_sums, row_scales

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

# Dense rows are read in blocks of about this many numbers, so that floats stay few.
_BLOCK_VALUES = 1 << 24
# Sums of doubles below this share of what was added and taken off have lost digits of a float.
_KEPT_SHARE = 2.0**-20


def read_features(stage: InputSpec, graph: Graph) -> tuple[PackedFeatures | Floats, Floats | None]:
    """Apply a model's input stage to a graph: bits and β, in the smaller form, or floats."""
    if not stage.binarize:
        return stage.normalized(graph.dense_x()), None
    x = graph.x
    if isinstance(x, SparseRows) and may_read_sparse(stage, x.indices.size, x.shape[0]):
        read = read_sparse(stage, x)
        if read is not None:
            return read
    words, beta = read_dense(stage, graph)
    return _smaller(words, stage.num_columns), beta


def may_read_sparse(stage: InputSpec, num_entries: int, num_rows: int) -> bool:
    """Whether sparse features of so many entries are read entry by entry."""
    return stage.encoder is None and 2 * num_entries <= num_rows * stage.num_features


def read_dense(stage: InputSpec, graph: Graph) -> tuple[Words, Floats]:
    """Apply an input stage that binarizes row by row: packed rows and β."""
    words = np.empty((graph.num_nodes, bits.words_per_row(stage.num_columns)), dtype=np.uint64)
    beta = np.empty(graph.num_nodes, dtype=np.float32)
    for start, stop in _blocks(graph.num_nodes, stage.num_columns):
        words[start:stop], beta[start:stop] = pack_rows_of(stage, _dense_rows(graph, start, stop))
    return words, beta


def pack_rows_of(stage: InputSpec, x: Floats) -> tuple[NDArray[np.uint64], Floats]:
    """Apply an input stage that binarizes to rows of raw features: bits and β."""
    if native.is_available() and stage.encoder is None and x.dtype == np.float32 and x.shape[1]:
        statistics = stage.mean, stage.scale
        return native.pack_features(
            native.readable(x), stage.normalize_rows, *statistics, kernels.default_backend()
        )
    values = stage.normalized(x)
    return kernels.pack_rows(values), row_scales(values, absolute_sums)[:, 0]


def take_features(features: PackedFeatures, nodes: Ints) -> PackedFeatures:
    """Select the features of some nodes, in the same form."""
    if isinstance(features, DenseBits):
        return DenseBits(np.ascontiguousarray(features.words[nodes]))
    assert isinstance(features, SparseBits)
    offsets, entries = entries_of(features.offsets, nodes)
    return SparseBits(offsets, features.inputs[entries], features.base)


def read_sparse(stage: InputSpec, x: SparseRows) -> tuple[PackedFeatures, Floats] | None:
    """Read features that are mostly 0, entry by entry; None where that would lose digits of β.

    What the stage makes of a 0 depends on the column alone: that is the base row, and entries whose
    sign differs from it are flips.
    """
    num_rows, num_columns = x.shape
    rows, columns, values = _merged(x)
    if stage.normalize_rows:
        total = np.bincount(rows, np.abs(values).astype(np.float64), minlength=num_rows)
        total = total.astype(np.float32)
        values = values / (total + (total == 0))[rows]
    of_zero = np.zeros(num_columns, dtype=np.float32)
    if stage.mean is not None and stage.scale is not None:
        of_zero = (of_zero - stage.mean) * stage.scale
        values = (values - stage.mean[columns]) * stage.scale[columns]
    # |x| of all columns: that of zeros, and the difference that entries make.
    of_zeros = np.abs(of_zero).sum(dtype=np.float64)
    sums = of_zeros + np.bincount(
        rows,
        np.abs(values).astype(np.float64) - np.abs(of_zero[columns]),
        minlength=num_rows,
    )
    # A zero far from a column's mean weighs much, and the entries of that column take it off again.
    if (sums < _KEPT_SHARE * of_zeros).any():
        return None
    beta = sums.astype(np.float32) / np.float32(num_columns)
    base = of_zero >= 0
    flipped = (values >= 0) != base[columns]
    features = _flips(rows[flipped], columns[flipped], base, num_rows)
    if _sparse_bytes(len(features.inputs), num_rows) < 8 * num_rows * len(features.base):
        return features, beta
    return features.dense(), beta


def _dense_rows(graph: Graph, start: int, stop: int) -> Floats:
    if not isinstance(graph.x, SparseRows):
        return graph.x[start:stop]
    first, last = graph.x.indptr[start], graph.x.indptr[stop]
    return SparseRows(
        graph.x.indptr[start : stop + 1] - first,
        graph.x.indices[first:last],
        graph.x.values[first:last],
        (stop - start, graph.num_features),
    ).toarray()


def _merged(x: SparseRows) -> tuple[Ints, Ints, Floats]:
    """Return rows, columns and values of the entries, by row and column; repeated ones added up.

    They are added in the order given, as ``SparseRows.toarray`` does: sums of floats round.
    """
    row = np.repeat(np.arange(x.shape[0], dtype=np.int64), np.diff(x.indptr))
    column, values = x.indices, x.values
    if ((row[1:] == row[:-1]) & (column[1:] <= column[:-1])).any():
        _, order = order_of_entries(row, column, x.shape)
        row, column, values = row[order], column[order], values[order]
    is_new = np.ones(len(row), dtype=np.bool_)
    is_new[1:] = (row[1:] != row[:-1]) | (column[1:] != column[:-1])
    if not is_new.all():
        sums = np.zeros(np.count_nonzero(is_new), dtype=np.float32)
        np.add.at(sums, np.cumsum(is_new) - 1, values)
        row, column, values = row[is_new], column[is_new], sums
    return row, column, values


def _flips(rows: Ints, columns: Ints, base: NDArray[np.bool_], num_rows: int) -> SparseBits:
    """Make sparse bits of flips sorted by row; columns that most rows flip change their base."""
    num_columns = len(base)
    often = 2 * np.bincount(columns, minlength=num_columns) > num_rows
    if often.any():
        chosen = np.flatnonzero(often)
        place = np.cumsum(often) - 1
        of_often = often[columns]
        is_flipped = np.zeros((len(chosen), num_rows), dtype=np.bool_)
        is_flipped[place[columns[of_often]], rows[of_often]] = True
        which, missing = np.nonzero(~is_flipped)
        rows = np.concatenate([rows[~of_often], missing])
        columns = np.concatenate([columns[~of_often], chosen[which]])
        base = base ^ often
        columns = columns[order_of_entries(rows, columns, (num_rows, num_columns))[1]]
    offsets = np.zeros(num_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=num_rows), out=offsets[1:])
    return SparseBits(offsets, columns.astype(np.int32), bits.pack(np.where(base, 1, -1)))


def _smaller(words: NDArray[np.uint64], num_bits: int) -> PackedFeatures:
    """Return dense words, or their deviations from the commonest row if these take fewer bytes."""
    base = _majority(words, num_bits)
    differs = words ^ base
    counts = np.bitwise_count(differs).sum(axis=1, dtype=np.int64)
    if _sparse_bytes(int(counts.sum()), len(words)) >= words.nbytes:
        return DenseBits(words)
    offsets = np.zeros(len(words) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    inputs = np.empty(int(offsets[-1]), dtype=np.int32)
    for start, stop in _blocks(len(words), num_bits):
        inputs[offsets[start] : offsets[stop]] = np.nonzero(
            bits.unpack(differs[start:stop], num_bits) > 0
        )[1]
    return SparseBits(offsets, inputs, base)


def _sparse_bytes(num_flips: int, num_rows: int) -> int:
    return 4 * num_flips + 8 * num_rows


def _majority(words: NDArray[np.uint64], num_bits: int) -> NDArray[np.uint64]:
    ones = np.zeros(num_bits, dtype=np.int64)
    for start, stop in _blocks(len(words), num_bits):
        ones += (bits.unpack(words[start:stop], num_bits) > 0).sum(axis=0)
    return bits.pack(2 * ones - len(words))


def _blocks(num_rows: int, num_columns: int) -> Iterator[tuple[int, int]]:
    size = max(1, _BLOCK_VALUES // max(1, num_columns))
    for start in range(0, num_rows, size):
        yield start, min(start + size, num_rows)

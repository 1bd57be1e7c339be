"""From raw features to what a packed model reads: the input stage, block by block."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bignn import bits, kernels
from bignn.graph import Graph, SparseRows
from bignn.kernels.operands import DenseBits, Features, SparseBits
from bignn.runtime.network import Input

Floats = NDArray[np.float32]

# Rows are normalised in blocks of about this many numbers, so that floats stay few.
_BLOCK_VALUES = 1 << 24


def digest(stage: Input) -> str:
    """A fingerprint of the input statistics; packed features carry it."""
    state = hashlib.blake2b(digest_size=16)
    state.update(f"{stage.num_features} {stage.normalize_rows} {stage.binarize}".encode())
    for values in (stage.mean, stage.scale):
        state.update(b"-" if values is None else values.tobytes())
    return state.hexdigest()


def normalized(stage: Input, x: Floats) -> Floats:
    """The input stage up to, and without, the sign."""
    if stage.normalize_rows:
        x = row_normalized(x)
    if stage.mean is not None and stage.scale is not None:
        x = (x - stage.mean) * stage.scale
    return x


def row_normalized(x: Floats) -> Floats:
    """Rows to absolute sum 1; rows of zeros stay."""
    total = np.abs(x).sum(axis=1, keepdims=True, dtype=np.float64)
    return (x / np.where(total > 0, total, 1)).astype(np.float32)


def read_features(stage: Input, graph: Graph) -> tuple[Features | Floats, Floats | None]:
    """A graph's features as bits with β, in the smaller of two forms; or as floats."""
    if not stage.binarize:
        return normalized(stage, graph.dense_x()), None
    words = np.empty((graph.num_nodes, bits.words_per_row(graph.num_features)), dtype=np.uint64)
    beta = np.empty(graph.num_nodes, dtype=np.float32)
    for start, stop in _blocks(graph.num_nodes, graph.num_features):
        rows = slice(start, stop)
        x = normalized(stage, _dense_rows(graph, rows))
        words[rows] = kernels.pack_rows(x)
        beta[rows] = np.abs(x).mean(axis=1)
    return _smaller(words, graph.num_features), beta


def _dense_rows(graph: Graph, rows: slice) -> Floats:
    if not isinstance(graph.x, SparseRows):
        return graph.x[rows]
    first, last = graph.x.indptr[rows.start], graph.x.indptr[rows.stop]
    return SparseRows(
        graph.x.indptr[rows.start : rows.stop + 1] - first,
        graph.x.indices[first:last],
        graph.x.values[first:last],
        (rows.stop - rows.start, graph.num_features),
    ).toarray()


def _smaller(words: NDArray[np.uint64], num_bits: int) -> Features:
    """Dense words, or where rows deviate from the commonest one, if that takes fewer bytes."""
    base = _majority(words, num_bits)
    differs = words ^ base
    counts = np.bitwise_count(differs).sum(axis=1, dtype=np.int64)
    if 4 * counts.sum() + 8 * len(words) >= words.nbytes or num_bits >= 2**31:
        return DenseBits(words)
    offsets = np.zeros(len(words) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    inputs = np.empty(int(offsets[-1]), dtype=np.int32)
    for start, stop in _blocks(len(words), num_bits):
        inputs[offsets[start] : offsets[stop]] = np.nonzero(
            bits.unpack(differs[start:stop], num_bits) > 0
        )[1]
    return SparseBits(offsets, inputs, base)


def _majority(words: NDArray[np.uint64], num_bits: int) -> NDArray[np.uint64]:
    ones = np.zeros(num_bits, dtype=np.int64)
    for start, stop in _blocks(len(words), num_bits):
        ones += (bits.unpack(words[start:stop], num_bits) > 0).sum(axis=0)
    return bits.pack(2 * ones - len(words))


def _blocks(num_rows: int, num_columns: int) -> Iterator[tuple[int, int]]:
    size = max(1, _BLOCK_VALUES // max(1, num_columns))
    for start in range(0, num_rows, size):
        yield start, min(start + size, num_rows)

"""The native extension, where it was built and loads; importing this never fails."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.bits import Words, words_per_row

_native: ModuleType | None
try:
    from bignn import _native
except ImportError as error:
    _native, _import_error = None, str(error)

Floats = NDArray[np.float32]

#: Every instruction set that some build has kernels for, slowest first per architecture.
KNOWN_INSTRUCTION_SETS = ("portable", "avx2", "avx2_vnni", "avx512", "neon", "neon_dot")
#: Instruction sets that this build has kernels for; without the extension, all known ones.
INSTRUCTION_SETS = (
    KNOWN_INSTRUCTION_SETS
    if _native is None
    else tuple(name for name, _, _ in _native.instruction_sets())
)


def is_available() -> bool:
    """Whether the extension was built and loads."""
    return _native is not None


def best() -> str | None:
    """Name the fastest instruction set this CPU runs; None without the extension."""
    return None if _native is None else str(_native.best)


def supported() -> list[str]:
    """List the instruction sets that this build has kernels for and this CPU can run."""
    if _native is None:
        return []
    return [name for name, works, _ in _native.instruction_sets() if works]


def why_not(backend: str) -> str:
    """Explain why a backend cannot be used here; empty if it can, or if there is none."""
    if backend not in KNOWN_INSTRUCTION_SETS:
        return ""
    if _native is None:
        if find_spec("bignn._native") is None:
            return "the native extension was not built; reinstall with a C++20 compiler and CMake"
        return f"the native extension does not load ({_import_error}); reinstall bignn"
    if backend not in INSTRUCTION_SETS:
        return f"this build has no {backend} kernels: they are of another architecture"
    missing = {name: lacks for name, _, lacks in _native.instruction_sets()}[backend]
    return f"this CPU lacks {missing}" if missing else ""


def pack_rows(x: NDArray[np.float32], isa: str) -> Words:
    """See :func:`bignn.kernels.pack_rows`; x is contiguous float32."""
    assert _native is not None
    words = np.empty((x.shape[0], words_per_row(x.shape[1])), dtype=np.uint64)
    _native.pack(x, words, isa)
    return words


def xnor_matmul(a: Words, b: Words, num_bits: int, isa: str) -> NDArray[np.int32]:
    """See :func:`bignn.kernels.xnor_matmul`; a is contiguous."""
    out = np.empty((a.shape[0], b.shape[0]), dtype=np.int32)
    xnor_into(a, panels(b), num_bits, out, 0, a.shape[0], isa)
    return out


def xnor_into(
    a: Words,
    columns: NDArray[np.uint32],
    num_bits: int,
    out: NDArray[np.int32],
    begin: int,
    end: int,
    isa: str,
) -> None:
    """Multiply rows [begin, end) with panels into a preallocated buffer."""
    assert _native is not None
    _native.xnor(a, columns, num_bits, out, begin, end, isa)


def panels(b: Words) -> NDArray[np.uint32]:
    """Interleave the rows of b as the XNOR kernels read them."""
    assert _native is not None
    width = int(_native.panel_width)
    shape = (-(-len(b) // width) * width, 2 * b.shape[1])
    out = aligned(shape[0] * shape[1], np.uint32).reshape(shape)
    _native.make_panels(readable(b), out)
    return out


def readable(array: NDArray[Any], dtype: Any = None) -> NDArray[Any]:
    """Make an array contiguous and aligned, as native code reads it; copies only if needed."""
    return np.require(array, dtype, ("C", "A"))


def aligned(size: int, dtype: Any) -> NDArray[Any]:
    """Allocate a vector that begins on a cache line, so that loads do not straddle two."""
    kind = np.dtype(dtype)
    raw = np.empty(size * kind.itemsize + 64, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size * kind.itemsize].view(kind)


def layer_weights(layer: Any) -> Any:
    """Convert the weights of a :class:`bignn.kernels.layer.BinaryLayer`."""
    assert _native is not None
    own = attention = None
    if layer.own is not None:
        own = _native.OwnPart(readable(layer.own.words), readable(layer.own.scale))
    if (scored := layer.attention) is not None:
        attention = _native.Attention(
            scored.heads,
            scored.averages,
            scored.slope,
            readable(scored.values),
            readable(scored.sigma),
            readable(scored.end_scale),
        )
    return _native.LayerWeights(
        readable(layer.words),
        layer.num_inputs,
        readable(layer.scale),
        readable(layer.shift),
        layer.edge_bits,
        own,
        attention,
    )


def edges(
    offsets: NDArray[np.int64],
    ids: NDArray[Any],
    weights: NDArray[np.float32] | None,
    target_factor: NDArray[np.float32],
    own_ids: NDArray[np.int32] | None,
    num_sources: int,
) -> Any:
    """Convert the arrays of :class:`bignn.kernels.layer.Edges`."""
    assert _native is not None
    return _native.Edges(offsets, ids, weights, target_factor, own_ids, num_sources)


def features(bits: Any, num_bits: int) -> Any:
    """Convert the dense or sparse bits of a first layer's sources."""
    assert _native is not None
    if hasattr(bits, "words"):
        return _native.DenseBits(bits.words)
    return _native.SparseBits(bits.offsets, bits.inputs, bits.base, num_bits)


def packed_layers(isa: str, features: Any, source_factor: NDArray[np.float32]) -> Any:
    """Make an empty native model; its ``add`` takes the layers."""
    assert _native is not None
    return _native.PackedLayers(isa, features, source_factor)


def blocks_pay(isa: str, edge_bits: int, num_columns: int, sizes: tuple[int, int, int]) -> bool:
    """Whether way T takes neighbours by blocks of sources; ``sizes``: rows, sources, entries."""
    assert _native is not None
    pays: bool = _native.blocks_pay(isa, edge_bits, num_columns, *sizes)
    return pays


def live_layers(
    isa: str,
    edges: tuple[NDArray[np.int64], NDArray[np.int32], Floats | None],
    has_loops: bool,
    keeps_sums: bool,
    words: Words,
    beta: Floats,
) -> Any:
    """Make a native live graph of edges (offsets, ids, weights); its ``add`` takes the layers."""
    assert _native is not None
    made = (readable(words), readable(beta))
    return _native.LiveLayers(isa, *edges, has_loops, keeps_sums, *made)


def keep_bits() -> int | None:
    """Return the number of binary digits of the probabilities that :func:`draw_masks` takes."""
    return None if _native is None else int(_native.keep_bits)


def round_rows(
    offsets: NDArray[np.int64],
    ids: NDArray[np.int64],
    weights: Floats | None,
    beta: Floats,
    column_factor: Floats | None,
    row_factor: Floats | None,
    *,
    edge_bits: int,
    isa: str,
) -> tuple[Floats, Floats]:
    """See :func:`bignn.kernels.edge_rounding.round_edge_weights`.

    Whole numbers are floats here; the source's factor is ``column_factor * beta``.
    """
    assert _native is not None
    q, scale = np.empty(len(ids), np.float32), np.empty(len(offsets) - 1, np.float32)
    factors = weights, beta, column_factor, row_factor
    _native.round_rows(offsets, ids, *factors, edge_bits, q, scale, isa)
    return q, scale


def sum_rows(
    offsets: NDArray[np.int64],
    ids: NDArray[np.int64],
    places: NDArray[np.int64] | None,
    weights: Floats,
    x: Floats,
    scale: Floats | None,
    *,
    isa: str,
    largest: int = 0,
) -> Floats:
    """Compute ``scale_i Σ_e weights[places[e]] x[ids[e]]`` over the entries e of each row i.

    Entries are added one after the other in float32. With ``largest`` the products are whole
    numbers of at most that size, and sums that may have more digits are taken in float64 and
    rounded once.
    """
    assert _native is not None
    out = np.empty((len(offsets) - 1, x.shape[1]), np.float32)
    _native.sum_rows(offsets, ids, places, weights, x, scale, largest, out, isa)
    return out


def binarize(h: Floats, isa: str) -> tuple[Words, Floats]:
    """See :func:`bignn.kernels.reference.binarize`; β is at most 1e30, even of rows with NaN."""
    assert _native is not None
    words = np.empty((len(h), words_per_row(h.shape[1])), np.uint64)
    beta = np.empty(len(h), np.float32)
    _native.binarize(h, words, beta, isa)
    return words, beta


def draw_masks(seed: int, keep: int, among: Words, masks: Words, isa: str) -> None:
    """See :func:`bignn.kernels.masked.draw_masks`."""
    assert _native is not None
    _native.draw_masks(seed, keep, among, masks, isa)


def masked_matmul(
    rows: Words, masks: Words, b: Words, num_bits: int, isa: str
) -> NDArray[np.float32]:
    """See :func:`bignn.kernels.masked.masked_matmul`."""
    assert _native is not None
    out = np.empty((len(rows), len(b)), dtype=np.float32)
    _native.masked_rows(rows, masks, panels(b), num_bits, out, isa)
    return out


def masked_gradient(
    rows: Words, masks: Words, num_bits: int, g: NDArray[np.float32], isa: str
) -> NDArray[np.float32]:
    """See :func:`bignn.kernels.masked.masked_gradient`."""
    assert _native is not None
    out = np.empty((g.shape[1], num_bits), dtype=np.float32)
    _native.masked_gradient(rows, masks, num_bits, g, out, isa)
    return out


def keep_masked(x: NDArray[np.float32], masks: Words, isa: str) -> NDArray[np.float32]:
    """See :func:`bignn.kernels.masked.keep_masked`."""
    assert _native is not None
    out = np.empty_like(x)
    _native.keep_masked(x, masks, out, isa)
    return out


def checksum(array: NDArray[Any]) -> int:
    """Compute a fingerprint of an array's bytes, to notice changes of it later."""
    octets = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if _native is None:
        return int.from_bytes(hashlib.blake2b(octets.data, digest_size=8).digest(), "little")
    return int(_native.checksum(octets))


def set_num_threads(count: int) -> None:
    """See :func:`bignn.set_num_threads`."""
    if _native is not None:
        _native.set_num_threads(count)


def num_threads() -> int:
    """Return the number of threads that packed layers run on."""
    return 1 if _native is None else int(_native.num_threads())


def sort_edges(
    rows: NDArray[np.int64], columns: NDArray[np.int64], num_nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """See :meth:`bignn.kernels.sampling.CompressedGraph.from_edges`."""
    assert _native is not None
    offsets = np.empty(num_nodes + 1, dtype=np.int64)
    ids = np.empty(len(rows), dtype=np.int32)
    numbers = np.empty(len(rows), dtype=np.int64)
    _native.sort_edges(rows, columns, offsets, ids, numbers)
    return offsets, ids, numbers


def locality_order(offsets: NDArray[np.int64], ids: NDArray[np.int32]) -> NDArray[np.int64]:
    """See :func:`bignn.kernels.node_order.locality_order`; every edge is in both of its rows."""
    assert _native is not None
    order: NDArray[np.int64] = _native.locality_order(offsets, ids)
    return order


def rows_and_sources(
    offsets: NDArray[np.int64], ids: NDArray[Any], rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """See :func:`bignn.kernels.compressed_rows.rows_and_sources`."""
    assert _native is not None
    found: NDArray[np.int64] = _native.rows_and_sources(offsets, ids, rows)
    return found


def take_rows(
    offsets: NDArray[np.int64],
    ids: NDArray[Any],
    weights: Floats | None,
    rows: NDArray[np.int64],
    taken: NDArray[np.int64],
) -> Any:
    """See :func:`bignn.kernels.compressed_rows.take_rows`."""
    assert _native is not None
    return _native.take_rows(offsets, ids, weights, rows, taken)


def sample_neighbours(
    graph: Any, seeds: NDArray[np.int64], fanouts: NDArray[np.int64], replace: bool, seed: int
) -> Any:
    """See :func:`bignn.kernels.sampling.sample_neighbours`."""
    assert _native is not None
    return _native.sample_neighbours(
        graph.offsets, graph.ids, graph.numbers, seeds, fanouts, replace, seed
    )


def random_walks(graph: Any, seed: int, walks: NDArray[np.int64]) -> None:
    """See :func:`bignn.kernels.sampling.random_walks`; fills all but the first column."""
    assert _native is not None
    _native.random_walks(graph.offsets, graph.ids, seed, walks)


def edges_between(graph: Any, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Any:
    """See :func:`bignn.kernels.sampling.edges_between`."""
    assert _native is not None
    return _native.edges_between(graph.offsets, graph.ids, graph.numbers, rows, columns)


def unsound_row(x: Floats) -> int:
    """Return the first row with a number that is not finite; -1 if there is none."""
    assert _native is not None
    return int(_native.unsound_row(x))


def pack_features(
    x: Floats, normalizes_rows: bool, mean: Floats | None, scale: Floats | None, isa: str
) -> tuple[Words, Floats]:
    """Normalise, standardise and binarize raw features [N, d]: bits and β."""
    assert _native is not None
    words = np.empty((len(x), words_per_row(x.shape[1])), np.uint64)
    beta = np.empty(len(x), np.float32)
    _native.pack_features(x, normalizes_rows, mean, scale, words, beta, isa)
    return words, beta


def feature_statistics(x: Floats, normalizes_rows: bool) -> tuple[NDArray[Any], ...]:
    """Return means, squared deviations, least and largest numbers of parts of the rows."""
    assert _native is not None
    shape = (-(-len(x) // int(_native.statistics_rows)), x.shape[1])
    made = tuple(np.empty(shape, kind) for kind in (np.float64, np.float64, np.float32, np.float32))
    _native.feature_statistics(x, normalizes_rows, *made)
    return made


def statistics_rows() -> int:
    """Return the number of rows that :func:`feature_statistics` takes together."""
    assert _native is not None
    return int(_native.statistics_rows)


def count_buckets(
    sources: NDArray[Any],
    targets: NDArray[Any],
    num_nodes: int,
    shift: int,
    counts: NDArray[np.int64],
) -> int:
    """See :func:`bignn.kernels.edge_buckets.to_buckets`; -1 if all ends are nodes."""
    assert _native is not None
    return int(_native.count_buckets(sources, targets, num_nodes, shift, counts))


def fill_buckets(
    sources: NDArray[Any],
    targets: NDArray[Any],
    shift: int,
    places: NDArray[np.int64],
    out: NDArray[np.int32],
) -> None:
    """See :func:`bignn.kernels.edge_buckets.to_buckets`."""
    assert _native is not None
    _native.fill_buckets(sources, targets, shift, places, out)


def sort_bucket(
    edges: NDArray[np.int32], offsets: NDArray[np.int64], ids: NDArray[np.int32], merges: bool
) -> int:
    """See :func:`bignn.kernels.edge_buckets.sort_bucket`; returns the number of ids."""
    assert _native is not None
    return int(_native.sort_bucket(edges, offsets, ids, merges))


def synthetic_graph(**options: Any) -> Any:
    """Make a native synthetic graph (:mod:`bignn.runtime.store.synthetic`)."""
    assert _native is not None
    return _native.SyntheticGraph(**options)

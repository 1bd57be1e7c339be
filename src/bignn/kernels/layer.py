"""A binary layer as a typed value: its weights, the edges it sums over, and the bits it reads.

For node i with neighbours j, in ±1: ``h_i = scale ⊙ s_i Σ_j w_ij t_j (F_j · B) + shift``, the sum
taken exactly, in integers (csrc/kernels.h defines them). A node may have a part of its own (SAGE),
and neighbours' weights may come from attention (GAT, :mod:`bignn.kernels.attention`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bignn import bits
from bignn.bits import Words
from bignn.kernels import native
from bignn.kernels.attention import Attention
from bignn.kernels.compressed_rows import entries_of

#: How a layer is computed (:mod:`bignn.kernels.packed_layers`): transform first, gather first, or
#: sparse bits.
Way = Literal["T", "G", "S"]
#: What of a layer's result is kept for the caller: values, or bits and their β.
Keep = Literal["values", "bits"]
Floats = NDArray[np.float32]

#: The product after a gather of bits adds up in 32 bits (csrc/kernels.h).
MOST_INPUTS_OF_G = 1 << 16

#: Bits of the integer weights of neighbours: in hidden layers, whose sums way G's tables of three
#: bytes hold, and in last layers, whose classes would show the rounding (docs/design.md).
HIDDEN_EDGE_BITS = 17
LAST_EDGE_BITS = 20


def edge_bits_of(*, is_last: bool) -> int:
    """Return bits of a layer's integer edge weights, by its place in the model."""
    return LAST_EDGE_BITS if is_last else HIDDEN_EDGE_BITS


@dataclass(frozen=True, eq=False)
class Edges:
    """The sources that each row sums over: row i takes ``ids[offsets[i]:offsets[i + 1]]``.

    Attributes:
        offsets: int64 [rows + 1].
        ids: int32 or int64 [entries], numbers of sources.
        weights: float32 [entries], or None for all ones.
        target_factor: s, float32 [rows].
        num_sources: number of rows that the ids count.
        own_ids: int32 [rows], the source that each row is; None if row i is source i.
        source_scale: float32 [num_sources], a factor of the sources' β; None for all ones.

    """

    offsets: NDArray[np.int64]
    ids: NDArray[Any]
    weights: Floats | None
    target_factor: Floats
    num_sources: int
    own_ids: NDArray[np.int32] | None = None
    source_scale: Floats | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1

    def rows(self, begin: int, end: int) -> Edges:
        """Select the rows from ``begin`` to ``end``."""
        first, last = self.offsets[begin], self.offsets[end]
        own_ids = (
            np.arange(begin, end, dtype=np.int32)
            if self.own_ids is None
            else self.own_ids[begin:end]
        )
        return Edges(
            self.offsets[begin : end + 1] - first,
            self.ids[first:last],
            None if self.weights is None else self.weights[first:last],
            self.target_factor[begin:end],
            self.num_sources,
            own_ids,
            self.source_scale,
        )

    def taken(self, rows: NDArray[np.int64]) -> Edges:
        """Select rows in any order; their sources stay what they are."""
        offsets, entries = entries_of(self.offsets, rows)
        own_ids = rows.astype(np.int32) if self.own_ids is None else self.own_ids[rows]
        return Edges(
            offsets,
            self.ids[entries],
            None if self.weights is None else self.weights[entries],
            self.target_factor[rows],
            self.num_sources,
            own_ids,
            self.source_scale,
        )

    @cached_property
    def native(self) -> Any:
        """The edges as native code takes them."""
        return native.edges(
            self.offsets,
            self.ids,
            self.weights,
            self.target_factor,
            self.own_ids,
            self.num_sources,
        )


@dataclass(frozen=True, eq=False)
class DenseBits:
    """Features as packed rows [N, ceil(K / 64)]."""

    words: Words

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.words)


@dataclass(frozen=True, eq=False)
class SparseBits:
    """Features that differ from one base row in few places.

    Row i is ``base`` with the bits ``inputs[offsets[i]:offsets[i + 1]]`` flipped.
    """

    offsets: NDArray[np.int64]
    inputs: NDArray[np.int32]
    base: Words

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.offsets) - 1

    def dense(self) -> DenseBits:
        """Convert to packed rows."""
        words = np.repeat(self.base[None], self.num_rows, axis=0)
        row = np.repeat(np.arange(self.num_rows), np.diff(self.offsets))
        flips = np.uint64(1) << (self.inputs % bits.WORD_BITS).astype(np.uint64)
        np.bitwise_xor.at(words, (row, self.inputs // bits.WORD_BITS), flips)
        return DenseBits(words)


#: Features of a first layer.
PackedFeatures = DenseBits | SparseBits


def dense_words(features: PackedFeatures) -> Words:
    """Convert features of either form to packed rows."""
    return features.dense().words if isinstance(features, SparseBits) else features.words


@dataclass(frozen=True, eq=False)
class OwnPart:
    """A node's own part, ``t_i scale ⊙ (F_i · B)``, with B as bits [outputs, ceil(K / 64)]."""

    words: Words
    scale: Floats


@dataclass(frozen=True, eq=False)
class BinaryLayer:
    """A layer with binary weights ``B`` [columns, ceil(K / 64)], and the affine map after the sum.

    Attributes:
        words: B as bits, a row of words per column.
        num_inputs: K.
        scale: float32 [columns].
        shift: float32 [outputs]; outputs are fewer than columns if attention averages heads.
        edge_bits: bits of the integer edge weights; native kernels take up to 20.
        own: the node's own part; None for layers without one.
        attention: how neighbours are scored; None where the edges' own weights are used.
        aggr: how edges are weighed, one of ``runtime.operations.AGGREGATIONS`` or ``"attention"``.
        keep: which part of the result is kept for the caller.

    """

    words: Words
    num_inputs: int
    scale: Floats
    shift: Floats
    edge_bits: int = HIDDEN_EDGE_BITS
    own: OwnPart | None = None
    attention: Attention | None = None
    aggr: str = "gcn"
    keep: frozenset[Keep] = frozenset()

    @property
    def num_columns(self) -> int:
        """Number of columns of B."""
        return len(self.words)

    @property
    def heads(self) -> int:
        """Number of attention heads, 1 without attention."""
        return 1 if self.attention is None else self.attention.heads

    @property
    def num_outputs(self) -> int:
        """Width of the layer's result."""
        averages = self.attention is not None and self.attention.averages
        return self.num_columns // self.heads if averages else self.num_columns

    @cached_property
    def native(self) -> Any:
        """The weights as native code takes them, with the forms it makes of them."""
        return native.layer_weights(self)

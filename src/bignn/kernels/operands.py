"""What a binary layer works on: edges, features as bits, weights, and the layer they make."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bignn import bits
from bignn.bits import Words
from bignn.kernels.attention import Attention

#: How a layer goes (:mod:`bignn.kernels.chain`): transform first, gather first, or sparse bits.
Way = Literal["T", "G", "S"]
Keep = Literal["values", "bits"]
Floats = NDArray[np.float32]

#: The lookup product of way G adds its bytes in 32 bits (csrc/kernels.h).
MOST_INPUTS_OF_G = 1 << 16

#: Bits of the integers that neighbours are weighed with: hidden layers', which way G's tables of
#: three bytes hold, and last layers', whose classes would notice (docs/design.md, Exact sums).
EDGE_BITS = 17
LAST_EDGE_BITS = 20

_widening = threading.Lock()


def edge_bits_of(*, is_last: bool) -> int:
    """A layer's, by where it is."""
    return LAST_EDGE_BITS if is_last else EDGE_BITS


@dataclass(frozen=True, eq=False)
class Edges:
    """Which nodes a row takes from: row i from ``ids[offsets[i]:offsets[i + 1]]``.

    Attributes:
        offsets: int64 [rows + 1].
        ids: int32 or int64 [entries], numbers of sources.
        weights: float32 [entries], or None for all ones.
        target_factor: s, float32 [rows].
        num_sources: how many rows the ids count.
        own: int32 [rows], which source each row is; None if row i is source i.
        source_norm: float32 [num_sources], a factor of the sources' β; None for all ones.

    """

    offsets: NDArray[np.int64]
    ids: NDArray[Any]
    weights: Floats | None
    target_factor: Floats
    num_sources: int
    own: NDArray[np.int32] | None = None
    source_norm: Floats | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1

    def rows(self, begin: int, end: int) -> Edges:
        """Some of the rows."""
        first, last = self.offsets[begin], self.offsets[end]
        own = np.arange(begin, end, dtype=np.int32) if self.own is None else self.own[begin:end]
        return Edges(
            self.offsets[begin : end + 1] - first,
            self.ids[first:last],
            None if self.weights is None else self.weights[first:last],
            self.target_factor[begin:end],
            self.num_sources,
            own,
            self.source_norm,
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
        """The same bits as packed rows."""
        words = np.repeat(self.base[None], self.num_rows, axis=0)
        row = np.repeat(np.arange(self.num_rows), np.diff(self.offsets))
        flips = np.uint64(1) << (self.inputs % bits.WORD_BITS).astype(np.uint64)
        np.bitwise_xor.at(words, (row, self.inputs // bits.WORD_BITS), flips)
        return DenseBits(words)


Features = DenseBits | SparseBits


def dense_words(features: Features) -> Words:
    """Any features as packed rows."""
    return features.dense().words if isinstance(features, SparseBits) else features.words


@dataclass(frozen=True, eq=False)
class Own:
    """What a node adds of its own: ``t_i scale ⊙ (F_i · B)``, B as bits [outputs, ceil(K / 64)]."""

    words: Words
    scale: Floats


@dataclass(frozen=True, eq=False)
class Weights:
    """One layer's ``B`` as bits [columns, ceil(K / 64)], and the affine map after the sum.

    ``scale`` is of the columns, ``shift`` of the outputs: fewer, if attention averages heads.
    """

    words: Words
    num_inputs: int
    scale: Floats
    shift: Floats
    #: Bits of the integers that neighbours are weighed with; the native kernels take up to 20.
    edge_bits: int = EDGE_BITS
    own: Own | None = None
    attention: Attention | None = None
    _prepared: dict[Any, Any] = field(default_factory=dict, repr=False, init=False)

    @property
    def num_columns(self) -> int:
        """Columns of B."""
        return len(self.words)

    @property
    def heads(self) -> int:
        """Parts that the columns are gathered in."""
        return 1 if self.attention is None else self.attention.heads

    @property
    def num_outputs(self) -> int:
        """Width of the layer's result."""
        averages = self.attention is not None and self.attention.averages
        return self.num_columns // self.heads if averages else self.num_columns

    @property
    def reads_bits(self) -> bool:
        """Whether rows' bits are read, besides what is gathered."""
        return self.own is not None or self.attention is not None

    def prepared(self, key: Any, make: Callable[[], Any]) -> Any:
        """Something derived from the weights, made once."""
        if key not in self._prepared:
            self._prepared[key] = make()
        return self._prepared[key]

    @property
    def bytes_per_column(self) -> int:
        """Of their records: 1 until a value did not fit."""
        return int(self._prepared.get("bytes_per_column", 1))

    def widen(self, overflowed: int) -> None:
        """Takes twice the bytes that overflowed, unless another thread has already."""
        with _widening:
            self._prepared["bytes_per_column"] = max(self.bytes_per_column, 2 * overflowed)


@dataclass(frozen=True, eq=False)
class Layer:
    """A step of a chain: weights, edges, the way it goes, and what the next layer's sources need.

    ``out_norm`` [rows] multiplies the β of the rows this layer makes (None for ones, and for the
    last layer). ``keep`` names what of the result is kept for the caller (``Chain.kept``).
    """

    weights: Weights
    edges: Edges
    way: Way
    out_norm: Floats | None = None
    keep: frozenset[Keep] = frozenset()

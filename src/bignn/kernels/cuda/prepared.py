"""Weights of a layer in the forms that GPU kernels read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bignn import bits
from bignn.bits import Words
from bignn.kernels import reference
from bignn.kernels.layer import BinaryLayer

_BLOCK = 128  # bits that rows are padded to
#: Columns that a warp multiplies at a time.
TILE_COLUMNS = 32


def padded_inputs(num_inputs: int) -> int:
    """Round a number of inputs up to whole blocks of 128."""
    return -(-num_inputs // _BLOCK) * _BLOCK


def word_stride(num_inputs: int) -> int:
    """Return the 32-bit words of a row of bits on the device."""
    return padded_inputs(num_inputs) // 32


def device_words(words: Words, num_inputs: int) -> NDArray[np.uint32]:
    """Pad rows of bits to whole blocks, as 32-bit words."""
    halves = np.ascontiguousarray(words).view(np.uint32)
    missing = word_stride(num_inputs) - halves.shape[1]
    return halves if missing == 0 else np.pad(halves, ((0, 0), (0, missing)))


def from_device_words(words: NDArray[np.uint32], num_inputs: int) -> Words:
    """Cut rows of bits of the device to the words that rows have elsewhere."""
    return np.ascontiguousarray(words[:, : 2 * bits.words_per_row(num_inputs)]).view(np.uint64)


@dataclass(frozen=True, eq=False)
class PreparedLayer:
    """A layer's weights for the ways T and G (records.cuh and product.cuh say what they are).

    Attributes:
        layer: the layer.
        differing: per column, a number of differing bits that most rows are near.

    """

    layer: BinaryLayer
    differing: NDArray[np.int32]

    @property
    def channels(self) -> int:
        """Columns of a head."""
        return self.layer.num_columns // self.layer.heads

    @property
    def padded_channels(self) -> int:
        """Positions of a head in a record."""
        return -(-self.channels // 4) * 4

    @property
    def num_positions(self) -> int:
        """Numbers of a record."""
        return self.layer.heads * self.padded_channels

    @property
    def record_stride(self) -> int:
        """Numbers from one record to the next: 16 bytes each, at least."""
        return -(-self.num_positions // 16) * 16

    @cached_property
    def _column_of(self) -> NDArray[np.int64]:
        """The column of each position, -1 for none."""
        position = np.arange(self.num_positions)
        head, channel = position // self.padded_channels, position % self.padded_channels
        return np.where(channel < self.channels, head * self.channels + channel, -1)

    @cached_property
    def record_columns(self) -> NDArray[np.uint32]:
        """B as bits [words, positions]."""
        halves = np.ascontiguousarray(self.layer.words).view(np.uint32)
        taken = np.where(self._column_of[:, None] >= 0, halves[self._column_of], 0)
        return np.ascontiguousarray(taken.T, dtype=np.uint32)

    @cached_property
    def record_base(self) -> NDArray[np.int32]:
        """The number that differing bits are taken off, per position."""
        found = np.where(self._column_of >= 0, self.differing[self._column_of], 0)
        return found.astype(np.int32)

    @cached_property
    def record_center(self) -> NDArray[np.int32]:
        """What a product is if its record is 0, per position."""
        return (self.layer.num_inputs - 2 * self.record_base).astype(np.int32)

    @cached_property
    def record_is_used(self) -> NDArray[np.uint8]:
        """Whether a position has a column."""
        return (self._column_of >= 0).astype(np.uint8)

    @property
    def _padding(self) -> int:
        """Columns that are missing to whole tiles of a product."""
        return -self.layer.num_columns % TILE_COLUMNS

    @cached_property
    def product_columns(self) -> NDArray[np.uint32]:
        """B as bits [columns / 32 + 1, inputs / 128, 32 lanes, 4] (product.cuh).

        Lane 4 g + t has of columns g, 8 + g, 16 + g and 24 + g a word each: the inputs
        32 step + 8 t + 4 half + byte of each 128, as bits 8 byte + 2 step + half.
        """
        inputs = padded_inputs(self.layer.num_inputs)
        num_columns = self.layer.num_columns + self._padding + TILE_COLUMNS
        ones = np.zeros((num_columns, inputs), dtype=np.uint8)
        signs = bits.unpack(self.layer.words, self.layer.num_inputs)
        ones[: len(signs), : self.layer.num_inputs] = signs > 0
        # Axes: 32 columns, eight of them, g, block, step, t, half, byte.
        parted = ones.reshape(-1, 4, 8, inputs // _BLOCK, 4, 4, 2, 4)
        ordered = parted.transpose(0, 3, 2, 5, 1, 7, 4, 6)
        packed = np.packbits(ordered.reshape(*ordered.shape[:6], 8), axis=-1, bitorder="little")
        return np.ascontiguousarray(packed).reshape(-1, 4).view(np.uint32)

    @cached_property
    def product_rest(self) -> NDArray[np.int32]:
        """K less twice the number of +1, per column of whole tiles."""
        counted = np.bitwise_count(self.layer.words).sum(axis=1, dtype=np.int32)
        rest = self.layer.num_inputs - 2 * counted
        return np.pad(rest, (0, self._padding)).astype(np.int32)

    @cached_property
    def product_scale(self) -> NDArray[np.float32]:
        """Scales of the columns of whole tiles."""
        return np.pad(self.layer.scale, (0, self._padding)).astype(np.float32)

    @cached_property
    def product_shift(self) -> NDArray[np.float32]:
        """Shifts of the columns of whole tiles."""
        return np.pad(self.layer.shift, (0, self._padding)).astype(np.float32)

    @cached_property
    def own_columns(self) -> NDArray[np.uint32] | None:
        """B_own as bits [words, outputs]."""
        if self.layer.own is None:
            return None
        halves = np.ascontiguousarray(self.layer.own.words).view(np.uint32)
        return np.ascontiguousarray(halves.T)

    @cached_property
    def slope(self) -> NDArray[np.float32]:
        """The slope of attention's leaky ReLU."""
        attention = self.layer.attention
        return np.array([0 if attention is None else attention.slope], dtype=np.float32)

    @cached_property
    def score_values(self) -> NDArray[np.int32] | None:
        """What a bit adds to each score [scores, 32 words], 0 beyond the last input."""
        if self.layer.attention is None:
            return None
        values = self.layer.attention.values
        width = 64 * bits.words_per_row(self.layer.num_inputs)
        return np.pad(values, ((0, 0), (0, width - values.shape[1]))).astype(np.int32)


def prepare(layer: BinaryLayer, words: Words | None) -> PreparedLayer:
    """Prepare a layer; ``words`` are bits that it will read, if they are known.

    A guess of differing bits that is bad costs wider records, never another result.
    """
    if layer.num_inputs <= 255:
        differing = np.full(layer.num_columns, 127)
    elif words is None or len(words) == 0:
        differing = np.full(layer.num_columns, layer.num_inputs // 2)
    else:
        some = words[:: max(1, len(words) // 64)]
        dots = reference.xnor_matmul(some, layer.words, layer.num_inputs)
        differing = np.rint((layer.num_inputs - dots.mean(axis=0)) / 2)
    return PreparedLayer(layer, differing.astype(np.int32))

"""What parts send each other: a layer's sources as bits and scales, ceil(K / 8) + 4 bytes a row.

The scale is the source's factor, β times the factor of the layer's sum, so that the owner's degrees
need not be known elsewhere. As floats (4 K bytes a row) the same rows serve to compare with.
"""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from bignn import bits, kernels
from bignn.bits import words_per_row
from bignn.runtime.layer_ranges import LayerSources

#: How rows are sent: as bits and scales, or as the floats that these stand for.
MessageForm = Literal["bits", "floats"]
Bytes = NDArray[np.uint8]

_SCALE_BYTES = 4


class Pending(Protocol):
    """Rows that are on their way."""

    def wait(self) -> Bytes:
        """Wait for the rows of the halo, uint8 [h, width]."""


class Exchange(Protocol):
    """What connects a part with the others."""

    def start(self, rows: Bytes) -> Pending:
        """Send the rows of ``GraphPart.sent``, uint8 [s, width], and ask for those of the halo."""

    def all_agree(self, *, flag: bool) -> bool:
        """Return whether the flag is true in every part."""


def message_bytes(num_bits: int, form: MessageForm = "bits") -> int:
    """Return the bytes of a row's message."""
    return 4 * num_bits if form == "floats" else -(-num_bits // 8) + _SCALE_BYTES


def to_message(sources: LayerSources, num_bits: int, form: MessageForm) -> Bytes:
    """Make messages of rows, uint8 [rows, width]."""
    words = np.ascontiguousarray(sources.words)
    if form == "floats":
        signs = bits.unpack(words, num_bits).astype(np.float32)
        return (signs * sources.factor[:, None]).view(np.uint8)
    # Words are little-endian, so the bytes of a row's bits come first and padding last.
    of_bits = words.view(np.uint8)[:, : -(-num_bits // 8)]
    scales = np.ascontiguousarray(sources.factor)[:, None].view(np.uint8)
    return np.concatenate([of_bits, scales], axis=1)


def from_message(message: Bytes, num_bits: int, form: MessageForm) -> LayerSources:
    """Read the rows of messages."""
    if form == "floats":
        values = np.ascontiguousarray(message).view(np.float32)
        # A scale of 0 leaves no signs; such a row counts nowhere.
        return LayerSources(kernels.pack_rows(values), np.abs(values[:, 0]))
    words = np.zeros((len(message), words_per_row(num_bits)), dtype=np.uint64)
    words.view(np.uint8)[:, : message.shape[1] - _SCALE_BYTES] = message[:, :-_SCALE_BYTES]
    factor = np.ascontiguousarray(message[:, -_SCALE_BYTES:]).view(np.float32)[:, 0]
    return LayerSources(words, factor)

"""Values that operations read and make: bits, or plain numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bignn import bits
from bignn.bits import Words

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Bits:
    """A binary value: ``beta`` times the ±1 of ``words``."""

    words: Words
    beta: Floats
    num_bits: int

    def floats(self) -> Floats:
        """Convert to plain numbers."""
        return bits.unpack(self.words, self.num_bits).astype(np.float32) * self.beta[:, None]

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, rows: NDArray[np.int64]) -> Bits:
        return Bits(self.words[rows], self.beta[rows], self.num_bits)


Value = Bits | Floats


def floats_of(value: Value) -> Floats:
    """Convert a value to plain numbers."""
    return value.floats() if isinstance(value, Bits) else value

"""Random words that are a hash of their number, as csrc/random.h has them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def random_words(seed: int | NDArray[np.uint64], numbers: NDArray[Any]) -> NDArray[np.uint64]:
    """Hash each number by SplitMix64; seeds and numbers broadcast."""
    with np.errstate(over="ignore"):
        counted = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = np.asarray(seed, dtype=np.uint64) + counted
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


def random_word(seed: int, number: int) -> int:
    """Hash one number: the seed of part ``number`` of what ``seed`` decides."""
    return int(random_words(seed, np.array(number)))


def fractions(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Convert the upper 53 bits of each word to a number in [0, 1)."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(words: NDArray[np.uint64], bound: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """Convert words to integers in [0, bound); 1 - 2^-53 times the bound never rounds up to it."""
    return np.asarray(fractions(words) * bound).astype(np.int64)

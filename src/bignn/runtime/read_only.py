"""Read-only arrays: native code relies on what was checked once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.kernels.layer import DenseBits, PackedFeatures, SparseBits

Floats = NDArray[np.float32]


def read_only(array: Any) -> Any:
    """View a contiguous array that nobody can write to: itself if it is one, else a copy."""
    if array is None:
        return None
    array = np.asarray(array, order="C")
    if any(part.flags.writeable for part in _owners(array)):
        array = array.copy()
        array.flags.writeable = False
    return array.view()


def freeze(*arrays: NDArray[Any] | None) -> None:
    """Make arrays of our own read-only, so that they need no copy to be."""
    for array in arrays:
        for part in _owners(array):
            part.flags.writeable = False


def _owners(array: Any) -> Iterator[NDArray[Any]]:
    """Go through an array and those that it is a view of."""
    while isinstance(array, np.ndarray):
        yield array
        array = array.base


def read_only_features(features: PackedFeatures | Floats) -> PackedFeatures | Floats:
    """View features that nobody can write to."""
    if isinstance(features, DenseBits):
        return DenseBits(read_only(features.words))
    if isinstance(features, SparseBits):
        parts = (features.offsets, features.inputs, features.base)
        return SparseBits(*map(read_only, parts))
    view: Floats = read_only(features)
    return view

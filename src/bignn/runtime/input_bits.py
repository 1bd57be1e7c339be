"""Input encoders: how a row of standardised features becomes more bits than it has features.

For features z [N, d], in float32 and the same to the last bit in NumPy and torch:

- ``rotate``: ``y = R q / (2^12 p √d)``, with ``q = rint(2^12 z)`` within ±32767 and R [K d, d] the
  first d rows and columns of ``H D₃ H D₂ H D₁``, one for each of the K blocks: p is the power of
  two from d on, H the Hadamard matrix of ±1 [p, p], D diagonals of random ±1. So R is made of
  nearly orthogonal rows of length about ``p √d``, is stored as 3 p bits a block, and is made of
  whole numbers: sums of ``R q`` stay below 2^53, so they are exact in float64 in any order.
- ``threshold``: ``y_kj = z_k - t_kj`` for K thresholds t of each feature.

``y`` is then binarized as features are: bits ``y >= 0``, and ``β = mean |y|``. The functions work
on NumPy arrays and on torch tensors alike. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.config.input_bits import MOST_ROTATED, SIGN, InputBits
from bignn.graph import SparseRows

#: Diagonals of a rotation; with three, rows are as good as random ones (Andoni et al. 2015).
NUM_DIAGONALS = 3
#: Features are rounded to whole multiples of one over this, and to ±_LARGEST of them.
_PARTS = 4096
_LARGEST = 32767

#: Rows that features are looked at in, at most, to choose their bits.
_ROWS_LOOKED_AT = 10_000
#: Share of the entries, from which on features are dense.
_DENSE = 0.5
#: Columns up to which features are few.
_FEW_COLUMNS = 512


def rotation_size(num_features: int) -> int:
    """Return p, the order of the Hadamard matrix that rotates so many features."""
    return 1 << max(0, (num_features - 1).bit_length())


def rotation_matrix(diagonals: NDArray[Any], num_features: int) -> NDArray[np.float64]:
    """Multiply out a rotation ``Rᵀ`` [d, K d] of diagonals [K, 3, p] of ±1."""
    assert num_features <= MOST_ROTATED
    hadamard = np.ones((1, 1))
    while len(hadamard) < rotation_size(num_features):
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    blocks = []
    for of_block in diagonals.astype(np.float64):
        block = np.eye(len(hadamard), num_features)
        for diagonal in of_block:
            block = hadamard @ (diagonal[:, None] * block)
        blocks.append(block[:num_features])
    return np.ascontiguousarray(np.concatenate(blocks).T)


def rotation_scale(num_features: int) -> float:
    """Return one over the length that rows of a rotation have."""
    return 1.0 / (rotation_size(num_features) * math.sqrt(num_features))


def rotated(
    z: Any,
    matrix: Any,
    as_doubles: Callable[[Any], Any],
    as_singles: Callable[[Any], Any],
) -> Any:
    """Rotate rows [N, d] of an array or a tensor by a matrix [d, K d] of whole numbers."""
    whole = (as_doubles(z) * _PARTS).clip(-_LARGEST, _LARGEST).round()
    return as_singles((whole @ matrix) * (rotation_scale(len(matrix)) / _PARTS))


def compared(z: Any, thresholds: Any) -> Any:
    """Subtract thresholds [d, K] from rows [N, d] of an array or a tensor: [N, d K]."""
    return (z[:, :, None] - thresholds).reshape(len(z), -1)


def choose_input_bits(x: NDArray[np.float32] | SparseRows) -> str:
    """Choose the option ``input_bits`` for features [N, d] by what they are like.

    Features that are dense and have few columns get more than one bit each: those of which half
    of the entries or more lie between the least and the largest value of their column. Bags of
    words do not, and columns of two values have no more than one bit.
    """
    num_rows, num_columns = x.shape
    if num_columns > _FEW_COLUMNS or num_rows < 2:
        return SIGN
    if isinstance(x, SparseRows):
        if x.indices.size < _DENSE * num_rows * num_columns:
            return SIGN
        x = x.toarray()
    some = x[:: -(-num_rows // _ROWS_LOOKED_AT)]
    between = (some > some.min(axis=0)) & (some < some.max(axis=0))
    if between.mean() < _DENSE:
        return SIGN
    return str(_bits_for(num_columns))


def _bits_for(num_columns: int) -> InputBits:
    return InputBits("rotate", 4)

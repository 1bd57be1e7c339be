"""Input encoders: how a row of features becomes more bits than it has features.

For centred and scaled features z [N, d], in float32, the same to the last bit in NumPy and torch:

- ``rotate``: ``y = R q / (2^12 p √d)``, with ``q = rint(2^12 z)`` within ±524287 and R [K d, d] the
  first d rows and columns of ``H D₃ H D₂ H D₁``, one for each of the K blocks: p is the power of
  two from d on, H the Hadamard matrix of ±1 [p, p], D diagonals of random ±1. So R is made of
  nearly orthogonal rows of length about ``p √d``, is stored as 3 p bits a block, and is made of
  whole numbers: sums of ``R q`` stay below 2^53, so they are exact in float64 in any order.
- ``learned``: ``y_k = s_k (E_k q + t_k) / 2^12``, with directions E [m, d] and offsets t [m] that
  were trained with the model's weights, as whole numbers (bytes and 32 bits), and steps s [m].
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

from bignn.config.input_bits import SIGN, InputBits, InputBitsKind
from bignn.graph import SparseRows

#: Diagonals of a rotation; with three, rows are as good as random ones (Andoni et al. 2015).
NUM_DIAGONALS = 3
#: Features are rounded to whole multiples of one over this, and to ±_LARGEST of them. A sum of a
#: rotation is at most _LARGEST p^3, below 2^49, of a learned direction 127 d _LARGEST + 2^24.
PARTS = 4096
_LARGEST = (1 << 19) - 1

# Columns are in one unit where the largest spread is at most so many times the median one.
_ONE_UNIT = 100.0

#: Rows that features are looked at in, at most, to choose their bits.
_ROWS_LOOKED_AT = 10_000
#: Share of the entries, from which on features are dense.
_DENSE = 0.5
#: Columns up to which features are few.
_FEW_COLUMNS = 512
# Bits that few features become, and bounds per feature.
_WANTED_BITS = 512
_LEAST, _MOST = 4, 32


def rotation_size(num_features: int) -> int:
    """Return p, the order of the Hadamard matrix that rotates so many features."""
    return 1 << max(0, (num_features - 1).bit_length())


def hadamard_matrix(num_features: int) -> NDArray[np.int8]:
    """Make the Hadamard matrix H [p, p] of ±1."""
    made = np.ones((1, 1), dtype=np.int8)
    while len(made) < rotation_size(num_features):
        made = np.block([[made, made], [made, -made]])
    return made


def rotation_matrix(diagonals: Any, hadamard: Any, num_features: int) -> Any:
    """Multiply out a rotation ``Rᵀ`` [d, K d] of arrays or tensors, all in float64.

    Args:
        diagonals: ±1 [K, 3, p].
        hadamard: ±1 [p, p].
        num_features: d.

    """
    blocks = (hadamard * diagonals[:, 0, None, :])[:, :, :num_features]  # H D₁ of each block
    for number in range(1, NUM_DIAGONALS):
        blocks = hadamard @ (diagonals[:, number, :, None] * blocks)
    return blocks[:, :num_features].reshape(-1, num_features).T


def rotation_scale(num_features: int) -> float:
    """Return one over the length that rows of a rotation have."""
    return 1.0 / (rotation_size(num_features) * math.sqrt(num_features))


def rotation_scales(deviations: NDArray[np.float64]) -> NDArray[np.float64]:
    """Choose the factors [d] of centred columns that are rotated, by their standard deviations [d].

    It is one factor for all, so that columns keep their proportions: what little varies is mostly
    noise, and raised to the size of the rest it costs accuracy (docs/trials.md). Only columns that
    are in different units, by their spreads, get factors of their own.
    """
    varying = deviations > 0
    if not varying.any():
        return np.ones(len(deviations))
    if deviations.max() > _ONE_UNIT * np.median(deviations[varying]):
        return np.where(varying, 1.0 / np.where(varying, deviations, 1.0), 1.0)
    return np.full(len(deviations), 1.0 / math.sqrt(np.square(deviations).mean()))


def rotated(
    z: Any,
    matrix: Any,
    as_doubles: Callable[[Any], Any],
    as_singles: Callable[[Any], Any],
) -> Any:
    """Rotate rows [N, d] of an array or a tensor by a matrix [d, K d] of whole numbers."""
    whole = _whole(z, as_doubles)
    return as_singles((whole @ matrix) * (rotation_scale(len(matrix)) / PARTS))


def _whole(z: Any, as_doubles: Callable[[Any], Any]) -> Any:
    return (as_doubles(z) * PARTS).clip(-_LARGEST, _LARGEST).round()


def projected(
    z: Any,
    directions: Any,
    steps: Any,
    offsets: Any,
    as_doubles: Callable[[Any], Any],
    as_singles: Callable[[Any], Any],
) -> Any:
    """Project rows [N, d] of an array or a tensor onto learned directions.

    Args:
        z: the rows.
        directions: whole numbers [d, m] in float64, as all that follows.
        steps: what directions are multiples of, [m].
        offsets: whole numbers [m].
        as_doubles: converts an array or a tensor to float64.
        as_singles: converts it to float32.

    """
    return as_singles((_whole(z, as_doubles) @ directions + offsets) * (steps / PARTS))


def compared(z: Any, thresholds: Any) -> Any:
    """Subtract thresholds [d, K] from rows [N, d] of an array or a tensor: [N, d K]."""
    return (z[:, :, None] - thresholds).reshape(len(z), -1)


def is_dense(x: NDArray[np.float32] | SparseRows) -> bool:
    """Whether half of the entries or more lie between the least and the largest of their column.

    Of bags of words most entries are 0, the least; entries of columns of two values are the least
    or the largest.
    """
    num_rows, num_columns = x.shape
    if isinstance(x, SparseRows):
        if x.indices.size < _DENSE * num_rows * num_columns:
            return False
        x = x.toarray()
    some = x[:: max(1, -(-num_rows // _ROWS_LOOKED_AT))]
    between = (some > some.min(axis=0)) & (some < some.max(axis=0))
    return bool(between.mean() >= _DENSE)


def choose_input_bits(x: NDArray[np.float32] | SparseRows, *, has_many_labels: bool = True) -> str:
    """Choose the option ``input_bits`` for features [N, d] by what they are like.

    Features that are dense (:func:`is_dense`) and have few columns get about as many bits as are
    wanted, 4 to 32 per feature; others have one bit each. Directions are learned where there are
    many labels; a few labels teach them less than random rotations have (docs/trials.md).
    """
    num_columns = x.shape[1]
    if num_columns > _FEW_COLUMNS or not is_dense(x):
        return SIGN
    per_feature = 1 << int(math.log2(max(1, _WANTED_BITS // num_columns)))
    kind: InputBitsKind = "learned" if has_many_labels else "rotate"
    return str(InputBits(kind, min(max(per_feature, _LEAST), _MOST)))

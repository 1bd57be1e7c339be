"""The input stage: how raw features become the first layer's input, in training and deployment.

For features x [N, d] in float32, each step rounded to float32:

1. ``normalize_rows``: ``x_ik <- x_ik / Σ_k |x_ik|``; rows of zeros stay as they are;
2. ``standardize``: ``x_ik <- (x_ik - mean_k) * scale_k``;
3. an encoder makes more columns of them, where there is one (:mod:`bignn.runtime.encoders`);
4. ``binarize``: bits ``x_ik >= 0`` and the row's scale ``β_i = (Σ_k |x_ik|) / d``.

Sums of absolute values are taken in float64 and rounded once, so that their order does not show.
:func:`normalized` and :func:`row_scales` work on NumPy arrays and on torch tensors alike:
``bignn.nn.InputStage`` calls the same two functions. Imports NumPy only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.config.input_bits import SIGN
from bignn.runtime.encoders import Encoder

Floats = NDArray[np.float32]

#: Arrays whose absence counts in fingerprints too, as it did when there were no other kinds.
_ALWAYS_IN_DIGEST = ("diagonals", "thresholds")


#: By how much a constant column's mean is above its value, as a share: two steps of bfloat16.
_ABOVE = 2.0**-7


def constant_statistics(first: Any) -> tuple[Any, Any]:
    """Choose mean and scale of columns that have the value ``first`` at all nodes.

    Their bit is -1, as that of a word which hardly any node has. With +1 instead they would not
    cancel against such words in layers of balanced weights, and since they all learn alike, a few
    hundred of them decide every sign of the next layer (docs/design.md).
    """
    size = abs(first) + 1.0
    return first + size * _ABOVE, 1.0 / size


@dataclass(frozen=True, eq=False)
class InputSpec:
    """The input stage of a packed model: which steps it has, and their numbers.

    Attributes:
        num_features: d.
        normalize_rows: whether there is step 1.
        mean, scale: statistics [d] of step 2; None for no such step.
        binarize: whether there is step 4.
        encoder: step 3; None for no such step.

    """

    num_features: int
    normalize_rows: bool
    mean: Floats | None
    scale: Floats | None
    binarize: bool
    encoder: Encoder | None = None

    @property
    def num_columns(self) -> int:
        """Columns of what the stage makes."""
        return self.num_features if self.encoder is None else self.encoder.num_columns

    @property
    def input_bits(self) -> str:
        """The option ``input_bits`` of models that read such bits."""
        return SIGN if self.encoder is None else self.encoder.input_bits

    def digest(self) -> str:
        """Fingerprint of the stage; packed features carry it."""
        state = hashlib.blake2b(digest_size=16)
        state.update(f"{self.num_features} {self.normalize_rows} {self.binarize}".encode())
        for values in (self.mean, self.scale):
            state.update(b"-" if values is None else values.tobytes())
        if self.encoder is not None:
            for name in dict.fromkeys((*_ALWAYS_IN_DIGEST, *self.encoder.names)):
                numbers = self.encoder.arrays.get(name)
                state.update(b"-" if numbers is None else numbers.tobytes())
        return state.hexdigest()

    def normalized(self, x: Floats) -> Floats:
        """Apply all steps before the sign: [N, d] -> [N, num_columns]."""
        made: Floats = normalized(
            x,
            normalize_rows=self.normalize_rows,
            mean=self.mean,
            scale=self.scale,
            absolute_sums=absolute_sums,
        )
        return made if self.encoder is None else self.encoder.encode(made)


def absolute_sums(x: Floats) -> Floats:
    """Sum the absolute values of each row: [N, d] -> [N, 1]; infinite beyond float32."""
    sums = np.abs(x).sum(axis=1, keepdims=True, dtype=np.float64)
    with np.errstate(over="ignore"):
        rounded: Floats = sums.astype(np.float32)
    return rounded


def normalized(
    x: Any,
    *,
    normalize_rows: bool,
    mean: Any,
    scale: Any,
    absolute_sums: Callable[[Any], Any],
) -> Any:
    """Apply all steps before the sign to an array or a tensor.

    Args:
        x: features [N, d].
        normalize_rows: whether there is step 1.
        mean: means [d] of step 2; None for no such step.
        scale: scales [d] of step 2.
        absolute_sums: row sums of absolute values [N, 1], taken in float64, in x's own dtype.

    """
    if normalize_rows:
        total = absolute_sums(x)
        x = x / (total + (total == 0))
    return x if mean is None else (x - mean) * scale


def row_scales(x: Any, absolute_sums: Callable[[Any], Any]) -> Any:
    """β of each row of normalised features: [N, d] -> [N, 1]."""
    return absolute_sums(x) / x.shape[1]

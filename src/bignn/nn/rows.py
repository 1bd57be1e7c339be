"""A feature matrix that is already binary, as a layer's input."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from bignn import ops
from bignn.binarize import binarize_vector


class BinaryRows:
    """``H̃_i = β_i F_i``: the signs F of a constant feature matrix and their row scales β.

    A model's input does not change from epoch to epoch. Binarized once, training multiplies with
    the signs, and evaluation with the packed words, made when first asked for.

    Attributes:
        signs: ±1 as floats [N, d].
        beta: [N, 1].
    """

    def __init__(self, x: Tensor) -> None:
        with torch.no_grad():
            self.signs, self.beta = binarize_vector(x)

    @property
    def shape(self) -> torch.Size:
        """[N, d]."""
        return self.signs.shape

    @cached_property
    def words(self) -> Tensor:
        """The signs as packed rows (CPU only)."""
        return ops.pack_rows(self.signs)

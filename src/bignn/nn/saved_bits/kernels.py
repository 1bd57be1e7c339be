"""The operations on bits that training needs, and which device has them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from bignn.nn.sparse import SparseMatrix


@dataclass(frozen=True)
class RowRounding:
    """How sums over neighbours round their weights (:mod:`bignn.nn.edge_rounding`), row by row.

    A weight is made again wherever it is used, ``q_ij = min(rint(w_ij t_j two_to_e_i), limit)``, so
    that a graph has no second set of weights, forward or backward.

    Attributes:
        pattern: the edges and their weights w.
        source_factor: t, with the scales of the sources' signs, [sources].
        two_to_e: [rows].
        row_scale: what each row's sum is multiplied by, [rows].
        limit: the largest that a q may be.

    """

    pattern: SparseMatrix
    source_factor: Tensor
    two_to_e: Tensor
    row_scale: Tensor
    limit: int


class BitKernels(Protocol):
    """Operations on words of 64 bits, int64 [rows, words]; shapes are those of a layer's input.

    Floats are float32. ``masks`` say which bits count; None for all.
    """

    def draw_masks(
        self, seed: Tensor, keep: int, among: Tensor | None, like: Tensor, num_bits: int
    ) -> Tensor:
        """Keep each bit of ``among`` (None: of all) with probability ``keep / KEEP_SCALE``.

        The seed is one number on the device, so that recorded work draws anew when it is replayed.
        """  # fmt: skip

    def round_rows(
        self, pattern: SparseMatrix, source_factor: Tensor, edge_bits: int
    ) -> RowRounding:
        """Find how each row rounds its weights."""  # fmt: skip

    def dots(self, words: Tensor, masks: Tensor | None, columns: Tensor, num_bits: int) -> Tensor:
        """Multiply signs with columns of signs: int16 [rows, columns, and one more if odd]."""

    def sums(
        self,
        rounding: RowRounding,
        dots: Tensor,
        column_scale: Tensor,
        column_shift: Tensor | None,
        offset: Tensor | None,
        num_bits: int,
    ) -> Tensor:
        """Compute ``row_scale_i scale_c Σ_j q_ij (D_jc + offset_c) + shift_c`` [rows, columns]."""

    def back_sums(self, rounding: RowRounding, gradient: Tensor, column_scale: Tensor) -> Tensor:
        """Compute ``scale_c Σ_i q_ij row_scale_i g_ic`` [sources, columns]."""

    def binarize_columns(self, h: Tensor, words: Tensor, inside: Tensor, totals: Tensor) -> None:
        """Write the bits of ``h >= 0`` and ``|h| <= 1``, up to 64 columns, and add |h| to totals.

        ``words`` and ``inside`` are the one word of each row that they go to.
        """

    def mask_rows(
        self, values: Tensor, masks: Tensor | None, inside: Tensor, factor: Tensor, out: Tensor
    ) -> None:
        """Write ``values_ik factor_i`` where both masks have a bit, 0 elsewhere."""

    def gradients(
        self, t: Tensor, words: Tensor, masks: Tensor | None, signs: Tensor, *, of_input: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Compute ``Tᵀ (M ⊙ F)`` and, if asked for, ``T B`` for signs B [columns, num_bits]."""


@cache
def kernels_for(device: torch.device) -> BitKernels | None:
    """Return a device's kernels; None where training multiplies floats instead."""
    if device.type != "cuda":
        return None
    from bignn.kernels.cuda.device import cuda_device, why_not
    from bignn.nn.saved_bits.cuda import CudaBitKernels

    number = torch.cuda.current_device() if device.index is None else device.index
    if why_not(number) is not None:
        return None
    return CudaBitKernels(cuda_device(number))

"""The operations on bits that training needs, and which device has them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from bignn.nn.sparse import SparseMatrix

#: Columns of a gradient that have a scale in common.
SCALED_COLUMNS = 32


@dataclass(frozen=True)
class RowRounding:
    """How sums over neighbours round their weights (:mod:`bignn.nn.edge_rounding`), row by row.

    A weight is made again wherever it is used, ``q_ij = min(rint(w_ij t_j two_to_e_i), limit)``, so
    that a graph has no second set of weights, forward or backward.

    Attributes:
        pattern: the edges and their weights w.
        source_factor: t, with the scales of the sources' signs, [sources].
        factors: two_to_e, and what each row's sum is multiplied by, [rows, 2].
        limit: the largest that a q may be.

    """

    pattern: SparseMatrix
    source_factor: Tensor
    factors: Tensor
    limit: int

    @property
    def two_to_e(self) -> Tensor:
        """The powers of two by which weights become whole numbers [rows]."""
        return self.factors[:, 0]

    @property
    def row_scale(self) -> Tensor:
        """What each row's sum is multiplied by [rows]."""
        return self.factors[:, 1]


@dataclass(frozen=True)
class ColumnEnds:
    """What a layer's sums over neighbours are scaled by and what is added to them, by column.

    Attributes:
        scale: [columns].
        shift: [columns], or None for 0.
        offset: what is added to every dot before it is weighed [columns], or None for 0.

    """

    scale: Tensor
    shift: Tensor | None
    offset: Tensor | None

    def columns(self, part: slice) -> ColumnEnds:
        """Return the ends of some columns."""
        shift = None if self.shift is None else self.shift[part]
        return ColumnEnds(
            self.scale[part], shift, None if self.offset is None else self.offset[part]
        )


@dataclass(frozen=True)
class ScaledRows:
    """A gradient in half the bytes of floats: ``g_ic = values_ic scales_i,c//32``.

    Values are whole numbers of 16 bits, so that a number is off by about 2⁻¹⁶ of the largest of its
    32 columns. All 32 are NaN where one is not finite, and 0 where none is above 1e-32.

    Attributes:
        values: int16 [rows, columns and padding to a multiple of 8].
        scales: float32 [rows, ceil(columns / 32)].
        num_columns: columns without padding.

    """

    values: Tensor
    scales: Tensor
    num_columns: int

    @classmethod
    def empty(cls, num_rows: int, num_columns: int, device: torch.device) -> ScaledRows:
        """Reserve memory for a gradient."""
        padded, parts = padded_columns(num_columns), -(-num_columns // SCALED_COLUMNS)
        values = torch.empty(num_rows, padded, dtype=torch.int16, device=device)
        return cls(values, torch.empty(num_rows, parts, device=device), num_columns)

    def rows(self, part: slice) -> ScaledRows:
        """Return some of the rows, in the same memory."""
        return ScaledRows(self.values[part], self.scales[part], self.num_columns)

    def columns(self, part: slice) -> ScaledRows:
        """Return some columns, from a multiple of 32 on, in the same memory."""
        count = part.stop - part.start
        values = self.values[:, part.start : part.start + padded_columns(count)]
        scales = self.scales[:, part.start // SCALED_COLUMNS : -(-part.stop // SCALED_COLUMNS)]
        return ScaledRows(values, scales, count)

    def floats(self) -> Tensor:
        """Compute the gradient as floats [rows, columns]."""
        scales = self.scales.repeat_interleave(SCALED_COLUMNS, dim=1)[:, : self.num_columns]
        return self.values[:, : self.num_columns] * scales


def padded_columns(num_columns: int) -> int:
    """Return a number of columns whose 16-bit rows begin at multiples of 16 bytes."""
    return -(-num_columns // 8) * 8


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
        """Multiply signs with columns of signs: int16 [rows, columns and padding]."""

    def sums(self, rounding: RowRounding, dots: Tensor, ends: ColumnEnds, num_bits: int) -> Tensor:
        """Compute ``row_scale_i scale_c Σ_j q_ij (D_jc + offset_c) + shift_c`` [rows, columns]."""

    def signs_of_sums(
        self, rounding: RowRounding, dots: Tensor, ends: ColumnEnds, num_bits: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return of these sums h the bits of ``h >= 0`` and ``|h| <= 1``, and the means of |h|."""

    def binarize_columns(self, h: Tensor, words: Tensor, inside: Tensor, totals: Tensor) -> None:
        """Write the bits of ``h >= 0`` and ``|h| <= 1``, up to 64 columns, and add |h| to totals.

        ``words`` and ``inside`` are the one word of each row that they go to.
        """

    def scale_rows(
        self,
        values: Tensor,
        masks: Tensor | None,
        inside: Tensor | None,
        factor: Tensor | None,
        out: ScaledRows,
    ) -> None:
        """Write ``values_ik factor_i`` where both masks have a bit, 0 elsewhere."""

    def column_sums(self, gradient: ScaledRows) -> Tensor:
        """Sum a gradient over its rows [columns]."""

    def back_sums(
        self, rounding: RowRounding, gradient: ScaledRows, column_scale: Tensor, sources: slice
    ) -> Tensor:
        """Compute ``T_jc = scale_c Σ_i q_ij row_scale_i g_ic`` of some sources.

        Returned are bfloat16 [sources, 2, columns and padding] whose sum over the second dimension
        is T.
        """

    def back_matrix(self, signs: Tensor) -> Tensor:
        """Return signs B [columns, num_bits] in the form that :meth:`to_input` multiplies."""

    def to_weight(
        self, t: Tensor, words: Tensor, masks: Tensor | None, num_bits: int
    ) -> Tensor:  # fmt: skip
        """Compute ``Tᵀ (M ⊙ F)`` of both parts of T [2, columns and padding, bits and padding]."""

    def to_input(self, t: Tensor, back_matrix: Tensor) -> Tensor:
        """Compute ``T B`` [sources, num_bits]."""


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

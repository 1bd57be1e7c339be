"""The operations of :class:`bignn.nn.saved_bits.kernels.BitKernels` by CUDA kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bignn.kernels.cuda.memory import Device
from bignn.kernels.masked import KEEP_SCALE
from bignn.nn.saved_bits.kernels import ColumnEnds, RowRounding, ScaledRows, padded_columns
from bignn.nn.sparse import SparseMatrix

# The constants of training.cuh and training_sums.cuh.
_PAIR_COLUMNS, _PRODUCT_ROWS, _LONG_ROW, _LONG_WARPS = 64, 16, 128, 16
_LANE_COLUMNS, _FEWEST_LANES = 8, 8
_WARP, _THREADS = 32, 256
# Warps that add up the columns of a gradient, each of some rows.
_COLUMN_WARPS = 2048


class CudaBitKernels:
    """See :class:`bignn.nn.saved_bits.kernels.BitKernels`.

    Launches go to torch's current stream, so that they can be recorded with torch's own.
    """

    def __init__(self, device: Device) -> None:
        self._device = device

    def draw_masks(
        self, seed: Tensor, keep: int, among: Tensor | None, like: Tensor, num_bits: int
    ) -> Tensor:
        """See the protocol."""
        masks = torch.empty_like(like)
        count, digits = masks.numel(), KEEP_SCALE.bit_length() - 1
        shape = (count, like.shape[1], num_bits, keep, digits)
        self._launch("draw_training_masks", count, seed, among, masks, *shape)
        return masks

    def round_rows(
        self, pattern: SparseMatrix, source_factor: Tensor, edge_bits: int
    ) -> RowRounding:
        """See the protocol."""
        matrix = pattern.matrix
        rows = matrix.shape[0]
        factors = source_factor.new_empty(rows, 2)
        self._launch(
            "round_training_rows", rows * _WARP, *_places(pattern, matrix), source_factor,
            pattern.row_factor, factors, rows, edge_bits,
        )  # fmt: skip
        return RowRounding(pattern, source_factor, factors, (1 << edge_bits) - 1)

    def dots(self, words: Tensor, masks: Tensor | None, columns: Tensor, num_bits: int) -> Tensor:
        """See the protocol."""
        rows, num_columns = len(words), len(columns)
        stride = padded_columns(num_columns)
        out = torch.empty(rows, stride, dtype=torch.int16, device=words.device)
        lanes = -(-rows // _PRODUCT_ROWS) * _WARP
        shape = (rows, words.shape[1], num_bits, num_columns, stride)
        parts = -(-stride // _PAIR_COLUMNS)
        self._launch("multiply_signs", lanes, words, masks, columns, out, *shape, parts=parts)
        return out

    def sums(self, rounding: RowRounding, dots: Tensor, ends: ColumnEnds, num_bits: int) -> Tensor:
        """See the protocol."""
        rows, columns = rounding.pattern.shape[0], len(ends.scale)
        out = rounding.factors.new_empty(rows, columns)
        outputs = (out, None, None, None, None)
        num_bytes = -(-columns // _LANE_COLUMNS)
        self._sum_dots(rounding, dots, ends, num_bits, outputs, num_bytes)
        return out

    def signs_of_sums(
        self, rounding: RowRounding, dots: Tensor, ends: ColumnEnds, num_bits: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See the protocol."""
        rows, columns = rounding.pattern.shape[0], len(ends.scale)
        num_words = -(-columns // 64)
        shape = (2, rows, num_words)
        words, inside = torch.empty(shape, dtype=torch.int64, device=dots.device).unbind()
        means = rounding.factors.new_empty(rows)
        outputs = (None, words, inside, means, None)
        self._sum_dots(rounding, dots, ends, num_bits, outputs, 8 * num_words)
        return words, inside, means

    def _sum_dots(
        self,
        rounding: RowRounding,
        dots: Tensor,
        ends: ColumnEnds,
        num_bits: int,
        outputs: tuple[Tensor | None, ...],
        num_bytes: int,
    ) -> None:
        pattern = rounding.pattern
        # Whole numbers of 32 bits hold the sums of all but the longest rows.
        is_wide = pattern.longest_row * rounding.limit * num_bits >= 1 << 31
        kernel = "sum_wide_dots" if is_wide else "sum_dots"
        arguments = (dots, None, ends.scale, ends.shift, ends.offset, *outputs)
        rows = slice(0, pattern.shape[0])
        sizes = (len(ends.scale), dots.stride(0), 0, num_bytes)
        long_rows = pattern.long_rows(_LONG_ROW)
        self._sum_rows(kernel, rounding, pattern.matrix, long_rows, arguments, rows, sizes)

    def back_sums(
        self, rounding: RowRounding, gradient: ScaledRows, column_scale: Tensor, sources: slice
    ) -> Tensor:
        """See the protocol."""
        pattern, (values, scales) = rounding.pattern, (gradient.values, gradient.scales)
        padded = values.shape[1]
        shape = (sources.stop - sources.start, 2, padded)
        halves = torch.empty(shape, dtype=torch.bfloat16, device=values.device)
        ends = (column_scale, None, None, None, None, None, None, halves)
        sizes = (gradient.num_columns, padded, scales.stride(0), padded // _LANE_COLUMNS)
        long_rows = pattern.long_rows(_LONG_ROW, sources, of_transpose=True)
        arguments = (values, scales, *ends)
        back = pattern.transposed
        self._sum_rows("sum_gradients", rounding, back, long_rows, arguments, sources, sizes)
        return halves

    def _sum_rows(
        self,
        kernel: str,
        rounding: RowRounding,
        matrix: Tensor,
        long_rows: Tensor,
        arguments: tuple[Tensor | None, ...],
        rows: slice,
        sizes: tuple[int, ...],
    ) -> None:
        places = _places(rounding.pattern, matrix)
        count, num_bytes = rows.stop - rows.start, sizes[-1]
        lanes_per_row = _FEWEST_LANES
        while lanes_per_row < min(num_bytes, _WARP):
            lanes_per_row *= 2
        given = (
            *places, rounding.source_factor, rounding.factors, long_rows, *arguments,
            rows.start, count, *sizes, lanes_per_row, rounding.limit,
        )  # fmt: skip
        self._launch(kernel, count * _WARP, *given)
        if len(long_rows):
            block = _LONG_WARPS * _WARP
            self._launch(f"{kernel}_of_long_rows", len(long_rows) * block, *given, block=block)

    def binarize_columns(self, h: Tensor, words: Tensor, inside: Tensor, totals: Tensor) -> None:
        """See the protocol."""
        rows, columns = h.shape
        shape = (rows, columns, h.stride(0), 2 * words.stride(0))
        self._launch("binarize_columns", rows * _WARP, h, words, inside, totals, *shape)

    def scale_rows(
        self,
        values: Tensor,
        masks: Tensor | None,
        inside: Tensor | None,
        factor: Tensor | None,
        out: ScaledRows,
    ) -> None:
        """See the protocol."""
        rows, columns = values.shape
        word_stride = next((2 * some.stride(0) for some in (masks, inside) if some is not None), 0)
        strides = (values.stride(0), word_stride, out.values.stride(0), out.scales.stride(0))
        shape = (rows, columns, out.values.shape[1], *strides)
        given = (values, masks, inside, factor, out.values, out.scales)
        self._launch("scale_rows", rows * _WARP, *given, *shape)

    def column_sums(self, gradient: ScaledRows) -> Tensor:
        """See the protocol."""
        values, scales = gradient.values, gradient.scales
        warps = min(len(values), _COLUMN_WARPS)
        totals = scales.new_empty(warps, values.shape[1])
        shape = (len(values), warps, values.stride(0), scales.stride(0))
        self._launch("sum_gradient_columns", warps * _WARP, values, scales, totals, *shape)
        return totals.sum(dim=0)[: gradient.num_columns]

    def back_matrix(self, signs: Tensor) -> Tensor:
        """See the protocol."""
        columns = torch.nn.functional.pad(signs, (0, 0, 0, -len(signs) % _LANE_COLUMNS))
        return columns.to(torch.bfloat16).repeat(2, 1)

    def to_weight(
        self, t: Tensor, words: Tensor, masks: Tensor | None, num_bits: int
    ) -> Tensor:  # fmt: skip
        """See the protocol."""
        rows, num_words = words.shape
        features = torch.empty(rows, 64 * num_words, dtype=torch.bfloat16, device=t.device)
        shape = (rows, num_words, num_bits)
        self._launch("unpack_signs", 8 * words.numel(), words, masks, features, *shape)
        found = _product(t.view(rows, -1).t(), features)
        return found.view(2, t.shape[2], 64 * num_words)

    def to_input(self, t: Tensor, back_matrix: Tensor) -> Tensor:
        """See the protocol."""
        return _product(t.view(len(t), -1), back_matrix)

    def _launch(
        self, kernel: str, lanes: int, *arguments: Any, parts: int = 1, block: int = _THREADS
    ) -> None:
        """Launch so many lanes, in blocks, on torch's current stream."""
        if lanes == 0:
            return
        numbers = [a.data_ptr() if isinstance(a, Tensor) else int(a or 0) for a in arguments]
        place = next(a.device for a in arguments if isinstance(a, Tensor))
        stream = torch.cuda.current_stream(place).cuda_stream if place.type == "cuda" else None
        given = np.array(numbers, dtype=np.int64)
        blocks = (-(-lanes // block), parts)
        self._device.launch(kernel, blocks, block, 0, given, stream=stream)


def _places(pattern: SparseMatrix, matrix: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the offsets and ids of a matrix, and its values unless all are 1."""
    weights = None if pattern.has_ones_only else matrix.values()
    return matrix.crow_indices(), matrix.col_indices(), weights


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices of bfloat16 and add up in float32."""
    if a.device.type == "cuda" and "dtype" in torch.ops.aten.mm.overloads():
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()

"""The operations of :class:`bignn.nn.saved_bits.kernels.BitKernels` by CUDA kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bignn.kernels.cuda.memory import Device
from bignn.kernels.masked import KEEP_SCALE
from bignn.nn.saved_bits.kernels import RowRounding
from bignn.nn.sparse import SparseMatrix

# The constants of training.cuh.
_PAIR_COLUMNS, _PRODUCT_ROWS, _LONG_ROW, _LONG_WARPS = 64, 16, 512, 16
_WARP, _THREADS = 32, 256


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
        two_to_e, row_scale = source_factor.new_empty(2, rows).unbind()
        self._launch(
            "round_training_rows", rows * _WARP, *_places(pattern, matrix), source_factor,
            pattern.row_factor, two_to_e, row_scale, rows, edge_bits,
        )  # fmt: skip
        return RowRounding(pattern, source_factor, two_to_e, row_scale, (1 << edge_bits) - 1)

    def dots(self, words: Tensor, masks: Tensor | None, columns: Tensor, num_bits: int) -> Tensor:
        """See the protocol."""
        rows, num_columns = len(words), len(columns)
        stride = num_columns + num_columns % 2
        out = torch.empty(rows, stride, dtype=torch.int16, device=words.device)
        lanes = -(-rows // _PRODUCT_ROWS) * _WARP
        shape = (rows, words.shape[1], num_bits, num_columns, stride)
        parts = -(-stride // _PAIR_COLUMNS)
        self._launch("multiply_signs", lanes, words, masks, columns, out, *shape, parts=parts)
        return out

    def sums(
        self,
        rounding: RowRounding,
        dots: Tensor,
        column_scale: Tensor,
        column_shift: Tensor | None,
        offset: Tensor | None,
        num_bits: int,
    ) -> Tensor:
        """See the protocol."""
        pattern = rounding.pattern
        # Whole numbers of 32 bits hold the sums of all but the longest rows.
        is_wide = pattern.longest_row * rounding.limit * num_bits >= 1 << 31
        kernel = "sum_wide_dots" if is_wide else "sum_dots"
        ends = (column_scale, column_shift, offset)
        return self._sum_rows(
            kernel, rounding, pattern.matrix, pattern.long_rows(_LONG_ROW), dots, ends
        )

    def back_sums(self, rounding: RowRounding, gradient: Tensor, column_scale: Tensor) -> Tensor:
        """See the protocol."""
        pattern = rounding.pattern
        if gradient.stride(1) != 1 or gradient.stride(0) % 2 or gradient.storage_offset() % 2:
            odd = gradient.shape[1] % 2  # pairs of columns are read together
            gradient = torch.nn.functional.pad(gradient, (0, odd)).contiguous()
        long_rows = pattern.long_rows(_LONG_ROW, of_transpose=True)
        ends = (column_scale, None, None)
        return self._sum_rows(
            "sum_gradients", rounding, pattern.transposed, long_rows, gradient, ends
        )

    def _sum_rows(
        self,
        kernel: str,
        rounding: RowRounding,
        matrix: Tensor,
        long_rows: Tensor | None,
        values: Tensor,
        ends: tuple[Tensor | None, ...],
    ) -> Tensor:
        assert ends[0] is not None
        rows, columns = matrix.shape[0], len(ends[0])
        out = rounding.row_scale.new_empty(rows, columns)
        places = _places(rounding.pattern, matrix)
        factors = (rounding.source_factor, rounding.two_to_e, rounding.row_scale)
        sizes = (rows, columns, values.stride(0), columns, rounding.limit)
        parts = -(-columns // _PAIR_COLUMNS)
        arguments = (*places, *factors, long_rows, values, out, *ends, *sizes)
        self._launch(kernel, rows * _WARP, *arguments, parts=parts)
        if long_rows is not None:
            block = _LONG_WARPS * _WARP
            lanes = len(long_rows) * block
            self._launch(f"{kernel}_of_long_rows", lanes, *arguments, parts=parts, block=block)
        return out

    def binarize_columns(self, h: Tensor, words: Tensor, inside: Tensor, totals: Tensor) -> None:
        """See the protocol."""
        rows, columns = h.shape
        shape = (rows, columns, h.stride(0), 2 * words.stride(0))
        self._launch("binarize_columns", rows * _WARP, h, words, inside, totals, *shape)

    def mask_rows(
        self, values: Tensor, masks: Tensor | None, inside: Tensor, factor: Tensor, out: Tensor
    ) -> None:
        """See the protocol."""
        rows, columns = values.shape
        shape = (rows, columns, values.stride(0), out.stride(0), 2 * inside.stride(0))
        self._launch("mask_rows", rows * _WARP, values, masks, inside, factor, out, *shape)

    def gradients(
        self, t: Tensor, words: Tensor, masks: Tensor | None, signs: Tensor, *, of_input: bool
    ) -> tuple[Tensor, Tensor | None]:
        """See the protocol.

        On tensor cores: signs are exact in bfloat16, and T is taken as two such numbers.
        """
        (rows, num_columns), num_words = t.shape, words.shape[1]
        num_bits = signs.shape[1]
        features = torch.empty(rows, 64 * num_words, dtype=torch.bfloat16, device=t.device)
        lanes = rows * num_words * _WARP
        self._launch("unpack_signs", lanes, words, masks, features, rows, num_words, num_bits)
        halves = torch.empty(rows, 2 * num_columns, dtype=torch.bfloat16, device=t.device)
        count = rows * num_columns
        self._launch("split_floats", count, t, halves, rows, num_columns, t.stride(0))
        both = _product(halves.t(), features)
        to_weight = (both[:num_columns] + both[num_columns:])[:, :num_bits]
        if not of_input:
            return to_weight, None
        columns = signs.to(torch.bfloat16)
        return to_weight, _product(halves, torch.cat([columns, columns]))

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

"""The operations of :class:`bignn.nn.saved_bits.kernels.BitKernels` in plain torch, on any device.

They say what the kernels compute; tests compare them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bignn.kernels import masked
from bignn.nn.edge_rounding import round_row_weights, weights_of_entries
from bignn.nn.saved_bits.kernels import (
    SCALED_COLUMNS,
    ColumnEnds,
    RowRounding,
    ScaledRows,
    padded_columns,
)
from bignn.nn.sparse import SparseMatrix, csr_with_values, row_of_each_entry
from bignn.ops import pack_signs, unpack_bits

_LARGEST, _LEAST_GRADIENT = 32767.0, 1e-32


class PlainBitKernels:
    """See :class:`bignn.nn.saved_bits.kernels.BitKernels`."""

    def draw_masks(
        self, seed: Tensor, keep: int, among: Tensor | None, like: Tensor, num_bits: int
    ) -> Tensor:
        """See the protocol."""
        if among is None:
            row = pack_signs(torch.ones(1, num_bits, device=like.device))
            among = row.expand(like.shape).contiguous()
        words = among.cpu().numpy().view("uint64")
        drawn = masked.draw_masks(int(seed), keep, words, backend="reference")
        return torch.from_numpy(drawn.view("int64")).to(like.device)

    def round_rows(
        self, pattern: SparseMatrix, source_factor: Tensor, edge_bits: int
    ) -> RowRounding:
        """See the protocol."""
        x = weights_of_entries(pattern, source_factor)
        rounded = round_row_weights(pattern, x, pattern.row_factor, edge_bits)
        scale = rounded.row_scale
        factor = torch.ones_like(scale) if pattern.row_factor is None else pattern.row_factor
        # Exact: the scale is the factor times a power of two. Rows of no weight have q = 0.
        two_to_e = torch.where(scale > 0, factor / scale, 0.0)
        largest = torch.segment_reduce(
            x, "max", offsets=pattern.matrix.crow_indices(), axis=0, unsafe=True, initial=0
        )
        two_to_e = torch.where(largest > 0, two_to_e, 0.0)
        factors = torch.stack([two_to_e, scale], dim=1)
        return RowRounding(pattern, source_factor, factors, rounded.limit)

    def dots(self, words: Tensor, masks: Tensor | None, columns: Tensor, num_bits: int) -> Tensor:
        """See the protocol."""
        found = _signs(words, masks, num_bits) @ _signs(columns, None, num_bits).t()
        return _padded(found).to(torch.int16)

    def sums(self, rounding: RowRounding, dots: Tensor, ends: ColumnEnds, num_bits: int) -> Tensor:
        """See the protocol."""
        pattern = rounding.pattern
        x = weights_of_entries(pattern, rounding.source_factor)
        q = (x * rounding.two_to_e[pattern.rows]).round_().clamp_(max=rounding.limit)
        values = dots[:, : len(ends.scale)].float()
        if ends.offset is not None:
            values = values + ends.offset
        out = csr_with_values(pattern.matrix, q) @ values
        out = out * rounding.row_scale.unsqueeze(1) * ends.scale
        return out if ends.shift is None else out + ends.shift

    def signs_of_sums(
        self, rounding: RowRounding, dots: Tensor, ends: ColumnEnds, num_bits: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See the protocol."""
        h = self.sums(rounding, dots, ends, num_bits)
        inside = pack_signs(torch.where(h.abs() <= 1, 1.0, -1.0))
        means = h.abs().mean(dim=1).clamp_(min=torch.finfo(h.dtype).tiny)
        return pack_signs(h), inside, means

    def binarize_columns(self, h: Tensor, words: Tensor, inside: Tensor, totals: Tensor) -> None:
        """See the protocol."""
        words.copy_(pack_signs(h)[:, 0])
        inside.copy_(pack_signs(torch.where(h.abs() <= 1, 1.0, -1.0))[:, 0])
        totals += h.abs().sum(dim=1)

    def scale_rows(
        self,
        values: Tensor,
        masks: Tensor | None,
        inside: Tensor | None,
        factor: Tensor | None,
        out: ScaledRows,
    ) -> None:
        """See the protocol."""
        if factor is not None:
            values = values * factor.unsqueeze(1)
        for kept in (masks, inside):
            if kept is not None:
                values = torch.where(unpack_bits(kept, values.shape[1]), values, 0.0)
        out.values[:, out.num_columns :] = 0
        for number in range(out.scales.shape[1]):
            begin = number * SCALED_COLUMNS
            part = out.columns(slice(begin, min(begin + SCALED_COLUMNS, out.num_columns)))
            some = values[:, begin : begin + SCALED_COLUMNS]
            most = some.abs().amax(dim=1, keepdim=True)
            # A number divided by a tensor is multiplied by its reciprocal, which rounds twice.
            times = torch.full_like(most, _LARGEST) / most
            times = torch.where(most > _LEAST_GRADIENT, times, 0.0)
            part.values[:, : part.num_columns] = (some * times).round().nan_to_num(0.0).short()
            scale = torch.where(most > _LEAST_GRADIENT, most / _LARGEST, 0.0)
            part.scales.copy_(torch.where(most.isfinite(), scale, torch.nan))

    def column_sums(self, gradient: ScaledRows) -> Tensor:
        """See the protocol."""
        return gradient.floats().sum(dim=0)

    def back_sums(
        self, rounding: RowRounding, gradient: ScaledRows, column_scale: Tensor, sources: slice
    ) -> Tensor:
        """See the protocol."""
        pattern = rounding.pattern
        back = pattern.transposed
        source, target = row_of_each_entry(back), back.col_indices()
        x = rounding.source_factor[source]
        if not pattern.has_ones_only:
            x = back.values() * x
        q = (x * rounding.two_to_e[target]).round_().clamp_(max=rounding.limit)
        values = q * rounding.row_scale[target]
        t = _padded(csr_with_values(back, values) @ gradient.floats() * column_scale)[sources]
        upper = t.to(torch.bfloat16)
        return torch.stack([upper, (t - upper.float()).to(torch.bfloat16)], dim=1)

    def back_matrix(self, signs: Tensor) -> Tensor:
        """See the protocol."""
        return signs

    def to_weight(
        self, t: Tensor, words: Tensor, masks: Tensor | None, num_bits: int
    ) -> Tensor:  # fmt: skip
        """See the protocol."""
        signs = torch.nn.functional.pad(_signs(words, masks, num_bits), (0, -num_bits % 64))
        return torch.stack([part.float().t() @ signs for part in t.unbind(dim=1)])

    def to_input(self, t: Tensor, back_matrix: Tensor) -> Tensor:
        """See the protocol."""
        return t.float().sum(dim=1)[:, : len(back_matrix)] @ back_matrix


def _padded(values: Tensor) -> Tensor:
    columns = values.shape[1]
    return torch.nn.functional.pad(values, (0, padded_columns(columns) - columns))


def _signs(words: Tensor, masks: Tensor | None, num_bits: int) -> Tensor:
    signs = torch.where(unpack_bits(words, num_bits), 1.0, -1.0)
    return signs if masks is None else torch.where(unpack_bits(masks, num_bits), signs, 0.0)

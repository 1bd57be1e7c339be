"""The operations of :class:`bignn.nn.saved_bits.kernels.BitKernels` in plain torch, on any device.

They say what the kernels compute; tests compare them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bignn.kernels import masked
from bignn.nn.edge_rounding import round_row_weights, weights_of_entries
from bignn.nn.saved_bits.kernels import RowRounding
from bignn.nn.sparse import SparseMatrix, csr_with_values, row_of_each_entry
from bignn.ops import pack_signs, unpack_bits


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
        return RowRounding(pattern, source_factor, two_to_e, scale, rounded.limit)

    def dots(self, words: Tensor, masks: Tensor | None, columns: Tensor, num_bits: int) -> Tensor:
        """See the protocol."""
        found = _signs(words, masks, num_bits) @ _signs(columns, None, num_bits).t()
        padded = torch.nn.functional.pad(found, (0, found.shape[1] % 2))
        return padded.to(torch.int16)

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
        x = weights_of_entries(pattern, rounding.source_factor)
        q = (x * rounding.two_to_e[pattern.rows]).round_().clamp_(max=rounding.limit)
        values = dots[:, : len(column_scale)].float()
        if offset is not None:
            values = values + offset
        out = csr_with_values(pattern.matrix, q) @ values
        out = out * rounding.row_scale.unsqueeze(1) * column_scale
        return out if column_shift is None else out + column_shift

    def back_sums(self, rounding: RowRounding, gradient: Tensor, column_scale: Tensor) -> Tensor:
        """See the protocol."""
        pattern = rounding.pattern
        back = pattern.transposed
        source, target = row_of_each_entry(back), back.col_indices()
        x = rounding.source_factor[source]
        if not pattern.has_ones_only:
            x = back.values() * x
        q = (x * rounding.two_to_e[target]).round_().clamp_(max=rounding.limit)
        values = q * rounding.row_scale[target]
        return csr_with_values(back, values) @ gradient * column_scale

    def binarize_columns(self, h: Tensor, words: Tensor, inside: Tensor, totals: Tensor) -> None:
        """See the protocol."""
        words.copy_(pack_signs(h)[:, 0])
        inside.copy_(pack_signs(torch.where(h.abs() <= 1, 1.0, -1.0))[:, 0])
        totals += h.abs().sum(dim=1)

    def mask_rows(
        self, values: Tensor, masks: Tensor | None, inside: Tensor, factor: Tensor, out: Tensor
    ) -> None:
        """See the protocol."""
        kept = inside if masks is None else inside & masks
        is_kept = unpack_bits(kept, values.shape[1])
        out.copy_(torch.where(is_kept, values * factor.unsqueeze(1), 0.0))

    def gradients(
        self, t: Tensor, words: Tensor, masks: Tensor | None, signs: Tensor, *, of_input: bool
    ) -> tuple[Tensor, Tensor | None]:
        """See the protocol."""
        to_weight = t.t() @ _signs(words, masks, signs.shape[1])
        return to_weight, t @ signs if of_input else None


def _signs(words: Tensor, masks: Tensor | None, num_bits: int) -> Tensor:
    signs = torch.where(unpack_bits(words, num_bits), 1.0, -1.0)
    return signs if masks is None else torch.where(unpack_bits(masks, num_bits), signs, 0.0)

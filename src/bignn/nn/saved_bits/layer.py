"""A binary convolution whose forward and backward pass keep bits.

With signs F of a layer's input H and scales β, dropout M, signs B of the weights and scales α:

``out = norm(α ⊙ Â_q (M ⊙ F / (1 - p)) Bᵀ + b)``, Â_q the rounded weights with β in them.

Kept for the backward pass are the bits of F, of ``|H| <= 1`` and the seed of M. All else is made
again: dropout from its seed, rounded weights where they are used, values before batch normalisation
column by column. The gradient of a hidden value is the only matrix of its size: whole numbers of
16 bits with scales. It goes from layer to layer beside torch's graph of gradients, in which a
tensor without memory stands for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bignn.kernels.edge_rounding import TOTAL_BITS
from bignn.kernels.masked import KEEP_SCALE, keep_out_of
from bignn.nn.adjacency import Aggregation, EdgesLike, factored_adjacency
from bignn.nn.batch_norm import BatchNorm
from bignn.nn.edge_rounding import source_factor
from bignn.nn.features import BinaryRows
from bignn.nn.saved_bits.kernels import BitKernels, ColumnEnds, RowRounding, ScaledRows
from bignn.nn.sparse import SparseMatrix
from bignn.nn.tensor_cache import TensorCache
from bignn.ops import pack_signs

# Columns of a word: with batch normalisation, these are made together.
_COLUMNS_AT_ONCE = 64
# Rows are multiplied some at a time, in so many bytes, or in an eighth of those of the gradients.
_BYTES_AT_ONCE = 24 << 20
#: Products of more signs do not fit 16 bits.
MOST_INPUTS = (1 << 15) - 1

# By the β of a first layer, which stays the same from epoch to epoch.
_constant = TensorCache()


@dataclass(eq=False)
class BitConvolution:
    """One call of a convolution on bits.

    Attributes:
        kernels: the operations of the device.
        rows: the layer's input.
        rounding: the edges.
        keep: of :data:`KEEP_SCALE` entries, those that dropout keeps.
        in_part: whether dropout is among the entries that deviate from the usual ones.
        norm: batch normalisation after the layer, in training; or None.

    """

    kernels: BitKernels
    rows: BinaryRows
    rounding: RowRounding
    keep: int = KEEP_SCALE
    in_part: bool = False
    norm: BatchNorm | None = None

    def values(self, signs: Tensor, alpha: Tensor, bias: Tensor | None) -> Tensor:
        """Compute the output as floats [rows, columns]."""
        out: Tensor = _Convolution.apply(self.rows.carrier, signs, alpha, bias, _Pass(self, False))  # type: ignore[no-untyped-call]
        return out

    def binary_rows(self, signs: Tensor, alpha: Tensor, bias: Tensor | None) -> BinaryRows:
        """Compute the output's signs and scales; its floats exist 64 columns at a time."""
        made = _Pass(self, True)
        carrier: Tensor = _Convolution.apply(self.rows.carrier, signs, alpha, bias, made)  # type: ignore[no-untyped-call]
        rows = BinaryRows.of_words(made.words, made.beta, len(signs), carrier, made.inside)
        rows.gradients = made.gradients
        return rows


def convolution_on_bits(
    kernels: BitKernels,
    rows: BinaryRows,
    edges: EdgesLike,
    edge_weight: Tensor | None,
    aggr: Aggregation,
    edge_bits: int,
    *,
    dropout: float,
    in_part: bool,
    is_constant: bool,
    norm: BatchNorm | None,
) -> BitConvolution | None:
    """Make a call of a convolution on bits; None where its numbers do not fit the kernels."""
    if isinstance(edges, SparseMatrix):
        pattern = edges
    else:
        pattern = factored_adjacency(edges, edge_weight, len(rows.beta), aggr)
    has_fewer_bits = pattern.longest_row >> (TOTAL_BITS - edge_bits) > 0
    is_plain = pattern.matrix.dtype == torch.float32 and not has_fewer_bits
    if not is_plain or rows.shape[1] > MOST_INPUTS or (norm is not None and pattern.shape[0] < 2):
        return None

    def build() -> RowRounding:
        return kernels.round_rows(pattern, source_factor(pattern, rows.beta), edge_bits)

    rounding = (
        _constant.get(rows.beta, [pattern.matrix], edge_bits, build) if is_constant else build()
    )
    keep = keep_out_of(dropout)
    return BitConvolution(kernels, rows, rounding, keep, in_part and keep != KEEP_SCALE, norm)


class GradientsBeside:
    """Gradients of a binary output that do not go through torch's graph of gradients.

    They belong to the backward pass in which they were given: one that does not reach the layer
    which made the output leaves them behind, and the next must not add them.
    """

    def __init__(self) -> None:
        self._given: list[ScaledRows] = []
        self._number = -1

    def put(self, gradient: ScaledRows) -> None:
        """Add what a reader of the output gives."""
        self._begin()
        self._given.append(gradient)

    def take(self) -> list[ScaledRows]:
        """Return what this backward pass has given, and forget it."""
        self._begin()
        taken, self._given = self._given, []
        return taken

    def _begin(self) -> None:
        number = torch._C._current_graph_task_id()
        if number != self._number:
            self._number, self._given = number, []


class _Pass:
    """What the forward pass of a convolution leaves for the backward pass.

    Attributes:
        words, inside, beta: a binary output's signs, where gradients pass, and scales.
        gradients: a binary output's gradients, from the layers that read it.

    """

    words: Tensor
    inside: Tensor
    beta: Tensor

    def __init__(self, call: BitConvolution, binarizes: bool) -> None:
        self.call, self.binarizes = call, binarizes
        self.gradients = GradientsBeside()
        self.factor = KEEP_SCALE / call.keep if call.keep != KEEP_SCALE else 1.0
        if call.in_part:
            self.factor *= 2.0
        self.seed: Tensor | None = None
        self.mean: Tensor | None = None
        self.rstd: Tensor | None = None

    def masks(self) -> Tensor | None:
        """Draw what dropout keeps; the same bits in every call."""
        call, rows = self.call, self.call.rows
        if call.keep == KEEP_SCALE:
            return rows.deviating if call.in_part else None
        if self.seed is None:
            device = rows.words.device
            self.seed = torch.empty(1, dtype=torch.int64, device=device).random_()
        among = rows.deviating if call.in_part else None
        return call.kernels.draw_masks(self.seed, call.keep, among, rows.words, rows.shape[1])

    def columns(
        self, masks: Tensor | None, packed: Tensor, ends: ColumnEnds, part: slice
    ) -> Tensor:  # fmt: skip
        """Compute some columns of the output, before batch normalisation."""
        call, rows = self.call, self.call.rows
        dots = call.kernels.dots(rows.words, masks, packed[part], rows.shape[1])
        return call.kernels.sums(call.rounding, dots, ends.columns(part), rows.shape[1])

    def ends(self, signs: Tensor, alpha: Tensor, bias: Tensor | None) -> ColumnEnds:
        """Find what sums of dots are scaled by and what is added to them."""
        offset = None
        if self.call.in_part:
            offset = (signs @ self.call.rows.usual[0]) / self.factor
        return ColumnEnds(alpha.flatten() * self.factor, bias, offset)

    def binarize(self, masks: Tensor | None, packed: Tensor, ends: ColumnEnds) -> None:
        """Compute the signs of the output, where gradients pass it, and its scales."""
        call, rows, num_columns = self.call, self.call.rows, len(packed)
        kernels, num_bits = call.kernels, rows.shape[1]
        if call.norm is None:
            dots = kernels.dots(rows.words, masks, packed, num_bits)
            found = kernels.signs_of_sums(call.rounding, dots, ends, num_bits)
            self.words, self.inside, means = found
        else:
            num_rows, num_words = call.rounding.pattern.shape[0], -(-num_columns // 64)
            self.words, self.inside = packed.new_empty(2, num_rows, num_words).unbind()
            totals = ends.scale.new_zeros(num_rows)
            for number, part in enumerate(_parts(num_columns, _COLUMNS_AT_ONCE)):
                values = self.columns(masks, packed, ends, part)
                self.normalize(values, part)
                words, inside = self.words[:, number], self.inside[:, number]
                kernels.binarize_columns(values, words, inside, totals)
            means = (totals / num_columns).clamp_(min=torch.finfo(totals.dtype).tiny)
        self.beta = means.unsqueeze(1)

    def output_gradient(self, given: Tensor) -> ScaledRows:
        """Return the output's gradient; ``given`` is the share that torch's graph brings."""
        beside = self.gradients.take()
        if len(beside) == 1 and given.stride() == (0, 0):  # stands for the one beside
            return beside[0]
        for other in beside:
            given = given + other.floats()
        scaled = ScaledRows.empty(given.shape[0], given.shape[1], given.device)
        self.call.kernels.scale_rows(given.contiguous(), None, None, None, scaled)
        return scaled

    def normalize(self, values: Tensor, part: slice) -> None:
        """Normalise some columns in place, keeping their statistics."""
        norm = self.call.norm
        assert norm is not None
        assert self.mean is not None
        assert self.rstd is not None
        variance, mean = torch.var_mean(values, dim=0, correction=0)
        self.mean[part], self.rstd[part] = mean, (variance + norm.eps).rsqrt()
        values.sub_(mean).mul_(self.rstd[part])
        rows, momentum = len(values), norm.momentum
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert momentum is not None
        norm.running_mean[part].lerp_(mean, momentum)
        norm.running_var[part].lerp_(variance * (rows / (rows - 1)), momentum)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        carrier: Tensor | None,
        signs: Tensor,
        alpha: Tensor,
        bias: Tensor | None,
        made: _Pass,
    ) -> Tensor:
        call = made.call
        num_columns, num_rows = len(signs), call.rounding.pattern.shape[0]
        ctx.made = made
        ctx.save_for_backward(signs, alpha, bias)
        packed, masks = pack_signs(signs), made.masks()
        ends = made.ends(signs, alpha, bias)
        if call.norm is not None:
            made.mean, made.rstd = alpha.new_empty(2, num_columns).unbind()
            if call.norm.num_batches_tracked is not None:
                call.norm.num_batches_tracked.add_(1)
        if not made.binarizes:
            out = made.columns(masks, packed, ends, slice(None))
            if call.norm is not None:
                made.normalize(out, slice(None))
            return out
        made.binarize(masks, packed, ends)
        # Stands for the output in torch's graph of gradients; it takes no memory.
        return alpha.new_zeros(()).expand(num_rows, num_columns)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        made, call = ctx.made, ctx.made.call
        signs, alpha, bias = ctx.saved_tensors
        masks, packed = made.masks(), pack_signs(signs)
        kernels, rows, (num_columns, num_inputs) = call.kernels, call.rows, signs.shape
        ends = made.ends(signs, alpha, bias)
        gradient, scale = made.output_gradient(grads[0]), ends.scale
        if call.norm is not None:
            _through_norm(made, masks, packed, ends, gradient)
            scale = scale * made.rstd
        to_bias = None
        if bias is not None:
            to_bias = kernels.column_sums(gradient)
            if call.norm is not None:
                to_bias *= made.rstd
        wants_input = ctx.needs_input_grad[0]
        num_sources, device = call.rounding.pattern.shape[1], gradient.values.device
        total = alpha.new_zeros(num_columns)
        both: Tensor | None = None
        to_input = beside = None
        if wants_input:
            factor, back_matrix = rows.beta.flatten().reciprocal(), kernels.back_matrix(signs)
            if rows.gradients is None:
                to_input = alpha.new_empty(num_sources, num_inputs)
            else:
                to_input = alpha.new_zeros(()).expand(num_sources, num_inputs)
                beside = ScaledRows.empty(num_sources, num_inputs, device)
                rows.gradients.put(beside)
        # Of a row: T, then the signs of its input in bfloat16 or their gradient in floats.
        row_bytes = 4 * gradient.values.shape[1] + 4 * max(32 * rows.words.shape[1], num_inputs)
        own_bytes = gradient.values.nbytes + (0 if beside is None else beside.values.nbytes)
        at_once = max(_BYTES_AT_ONCE, own_bytes // 8) // row_bytes
        for part in _parts(num_sources, max(1, at_once)):
            kept = None if masks is None else masks[part]
            t = kernels.back_sums(call.rounding, gradient, scale, part)
            own = kernels.to_weight(t, rows.words[part], kept, num_inputs)
            both = own if both is None else both.add_(own)
            if call.in_part:
                total += t.float().sum(dim=(0, 1))[:num_columns]
            if to_input is None:
                continue
            back = kernels.to_input(t, back_matrix)
            if beside is not None:
                out = beside.rows(part)
            else:
                out = ScaledRows.empty(len(back), num_inputs, device)
            kernels.scale_rows(back, kept, rows.inside[part], factor[part], out)
            if beside is None:
                to_input[part] = out.floats()
        to_weight = torch.zeros_like(signs)
        if both is not None:
            to_weight = both.sum(dim=0)[:num_columns, :num_inputs]
        if call.in_part:
            to_weight += torch.outer(total / made.factor, rows.usual[0])
        # The gradient of α B is known through B; both are of the same products.
        smallest = torch.finfo(alpha.dtype).tiny
        through = (to_weight * signs).sum(dim=1) / alpha.flatten().clamp(min=smallest)
        to_alpha = through.view_as(alpha) if ctx.needs_input_grad[2] else None
        return to_input, to_weight, to_alpha, to_bias, None


def _through_norm(
    made: _Pass, masks: Tensor | None, packed: Tensor, ends: ColumnEnds, gradient: ScaledRows
) -> None:
    """Turn the gradient of normalised values into that of the values, but for their factor."""
    assert made.mean is not None
    assert made.rstd is not None
    for part in _parts(len(packed), _COLUMNS_AT_ONCE):
        values = made.columns(masks, packed, ends, part)
        values.sub_(made.mean[part]).mul_(made.rstd[part])
        columns = gradient.columns(part)
        some = columns.floats()
        along = (values * some).mean(dim=0)
        some = values.mul_(-along).add_(some).sub_(some.mean(dim=0))
        made.call.kernels.scale_rows(some, None, None, None, columns)


def _parts(length: int, size: int) -> Iterator[slice]:
    for begin in range(0, length, size):
        yield slice(begin, min(begin + size, length))

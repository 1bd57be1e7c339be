"""Sums over neighbours whose weights are whole numbers of a few bits, as packed models take them.

For row i with entries e from sources j, dots ``D_j = F_j · B`` and scales ``β_j``, in float32, one
rounding per operation (docs/format.md, "Exact sums"):

- ``x_e = w_e (d_j β_j)``, d the matrix's column factor;
- ``b = edge_bits``, less 1 while ``count · 2^b >= 2^31``; ``e_i = b - 1 - floor(log2 max x)``;
- ``q_e = min(rint(x_e 2^e_i), 2^b - 1)``, all 0 if ``max x < 2^-60``;
- the sum is ``(Σ_e q_e D_j) (s_i 2^-e_i)``, s the matrix's row factor.

Gradients pass straight through: ``∂L/∂D_j = Σ_i q_ij (s_i 2^-e_i) g_i``, and none reaches β or w.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bignn.config import BinarizeMode
from bignn.config.options import EDGE_BITS
from bignn.kernels import default_backend, native
from bignn.kernels.edge_rounding import SMALLEST_WEIGHT, TOTAL_BITS
from bignn.nn.adjacency import Aggregation, EdgesLike, factored_adjacency
from bignn.nn.packed_arithmetic import bounded, power_of_two
from bignn.nn.sparse import SparseMatrix, as_arrays, multiply
from bignn.nn.tensor_cache import TensorCache

_SMALLEST_WEIGHT = float(SMALLEST_WEIGHT)  # Python's number, so that tensors stay float32

# Whole numbers below this are exact in float32, and so are their sums.
_EXACT_FLOAT32 = 1 << 24

# By the β of a first layer, which stays the same from epoch to epoch.
_constant = TensorCache()


def edge_bits_in_use(edge_bits: int | None, binarize: BinarizeMode) -> int | None:
    """Check ``edge_bits``; None where features and weights are not both binary."""
    if edge_bits is None:
        return None
    EDGE_BITS.check("edge_bits", edge_bits)
    return int(edge_bits) if binarize == "both" else None


def edge_bits_now(
    edge_bits: int | None, weight: Tensor, edge_weight: Tensor | None = None
) -> int | None:
    """Return the bits that a layer with these weights rounds to in this call.

    None for sums of floats: in a compiled model, in half precision, which is too coarse for whole
    numbers, and where edge weights are learned.
    """
    is_half = weight.dtype in (torch.float16, torch.bfloat16)
    learns = edge_weight is not None and edge_weight.requires_grad and torch.is_grad_enabled()
    return None if is_half or learns or torch.compiler.is_compiling() else edge_bits


@dataclass(frozen=True)
class RoundedEdges:
    """Edges with rounded weights.

    Attributes:
        pattern: the places of the entries.
        q: whole numbers as float32, [entries] or [entries, heads].
        row_scale: what each row's sum is multiplied by, [rows] or [rows, heads].
        limit: the largest that a q may be.

    """

    pattern: SparseMatrix
    q: Tensor
    row_scale: Tensor
    limit: int

    def is_wide(self, num_inputs: int) -> bool:
        """Whether sums of dots of ``num_inputs`` signs may need more digits than float32 has."""
        if self.pattern.longest_row * self.limit * num_inputs < _EXACT_FLOAT32:
            return False
        # What is being recorded cannot wait for a number.
        is_recorded = self.q.is_cuda and torch.cuda.is_current_stream_capturing()
        return is_recorded or self._most * num_inputs >= _EXACT_FLOAT32

    @cached_property
    def _most(self) -> int:
        """The largest sum of a row's whole numbers."""
        offsets = self.pattern.matrix.crow_indices()
        q = self.q.double()
        sums = torch.segment_reduce(q, "sum", offsets=offsets, axis=0, unsafe=True)
        return int(sums.max())

    def sums(self, dots: Tensor, *, num_inputs: int | None) -> Tensor:
        """Compute ``(Σ_e q_e D_j) row_scale_i`` [rows, columns] for weights without heads.

        Args:
            dots: D [sources, columns].
            num_inputs: number of signs that each dot adds up, for exact sums; None for sums in
                float32, however many digits they have.

        """
        if num_inputs is None:
            return self.pattern.weighted(self._scaled, dots.float())
        wide = self.is_wide(num_inputs)
        if not (torch.is_grad_enabled() and dots.requires_grad):
            rows, scale = self.pattern.matrix, self.row_scale
            largest = num_inputs * self.limit if wide else 0
            return multiply(rows, dots.float(), values=self.q, scale=scale, largest=largest)
        values = dots.to(torch.float64 if wide else torch.float32)
        total = self.pattern.weighted(self.q.to(values.dtype), values)
        return total.float() * self.row_scale.unsqueeze(-1)

    @cached_property
    def _scaled(self) -> Tensor:
        """The values ``q_e row_scale_i``, which save a product with each sum."""
        return self.row_scale.index_select(0, self.pattern.rows).mul_(self.q)


def rounded_edges(
    edges: EdgesLike,
    edge_weight: Tensor | None,
    beta: Tensor,
    aggr: Aggregation,
    edge_bits: int,
    *,
    is_constant: bool,
) -> RoundedEdges:
    """Round the weights of a graph's edges, with β [sources, 1] in them.

    Args:
        edges: the graph; a matrix's own values and factors are used as they are.
        edge_weight: weights [E] of edges [2, E].
        beta: scales of the sources.
        aggr: how neighbours are weighed where edges are not a matrix.
        edge_bits: b.
        is_constant: whether β stays the same from call to call, so that results are worth keeping.

    """
    if isinstance(edges, SparseMatrix):
        pattern = edges
    else:
        pattern = factored_adjacency(edges, edge_weight, len(beta), aggr)

    def build() -> RoundedEdges:
        if _is_native(pattern, beta):
            return _round_natively(pattern, beta, edge_bits)
        x = weights_of_entries(pattern, source_factor(pattern, beta))
        return round_row_weights(pattern, x, pattern.row_factor, edge_bits)

    if is_constant:
        return _constant.get(beta, [pattern.matrix], edge_bits, build)
    with torch.no_grad():
        return build()


def round_row_weights(
    pattern: SparseMatrix, x: Tensor, row_factor: Tensor | None, edge_bits: int
) -> RoundedEdges:
    """Round the weights x of all entries, [entries] or [entries, heads], row by row.

    As :func:`bignn.kernels.edge_rounding.round_row_weights`; without a row factor it is 1.
    """
    offsets = pattern.matrix.crow_indices()
    largest = torch.segment_reduce(x, "max", offsets=offsets, axis=0, unsafe=True, initial=0)
    num_bits: int | Tensor = edge_bits
    if pattern.longest_row >> (TOTAL_BITS - edge_bits):  # some rows have fewer bits
        count = offsets.diff().view(-1, *[1] * (x.ndim - 1))
        num_bits = torch.full_like(count, edge_bits)
        for _ in range(edge_bits):
            num_bits -= ((num_bits > 1) & (count >> (TOTAL_BITS - num_bits) != 0)).long()
        num_bits = num_bits.int()
    counts = largest >= _SMALLEST_WEIGHT
    floor_log2 = (largest.view(torch.int32) >> 23) - 127
    exponent = torch.where(counts, num_bits - 1 - floor_log2, 0)
    two_to_e = torch.where(counts, power_of_two(exponent), 0.0)
    q = (x * two_to_e[pattern.rows]).round_()
    if isinstance(num_bits, Tensor):
        q = torch.minimum(q, (power_of_two(num_bits) - 1)[pattern.rows])
    else:
        q.clamp_(max=float((1 << num_bits) - 1))
    scale = power_of_two(-exponent)
    if row_factor is not None:
        scale = row_factor * scale
    return RoundedEdges(pattern, q, scale, (1 << edge_bits) - 1)


def _is_native(pattern: SparseMatrix, beta: Tensor) -> bool:
    """Whether native code can round the weights: one row after the other, in one pass."""
    matrix = pattern.matrix
    in_float32 = matrix.values().dtype == torch.float32
    on_cpu = beta.device.type == "cpu" and matrix.crow_indices().dtype == torch.int64
    return on_cpu and in_float32 and native.is_available()


def _round_natively(pattern: SparseMatrix, beta: Tensor, edge_bits: int) -> RoundedEdges:
    matrix = pattern.matrix
    weights = None if pattern.has_ones_only else matrix.values()
    factors = beta.detach().float().flatten(), pattern.column_factor, pattern.row_factor
    arrays = as_arrays(matrix.crow_indices(), matrix.col_indices(), weights, *factors)
    made = native.round_rows(*arrays, edge_bits=edge_bits, isa=default_backend())
    q, row_scale = map(torch.from_numpy, made)
    return RoundedEdges(pattern, q, row_scale, (1 << edge_bits) - 1)


def source_factor(pattern: SparseMatrix, beta: Tensor) -> Tensor:
    """Compute ``d_j β_j`` of all sources, of scales β [sources, 1]."""
    factor = beta.detach().float().flatten()
    if pattern.column_factor is not None:
        factor = pattern.column_factor * factor
    return bounded(factor)


def weights_of_entries(pattern: SparseMatrix, factor: Tensor) -> Tensor:
    """Compute x of all entries, of the sources' factors [sources]."""
    x = factor[pattern.matrix.col_indices()]
    return x if pattern.has_ones_only else bounded(pattern.matrix.values().float() * x)

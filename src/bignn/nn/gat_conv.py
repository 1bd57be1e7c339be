"""The convolution of GAT and Bi-GAT: neighbours weighed by attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from bignn.config import BinarizeMode, DropMode, SteRule
from bignn.config.options import BELOW_ONE, DEFAULT_EDGE_BITS
from bignn.errors import InputError, input_error
from bignn.kernels import pack_rows
from bignn.kernels.attention import whole_scores
from bignn.nn.adjacency import Aggregation, EdgesLike, edge_weights, normalized_adjacency
from bignn.nn.attention import powers_of_rows, softmax_of_rows, weighted_sum
from bignn.nn.batch_norm import BatchNorm
from bignn.nn.edge_rounding import edge_bits_in_use, edge_bits_now, round_row_weights
from bignn.nn.features import BinaryRows
from bignn.nn.halo import with_halo
from bignn.nn.linear import FeaturesLike, Linear
from bignn.nn.packed_arithmetic import (
    attention_of_scores,
    bounded,
    exact_scores,
    factor_and_mean,
    folded,
)
from bignn.nn.sparse import SparseMatrix


class GATConv(nn.Module):
    r"""``h'_i = Σ_{j ∈ N(i) ∪ {i}} α_ij z_j + b`` with ``z_j = W̃ ⊛ h̃_j`` (Eq. bigat-conv).

    Per head, ``α_ij = softmax_j(LeakyReLU(a_dst · z_i + a_src · z_j))``: Eq. gat-att with ``Wh``
    replaced by its binary version and a split in two. The attention vectors stay float. Edge
    weights are ignored.

    With ``binarize="none"`` it computes what ``torch_geometric.nn.GATConv`` does and loads its
    ``state_dict``.

    Args:
        in_channels: d_in.
        out_channels: d_out, per head.
        heads: H.
        concat: heads side by side, d_out · H columns; otherwise their mean, d_out columns.
        negative_slope: of the LeakyReLU.
        attention_dropout: probability of dropping a neighbour's attention while training.
        bias: adds b.
        binarize, ste, dropout, drop, balance, scale_gradient: see :class:`bignn.nn.Linear`.
        edge_bits: bits that neighbours' weights (β included) are rounded to, 2 to 8, as packed
            models round them (:mod:`bignn.nn.edge_rounding`): the packed layer then sums the same
            whole numbers. None for float weights. Ignored unless features and weights are binary
            and the slope is in 0 to 1; compiled models and those in half precision are summed as
            floats.

    Shapes: x [N, d_in], edge_index [2, E] (or another form of
    :data:`bignn.nn.adjacency.EdgesLike`) -> [N, H · d_out] or [N, d_out].

    """

    aggr: Aggregation = "ones_self"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        attention_dropout: float = 0.0,
        bias: bool = True,
        binarize: BinarizeMode = "none",
        ste: SteRule = "input",
        dropout: float = 0.0,
        drop: DropMode = "all",
        balance: bool = False,
        scale_gradient: bool = True,
        edge_bits: int | None = DEFAULT_EDGE_BITS,
    ) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__()
        if heads < 1:
            raise input_error("heads", "at least 1", heads)
        BELOW_ONE.check("attention_dropout", attention_dropout)
        self.heads = heads
        self.out_channels = out_channels
        self.concat = concat
        self.negative_slope = negative_slope
        self.attention_dropout = attention_dropout
        self.edge_bits = edge_bits_in_use(edge_bits, binarize)
        self.lin = Linear(
            in_channels,
            heads * out_channels,
            bias=False,
            binarize=binarize,
            ste=ste,
            dropout=dropout,
            drop=drop,
            balance=balance,
            scale_gradient=scale_gradient,
        )
        self.att_src = nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_channels))
        width = heads * out_channels if concat else out_channels
        self.bias = nn.Parameter(torch.empty(width)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights and set the bias to 0."""
        self.lin.reset_parameters()
        for vector in (self.att_src, self.att_dst):
            if self.lin.binarization.weights:
                # Even attention at first: random weights of neighbours are noise that binary nets,
                # which start from ±1, take longer to get over.
                nn.init.zeros_(vector)
            else:
                nn.init.xavier_uniform_(vector)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(
        self,
        x: FeaturesLike,
        edge_index: EdgesLike,
        edge_weight: Tensor | None = None,
        *,
        norm: BatchNorm | None = None,
    ) -> Tensor:
        """Compute the layer's output, see the class.

        With ``edge_bits``, batch normalisation ``norm`` after the layer is folded into it.
        """
        edge_bits = edge_bits_now(self.edge_bits, self.lin.weight)
        x = with_halo(x, edge_index, self.lin, rounds=edge_bits is not None)
        # The largest source has a row's largest score only if the slope is not negative, and packed
        # models have none above 1.
        if edge_bits is not None and 0 <= self.negative_slope <= 1:
            return self._rounded(x, edge_index, edge_bits, norm).to(self.att_src.dtype)
        z: Tensor = self.lin(x).unflatten(-1, (self.heads, self.out_channels))
        if z.dtype in (torch.float16, torch.bfloat16):  # too coarse for sums over neighbours
            z = z.float()
        to_others, to_self = (z * self.att_src).sum(dim=-1), (z * self.att_dst).sum(dim=-1)
        if torch.compiler.is_compiling() and not isinstance(edge_index, SparseMatrix):
            out = self._by_scatter(edge_index, z, to_others, to_self)
        else:
            if not isinstance(edge_index, SparseMatrix):
                edge_index = normalized_adjacency(edge_index, None, len(z), aggr=self.aggr)
            column = edge_index.matrix.col_indices()
            scores = self._scores(to_others[column] + to_self[edge_index.rows])
            attention = softmax_of_rows(edge_index, scores)
            # All ones, except in sampled subgraphs, where they correct for the sampling.
            attention = attention * edge_index.matrix.values().to(z.dtype).unsqueeze(-1)
            out = weighted_sum(edge_index, self._dropped(attention), z)
        out = out.flatten(1) if self.concat else out.mean(dim=1)
        if self.att_src.dtype in (torch.float16, torch.bfloat16):  # a model in half precision
            out = out.to(self.att_src.dtype)
        out = out if self.bias is None else out + self.bias
        return out if norm is None else norm(out)

    def _rounded(
        self, x: FeaturesLike, edge_index: EdgesLike, edge_bits: int, norm: BatchNorm | None
    ) -> Tensor:
        """Compute the layer's output with rounded weights ``α_ij β_j``.

        Gradients reach the scores through the weights as they were before rounding.
        """
        rows = self.lin.binary_rows(x)
        pattern = edge_index
        if not isinstance(pattern, SparseMatrix):
            pattern = normalized_adjacency(pattern, None, len(rows.beta), aggr=self.aggr)
        dots, alpha = self.lin.sign_product(rows)
        shape = (-1, self.heads, self.out_channels)
        dots, alpha = dots.float().view(shape), alpha.float().view(shape)
        column = pattern.matrix.col_indices()
        beta = rows.beta.float()
        learns = torch.is_grad_enabled() and any(
            t.requires_grad for t in (dots, alpha, self.att_src, self.att_dst)
        )
        soft = None
        if learns or self.training:
            p, total = self._powers(pattern, dots * beta.unsqueeze(-1) * alpha)
            soft = p / total[pattern.rows] * beta[column]
            share = total.detach().reciprocal()
        with torch.no_grad():
            if not self.training:
                p, share = self._exact_powers(pattern, rows)
            # All ones, except in sampled subgraphs, where they correct for the sampling.
            correction = pattern.matrix.values().unsqueeze(-1)
            x_of_entries = bounded(p.detach() * correction * beta[column])
            edges = round_row_weights(pattern, x_of_entries, share, edge_bits)
        weights = edges.q
        if learns and soft is not None:
            unrounded = soft * correction / edges.row_scale[pattern.rows]
            weights = weights + (unrounded - unrounded.detach())
        weights = self._dropped(weights)
        if not self.training and edges.is_wide(self.lin.in_channels):
            weights, dots = weights.double(), dots.double()
        sums = weighted_sum(pattern, weights, dots).float() * edges.row_scale.unsqueeze(-1)
        if self.concat:
            scale, shift = folded(alpha.flatten(1), self.bias, norm)
            return sums.flatten(1) * scale + shift
        total_of_heads = sums[:, 0] * alpha[:, 0]
        for head in range(1, self.heads):
            total_of_heads = total_of_heads + sums[:, head] * alpha[:, head]
        one_of_heads = torch.full((), 1 / self.heads, device=sums.device)
        shift = sums.new_zeros(()) if self.bias is None else self.bias
        if norm is not None:
            factor, _ = factor_and_mean(norm)
            one_of_heads, shift = (factor / self.heads).float(), folded(alpha, shift, norm)[1]
        return total_of_heads * one_of_heads + shift

    def _powers(self, pattern: SparseMatrix, z: Tensor) -> tuple[Tensor, Tensor]:
        """Compute ``exp(score - largest)`` [entries, heads] and its sums over rows."""
        vectors = self.att_src.float(), self.att_dst.float()
        to_others, to_self = ((z * vector).sum(dim=-1) for vector in vectors)
        scores = self._scores(to_others[pattern.matrix.col_indices()] + to_self[pattern.rows])
        return powers_of_rows(pattern, scores)

    def _exact_powers(self, pattern: SparseMatrix, rows: BinaryRows) -> tuple[Tensor, Tensor]:
        """Compute the powers and one over their sums as packed models do, to the last bit."""
        signs, alpha = (t.detach().float().cpu().numpy() for t in self.lin.binary_weight())
        words = pack_rows(signs)
        scores: list[Tensor] = []
        for vectors in (self.att_src, self.att_dst):
            of_heads = vectors.detach()[0].float().cpu().numpy()
            whole = whole_scores(words, self.lin.in_channels, alpha[:, 0], of_heads)
            if whole is None:
                raise InputError("scales of a layer and its attention multiply out of range")
            values, sigma = (torch.from_numpy(part).to(rows.signs.device) for part in whole)
            scores.append(exact_scores(rows.signs, values, sigma, rows.beta.float()))
        source, target = scores
        slope = float(self.negative_slope)
        return attention_of_scores(pattern, source, target[: pattern.shape[0]], slope)

    def _scores(self, sums: Tensor) -> Tensor:
        return functional.leaky_relu(sums, self.negative_slope)

    def _dropped(self, attention: Tensor) -> Tensor:
        return functional.dropout(attention, self.attention_dropout, self.training)

    def _by_scatter(self, edges: Tensor, z: Tensor, to_others: Tensor, to_self: Tensor) -> Tensor:
        """Compute the sums with shapes that do not depend on the data, for compiled models."""
        if edges.layout != torch.strided:
            raise input_error(
                "edge_index", "an edge list [2, E] in a compiled model", "a sparse matrix"
            )
        present, own = edge_weights("ones_self", edges, None, len(z), z.dtype)
        loops = torch.arange(len(z), device=z.device)
        column, row = torch.cat([edges[0], loops]), torch.cat([edges[1], loops])
        weight = torch.cat([present, own]).unsqueeze(-1)
        scores = self._scores(to_others[column] + to_self[row])
        # Replaced self-loops may hold the row's largest score, which only shifts the others.
        index = row.unsqueeze(-1).expand_as(scores)
        largest = torch.zeros_like(to_self).scatter_reduce(
            0, index, scores.detach(), "amax", include_self=False
        )
        powers = (scores - largest[row]).exp() * weight
        attention = powers / torch.zeros_like(to_self).index_add(0, row, powers)[row]
        messages = self._dropped(attention).unsqueeze(-1) * z[column]
        return torch.zeros_like(z).index_add(0, row, messages)

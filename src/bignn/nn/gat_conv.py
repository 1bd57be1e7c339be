"""The convolution of GAT and Bi-GAT: neighbours weighed by attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from bignn.config import BinarizeMode, DropMode, SteRule
from bignn.config.options import BELOW_ONE
from bignn.errors import input_error
from bignn.nn.adjacency import Aggregation, EdgesLike, edge_weights, normalized_adjacency
from bignn.nn.attention import softmax_of_rows, weighted_sum
from bignn.nn.linear import FeaturesLike, Linear
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
        self, x: FeaturesLike, edge_index: EdgesLike, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Compute the layer's output, see the class."""
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
        return out if self.bias is None else out + self.bias

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

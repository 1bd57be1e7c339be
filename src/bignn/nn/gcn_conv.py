"""The graph convolution of GCN and Bi-GCN."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn

from bignn.errors import input_error
from bignn.nn.adjacency import Edges, Norm, aggregate
from bignn.nn.linear import Features, Linear, LinearOptions


class GCNConv(nn.Module):
    r"""``H' = Â (H̃ W̃) + b`` with ``Â = D̂^{-1/2} (A + I) D̂^{-1/2}`` (Eq. H-ip).

    Node-wise: ``h'_i = Σ_{j ∈ N(i) ∪ {i}} â_ij z_j + b`` with z from :class:`bignn.nn.Linear`.

    With ``norm="mean_self"`` the sum is the mean over the neighbours and the node itself, ``â_ij =
    1 / (|N(i)| + 1)``: the paper's inductive GCN, whose weights need no degrees but the node's own.

    With ``binarize="none"`` and ``norm="gcn"`` it computes what ``torch_geometric.nn.GCNConv`` does
    and loads its ``state_dict``. Differs from the paper: there is a bias, float, added after the
    aggregation, as in the paper's public code; the paper's equations and sizes leave it out.

    Args:
        in_channels: d_in.
        out_channels: d_out.
        norm: ``"gcn"`` or ``"mean_self"``.
        bias: adds b.
        options: ``binarize``, ``ste``, ``dropout``, ``drop``, ``balance``, ``scale_gradient``
            of :class:`bignn.nn.Linear`.

    Shapes: x [N, d_in], edge_index [2, E] (or another form of
    :data:`bignn.nn.adjacency.Edges`), edge_weight [E] -> [N, d_out].

    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        norm: Norm = "gcn",
        bias: bool = True,
        **options: Unpack[LinearOptions],
    ) -> None:
        super().__init__()
        if norm not in ("gcn", "mean_self"):
            raise input_error("norm", "'gcn' or 'mean_self'", repr(norm))
        self.norm: Norm = norm
        self.lin = Linear(
            in_channels,
            out_channels,
            bias=False,
            **options,
        )
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new weights and zeroes the bias."""
        self.lin.reset_parameters()
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Features, edge_index: Edges, edge_weight: Tensor | None = None) -> Tensor:
        """See the class."""
        out = aggregate(edge_index, edge_weight, self.lin(x), self.norm)
        return out if self.bias is None else out + self.bias

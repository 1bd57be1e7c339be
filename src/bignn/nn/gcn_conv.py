"""The graph convolution of GCN and Bi-GCN."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bignn.config import BinarizeMode, DropMode, SteRule
from bignn.config.options import DEFAULT_EDGE_BITS
from bignn.errors import input_error
from bignn.nn.adjacency import Aggregation, EdgesLike, aggregate
from bignn.nn.batch_norm import BatchNorm, trains_on_bits
from bignn.nn.edge_rounding import edge_bits_in_use, edge_bits_now, rounded_edges
from bignn.nn.features import BinaryRows
from bignn.nn.halo import PartMatrix, with_halo
from bignn.nn.linear import FeaturesLike, Linear
from bignn.nn.packed_arithmetic import folded, scale_and_shift
from bignn.nn.saved_bits.kernels import kernels_for
from bignn.nn.saved_bits.layer import BitConvolution, convolution_on_bits

_AGGREGATIONS = ("gcn", "mean_self", "gcn_improved", "gcn_plain", "weighted_sum")


class GCNConv(nn.Module):
    r"""``H' = Â (H̃ W̃) + b`` with ``Â = D̂^{-1/2} (A + I) D̂^{-1/2}`` (Eq. H-ip).

    Node-wise: ``h'_i = Σ_{j ∈ N(i) ∪ {i}} â_ij z_j + b`` with z from :class:`bignn.nn.Linear`.

    With ``aggr="mean_self"`` the sum is the mean over the neighbours and the node itself, ``â_ij =
    1 / (|N(i)| + 1)``: the paper's inductive GCN, whose weights need no degrees but the node's own.

    With ``binarize="none"`` and ``aggr="gcn"`` it computes what ``torch_geometric.nn.GCNConv`` does
    and loads its ``state_dict``. Differs from the paper: there is a bias, float, added after the
    aggregation, as in the paper's public code; the paper's equations and sizes leave it out.

    Args:
        in_channels: d_in.
        out_channels: d_out.
        aggr: ``"gcn"``, ``"mean_self"``, or PyG's other options: ``"gcn_improved"``,
            ``"gcn_plain"`` (no self-loops added), ``"weighted_sum"`` (not normalised); see
            :func:`bignn.nn.adjacency.edge_weights`.
        bias: adds b.
        binarize, ste, dropout, drop, balance, scale_gradient: see :class:`bignn.nn.Linear`.
        edge_bits: bits that neighbours' weights (β included) are rounded to, 2 to 8, as packed
            models round them (:mod:`bignn.nn.edge_rounding`): the packed layer then sums the same
            whole numbers. None for float weights. Ignored unless features and weights are binary;
            compiled models, those in half precision and learned edge weights are summed as floats.

    Shapes: x [N, d_in], edge_index [2, E] (or another form of
    :data:`bignn.nn.adjacency.EdgesLike`), edge_weight [E] -> [N, d_out].

    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        aggr: Aggregation = "gcn",
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
        if aggr not in _AGGREGATIONS:
            raise input_error("aggr", f"one of {list(_AGGREGATIONS)}", repr(aggr))
        self.aggr: Aggregation = aggr
        self.edge_bits = edge_bits_in_use(edge_bits, binarize)
        self.lin = Linear(
            in_channels,
            out_channels,
            bias=False,
            binarize=binarize,
            ste=ste,
            dropout=dropout,
            drop=drop,
            balance=balance,
            scale_gradient=scale_gradient,
        )
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights and set the bias to 0."""
        self.lin.reset_parameters()
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
        on_bits = None
        if not isinstance(edge_index, PartMatrix):  # whose other rows are sent by themselves
            on_bits = self._on_bits(x, edge_index, edge_weight, norm)
        if on_bits is not None:
            return on_bits.values(*self._binary_parameters())
        edge_bits = edge_bits_now(self.edge_bits, self.lin.weight, edge_weight)
        x = with_halo(x, edge_index, self.lin, rounds=edge_bits is not None)
        if edge_bits is not None:
            rows = self.lin.binary_rows(x)
            edges = rounded_edges(
                edge_index, edge_weight, rows.beta, self.aggr, edge_bits,
                is_constant=rows is x,
            )  # fmt: skip
            dots, alpha = self.lin.sign_product(rows)
            sums = edges.sums(dots, num_inputs=None if self.training else self.lin.in_channels)
            scale, shift = folded(alpha, self.bias, norm)
            return scale_and_shift(sums, scale, shift).to(self.lin.weight.dtype)
        out = aggregate(edge_index, edge_weight, self.lin(x), self.aggr)
        out = out if self.bias is None else out + self.bias
        return out if norm is None else norm(out)

    def to_binary_rows(
        self,
        x: FeaturesLike,
        edge_index: EdgesLike,
        edge_weight: Tensor | None = None,
        *,
        norm: BatchNorm | None = None,
    ) -> BinaryRows | None:
        """Compute the signs and scales of the output, normalised in training, and no floats of it.

        None where the layer cannot: training keeps bits on a GPU, where weights are rounded
        (:mod:`bignn.nn.saved_bits`).
        """
        on_bits = self._on_bits(x, edge_index, edge_weight, norm)
        return None if on_bits is None else on_bits.binary_rows(*self._binary_parameters())

    def _binary_parameters(self) -> tuple[Tensor, Tensor, Tensor | None]:
        return *self.lin.binary_weight(), self.bias

    def _on_bits(
        self,
        x: FeaturesLike,
        edges: EdgesLike,
        edge_weight: Tensor | None,
        norm: BatchNorm | None,
    ) -> BitConvolution | None:
        """Return this call as one on bits; None where it is one of floats."""
        weight = self.lin.weight
        edge_bits = edge_bits_now(self.edge_bits, weight, edge_weight)
        in_half = torch.is_autocast_enabled(weight.device.type)
        if not self.training or edge_bits is None or not torch.is_grad_enabled() or in_half:
            return None
        kernels = kernels_for(weight.device)
        if kernels is None or (norm is not None and not trains_on_bits(norm)):
            return None
        if isinstance(edges, PartMatrix):  # rows of other parts come with gradients of floats
            return None
        rows = self.lin.bits_of(x)
        if rows is None:
            return None
        return convolution_on_bits(
            kernels, rows, edges, edge_weight, self.aggr, edge_bits,
            dropout=self.lin.dropout, in_part=self.lin.drop == "present",
            is_constant=rows is x, norm=norm,
        )  # fmt: skip

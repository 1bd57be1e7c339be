"""The convolution of GraphSAGE and Bi-GraphSAGE, with the mean aggregator."""

from __future__ import annotations

from torch import Tensor, nn

from bignn.binarize import binarize_features
from bignn.config import BinarizeMode, DropMode, SteRule
from bignn.config.options import DEFAULT_EDGE_BITS
from bignn.nn.adjacency import Aggregation, EdgesLike, aggregate
from bignn.nn.batch_norm import BatchNorm
from bignn.nn.edge_rounding import edge_bits_in_use, edge_bits_now, rounded_edges
from bignn.nn.features import BinaryRows
from bignn.nn.halo import with_halo
from bignn.nn.linear import FeaturesLike, Linear
from bignn.nn.packed_arithmetic import folded
from bignn.nn.sparse import SparseMatrix


class SAGEConv(nn.Module):
    r"""``h'_i = W̃_θ h̃_i + (1 / |N(i)|) Σ_{j ∈ N(i)} W̃_n h̃_j + b`` (Eq. bisage-conv).

    Neighbours are averaged after the product, which gives the same mean and keeps the product one
    of bits. A node without neighbours has its own term alone. Edge weights are ignored.

    With ``binarize="none"`` it computes what ``torch_geometric.nn.SAGEConv`` does and loads its
    ``state_dict``: ``lin_l`` is W_n (and has the bias), ``lin_r`` is W_θ.

    Args:
        in_channels: d_in.
        out_channels: d_out.
        bias: adds b.
        binarize, ste, dropout, drop, balance, scale_gradient: see :class:`bignn.nn.Linear`.
        edge_bits: bits that neighbours' weights (β included) are rounded to, 2 to 8, as packed
            models round them (:mod:`bignn.nn.edge_rounding`): the packed layer then sums the same
            whole numbers. None for float weights. Ignored unless features and weights are binary;
            compiled models, those in half precision and learned edge weights are summed as floats.

    Shapes: x [N, d_in], edge_index [2, E] (or another form of
    :data:`bignn.nn.adjacency.EdgesLike`) -> [N, d_out].

    """

    aggr: Aggregation = "mean"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
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
        self.edge_bits = edge_bits_in_use(edge_bits, binarize)
        self.lin_l, self.lin_r = (
            Linear(
                in_channels,
                out_channels,
                bias=bias and of_neighbours,
                binarize=binarize,
                ste=ste,
                dropout=dropout,
                drop=drop,
                balance=balance,
                scale_gradient=scale_gradient,
            )
            for of_neighbours in (True, False)
        )

    def reset_parameters(self) -> None:
        """Draw new weights and set the bias to 0."""
        self.lin_l.reset_parameters()
        self.lin_r.reset_parameters()

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
        edge_bits = edge_bits_now(self.edge_bits, self.lin_l.weight)
        x = with_halo(x, edge_index, self.lin_l, rounds=edge_bits is not None)
        if edge_bits is not None:
            return self._rounded(x, edge_index, edge_bits, norm)
        self.lin_l.check_input(x)
        binarization = self.lin_l.binarization
        if binarization.features and isinstance(x, Tensor):  # once for both products
            x = BinaryRows(*binarize_features(x, binarization.ste))
        neighbours = aggregate(edge_index, None, self.lin_l.product(x), self.aggr)
        own: Tensor = self.lin_r(x)
        if isinstance(edge_index, SparseMatrix):
            own = own[: edge_index.shape[0]]
        out = neighbours + own
        out = out if self.lin_l.bias is None else out + self.lin_l.bias
        return out if norm is None else norm(out)

    def _rounded(
        self, x: FeaturesLike, edge_index: EdgesLike, edge_bits: int, norm: BatchNorm | None
    ) -> Tensor:
        rows = self.lin_l.binary_rows(x)
        edges = rounded_edges(
            edge_index, None, rows.beta, self.aggr, edge_bits, is_constant=rows is x
        )
        dots, alpha = self.lin_l.sign_product(rows)
        sums = edges.sums(dots, num_inputs=None if self.training else self.lin_l.in_channels)
        own_dots, own_alpha = self.lin_r.sign_product(rows)
        scale, shift = folded(alpha, self.lin_l.bias, norm)
        own_scale, _ = folded(own_alpha, None, norm)
        own = (own_dots * rows.beta)[: len(sums)]
        return (sums * scale + own * own_scale) + shift

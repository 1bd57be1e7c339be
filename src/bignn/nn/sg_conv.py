"""The convolution of SGC: several steps of propagation, one linear map."""

from __future__ import annotations

from torch import Tensor, nn

from bignn.config import BinarizeMode, DropMode, SteRule
from bignn.errors import input_error
from bignn.nn.adjacency import Aggregation, EdgesLike, aggregate
from bignn.nn.linear import FeaturesLike, Linear


class SGConv(nn.Module):
    r"""``H' = Â^K (H̃ W̃) + b``.

    The product comes first, which gives the same result and K sums that are as narrow as the
    output. With ``binarize="none"`` it computes what ``torch_geometric.nn.SGConv`` does and loads
    its ``state_dict``.

    Args:
        in_channels: d_in.
        out_channels: d_out.
        K: number of neighbourhood sums.
        bias: adds b.
        binarize, ste, dropout, drop, balance, scale_gradient: see :class:`bignn.nn.Linear`.

    Shapes: x [N, d_in], edge_index [2, E] (or another form of
    :data:`bignn.nn.adjacency.EdgesLike`), edge_weight [E] -> [N, d_out].

    """

    aggr: Aggregation = "gcn"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        K: int = 2,
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
        if K < 1:
            raise input_error("K", "at least 1", K)
        self.K = K
        self.lin = Linear(
            in_channels,
            out_channels,
            bias=bias,
            binarize=binarize,
            ste=ste,
            dropout=dropout,
            drop=drop,
            balance=balance,
            scale_gradient=scale_gradient,
        )

    def reset_parameters(self) -> None:
        """Draw new weights and set the bias to 0."""
        self.lin.reset_parameters()

    def forward(
        self, x: FeaturesLike, edge_index: EdgesLike, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Compute the layer's output, see the class."""
        h: Tensor = self.lin.product(x)
        for _ in range(self.K):
            h = aggregate(edge_index, edge_weight, h, self.aggr)
        return h if self.lin.bias is None else h + self.lin.bias

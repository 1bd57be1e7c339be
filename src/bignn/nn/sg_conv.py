"""The convolution of SGC: several steps of propagation, one linear map."""

from __future__ import annotations

from torch import Tensor, nn

from bignn.binarize import BinarizeMode, SteRule
from bignn.errors import wrong
from bignn.nn.adjacency import Edges, Norm, aggregate
from bignn.nn.binary_product import DropMode
from bignn.nn.linear import Features, Linear


class SGConv(nn.Module):
    r"""``H' = Â^K (H̃ W̃) + b``.

    The product comes first: it is the same, and the K sums are then as narrow as the output. With
    ``binarize="none"`` it computes what ``torch_geometric.nn.SGConv`` does and loads its
    ``state_dict``.

    Args:
        in_channels: d_in.
        out_channels: d_out.
        hops: K.
        bias: adds b.
        binarize: ``"none"``, ``"features"``, ``"weights"`` or ``"both"``.
        ste: gradient rule for features, see :func:`bignn.binarize.binarize_features`.
        dropout: probability of dropping an entry of the (binarized) input while training.
        drop: which entries of a binary input may be dropped, see :class:`bignn.nn.Linear`.
        balance: binary columns of W have as many +1 as -1, see :class:`bignn.nn.Linear`.

    Shapes: x [N, d_in], edge_index [2, E] (or another form of
    :data:`bignn.nn.adjacency.Edges`), edge_weight [E] -> [N, d_out].

    """

    norm: Norm = "gcn"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hops: int = 2,
        bias: bool = True,
        binarize: BinarizeMode = "none",
        ste: SteRule = "input",
        dropout: float = 0.0,
        drop: DropMode = "all",
        balance: bool = False,
    ) -> None:
        super().__init__()
        if hops < 1:
            raise wrong("hops", "at least 1", hops)
        self.hops = hops
        self.lin = Linear(
            in_channels,
            out_channels,
            bias=bias,
            binarize=binarize,
            ste=ste,
            dropout=dropout,
            drop=drop,
            balance=balance,
        )

    def reset_parameters(self) -> None:
        """Draws new weights and zeroes the bias."""
        self.lin.reset_parameters()

    def forward(self, x: Features, edge_index: Edges, edge_weight: Tensor | None = None) -> Tensor:
        """See the class."""
        h: Tensor = self.lin.product(x)
        for _ in range(self.hops):
            h = aggregate(edge_index, edge_weight, h, self.norm)
        return h if self.lin.bias is None else h + self.lin.bias

"""The convolution of SGC: several steps of propagation, one linear map."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor, nn

from bignn.errors import input_error
from bignn.nn.adjacency import Edges, Norm, aggregate
from bignn.nn.linear import Features, Linear, LinearOptions


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
        options: ``binarize``, ``ste``, ``dropout``, ``drop``, ``balance``, ``scale_gradient``
            of :class:`bignn.nn.Linear`.

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
        **options: Unpack[LinearOptions],
    ) -> None:
        super().__init__()
        if hops < 1:
            raise input_error("hops", "at least 1", hops)
        self.hops = hops
        self.lin = Linear(
            in_channels,
            out_channels,
            bias=bias,
            **options,
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

"""The convolution of GraphSAGE and Bi-GraphSAGE, with the mean aggregator."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor, nn

from bignn.binarize import binarize_features
from bignn.nn.adjacency import Edges, Norm, aggregate
from bignn.nn.features import BinaryRows
from bignn.nn.linear import Features, Linear, LinearOptions
from bignn.nn.sparse import SparseMatrix


class SAGEConv(nn.Module):
    r"""``h'_i = W̃_θ h̃_i + (1 / |N(i)|) Σ_{j ∈ N(i)} W̃_n h̃_j + b`` (Eq. bisage-conv).

    Neighbours are averaged after their product, which for a mean is the same and keeps the product
    one of bits. A node without neighbours keeps its own term alone. Edge weights are not looked at.

    With ``binarize="none"`` it computes what ``torch_geometric.nn.SAGEConv`` does and loads its
    ``state_dict``: ``lin_l`` is W_n (and has the bias), ``lin_r`` is W_θ.

    Args:
        in_channels: d_in.
        out_channels: d_out.
        bias: adds b.
        options: ``binarize``, ``ste``, ``dropout``, ``drop``, ``balance``, ``scale_gradient``
            of :class:`bignn.nn.Linear`.

    Shapes: x [N, d_in], edge_index [2, E] (or another form of
    :data:`bignn.nn.adjacency.Edges`) -> [N, d_out].

    """

    norm: Norm = "mean"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        bias: bool = True,
        **options: Unpack[LinearOptions],
    ) -> None:
        super().__init__()
        self.lin_l, self.lin_r = (
            Linear(
                in_channels,
                out_channels,
                bias=bias and of_neighbours,
                **options,
            )
            for of_neighbours in (True, False)
        )

    def reset_parameters(self) -> None:
        """Draws new weights and zeroes the bias."""
        self.lin_l.reset_parameters()
        self.lin_r.reset_parameters()

    def forward(self, x: Features, edge_index: Edges, edge_weight: Tensor | None = None) -> Tensor:
        """See the class."""
        binarization = self.lin_l.binarization
        if binarization.features and isinstance(x, Tensor):  # once for both products
            x = BinaryRows(*binarize_features(x, binarization.ste))
        neighbours = aggregate(edge_index, None, self.lin_l.product(x), self.norm)
        own: Tensor = self.lin_r(x)
        if isinstance(edge_index, SparseMatrix):
            own = own[: edge_index.shape[0]]
        out = neighbours + own
        return out if self.lin_l.bias is None else out + self.lin_l.bias

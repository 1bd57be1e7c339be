"""The convolution of GIN, float and binary: sums over neighbours, then a small network."""

from __future__ import annotations

from torch import Tensor, nn

from bignn.nn.adjacency import Aggregation, EdgesLike, aggregate
from bignn.nn.linear import FeaturesLike, Linear


class GINConv(nn.Module):
    r"""``h'_i = f((1 + ε) z_i + Σ_{j ∈ N(i)} z_j + b)`` with ``z_j = W̃ ⊛ h̃_j``.

    W and b are the first linear map of GIN's network, f is the rest of it. GIN sums first, ``W ((1
    + ε) h_i + Σ_j h_j) + b``, which in floats is the same. Of binary features the product comes
    first, as in the paper's other layers: it is then one of bits, and the sum stays a float, where
    the sign of a sum would keep the majority only.

    Args:
        first: W and b.
        rest: f; its linear maps binarize their own input.
        eps: ε, a parameter if it is learned.

    Shapes: x [N, d_in], edge_index [2, E] (or another form of
    :data:`bignn.nn.adjacency.EdgesLike`) -> [N, d_out].

    """

    aggr: Aggregation = "sum"
    eps: Tensor

    def __init__(self, first: Linear, rest: nn.Module, eps: Tensor) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__()
        self.lin = first
        self.rest = rest
        if isinstance(eps, nn.Parameter):
            self.eps = eps
        else:
            self.register_buffer("eps", eps)

    def reset_parameters(self) -> None:
        """Draw new weights; ε stays."""
        for module in self.modules():
            reset = getattr(module, "reset_parameters", None)
            if module is not self and callable(reset):
                reset()

    def forward(
        self, x: FeaturesLike, edge_index: EdgesLike, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Compute the layer's output, see the class; edge weights are ignored."""
        z = self.lin.product(x)
        summed = aggregate(edge_index, None, z, self.aggr)
        out = summed + (1 + self.eps) * z[: len(summed)]
        result: Tensor = self.rest(out if self.lin.bias is None else out + self.lin.bias)
        return result

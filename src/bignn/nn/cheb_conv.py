"""The Chebyshev convolution."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from bignn.nn.convolution import ConvOperations, NodeValue, TransformFirst
from bignn.nn.linear import Linear


class ChebConv(TransformFirst):
    r"""``H' = Σ_k T_k(L̂) (H̃ W̃_k) + b``, ``L̂ = -D^{-1/2} A D^{-1/2}``, T_k Chebyshev's polynomials.

    In floats it is PyG's ``ChebConv`` with symmetric normalisation and ``lambda_max = 2``. The
    products come first; Clenshaw's rule ``b_k = z_k + 2 L̂ b_{k+1} - b_{k+2}`` then takes as many
    sums over neighbours as PyG, each as narrow as the output.

    Args:
        lins: ``W_0, W_1, ...``.
        bias: b.

    """

    arguments = ("x", "edge_index", "edge_weight", "batch", "lambda_max")

    def __init__(self, lins: Sequence[Linear], bias: nn.Parameter | None = None) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__()
        self.lins = nn.ModuleList(lins)
        self.bias = bias

    def input_maps(self) -> list[Linear]:
        """List the linear maps that read the input."""
        return [lin for lin in self.lins if isinstance(lin, Linear)]

    def compute(self, ops: ConvOperations, *values: NodeValue) -> NodeValue:
        """Compute the output from the input."""
        (x,) = values
        one: NodeValue = None  # b_{k+1}
        two: NodeValue = None  # b_{k+2}
        lins = self.input_maps()
        for k in reversed(range(len(lins))):
            parts = [ops.product(lins[k], x)]
            if one is not None:
                parts.append(ops.scale(ops.aggregate(one, "gcn_source"), -2.0 if k else -1.0))
            if two is not None:
                parts.append(ops.scale(two, -1.0))
            one, two = ops.add(*parts) if len(parts) > 1 else parts[0], one
        return ops.bias(one, self.bias)

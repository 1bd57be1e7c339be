"""The convolution of simple spectral graph convolution."""

from __future__ import annotations

from torch import nn

from bignn.nn.convolution import ConvOperations, NodeValue, TransformFirst
from bignn.nn.linear import Linear


class SSGConv(TransformFirst):
    r"""``H' = α z + (1 - α) / K Σ_{k=1..K} Â^k z + b`` with ``z = H̃ W̃``.

    In floats it computes what PyG's ``SSGConv`` does.

    Args:
        lin: W.
        bias: b.
        alpha: α.
        K: number of powers.
        aggr: kind of sum that Â stands for.

    """

    def __init__(
        self, lin: Linear, bias: nn.Parameter | None, alpha: float, K: int, aggr: str
    ) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__()
        self.lin, self.bias = lin, bias
        self.alpha, self.K = alpha, K
        self.aggr = aggr

    def input_maps(self) -> list[Linear]:
        """List the linear maps that read the input."""
        return [self.lin]

    def compute(self, ops: ConvOperations, *values: NodeValue) -> NodeValue:
        """Compute the output from the input: ``Σ_k Â^k z = Â (z + Â (z + ...))``."""
        (x,) = values
        z = ops.product(self.lin, x)
        out = z
        for _ in range(self.K - 1):
            out = ops.add(z, ops.aggregate(out, self.aggr))
        summed = ops.scale(ops.aggregate(out, self.aggr), (1 - self.alpha) / self.K)
        return ops.bias(ops.add(ops.scale(z, self.alpha), summed), self.bias)

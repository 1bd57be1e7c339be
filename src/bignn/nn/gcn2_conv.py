"""The convolution of GCNII: initial residual and identity mapping."""

from __future__ import annotations

from torch import nn

from bignn.nn.convolution import ConvOperations, NodeValue, TransformLater


class GCN2Conv(TransformLater):
    r"""``H' = (1 - β) P + β P̃ W̃`` with ``P = (1 - α) Â H + α H_0``.

    The identity part reads floats, the product is binary. With two weights,
    ``(1 - α) Â H`` and ``α H_0`` have one each. In floats it computes what PyG's ``GCN2Conv`` does.

    Args:
        lin1: W, or that of the neighbours.
        lin2: the weight of ``H_0``; None where both share W.
        alpha: α.
        beta: β.
        aggr: kind of sum that Â stands for.

    """

    arguments = ("x", "x_0", "edge_index", "edge_weight")
    node_arguments = ("x", "x_0")

    def __init__(
        self, lin1: nn.Module, lin2: nn.Module | None, alpha: float, beta: float, aggr: str
    ) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__()
        self.lin1, self.lin2 = lin1, lin2
        self.alpha, self.beta = alpha, beta
        self.aggr = aggr

    def compute(self, ops: ConvOperations, *values: NodeValue) -> NodeValue:
        """Compute the output from x and x_0."""
        x, x_0 = values
        summed = ops.scale(ops.aggregate(x, self.aggr), 1 - self.alpha)
        initial = ops.scale(x_0, self.alpha)
        if self.lin2 is None:
            return self._mapped(ops, self.lin1, ops.add(summed, initial))
        return ops.add(self._mapped(ops, self.lin1, summed), self._mapped(ops, self.lin2, initial))

    def _mapped(self, ops: ConvOperations, linear: nn.Module, p: NodeValue) -> NodeValue:
        mapped = ops.scale(ops.linear(linear, p), self.beta)
        return ops.add(ops.scale(p, 1 - self.beta), mapped)

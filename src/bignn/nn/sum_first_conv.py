"""Convolutions that take the largest of neighbours, or project them, before the linear map."""

from __future__ import annotations

from torch import nn

from bignn.nn.convolution import ConvOperations, NodeValue, TransformLater


class SumFirstConv(TransformLater):
    r"""``h'_i = W̃_l a_i + b + W̃_r h̃_i`` with a the sum, or largest, over neighbours of floats.

    In floats it computes what PyG's ``SAGEConv`` and ``GraphConv`` do, with ``aggr="max"`` and with
    ``project=True`` too, where the sum does not commute with the linear map.

    Args:
        lin_l: W_l and b.
        lin_r: W_r; None for no own part.
        aggr: kind of sum, ``"max"`` or ``"weighted_max"``.
        project: a linear map of the neighbours, with a ReLU after it; None for none.
        normalize: divides each row of the result by its length.

    """

    arguments = ("x", "edge_index", "edge_weight", "size")

    def __init__(
        self,
        lin_l: nn.Module,
        lin_r: nn.Module | None,
        aggr: str,
        project: nn.Module | None = None,
        *,
        normalize: bool = False,
    ) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__()
        self.lin, self.lin_l, self.lin_r = project, lin_l, lin_r
        self.aggr = aggr
        self.normalize = normalize

    def compute(self, ops: ConvOperations, *values: NodeValue) -> NodeValue:
        """Compute the output from the input."""
        (x,) = values
        neighbours = x if self.lin is None else ops.relu(ops.linear(self.lin, x))
        out = ops.linear(self.lin_l, ops.aggregate(neighbours, self.aggr))
        if self.lin_r is not None:
            out = ops.add(out, ops.linear(self.lin_r, x))
        return ops.unit_length(out) if self.normalize else out

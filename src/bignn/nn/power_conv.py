"""Convolutions that add up powers of the adjacency: TAG, GraphConv, GraphSAGE and their kin."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from bignn.nn.convolution import ConvOperations, NodeValue, TransformFirst
from bignn.nn.linear import Linear


class PowerConv(TransformFirst):
    r"""``H' = Σ_k A^k (H̃ W̃_k) + b``, with A one kind of neighbourhood sum.

    Computed from the highest power down, ``z_0 + A (z_1 + A (z_2 + ...))``. With ``k = 0, 1`` it is
    PyG's ``GraphConv`` and ``SAGEConv``, with more ``TAGConv``, with the last alone ``SGConv``; in
    floats each computes what PyG's does.

    Args:
        lins: ``W_0, W_1, ...``; None for a power that is left out.
        aggr: kind of sum, see :func:`bignn.nn.adjacency.edge_weights`.
        bias: b.
        normalize: divides each row of the result by its length.

    """

    def __init__(
        self,
        lins: Sequence[Linear | None],
        aggr: str,
        bias: nn.Parameter | None = None,
        *,
        normalize: bool = False,
    ) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__()
        self.lins = nn.ModuleList([lin for lin in lins if lin is not None])
        self._places = [lin is not None for lin in lins]
        self.aggr = aggr
        self.bias = bias
        self.normalize = normalize

    def input_maps(self) -> list[Linear]:
        """List the linear maps that read the input."""
        return [lin for lin in self.lins if isinstance(lin, Linear)]

    def compute(self, ops: ConvOperations, *values: NodeValue) -> NodeValue:
        """Compute the output from the input."""
        (x,) = values
        out: NodeValue = None
        waiting = self.input_maps()
        for has_map in reversed(self._places):
            out = None if out is None else ops.aggregate(out, self.aggr)
            if has_map:
                z = ops.product(waiting.pop(), x)
                out = z if out is None else ops.add(out, z)
        out = ops.bias(out, self.bias)
        return ops.unit_length(out) if self.normalize else out

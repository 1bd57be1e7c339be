"""The convolution between nodes of two types, as heterogeneous models have one per relation."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn
from torch_geometric.utils import scatter

from bignn.errors import InputError, input_error
from bignn.nn.convolution import ConvOperations, NodeValue, TorchOperations, TransformLater


class PairConv(TransformLater):
    r"""``H'_t = A (H̃_s W̃_l) + b + H̃_t W̃_r``, A a sum or mean over edges from sources to targets.

    Its linear maps centre their own inputs, which may be of two types and widths. In floats it
    computes what PyG's ``SAGEConv`` and ``GraphConv`` do. With ``aggr="max"`` neighbours are
    compared as floats, before the linear map.

    Args:
        lin_l: W_l, without a bias.
        lin_r: W_r, with a bias if there is one beside b; None for no own part.
        bias: b.
        aggr: ``"mean"``, ``"sum"`` or ``"max"``.
        normalize: divides each row of the result by its length.

    Shapes: x a pair [N_s, d_s], [N_t, d_t], or [N, d] for both; edge_index [2, E] -> [N_t, d_out].

    """

    arguments = ("x", "edge_index", "edge_weight", "size")

    def __init__(
        self,
        lin_l: nn.Module,
        lin_r: nn.Module | None,
        bias: nn.Parameter | None,
        aggr: str,
        *,
        normalize: bool = False,
    ) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__()
        self.lin_l, self.lin_r, self.bias = lin_l, lin_r, bias
        self.aggr = aggr
        self.normalize = normalize

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Compute the layer's output; called as the PyG convolution that it replaces."""
        given = dict(zip(self.arguments, args, strict=False)) | kwargs
        if unknown := sorted(set(given) - set(self.arguments)):
            raise InputError(f"a converted convolution of a relation takes no '{unknown[0]}'")
        x, edges = given["x"], given["edge_index"]
        source, target = x if isinstance(x, tuple) else (x, x)
        if not isinstance(source, Tensor) or not isinstance(edges, Tensor):
            got = f"{type(source).__name__} and {type(edges).__name__}"
            raise input_error("x", "tensors of nodes, with edges [2, E]", got)
        size: Any = given.get("size")
        num_targets = len(source if target is None else target)
        for place, nodes in enumerate((source, target) if size is not None else ()):
            if nodes is not None and size[place] not in (None, len(nodes)):
                raise input_error("size", f"{len(nodes)} at place {place}, as x has", size[place])
        if target is None and size is not None:
            num_targets = size[1]
        ops = _PairOperations(edges, given.get("edge_weight"), num_targets)
        return cast(Tensor, self.compute(ops, source, target))

    def compute(self, ops: ConvOperations, *values: NodeValue) -> NodeValue:
        """Compute the output from the values of sources and targets."""
        source, target = values
        if self.aggr == "max":
            out = ops.linear(self.lin_l, ops.aggregate(source, self.aggr))
        else:
            out = ops.aggregate(ops.linear(self.lin_l, source), self.aggr)
        if self.lin_r is not None and target is not None:
            out = ops.add(out, ops.linear(self.lin_r, target))
        out = ops.bias(out, self.bias)
        return ops.unit_length(out) if self.normalize else out


class _PairOperations(TorchOperations):
    """The operations on tensors, over edges between two sets of nodes."""

    def __init__(self, edge_index: Tensor, edge_weight: Tensor | None, num_targets: int) -> None:
        super().__init__(edge_index, edge_weight)
        self._num_targets = num_targets

    def aggregate(self, x: Tensor, aggr: str, relation: int | None = None) -> Tensor:
        """Sum x over the edges, or take the largest."""
        source, target = cast(Tensor, self._edges)
        messages = x[source]
        if self._weight is not None:
            messages = messages * self._weight.unsqueeze(-1)
        out = scatter(messages, target, dim=0, dim_size=self._num_targets, reduce=aggr)
        return cast(Tensor, out)

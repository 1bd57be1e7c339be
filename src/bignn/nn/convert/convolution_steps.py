"""Convolutions as steps: what torch computes by :class:`TorchOperations`, packing writes down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch_geometric.nn as pyg
from torch import Tensor, nn

from bignn.kernels.layer import LAST_EDGE_BITS
from bignn.nn.convert.arithmetic import plus, times
from bignn.nn.convert.layers import gcn_aggr
from bignn.nn.convert.steps import LazyValue, Steps
from bignn.nn.convolution import ConvOperations, NodeValue
from bignn.nn.linear import Linear


class StepOperations:
    """The operations of a convolution as steps.

    Args:
        steps: makes the values of steps.
        after: makes the value after a linear map that prepares its own input.
        relation: the relation that sums are over unless they name one; None for all edges.

    """

    def __init__(
        self,
        steps: Steps,
        after: Callable[[nn.Module, LazyValue], LazyValue],
        relation: int | None = None,
    ) -> None:
        self._steps, self._after, self._relation = steps, after, relation

    def product(self, linear: Linear, x: LazyValue) -> LazyValue:
        """Write ``H̃ W̃``."""
        return self._steps.value("product", [x], linear)

    def linear(self, linear: nn.Module, x: LazyValue) -> LazyValue:
        """Write a linear map and what prepares its input."""
        return self._after(linear, x)

    def aggregate(self, x: LazyValue, aggr: str, relation: int | None = None) -> LazyValue:
        """Write a sum over neighbours, of one relation or of all."""
        relation = self._relation if relation is None else relation
        which: dict[str, Any] = {} if relation is None else {"relation": relation}
        return self._steps.value("aggregate", [x], aggr=aggr, edge_bits=LAST_EDGE_BITS, **which)

    def attend(
        self, z: LazyValue, att_src: Tensor, att_dst: Tensor, negative_slope: float, *, concat: bool
    ) -> LazyValue:
        """Write the attention of sums of scores."""
        return self._steps.value(
            "attention",
            [z],
            att_src=att_src,
            att_dst=att_dst,
            negative_slope=float(negative_slope),
            concat=concat,
            edge_bits=LAST_EDGE_BITS,
        )

    def attend_v2(
        self,
        source: LazyValue,
        target: LazyValue,
        att: Tensor,
        negative_slope: float,
        *,
        concat: bool,
        self_loops: bool,
    ) -> LazyValue:
        """Write the attention of pairs of nodes."""
        return self._steps.value(
            "attention_v2",
            [self.concat(source, target)],
            att=att,
            negative_slope=float(negative_slope),
            concat=concat,
            self_loops=self_loops,
        )

    def attend_dot(
        self, query: LazyValue, key: LazyValue, value: LazyValue, heads: int, *, concat: bool
    ) -> LazyValue:
        """Write the attention of queries and keys."""
        both = self.concat(query, key, value)
        return self._steps.value("attention_dot", [both], heads=heads, concat=concat)

    def add(self, *values: LazyValue) -> LazyValue:
        """Write a sum of values."""
        return self._steps.value("add", list(values))

    def scale(self, x: LazyValue, factor: float) -> LazyValue:
        """Write a product with a number."""
        return times(self._steps, x, factor)

    def bias(self, x: LazyValue, bias: Tensor | None) -> LazyValue:
        """Write a bias, if there is one."""
        return x if bias is None else plus(self._steps, x, bias)

    def concat(self, *values: LazyValue) -> LazyValue:
        """Write values side by side."""
        return self._steps.value("concat", list(values))

    def relu(self, x: LazyValue) -> LazyValue:
        """Write ``max(x, 0)``."""
        return self._steps.value("relu", [x], before=x.before)

    def unit_length(self, x: LazyValue) -> LazyValue:
        """Write the division of each row by its length."""
        return self._steps.value("unit_length", [x], eps=1e-12)

    def gate(self, score: LazyValue, x: LazyValue, y: LazyValue) -> LazyValue:
        """Write ``y + σ(score) (x - y)``."""
        share = self._steps.value("activation", [score], kind="sigmoid", parameter=0.0)
        difference = self.add(x, self.scale(y, -1.0))
        return self.add(y, times(self._steps, difference, share))


def _appnp(conv: Any, ops: ConvOperations, x: NodeValue) -> NodeValue:
    out, start = x, ops.scale(x, conv.alpha)
    for _ in range(conv.K):
        summed = ops.aggregate(out, gcn_aggr(conv))
        out = ops.add(ops.scale(summed, 1 - conv.alpha), start)
    return out


def _lg(conv: Any, ops: ConvOperations, x: NodeValue) -> NodeValue:
    return ops.aggregate(x, "gcn_plain" if conv.normalize else "weighted_sum")


#: PyG's convolutions without weights: they stay as they are, and are written like this.
WITHOUT_WEIGHTS: dict[type[nn.Module], Callable[[Any, ConvOperations, NodeValue], NodeValue]] = {
    pyg.APPNP: _appnp,
    pyg.LGConv: _lg,
}

"""Convolutions whose arithmetic is written once: torch computes it, packing writes it down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from bignn.binarize import binarize_features
from bignn.errors import InputError, input_error
from bignn.nn.adjacency import (
    Aggregation,
    EdgesLike,
    aggregate,
    edge_list,
    normalized_adjacency,
)
from bignn.nn.attention import softmax_of_rows, weighted_sum
from bignn.nn.features import BinaryRows
from bignn.nn.linear import Linear
from bignn.nn.sparse import SparseMatrix

#: A value of all nodes: a tensor, or the value of a step that packing will write.
NodeValue = Any


class ConvOperations(Protocol):
    """The operations that convolutions are made of."""

    def product(self, linear: Linear, x: NodeValue) -> NodeValue:
        """Compute ``H̃ W̃``, without the bias, of a convolution's prepared input."""

    def linear(self, linear: nn.Module, x: NodeValue) -> NodeValue:
        """Call a linear map that prepares its own input, as PyG's module is called."""

    def aggregate(self, x: NodeValue, aggr: str, relation: int | None = None) -> NodeValue:
        """Sum x over neighbours, or take the largest (:mod:`bignn.kernels.edge_kinds`).

        With a relation, over the edges of that relation alone.
        """

    def attend(
        self,
        z: NodeValue,
        att_src: Tensor,
        att_dst: Tensor,
        negative_slope: float,
        *,
        concat: bool,
    ) -> NodeValue:
        """Sum ``Σ_j softmax_j(leaky(a_dst · z_i + a_src · z_j)) z_j`` per head, with self-loops."""

    def attend_v2(
        self,
        source: NodeValue,
        target: NodeValue,
        att: Tensor,
        negative_slope: float,
        *,
        concat: bool,
        self_loops: bool,
    ) -> NodeValue:
        """Sum ``Σ_j softmax_j(a · leaky(target_i + source_j)) source_j`` per head."""

    def attend_dot(
        self, query: NodeValue, key: NodeValue, value: NodeValue, heads: int, *, concat: bool
    ) -> NodeValue:
        """Sum ``Σ_j softmax_j(query_i · key_j / √C) value_j`` per head of C columns."""

    def add(self, *values: NodeValue) -> NodeValue:
        """Add values."""

    def scale(self, x: NodeValue, factor: float) -> NodeValue:
        """Multiply by a number."""

    def bias(self, x: NodeValue, bias: Tensor | None) -> NodeValue:
        """Add a number to each column; nothing without a bias."""

    def concat(self, *values: NodeValue) -> NodeValue:
        """Put values side by side."""

    def relu(self, x: NodeValue) -> NodeValue:
        """Compute ``max(x, 0)``; a binary map reads the value before it."""

    def unit_length(self, x: NodeValue) -> NodeValue:
        """Divide each row by its Euclidean length."""

    def gate(self, score: NodeValue, x: NodeValue, y: NodeValue) -> NodeValue:
        """Mix two values, ``σ(score) x + (1 - σ(score)) y``, with one score per node."""


class TorchOperations:
    """The operations of a convolution on tensors, over the edges of one call."""

    def __init__(
        self,
        edge_index: EdgesLike,
        edge_weight: Tensor | None,
        attention_dropout: float = 0.0,
        relations: Sequence[Tensor] = (),
    ) -> None:
        self._edges, self._weight = edge_index, edge_weight
        self._dropout = attention_dropout
        self._relations = relations

    def product(self, linear: Linear, x: Any) -> Tensor:
        """Compute ``H̃ W̃``."""
        return linear.product(x)

    def linear(self, linear: nn.Module, x: Tensor) -> Tensor:
        """Call a linear map."""
        return cast(Tensor, linear(x))

    def aggregate(self, x: Tensor, aggr: str, relation: int | None = None) -> Tensor:
        """Sum x over the edges, or take the largest."""
        if relation is not None:
            if relation >= len(self._relations):  # it has no edges here
                return torch.zeros_like(x)
            return aggregate(self._relations[relation], None, x, cast(Aggregation, aggr))
        if aggr in ("max", "weighted_max"):
            return self._largest(x, self._weight if aggr == "weighted_max" else None)
        return aggregate(self._edges, self._weight, x, cast(Aggregation, aggr))

    def _largest(self, x: Tensor, weight: Tensor | None) -> Tensor:
        if weight is not None and weight.requires_grad and torch.is_grad_enabled():
            edges, _ = edge_list(cast(Tensor, self._edges), weight, len(x))
            return _largest_of_rows(x, edges[1], x[edges[0]] * weight.unsqueeze(-1))
        pattern = self._pattern(x, "sum")
        messages = x[pattern.matrix.col_indices()]
        if weight is not None:
            weighed = normalized_adjacency(
                cast(Tensor, self._edges), weight, len(x), x.dtype, "weighted_sum"
            )
            messages = messages * weighed.matrix.values().unsqueeze(-1)
        return _largest_of_rows(x, pattern.rows, messages)

    def _pattern(self, x: Tensor, aggr: Aggregation) -> SparseMatrix:
        if isinstance(self._edges, SparseMatrix):
            return self._edges
        return normalized_adjacency(self._edges, None, len(x), aggr=aggr)

    def attend(
        self,
        z: Tensor,
        att_src: Tensor,
        att_dst: Tensor,
        negative_slope: float,
        *,
        concat: bool,
    ) -> Tensor:
        """Compute the attention of sums of scores."""
        pattern = self._pattern(z, "ones_self")
        parts = z.view(-1, *att_src.shape)
        to_others, to_self = ((parts * vector).sum(dim=-1) for vector in (att_src, att_dst))
        sums = to_others[pattern.matrix.col_indices()] + to_self[pattern.rows]
        scores = functional.leaky_relu(sums, negative_slope)
        return self._attended(pattern, scores, parts, concat=concat)

    def attend_v2(
        self,
        source: Tensor,
        target: Tensor,
        att: Tensor,
        negative_slope: float,
        *,
        concat: bool,
        self_loops: bool,
    ) -> Tensor:
        """Compute the attention of pairs of nodes."""
        pattern = self._pattern(source, "ones_self" if self_loops else "sum")
        shape = (-1, *att.shape)
        z, own = source.view(shape), target.view(shape)
        sums = z[pattern.matrix.col_indices()] + own[pattern.rows]
        scores = (functional.leaky_relu(sums, negative_slope) * att).sum(dim=-1)
        return self._attended(pattern, scores, z, concat=concat)

    def attend_dot(
        self, query: Tensor, key: Tensor, value: Tensor, heads: int, *, concat: bool
    ) -> Tensor:
        """Compute the attention of queries and keys."""
        pattern = self._pattern(query, "sum")
        q, k, v = (some.view(len(some), heads, -1) for some in (query, key, value))
        pairs = q[pattern.rows] * k[pattern.matrix.col_indices()]
        scores = pairs.sum(dim=-1) / k.shape[-1] ** 0.5
        return self._attended(pattern, scores, v, concat=concat)

    def _attended(
        self, pattern: SparseMatrix, scores: Tensor, z: Tensor, *, concat: bool
    ) -> Tensor:
        attention = functional.dropout(
            softmax_of_rows(pattern, scores), self._dropout, training=self._dropout > 0
        )
        out = weighted_sum(pattern, attention, z.contiguous())
        return out.flatten(1) if concat else out.mean(dim=1)

    def add(self, *values: Tensor) -> Tensor:
        """Add tensors."""
        return sum(values[1:], values[0])

    def scale(self, x: Tensor, factor: float) -> Tensor:
        """Multiply by a number."""
        return x * factor

    def bias(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Add the bias, if there is one."""
        return x if bias is None else x + bias

    def concat(self, *values: Tensor) -> Tensor:
        """Put tensors side by side."""
        return torch.cat(values, dim=-1)

    def relu(self, x: Tensor) -> Tensor:
        """Compute ``max(x, 0)``."""
        return x.relu()

    def unit_length(self, x: Tensor) -> Tensor:
        """Divide each row by its length."""
        return functional.normalize(x, dim=-1)

    def gate(self, score: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Mix two tensors."""
        return y + score.sigmoid() * (x - y)


def _largest_of_rows(x: Tensor, rows: Tensor, messages: Tensor) -> Tensor:
    """Take the largest message of every row of x; 0 where there is none."""
    index = rows.unsqueeze(-1).expand_as(messages)
    return torch.zeros_like(x).scatter_reduce(0, index, messages, "amax", include_self=False)


class Convolution(nn.Module):
    """A convolution in terms of :class:`ConvOperations`.

    Attributes:
        arguments: arguments of the PyG convolution that it replaces, in order.
        node_arguments: those of them that are values of nodes.
        attention_dropout: probability of dropping a neighbour's attention while training.

    """

    arguments: tuple[str, ...] = ("x", "edge_index", "edge_weight")
    node_arguments: tuple[str, ...] = ("x",)
    attention_dropout: float = 0.0

    def compute(self, ops: ConvOperations, *values: NodeValue) -> NodeValue:
        """Compute the output of the values of nodes."""
        raise NotImplementedError

    def reset_parameters(self) -> None:
        """Draw new weights for the linear maps."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.reset_parameters()

    def operations(self, edge_index: EdgesLike, edge_weight: Tensor | None) -> TorchOperations:
        """Make the operations of one call."""
        p = self.attention_dropout if self.training else 0.0
        return TorchOperations(edge_index, edge_weight, p)


class TransformFirst(Convolution):
    """A convolution of linear maps of one input, and then of sums over neighbours.

    The input is binarized once for all maps (:meth:`input_maps`), as the paper does: signs are
    those of the input, not of sums.
    """

    def input_maps(self) -> list[Linear]:
        """List the linear maps that read the input."""
        raise NotImplementedError

    def forward(self, x: Any, edge_index: EdgesLike, edge_weight: Tensor | None = None) -> Tensor:
        """Compute the layer's output."""
        first = self.input_maps()[0]
        first.check_input(x)
        if first.binarization.features and isinstance(x, Tensor):
            x = BinaryRows(*binarize_features(x, first.binarization.ste))
        return cast(Tensor, self.compute(self.operations(edge_index, edge_weight), x))


class TransformLater(Convolution):
    """A convolution that reads its input as floats; its linear maps prepare their own input."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Compute the layer's output; called as the PyG convolution that it replaces."""
        given = dict(zip(self.arguments, args, strict=False)) | kwargs
        edge_index, edge_weight = given.pop("edge_index"), given.pop("edge_weight", None)
        values = [given.pop(name) for name in self.node_arguments]
        for name, value in given.items():
            if value is not None or name not in self.arguments:
                raise InputError(f"a converted {type(self).__name__} takes no '{name}'")
        for name, value in zip(self.node_arguments, values, strict=True):
            if not isinstance(value, Tensor):
                raise input_error(name, "a tensor [nodes, features]", type(value).__name__)
        return cast(Tensor, self.compute(self.operations(edge_index, edge_weight), *values))

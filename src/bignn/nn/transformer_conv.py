"""The graph transformer's convolution: attention by products of queries and keys."""

from __future__ import annotations

from torch import nn

from bignn.nn.convolution import ConvOperations, NodeValue, TransformFirst
from bignn.nn.linear import Linear


class TransformerConv(TransformFirst):
    r"""``h'_i = W̃_s h̃_i + Σ_{j ∈ N(i)} softmax_j(q_i · k_j / √C) v_j`` per head of C columns.

    Queries q, keys k and values v are binary products of the input with float biases; scores are
    floats. In floats it computes what PyG's ``TransformerConv`` without edge features does.

    Args:
        query, key, value: the linear maps of q, k and v.
        skip: ``W_s`` and its bias; None for no own part.
        beta: a linear map whose sigmoid mixes the own part r and the sum s, of ``(s, r, s - r)``;
            it prepares its own input. None for their sum.
        heads: H.
        concat: heads side by side; otherwise their mean.
        attention_dropout: probability of dropping a neighbour's attention while training.

    """

    arguments = ("x", "edge_index", "edge_attr", "return_attention_weights")

    def __init__(
        self,
        query: Linear,
        key: Linear,
        value: Linear,
        skip: Linear | None,
        beta: nn.Module | None = None,
        *,
        heads: int = 1,
        concat: bool = True,
        attention_dropout: float = 0.0,
    ) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__()
        self.lin_query, self.lin_key, self.lin_value = query, key, value
        self.lin_skip, self.lin_beta = skip, beta
        self.heads = heads
        self.concat = concat
        self.attention_dropout = attention_dropout

    def input_maps(self) -> list[Linear]:
        """List the linear maps that read the input."""
        maps = [self.lin_query, self.lin_key, self.lin_value]
        return maps if self.lin_skip is None else [*maps, self.lin_skip]

    def compute(self, ops: ConvOperations, *values: NodeValue) -> NodeValue:
        """Compute the output from the input."""
        (x,) = values
        query, key, value, *own = (
            ops.bias(ops.product(lin, x), lin.bias) for lin in self.input_maps()
        )
        out = ops.attend_dot(query, key, value, self.heads, concat=self.concat)
        if not own:
            return out
        if self.lin_beta is None:
            return ops.add(out, own[0])
        difference = ops.add(out, ops.scale(own[0], -1.0))
        score = ops.linear(self.lin_beta, ops.concat(out, own[0], difference))
        return ops.gate(score, own[0], out)

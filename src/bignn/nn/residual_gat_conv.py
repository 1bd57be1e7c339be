"""The convolution of GAT with a residual part."""

from __future__ import annotations

from torch import nn

from bignn.nn.convolution import ConvOperations, NodeValue, TransformFirst
from bignn.nn.linear import Linear


class ResidualGATConv(TransformFirst):
    r"""``h'_i = Σ_{j ∈ N(i) ∪ {i}} α_ij z_j + W̃_r h̃_i + b``, α as in :class:`bignn.nn.GATConv`.

    In floats it computes what PyG's ``GATConv`` with ``residual=True`` does.

    Args:
        lin: W, of z.
        res: W_r.
        att_src, att_dst: the attention vectors [1, heads, C].
        bias: b.
        concat: heads side by side; otherwise their mean.
        negative_slope: of the LeakyReLU.
        attention_dropout: probability of dropping a neighbour's attention while training.

    """

    arguments = ("x", "edge_index", "edge_attr", "size", "return_attention_weights")

    def __init__(
        self,
        lin: Linear,
        res: Linear,
        att_src: nn.Parameter,
        att_dst: nn.Parameter,
        bias: nn.Parameter | None,
        *,
        concat: bool = True,
        negative_slope: float = 0.2,
        attention_dropout: float = 0.0,
    ) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__()
        self.lin, self.res = lin, res
        self.att_src, self.att_dst, self.bias = att_src, att_dst, bias
        self.concat = concat
        self.negative_slope = negative_slope
        self.attention_dropout = attention_dropout

    def input_maps(self) -> list[Linear]:
        """List the linear maps that read the input."""
        return [self.lin, self.res]

    def compute(self, ops: ConvOperations, *values: NodeValue) -> NodeValue:
        """Compute the output from the input."""
        (x,) = values
        vectors = self.att_src[0], self.att_dst[0]
        z = ops.product(self.lin, x)
        out = ops.attend(z, *vectors, self.negative_slope, concat=self.concat)
        return ops.bias(ops.add(out, ops.product(self.res, x)), self.bias)

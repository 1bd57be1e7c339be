"""The convolution of GATv2: attention that scores pairs of nodes."""

from __future__ import annotations

from torch import Tensor, nn

from bignn.nn.convolution import ConvOperations, NodeValue, TransformFirst
from bignn.nn.linear import Linear


class GATv2Conv(TransformFirst):
    r"""``h'_i = Σ_j α_ij z_j + b`` with ``α_ij = softmax_j(a · LeakyReLU(z'_i + z_j))`` per head.

    ``z = W̃_l h̃ + b_l`` and ``z' = W̃_r h̃ + b_r`` are binary products; the attention vector a stays
    float. In floats it computes what PyG's ``GATv2Conv`` without edge features does.

    Args:
        lin_l: W_l and b_l, of sources.
        lin_r: W_r and b_r, of targets; None for those of sources.
        att: a [1, heads, C].
        bias: b.
        res: a linear map of the input that is added to the result; None for none.
        concat: heads side by side; otherwise their mean.
        negative_slope: of the LeakyReLU.
        add_self_loops: every node is once among its neighbours; otherwise edges are as given.
        attention_dropout: probability of dropping a neighbour's attention while training.

    """

    arguments = ("x", "edge_index", "edge_attr", "return_attention_weights")

    def __init__(
        self,
        lin_l: Linear,
        lin_r: Linear | None,
        att: nn.Parameter,
        bias: nn.Parameter | None,
        res: Linear | None = None,
        *,
        concat: bool = True,
        negative_slope: float = 0.2,
        add_self_loops: bool = True,
        attention_dropout: float = 0.0,
    ) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__()
        self.lin_l, self.lin_r, self.res = lin_l, lin_r, res
        self.att, self.bias = att, bias
        self.concat = concat
        self.negative_slope = negative_slope
        self.add_self_loops = add_self_loops
        self.attention_dropout = attention_dropout

    def input_maps(self) -> list[Linear]:
        """List the linear maps that read the input."""
        return [lin for lin in (self.lin_l, self.lin_r, self.res) if lin is not None]

    def compute(self, ops: ConvOperations, *values: NodeValue) -> NodeValue:
        """Compute the output from the input."""
        (x,) = values
        source = ops.bias(ops.product(self.lin_l, x), self.lin_l.bias)
        target = source
        if self.lin_r is not None:
            target = ops.bias(ops.product(self.lin_r, x), self.lin_r.bias)
        att: Tensor = self.att[0]
        out = ops.attend_v2(
            source,
            target,
            att,
            self.negative_slope,
            concat=self.concat,
            self_loops=self.add_self_loops,
        )
        if self.res is not None:
            out = ops.add(out, ops.product(self.res, x))
        return ops.bias(out, self.bias)

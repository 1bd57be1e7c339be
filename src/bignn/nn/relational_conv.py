"""The convolution of relational graphs: one binary linear map per relation (RGCN)."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn
from torch_geometric.nn.inits import glorot

from bignn.binarize import binarize_features
from bignn.errors import input_error
from bignn.nn.adjacency import edges_of_relations
from bignn.nn.convolution import ConvOperations, NodeValue, TorchOperations, TransformFirst
from bignn.nn.features import BinaryRows
from bignn.nn.linear import Linear


class RelationalConv(TransformFirst):
    r"""``H' = Σ_r A_r (H̃ W̃_r) + H̃ W̃_root + b``, A_r a sum or mean over the edges of relation r.

    In floats it computes what PyG's ``RGCNConv`` does, whose parameters it has. With bases,
    ``W_r = Σ_b c_rb V_b`` is binarized, not the bases.

    Args:
        weight: W [relations, d_in, d_out], or the bases V [bases, d_in, d_out].
        comp: c [relations, bases]; None without bases.
        root: W_root [d_in, d_out]; None for no own part.
        bias: b.
        aggr: ``"mean"`` or ``"sum"``.
        options: of :class:`bignn.nn.Linear`, for every linear map.

    Shapes: x [N, d_in], edge_index [2, E], edge_type [E] -> [N, d_out].

    """

    arguments = ("x", "edge_index", "edge_type")

    def __init__(
        self,
        weight: nn.Parameter,
        comp: nn.Parameter | None,
        root: nn.Parameter | None,
        bias: nn.Parameter | None,
        aggr: str,
        **options: Any,
    ) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__()
        self.weight, self.comp, self.root, self.bias = weight, comp, root, bias
        self.aggr = aggr
        self.num_relations = len(weight if comp is None else comp)
        relations = [*range(self.num_relations), *([] if root is None else [None])]
        self.lins = nn.ModuleList([RelationLinear(self, some, **options) for some in relations])

    def weight_of(self, relation: int | None) -> Tensor:
        """Compute W_r [d_out, d_in], or W_root without a relation."""
        if relation is None:
            assert self.root is not None
            return self.root.t()
        if self.comp is None:
            return self.weight[relation].t()
        mixed = self.comp[relation] @ self.weight.flatten(1)
        return mixed.view(self.weight.shape[1:]).t()

    def reset_parameters(self) -> None:
        """Draw new weights as PyG does, and set the bias to 0."""
        for parameter in (self.weight, self.comp, self.root):
            glorot(parameter)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def input_maps(self) -> list[Linear]:
        """List the linear maps that read the input."""
        return [lin for lin in self.lins if isinstance(lin, Linear)]

    def forward(  # type: ignore[override]
        self, x: Any, edge_index: Tensor, edge_type: Tensor | None = None
    ) -> Tensor:
        """Compute the layer's output."""
        first = self.input_maps()[0]
        first.check_input(x)
        edges = edges_of_relations(edge_index, edge_type)
        if len(edges) > self.num_relations:
            expected = f"relations in 0..{self.num_relations - 1}"
            raise input_error("edge_type", expected, len(edges) - 1)
        if first.binarization.features and isinstance(x, Tensor):
            x = BinaryRows(*binarize_features(x, first.binarization.ste))
        ops = TorchOperations(edge_index, None, relations=edges)
        return cast(Tensor, self.compute(ops, x))

    def compute(self, ops: ConvOperations, *values: NodeValue) -> NodeValue:
        """Compute the output from the input."""
        (x,) = values
        maps = self.input_maps()
        parts = [
            ops.aggregate(ops.product(linear, x), self.aggr, relation)
            for relation, linear in enumerate(maps[: self.num_relations])
        ]
        parts += [ops.product(linear, x) for linear in maps[self.num_relations :]]
        return ops.bias(ops.add(*parts) if len(parts) > 1 else parts[0], self.bias)


class RelationLinear(Linear):
    """The linear map of one relation; its weights are computed from the convolution's.

    Args:
        conv: the convolution.
        relation: number of the relation; None for the node's own part.
        options: see :class:`bignn.nn.Linear`.

    """

    def __init__(self, conv: RelationalConv, relation: int | None, **options: Any) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__(*conv.weight.shape[1:], bias=False, **options)
        del self.weight  # read from the convolution from here on
        self._conv = (conv,)  # in a tuple, since it is no part of this module
        self._relation = relation

    def reset_parameters(self) -> None:
        """Leave the weights as they are: they are the convolution's."""

    def __getattr__(self, name: str) -> Any:
        if name == "weight" and "_conv" in self.__dict__:
            return self._conv[0].weight_of(self._relation)
        return super().__getattr__(name)

    def stored_parameters(self) -> list[nn.Parameter]:
        """List the parameters that the weights are computed from."""
        conv = self._conv[0]
        found = [conv.root] if self._relation is None else [conv.weight, conv.comp]
        return [parameter for parameter in found if parameter is not None]

"""Arguments and results of a heterogeneous model's traced forward: a value per type."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import fx, nn

from bignn.errors import input_error
from bignn.nn.convert.hetero import EdgeType, types_of
from bignn.nn.convert.steps import LazyValue

#: Stands for the first type of nodes that a model returns logits of.
ANY_TYPE = ""


class TypedArguments:
    """The values of types of nodes, and the relations, that a traced forward is given.

    Attributes:
        is_used: whether the model is heterogeneous.
        values: features of a type of nodes, by the call that takes them out.
        relations: types of edges, in the order of their numbers.
        numbers: the number of the relation, by the call that takes its edges out.

    """

    def __init__(self, model: nn.Module) -> None:
        self.is_used = bool(types_of(model).edges)
        self.values: dict[fx.Node, LazyValue] = {}
        self.relations: list[EdgeType] = []
        self.numbers: dict[fx.Node, int] = {}

    def read(self, argument: fx.Node, *, is_first: bool) -> None:
        """Read an argument: features if it is the first, edges by its name; or a HeteroData."""
        is_edges = str(argument.target).startswith(("edge_index", "adj"))
        for node in argument.users:
            key: Any = node.args[1]
            if is_first and not isinstance(key, tuple):
                self.values[node] = LazyValue(partial(str, f"x.{key}"))
            elif is_first or is_edges:
                if key not in self.relations:
                    self.relations.append(key)
                self.numbers[node] = self.relations.index(key)


def output_of_type(outputs: dict[Any, Any], node_type: str | None) -> Any:
    """Choose the logits of one type of nodes among those that a forward returns."""
    known = list(outputs)
    if node_type == ANY_TYPE or (node_type is None and len(known) == 1):
        node_type = known[0]
    if node_type not in outputs:
        got = "none" if node_type is None else repr(node_type)
        fix = f"as in bignn.pack(model, node_type={known[0]!r})"
        raise input_error("node_type", f"one of {known}, whose classes are wanted", got, fix)
    return outputs[node_type]

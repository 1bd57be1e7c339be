"""What a model's forward takes, by its signature: a ``Data``, or x, edge_index and more."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, NamedTuple

from torch import nn

from bignn.errors import InputError, input_error
from bignn.nn.evaluation import has_forward

# Third arguments of a forward that are not the weights of edges.
_NOT_WEIGHTS = ("edge_type", "edge_attr", "batch")
# Names of features, where a forward has one argument; and of a whole graph, before arguments that
# have defaults.
_FEATURES, _GRAPHS = ("x", "x_dict", "input"), ("data", "batch", "graph")
#: What is passed on by name, with a default or without.
KNOWN_ARGUMENTS = ("edge_weight", "edge_type", "edge_attr", "batch")
_MEANINGS = {
    "edge_weight": ", a weight per edge [E]",
    "edge_type": ", the number of each edge's relation [E]",
    "edge_attr": ", a row of features per edge",
    "batch": ", the number of each node's graph [N]",
}


class Forward(NamedTuple):
    """The arguments of a model's forward.

    Attributes:
        names: all that have a name.
        positional: those that can be given by place.
        needed: those of them that have no default.
        optional: those of them whose default is None.
        takes_any: whether there is an ``*args``.

    """

    names: tuple[str, ...]
    positional: tuple[str, ...]
    needed: tuple[str, ...]
    optional: tuple[str, ...]
    takes_any: bool

    @classmethod
    def of(cls, model: nn.Module) -> Forward:
        """Read the signature of a model's forward."""
        if not has_forward(model):
            raise input_error("model", "a module with a forward", f"{type(model).__name__} without")
        parameters = signature(model.forward).parameters.values()
        by_place = [some for some in parameters if some.kind <= some.POSITIONAL_OR_KEYWORD]
        return cls(
            tuple(some.name for some in parameters),
            tuple(some.name for some in by_place),
            tuple(some.name for some in by_place if some.default is some.empty),
            tuple(some.name for some in by_place if some.default is None),
            any(some.kind is some.VAR_POSITIONAL for some in parameters),
        )

    @property
    def takes_data(self) -> bool:
        """Whether the model is called as ``model(data)``."""
        if len(self.needed) != 1 or self.takes_any or "edge_index" in self.names:
            return False
        (name,) = self.needed
        return name in _GRAPHS or (len(self.positional) == 1 and name not in _FEATURES)

    @property
    def num_leading(self) -> int:
        """How many of x and edge_index are given by place: x alone where there is one argument."""
        return 2 if self.takes_any else min(2, len(self.positional))

    @property
    def weights(self) -> str | None:
        """The argument for weights of edges: by its name, third, or in a ``Data``; None if none."""
        if "edge_weight" in self.names or self.takes_any or self.takes_data:
            return "edge_weight"
        third = self.positional[2:3]
        if not third or third[0] in _NOT_WEIGHTS or third[0] not in (*self.needed, *self.optional):
            return None
        return third[0]

    def named(self, part: Callable[[str], Any]) -> dict[str, Any]:
        """Choose the arguments after x and edge_index among the parts of a graph, by their names.

        These are the known ones, and all others that the forward cannot do without; weights also
        go by the name that the forward has for them. ``part`` returns one, or None.
        """
        needed = self.needed[2:]
        wanted = [name for name in (*KNOWN_ARGUMENTS, *needed) if name in self.names]
        given = {name: found for name in wanted if (found := part(name)) is not None}
        name, weight = self.weights, part("edge_weight")
        if weight is not None and name in self.names:
            given.setdefault(name, weight)
        absent = [name for name in needed if name not in given]
        if absent:
            raise absent_argument(absent[0])
        return given


def absent_argument(name: str) -> InputError:
    """Return the error for an argument of a forward that the graph has no part for."""
    return InputError(
        f"the model's forward takes '{name}'{_MEANINGS.get(name, '')}, which the "
        f"graph does not have; set data.{name}, or give the argument a default"
    )

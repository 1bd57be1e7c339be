"""Stacks of values in a traced forward, and what is made of them: sums, means and maxima."""

from __future__ import annotations

from typing import Any

from torch import fx

from bignn.nn.convert.arithmetic import reduced
from bignn.nn.convert.steps import LazyValue, Steps, failing
from bignn.nn.convert.traced_calls import argument_of


class Stacks:
    """The stacks that a forward has made so far.

    Attributes:
        maxima: largest values of a stack, by the call that makes them and their places.

    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._values: dict[fx.Node, list[LazyValue]] = {}
        self._dims: dict[fx.Node, int] = {}
        self.maxima: dict[fx.Node, LazyValue] = {}

    def add(self, node: fx.Node, values: list[LazyValue] | None, title: str) -> LazyValue:
        """Note ``torch.stack(values, dim)``, which is no value by itself."""
        if values is not None:
            self._values[node] = values
            self._dims[node] = (argument_of(node, 1, "dim") or 0) % 3
        return failing(f"{title} is read by something other than sum, mean or max")

    def reduced(self, node: fx.Node, name: str) -> LazyValue | None:
        """Read ``torch.stack(...).sum(dim)`` and the like."""
        stack: Any = argument_of(node, 0, "input")
        dim = argument_of(node, 1, "dim")
        if stack not in self._values or not isinstance(dim, int):
            return None
        if dim % 3 != self._dims[stack] or "keepdim" in node.kwargs or len(node.args) > 2:
            return None
        made = reduced(self._steps, name, self._values[stack])
        if name != "max":
            return made
        self.maxima[node] = made
        # Read as it is only by PyG's HeteroConv, which takes the values out of what torch returns.
        return made

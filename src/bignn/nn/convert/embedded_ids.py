"""Columns of features that a traced forward reads as ids, and the embeddings of them."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from torch import Tensor, fx, nn

from bignn.nn.convert.steps import LazyValue, Steps, failing, title_of
from bignn.nn.convert.traced_calls import argument_of, called_function

#: Methods that read ids out of a column of features, or put their embeddings into rows.
RESHAPES = {
    getattr(Tensor, name)
    for name in ("long", "int", "to", "squeeze", "view", "reshape", "flatten", "ravel")
}


def first_after_embeddings(model: nn.Module, graph: fx.Graph, layers: Iterable[str]) -> str | None:
    """Find the first converted layer of a model that embeds its own features; None if none does.

    Args:
        model: the model.
        graph: its traced forward.
        layers: names of the converted layers.

    """
    known = tuple(layers)
    ids: set[Any] = set()
    is_embedded = False
    for place, node in enumerate(graph.nodes):
        given: Any = argument_of(node, 0, "input")
        if node.op == "placeholder":
            ids.update([node] if place == 0 else [])
        elif node.op == "call_module":
            name = str(node.target)
            if isinstance(model.get_submodule(name), nn.Embedding):
                is_embedded |= given in ids
            elif is_embedded and any(f"{some}.".startswith(f"{name}.") for some in known):
                return name
        elif given in ids and _is_taken_out(node):
            ids.add(node)
    return None


def _is_taken_out(node: fx.Node) -> bool:
    """Whether a call takes columns out of features: ``data.x``, ``x[:, 0]``, ``x.squeeze(-1)``."""
    if node.op == "call_function" and node.target is getattr:
        return node.args[1] == "x"
    target = called_function(node)
    return target is operator.getitem or target in RESHAPES


class EmbeddedIds:
    """The columns that were read as ids so far.

    Args:
        steps: makes the values of steps.
        x: the raw features.

    """

    def __init__(self, steps: Steps, x: LazyValue) -> None:
        self._steps, self._x = steps, x
        self._columns: dict[fx.Node, int] = {}
        self._embeddings: set[fx.Node] = set()

    def taken_out(self, node: fx.Node, given: LazyValue, title: str) -> LazyValue | None:
        """Read ids ``x[:, k]`` or ``x.squeeze(-1)`` of a value, or embedded rows."""
        source: Any = argument_of(node, 0, "input")
        if source in self._embeddings:
            return given
        if called_function(node) is operator.getitem:
            place = argument_of(node, 1)
            is_column = isinstance(place, tuple) and place[:1] == (slice(None),) and len(place) == 2
            column = place[1] if is_column else None
            if not isinstance(column, int) or column < 0:
                return None
            self._columns[node] = column
        elif source in self._columns or given is self._x:
            self._columns[node] = self._columns.get(source, 0)
        else:
            return None
        return failing(f"{title} is read by something other than an Embedding")

    def embedded(
        self, node: fx.Node, given: LazyValue | None, module: nn.Module, name: str
    ) -> LazyValue:
        """Read an embedding of ids."""
        ids: Any = argument_of(node, 0, "input")
        if ids not in self._columns and given is not self._x:
            why = f"{title_of(module, name)} reads something other than a column of x"
            return failing(f"{why}; call it as in emb(x[:, 0])")
        self._embeddings.add(node)
        column = self._columns.get(ids, 0)
        return self._steps.value("embedding", [self._x], weight=module.weight, column=column)

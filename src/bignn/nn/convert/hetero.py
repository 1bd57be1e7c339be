"""Heterogeneous models: the types of nodes and edges that a model of PyG's is made for."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

import torch_geometric.nn as pyg
from torch import fx, nn

#: A relation: type of its sources, name, type of its targets.
EdgeType = tuple[str, str, str]


class GraphTypes(NamedTuple):
    """The types of nodes and of edges that a model names; none for a homogeneous model."""

    nodes: tuple[str, ...]
    edges: tuple[EdgeType, ...]


def types_of(model: nn.Module) -> GraphTypes:
    """Find the types in the ``HeteroConv``s of a model, and in what ``to_hetero`` has made."""
    edges: dict[EdgeType, None] = {}
    nodes: dict[str, None] = {}
    for module in model.modules():
        for key in _keys(module):
            if isinstance(key, str):
                nodes[key] = None
            else:
                edges[key] = None
                nodes.update(dict.fromkeys((key[0], key[-1])))
    return GraphTypes(tuple(nodes), tuple(edges))


def _keys(module: nn.Module) -> Iterable[Any]:
    if isinstance(module, pyg.HeteroConv):
        return list(module.convs.keys())  # iterating gives names of modules
    if isinstance(module, fx.GraphModule):
        return [
            node.args[1]
            for node in module.graph.nodes
            if node.op == "call_method" and node.target == "get" and len(node.args) > 1
        ]
    return []


class ValuesOfTypes(dict[Any, fx.Proxy]):
    """The argument of a traced forward that holds a value per type of nodes or of edges.

    A value of a type that the model does not name is recorded when it is read. The argument may
    also be a whole ``HeteroData``: ``data.x_dict``, ``data["paper"].x`` and their like are read.
    """

    def __init__(
        self, argument: fx.Proxy, types: GraphTypes, *, of_edges: bool | None = None
    ) -> None:
        super().__init__()
        self._argument, self._types = argument, types
        self._is_of_edges = is_of_edges(str(argument.node.target)) if of_edges is None else of_edges
        for key in types.edges if self._is_of_edges else types.nodes:
            self[key] = _value_of(argument, key)

    @cached_property
    def x_dict(self) -> ValuesOfTypes:
        """Features of each type of nodes."""
        return ValuesOfTypes(self._argument, self._types, of_edges=False)

    @cached_property
    def edge_index_dict(self) -> ValuesOfTypes:
        """Edges of each type."""
        return ValuesOfTypes(self._argument, self._types, of_edges=True)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"packed heterogeneous graphs have no '{name}'")

    def __contains__(self, key: object) -> bool:
        return isinstance(key, tuple) == self._is_of_edges

    def __missing__(self, key: Any) -> fx.Proxy:
        self[key] = _value_of(self._argument, key)
        return self[key]

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a type."""
        if key not in self:
            return default
        return self[key]


def _value_of(argument: fx.Proxy, key: Any) -> fx.Proxy:
    return argument.tracer.create_proxy("call_function", operator.getitem, (argument, key), {})


def is_of_edges(argument: str) -> bool:
    """Whether an argument of a forward is one of edges, as ``to_hetero`` tells them apart."""
    return "edge" in argument or "adj" in argument

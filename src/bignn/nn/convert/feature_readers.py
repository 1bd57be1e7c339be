"""Finding the converted layers that read a model's features, from its traced forward."""

from __future__ import annotations

import operator
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from bignn.nn.convert.before_activation import DROPOUTS, MOVES, MULTIPLICATIONS
from bignn.nn.convert.wrapped_layer import WrappedLayer

#: Products of two matrices, as functions.
PRODUCTS = {
    *(functional.linear, torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, operator.matmul),
}


def feature_readers(model: nn.Module, graph: fx.Graph) -> set[nn.Module]:
    """Find the converted layers that read the features themselves, dropped or not."""
    features = _sources(graph)
    found: set[nn.Module] = set()
    for node in graph.nodes:
        if first_argument(node) not in features:
            continue
        module = _module(model, node)
        if isinstance(module, WrappedLayer):
            found.add(module)
        elif isinstance(module, nn.Dropout | nn.Identity) or _function(node) in DROPOUTS | MOVES:
            features.add(node)
    return found


class Reading(IntEnum):
    """What a layer reads: the features, what the forward computes of them, or other values."""

    FEATURES = 0
    COMPUTED = 1
    OTHERS = 2


def reading_of(model: nn.Module, graph: fx.Graph, layer: nn.Module) -> Reading:
    """Find out what a layer reads of the features.

    Norms, dropout and products with an adjacency matrix leave a column what it was, so that it may
    be standardised before them. Other functions need the features as they are, such as a division
    of rows by their sums. A module with a matrix of weights, or a product with such a parameter,
    makes other values.
    """
    alike = dict.fromkeys(_sources(graph), Reading.FEATURES)
    parameters = {node for node in graph.nodes if _is_matrix(model, node)}
    for node in graph.nodes:
        if _module(model, node) is layer:
            return alike.get(first_argument(node), Reading.OTHERS)
        module, function = _module(model, node), _function(node)
        makes = module is not None and any(p.ndim >= 2 for p in module.parameters())
        makes = makes or (function in PRODUCTS and any(n in parameters for n in node.args))
        read = [alike[given] for given in node.all_input_nodes if given in alike]
        if read and not makes and node not in alike:
            keeps = function is None or function in DROPOUTS | MOVES | PRODUCTS
            alike[node] = max([*read, Reading.FEATURES if keeps else Reading.COMPUTED])
    return Reading.OTHERS


def multiplies_features(graph: fx.Graph) -> bool:
    """Whether a forward, in evaluation, multiplies the features entry by entry."""
    features = _sources(graph)
    for node in graph.nodes:
        if not any(given in features for given in node.all_input_nodes):
            continue
        if _function(node) in MULTIPLICATIONS:
            return True
        if _function(node) in DROPOUTS | MOVES:
            features.add(node)
    return False


def first_argument(node: fx.Node) -> Any:
    """Return the first argument of a call, whatever it is called; 0 for none."""
    if node.args:
        return node.args[0]
    return next((node.kwargs[name] for name in ("x", "input", "tensors") if name in node.kwargs), 0)


def _sources(graph: fx.Graph) -> set[Any]:
    """Return the nodes that are the features: forward's first argument, or the x of a ``Data``."""
    given = next((node for node in graph.nodes if node.op == "placeholder"), None)
    if given is None:
        return set()
    read = {node for node in given.users if node.target is getattr}
    return {node for node in read if node.args[1] == "x"} if read else {given}


def _function(node: fx.Node) -> Any:
    if node.op == "call_method":
        return getattr(Tensor, str(node.target), None)
    return node.target if node.op == "call_function" else None


def _module(model: nn.Module, node: fx.Node) -> nn.Module | None:
    return model.get_submodule(str(node.target)) if node.op == "call_module" else None


def _is_matrix(model: nn.Module, node: fx.Node) -> bool:
    if node.op != "get_attr":
        return False
    value: Any = model
    for name in str(node.target).split("."):
        value = getattr(value, name)
    return isinstance(value, nn.Parameter) and value.ndim >= 2

"""Finding the converted layers that read a model's features, from its traced forward."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from bignn.nn.convert.before_activation import DROPOUTS
from bignn.nn.convert.wrapped_layer import WrappedLayer

_PRODUCTS = {
    *(functional.linear, torch.matmul, torch.mm, Tensor.matmul, Tensor.mm, operator.matmul),
}


def feature_readers(model: nn.Module, graph: fx.Graph) -> set[nn.Module]:
    """Find the converted layers that read the features themselves, dropped or not."""
    features = {node for node in graph.nodes if node.op == "placeholder"}
    found: set[nn.Module] = set()
    for node in graph.nodes:
        if node.op == "call_module" and first_argument(node) in features:
            module = model.get_submodule(str(node.target))
            if isinstance(module, WrappedLayer):
                found.add(module)
            elif isinstance(module, nn.Dropout):
                features.add(node)
        elif node.target in DROPOUTS and first_argument(node) in features:
            features.add(node)
    return found


def reads_made_values(model: nn.Module, graph: fx.Graph, layer: nn.Module) -> bool:
    """Whether a layer reads what the model makes of the features by other weights, or of none.

    Norms and arithmetic leave a column what it was; a product, a parameter or a module with a
    matrix of weights does not.
    """
    calls = [node for node in graph.nodes if _module(model, node) is layer]
    given: Any = first_argument(calls[0]) if calls else None
    while isinstance(given, fx.Node) and given.op != "placeholder":
        target: Any = (
            getattr(Tensor, str(given.target), None) if given.op == "call_method" else given.target
        )
        module = _module(model, given)
        has_matrix = module is not None and any(p.ndim >= 2 for p in module.parameters())
        if given.op == "get_attr" or target in _PRODUCTS or has_matrix:
            return True
        given = first_argument(given)
    return False


def first_argument(node: fx.Node) -> Any:
    """Return the first argument of a call, whatever it is called; 0 for none."""
    if node.args:
        return node.args[0]
    return next((node.kwargs[name] for name in ("x", "input", "tensors") if name in node.kwargs), 0)


def _module(model: nn.Module, node: fx.Node) -> nn.Module | None:
    return model.get_submodule(str(node.target)) if node.op == "call_module" else None

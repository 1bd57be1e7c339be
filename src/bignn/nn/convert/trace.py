"""Tracing a converted model's forward into a list of steps, for packing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch_geometric.nn as pyg
from torch import fx, nn

from bignn.errors import InputError
from bignn.nn.convert.steps import (
    BATCH_NORMS,
    IN_PLACE_OPERATORS,
    OTHER_NORMS,
    Step,
    StepReader,
    cannot_pack,
    title_of,
)
from bignn.nn.convert.wrapped_layer import WrappedLayer, is_wrapped
from bignn.nn.evaluation import evaluating


def trace(model: nn.Module) -> list[Step]:
    """Trace the steps from x to the logits.

    A softmax of each row at the end is left out, since it changes no class.
    """
    if not any(is_wrapped(module) for module in model.modules()):
        raise InputError(
            f"'model' must be a bignn.nn.GNN or one that bignn.binarize_ has converted, got "
            f"{type(model).__name__}"
        )
    optional = {
        name: None
        for name, parameter in inspect.signature(model.forward).parameters.items()
        if parameter.default is None and name != "edge_weight"
    }
    tracer = _Tracer()
    # Attributes that a forward sets would stay proxies.
    kept = [(module, dict(vars(module))) for module in model.modules()]
    try:
        with evaluating(model):
            graph = tracer.trace(model, optional)
    except Exception as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        whose = f"that of {tracer.failed_in}" if tracer.failed_in else "its forward"
        raise cannot_pack(f"{whose} cannot be followed ({line})") from error
    finally:
        for module, attributes in kept:
            vars(module).clear()
            vars(module).update(attributes)
    return StepReader(model, graph).steps


def packing_obstacle(model: nn.Module) -> str | None:
    """Find the reason why a converted model cannot be packed, trained or not; None if it can."""
    try:
        trace(model)
    except InputError as error:
        return str(error)
    return None


class _Proxy(fx.Proxy):
    """A proxy that records ``h += y`` as a change of h."""


def _changing(function: Callable[..., Any]) -> Callable[[_Proxy, Any], fx.Proxy]:
    def change(self: _Proxy, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return change


for _name, _function in IN_PLACE_OPERATORS.items():
    setattr(_Proxy, _name, _changing(_function))


class _Tracer(fx.Tracer):
    def proxy(self, node: fx.Node) -> fx.Proxy:
        """Make a proxy that records changes in place."""
        return _Proxy(node, self)

    failed_in: str | None = None

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is one step: layers, norms, torch's own, and what cannot be packed."""
        leaves = (WrappedLayer, *BATCH_NORMS, *OTHER_NORMS, pyg.Linear, pyg.MessagePassing)
        if isinstance(m, leaves) or (isinstance(m, pyg.JumpingKnowledge) and m.mode != "cat"):
            return True
        return super().is_leaf_module(m, module_qualified_name)

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Call a module, and note the innermost one whose forward could not be followed."""
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception:
            self.failed_in = self.failed_in or title_of(m, self.path_of_module(m))
            raise

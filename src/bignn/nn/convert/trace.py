"""Tracing a converted model's forward into a list of steps, for packing."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import torch_geometric.nn as pyg
from torch import fx, nn

from bignn.errors import InputError
from bignn.kernels.edge_kinds import WeightUse
from bignn.nn.convert.arithmetic import IN_PLACE_OPERATORS
from bignn.nn.convert.before_activation import DROPOUTS
from bignn.nn.convert.hetero import EdgeType, GraphTypes, ValuesOfTypes, types_of
from bignn.nn.convert.norms import NORMS
from bignn.nn.convert.pooling import POOLING_MODULES, recorded_pools
from bignn.nn.convert.read_steps import StepReader
from bignn.nn.convert.steps import Step, cannot_pack, line_of, title_of
from bignn.nn.convert.traced_calls import argument_of
from bignn.nn.convert.typed_arguments import ANY_TYPE
from bignn.nn.convert.weighed_layers import use_of_weights
from bignn.nn.convert.wrapped_layer import WrappedLayer, is_wrapped
from bignn.nn.convolution import Convolution
from bignn.nn.evaluation import evaluating


@dataclass(frozen=True)
class TracedModel:
    """A model as steps.

    Attributes:
        steps: the steps from x (``x.<type>`` in a heterogeneous model) to the logits.
        relations: the types of edges that steps name by number; none in a homogeneous model.
        weight_use: what edge weights are to the model.

    """

    steps: list[Step]
    relations: list[EdgeType]
    weight_use: WeightUse = "used"


def trace(model: nn.Module, node_type: str | None = None) -> TracedModel:
    """Trace the steps from x to the logits.

    Args:
        model: a converted model.
        node_type: the type of nodes whose logits are wanted, where there are several.

    A softmax of each row at the end is left out, since it changes no class.

    """
    if not any(is_wrapped(m) or hasattr(m, "not_packed") for m in model.modules()):
        raise InputError(
            f"'model' must be a bignn.nn.GNN or one that bignn.binarize_ has converted, got "
            f"{type(model).__name__}"
        )
    with evaluating(model):
        reader = StepReader(model, traced_graph(model), node_type)
    relations = reader.typed.relations
    if not relations:
        return TracedModel(reader.steps, [], use_of_weights(reader.weighing_calls))
    used = sorted({s.parameters["relation"] for s in reader.steps if "relation" in s.parameters})
    steps = [_renumbered(step, used) for step in reader.steps]
    return TracedModel(steps, [relations[relation] for relation in used])


def _renumbered(step: Step, used: list[int]) -> Step:
    """Replace the number of a step's relation by its place among those that are used."""
    if "relation" not in step.parameters:
        return step
    relation = used.index(step.parameters["relation"])
    return replace(step, parameters={**step.parameters, "relation": relation})


# Arguments that are given when a model is called, whatever their defaults are.
_GIVEN = ("edge_weight", "edge_type", "batch")


def traced_graph(model: nn.Module) -> fx.Graph:
    """Trace a model's forward, in evaluation, into torch's graph of calls."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(model.forward).parameters.items()
        if parameter.default is not parameter.empty and name not in _GIVEN
    }
    # Attributes that a forward sets would stay proxies.
    kept = [(module, dict(vars(module))) for module in model.modules()]
    try:
        with evaluating(model), recorded_pools():
            return _traced(model, defaults)
    finally:
        for module, attributes in kept:
            vars(module).clear()
            vars(module).update(attributes)


def largest_dropout(model: nn.Module) -> float:
    """Find the largest share that a model's modules, or calls in its forward, drop."""
    shares = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    try:
        nodes = list(traced_graph(model).nodes)
    except InputError:  # then its modules have to do
        nodes = []
    for node in nodes:
        if node.op == "call_function" and node.target in DROPOUTS:
            share = argument_of(node, 1, "p")
            shares.append(share if isinstance(share, float) else 0.5)  # torch's own
    return max(shares, default=0.0)


def _traced(model: nn.Module, defaults: dict[str, Any]) -> fx.Graph:
    tracer = _Tracer(types_of(model))
    try:
        graph = tracer.trace(model, defaults)
    except Exception as error:
        whose = f"that of {tracer.failed_in}" if tracer.failed_in else "its forward"
        raise cannot_pack(f"{whose} {_why_not_followed(error)}") from error
    for node in graph.nodes:  # constants that tracing has made attributes do not stay there
        if node.op == "get_attr":
            node.meta["tensor"] = attrgetter(str(node.target))(model)
    return graph


# What fx says, and what the model's forward did.
_REASONS = {
    "cannot be iterated": "goes through the entries of a tensor ('for', unpacking); move that out",
    "control flow": "decides by a tensor's numbers or size ('if', 'while', 'assert'); move that "
    "out",
    "'len' is not supported": "takes the length of a tensor; move that out of it",
    "interpreted as an integer": "makes a Python number of a tensor; move that out of it",
    "real number, not": "makes a Python number of a tensor; move that out of it",
}


def _why_not_followed(error: Exception) -> str:
    """Say in the user's words why a forward could not be traced, and where."""
    text = str(error)
    reason = next((why for known, why in _REASONS.items() if known in text), None)
    if reason is None:
        line = (text.splitlines() or [type(error).__name__])[0]
        reason = f"cannot be followed without a graph ({line.replace('Proxy', 'Tensor')})"
    frames = traceback.extract_tb(error.__traceback__)
    return reason + line_of([(frame.filename, frame.lineno or 0) for frame in frames])


def packing_obstacle(model: nn.Module) -> str | None:
    """Find the reason why a converted model cannot be packed, trained or not; None if it can."""
    types = types_of(model).nodes
    try:
        trace(model, ANY_TYPE if types else None)
    except InputError as error:
        return str(error)
    return None


class _Proxy(fx.Proxy):
    """A proxy that records ``h += y`` as a change of h; every value is a matrix."""

    ndim = 2

    def dim(self) -> int:
        """Return the number of dimensions."""
        return 2


def _changing(function: Callable[..., Any]) -> Callable[[_Proxy, Any], fx.Proxy]:
    def change(self: _Proxy, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return change


for _name, _function in IN_PLACE_OPERATORS.items():
    setattr(_Proxy, _name, _changing(_function))


class _Tracer(fx.Tracer):
    failed_in: str | None = None

    def __init__(self, types: GraphTypes) -> None:
        super().__init__()
        self.record_stack_traces = True
        self._types = types

    def create_proxy(self, kind: str, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Make a proxy; of an argument of a heterogeneous model, one per type."""
        made = super().create_proxy(kind, target, *args, **kwargs)
        if kind != "placeholder" or not self._types.edges:
            return made
        return ValuesOfTypes(made, self._types)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """Make a proxy that records changes in place."""
        return _Proxy(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is one step: layers, norms, torch's own, and what cannot be packed."""
        layers = (WrappedLayer, Convolution, pyg.Linear, pyg.MessagePassing)
        leaves = (*layers, *NORMS, *POOLING_MODULES)
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

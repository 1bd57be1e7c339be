"""What a converted model's forward does, as a list of steps, for packing."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import fx, nn
from torch.nn import functional

from bignn.errors import InputError
from bignn.nn.convert.before_activation import (
    ACTIVATION_MODULES,
    ACTIVATIONS,
    DROPOUTS,
    works_in_place,
)
from bignn.nn.convert.wrapped_layer import Layer
from bignn.nn.evaluation import evaluating
from bignn.nn.gin_conv import GINConv
from bignn.nn.input_stage import InputStage

_NORMS = (nn.BatchNorm1d, pyg.BatchNorm)
_OTHER_NORMS = (
    *(getattr(pyg.norm, name) for name in pyg.norm.__all__ if name != "BatchNorm"),
    *(nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1d),
)
_SAME = (torch.Tensor.contiguous, torch.Tensor.float, torch.Tensor.clone)
_SUMS = (operator.add, operator.iadd, torch.add, torch.Tensor.add, torch.Tensor.add_)
_LAST = {
    getattr(home, name)
    for home in (torch, functional, torch.Tensor)
    for name in ("softmax", "log_softmax")
}
# Changes a value that other names of it see too; fx alone would record the form that does not.
_IN_PLACE = {
    f"__{name}__": getattr(operator, name)
    for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul")
}


@dataclass(frozen=True)
class Step:
    """One of ``"standardize"``, ``"layer"`` (one of ours; a GIN layer without its ``rest``),
    ``"linear"`` (one that stayed float), ``"batch_norm"``, ``"relu"``, ``"elu"``, ``"add"`` and
    ``"concat"``.
    """

    op: str
    inputs: list[str]
    out: str
    module: nn.Module | None = None


def trace(model: nn.Module) -> list[Step]:
    """The steps from x to the logits; a softmax of each row at the end is left out, as it changes
    no class.
    """
    if not any(hasattr(module, "port") for module in model.modules()):
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
    # What a forward keeps on itself would be left a proxy.
    kept = [(module, dict(vars(module))) for module in model.modules()]
    try:
        with evaluating(model):
            graph = tracer.trace(model, optional)
    except Exception as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        whose = f"that of {tracer.failed_in}" if tracer.failed_in else "its forward"
        raise _cannot(f"{whose} cannot be followed ({line})") from error
    finally:
        for module, attributes in kept:
            vars(module).clear()
            vars(module).update(attributes)
    return _Reader(model, graph).steps


def obstacle(model: nn.Module) -> str | None:
    """Why a converted model cannot be packed, as far as its modules and its forward tell before it
    is trained; None if nothing stands in the way.
    """
    try:
        trace(model)
    except InputError as error:
        return str(error)
    return None


def _cannot(why: str) -> InputError:
    return InputError(f"the model cannot be packed: {why}; it runs in torch as it is")


class _Proxy(fx.Proxy):
    """``h += y`` is recorded as what it is, a change of h."""


def _changing(function: Callable[..., Any]) -> Callable[[_Proxy, Any], fx.Proxy]:
    def change(self: _Proxy, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return change


for _name, _function in _IN_PLACE.items():
    setattr(_Proxy, _name, _changing(_function))


class _Tracer(fx.Tracer):
    def proxy(self, node: fx.Node) -> fx.Proxy:
        """Our kind of proxy."""
        return _Proxy(node, self)

    failed_in: str | None = None

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Layers, norms, what no packed operation does and all of torch's own modules are followed
        no further.
        """
        leaves = (Layer, *_NORMS, *_OTHER_NORMS, pyg.Linear, pyg.MessagePassing)
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
        """Remembers the innermost module whose forward could not be followed."""
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception:
            self.failed_in = self.failed_in or _titled(m, self.path_of_module(m))
            raise


class _Value:
    """A value that is made when first asked for, and what it was before activation and dropout."""

    def __init__(self, make: Callable[[], str], before: _Value | None = None) -> None:
        self._make = make
        self._name: str | None = None
        self.before = before or self
        self.has_before = before is not None

    @property
    def name(self) -> str:
        if self._name is None:
            self._name = self._make()
        return self._name


class _Reader:
    """Walks a traced graph; steps are added in the order in which they are needed."""

    def __init__(self, model: nn.Module, graph: fx.Graph) -> None:
        self.model = model
        self.steps: list[Step] = []
        self._edges: set[fx.Node] = set()
        self._values: dict[fx.Node, _Value] = {}
        self._memory: dict[fx.Node, fx.Node] = {}  # nodes that are one tensor, by the first
        x = _Value(lambda: "x")
        norm = getattr(model, "input_stage", None)
        if isinstance(norm, InputStage):
            raw = x
            x = _Value(lambda: self._add("standardize", [raw], norm))
        place = 0
        for node in graph.nodes:
            if node.op == "placeholder":
                if place == 0:
                    self._values[node] = x
                elif node.target in ("edge_index", "adj_t", "edge_weight") or place == 1:
                    self._edges.add(node)
                place += 1
            elif node.op == "output":
                self._finish(node.args[0])
            else:
                self._read(node)

    def _add(self, op: str, inputs: Sequence[_Value], module: nn.Module | None = None) -> str:
        names = [value.name for value in inputs]
        out = f"t{len(self.steps)}"
        self.steps.append(Step(op, names, out, module))
        return out

    def _finish(self, node: Any) -> None:
        while isinstance(node, fx.Node) and _target(node) in _LAST:
            dim = _given(node, 1, "dim")
            if dim not in (1, -1, None):  # None is 1, of two dimensions
                raise _cannot(f"'{_called(node)}' at its end is over dimension {dim}, not 1")
            node = _given(node, 0, "input")
        if not isinstance(node, fx.Node) or node not in self._values:
            raise _cannot("it returns more than one tensor")
        last = self._values[node].name
        if not self.steps or self.steps[-1].out != last:
            raise _cannot("its result is not made last")

    def _read(self, node: fx.Node) -> None:
        if node.op == "call_function" and node.target is getattr:
            data, name = node.args
            if name == "x":
                self._values[node] = self._values[data]  # type: ignore[index]
            elif name in ("edge_index", "adj_t", "edge_weight"):
                self._edges.add(node)
            return
        if node.op == "call_module":
            module = self.model.get_submodule(str(node.target))
            self._values[node] = self._after(module, self._argument(node, 0), str(node.target))
            if isinstance(module, Layer):
                self._check_edges(node)
            same = isinstance(module, nn.Identity | nn.Dropout)
            self._note_memory(node, same, changes=bool(getattr(module, "inplace", False)))
            return
        called = _called(node)
        if called == "":
            return  # what checks arguments
        self._values[node] = self._of_function(node, called)
        target = _target(node)
        same = target in DROPOUTS or (target in _SAME and target is not torch.Tensor.clone)
        self._note_memory(node, same, changes=_changes_its_input(node))

    def _note_memory(self, node: fx.Node, same: bool, *, changes: bool) -> None:
        """Of a change in place, all names of the changed tensor have the new value."""
        given = _given(node, 0, "input", "x")
        if not isinstance(given, fx.Node) or not (same or changes):
            return
        first = self._memory.setdefault(given, given)
        self._memory[node] = first
        if changes:
            self._edges.discard(given)
            for other, its_first in self._memory.items():
                if its_first is first:
                    self._values[other] = self._values[node]

    def _argument(self, node: fx.Node, place: int) -> _Value:
        given = _given(node, place, *(("input", "x") if place == 0 else ("other",)))
        if not isinstance(given, fx.Node) or given not in self._values:
            why = f"{node.target} reads something other than a value of the nodes"
            return _Value(lambda: _fail(why))
        return self._values[given]

    def _check_edges(self, node: fx.Node) -> None:
        rest = [*node.args[1:], *(v for k, v in node.kwargs.items() if k not in ("x", "input"))]
        if any(some is not None and some not in self._edges for some in rest):
            raise _cannot(f"'{node.target}' is not given the model's own edges")

    def _of_function(self, node: fx.Node, called: str) -> _Value:
        target = _target(node)
        name = called.removesuffix("_")
        if target in ACTIVATIONS:
            alpha = _given(node, 1, "alpha") if name == "elu" else None
            scaled = called == "elu_" and (len(node.args) > 2 or "scale" in str(node.kwargs))
            alpha = 0 if scaled else 1 if alpha is None else alpha
            why = f"no packed operation does what '{name}'{_inside(node)} does; take relu or elu"
            return self._activated(name, self._argument(node, 0), alpha, why)
        if target in DROPOUTS:
            return self._dropped(node)
        if target in _SAME:
            x = self._argument(node, 0)
            return _Value(lambda: x.name, x.before if x.has_before else None)
        if target in _SUMS:
            return self._sum(node, called)
        if target in (torch.cat, torch.concat):
            listed: Any = _given(node, 0, "tensors")
            dim = _given(node, 1, "dim")
            values = [self._values[some] for some in _nodes(listed) if some in self._values]
            complete = isinstance(listed, list | tuple) and len(values) == len(listed)
            if dim in (1, -1) and complete and "out" not in node.kwargs:
                return self._side_by_side(values)
        why = f"no packed operation does what '{called}'{_inside(node)} does"
        return _Value(lambda: _fail(why))

    def _sum(self, node: fx.Node, called: str) -> _Value:
        parts = [self._argument(node, 0), self._argument(node, 1)]
        alpha = node.kwargs.get("alpha", 1)
        others = [name for name in node.kwargs if name not in ("input", "other", "alpha")]
        if alpha != 1 or others or len(node.args) > 2:
            what = f"alpha={alpha}" if alpha != 1 else ", ".join(others) or "a third argument"
            why = f"no packed operation does what '{called}' with {what}{_inside(node)} does"
            return _Value(lambda: _fail(why))
        return _Value(lambda: self._add("add", parts))

    def _dropped(self, node: fx.Node) -> _Value:
        x = self._argument(node, 0)
        p, training = _given(node, 1, "p"), _given(node, 2, "training", "train")
        if p == 0 or training is False:
            return _Value(lambda: x.name, x.before if x.has_before else None)
        why = "a dropout acts in evaluation too, where 'training=self.training' is not given"
        return _Value(lambda: _fail(why), x.before)

    def _side_by_side(self, values: list[_Value]) -> _Value:
        if len(values) == 1:
            return values[0]
        before = None
        if any(value.has_before for value in values):
            origins = [value.before for value in values]
            before = _Value(lambda: self._add("concat", origins))
        return _Value(lambda: self._add("concat", values), before)

    def _activated(self, name: str, x: _Value, alpha: Any, why: str) -> _Value:
        if name not in ("relu", "elu") or alpha != 1:
            return _Value(lambda: _fail(why), x.before)
        return _Value(lambda: self._add(name, [x]), x.before)

    def _after(self, module: nn.Module, x: _Value, name: str) -> _Value:
        """The value of a module's output."""
        if isinstance(module, Layer):
            return self._after_layer(module, x, name)
        if isinstance(module, _NORMS):
            if getattr(module, "module", module).running_mean is None:  # PyG's holds torch's
                why = f"{_titled(module, name)} has no running statistics (track_running_stats)"
                return _Value(lambda: _fail(why))
            return _Value(lambda: self._add("batch_norm", [x], module))
        if isinstance(module, nn.Identity):
            return x
        if isinstance(module, nn.Dropout):
            return _Value(lambda: x.name, x.before)
        if isinstance(module, nn.Linear | pyg.Linear):
            return _Value(lambda: self._add("linear", [x], module))
        why = _of_module(module, name)
        if isinstance(module, ACTIVATION_MODULES):
            alpha = getattr(module, "alpha", 1.0) if isinstance(module, nn.ELU) else 1.0
            return self._activated(type(module).__name__.lower(), x, alpha, why)
        return _Value(lambda: _fail(why))

    def _after_layer(self, layer: Any, x: _Value, name: str) -> _Value:
        if layer.port.sees_before:
            x = x.before
        norm, center = getattr(layer, "input_stage", None), getattr(layer, "center", None)
        if isinstance(norm, InputStage):
            given = x
            x = _Value(lambda: self._add("standardize", [given], norm))
        elif isinstance(center, nn.Module):
            given = x
            x = _Value(lambda: self._add("batch_norm", [given], center))
        taken = x
        out = _Value(lambda: self._add("layer", [taken], layer))
        if isinstance(layer, GINConv):
            parts = list(layer.rest) if isinstance(layer.rest, nn.Sequential) else [layer.rest]
            for number, part in enumerate(parts):
                out = self._after(part, out, f"{name}.rest.{number}")
        return out


def _fail(why: str) -> str:
    raise _cannot(why)


def _titled(module: nn.Module, name: str) -> str:
    return f"{type(module).__name__} '{name}'"


def _of_module(module: nn.Module, name: str) -> str:
    """Why a module cannot be packed, and what could be in its place."""
    titled = _titled(module, name)
    if isinstance(module, pyg.JumpingKnowledge):
        return f"no packed operation does what {titled} with mode '{module.mode}' does; take 'cat'"
    why = f"no packed operation does what {titled} does"
    if isinstance(module, _OTHER_NORMS):
        return f"{why}; take a BatchNorm (norm='batch'), or none"
    if isinstance(module, ACTIVATION_MODULES):
        return f"{why}; take ReLU or ELU"
    return why


def _inside(node: fx.Node) -> str:
    """The innermost module that calls a function, in words; empty for the model itself."""
    within = [(name, kind) for name, kind in node.meta.get("nn_module_stack", {}).values() if name]
    if not within:
        return ""
    name, kind = within[-1]
    return f" in {kind.__name__} '{name}'"


def _given(node: fx.Node, place: int, *names: str) -> Any:
    """An argument by place or by name; None if it is not given."""
    if len(node.args) > place:
        return node.args[place]
    return next((node.kwargs[name] for name in names if name in node.kwargs), None)


def _nodes(listed: Any) -> list[fx.Node]:
    given = listed if isinstance(listed, list | tuple) else []
    return [some for some in given if isinstance(some, fx.Node)]


def _target(node: fx.Node) -> Any:
    """The function that is called."""
    if node.op == "call_method":
        return getattr(torch.Tensor, str(node.target), None)
    return node.target


def _changes_its_input(node: fx.Node) -> bool:
    """Whether it works in place: ``relu_``, ``+=``, ``inplace=True``."""
    if node.op == "call_function" and node.target in _IN_PLACE.values():
        return True
    return works_in_place(_target(node), node.kwargs)


def _called(node: fx.Node) -> str:
    if node.op == "call_method":
        return str(node.target)
    if node.op != "call_function":
        return ""
    name = getattr(node.target, "__name__", str(node.target))
    return "" if name.startswith("_assert") else name

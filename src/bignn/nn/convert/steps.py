"""Reading a traced model as the list of steps that packing writes."""

from __future__ import annotations

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
from bignn.nn.convert.wrapped_layer import WrappedLayer
from bignn.nn.gin_conv import GINConv
from bignn.nn.input_stage import InputStage

BATCH_NORMS = (nn.BatchNorm1d, pyg.BatchNorm)
OTHER_NORMS = (
    *(getattr(pyg.norm, name) for name in pyg.norm.__all__ if name != "BatchNorm"),
    *(nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1d),
)
# Methods that return the same values.
_SAME = (torch.Tensor.contiguous, torch.Tensor.float, torch.Tensor.clone)
# Functions that add two values.
_SUMS = (operator.add, operator.iadd, torch.add, torch.Tensor.add, torch.Tensor.add_)
# Functions at the end of a forward that change no class.
_LAST = {
    getattr(home, name)
    for home in (torch, functional, torch.Tensor)
    for name in ("softmax", "log_softmax")
}
#: Operators that change a value under all its names; fx alone records the form that does not.
IN_PLACE_OPERATORS = {
    f"__{name}__": getattr(operator, name)
    for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul")
}


@dataclass(frozen=True)
class Step:
    """One step of a model's forward.

    Attributes:
        op: ``"standardize"``, ``"layer"`` (one of bignn's; a GIN layer without its ``rest``),
            ``"linear"`` (one that stayed float), ``"batch_norm"``, ``"relu"``, ``"elu"``,
            ``"add"`` or ``"concat"``.
        inputs: names of the values that it reads.
        out: name of the value that it makes.
        module: the module that does it, if there is one.

    """

    op: str
    inputs: list[str]
    out: str
    module: nn.Module | None = None


def cannot_pack(why: str) -> InputError:
    """Build the error for a model that cannot be packed."""
    return InputError(f"the model cannot be packed: {why}; it runs in torch as it is")


class _Value:
    """A value whose step is added when it is first used, and the value before activation."""

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


class StepReader:
    """Reader of a traced graph; steps are added in the order in which they are needed."""

    def __init__(self, model: nn.Module, graph: fx.Graph) -> None:
        self.model = model
        self.steps: list[Step] = []
        self._edges: set[fx.Node] = set()
        self._values: dict[fx.Node, _Value] = {}
        self._same_tensor: dict[fx.Node, fx.Node] = {}  # nodes that are one tensor, by the first
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
            dim = _argument_of(node, 1, "dim")
            if dim not in (1, -1, None):  # None is 1, of two dimensions
                raise cannot_pack(f"'{_name_of(node)}' at its end is over dimension {dim}, not 1")
            node = _argument_of(node, 0, "input")
        if not isinstance(node, fx.Node) or node not in self._values:
            raise cannot_pack("it returns more than one tensor")
        last = self._values[node].name
        if not self.steps or self.steps[-1].out != last:
            raise cannot_pack("its result is not made last")

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
            if isinstance(module, WrappedLayer):
                self._check_edges(node)
            same = isinstance(module, nn.Identity | nn.Dropout)
            self._note_same_tensor(node, same, changes=bool(getattr(module, "inplace", False)))
            return
        called = _name_of(node)
        if called == "":
            return  # a check of arguments
        self._values[node] = self._of_function(node, called)
        target = _target(node)
        same = target in DROPOUTS or (target in _SAME and target is not torch.Tensor.clone)
        self._note_same_tensor(node, same, changes=_changes_its_input(node))

    def _note_same_tensor(self, node: fx.Node, same: bool, *, changes: bool) -> None:
        """Give all names of a tensor that was changed in place its new value."""
        given = _argument_of(node, 0, "input", "x")
        if not isinstance(given, fx.Node) or not (same or changes):
            return
        first = self._same_tensor.setdefault(given, given)
        self._same_tensor[node] = first
        if changes:
            self._edges.discard(given)
            for other, its_first in self._same_tensor.items():
                if its_first is first:
                    self._values[other] = self._values[node]

    def _argument(self, node: fx.Node, place: int) -> _Value:
        given = _argument_of(node, place, *(("input", "x") if place == 0 else ("other",)))
        if not isinstance(given, fx.Node) or given not in self._values:
            why = f"{node.target} reads something other than a value of the nodes"
            return _Value(lambda: _fail(why))
        return self._values[given]

    def _check_edges(self, node: fx.Node) -> None:
        rest = [*node.args[1:], *(v for k, v in node.kwargs.items() if k not in ("x", "input"))]
        if any(some is not None and some not in self._edges for some in rest):
            raise cannot_pack(f"'{node.target}' is not given the model's own edges")

    def _of_function(self, node: fx.Node, called: str) -> _Value:
        target = _target(node)
        name = called.removesuffix("_")
        if target in ACTIVATIONS:
            alpha = _argument_of(node, 1, "alpha") if name == "elu" else None
            scaled = called == "elu_" and (len(node.args) > 2 or "scale" in str(node.kwargs))
            alpha = 0 if scaled else 1 if alpha is None else alpha
            why = f"no packed operation does what '{name}'{_called_in(node)} does; take relu or elu"
            return self._activated(name, self._argument(node, 0), alpha, why)
        if target in DROPOUTS:
            return self._dropped(node)
        if target in _SAME:
            x = self._argument(node, 0)
            return _Value(lambda: x.name, x.before if x.has_before else None)
        if target in _SUMS:
            return self._sum(node, called)
        if target in (torch.cat, torch.concat):
            listed: Any = _argument_of(node, 0, "tensors")
            dim = _argument_of(node, 1, "dim")
            values = [self._values[some] for some in _nodes(listed) if some in self._values]
            complete = isinstance(listed, list | tuple) and len(values) == len(listed)
            if dim in (1, -1) and complete and "out" not in node.kwargs:
                return self._side_by_side(values)
        why = f"no packed operation does what '{called}'{_called_in(node)} does"
        return _Value(lambda: _fail(why))

    def _sum(self, node: fx.Node, called: str) -> _Value:
        parts = [self._argument(node, 0), self._argument(node, 1)]
        alpha = node.kwargs.get("alpha", 1)
        others = [name for name in node.kwargs if name not in ("input", "other", "alpha")]
        if alpha != 1 or others or len(node.args) > 2:
            what = f"alpha={alpha}" if alpha != 1 else ", ".join(others) or "a third argument"
            why = f"no packed operation does what '{called}' with {what}{_called_in(node)} does"
            return _Value(lambda: _fail(why))
        return _Value(lambda: self._add("add", parts))

    def _dropped(self, node: fx.Node) -> _Value:
        x = self._argument(node, 0)
        p, training = _argument_of(node, 1, "p"), _argument_of(node, 2, "training", "train")
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
        """Build the value of a module's output."""
        if isinstance(module, WrappedLayer):
            return self._after_layer(module, x, name)
        if isinstance(module, BATCH_NORMS):
            if getattr(module, "module", module).running_mean is None:  # PyG's holds torch's
                why = f"{title_of(module, name)} has no running statistics (track_running_stats)"
                return _Value(lambda: _fail(why))
            return _Value(lambda: self._add("batch_norm", [x], module))
        if isinstance(module, nn.Identity):
            return x
        if isinstance(module, nn.Dropout):
            return _Value(lambda: x.name, x.before)
        if isinstance(module, nn.Linear | pyg.Linear):
            return _Value(lambda: self._add("linear", [x], module))
        why = _why_not_packed(module, name)
        if isinstance(module, ACTIVATION_MODULES):
            alpha = getattr(module, "alpha", 1.0) if isinstance(module, nn.ELU) else 1.0
            return self._activated(type(module).__name__.lower(), x, alpha, why)
        return _Value(lambda: _fail(why))

    def _after_layer(self, layer: Any, x: _Value, name: str) -> _Value:
        if layer.wrapping.reads_before_activation:
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
    raise cannot_pack(why)


def title_of(module: nn.Module, name: str) -> str:
    """Name a module for messages: its class and its name in the model."""
    return f"{type(module).__name__} '{name}'"


def _why_not_packed(module: nn.Module, name: str) -> str:
    """Explain why a module cannot be packed, and what could take its place."""
    titled = title_of(module, name)
    if isinstance(module, pyg.JumpingKnowledge):
        return f"no packed operation does what {titled} with mode '{module.mode}' does; take 'cat'"
    why = f"no packed operation does what {titled} does"
    if isinstance(module, OTHER_NORMS):
        return f"{why}; take a BatchNorm (norm='batch'), or none"
    if isinstance(module, ACTIVATION_MODULES):
        return f"{why}; take ReLU or ELU"
    return why


def _called_in(node: fx.Node) -> str:
    """Describe the innermost module that calls a function; empty for the model itself."""
    within = [(name, kind) for name, kind in node.meta.get("nn_module_stack", {}).values() if name]
    if not within:
        return ""
    name, kind = within[-1]
    return f" in {kind.__name__} '{name}'"


def _argument_of(node: fx.Node, place: int, *names: str) -> Any:
    """Find an argument by place or by name; None if it is not given."""
    if len(node.args) > place:
        return node.args[place]
    return next((node.kwargs[name] for name in names if name in node.kwargs), None)


def _nodes(listed: Any) -> list[fx.Node]:
    given = listed if isinstance(listed, list | tuple) else []
    return [some for some in given if isinstance(some, fx.Node)]


def _target(node: fx.Node) -> Any:
    """Find the function that is called."""
    if node.op == "call_method":
        return getattr(torch.Tensor, str(node.target), None)
    return node.target


def _changes_its_input(node: fx.Node) -> bool:
    """Whether a call works in place: ``relu_``, ``+=``, ``inplace=True``."""
    if node.op == "call_function" and node.target in IN_PLACE_OPERATORS.values():
        return True
    return works_in_place(_target(node), node.kwargs)


def _name_of(node: fx.Node) -> str:
    if node.op == "call_method":
        return str(node.target)
    if node.op != "call_function":
        return ""
    name = getattr(node.target, "__name__", str(node.target))
    return "" if name.startswith("_assert") else name

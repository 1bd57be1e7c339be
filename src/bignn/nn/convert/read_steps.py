"""Reading a traced model as the list of steps that packing writes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from inspect import signature
from typing import Any, cast

import torch
import torch_geometric.nn as pyg
from torch import Tensor, fx, nn
from torch.nn import functional

from bignn.nn.convert.activations import packed_activation
from bignn.nn.convert.arithmetic import (
    ARITHMETIC,
    NEGATIONS,
    combined,
    reduced,
    times,
)
from bignn.nn.convert.before_activation import (
    ACTIVATIONS,
    DROPOUTS,
)
from bignn.nn.convert.convolution_steps import WITHOUT_WEIGHTS
from bignn.nn.convert.convolutions import converted
from bignn.nn.convert.embedded_ids import RESHAPES, EmbeddedIds
from bignn.nn.convert.module_steps import ModuleSteps
from bignn.nn.convert.norms import NORMS, after_norm
from bignn.nn.convert.pooling import pooling_of
from bignn.nn.convert.stacks import Stacks
from bignn.nn.convert.steps import LazyValue, Step, Steps, cannot_pack, failing, title_of
from bignn.nn.convert.traced_calls import (
    argument_of,
    called_function,
    called_in,
    called_name,
    changes_its_input,
    described,
    line_of_call,
)
from bignn.nn.convert.typed_arguments import TypedArguments, output_of_type
from bignn.nn.convert.weighed_layers import LayerCall, can_weigh, names_of
from bignn.nn.convert.wrapped_layer import WrappedLayer
from bignn.nn.convolution import TransformLater
from bignn.nn.input_stage import InputStage
from bignn.nn.pair_conv import PairConv

# Names of inputs that are edges, their weights and their relations.
_EDGES = ("edge_index", "adj_t", "edge_weight", "edge_type")
# Arguments after the edges that packing knows by their names.
_KNOWN = ("edge_index", "edge_type", "edge_weight", "batch")
# Methods that return the same values.
_SAME = (Tensor.contiguous, Tensor.float, Tensor.clone, Tensor.detach)
_REDUCTIONS = {
    getattr(home, name): name for home in (torch, Tensor) for name in ("sum", "mean", "max", "amax")
}
_MAXIMA = (torch.max, torch.maximum, Tensor.max, Tensor.maximum)
# Functions at the end of a forward that change no class.
_LAST = {
    getattr(home, name)
    for home in (torch, functional, Tensor)
    for name in ("softmax", "log_softmax")
}
# Methods that change the shape of values.
_SHAPES = ("squeeze", "unsqueeze", "view", "reshape", "flatten", "ravel")
_LAST_MODULES = (nn.Softmax, nn.LogSoftmax)
# Options of bignn's layers with which they compute what PyG's do.
_FLOAT = {"binarize": "none", "ste": "input", "balance": False}


class StepReader:
    """Reader of a traced graph; steps are added in the order in which they are needed.

    Args:
        model: the model.
        graph: its traced forward.
        node_type: the type of nodes whose logits are wanted, of a heterogeneous model.

    Attributes:
        weighing_calls: the calls of layers that can weigh edges.

    """

    def __init__(self, model: nn.Module, graph: fx.Graph, node_type: str | None = None) -> None:
        self.model = model
        self.typed = TypedArguments(model)
        self._node_type = node_type
        self._steps = Steps()
        self._modules = ModuleSteps(self._steps)
        self.weighing_calls: list[LayerCall] = []
        self._edges: set[fx.Node] = set()
        self._values: dict[fx.Node, LazyValue] = {}
        self._constants: dict[fx.Node, Any] = {}
        self._stacks = Stacks(self._steps)
        self._same_tensor: dict[fx.Node, fx.Node] = {}  # nodes that are one tensor, by the first
        self._graph_ids: set[fx.Node] = set()
        self._left_out: set[fx.Node] = set()  # graph ids that a forward need not be given
        self._unknown: set[fx.Node] = set()  # arguments of forward that packing has no name for
        self._pools = any(pooling_of(node, self._module(node)) for node in graph.nodes)
        x = LazyValue(lambda: "x")
        self._ids = EmbeddedIds(self._steps, x)
        stage = getattr(model, "input_stage", None)
        if isinstance(stage, InputStage):
            x = self._steps.value("standardize", [x], stage)
        place = 0
        for node in graph.nodes:
            if node.op == "placeholder":
                if self.typed.is_used:
                    self.typed.read(node, is_first=place == 0)
                elif place == 0:
                    self._values[node] = x
                elif node.target in _EDGES or (place == 1 and node.target != "batch"):
                    self._edges.add(node)
                elif node.target == "batch":
                    self._graph_ids.add(node)
                    self._left_out.update([node] if node.args else [])  # it has a default
                elif node.target != "edge_attr":  # the convolutions that read this are named
                    why = f"its forward reads '{node.target}', which packed graphs do not have"
                    self._values[node] = failing(why)
                    self._unknown.add(node)
                place += 1
            elif node.op == "output":
                self._finish(node.args[0])
            else:
                self._read(node)

    @property
    def steps(self) -> list[Step]:
        """The steps from x to the logits."""
        return self._steps.list

    def _finish(self, node: Any) -> None:
        while isinstance(node, fx.Node):
            module = self._module(node)
            if isinstance(module, _LAST_MODULES):
                dim: Any = module.dim
            elif called_function(node) in _LAST:
                dim = argument_of(node, 1, "dim")
            else:
                break
            if dim not in (1, -1, None):  # None is 1, of two dimensions
                raise cannot_pack(f"{self._title(node)} at its end is over dimension {dim}, not 1")
            node = argument_of(node, 0, "input")
        if self.typed.is_used and isinstance(node, dict):
            node = output_of_type(node, self._node_type)
        if isinstance(node, tuple | list | dict):
            raise cannot_pack(
                f"its forward returns a {type(node).__name__}, more than one tensor; "
                "return the logits alone"
            )
        if not isinstance(node, fx.Node) or node not in self._values:
            raise cannot_pack("its forward returns something other than a value of the nodes")
        last = self._values[node].name
        if not self.steps or self.steps[-1].out != last:
            raise cannot_pack("its result is not made last")

    def _module(self, node: fx.Node) -> nn.Module | None:
        is_module = node.op == "call_module"
        return self.model.get_submodule(str(node.target)) if is_module else None

    def _read(self, node: fx.Node) -> None:
        if node.op == "get_attr":
            self._constants[node] = node.meta["tensor"].detach()
            return
        if node.op == "call_function" and node.target is getattr and self._read_attribute(node):
            return
        if node.op == "call_module":
            self._read_module(node)
            return
        if node in self.typed.values:
            self._values[node] = self.typed.values[node]
            return
        if node in self.typed.numbers:
            self._edges.add(node)
            return
        called = called_name(node)
        if called == "" or self._fold_constant(node):
            return  # a check of arguments, or a constant
        self._values[node] = self._of_function(node, called)
        target = called_function(node)
        same = target in DROPOUTS or (target in _SAME and target is not Tensor.clone)
        self._note_same_tensor(node, same, changes=changes_its_input(node))

    def _read_attribute(self, node: fx.Node) -> bool:
        """Read ``data.x`` and the like."""
        data: Any
        data, name = node.args[:2]
        if name == "values" and data in self._stacks.maxima:
            self._values[node] = self._stacks.maxima[data]
        elif name == "x" and data in self._values:
            self._values[node] = self._values[data]
        elif name in _EDGES:
            self._edges.add(node)
            if data in self.typed.numbers:  # data["author", "writes", "paper"].edge_index
                self.typed.numbers[node] = self.typed.numbers[data]
        elif name == "batch":
            self._graph_ids.add(node)
        return True

    def _read_module(self, node: fx.Node) -> None:
        module = self.model.get_submodule(str(node.target))
        name = str(node.target)
        if isinstance(module, NORMS):
            given = self._given_to_norm(node, module)
            graph_ids = [some for some in given if some in [*self._graph_ids]]
            found = [self._operand(some) for some in given if some not in graph_ids]
            values = [v if isinstance(v, LazyValue) else _unknown(self._title(node)) for v in found]
            self._values[node] = after_norm(
                self._steps, module, name, values, per_graph=bool(graph_ids)
            )
        elif isinstance(module, pyg.JumpingKnowledge):
            self._values[node] = self._jumping(node, module)
        elif isinstance(module, nn.Embedding):
            ids: Any = argument_of(node, 0, "input")
            self._values[node] = self._ids.embedded(node, self._values.get(ids), module, name)
        elif (pooling := pooling_of(node, module)) is not None:
            self._values[node] = self._pooled(node, *pooling)
        elif isinstance(module, TransformLater | pyg.MessagePassing):
            self._values[node] = self._after_convolution(node, module, name)
        else:
            self._values[node] = self._modules.after(module, self._argument(node, 0), name)
            if isinstance(module, WrappedLayer):
                self._check_edges(node, module)
        same = isinstance(module, nn.Identity | nn.Dropout)
        self._note_same_tensor(node, same, changes=bool(getattr(module, "inplace", False)))

    def _given_to_norm(self, node: fx.Node, norm: nn.Module) -> list[Any]:
        """List what a norm is called with, in the order of its own arguments.

        A 'batch' that is None where nothing is pooled is left out, and so is MessageNorm's p of 2.
        """
        given = signature(norm.forward).bind(*node.args, **node.kwargs).arguments
        left_out = [None, *([] if self._pools else self._left_out)]
        return [
            some
            for name, some in given.items()
            if some not in left_out and not (name == "p" and some == 2)
        ]

    def _fold_constant(self, node: fx.Node) -> bool:
        """Compute a function of parameters and numbers alone, as ``torch.sigmoid(self.alpha)``."""
        used = node.all_input_nodes
        if not used or any(some not in self._constants for some in used):
            return False
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda some: self._constants[some])
        with torch.no_grad():
            self._constants[node] = called_function(node)(*args, **kwargs)
        return True

    def _note_same_tensor(self, node: fx.Node, same: bool, *, changes: bool) -> None:
        """Give all names of a tensor that was changed in place its new value."""
        given = argument_of(node, 0, "input", "x")
        if not isinstance(given, fx.Node) or not (same or changes):
            return
        first = self._same_tensor.setdefault(given, given)
        self._same_tensor[node] = first
        if changes:
            self._edges.discard(given)
            for other, its_first in self._same_tensor.items():
                if its_first is first:
                    self._values[other] = self._values[node]

    def _operand(self, given: Any) -> Any:
        """Find a value, a constant tensor or a number; None for anything else."""
        if isinstance(given, fx.Node):
            return self._values.get(given, self._constants.get(given))
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        return given if is_number or isinstance(given, Tensor) else None

    def _argument(self, node: fx.Node, place: int, *names: str) -> LazyValue:
        given = self._operand(argument_of(node, place, *(names or ("input", "x"))))
        return given if isinstance(given, LazyValue) else _unknown(self._title(node))

    def _listed(self, node: fx.Node, *names: str) -> list[LazyValue] | None:
        """Find the values in the list that a function takes first; None if some are none."""
        listed = argument_of(node, 0, *names)
        if not isinstance(listed, list | tuple) or not listed:
            return None
        found = [self._operand(some) for some in listed]
        return found if all(isinstance(some, LazyValue) for some in found) else None

    def _title(self, node: fx.Node) -> str:
        """Describe a call for messages: what is called, by which module, in which line."""
        if (module := self._module(node)) is not None:
            return title_of(module, str(node.target))
        return f"'{called_name(node).removesuffix('_')}'{called_in(node)}{line_of_call(node)}"

    def _check_edges(
        self, node: fx.Node, module: nn.Module, node_arguments: Sequence[str] = ("x",)
    ) -> None:
        """Refuse a layer that is given anything but the model's own edges; note if it weighs them.

        Args:
            node: the call of the layer.
            module: what the layer is packed as.
            node_arguments: those of its arguments that are values of nodes.

        """
        layer, names = self.model.get_submodule(str(node.target)), names_of(module)
        given = dict(zip(names, node.args, strict=False)) | node.kwargs
        for name, some in given.items():
            if name in (*node_arguments, "input") or some is None or some in self._edges:
                continue
            self._check_known(some, name)
            fix = "change these in the data, before the call"
            if name == "edge_weight":
                fix = f"{fix} (data.edge_weight = ...), and let forward read them from there"
            raise cannot_pack(
                f"{self._title(node)} is given {described(some)} as '{name}', where packed layers "
                f"take the model's own edges as they are; {fix}"
            )
        if can_weigh(module):
            self.weighing_calls.append(LayerCall(layer, given.get("edge_weight") is not None))

    def _check_known(self, given: Any, meaning: str) -> None:
        """Refuse an argument of forward that has none of the names that packing knows."""
        if not isinstance(given, fx.Node) or given.op != "placeholder" or meaning not in _KNOWN:
            return
        known = self._values.keys() | self._edges | self._graph_ids
        if given not in known - self._unknown:
            others = [name for name in _KNOWN[1:] if name != meaning]
            raise cannot_pack(
                f"argument '{given.target}' of forward is not known to packing; name it {meaning} "
                f"(or {', '.join(others)})"
            )

    def _of_function(self, node: fx.Node, called: str) -> LazyValue:
        if (pooling := pooling_of(node, None)) is not None:
            return self._pooled(node, *pooling)
        target = called_function(node)
        if target in ACTIVATIONS:
            return self._activated_by_function(node, called)
        if target in DROPOUTS:
            return self._dropped(node)
        if target in _SAME:
            x = self._argument(node, 0)
            return LazyValue(lambda: x.name, x.before if x.has_before else None)
        made = None
        if target in ARITHMETIC:
            made = self._arithmetic(node)
        elif target in NEGATIONS:
            made = times(self._steps, self._argument(node, 0), -1.0)
        elif target in (torch.cat, torch.concat):
            values = self._listed(node, "tensors")
            if argument_of(node, 1, "dim") in (1, -1) and values and "out" not in node.kwargs:
                made = self._side_by_side(values)
        elif target is torch.stack:
            made = self._stacks.add(node, self._listed(node, "tensors"), self._title(node))
        elif target is operator.getitem or target in RESHAPES:
            made = self._taken_out(node)
        elif target is functional.normalize:
            made = self._of_unit_length(node)
        elif target in _LAST and "log" not in called and argument_of(node, 1, "dim") in (1, -1):
            made = self._steps.value("softmax", [self._argument(node, 0)])
        if made is None and target in _REDUCTIONS:
            made = self._stacks.reduced(node, _REDUCTIONS[target])
        if made is None and target in _MAXIMA:
            pair = [self._operand(argument_of(node, 0, "input")), self._second(node)]
            if all(isinstance(some, LazyValue) for some in pair):
                made = self._steps.value("maximum", pair)
        if made is not None:
            return made
        fix = (
            "values are [nodes, columns], and fit takes one column too: leave it out"
            if called.rstrip("_") in _SHAPES
            else "sums, products, torch.cat, maxima, activations, norms and PyG's convolutions pack"
        )
        return failing(f"no packed operation does what {self._title(node)} does; {fix}")

    def _pooled(self, node: fx.Node, aggr: str, graph_ids: Any) -> LazyValue:
        if graph_ids not in self._graph_ids:
            self._check_known(graph_ids, "batch")
            return failing(f"a pooling{called_in(node)} is not given the model's own 'batch'")
        return self._steps.value("pool", [self._argument(node, 0)], aggr=aggr)

    def _of_unit_length(self, node: fx.Node) -> LazyValue | None:
        options = [
            argument_of(node, place, name) for place, name in enumerate(("p", "dim", "eps"), 1)
        ]
        p, dim, eps = (
            usual if given is None else given
            for given, usual in zip(options, (2.0, 1, 1e-12), strict=True)
        )
        if p != 2 or dim not in (1, -1) or node.kwargs.get("out") is not None:
            return None
        return self._steps.value("unit_length", [self._argument(node, 0)], eps=float(eps))

    def _second(self, node: fx.Node) -> Any:
        return self._operand(argument_of(node, 1, "other"))

    def _arithmetic(self, node: fx.Node) -> LazyValue | None:
        a, b = self._operand(argument_of(node, 0, "input")), self._second(node)
        known = {"input", "other", "alpha"}
        if a is None or b is None or len(node.args) > 2 or set(node.kwargs) - known:
            return None
        alpha: Any = node.kwargs.get("alpha", 1)
        if alpha != 1:
            b = times(self._steps, b, alpha) if isinstance(b, LazyValue) else b * alpha
        return combined(self._steps, called_function(node), a, b)

    def _taken_out(self, node: fx.Node) -> LazyValue | None:
        """Read ``stack.max(dim)[0]``, ids in a column of x, and embedded rows."""
        given: Any = argument_of(node, 0, "input")
        if given in self._stacks.maxima:
            if argument_of(node, 1) == 0:
                return self._stacks.maxima[given]
            return failing(f"the places of {self._title(given)} are read; take the values alone")
        if not isinstance(given, fx.Node) or given not in self._values:
            return None
        return self._ids.taken_out(node, self._values[given], self._title(node))

    def _dropped(self, node: fx.Node) -> LazyValue:
        x = self._argument(node, 0)
        p, training = argument_of(node, 1, "p"), argument_of(node, 2, "training", "train")
        if p == 0 or training is False:
            return LazyValue(lambda: x.name, x.before if x.has_before else None)
        why = "a dropout acts in evaluation too, where 'training=self.training' is not given"
        return failing(f"{why}{line_of_call(node)}", x.before)

    def _side_by_side(self, values: list[LazyValue]) -> LazyValue:
        if len(values) == 1:
            return values[0]
        before = None
        if any(value.has_before for value in values):
            before = self._steps.value("concat", [value.before for value in values])
        return self._steps.value("concat", values, before=before)

    def _activated_by_function(self, node: fx.Node, called: str) -> LazyValue:
        def argument(key: str) -> Any:
            given = argument_of(node, 2 if key in ("upper", "max_val", "threshold") else 1, key)
            return self._operand(given) if isinstance(given, fx.Node) else given

        # torch's own ``elu_`` has two scales more.
        scaled = called == "elu_" and (len(node.args) > 2 or "scale" in str(node.kwargs))
        found = None if scaled else packed_activation(called.removesuffix("_"), argument)
        return self._modules.activated(self._argument(node, 0), found, self._title(node))

    def _jumping(self, node: fx.Node, module: Any) -> LazyValue:
        """Build the value of a JumpingKnowledge with mode "max" or "lstm"."""
        values = self._listed(node, "xs")
        if values is None:
            return _unknown(self._title(node))
        if module.mode == "max":
            return reduced(self._steps, "max", values)
        if len(values) == 1:
            return values[0]
        return self._modules.attended_by_lstm(values, module)

    def _after_convolution(self, node: fx.Node, module: Any, name: str) -> LazyValue:
        """Build the value after a convolution of PyG's, or one that reads floats."""
        title, why = title_of(module, name), getattr(module, "not_packed", None)
        if why is None and isinstance(module, pyg.MessagePassing):  # in 'skip'
            made = converted(module, _FLOAT, of_relation=self.typed.is_used)
            module, why = (module, made) if isinstance(made, str) else (made, None)
        if why or (why == "" and type(module) not in WITHOUT_WEIGHTS):
            return failing(f"no packed operation does what {title}{why} does")
        if isinstance(module, PairConv):
            return self._after_pair(node, module, name)
        names = getattr(module, "node_arguments", ("x",))
        order = getattr(module, "arguments", ("x",))
        values = [self._argument(node, order.index(some), some) for some in names]
        self._check_edges(node, module, names)
        if type(module) in WITHOUT_WEIGHTS:
            after = WITHOUT_WEIGHTS[type(module)](module, self._modules.operations(name), *values)
            return cast(LazyValue, after)
        if isinstance(module, TransformLater):
            return cast(LazyValue, module.compute(self._modules.operations(name), *values))
        return self._modules.after(module, values[0], name)

    def _after_pair(self, node: fx.Node, module: PairConv, name: str) -> LazyValue:
        """Build the value after a convolution of one relation."""
        x, edges = argument_of(node, 0, "x"), argument_of(node, 1, "edge_index")
        self._check_edges(node, module)
        pair = [self._operand(some) for some in (x if isinstance(x, tuple) else (x, x))]
        is_known = all(isinstance(some, LazyValue) for some in pair[: 2 - (pair[1] is None)])
        if not is_known or edges not in self.typed.numbers:
            return _unknown(self._title(node))
        operations = self._modules.operations(name, self.typed.numbers[edges])
        return cast(LazyValue, module.compute(operations, *pair))


def _unknown(title: str) -> LazyValue:
    return failing(f"{title} reads something other than values of the nodes")

"""Values after modules that read one value: layers, activations, chains of them."""

from __future__ import annotations

from typing import Any, cast

import torch_geometric.nn as pyg
from torch import nn

from bignn.nn.convert.activations import activation_name, packed_activation
from bignn.nn.convert.before_activation import ACTIVATION_MODULES, ACTIVATIONS
from bignn.nn.convert.convolution_steps import StepOperations
from bignn.nn.convert.layers import FunctionModule
from bignn.nn.convert.norms import NORMS, after_norm
from bignn.nn.convert.steps import LazyValue, Steps, failing, title_of
from bignn.nn.convert.wrapped_layer import WrappedLayer
from bignn.nn.convolution import TransformFirst
from bignn.nn.gin_conv import GINConv
from bignn.nn.input_stage import InputStage


class ModuleSteps:
    """Writer of the steps of modules."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    def after(self, module: nn.Module, x: LazyValue, name: str) -> LazyValue:
        """Build the value of the output of a module that reads one value."""
        if isinstance(module, WrappedLayer):
            return self._after_layer(module, x, name)
        if isinstance(module, NORMS):
            return after_norm(self._steps, module, name, [x])
        if isinstance(module, nn.Identity):
            return x
        if isinstance(module, nn.Dropout):
            return LazyValue(lambda: x.name, x.before)
        if isinstance(module, nn.Linear | pyg.Linear):
            return self._steps.value("linear", [x], module)
        if isinstance(module, nn.Softmax) and module.dim in (1, -1):
            return self._steps.value("softmax", [x])
        if type(module) is nn.Sequential:
            for number, part in enumerate(module):
                x = self.after(part, x, f"{name}.{number}")
            return x
        if isinstance(module, FunctionModule):
            return self._after_function(module, x, name)
        titled = title_of(module, name)
        if isinstance(module, ACTIVATION_MODULES):
            found = packed_activation(
                activation_name(module), lambda key: getattr(module, key, None)
            )
            return self.activated(x, found, titled)
        return failing(f"no packed operation does what {titled} does")

    def _after_function(self, module: FunctionModule, x: LazyValue, name: str) -> LazyValue:
        function: Any = module.function
        if function is None:
            return x
        called = getattr(function, "__name__", type(function).__name__)
        found = packed_activation(called, lambda _: None) if function in ACTIVATIONS else None
        return self.activated(x, found, f"'{called}' in '{name}'")

    def activated(
        self, x: LazyValue, found: tuple[str, dict[str, Any]] | None, title: str
    ) -> LazyValue:
        """Build the value after an activation, given its packed operation; None has none."""
        if found is None:
            why = f"no packed operation does what {title} does; take ReLU, ELU, GELU or SiLU"
            return failing(why, x.before)
        op, parameters = found
        return self._steps.value(op, [x], before=x.before, **parameters)

    def attended_by_lstm(self, values: list[LazyValue], module: Any) -> LazyValue:
        """Build the value of a JumpingKnowledge with mode "lstm"."""
        lstm, parameters = module.lstm, {"attention": module.att.weight[0]}
        for reverse in ("", "_reverse"):
            prefix = "reverse_" if reverse else ""
            biases = (getattr(lstm, f"bias_{of}_l0{reverse}") for of in ("ih", "hh"))
            parameters[f"{prefix}input_weight"] = getattr(lstm, f"weight_ih_l0{reverse}")
            parameters[f"{prefix}hidden_weight"] = getattr(lstm, f"weight_hh_l0{reverse}")
            parameters[f"{prefix}bias"] = sum(biases)
        return self._steps.value("lstm_attention", values, **parameters)

    def operations(self, name: str, relation: int | None = None) -> StepOperations:
        """Make the operations of a convolution, of one relation or of all edges."""
        return StepOperations(self._steps, lambda linear, x: self.after(linear, x, name), relation)

    def _after_layer(self, layer: Any, x: LazyValue, name: str) -> LazyValue:
        if getattr(layer, "wrapping", None) is not None and layer.wrapping.reads_before_activation:
            x = x.before
        stage, center = getattr(layer, "input_stage", None), getattr(layer, "center", None)
        if isinstance(stage, InputStage):
            x = self._steps.value("standardize", [x], stage)
        elif isinstance(center, nn.Module):
            x = self._steps.value("batch_norm", [x], center)
        if isinstance(layer, TransformFirst):
            return cast(LazyValue, layer.compute(self.operations(name), x))
        out = self._steps.value("layer", [x], layer)
        return self.after(layer.rest, out, f"{name}.rest") if isinstance(layer, GINConv) else out

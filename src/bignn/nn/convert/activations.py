"""Activations, called as functions or as modules, as packed operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from bignn.runtime.operations import ACTIVATIONS

# The arguments that ``parameter`` of the packed operation stands for.
_PARAMETERS = {"leaky_relu": "negative_slope", "elu": "alpha", "celu": "alpha", "softplus": "beta"}
_DEFAULTS = {
    "negative_slope": 0.01,
    "lower": 1 / 8,
    "upper": 1 / 3,
    "min_val": -1.0,
    "threshold": 20,
}


def activation_name(module: nn.Module) -> str:
    """Name a module's activation as torch's function is named."""
    name = type(module).__name__.lower()
    return "leaky_relu" if name == "leakyrelu" else name


def packed_activation(
    name: str, argument: Callable[[str], Any]
) -> tuple[str, dict[str, Any]] | None:
    """Find the packed operation of an activation and its parameters; None if there is none.

    Args:
        name: torch's name of the function.
        argument: gives the value of an argument by its name; None for torch's default.

    """

    def value(key: str) -> Any:
        given = argument(key)
        return _DEFAULTS.get(key, 1.0) if given is None else given

    name = name.replace("log_sigmoid", "logsigmoid")
    if name == "relu":
        return "relu", {}
    if name == "prelu":
        slope = value("weight")
        if getattr(slope, "numel", lambda: 0)() > 1:
            return "prelu", {"slope": slope}
        name, parameter = "leaky_relu", slope.detach()
    elif name == "rrelu":
        name, parameter = "leaky_relu", (value("lower") + value("upper")) / 2
    elif name == "gelu":
        name, parameter = "gelu_tanh" if value("approximate") == "tanh" else "gelu", 1.0
    elif name == "hardtanh":
        parameter = value("max_val")
        if value("min_val") != -parameter:
            return None
    elif name == "softplus" and value("threshold") != _DEFAULTS["threshold"]:
        return None
    else:
        parameter = value(_PARAMETERS[name]) if name in _PARAMETERS else 1.0
    if name == "elu" and parameter == 1:
        return "elu", {}
    if name not in ACTIVATIONS:
        return None
    return "activation", {"kind": name, "parameter": float(parameter)}

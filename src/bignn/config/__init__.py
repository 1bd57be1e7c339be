"""Names, defaults and checks of the arguments of models and training, as plain data without torch.

:mod:`bignn.nn`, recipes, costs and the command line's flags all take them from here.
"""

from __future__ import annotations

from bignn.config.model import (
    Activation,
    BinarizeMode,
    ConvName,
    DropMode,
    JumpMode,
    ModelConfig,
    ModelOptions,
    NormMode,
    SteRule,
    Structure,
    Widths,
)
from bignn.config.training import SampleKind, Sampling, SelectBy, Settings

__all__ = [
    "Activation",
    "BinarizeMode",
    "ConvName",
    "DropMode",
    "JumpMode",
    "ModelConfig",
    "ModelOptions",
    "NormMode",
    "SampleKind",
    "Sampling",
    "SelectBy",
    "Settings",
    "SteRule",
    "Structure",
    "Widths",
]

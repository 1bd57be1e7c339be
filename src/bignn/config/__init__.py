"""What models and their training are told, as plain data: names, defaults, checks. No torch.

:mod:`bignn.nn`, recipes, costs and the command line's flags all take them from here.
"""

from __future__ import annotations

from bignn.config.model import (
    Activation,
    BinarizeMode,
    ConvName,
    DropMode,
    JumpMode,
    ModelArguments,
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
    "ModelArguments",
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

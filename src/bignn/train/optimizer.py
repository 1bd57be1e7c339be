"""The optimizer: Adam as the settings ask for it, and its state in checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bignn.config import Settings
from bignn.nn import GNN
from bignn.nn.input_stage import InputStage


def adam(model: nn.Module, settings: Settings) -> torch.optim.Adam:
    """Build Adam: weight decay acts on matrices only, and the last layer has its own rate."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    stages = [part for part in model.modules() if isinstance(part, InputStage)]
    of_input = {id(p) for stage in stages for p in stage.parameters()}
    last = [p for p in matrices if id(p) not in of_input][-1:]
    if isinstance(model, GNN):
        end = model.convs[-1] if model.lin is None else model.lin
        last = [p for p in end.parameters() if p.ndim == 2]
    slow = {id(p) for p in last}
    decay, last_lr = settings.weight_decay, settings.lr * settings.last_layer_lr
    groups: list[dict[str, Any]] = [
        {"params": [p for p in matrices if id(p) not in slow], "weight_decay": decay},
        {"params": last, "weight_decay": decay, "lr": last_lr},
        {"params": others, "weight_decay": 0.0},
    ]
    # Fused: one pass over each parameter, on the CPU too. Capturable: its steps can be recorded.
    on_gpu = any(p.device.type == "cuda" for p in model.parameters())
    betas = (settings.beta1, 0.999)
    return torch.optim.Adam(groups, lr=settings.lr, betas=betas, fused=True, capturable=on_gpu)


def adam_state(
    stored: Mapping[str, Tensor], optimizer: torch.optim.Optimizer
) -> dict[int, dict[str, Tensor]]:
    """Sort Adam's stored moments by parameter; torch itself does not check that they fit."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    shapes = {
        f"{index}.{slot}": torch.Size() if slot == "step" else parameter.shape
        for index, parameter in enumerate(parameters)
        for slot in ("step", "exp_avg", "exp_avg_sq")
    }
    slots: dict[int, dict[str, Tensor]] = {}
    for name, value in stored.items():
        if name not in shapes or value.shape != shapes[name]:
            raise ValueError(f"'adam.{name}' of shape {list(value.shape)} is of no parameter")
        index, _, slot = name.partition(".")
        slots.setdefault(int(index), {})[slot] = value
    if incomplete := [index for index, found in slots.items() if len(found) < 3]:
        raise ValueError(f"'adam.{incomplete[0]}' is incomplete")
    return slots

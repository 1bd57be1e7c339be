"""The name of the machine that something ran on."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import torch


@cache
def machine(device: str) -> str:
    """Return the name of the processor or GPU."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()

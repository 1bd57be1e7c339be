"""What the system says about its CPU."""

from __future__ import annotations

import platform
from pathlib import Path


def cpu_info(key: str) -> str:
    """Return the first value of this key in Linux's /proc/cpuinfo; empty elsewhere."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        with info.open(errors="replace") as lines:  # to the first one, since each core has its own
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() == key:
                    return value.strip()
    return ""


def cpu_name() -> str:
    """Return the CPU's model, or what is known of it."""
    return cpu_info("model name") or platform.processor() or platform.machine()

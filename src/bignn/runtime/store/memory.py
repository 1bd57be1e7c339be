"""Amounts of memory: as users write them, and as the kernel counts them."""

from __future__ import annotations

import re
from pathlib import Path

from bignn.errors import input_error

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def memory_bytes(text: str | int, *, least: int = 0) -> int:
    """Read an amount such as ``"8G"``, ``"512M"`` or a number of bytes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", str(text).strip(), re.IGNORECASE)
    if found is None:
        raise input_error("memory", "an amount such as 8G or 512M", repr(text))
    amount = int(float(found[1]) * _UNITS[found[2].upper()])
    if amount < least:
        raise input_error("memory", f"{least >> 20}M or more", repr(text))
    return amount


def resident_memory() -> dict[str, int]:
    """Return this process's resident bytes, anonymous and of mapped files; zeros off Linux."""
    found = {"anonymous": 0, "file": 0}
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "RssAnon":
                found["anonymous"] = 1024 * int(value.split()[0])
            elif name in ("RssFile", "RssShmem"):
                found["file"] += 1024 * int(value.split()[0])
    return found

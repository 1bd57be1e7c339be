"""The exceptions users see for bad input, and how their lines are worded. Imports none of ours."""

from __future__ import annotations

from collections.abc import Iterable


class InputError(ValueError):
    """Something the user passed is wrong; the message is one line that can be shown as it is."""


class FileError(InputError):
    """A file is missing, damaged, or not what it should be."""


class WriteError(FileError):
    """A file cannot be written where it should be."""


#: The packages that are used, each with the extra that brings it; None where bignn itself does.
PACKAGES = {
    "numpy": None,
    "safetensors": None,
    "torch": "train",
    "torch_geometric": "train",
    "tqdm": "train",
    "matplotlib": "lab",
    "scipy": "lab",
    "jinja2": "lab",
    "pyarrow": "parquet",
}


def how_to_install(package: str) -> str:
    """What brings a package of :data:`PACKAGES`, as the README has it."""
    extra = PACKAGES[package]
    return "pip install " + ("." if extra is None else f"'.[{extra}]'")


def missing_extra(what: str, error: ImportError) -> str | None:
    """The line for a package that is not installed; None if it is none of :data:`PACKAGES`."""
    package = (error.name or "").split(".")[0]
    if package not in PACKAGES:
        return None
    install = f"{how_to_install(package)} in the folder of bignn's sources"
    return f"{what} needs {package}, which is not installed; install it: {install}"


def input_error(argument: str, expected: str, got: object, fix: str = "") -> InputError:
    """Builds ``'argument' must be <expected>, got <got>[; <fix>]``."""
    return InputError(f"'{argument}' must be {expected}, got {got}" + (f"; {fix}" if fix else ""))


def offsets_error(argument: str, offsets: Iterable[int], end: int) -> InputError:
    """The same of offsets that do not rise from 0 to ``end``: names the first that is wrong."""
    before, place = 0, -1
    for place, offset in enumerate(offsets):
        if offset < before or (place == 0 and offset != 0):
            break
        before = offset
    return input_error(argument, f"rising from 0 to {end}", f"{offset} at {place}")

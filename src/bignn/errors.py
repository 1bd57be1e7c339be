"""The exceptions that users see for bad input, and their wording. Imports none of ours."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Wrong input from the user; the message is one line that can be shown as it is."""


class FileError(InputError):
    """A file that is missing, damaged, or not what it should be."""


class WriteError(FileError):
    """A file that cannot be written to its place."""


#: The packages that bignn uses, each with the extra that installs it; None for required ones.
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
    "starlette": "serve",
    "uvicorn": "serve",
    "httptools": "serve",
    "cuda-bindings": "gpu",
    "nvidia-cuda-nvrtc": "gpu",
    "pymetis": "parts",
}


def how_to_install(package: str) -> str:
    """Return the command that installs a package of :data:`PACKAGES`, as in the README."""
    extra = PACKAGES[package]
    return "pip install " + ("." if extra is None else f"'.[{extra}]'")


def missing_extra(what: str, error: ImportError) -> str | None:
    """Return the line for a missing package; None if it is not in :data:`PACKAGES`."""
    package = (error.name or "").split(".")[0]
    if package not in PACKAGES:
        return None
    install = f"{how_to_install(package)} in the folder of bignn's sources"
    return f"{what} needs {package}, which is not installed; install it: {install}"


def input_error(argument: str, expected: str, got: object, fix: str = "") -> InputError:
    """Make the error ``'argument' must be <expected>, got <got>[; <fix>]``."""
    return InputError(f"'{argument}' must be {expected}, got {got}" + (f"; {fix}" if fix else ""))


def not_for_a_store(option: str, value: object) -> InputError:
    """Make the error for an option that a store does not have; a mere flag has no value to show."""
    got = "" if value is True else f", got {value!r}"
    return InputError(f"'{option}' must be left out for a store{got}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Ask for the known name that is nearest to another; nothing where none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean '{near[0]}'?" if near else ""


def offsets_error(argument: str, offsets: Iterable[int], end: int) -> InputError:
    """Make the error for offsets that do not rise from 0 to ``end``; names the first wrong one."""
    before, place = 0, -1
    for place, offset in enumerate(offsets):
        if offset < before or (place == 0 and offset != 0):
            break
        before = offset
    return input_error(argument, f"rising from 0 to {end}", f"{offset} at {place}")


def counted(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 node``, ``2 nodes``, ``2 classes``."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def printable(value: object, limit: int = 80) -> str:
    """Shorten a value that came from a file to one line without control characters."""
    line = " ".join(str(value).split())
    line = "".join(letter if letter.isprintable() else "?" for letter in line)
    return line if len(line) <= limit else f"{line[: limit - 3]}..."

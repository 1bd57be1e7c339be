"""The one exception users see for bad input, and how its line is worded. Imports nothing."""

from __future__ import annotations


class InputError(ValueError):
    """Something the user passed is wrong; the message is one line that can be shown as it is."""


class FileError(InputError):
    """A file is missing, damaged, or not what it should be."""


def missing_extra(what: str, error: ImportError) -> str | None:
    """The line for an optional package that is not installed; None if it is not one of those."""
    package = (error.name or "").split(".")[0]
    extras = {"torch": "train", "torch_geometric": "train", "tqdm": "train", "matplotlib": "plot"}
    if package not in extras:
        return None
    install = f"pip install 'bignn[{extras[package]}]'"
    return f"{what} needs {package}, which is not installed; install it: {install}"


def wrong(argument: str, expected: str, got: object, fix: str = "") -> InputError:
    """Builds ``'argument' must be <expected>, got <got>[; <fix>]``."""
    return InputError(f"'{argument}' must be {expected}, got {got}" + (f"; {fix}" if fix else ""))

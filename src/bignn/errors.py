"""The one exception users see for bad input, and how its line is worded. Imports nothing."""

from __future__ import annotations


class InputError(ValueError):
    """Something the user passed is wrong; the message is one line that can be shown as it is."""


class FileError(InputError):
    """A file is missing, damaged, or not what it should be."""


def wrong(argument: str, expected: str, got: object, fix: str = "") -> InputError:
    """Builds ``'argument' must be <expected>, got <got>[; <fix>]``."""
    return InputError(f"'{argument}' must be {expected}, got {got}" + (f"; {fix}" if fix else ""))

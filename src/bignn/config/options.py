"""Declaring an option with its default, purpose and bounds in one place, and checking values."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from bignn.errors import input_error, printable

T = TypeVar("T")


def as_integer(value: object) -> object:
    """Return the integer that a value stands for (``__index__``); other values as they are."""
    if isinstance(value, bool):
        return value
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        return value


def check_size(name: str, value: int) -> None:
    """Refuse a whole number that no array could have: sizes are numbers of 64 bits."""
    if abs(value) >= 2**63:
        raise input_error(name, "below 2**63", printable(repr(value)))


@dataclass(frozen=True)
class Bounds:
    """Numbers that an option accepts: a description for error messages, and a test."""

    expected: str
    hold: Callable[[Any], bool]

    def check(self, name: str, value: object) -> None:
        """Refuse a value that is not such a number."""
        value = as_integer(value)
        if not isinstance(value, Real) or not self.hold(value):
            raise input_error(name, self.expected, printable(repr(value)))
        if isinstance(value, int):
            check_size(name, value)


COUNT = Bounds("a whole number, at least 1", lambda n: isinstance(n, Integral) and int(n) >= 1)
#: Bits that a layer may be trained to round its neighbours' weights to, and the default: as
#: accurate as float weights, and one digit of the gather on every CPU (docs/design.md).
TRAINED_EDGE_BITS = range(2, 9)
DEFAULT_EDGE_BITS = 7
EDGE_BITS = Bounds(
    f"a whole number from {TRAINED_EDGE_BITS[0]} to {TRAINED_EDGE_BITS[-1]}, or none for float "
    "weights",
    lambda n: isinstance(n, Integral) and not isinstance(n, bool) and n in TRAINED_EDGE_BITS,
)
POSITIVE = Bounds("a positive number", lambda x: math.isfinite(x) and x > 0)
NOT_NEGATIVE = Bounds("0 or more", lambda x: math.isfinite(x) and x >= 0)
BELOW_ONE = Bounds("in [0, 1)", lambda x: 0 <= x < 1)
SHARE = Bounds("in [0, 1]", lambda x: 0 <= x <= 1)


def about(purpose: str, bounds: Bounds | None = None) -> dict[str, Any]:
    """Build the metadata of a field: its purpose, as ``--help`` prints it, and its bounds."""
    return {"purpose": purpose, "bounds": bounds}


def option(default: T, purpose: str, bounds: Bounds | None = None) -> T:
    """Declare a dataclass field with a default; typed as its value, like ``field``."""
    declared: T = field(default=default, metadata=about(purpose, bounds))
    return declared


@cache
def types_of(kind: type) -> dict[str, Any]:
    """Resolve the types of a dataclass's fields, by name."""
    return get_type_hints(kind)


def required_type(type_: Any) -> Any:
    """Strip None from an optional type: ``Literal["cat"] | None`` becomes ``Literal["cat"]``."""
    if type(None) not in get_args(type_):
        return type_
    (required,) = (some for some in get_args(type_) if some is not type(None))
    return required


def check(options: Any) -> None:
    """Check every field of a dataclass against its literals and bounds; integers become ``int``.

    None is accepted where the type allows it.
    """
    kind: type = type(options)
    for declared in fields(kind):
        name, type_ = declared.name, types_of(kind)[declared.name]
        value, required = getattr(options, name), required_type(type_)
        if value is None and required is not type_:
            continue
        if get_origin(required) is Literal:
            check_choice(name, value, type_)
        if required is bool and not isinstance(value, bool | np.bool_):
            raise input_error(name, "True or False", printable(repr(value)))
        bounds: Bounds | None = declared.metadata.get("bounds")
        if bounds is not None:
            bounds.check(name, value)
            # A plain number in place of NumPy's, or of advice on a width, so that JSON takes it.
            object.__setattr__(options, name, as_integer(value))


def check_choice(name: str, value: object, choices: Any) -> None:
    """Refuse a value that is none of the choices, given as a ``Literal`` or an optional one."""
    required = required_type(choices)
    allowed = [*get_args(required), *([] if required is choices else [None])]
    if value not in allowed:
        raise input_error(name, f"one of {allowed}", printable(repr(value)))

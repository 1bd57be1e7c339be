"""How an option is declared, default, purpose and bounds in one place, and how it is checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from bignn.errors import input_error

T = TypeVar("T")


@dataclass(frozen=True)
class Bounds:
    """Which numbers an option takes: in words, and as a test."""

    expected: str
    hold: Callable[[Any], bool]

    def check(self, name: str, value: object) -> None:
        """Refuses what is no such number."""
        if not isinstance(value, Real) or not self.hold(value):
            raise input_error(name, self.expected, repr(value))


COUNT = Bounds("a whole number, at least 1", lambda n: isinstance(n, Integral) and int(n) >= 1)
POSITIVE = Bounds("a positive number", lambda x: math.isfinite(x) and x > 0)
NOT_NEGATIVE = Bounds("0 or more", lambda x: math.isfinite(x) and x >= 0)
BELOW_ONE = Bounds("in [0, 1)", lambda x: 0 <= x < 1)
SHARE = Bounds("in [0, 1]", lambda x: 0 <= x <= 1)


def about(purpose: str, bounds: Bounds | None = None) -> dict[str, Any]:
    """The metadata of a field: what it is for, as ``--help`` says it, and the numbers it takes."""
    return {"purpose": purpose, "bounds": bounds}


def option(default: T, purpose: str, bounds: Bounds | None = None) -> T:
    """A dataclass field with a default, see :func:`about`; typed as its value, as ``field`` is."""
    declared: T = field(default=default, metadata=about(purpose, bounds))
    return declared


@cache
def types_of(kind: type) -> dict[str, Any]:
    """The types of a dataclass's fields."""
    return get_type_hints(kind)


def check(options: Any) -> None:
    """Refuses values of a dataclass that are none of a field's literals, or out of its bounds.

    None passes where the type allows it.
    """
    kind: type = type(options)
    for declared in fields(kind):
        name, type_ = declared.name, types_of(kind)[declared.name]
        value = getattr(options, name)
        if get_origin(type_) is Literal:
            check_choice(name, value, type_)
        bounds: Bounds | None = declared.metadata.get("bounds")
        if bounds is not None and not (value is None and type(None) in get_args(type_)):
            bounds.check(name, value)


def check_choice(name: str, value: object, choices: Any) -> None:
    """Refuses what is none of the choices, a ``Literal``."""
    if value not in get_args(choices):
        raise input_error(name, f"one of {list(get_args(choices))}", repr(value))

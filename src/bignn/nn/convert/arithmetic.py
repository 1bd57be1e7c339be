"""Arithmetic between a model's layers, as steps: of two values, or of a value and a constant."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bignn.nn.convert.norms import times_columns
from bignn.nn.convert.steps import LazyValue, Steps, failing

#: Operators that change a value under all its names; fx alone records the form that does not.
IN_PLACE_OPERATORS = {
    f"__{name}__": getattr(operator, name)
    for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul")
}
Operand = LazyValue | Tensor | float


def _functions(*names: str) -> set[Callable[..., Any]]:
    homes: tuple[Any, ...] = (operator, torch, Tensor)
    found = (getattr(home, name, None) for home in homes for name in names)
    return {function for function in found if function is not None}


SUMS = _functions("add", "iadd", "add_")
DIFFERENCES = _functions("sub", "isub", "sub_", "subtract", "subtract_")
PRODUCTS = _functions("mul", "imul", "mul_", "multiply", "multiply_")
QUOTIENTS = _functions("truediv", "itruediv", "div", "div_", "divide", "divide_", "true_divide")
NEGATIONS = _functions("neg", "neg_", "negative")
#: Functions of two operands.
ARITHMETIC = SUMS | DIFFERENCES | PRODUCTS | QUOTIENTS


def combined(steps: Steps, function: Any, a: Operand, b: Operand) -> LazyValue:
    """Build the value of a function in :data:`ARITHMETIC`; one operand at least is a value."""
    if function in SUMS:
        return plus(steps, a, b)
    if function in DIFFERENCES:
        return plus(steps, a, _negative(steps, b))
    if function in PRODUCTS:
        return times(steps, a, b)
    if isinstance(b, LazyValue):
        return failing("no packed operation divides by a value of the nodes; multiply instead")
    return times(steps, a, 1 / b)


def plus(steps: Steps, a: Operand, b: Operand) -> LazyValue:
    """Add two operands."""
    if not isinstance(a, LazyValue):
        a, b = b, a
    assert isinstance(a, LazyValue)
    if isinstance(b, LazyValue):
        return steps.value("add", [a, b])
    constant = _number_or_columns(b)
    if isinstance(constant, float):
        # ``sum(list)`` begins with 0.
        return steps.value("shift", [a], amount=constant) if constant else a
    return _of_columns(a, constant, lambda columns: steps.value("bias", [a], bias=columns))


def times(steps: Steps, a: Operand, b: Operand) -> LazyValue:
    """Multiply two operands."""
    if not isinstance(a, LazyValue):
        a, b = b, a
    assert isinstance(a, LazyValue)
    if isinstance(b, LazyValue):
        return steps.value("multiply", [a, b])
    constant = _number_or_columns(b)
    if isinstance(constant, float):
        return steps.value("scale", [a], factor=constant)
    return _of_columns(a, constant, lambda columns: times_columns(steps, a, columns))


def _negative(steps: Steps, operand: Operand) -> Operand:
    return times(steps, operand, -1.0) if isinstance(operand, LazyValue) else -operand


def _number_or_columns(constant: Tensor | float) -> Tensor | float:
    """Read a constant as a number, or as one number per column."""
    if not isinstance(constant, Tensor):
        return float(constant)
    if constant.numel() == 1:
        return float(constant)
    return constant[0] if constant.ndim == 2 and len(constant) == 1 else constant


def _of_columns(a: LazyValue, columns: Tensor, made: Callable[[Tensor], LazyValue]) -> LazyValue:
    if columns.ndim != 1:
        return failing(
            f"a parameter of shape {list(columns.shape)} is neither one number nor one per column"
        )
    return made(columns)


def reduced(steps: Steps, name: str, values: list[LazyValue]) -> LazyValue:
    """Build the sum, mean or maximum of several values."""
    if len(values) == 1:
        return values[0]
    if name in ("max", "amax"):
        return steps.value("maximum", values)
    total = steps.value("add", values)
    return total if name == "sum" else times(steps, total, 1 / len(values))

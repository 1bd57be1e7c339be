"""Calls in a traced forward: what is called, with which arguments, and where."""

from __future__ import annotations

import operator
import re
from typing import Any

from torch import Tensor, fx

from bignn.nn.convert.arithmetic import IN_PLACE_OPERATORS
from bignn.nn.convert.before_activation import works_in_place
from bignn.nn.convert.steps import line_of


def argument_of(node: fx.Node, place: int, *names: str) -> Any:
    """Find an argument by place or by name; None if it is not given."""
    if len(node.args) > place:
        return node.args[place]
    return next((node.kwargs[name] for name in names if name in node.kwargs), None)


def called_function(node: fx.Node) -> Any:
    """Find the function that is called."""
    if node.op == "call_method":
        return getattr(Tensor, str(node.target), None)
    return node.target


def called_name(node: fx.Node) -> str:
    """Name the function or method that is called; empty for modules and checks of arguments."""
    if node.op == "call_method":
        return str(node.target)
    if node.op != "call_function":
        return ""
    name = getattr(node.target, "__name__", str(node.target))
    return "" if name.startswith("_assert") else name


def described(given: Any) -> str:
    """Describe an argument for messages: what made it, if forward did."""
    if not isinstance(given, fx.Node):
        return repr(given)
    made = given.args[0] if given.target is operator.getitem else given
    if not isinstance(made, fx.Node) or not (name := called_name(made)):
        return f"'{given.target}'"
    return f"what '{name.removesuffix('_')}' makes{line_of_call(made)}"


def changes_its_input(node: fx.Node) -> bool:
    """Whether a call works in place: ``relu_``, ``+=``, ``inplace=True``."""
    if node.op == "call_function" and node.target in IN_PLACE_OPERATORS.values():
        return True
    return works_in_place(called_function(node), node.kwargs)


def called_in(node: fx.Node) -> str:
    """Describe the innermost module that calls a function; empty for the model itself."""
    within = [(name, kind) for name, kind in node.meta.get("nn_module_stack", {}).values() if name]
    if not within:
        return ""
    name, kind = within[-1]
    return f" in {kind.__name__} '{name}'"


def line_of_call(node: fx.Node) -> str:
    """Name the line of code that a call is in, where it is known."""
    found = re.findall(r'File "(.+)", line (\d+)', node.stack_trace or "")
    return line_of([(file, int(line)) for file, line in found])

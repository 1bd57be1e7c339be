"""Steps of a traced model, as packing writes them, and values that are made when they are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch_geometric
from torch import nn

import bignn
from bignn.errors import InputError


@dataclass(frozen=True)
class Step:
    """One step of a model's forward.

    Attributes:
        op: ``"standardize"``, ``"layer"`` (one of bignn's; a GIN layer without its ``rest``),
            ``"linear"`` (one that stayed float), ``"product"`` (of a convolution's linear map,
            without its bias) or ``"batch_norm"``; or, without a module, a packed operation.
        inputs: names of the values that it reads.
        out: name of the value that it makes.
        module: the module that does it, if there is one.
        parameters: the packed operation's parameters; tensors become arrays.

    """

    op: str
    inputs: list[str]
    out: str
    module: nn.Module | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)


def cannot_pack(why: str) -> InputError:
    """Build the error for a model that cannot be packed."""
    return InputError(
        f"the model cannot be packed: {why}; in torch it trains and predicts all the same"
    )


def title_of(module: nn.Module, name: str) -> str:
    """Name a module for messages: its class, before it was converted, and its name in the model."""
    return f"{getattr(module, 'replaced_class', type(module).__name__)} '{name}'"


def line_of(frames: Sequence[tuple[str, int]]) -> str:
    """Name the innermost line of a user's own code, of ``(file, line)`` pairs; may be empty."""
    modules = (bignn, torch, torch_geometric)
    libraries = tuple(str(Path(str(module.__file__)).parent) for module in modules)
    own = [(file, line) for file, line in frames if not file.startswith(libraries)]
    return f" (line {own[-1][1]} of {Path(own[-1][0]).name})" if own else ""


class LazyValue:
    """A value whose step is added when it is first used, and the value before activation."""

    def __init__(self, make: Callable[[], str], before: LazyValue | None = None) -> None:
        self._make = make
        self._name: str | None = None
        self.before = before or self
        self.has_before = before is not None

    @property
    def name(self) -> str:
        """Name of the value; adds its step if nothing has used it yet."""
        if self._name is None:
            self._name = self._make()
        return self._name


def failing(why: str, before: LazyValue | None = None) -> LazyValue:
    """Make a value that cannot be packed; only its use is an error."""

    def fail() -> str:
        raise cannot_pack(why)

    return LazyValue(fail, before)


class Steps:
    """The steps so far, in the order in which they are needed."""

    def __init__(self) -> None:
        self.list: list[Step] = []

    def value(
        self,
        op: str,
        inputs: Sequence[LazyValue],
        module: nn.Module | None = None,
        before: LazyValue | None = None,
        **parameters: Any,
    ) -> LazyValue:
        """Make the value of a step that is added when the value is first used."""

        def add() -> str:
            names = [value.name for value in inputs]
            out = f"t{len(self.list)}"
            self.list.append(Step(op, names, out, module, parameters))
            return out

        return LazyValue(add, before)

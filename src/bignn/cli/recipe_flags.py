"""Flags that change a recipe, one for each value that :mod:`bignn.config` declares."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin

from bignn.cli.command import numbers
from bignn.config import SampleKind, Sampling, Settings
from bignn.config.options import required_type, types_of
from bignn.train.recipes import SAMPLING, Recipe


def add_recipe_flags(parser: Any, names: Sequence[str]) -> None:
    """Add the flags of these values; a flag that is left out keeps the recipe's value."""
    for name in names:
        _add_flag(parser, name, *_VALUES[name])


def changes_of(options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Return the values of these flags, as :func:`bignn.train.recipes.recipe` takes them."""
    return {name: getattr(options, name) for name in names}


def _add_flag(parser: Any, name: str, type_: Any, purpose: str) -> None:
    how: dict[str, Any] = {"default": None, "help": f"{purpose} (default: the recipe's)"}
    required = required_type(type_)
    is_optional, type_ = required is not type_, required
    if type_ is bool:
        how["action"] = argparse.BooleanOptionalAction
    elif get_origin(type_) is Literal:
        how["choices"] = (*(["none"] if is_optional else []), *get_args(type_))
    elif get_origin(type_) is tuple:
        how |= {"type": numbers, "metavar": "K,K"}
    else:
        parse = _whole_or_none if is_optional and type_ is int else type_
        how |= {"type": parse, "metavar": "N" if type_ is int else "X"}
    flag = _SHORT.get(name, name).replace("_", "-")
    parser.add_argument(f"--{flag}", dest=name, **how)


def _whole_or_none(text: str) -> int | str:
    try:
        return text if text == "none" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number or none, got '{text}'") from None


#: Flags that are shorter than the values' names.
_SHORT = {"hidden_channels": "hidden", "num_layers": "layers"}


def _values() -> dict[str, tuple[Any, str]]:
    """Return the type and the purpose of each value that has a flag, by its name."""
    return {
        declared.name: (types_of(kind)[declared.name], declared.metadata["purpose"])
        for kind in (Recipe, Settings, Sampling)
        for declared in fields(kind)
        if "purpose" in declared.metadata
    } | {"sampler": (Literal["none", SampleKind], "how batches are drawn")}


_VALUES = _values()


def _of(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name in _VALUES)


#: The values of models, of training and of samples.
OF_MODEL = (*_SHORT, *(name for name in _of(Recipe) if name not in _SHORT))
OF_TRAINING = _of(Settings)
OF_SAMPLES = SAMPLING

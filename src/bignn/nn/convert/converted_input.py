"""The input stage of converted models, which tells of features that need more bits."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from bignn.binarize import binarize_features
from bignn.config.input_bits import SIGN
from bignn.nn.features import BinaryRows
from bignn.nn.input_stage import InputStage, Moments
from bignn.runtime.input_bits import choose_input_bits

# Features are judged by this many rows, evenly spaced; of fewer rows than that nothing is known.
_MANY_ROWS, _FEW_ROWS = 4096, 32
# An attribute of tensors that are features: their signs and torch's count of changes, once needed.
_MARK = "_bignn_signs_of_features"


class ConvertedInput(InputStage):
    """The standardised input of a converted model.

    Args:
        num_features: d.
        reader: the name of the layer that reads it.
        more_bits: options of ``binarize_`` that give it more bits, which ``{bits}`` stands for;
            None if it cannot have more.
        is_at_layer: whether the layer itself calls the stage, and takes bits; otherwise the model
            does, with a tensor.
        reads_x: whether the layer reads the model's features themselves, as far as is known.
        input_bits: as of :class:`InputStage`.

    Attributes:
        advice: the remedy where the features that it was fitted to are dense and few; None if not.

    """

    def __init__(
        self,
        num_features: int,
        reader: str,
        more_bits: str | None,
        *,
        is_at_layer: bool,
        reads_x: bool = True,
        input_bits: str = SIGN,
    ) -> None:
        """Build the stage; the description of the class lists its arguments."""
        super().__init__(
            num_features,
            normalize_rows=False,
            standardize=True,
            binarize=is_at_layer,
            dense=not is_at_layer,
            input_bits=input_bits,
        )
        self.reader, self._more_bits, self.reads_x = reader, more_bits, reads_x
        self.advice: str | None = None

    def forward(self, x: Tensor) -> Any:
        """Compute the first layer's input, and mark it as the features."""
        made = super().forward(x)
        if self.reads_x and isinstance(made, Tensor):
            mark_features(made)
        return made

    def fit(self, x: Tensor, moments: Moments | None = None) -> None:
        """Take the statistics of x [N, d]; warn if it is dense and has few columns."""
        super().fit(x, moments)
        if self.encoder is None:
            self.advice = warn_of_dense(x, self.reader, self._more_bits)


def warn_of_dense(x: Tensor, reader: str, more_bits: str | None) -> str | None:
    """Warn if features are dense and few; return the remedy, or None where none is needed.

    Args:
        x: the features [N, d].
        reader: the name of the layer that reads them by their signs.
        more_bits: as of :class:`ConvertedInput`.

    """
    # What requires a gradient is an embedding, which learns to be read by its signs.
    if len(x) < _FEW_ROWS or x.requires_grad:
        return None
    some = x[:: -(-len(x) // _MANY_ROWS)].float().cpu().numpy()
    if (bits := choose_input_bits(some)) == SIGN:
        return None
    if more_bits is None:
        fix = "put a Linear before it, which can read more bits (input_bits and first)"
    else:
        random = bits.replace("learned", "rotate")
        fix = (
            f"try binarize_(model, {more_bits.format(bits=bits)}), with '{random}' where few nodes "
            "have labels"
        )
    warnings.warn(
        f"'{reader}' reads {x.shape[1]} dense features by their signs, one bit each, which tells "
        f"little of so few; {fix}, or keep it float with skip=['{reader}']",
        stacklevel=3,
    )
    return fix


class MarkInput:
    """A forward pre-hook that marks the input of a model, x or a PyG ``Data``, as its features.

    For models whose first layer centres its own input: nothing else looks at the features.

    Args:
        reader: the name of that layer.

    """

    def __init__(self, reader: str) -> None:
        self._reader = reader
        self._has_looked = False

    def __call__(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Mark the features; in training, look once whether they are dense and few."""
        given = kwargs.get("x", args[0] if args else None)
        x = given if isinstance(given, Tensor) else getattr(given, "x", None)
        if not isinstance(x, Tensor) or not x.is_floating_point():
            return
        mark_features(x)
        if model.training and not self._has_looked and x.ndim == 2 and x.layout is torch.strided:
            self._has_looked = True
            warn_of_dense(x, self._reader, None)


def mark_features(x: Tensor) -> None:
    """Mark a tensor as a model's features, as they are or standardised."""
    if not is_features(x):
        setattr(x, _MARK, [])


def is_features(x: object) -> bool:
    """Whether x is marked as a model's features."""
    return hasattr(x, _MARK)


def signs_of_features(x: Tensor) -> BinaryRows:
    """Return the signs of marked features, which are made once unless they change."""
    made: list[tuple[int, BinaryRows]] = getattr(x, _MARK)
    version = 0 if x.is_inference() else x._version
    if not made or made[0][0] != version:
        with torch.inference_mode(False), torch.no_grad():
            made[:] = [(version, BinaryRows(*binarize_features(x)))]
    return made[0][1]


class _Fitted(Exception):  # noqa: N818 - no error
    """Ends a call that was only made for statistics."""


def fit_inner_stage(model: nn.Module, call: Callable[[], object]) -> bool:
    """Take the statistics of a layer's input that is not the features, by a call of the model.

    Such a layer is after an embedding, or wherever ``binarize_(model, first=...)`` has put its
    input stage. The call ends where they are taken. Returns whether they were: a stage that the
    call does not reach is left to the first training batch that does.
    """
    stages = [m for m in model.modules() if isinstance(m, ConvertedInput) and not m.reads_x]
    if not stages:
        return False
    stage = stages[0]

    def fit(x: Tensor) -> NoReturn:
        stage.fit(x)
        raise _Fitted

    # Not a hook, which a call of the method passes by.
    vars(stage)["forward"] = fit
    try:
        call()
    except _Fitted:
        return True
    finally:
        del vars(stage)["forward"]
    return False

"""Warnings where a layer's input signs, or a model's outputs, are the same at all nodes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from bignn.nn.features import BinaryRows

# Batches of fewer rows have columns of one sign by chance.
_MIN_ROWS = 32
# The largest share of dead columns that a hidden layer's input may have. Trained models have up to
# a quarter of them (docs/design.md).
_MAX_DEAD = 0.5
# Rows of so many columns that differ from the most common row in fewer bits than that, on average,
# as the rows of an identity matrix do, are nearly one row.
_MIN_COLUMNS, _MIN_BITS = 64, 2.0
# The largest share of rows that may have one and the same output.
_MAX_EQUAL = 0.95
# Outputs are judged by so many rows, evenly spaced.
_MANY_ROWS = 4096
# The first batches are watched at 1, 2, 4, ..., later ones at multiples of this.
_EVERY = 32
# Outputs are judged from this batch on: those of good models may be equal in their first epochs.
_FIRST_OUTPUTS = 8


class _Schedule:
    """A count of batches, of which few are watched; and whether a warning was given."""

    def __init__(self, first_batch: int = 1) -> None:
        self.first_batch = first_batch
        self.num_batches = 0
        self.has_warned = False

    def is_due(self, num_rows: int) -> bool:
        """Count a batch; return whether to watch it."""
        self.num_batches += 1
        count = self.num_batches
        is_listed = count % _EVERY == 0 or (count < _EVERY and count & (count - 1) == 0)
        return (
            count >= self.first_batch
            and is_listed
            and not self.has_warned
            and num_rows >= _MIN_ROWS
        )


class SignWatch(_Schedule):
    """A watch over the input of a binary layer for dead columns: of one sign at all rows.

    Args:
        first: the watch of the model's first layer, whose warning is enough; None for its own.

    """

    def __init__(self, first: SignWatch | None = None) -> None:
        super().__init__()
        self._first = first

    @torch.no_grad()
    def see(self, x: Any, name: str, *, is_input: bool) -> None:
        """Look at a training batch, if it is due, and warn once if most columns are dead.

        Of the model's own features many may be, as words that occur in no row of a batch: there
        all columns must be dead.
        """
        if not isinstance(x, Tensor | BinaryRows) or not self.is_due(x.shape[0]):
            return
        if self._first is not None and self._first.has_warned:
            return
        if isinstance(x, Tensor) and not is_input and bool(torch.isnan(x).any()):
            self.has_warned = True
            share = float(torch.isnan(x).float().mean())
            warnings.warn(
                f"{share:.1%} of the numbers that '{name}' reads are NaN; look for roots and "
                "logarithms of negative numbers, and divisions by 0, in what the forward computes",
                stacklevel=2,
            )
            return
        is_plus = (x.signs if isinstance(x, BinaryRows) else x) >= 0
        if self._first is None and self._warn_of_near_equal_rows(is_plus, name):
            return
        dead = float((is_plus == is_plus[0]).all(dim=0).float().mean())
        if dead < 1 and (is_input or dead <= _MAX_DEAD):
            return
        self.has_warned = True
        fix = (
            "check that the features differ between nodes"
            if is_input
            else f"convert with center=True, or keep it float with skip=['{name}']"
        )
        warnings.warn(
            f"{dead:.0%} of the columns that '{name}' reads have one sign at all {x.shape[0]} rows "
            f"of a batch, so they tell it nothing; {fix}",
            stacklevel=2,
        )

    def _warn_of_near_equal_rows(self, is_plus: Tensor, name: str) -> bool:
        """Warn if the rows that the first layer reads are nearly one; return whether they are."""
        num_rows, num_columns = is_plus.shape
        common = is_plus.float().mean(dim=0) >= 0.5
        differing = float((is_plus != common).sum()) / num_rows
        if num_columns < _MIN_COLUMNS or not 0 < differing < _MIN_BITS:
            return False
        self.has_warned = True
        warnings.warn(
            f"the rows that '{name}' reads differ from each other in about {differing:.1f} of "
            f"{num_columns} bits, as those of an identity matrix, so it learns little; keep it "
            f"float with skip=['{name}'], or give the nodes an nn.Embedding",
            stacklevel=3,
        )
        return True


def watch_outputs(model: nn.Module) -> None:
    """Warn once if the model's output is the same at every row of a batch.

    Batches of evaluation count once the model has been trained: its running statistics may have
    fallen behind the weights, so that all nodes are on one side of them.
    """
    model.register_forward_hook(_OutputWatch())


class _OutputWatch:
    def __init__(self) -> None:
        self.training, self.evaluation = _Schedule(_FIRST_OUTPUTS), _Schedule()

    @torch.no_grad()
    def __call__(self, model: nn.Module, args: Any, out: Any) -> None:
        if torch.compiler.is_compiling() or not isinstance(out, Tensor) or out.ndim != 2:
            return
        schedule = self.training if model.training else self.evaluation
        if self.training.has_warned or not (
            model.training or self.training.num_batches >= _FIRST_OUTPUTS
        ):
            return
        if not schedule.is_due(len(out)):
            return
        if any(watch.has_warned for watch in _sign_watches(model)):
            return
        self.training.has_warned = warn_of_equal_rows(out)


def warn_of_equal_rows(out: Tensor) -> bool:
    """Warn if a model's outputs are equal at every row, or nearly; return whether they are.

    Where they are equal, a few rows of many neighbours may still have outputs of their own.
    """
    if len(out) < 2 or not out.is_floating_point():
        return False
    step = -(-len(out) // _MANY_ROWS)
    # On the CPU, where medians are deterministic; of one row, expanded, torch's median is 0.
    some = out.reshape(len(out), -1)[::step].float().cpu().contiguous()
    usual = some.median(dim=0).values
    is_equal = ((some - usual).abs() <= 1e-6 * some.abs().amax()).all(dim=1)
    share = float(is_equal.float().mean())
    if share < _MAX_EQUAL:
        return False
    rows = f"all {len(some)}" if share == 1 else f"{share:.1%} of {len(some)}"
    warnings.warn(
        f"the model's outputs are equal at {rows} rows; convert with center=True, train at a lower "
        "rate, take fewer layers, or keep some float with skip=[...]",
        stacklevel=3,
    )
    return True


def _sign_watches(model: nn.Module) -> Iterator[SignWatch]:
    for module in model.modules():
        if (wrapping := getattr(module, "wrapping", None)) is not None:
            yield wrapping.signs

"""How far a training run has come, as checkpoints store it. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from bignn.config import Settings
from bignn.errors import input_error, printable
from bignn.train.early_stopping import should_stop

_TYPES = {"int": int, "float": float, "bool": bool}


@dataclass
class Progress:
    """The number of epochs that a run has trained, and the best of them.

    Attributes:
        epoch: number of epochs trained.
        best_epoch: the epoch whose weights count; 0 before the first.
        best_loss: its loss on validation.
        best_acc: its accuracy on validation, in percent; of other tasks their score.
        seconds: time spent training and validating.
        finished: whether there is nothing left to train.
        left_teacher: the last epoch with a teacher, where there were others after it; 0 before.

    """

    epoch: int = 0
    best_epoch: int = 0
    best_loss: float = math.inf
    best_acc: float = 0.0
    seconds: float = 0.0
    finished: bool = False
    left_teacher: int = 0

    @classmethod
    def from_json(cls, stored: Any, settings: Settings, *, is_percent: bool = True) -> Progress:
        """Read what a checkpoint stores; refuse values that no run of these settings has."""
        kinds = {field.name: _TYPES[str(field.type)] for field in fields(cls)}
        if isinstance(stored, dict):
            stored = {"left_teacher": 0} | stored  # of a run before that existed
        if not isinstance(stored, dict) or stored.keys() != kinds.keys():
            raise input_error("progress", f"an object with {list(kinds)}", printable(stored))
        for name, kind in kinds.items():
            if type(stored[name]) is not kind:  # a bool is no int here
                raise input_error(name, f"of type {kind.__name__}", printable(stored[name]))
        progress = cls(**stored)
        epoch, best, loss = progress.epoch, progress.best_epoch, progress.best_loss
        left = progress.left_teacher
        last = settings.epochs if settings.leave_teacher else 0
        _check("left_teacher", 0 <= left <= last, f"0 to {last}", left)
        last = left + settings.epochs
        _check("epoch", left <= epoch <= last, f"{left} to {last}", epoch)
        _check("best_epoch", min(epoch, 1) <= best <= epoch, f"an epoch up to {epoch}", best)
        _check("best_loss", math.isfinite(loss) or epoch == 0, "finite", loss)
        score, highest = progress.best_acc, 100 if is_percent else math.inf
        _check("best_acc", 0 <= score <= highest, "a percentage" if is_percent else "0 up", score)
        _check("seconds", 0 <= progress.seconds < math.inf, "0 or more", progress.seconds)
        is_over = should_stop(epoch, best, settings, left)
        _check("finished", progress.finished == is_over, f"{is_over} here", progress.finished)
        return progress


def _check(name: str, holds: bool, expected: str, value: object) -> None:
    if not holds:
        raise input_error(name, expected, printable(value))

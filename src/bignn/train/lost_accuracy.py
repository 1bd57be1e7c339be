"""Advice where a converted model has ended far behind its teacher."""

from __future__ import annotations

import warnings

from torch import nn

from bignn.nn.convert.converted_input import ConvertedInput
from bignn.nn.convert.wrapped_layer import has_binary_layers, has_uncentred_layers
from bignn.train.tasks import Task

#: Points of validation: a converted model that is further behind its teacher gets advice.
MOST_LOST = 5.0
#: The same of errors, which are lower if better: this many times the teacher's.
MOST_ERROR = 1.5


def warn_of_lost_accuracy(
    model: nn.Module, task: Task, own: float, teachers: float, *, was_improving: bool
) -> None:
    """Warn if a converted model is far behind its teacher on validation, or far ahead of it.

    Args:
        model: the model.
        task: what it predicts.
        own: its score.
        teachers: its first teacher's score.
        was_improving: whether its last epochs were still better than those before.

    """
    if not has_binary_layers(model):
        return
    if _is_far_behind(teachers, own, task):
        warnings.warn(
            f"the teacher has only {task.describe(teachers)} on validation, the model "
            f"{task.describe(own)}; is it trained, with its outputs in the same order?",
            stacklevel=3,
        )
    if not _is_far_behind(own, teachers, task):
        return
    remedies = ["wider hidden layers", "skip=[...] for a few"]
    if has_uncentred_layers(model):
        remedies.insert(0, "binarize_(model, center=True)")
    if was_improving:
        remedies.insert(0, "more epochs")
    stages = [part for part in model.modules() if isinstance(part, ConvertedInput)]
    if any(stage.advice is not None for stage in stages):
        remedies.insert(0, "more input bits")
    warnings.warn(
        f"the model has {task.describe(own)} on validation, its teacher {task.describe(teachers)}; "
        f"try {', '.join(remedies[:-1])}, or {remedies[-1]}",
        stacklevel=3,
    )


def _is_far_behind(own: float, other: float, task: Task) -> bool:
    return own > MOST_ERROR * other if task.lower_is_better else other - own > MOST_LOST

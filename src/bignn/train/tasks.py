"""Tasks: what a model learns to predict, its loss, and the score it is judged by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from bignn.errors import input_error
from bignn.runtime import Output

#: Classes that exclude each other, labels that do not, numbers, and links between nodes.
TaskKind = Literal["classes", "labels", "values", "links"]
Metric = Literal["accuracy", "micro_f1", "mae", "auc"]
#: A loss by its name, or a function of outputs and targets that returns a mean.
Loss = Literal["cross_entropy", "bce", "mse", "l1"] | Callable[[Tensor, Tensor], Tensor]

_METRICS: dict[TaskKind, Metric] = {
    "classes": "accuracy",
    "labels": "micro_f1",
    "values": "mae",
    "links": "auc",
}
_KINDS_OF_LOSSES: dict[str, TaskKind] = {
    "cross_entropy": "classes",
    "bce": "labels",
    "mse": "values",
    "l1": "values",
}
_TITLES: dict[Metric, str] = {
    "accuracy": "acc {:.1f}%",
    "micro_f1": "micro-F1 {:.1f}%",
    "mae": "MAE {:.4g}",
    "auc": "AUC {:.1f}%",
}


@dataclass(frozen=True)
class Task:
    """A kind of prediction.

    Targets that are not a number are unknown, and count in no loss and no score.

    Attributes:
        kind: what is predicted.
        num_outputs: the outputs per row that targets need.
        loss_function: a loss of the user's; None for that of the kind.
        absolute: whether numbers are learned by the absolute difference instead of its square.

    """

    kind: TaskKind
    num_outputs: int
    loss_function: Callable[[Tensor, Tensor], Tensor] | None = None
    absolute: bool = False

    @property
    def metric(self) -> Metric:
        """The score: in percent, but for ``"mae"``, the mean absolute error."""
        return _METRICS[self.kind]

    @property
    def output(self) -> Output:
        """What a packed model gives of such outputs; those for links are embeddings."""
        return "values" if self.kind == "links" else self.kind

    @property
    def lower_is_better(self) -> bool:
        """Whether the best score is the lowest."""
        return self.metric == "mae"

    def describe(self, score: float) -> str:
        """Format a score with its name."""
        return _TITLES[self.metric].format(score)

    def loss(self, out: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
        """Return the mean loss, or with a weight per row the sum; 0 for no rows."""
        if len(y) == 0:
            return out.sum()
        if self.loss_function is not None:
            if weight is not None:
                raise input_error("loss", "left out for batches that weigh their nodes", "one")
            return self.loss_function(out, y)
        if self.kind == "classes":
            if weight is None:
                return functional.cross_entropy(out, y)
            return (functional.cross_entropy(out, y, reduction="none") * weight).sum()
        y = y.to(out.dtype).reshape(out.shape)
        is_known = ~y.isnan()
        terms = self._terms(out, torch.where(is_known, y, 0)) * is_known
        if weight is None:
            return terms.sum() / is_known.sum().clamp(min=1)
        per_row = terms.reshape(len(y), -1).sum(dim=1)
        known = is_known.reshape(len(y), -1).sum(dim=1).clamp(min=1)
        return (per_row / known * weight).sum()

    def _terms(self, out: Tensor, y: Tensor) -> Tensor:
        """Return the loss of every output."""
        if self.kind != "values":
            return functional.binary_cross_entropy_with_logits(out, y, reduction="none")
        return (out - y).abs() if self.absolute else (out - y).square()

    def score_parts(self, out: Tensor, y: Tensor) -> tuple[float | Tensor, float]:
        """Return the two numbers whose sums over all parts of the data divide to the score.

        Of classes the first is on the device, so that nothing waits for it.

        An AUC is of one part alone; of several it is their mean.
        """
        if self.kind == "classes":
            return 100.0 * (out.argmax(dim=-1) == y).sum().double(), float(len(y))
        y = y.to(out.dtype).reshape(out.shape)
        out, y = out[~y.isnan()], y[~y.isnan()]
        if self.kind == "values":
            return float((out - y).abs().double().sum()), float(len(y))
        if self.kind == "links":
            return 100.0 * area_under_curve(out, y) * len(y), float(len(y))
        says, holds = out > 0, y > 0.5
        both = 2.0 * int((says & holds).sum())
        return 100.0 * both, float(int(says.sum()) + int(holds.sum()))

    def soft_targets(self, out: Tensor, temperature: float) -> Tensor:
        """Make of a teacher's outputs what a student learns."""
        if self.kind == "values":
            return out
        if self.kind == "classes":
            return functional.softmax(out / temperature, dim=-1)
        return torch.sigmoid(out / temperature)

    def distillation(
        self, out: Tensor, targets: Tensor, temperature: float, weight: Tensor | None
    ) -> Tensor:
        """Return the loss by which labels, numbers and links are learned from a teacher."""
        scaled = out if self.kind == "values" else out / temperature
        terms = self._terms(scaled, targets.reshape(out.shape)).reshape(len(out), -1).mean(dim=1)
        factor = 1.0 if self.kind == "values" else temperature**2
        return factor * (terms.mean() if weight is None else (terms * weight).sum())


def area_under_curve(scores: Tensor, y: Tensor) -> float:
    """Return the chance that a positive has a higher score than a negative; ties count half."""
    positive = int((y > 0.5).sum())
    negative = len(y) - positive
    if not positive or not negative:
        return 0.5
    _, place, counts = scores.unique(return_inverse=True, return_counts=True)
    ends = counts.cumsum(0).double()
    ranks = (ends - (counts.double() - 1) / 2)[place]
    total = float(ranks[y > 0.5].sum())
    return (total - positive * (positive + 1) / 2) / (positive * negative)


def class_task(num_classes: int) -> Task:
    """Return the task of choosing one of some classes."""
    return Task("classes", num_classes)


def task_of(y: Tensor, loss: Loss | None) -> Task:
    """Choose the task by the type of the targets [n] or [n, k], or by the loss if that has a name.

    Whole numbers, one per row, are classes; numbers of 0 and 1, several per row (or one in a
    column of its own), are labels; all others are values.
    """
    if loss is not None and not callable(loss) and loss not in _KINDS_OF_LOSSES:
        raise input_error("loss", f"a function or one of {list(_KINDS_OF_LOSSES)}", repr(loss))
    kind = _KINDS_OF_LOSSES[loss] if isinstance(loss, str) else _kind_of(y)
    function = loss if callable(loss) else None
    if kind == "classes":
        if y.is_floating_point() or y.ndim > 1:
            got = f"{str(y.dtype).removeprefix('torch.')} of shape {list(y.shape)}"
            raise input_error("y", "a whole number per row for classes", got)
        return Task("classes", int(y.max()) + 1 if len(y) else 0, function)
    return Task(kind, 1 if y.ndim == 1 else y.shape[1], function, absolute=loss == "l1")


def _kind_of(y: Tensor) -> TaskKind:
    if y.dtype == torch.bool:
        return "labels"
    if not y.is_floating_point():
        return "classes" if y.ndim == 1 else "labels"
    if y.ndim == 1:
        return "values"
    is_binary = bool(((y == 0) | (y == 1) | y.isnan()).all())
    return "labels" if is_binary else "values"

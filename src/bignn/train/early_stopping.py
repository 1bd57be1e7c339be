"""Early stopping: whether an epoch is the best so far, and whether to train on. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bignn.config import Settings

if TYPE_CHECKING:
    from bignn.train.progress import Progress


def is_best(progress: Progress, loss: float, accuracy: float, settings: Settings) -> bool:
    """Return whether an epoch with these scores on validation is better than all before it."""
    if settings.select_by == "accuracy":
        return progress.best_epoch == 0 or accuracy > progress.best_acc
    return loss < progress.best_loss


def should_stop(epoch: int, best_epoch: int, settings: Settings) -> bool:
    """Return whether training is over: no epochs left, or none was better for ``patience``."""
    return epoch >= settings.epochs or epoch - best_epoch >= settings.patience

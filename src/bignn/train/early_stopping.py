"""Early stopping: whether an epoch is the best so far, and whether to train on. No torch."""

from __future__ import annotations

from bignn.config import SelectBy, Settings


def is_better(loss: float, accuracy: float, than: tuple[float, float], select_by: SelectBy) -> bool:
    """Return whether an epoch's scores on validation are better than another's."""
    best_loss, best_accuracy = than
    return accuracy > best_accuracy if select_by == "accuracy" else loss < best_loss


def should_stop(epoch: int, best_epoch: int, settings: Settings) -> bool:
    """Return whether training is over: no epochs left, or none was better for ``patience``."""
    return epoch >= settings.epochs or epoch - best_epoch >= settings.patience

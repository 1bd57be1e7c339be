"""Early stopping: whether an epoch is the best so far, and whether to train on. No torch."""

from __future__ import annotations

from bignn.config import SelectBy, Settings


def is_better(
    loss: float,
    score: float,
    than: tuple[float, float],
    select_by: SelectBy,
    *,
    lower_is_better: bool = False,
) -> bool:
    """Return whether an epoch's loss, or its score, on validation is better than another's."""
    best_loss, best_score = than
    if select_by == "loss":
        return loss < best_loss
    return score < best_score if lower_is_better else score > best_score


def should_stop(epoch: int, best_epoch: int, settings: Settings, since: int = 0) -> bool:
    """Return whether training is over: no epochs left, or none was better for ``patience``.

    Both are counted from the epoch ``since`` on.
    """
    return epoch - since >= settings.epochs or epoch - max(best_epoch, since) >= settings.patience

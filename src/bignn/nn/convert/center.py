"""Batch normalisation before the sign of a converted layer's input."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from bignn.nn.batch_norm import BatchNorm

# Running statistics that trail behind the weights turn signs (docs/design.md, Converting PyG
# models). Batches of different nodes are averaged over a few.
_MOMENTUM = 0.5


class FollowWeights:
    """A forward pre-hook of a batch normalisation, whose running statistics follow the weights.

    Where all training batches have as many rows, as the whole graph always has, the statistics are
    those of the last one. Otherwise a batch moves them by one half of its rows' share in the
    largest batch so far: a last batch of a few nodes hardly does.
    """

    def __init__(self) -> None:
        self._rows: int | None = None
        self._most_rows = 1
        self._varies = False

    def __call__(self, norm: nn.Module, args: tuple[Any, ...]) -> None:
        """Choose how far this batch moves the running statistics."""
        if not norm.training or not args or not isinstance(args[0], Tensor):
            return
        rows = len(args[0])
        self._varies = self._varies or self._rows not in (None, rows)
        self._rows, self._most_rows = rows, max(self._most_rows, rows)
        norm.momentum = _MOMENTUM * rows / self._most_rows if self._varies else 1.0  # type: ignore[assignment]


class Center(BatchNorm):
    """Batch normalisation, without an affine part, that follows the weights."""

    def __init__(self, num_features: int) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__(num_features)
        self.register_forward_pre_hook(FollowWeights())


def follow_weights_in(model: nn.Module) -> list[str]:
    """Let the batch normalisations that a model has itself follow its weights; return their names.

    Those that keep a plain average of all batches (a momentum of None) are left alone.
    """
    found = []
    for name, module in model.named_modules():
        is_plain = isinstance(module, nn.BatchNorm1d) and not isinstance(module, BatchNorm)
        if is_plain and module.track_running_stats and module.momentum is not None:
            module.register_forward_pre_hook(FollowWeights())
            found.append(name)
    return found

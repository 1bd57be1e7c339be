"""The running mean of a model's weights, which validation measures in their place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """``m <- d m + (1 - d) w`` after every step, of all parameters w of a model.

    The steps can be recorded as a CUDA graph: all tensors stay where they are.

    Args:
        model: the model; the means begin at its weights.
        decay: d, 0 or more and below 1.

    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        named: dict[str, Tensor] = dict(model.named_parameters())
        self._names, self._own = list(named), list(named.values())
        self._means = [weight.detach().clone() for weight in self._own]
        self._kept = [torch.empty_like(mean) for mean in self._means]

    @torch.no_grad()
    def update(self) -> None:
        """Take the weights of a step in."""
        torch._foreach_lerp_(self._means, self._own, 1 - self._decay)

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """Put the means into the model for the block, and its own weights back after it."""
        with torch.no_grad():
            torch._foreach_copy_(self._kept, self._own)
            torch._foreach_copy_(self._own, self._means)
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(self._own, self._kept)

    def state(self) -> dict[str, Tensor]:
        """Return the means by the names of their weights."""
        return dict(zip(self._names, self._means, strict=True))

    @torch.no_grad()
    def load(self, state: dict[str, Tensor]) -> None:
        """Take the means of another run of this model."""
        for name, mean in zip(self._names, self._means, strict=True):
            mean.copy_(state[name])

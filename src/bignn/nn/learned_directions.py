"""Directions of features that are learned through the sign: one input bit each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bignn.runtime.encoders import Directions
from bignn.runtime.input_bits import PARTS, projected

# Entries of a direction are whole multiples of its step, up to this many; offsets are exact as
# float32, so that what is packed and loaded again is the same.
_LARGEST_ENTRY = 127
_LARGEST_OFFSET = (1 << 24) - 1
# Exponents of steps, whose powers of two are far from float32's bounds.
_EXPONENTS = (-100, 100)


class LearnedDirections(nn.Module):
    r"""``y = Ê z + t̂`` of standardised features z, whose signs are the bits.

    ``Ê_k = s_k E_k`` and ``t̂_k = s_k t_k / 2^12`` are the latent floats rounded to whole numbers E,
    within ±127, and t; the step s_k is the power of two that direction k's largest entry fits. So
    packed models compute the same signs from bytes (:func:`bignn.runtime.input_bits.projected`).
    Gradients pass straight through this rounding, and through the sign as those of a hidden layer.

    Args:
        directions: where they begin, [m, d].

    Shapes: z [N, d] -> [N, m].

    """

    def __init__(self, directions: Tensor) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__()
        self.directions = nn.Parameter(directions.float().contiguous())
        self.offsets = nn.Parameter(torch.zeros(len(directions)))

    def forward(self, z: Tensor) -> Tensor:
        """Project rows; gradients reach them, the directions and the offsets."""
        entries, steps, offsets = self._rounded()
        directions = _pass_through(self.directions, entries * steps[:, None])
        return nn.functional.linear(
            z, directions, _pass_through(self.offsets, offsets * (steps / PARTS))
        )

    def whole_matrix(self) -> Tensor:
        """Return the entries E of all directions as float64 [d, m]."""
        return self._rounded()[0].t().double()

    def exactly(self, z: Tensor, matrix: Tensor) -> Tensor:
        """Project rows as packed models do, with the matrix of :meth:`whole_matrix`."""
        _, steps, offsets = self._rounded()
        made: Tensor = projected(
            z, matrix, steps.double(), offsets.double(), Tensor.double, lambda y: y.to(z.dtype)
        )
        return made

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the numbers that packed models have."""
        entries, steps, offsets = (numbers.cpu().numpy() for numbers in self._rounded())
        numbers = (entries.astype(np.int8), steps, offsets.astype(np.int32))
        return dict(zip(Directions.names, numbers, strict=True))

    @torch.no_grad()
    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take the numbers of a packed model."""
        entries, steps, offsets = (
            torch.from_numpy(np.array(arrays[name], dtype=np.float32)) for name in Directions.names
        )
        self.directions.copy_(entries * steps[:, None])
        self.offsets.copy_(offsets * (steps / PARTS))

    @torch.no_grad()
    def _rounded(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return entries [m, d], steps [m] and offsets [m], whole numbers as float32."""
        latent = self.directions.float()  # also of a model in half precision
        largest = latent.abs().amax(dim=1) / _LARGEST_ENTRY
        mantissa, exponent = torch.frexp(largest)
        exponent = exponent - (mantissa == 0.5).to(exponent.dtype)  # a power of two itself
        steps = torch.ldexp(torch.ones_like(largest), exponent.clamp(*_EXPONENTS))
        entries = (latent / steps[:, None]).round()
        offsets = (self.offsets.float() * (PARTS / steps)).round()
        return (
            entries.clamp(-_LARGEST_ENTRY, _LARGEST_ENTRY),
            steps,
            offsets.clamp(-_LARGEST_OFFSET, _LARGEST_OFFSET),
        )


def _pass_through(latent: Tensor, rounded: Tensor) -> Tensor:
    """Return rounded numbers whose gradients are the latent ones'."""
    return latent + (rounded.to(latent.dtype) - latent).detach()

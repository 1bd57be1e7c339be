"""A linear map inside a convolution of PyG's: it centres its own input, whoever calls it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from bignn.nn.convert.center import Center
from bignn.nn.convert.wrapped_layer import value_before, watch_signs
from bignn.nn.linear import Linear


class InnerLinear(Linear):
    r"""``Z = sign(BN(H)) W̃ᵀ + b``: the paper's general method for one linear map (Sec. 4.4).

    Its input may be a value of nodes, a sum or a message; batch normalisation without an affine
    part gives every column both signs. Where values before activations are recorded,
    it reads those, and drops what a dropout before it dropped. In floats it is a plain linear map.

    Args:
        in_channels, out_channels, options: see :class:`bignn.nn.Linear`.

    Shapes: [..., d_in] -> [..., d_out].

    """

    def __init__(self, in_channels: int, out_channels: int, **options: Any) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__(in_channels, out_channels, **options)
        self.center = None
        if self.binarization.features:
            self.center = Center(in_channels)

    def forward(self, x: Any) -> Tensor:
        """Compute the map of x."""
        if self.center is None:
            return super().forward(x)
        x = value_before(self, self.wrapping, x)  # type: ignore[arg-type]
        rows = self.center(x.reshape(-1, self.in_channels))
        watch_signs(self, self.wrapping, rows)  # type: ignore[arg-type]
        return super().forward(rows).view(*x.shape[:-1], self.out_channels)

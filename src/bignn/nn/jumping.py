"""The last map of a jumping-knowledge network, which reads all layers' outputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bignn.binarize import binarize_features
from bignn.config import BinarizeMode, SteRule
from bignn.nn.binary_product import binary_product
from bignn.nn.features import BinaryRows
from bignn.nn.linear import Linear


class JumpingHead(Linear):
    r"""``Z_i = W̃ ⊛ (h̃_i¹ || ... || h̃_i^L) + b`` (Eq. bijknet-concat), float or binary.

    Every layer's output has a scale of its own: ``z_ij = α_j Σ_l β_i^l (F_i^l ⊛ B_j^l) + b_j``.
    With ``binarize="none"`` it is the linear map ``lin`` of PyG's models with ``jk="cat"``.

    Args:
        channels: width of each layer's output.
        num_layers: L.
        out_channels: d_out.
        binarize: ``"none"``, ``"features"``, ``"weights"`` or ``"both"``. The paper's equation is
            ``"both"``; the sizes in its tables are those of ``"none"``.
        ste, dropout, scale_gradient: see :class:`bignn.nn.Linear`.

    Shapes: L times [N, channels] -> [N, d_out].

    """

    def __init__(
        self,
        channels: int,
        num_layers: int,
        out_channels: int,
        *,
        binarize: BinarizeMode = "none",
        ste: SteRule = "input",
        dropout: float = 0.0,
        scale_gradient: bool = True,
    ) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__(
            channels * num_layers,
            out_channels,
            binarize=binarize,
            ste=ste,
            dropout=dropout,
            scale_gradient=scale_gradient,
        )
        self.channels = channels

    def forward(self, layers: Sequence[Tensor]) -> Tensor:  # type: ignore[override]
        """Compute the logits from the outputs of all layers."""
        if not self.binarization.features:
            return super().forward(torch.cat(list(layers), dim=-1))
        is_binary = self.binarization.weights
        weight, alpha = self.binary_weight() if is_binary else (self.weight, None)
        p = self.dropout if self.training else 0.0
        blocks = weight.split(self.channels, dim=1)
        out = torch.zeros((), device=weight.device)
        for h, block in zip(layers, blocks, strict=True):
            rows = BinaryRows(*binarize_features(h, self.binarization.ste))
            out = out + binary_product(rows, block, p, drop="all", is_binary=is_binary)
        if alpha is not None:
            out = out * alpha.t()
        return out if self.bias is None else out + self.bias

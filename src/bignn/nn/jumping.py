"""The head of a jumping-knowledge network: one linear map of all layers' outputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bignn.binarize import Binarization, binarize_features
from bignn.config import BinarizeMode, SteRule
from bignn.nn.binary_product import binary_product
from bignn.nn.features import BinaryRows
from bignn.nn.linear import Linear


class JumpingHead(nn.Module):
    r"""``Z_i = W̃ ⊛ (h̃_i¹ || ... || h̃_i^L) + b`` (Eq. bijknet-concat), or the same in floats.

    Every layer's output has a scale of its own: ``z_ij = α_j Σ_l β_i^l (F_i^l ⊛ B_j^l) + b_j``.

    Args:
        channels: width of each layer's output.
        num_layers: L.
        out_channels: d_out.
        binarize: ``"none"``, ``"features"``, ``"weights"`` or ``"both"``. The paper's equation is
            ``"both"``; the sizes in its tables are those of ``"none"``.
        ste: gradient rule for features, see :func:`bignn.binarize.binarize_features`.
        dropout: probability of dropping an input entry while training.
        scale_gradient: see :class:`bignn.nn.Linear`.

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
        super().__init__()
        self.channels = channels
        self.binarization = Binarization.of(binarize, ste)
        self.lin = Linear(
            channels * num_layers,
            out_channels,
            binarize=binarize,
            ste=ste,
            dropout=dropout,
            scale_gradient=scale_gradient,
        )

    def reset_parameters(self) -> None:
        """Draws new weights and zeroes the bias."""
        self.lin.reset_parameters()

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """See the class."""
        lin = self.lin
        if not self.binarization.features:
            out: Tensor = lin(torch.cat(list(layers), dim=-1))
            return out
        is_binary = self.binarization.weights
        weight, alpha = lin.binary_weight() if is_binary else (lin.weight, None)
        p = lin.dropout if self.training else 0.0
        blocks = weight.split(self.channels, dim=1)
        out = torch.zeros((), device=weight.device)
        for h, block in zip(layers, blocks, strict=True):
            rows = BinaryRows(*binarize_features(h, self.binarization.ste))
            out = out + binary_product(rows, block, p, drop="all", is_binary=is_binary)
        if alpha is not None:
            out = out * alpha.t()
        return out if lin.bias is None else out + lin.bias

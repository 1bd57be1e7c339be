"""The linear map every layer is built on, in float or binary."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from bignn import ops
from bignn.binarize import (
    Binarization,
    BinarizeMode,
    SteRule,
    binarize_features,
    binarize_weight,
)
from bignn.errors import wrong
from bignn.nn.dropout import dropout
from bignn.nn.features import BinaryRows, SparseFeatures

#: What a layer takes: hidden layers tensors, first layers a constant matrix in a faster form.
Features = Tensor | BinaryRows | SparseFeatures


class Linear(nn.Module):
    r"""``Z = H̃ W̃ᵀ + b`` (Sec. 4.2), each factor binary or not; with ``"none"`` a plain linear map.

    Node-wise, with both binary: ``z_ij = β_i α_j (F_i ⊛ B_j) + b_j``, ⊛ the XNOR-popcount product.

    Dropout acts on the (binarized) input, as in the paper. Weights start from Xavier's uniform
    distribution; binary columns are then shifted to have as many +1 as -1. Otherwise the many
    features that a node lacks (all -1, 98.7 % on Cora) add up to the same large number at every
    node, and most hidden units start out constant.

    Signs are multiplied first and scaled afterwards. With both factors binary the product is one of
    whole numbers, so it is the same by XNOR and popcount (used where no gradient is wanted), by a
    float product, on a CPU or a GPU; and a sum that cancels is 0, whose sign is +1.

    Args:
        in_channels: d_in.
        out_channels: d_out.
        bias: adds b, always float.
        binarize: ``"none"``, ``"features"``, ``"weights"`` or ``"both"``.
        ste: gradient rule for features, see :func:`bignn.binarize.binarize_features`.
        dropout: probability of dropping an input entry while training.

    Shapes: [N, d_in] (or a form of ``nn.features``) -> [N, d_out]; ``weight`` is [d_out, d_in].

    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        bias: bool = True,
        binarize: BinarizeMode = "none",
        ste: SteRule = "input",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        for name, size in (("in_channels", in_channels), ("out_channels", out_channels)):
            if size < 1:
                raise wrong(name, "at least 1", size)
        if not 0 <= dropout < 1:
            raise wrong("dropout", "in [0, 1)", dropout)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.binarization = Binarization.of(binarize, ste)
        self.dropout = dropout
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new weights and zeroes the bias."""
        nn.init.xavier_uniform_(self.weight)
        if self.binarization.weights and self.in_channels > 2:
            with torch.no_grad():
                self.weight.sub_(_median(self.weight))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Features) -> Tensor:
        """See the class."""
        if x.shape[-1] != self.in_channels:
            raise wrong("x", f"{self.in_channels} features per node", x.shape[-1])
        weight: Tensor = self.weight
        alpha = None
        if self.binarization.weights:
            weight, alpha = binarize_weight(weight)
        beta = None
        if isinstance(x, SparseFeatures):
            out = x.matmul(weight.t(), self.dropout, training=self.training)
        else:
            if self.binarization.features and isinstance(x, Tensor):
                x = BinaryRows(*binarize_features(x, self.binarization.ste))
            if isinstance(x, BinaryRows):
                beta = x.beta
            out = self._product(x, weight)
        if beta is not None:
            out = out * beta
        if alpha is not None:
            out = out * alpha.t()
        return out if self.bias is None else out + self.bias

    def _product(self, x: Tensor | BinaryRows, weight: Tensor) -> Tensor:
        if not isinstance(x, BinaryRows):
            return functional.linear(dropout(x, self.dropout, training=self.training), weight)
        if self._can_use_bits(x):
            dots: Tensor = ops.xnor_matmul(x.words, ops.pack_rows(weight), self.in_channels)
            return dots.to(weight.dtype)
        return functional.linear(dropout(x.signs, self.dropout, training=self.training), weight)

    def _can_use_bits(self, x: BinaryRows) -> bool:
        """Where there is nothing to learn or drop, and a packed kernel, the result is the same."""
        learns = torch.is_grad_enabled() and (x.signs.requires_grad or self.weight.requires_grad)
        drops = self.training and self.dropout > 0
        on_cpu = x.signs.device.type == "cpu"
        return self.binarization.weights and on_cpu and not learns and not drops

    def extra_repr(self) -> str:
        """What ``print(model)`` shows."""
        kinds = [name for name in ("features", "weights") if getattr(self.binarization, name)]
        return f"{self.in_channels}, {self.out_channels}, binary={'+'.join(kinds) or 'none'}"


def _median(rows: Tensor) -> Tensor:
    """The median of each row [N, 1]; halfway between the middle two where there are two."""
    ordered = rows.sort(dim=1).values
    size = rows.shape[1]
    return (ordered[:, (size - 1) // 2] + ordered[:, size // 2]).div(2).unsqueeze(1)

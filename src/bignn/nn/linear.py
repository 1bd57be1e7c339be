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
    binarize_vector,
    binarize_weight,
)
from bignn.errors import wrong
from bignn.nn.dropout import dropout
from bignn.nn.rows import BinaryRows, SparseRows

#: What a layer takes: hidden layers tensors, first layers a constant matrix in a faster form.
Features = Tensor | BinaryRows | SparseRows


class Linear(nn.Module):
    r"""``Z = H̃ W̃ᵀ + b`` (Sec. 4.2), each factor binary or not; with ``"none"`` a plain linear map.

    Node-wise, with both binary: ``z_ij = β_i α_j (F_i ⊛ B_j) + b_j``, ⊛ the XNOR-popcount product.

    Dropout acts on the (binarized) input, as in the paper. Weights start from Xavier's uniform
    distribution; binary columns are then shifted to have as many +1 as -1. Otherwise the many
    features that a node lacks (all -1, 98.7 % on Cora) add up to the same large number at every
    node, and most hidden units start out constant.

    Where no gradient is wanted, the product of signs is computed in integers (XNOR and popcount on
    the CPU) and scaled afterwards, so its result does not depend on the backend.

    Args:
        in_channels: d_in.
        out_channels: d_out.
        bias: adds b, always float.
        binarize: ``"none"``, ``"features"``, ``"weights"`` or ``"both"``.
        ste: gradient rule for features, see :func:`bignn.binarize.binarize_features`.
        dropout: probability of dropping an input entry while training.

    Shapes: [N, d_in] (or a form of ``nn.rows``) -> [N, d_out]; ``weight`` is [d_out, d_in].

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
        if self.binarization.weights:
            with torch.no_grad():
                self.weight.sub_(self.weight.median(dim=1, keepdim=True).values)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Features) -> Tensor:
        """See the class."""
        if x.shape[-1] != self.in_channels:
            raise wrong(
                "x", f"{self.in_channels} features per node", x.shape[-1], "check in_channels"
            )
        out = self._exact_product(x) if self._wants_exact(x) else self._trainable_product(x)
        return out if self.bias is None else out + self.bias

    def _trainable_product(self, x: Features) -> Tensor:
        weight = binarize_weight(self.weight) if self.binarization.weights else self.weight
        if isinstance(x, BinaryRows):
            kept = dropout(x.signs, self.dropout, training=self.training)
            return functional.linear(kept, weight) * x.beta
        if isinstance(x, SparseRows):
            return x.matmul(weight.t(), self.dropout, training=self.training)
        if self.binarization.features:
            x = binarize_features(x, self.binarization.ste)
        return functional.linear(dropout(x, self.dropout, training=self.training), weight)

    def _wants_exact(self, x: Features) -> bool:
        is_binary = self.binarization.weights and (
            isinstance(x, BinaryRows) or (self.binarization.features and isinstance(x, Tensor))
        )
        drops = self.training and self.dropout > 0
        input_learns = isinstance(x, Tensor) and x.requires_grad
        learns = torch.is_grad_enabled() and (input_learns or self.weight.requires_grad)
        return is_binary and not drops and not learns

    def _exact_product(self, x: Features) -> Tensor:
        assert not isinstance(x, SparseRows)
        rows = x if isinstance(x, BinaryRows) else BinaryRows(x)
        signs, alpha = binarize_vector(self.weight)
        if rows.signs.device.type == "cpu":
            dots: Tensor = ops.xnor_matmul(rows.words, ops.pack_rows(signs), self.in_channels)
        else:  # exact too: every partial sum is an integer below 2**24
            dots = functional.linear(rows.signs, signs)
        return dots.to(self.weight.dtype) * rows.beta * alpha.t()

    def extra_repr(self) -> str:
        """What ``print(model)`` shows."""
        kinds = [name for name in ("features", "weights") if getattr(self.binarization, name)]
        return f"{self.in_channels}, {self.out_channels}, binary={'+'.join(kinds) or 'none'}"

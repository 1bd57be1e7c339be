"""The linear map that every layer is built on, float or binary."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from bignn.binarize import Binarization, binarize_features, binarize_weight
from bignn.config import BinarizeMode, DropMode, SteRule
from bignn.config.options import BELOW_ONE, COUNT, check_choice
from bignn.errors import input_error
from bignn.nn.binary_product import binary_product, product_of_signs
from bignn.nn.dropout import dropout
from bignn.nn.features import BinaryRows, SparseFeatures
from bignn.nn.packed_arithmetic import mean_in_order

#: Forms of features that a layer accepts: a tensor, or a constant matrix in a faster form.
FeaturesLike = Tensor | BinaryRows | SparseFeatures


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
        drop: which entries of binary features may be dropped, see
            :func:`bignn.nn.binary_product.binary_product`.
        balance: binarize ``W - median(W)``, per column, instead of W: a column then has as many +1
            as -1 not only at the start but always, and what all nodes lack adds up to nothing.
        scale_gradient: gradients reach binary weights through their scale α too, the first term of
            Eq. bp-W; without it only through their signs.

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
        drop: DropMode = "all",
        balance: bool = False,
        scale_gradient: bool = True,
    ) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__()
        check_choice("drop", drop, DropMode)
        COUNT.check("in_channels", in_channels)
        COUNT.check("out_channels", out_channels)
        BELOW_ONE.check("dropout", dropout)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.binarization = Binarization.of(binarize, ste)
        self.dropout = dropout
        self.drop = drop
        self.balance = balance and in_channels > 2
        self.scale_gradient = scale_gradient
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights and set the bias to 0."""
        nn.init.xavier_uniform_(self.weight)
        if self.binarization.weights and self.in_channels > 2:
            with torch.no_grad():
                self.weight.sub_(median(self.weight))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: FeaturesLike) -> Tensor:
        """Compute ``H̃ W̃ᵀ + b``."""
        out = self.product(x)
        return out if self.bias is None else out + self.bias

    def product(self, x: FeaturesLike) -> Tensor:
        """Compute ``H̃ W̃ᵀ``, without the bias."""
        self.check_input(x)
        weight: Tensor = self.weight
        alpha = None
        if self.binarization.weights:
            weight, alpha = self.binary_weight()
        if self.binarization.features and isinstance(x, Tensor):
            x = BinaryRows(*binarize_features(x, self.binarization.ste))
        if isinstance(x, SparseFeatures):
            out = x.matmul(weight.t(), self.dropout, training=self.training)
        elif isinstance(x, BinaryRows):
            p = self.dropout if self.training else 0.0
            is_binary = self.binarization.weights
            out = binary_product(x, weight, p, drop=self.drop, is_binary=is_binary)
        else:
            out = functional.linear(dropout(x, self.dropout, training=self.training), weight)
        return out if alpha is None else out * alpha.t()

    def binary_rows(self, x: FeaturesLike) -> BinaryRows:
        """Binarize the layer's input; in evaluation with scales β as packed models sum them up."""
        self.check_input(x)
        if isinstance(x, BinaryRows):
            return x
        if not isinstance(x, Tensor):
            raise input_error("x", "a tensor where 'edge_bits' rounds weights", type(x).__name__)
        if not self.training and not torch.is_grad_enabled():
            return BinaryRows.of_values(x)
        signs, beta = binarize_features(x, self.binarization.ste)
        return BinaryRows(signs, beta if self.training else mean_in_order(x))

    def bits_of(self, x: FeaturesLike) -> BinaryRows | None:
        """Binarize the layer's input for training that keeps bits; None where it needs floats."""
        self.check_input(x)
        b = self.binarization
        if not (b.features and b.weights) or self.weight.dtype != torch.float32:
            return None
        if isinstance(x, Tensor):
            if b.ste != "input" or x.dtype != torch.float32 or self.drop == "present":
                return None
            return BinaryRows.of_learned(x)
        # Few entries are added up faster one by one.
        few = self.drop == "present" and isinstance(x, BinaryRows) and x.deviations is not None
        if not isinstance(x, BinaryRows) or few or (x.learns and x.carrier is None):
            return None
        return x

    def sign_product(self, x: BinaryRows) -> tuple[Tensor, Tensor]:
        """Compute ``F Bᵀ`` [N, d_out] and the scales α [1, d_out], with both factors binary."""
        signs, alpha = self.binary_weight()
        p = self.dropout if self.training else 0.0
        product, factor = product_of_signs(x, signs, p, drop=self.drop, is_binary=True)
        return product if factor == 1 else product * factor, alpha.t()

    def check_input(self, x: FeaturesLike) -> None:
        """Refuse an input that the layer cannot read."""
        if not isinstance(x, FeaturesLike):
            fix = "pairs (x_s, x_t) are not supported" if isinstance(x, tuple | list) else ""
            raise input_error("x", "a tensor [nodes, features]", f"a {type(x).__name__}", fix)
        if len(x.shape) == 0 or x.shape[-1] != self.in_channels:
            got = x.shape[-1] if len(x.shape) else "a single number"
            raise input_error("x", f"{self.in_channels} features per node", got)
        if not isinstance(x, Tensor):
            return
        if not x.is_floating_point():
            raise input_error("x", "of a floating-point dtype", x.dtype, "pass x.float()")
        if x.is_meta != self.weight.is_meta:
            where = "meta" if self.weight.is_meta else self.weight.device
            got = "one on the meta device" if x.is_meta else f"one on {x.device}"
            raise input_error("x", f"a tensor on the weights' device, {where}", got)
        if self.binarization.features and x.ndim != 2:
            raise input_error("x", "[nodes, features] for binary features", list(x.shape))

    def binary_weight(self) -> tuple[Tensor, Tensor]:
        """Compute the signs B [d_out, d_in] and scales α [d_out, 1] of the weights."""
        weight: Tensor = self.weight
        if self.balance:
            weight = weight - median(weight.detach())
        signs, alpha = binarize_weight(weight)
        return signs, alpha if self.scale_gradient else alpha.detach()

    def stored_parameters(self) -> list[nn.Parameter]:
        """List the parameters that the weights are computed from."""
        return [self.weight]

    def extra_repr(self) -> str:
        """Describe the layer for ``print(model)``."""
        kinds = [name for name in ("features", "weights") if getattr(self.binarization, name)]
        return f"{self.in_channels}, {self.out_channels}, binary={'+'.join(kinds) or 'none'}"


def median(rows: Tensor) -> Tensor:
    """Compute the median of each row [N, 1]: of an even number the mean of the middle two."""
    size = rows.shape[1]
    if rows.device.type != "cpu":  # elsewhere torch's median is not deterministic
        ordered = rows.sort(dim=1).values
        return (ordered[:, (size - 1) // 2] + ordered[:, size // 2]).div(2).unsqueeze(1)
    lower = rows.median(dim=1, keepdim=True).values  # the lower of two
    if size % 2 == 1:
        return lower
    return (lower - (-rows).median(dim=1, keepdim=True).values) / 2

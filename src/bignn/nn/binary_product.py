"""The product ``dropout(F) Wᵀ`` of binary features F, in the form that is cheapest."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from bignn import ops
from bignn.config import DropMode
from bignn.kernels.masked import KEEP_SCALE, keep_out_of
from bignn.nn.dropout import dropout
from bignn.nn.features import BinaryRows


def binary_product(
    x: BinaryRows, weight: Tensor, p: float, *, drop: DropMode, is_binary: bool
) -> Tensor:
    r"""Compute ``β ⊙ dropout(F) Wᵀ`` for signs F, a share p of them dropped, and W [d_out, d_in].

    With D the entries that are kept, each with probability ``1 - p``:

    - ``drop="all"``: ``(D ⊙ F / (1 - p)) Wᵀ``;
    - ``drop="present"``: ``(F₀ + D ⊙ (F - F₀) / (1 - p)) Wᵀ``, where F₀ repeats each column's
      usual sign in every row. Of bag-of-words features this drops words, and leaves alone the
      thousands of words that a document does not have.

    The three forms give the same result (integers, for binary weights, times ``1 / (1 - p)``):
    by counting bits under a mask of bits (CPU, binary weights; probabilities are rounded to a
    multiple of 2**-12), by the few entries that deviate from F₀, and by a float product, which is
    also what a compiled model, half precision, and features that want a gradient themselves get
    with ``drop="present"``.

    Args:
        x: F [N, d_in] and β.
        weight: W, its signs if they are binary.
        p: share of entries to drop, 0 when not training.
        drop: which entries may be dropped.
        is_binary: whether the weights are ±1.

    """
    product, factor = product_of_signs(x, weight, p, drop=drop, is_binary=is_binary)
    return product * (x.beta if factor == 1 else x.beta * factor)


def product_of_signs(
    x: BinaryRows, weight: Tensor, p: float, *, drop: DropMode, is_binary: bool
) -> tuple[Tensor, float]:
    """Compute :func:`binary_product` without β, as a product and the number to multiply it by."""
    learns = torch.is_grad_enabled() and (x.learns or weight.requires_grad)
    on_cpu = weight.device.type == "cpu"
    if is_binary and on_cpu and not learns and p == 0:
        dots: Tensor = ops.xnor_matmul(x.words, ops.pack_rows(weight), weight.shape[1])
        return dots.to(weight.dtype), 1.0
    # Forms that use only some entries need the features as a constant.
    compiling = torch.compiler.is_compiling()
    in_part = drop == "present" and p > 0 and not x.learns
    exact = weight.dtype in (torch.float32, torch.float64) and not compiling
    if drop == "present" and exact and not x.learns and x.deviations is not None:
        few = x.deviations.matmul(weight.t(), p, training=True)
        return few + x.usual @ weight.t(), 1.0
    in_bits = is_binary and on_cpu and weight.dtype == torch.float32 and not compiling
    if in_bits and (in_part or drop == "all" or p == 0):
        keep = keep_out_of(p)
        among = x.deviating if in_part else x.everywhere
        masks = among if keep == KEEP_SCALE else ops.draw_masks(among, keep)
        kept: Tensor = ops.masked_linear(x.signs, x.words, masks, weight)
        scale = KEEP_SCALE / keep
        if in_part:
            return kept * (2 * scale) + x.usual @ weight.t(), 1.0
        return kept, scale
    if drop == "present" and p > 0:
        signs = x.usual + dropout(x.signs - x.usual, p, training=True)
    else:
        signs = dropout(x.signs, p, training=True)
    return functional.linear(signs, weight), 1.0

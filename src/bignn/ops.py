"""The packed kernels as torch operations, which torch.compile and export can trace.

Words are int64 tensors with the bits of uint64, for which torch has few operations. Products are
for the CPU; on a GPU training has its own (:mod:`bignn.nn.saved_bits`), and elsewhere layers get
the same integers from a float product of signs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bignn import kernels
from bignn.bits import Words, words_per_row
from bignn.errors import input_error
from bignn.kernels import masked


@torch.library.custom_op("bignn::pack_rows", mutates_args=(), device_types="cpu")
def pack_rows(x: Tensor) -> Tensor:
    """Pack the signs of x [N, K] into words, int64 [N, ceil(K / 64)]."""
    # NumPy has no bfloat16; float32 holds every half-precision number.
    values = x.detach() if x.dtype == torch.float64 else x.detach().float()
    words = kernels.pack_rows(values.numpy())
    return torch.from_numpy(words.view("int64"))


@pack_rows.register_kernel("cuda")
def _(x: Tensor) -> Tensor:
    return pack_signs(x)


@pack_rows.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty((x.shape[0], words_per_row(x.shape[1])), dtype=torch.int64)


@torch.library.custom_op("bignn::xnor_matmul", mutates_args=(), device_types="cpu")
def xnor_matmul(a: Tensor, b: Tensor, num_bits: int) -> Tensor:
    """Multiply ±1 matrices given as packed rows a [N, w] and columns b [M, w]: int32 [N, M]."""
    if a.dtype != torch.int64 or b.dtype != torch.int64:
        raise input_error("a, b", "int64 words from bignn.ops.pack_rows", f"{a.dtype}, {b.dtype}")
    product = kernels.xnor_matmul(a.numpy().view("uint64"), b.numpy().view("uint64"), num_bits)
    return torch.from_numpy(product)


@xnor_matmul.register_fake
def _(a: Tensor, b: Tensor, num_bits: int) -> Tensor:
    return a.new_empty((a.shape[0], b.shape[0]), dtype=torch.int32)


#: Entries that are packed at a time, since each takes eight bytes on the way.
_PACKED_AT_ONCE = 1 << 24


def pack_signs(x: Tensor) -> Tensor:
    """Pack the signs of x [N, K] as :func:`pack_rows` does, by operations of torch."""
    num_words = words_per_row(x.shape[1])
    out = torch.empty(len(x), num_words, dtype=torch.int64, device=x.device)
    place = torch.arange(64, device=x.device)
    rows = max(1, _PACKED_AT_ONCE // max(1, 64 * num_words))
    for begin in range(0, len(x), rows):
        is_set = (x[begin : begin + rows].detach() >= 0).long()
        padded = torch.nn.functional.pad(is_set, (0, 64 * num_words - x.shape[1]))
        out[begin : begin + rows] = (padded.view(-1, num_words, 64) << place).sum(dim=2)
    return out


def unpack_bits(words: Tensor, num_bits: int) -> Tensor:
    """Unpack words [N, w] to booleans [N, num_bits]."""
    place = torch.arange(64, device=words.device)
    bits = words.unsqueeze(2) >> place & 1
    return bits.flatten(1)[:, :num_bits] != 0


def draw_masks(among: Tensor, keep: int) -> Tensor:
    """Keep each bit of some words with probability ``keep / KEEP_SCALE``.

    The seed comes from torch's generator, so torch's seeds and saved states determine the masks.
    """
    seed = int(torch.empty((), dtype=torch.int64).random_())
    words = among.contiguous().numpy().view("uint64")
    return torch.from_numpy(masked.draw_masks(seed, keep, words).view("int64"))


@torch.library.custom_op("bignn::masked_linear", mutates_args=(), device_types="cpu")
def masked_linear(signs: Tensor, words: Tensor, masks: Tensor, weight: Tensor) -> Tensor:
    """Compute ``(M ⊙ F) Bᵀ`` for signs F [N, K], a mask M and B [M, K], exactly; float32 [N, M].

    F is given twice: as floats, to which the gradient flows, and as the ``words`` that are
    multiplied. Only bits are kept for the backward pass.
    """
    columns = kernels.pack_rows(weight.detach().numpy())
    out = masked.masked_matmul(_words(words), _words(masks), columns, weight.shape[1])
    return torch.from_numpy(out)


@masked_linear.register_fake
def _(signs: Tensor, words: Tensor, masks: Tensor, weight: Tensor) -> Tensor:
    return weight.new_empty((words.shape[0], weight.shape[0]))


def _keep_bits(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    _, words, masks, weight = inputs
    ctx.save_for_backward(words, masks, weight)


def _masked_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None, Tensor | None]:
    """Compute ``∂L/∂F = M ⊙ (G B)`` and ``∂L/∂B = Gᵀ (M ⊙ F)``."""
    words, masks, weight = ctx.saved_tensors
    g = grad.float().contiguous()
    to_signs = to_weight = None
    if ctx.needs_input_grad[0]:
        with torch.autocast("cpu", enabled=False):  # NumPy has no bfloat16
            product = (g @ weight.float()).numpy()
        to_signs = torch.from_numpy(masked.keep_masked(product, _words(masks)))
    if ctx.needs_input_grad[3]:
        gradient = masked.masked_gradient(_words(words), _words(masks), weight.shape[1], g.numpy())
        to_weight = torch.from_numpy(gradient)
    return to_signs, None, None, to_weight


masked_linear.register_autograd(_masked_backward, setup_context=_keep_bits)


def _words(tensor: Tensor) -> Words:
    return tensor.contiguous().numpy().view("uint64")

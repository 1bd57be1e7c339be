"""The packed kernels as torch operations, so that torch.compile and export see through them.

Words travel as int64 tensors (torch's uint64 has few operations); the bits are the same.
CPU only: elsewhere the layers take the same integers from a float product of signs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bignn import kernels
from bignn.bits import words_per_row
from bignn.errors import wrong


@torch.library.custom_op("bignn::pack_rows", mutates_args=(), device_types="cpu")
def pack_rows(x: Tensor) -> Tensor:
    """The signs of x [N, K] as words, int64 [N, ceil(K / 64)]."""
    # NumPy knows no bfloat16; float32 holds every half-precision number.
    values = x.detach() if x.dtype == torch.float64 else x.detach().float()
    words = kernels.pack_rows(values.numpy())
    return torch.from_numpy(words.view("int64"))


@pack_rows.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty((x.shape[0], words_per_row(x.shape[1])), dtype=torch.int64)


@torch.library.custom_op("bignn::xnor_matmul", mutates_args=(), device_types="cpu")
def xnor_matmul(a: Tensor, b: Tensor, num_bits: int) -> Tensor:
    """The product of ±1 matrices from packed rows a [N, w] and columns b [M, w]: int32 [N, M]."""
    if a.dtype != torch.int64 or b.dtype != torch.int64:
        raise wrong("a, b", "int64 words from bignn.ops.pack_rows", f"{a.dtype}, {b.dtype}")
    product = kernels.xnor_matmul(a.numpy().view("uint64"), b.numpy().view("uint64"), num_bits)
    return torch.from_numpy(product)


@xnor_matmul.register_fake
def _(a: Tensor, b: Tensor, num_bits: int) -> Tensor:
    return a.new_empty((a.shape[0], b.shape[0]), dtype=torch.int32)

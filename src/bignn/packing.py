"""A trained torch module becomes a packed model. May import ``nn`` and ``runtime``."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bignn import kernels
from bignn.errors import InputError, wrong
from bignn.nn import GNN, BatchNorm, GATConv, GCNConv, JumpingHead, Linear, SAGEConv, SGConv
from bignn.runtime import PackedModel


def pack(model: torch.nn.Module) -> PackedModel:
    """Packs a trained model: bits for what is binary, float32 for the rest.

    Args:
        model: a :class:`bignn.nn.GNN`; its weights are copied, training can go on.

    """
    if not isinstance(model, GNN):
        raise wrong("model", "a bignn.nn.GNN", type(model).__name__)
    norm = model.input_norm
    if norm.standardize and not bool(norm.is_fitted):
        raise InputError(
            "the model has no input statistics yet; train it, or call model.fit_input(x)"
        )
    writer = _Writer()
    value = "x"
    if norm.normalize_rows:
        value = writer.add("normalize_rows", value)
    if norm.standardize:
        value = writer.add(
            "standardize", value, "input", mean=_array(norm.mean), scale=_array(norm.scale)
        )
    hidden: list[str] = []
    for number, conv in enumerate(model.layers):
        if model.binarization.features:
            value = writer.binarized(value)
        # The last layer's neighbours are weighed more finely (docs/design.md).
        edge_bits = 20 if number == len(model.layers) - 1 else 17
        value = _convolution(writer, f"layers.{number}", conv, value, edge_bits)
        if number < len(model.norms):
            value = _between(writer, model, number, value)
            hidden.append(value)
    if model.head is not None:
        _head(writer, model.head, hidden)
    return PackedModel(writer.operations, writer.arrays, norm.num_features)


def _convolution(
    writer: _Writer,
    name: str,
    conv: GCNConv | SAGEConv | GATConv | SGConv,
    value: str,
    edge_bits: int,
) -> str:
    linear = conv.lin_l if isinstance(conv, SAGEConv) else conv.lin
    out = writer.linear(name, linear, value)
    if isinstance(conv, GATConv):
        out = writer.add(
            "attention",
            out,
            name,
            att_src=_array(conv.att_src[0]),
            att_dst=_array(conv.att_dst[0]),
            concat=conv.concat,
            negative_slope=float(conv.negative_slope),
            edge_bits=edge_bits,
        )
    else:
        for _ in range(conv.hops if isinstance(conv, SGConv) else 1):
            out = writer.add("aggregate", out, norm=conv.norm, edge_bits=edge_bits)
    if isinstance(conv, SAGEConv):
        own = writer.linear(f"{name}.own", conv.lin_r, value)
        out = writer.add("add", [out, own])
    bias = linear.bias if isinstance(conv, SAGEConv | SGConv) else conv.bias
    return out if bias is None else writer.add("bias", out, name, bias=_array(bias))


def _between(writer: _Writer, model: GNN, number: int, value: str) -> str:
    """Batch normalisation and activation after a hidden layer."""
    norm = model.norms[number]
    if isinstance(norm, BatchNorm):
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = (norm.running_var.double() + norm.eps).rsqrt()
        value = writer.add(
            "batch_norm",
            value,
            f"norms.{number}",
            mean=_array(norm.running_mean),
            scale=_array(scale),
        )
    if not model.binarization.features:
        value = writer.add(model.config["activation"], value)
    return value


def _head(writer: _Writer, head: JumpingHead, hidden: list[str]) -> None:
    """``W (h¹ || ... || h^L) + b``; of binary features a product per layer, added up."""
    linear = head.lin
    if not head.binarization.features:
        side_by_side = writer.add("concat", hidden) if len(hidden) > 1 else hidden[0]
        out = writer.linear("head", linear, side_by_side)
    else:
        parts: list[str] = []
        weight: Tensor = linear.weight
        alpha: Tensor | None = None
        if head.binarization.weights:
            weight, alpha = linear.binary_weight()
        for number, (value, block) in enumerate(
            zip(hidden, weight.split(head.channels, dim=1), strict=True)
        ):
            name, bits = f"head.{number}", writer.binarized(value)
            if alpha is None:
                parts.append(writer.add("linear", bits, name, weight=_array(block)))
            else:
                parts.append(writer.binary_linear(name, block, alpha, bits))
        out = writer.add("add", parts) if len(parts) > 1 else parts[0]
    if linear.bias is not None:
        writer.add("bias", out, "head", bias=_array(linear.bias))


class _Writer:
    """Collects operations and their arrays."""

    def __init__(self) -> None:
        self.operations: list[dict[str, object]] = []
        self.arrays: dict[str, NDArray[np.generic]] = {}
        self._binarized: dict[str, str] = {}

    def binarized(self, value: str) -> str:
        """The bits of a value, made once for all that read them."""
        if value not in self._binarized:
            self._binarized[value] = self.add("binarize", value)
        return self._binarized[value]

    def add(
        self,
        op: str,
        value: str | list[str],
        prefix: str = "",
        **parameters: NDArray[np.generic] | str | float | bool,
    ) -> str:
        """Appends an operation on a value or several; arrays are stored as
        ``<prefix>.<parameter>``. Returns the name of the value it makes.
        """
        out = f"v{len(self.operations)}"
        step: dict[str, object] = {
            "op": op,
            "in": [value] if isinstance(value, str) else value,
            "out": out,
        }
        for parameter, given in parameters.items():
            if isinstance(given, np.ndarray):
                step[parameter] = f"{prefix}.{parameter}"
                self.arrays[f"{prefix}.{parameter}"] = given
            else:
                step[parameter] = given
        self.operations.append(step)
        return out

    def linear(self, name: str, linear: Linear, value: str) -> str:
        """``H̃ W̃``, without the bias."""
        if not linear.binarization.weights:
            return self.add("linear", value, name, weight=_array(linear.weight))
        signs, alpha = linear.binary_weight()
        return self.binary_linear(name, signs, alpha, value)

    def binary_linear(self, name: str, signs: Tensor, alpha: Tensor, value: str) -> str:
        """``α ⊙ (H̃ B)``."""
        words = kernels.pack_rows(_array(signs))
        return self.add("binary_linear", value, name, words=words, alpha=_array(alpha[:, 0]))


def _array(tensor: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.detach().cpu().float().numpy()).copy()

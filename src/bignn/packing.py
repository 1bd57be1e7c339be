"""A trained torch module becomes a packed model. May import ``nn`` and ``runtime``."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bignn import kernels
from bignn.errors import InputError, wrong
from bignn.nn import GNN, BatchNorm, GCNConv
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
    if norm.normalize_rows:
        writer.add("normalize_rows")
    if norm.standardize:
        writer.add("standardize", "input", mean=_array(norm.mean), scale=_array(norm.scale))
    for number, conv in enumerate(model.layers):
        if not isinstance(conv, GCNConv):
            raise wrong("model", "a model of GCN convolutions", type(conv).__name__)
        name = f"layers.{number}"
        if model.binarization.features:
            writer.add("binarize")
        if model.binarization.weights:
            signs, alpha = conv.lin.binary_weight()
            words = kernels.pack_rows(_array(signs))
            writer.add("binary_linear", name, words=words, alpha=_array(alpha[:, 0]))
        else:
            writer.add("linear", name, weight=_array(conv.lin.weight))
        is_last = number == len(model.layers) - 1
        writer.add("aggregate", norm="gcn", edge_bits=20 if is_last else 17)
        if conv.bias is not None:
            writer.add("bias", name, bias=_array(conv.bias))
        if is_last:
            break
        between = model.norms[number]
        if isinstance(between, BatchNorm):
            assert between.running_mean is not None
            assert between.running_var is not None
            scale = (between.running_var.double() + between.eps).rsqrt()
            writer.add(
                "batch_norm",
                f"norms.{number}",
                mean=_array(between.running_mean),
                scale=_array(scale),
            )
        if not model.binarization.features:
            writer.add("relu")
    return PackedModel(writer.operations, writer.arrays, norm.num_features)


class _Writer:
    """Collects a chain of operations and their arrays."""

    def __init__(self) -> None:
        self.operations: list[dict[str, object]] = []
        self.arrays: dict[str, NDArray[np.generic]] = {}

    def add(self, op: str, prefix: str = "", **parameters: NDArray[np.generic] | str | int) -> None:
        """Appends an operation; arrays are stored as ``<prefix>.<parameter>``."""
        number = len(self.operations)
        step: dict[str, object] = {
            "op": op,
            "in": [f"v{number - 1}" if number else "x"],
            "out": f"v{number}",
        }
        for parameter, value in parameters.items():
            if isinstance(value, str | int):
                step[parameter] = value
            else:
                step[parameter] = f"{prefix}.{parameter}"
                self.arrays[f"{prefix}.{parameter}"] = value
        self.operations.append(step)


def _array(tensor: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.detach().cpu().float().numpy()).copy()

"""Packs a trained torch module into a packed model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.parameter import is_lazy

from bignn import kernels
from bignn.errors import InputError, input_error
from bignn.graph.names import class_names_of
from bignn.kernels.layer import edge_bits_of
from bignn.nn import (
    GNN,
    BatchNorm,
    GATConv,
    GCNConv,
    GINConv,
    InputStage,
    JumpingHead,
    Linear,
    SAGEConv,
    SGConv,
)
from bignn.runtime import Output, PackedModel
from bignn.runtime.packed_model import checked_class_names

if TYPE_CHECKING:
    from bignn.nn.convert.steps import Step


#: The attribute in which :func:`bignn.fit` tells what a model was trained for.
TRAINED_OUTPUT = "_bignn_output"
#: The attribute in which it tells which type of nodes of a heterogeneous graph was learned.
TRAINED_NODE_TYPE = "_bignn_node_type"


def pack(
    model: torch.nn.Module,
    *,
    node_type: str | None = None,
    class_names: Sequence[str] | None = None,
) -> PackedModel:
    """Pack a trained model: bits for what is binary, float32 for the rest.

    Args:
        model: a :class:`bignn.nn.GNN`, or one that :func:`bignn.binarize_` has converted; its
            weights are copied, training can go on. The packed model predicts what :func:`bignn.fit`
            has trained it for, classes, labels or values; otherwise classes, or the value where
            there is one output.
        node_type: of a heterogeneous model, the type of nodes that is predicted; None where the
            model returns logits of one type alone, or for the type that :func:`bignn.fit` has
            trained it for last, whatever a loop of your own has trained it for since: name the
            type then. The packed model's ``repr`` tells which one it predicts.
        class_names: names of the classes in the order of their numbers; None takes those of the
            graph that the model was trained on (``model.class_names``), if there are any.

    """
    if node_type is None:
        node_type = getattr(model, TRAINED_NODE_TYPE, None)
    packed = _packed(model, node_type)
    if node_type is not None:
        packed.about["node_type"] = node_type
    # A class of one output would always be 0.
    usual: Output = "values" if packed.num_classes == 1 else "classes"
    packed.output = getattr(model, TRAINED_OUTPUT, usual)
    if class_names is not None:
        packed.class_names = checked_class_names(class_names, packed.num_classes)
        return packed
    names = getattr(model, "class_names", None)
    if isinstance(names, list | tuple) and len(names) == packed.num_classes:
        packed.class_names = class_names_of(names)
    return packed


def _packed(model: torch.nn.Module, node_type: str | None) -> PackedModel:
    """Pack a model, without the names of its classes."""
    if not isinstance(model, torch.nn.Module):
        raise input_error(
            "model",
            "a bignn.nn.GNN or one that bignn.binarize_ has converted",
            type(model).__name__,
        )
    if any(parameter.is_meta for parameter in model.parameters()):
        raise input_error("model", "one with values", "parameters on the meta device")
    for name, parameter in model.named_parameters():
        if not is_lazy(parameter) and not bool(torch.isfinite(parameter).all()):
            got = f"NaN or infinite values in '{name}'"
            fix = "it has diverged: train it with a lower learning rate"
            raise input_error("model", "one of finite parameters", got, fix)
    writer = _Writer()
    if not isinstance(model, GNN):
        return _converted(writer, model, node_type)
    _refuse_node_type(node_type)
    value = _input(writer, model.input_stage, "x")
    hidden: list[str] = []
    for number, conv in enumerate(model.layers):
        if model.binarization.features:
            value = writer.binarized(value)
        # The last layer's neighbours are weighed more finely (docs/design.md).
        edge_bits = edge_bits_of(is_last=number == len(model.layers) - 1)
        value = _convolution(writer, f"layers.{number}", conv, value, edge_bits)
        if number < len(model.norms):
            value = _between(writer, model, number, value)
            hidden.append(value)
    if model.lin is not None:
        _head(writer, model.lin, hidden)
    return PackedModel(writer.operations, writer.arrays, model.input_stage.num_features)


def _refuse_node_type(node_type: str | None) -> None:
    if node_type is not None:
        raise input_error("node_type", "left out for a model of one type of nodes", repr(node_type))


def _input(writer: _Writer, stage: InputStage, value: str) -> str:
    if stage.standardize and not bool(stage.is_fitted):
        fix = "train it, or call model.fit_input(x)"
        if isinstance(reader := getattr(stage, "reader", None), str):
            fix = (
                "train it by calling the model itself; for a loop that calls other methods "
                f"convert with first='{reader}', the layer that reads the features"
            )
        raise InputError(f"the model has no input statistics yet; {fix}")
    if stage.normalize_rows:
        value = writer.add("normalize_rows", value)
    if stage.standardize:
        value = writer.add(
            "standardize", value, "input", mean=_array(stage.mean), scale=_array(stage.scale)
        )
    if (encoder := stage.packed_encoder()) is not None:
        value = writer.add(encoder.kind, value, "input", **encoder.stored())
    return value


def _converted(writer: _Writer, model: torch.nn.Module, node_type: str | None) -> PackedModel:
    """Pack a converted model, step by step as its forward goes."""
    from bignn.nn.convert.trace import trace
    from bignn.nn.convert.wrapped_layer import input_maps

    traced = trace(model, node_type)
    if not traced.relations:
        _refuse_node_type(node_type)
    steps = traced.steps
    convolutions = [s for s in steps if s.op == "layer" and not isinstance(s.module, Linear)]
    inputs = sorted({name for step in steps for name in step.inputs if name.startswith("x")})
    names = {name: name for name in inputs}
    for number, step in enumerate(steps):
        values = [names[name] for name in step.inputs]
        value, module = values[0], cast(Any, step.module)
        match "packed" if module is None else step.op:
            case "standardize":
                out = _input(writer, module, value)
            case "linear":  # one that stayed float
                out = writer.add("linear", value, f"{number}", weight=_array(module.weight))
                if module.bias is not None:
                    out = writer.add("bias", out, f"{number}", bias=_array(module.bias))
            case "batch_norm":
                out = _batch_norm(writer, f"{number}", module, value)
            case "product":
                if module.binarization.features:
                    value = writer.binarized(value)
                out = writer.linear(f"{number}", module, value)
            case "layer":
                if input_maps(module)[0].binarization.features:
                    value = writer.binarized(value)
                if isinstance(module, Linear):
                    out = writer.linear(f"{number}", module, value)
                    if module.bias is not None:
                        out = writer.add("bias", out, f"{number}", bias=_array(module.bias))
                else:
                    edge_bits = edge_bits_of(is_last=step is convolutions[-1])
                    out = _convolution(writer, f"{number}", module, value, edge_bits)
            case _:
                parameters = {
                    key: _array(given) if isinstance(given, Tensor) else given
                    for key, given in step.parameters.items()
                }
                out = writer.add(step.op, values, f"{number}", **parameters)
        names[step.out] = out
    if not traced.relations:
        width, use = _width_of("x", steps), traced.weight_use
        return PackedModel(writer.operations, writer.arrays, width, edge_weight=use)
    widths = {name.removeprefix("x."): _width_of(name, steps) for name in inputs}
    return PackedModel(writer.operations, writer.arrays, widths, relations=traced.relations)


def _width_of(x: str, steps: list[Step]) -> int:
    """Find the number of features by the first step that tells how many it reads."""
    as_wide = {x}
    columns = [int(step.parameters["column"]) + 1 for step in steps if step.op == "embedding"]
    for step in steps:
        if step.inputs[0] in as_wide and step.op != "embedding":
            width = _columns_read(step)
            if width is not None:
                return width
            as_wide.add(step.out)
    if not columns:
        raise InputError("the model cannot be packed: nothing in it tells how wide its input is")
    return max(columns)


def _columns_read(step: Step) -> int | None:
    """Find how many columns a step reads, if its parameters tell."""
    from bignn.nn.convert.wrapped_layer import WrappedLayer, input_maps

    module = getattr(step.module, "module", step.module)  # PyG's BatchNorm holds torch's
    if isinstance(module, InputStage):
        return module.num_features
    if isinstance(module, WrappedLayer):
        module = input_maps(module)[0]
    sized = [getattr(module, name, None) for name in ("weight", "running_mean")]
    sizes = [t.shape[-1] for t in (*sized, *step.parameters.values()) if isinstance(t, Tensor)]
    return int(sizes[0]) if sizes else None


def _batch_norm(writer: _Writer, name: str, norm: Any, value: str) -> str:
    """Write ``(h - mean) / std · w + b`` as ``(h - mean') · scale``."""
    norm = getattr(norm, "module", norm)  # PyG's holds torch's
    scale = (norm.running_var.double() + norm.eps).rsqrt()
    mean = norm.running_mean.double()
    bias = None
    if norm.weight is not None:
        scale = scale * norm.weight.double()
        if bool((scale.abs() > 1e-12).all()):
            mean = mean - norm.bias.double() / scale
        else:  # a column that is its bias alone
            bias = norm.bias
    value = writer.batch_norm(name, value, _array(mean), _array(scale))
    return value if bias is None else writer.add("bias", value, f"{name}.norm", bias=_array(bias))


def _convolution(
    writer: _Writer,
    name: str,
    conv: GCNConv | SAGEConv | GATConv | SGConv | GINConv,
    value: str,
    edge_bits: int,
) -> str:
    if not isinstance(conv, SGConv | GINConv) and conv.edge_bits is not None:
        edge_bits = conv.edge_bits  # those that the layer was trained with
    linear = conv.lin_l if isinstance(conv, SAGEConv) else conv.lin
    out = product = writer.linear(name, linear, value)
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
        for _ in range(conv.K if isinstance(conv, SGConv) else 1):
            out = writer.add("aggregate", out, aggr=conv.aggr, edge_bits=edge_bits)
    if isinstance(conv, SAGEConv):
        own = writer.linear(f"{name}.own", conv.lin_r, value)
        out = writer.add("add", [out, own])
    elif isinstance(conv, GINConv):
        out = writer.add(
            "add", [out, writer.add("scale", product, factor=1 + float(conv.eps.detach()))]
        )
    bias = linear.bias if isinstance(conv, SAGEConv | SGConv | GINConv) else conv.bias
    return out if bias is None else writer.add("bias", out, name, bias=_array(bias))


def _between(writer: _Writer, model: GNN, number: int, value: str) -> str:
    """Write batch normalisation and activation after a hidden layer."""
    norm = model.norms[number]
    if isinstance(norm, BatchNorm):
        value = _batch_norm(writer, f"norms.{number}", norm, value)
    if not model.binarization.features:
        value = writer.add(model.config["activation"], value)
    return value


def _head(writer: _Writer, head: JumpingHead, hidden: list[str]) -> None:
    """Write ``W (h¹ || ... || h^L) + b``; with binary features a product per layer, added up."""
    if not head.binarization.features:
        side_by_side = writer.add("concat", hidden) if len(hidden) > 1 else hidden[0]
        out = writer.linear("head", head, side_by_side)
    else:
        parts: list[str] = []
        weight: Tensor = head.weight
        alpha: Tensor | None = None
        if head.binarization.weights:
            weight, alpha = head.binary_weight()
        for number, (value, block) in enumerate(
            zip(hidden, weight.split(head.channels, dim=1), strict=True)
        ):
            name, bits = f"head.{number}", writer.binarized(value)
            if alpha is None:
                parts.append(writer.add("linear", bits, name, weight=_array(block)))
            else:
                parts.append(writer.binary_linear(name, block, alpha, bits))
        out = writer.add("add", parts) if len(parts) > 1 else parts[0]
    if head.bias is not None:
        writer.add("bias", out, "head", bias=_array(head.bias))


class _Writer:
    """Operations and arrays of a model, collected one by one."""

    def __init__(self) -> None:
        self.operations: list[dict[str, object]] = []
        self.arrays: dict[str, NDArray[np.generic]] = {}
        self._binarized: dict[str, str] = {}
        self._normalized: dict[tuple[str, bytes, bytes], str] = {}

    def binarized(self, value: str) -> str:
        """Write a value's binarization, once for all that read it."""
        if value not in self._binarized:
            self._binarized[value] = self.add("binarize", value)
        return self._binarized[value]

    def batch_norm(
        self, name: str, value: str, mean: NDArray[np.float32], scale: NDArray[np.float32]
    ) -> str:
        """Write ``(x - mean) · scale``, once for all that normalise a value alike.

        Layers that centre the same input by themselves have the same statistics of it.
        """
        key = value, mean.tobytes(), scale.tobytes()
        if key not in self._normalized:
            self._normalized[key] = self.add("batch_norm", value, name, mean=mean, scale=scale)
        return self._normalized[key]

    def add(
        self,
        op: str,
        value: str | list[str],
        prefix: str = "",
        **parameters: NDArray[np.generic] | str | float | bool,
    ) -> str:
        """Append an operation on a value or several; return the name of the value it makes.

        Arrays are stored as ``<prefix>.<parameter>``.
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
        """Write ``H̃ W̃``, without the bias."""
        if not linear.binarization.weights:
            return self.add("linear", value, name, weight=_array(linear.weight))
        signs, alpha = linear.binary_weight()
        return self.binary_linear(name, signs, alpha, value)

    def binary_linear(self, name: str, signs: Tensor, alpha: Tensor, value: str) -> str:
        """Write ``α ⊙ (H̃ B)``."""
        words = kernels.pack_rows(_array(signs))
        return self.add("binary_linear", value, name, words=words, alpha=_array(alpha[:, 0]))


def _array(tensor: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.detach().cpu().float().numpy()).copy()

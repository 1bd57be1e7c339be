"""Wrapping of converted layers: they are called like the PyG layers that they replaced."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from bignn.errors import InputError, input_error
from bignn.nn.convert.before_activation import is_recording_origins, origin_of
from bignn.nn.convert.converted_input import is_features, signs_of_features
from bignn.nn.convert.sign_watch import SignWatch
from bignn.nn.convolution import TransformFirst
from bignn.nn.features import BinaryRows, SparseFeatures
from bignn.nn.gat_conv import GATConv
from bignn.nn.gcn_conv import GCNConv
from bignn.nn.gin_conv import GINConv
from bignn.nn.linear import Linear
from bignn.nn.sage_conv import SAGEConv
from bignn.nn.sg_conv import SGConv
from bignn.nn.sparse import SparseMatrix

#: Layers of bignn that replace layers of PyG.
WrappedLayer = GCNConv | SAGEConv | GATConv | GINConv | SGConv | TransformFirst | Linear

#: Arguments of PyG's layers, in order.
_ARGUMENTS: dict[type[nn.Module], tuple[str, ...]] = {
    GCNConv: ("x", "edge_index", "edge_weight"),
    SGConv: ("x", "edge_index", "edge_weight"),
    SAGEConv: ("x", "edge_index", "size"),
    GINConv: ("x", "edge_index", "size"),
    GATConv: ("x", "edge_index", "edge_attr", "size", "return_attention_weights"),
    Linear: ("x",),
}

_NAME_FIRST = "name the layer that reads the features: binarize_(model, first='conv1')"

#: The share of hidden bits that is dropped at most, whatever the model's dropout is: more keeps
#: deep models and jumping heads from learning (docs/design.md, Converting PyG models).
MOST_DROPPED = 0.2

#: Arguments that hold a number per edge, which layers pass on.
_OF_EDGES = ("edge_weight", "edge_type")


@dataclass
class Wrapping:
    """The handling of a converted layer's input before it is binarized.

    Attributes:
        name: name of the layer in its model.
        reads_before_activation: whether the layer reads the value before activation and dropout,
            and drops by itself.
        own_dropout: whether the layer's dropout is its own, whatever the model's dropout is.
        dropout: the share that the layer drops besides what the model's forward drops.
        default_dropout: the share that it drops where nothing else is dropped.
        features_dropout: the share that it drops of the model's features where nothing else is.
        signs: the watch over its input's signs in training.
        has_looked_past: whether it has read features from before the model's forward dropped some.

    """

    name: str
    reads_before_activation: bool
    own_dropout: bool
    dropout: float = 0.0
    default_dropout: float = 0.0
    features_dropout: float = 0.0
    signs: SignWatch = field(default_factory=SignWatch)
    has_looked_past: bool = False


def wrap_layer(layer: WrappedLayer, wrapping: Wrapping) -> None:
    """Make a layer callable like PyG's."""
    layer.wrapping = wrapping  # type: ignore[assignment]
    layer.register_forward_pre_hook(_prepare_arguments, with_kwargs=True)


def is_wrapped(module: nn.Module) -> bool:
    """Whether a module is a converted layer."""
    return isinstance(getattr(module, "wrapping", None), Wrapping)


def argument_names(layer: WrappedLayer) -> tuple[str, ...]:
    """List the arguments of the PyG layer that a layer replaced, in order."""
    if isinstance(layer, TransformFirst):
        return layer.arguments
    return next(names for kind, names in _ARGUMENTS.items() if isinstance(layer, kind))


def input_maps(layer: WrappedLayer) -> list[Linear]:
    """List the linear maps that read a layer's input."""
    if isinstance(layer, Linear):
        return [layer]
    if isinstance(layer, TransformFirst):
        return layer.input_maps()
    return [layer.lin_l, layer.lin_r] if isinstance(layer, SAGEConv) else [layer.lin]


def has_uncentred_layers(model: nn.Module) -> bool:
    """Whether a converted layer after the first takes signs of an input that is not centred."""
    layers = [layer for layer in model.modules() if is_wrapped(layer)]
    own = ("center", "input_stage")
    return any(not any(hasattr(layer, name) for name in own) for layer in layers[1:])


def has_binary_layers(model: nn.Module) -> bool:
    """Whether a model has converted layers with 1-bit parts."""
    kinds = (input_maps(layer)[0].binarization for layer in model.modules() if is_wrapped(layer))  # type: ignore[arg-type]
    return any(kind.features or kind.weights for kind in kinds)


def set_dropout(layer: WrappedLayer, p: float) -> None:
    """Set the share of a layer's input that it drops."""
    for linear in input_maps(layer):
        linear.dropout = p


def _prepare_arguments(
    layer: WrappedLayer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    wrapping: Wrapping = layer.wrapping  # type: ignore[assignment]
    given = _by_name(layer, wrapping.name, args, kwargs)
    x = given.pop("x", None)
    if not isinstance(x, Tensor | BinaryRows | SparseFeatures):
        expected = f"a tensor [nodes, features] for '{wrapping.name}'"
        fix = "pairs (x_s, x_t) are not supported" if isinstance(x, tuple | list) else ""
        raise input_error("x", expected, type(x).__name__, fix)
    if input_maps(layer)[0].binarization.features and isinstance(x, Tensor):
        _check_dense(x)
        if x.ndim != 2:
            expected = f"two-dimensional for '{wrapping.name}'"
            raise input_error("x", expected, f"shape {list(x.shape)}")
        x = _prepare_input(layer, wrapping, x)
    return (x,), given


def _check_dense(x: Tensor) -> None:
    """Refuse sparse features, which signs would make dense."""
    if x.layout is not torch.strided:
        raise input_error("x", "a dense tensor", f"one of layout {x.layout}", "pass x.to_dense()")


def _by_name(
    layer: WrappedLayer, layer_name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    names = argument_names(layer)
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    if isinstance(layer, Linear) and "input" in given:  # as torch calls it
        given["x"] = given.pop("input")
    for name in [*given]:
        if name in ("x", "edge_index") or (name in _OF_EDGES and name in names):
            continue
        # Attention without edge_dim leaves features of edges out, as PyG's does.
        is_left_out = given.pop(name) is None or name == "edge_attr"
        if not is_left_out or name not in names:
            raise InputError(f"'{layer_name}' is a bignn {type(layer).__name__}: no '{name}'")
    edges = given.get("edge_index")
    if not isinstance(layer, Linear) and not isinstance(edges, Tensor | SparseMatrix):
        raise input_error(
            "edge_index",
            f"a tensor [2, E] or a sparse CSR adjacency for '{layer_name}'",
            type(edges).__name__,
        )
    return given


def value_before(layer: WrappedLayer, wrapping: Wrapping, x: Tensor) -> Tensor:
    """Look up the value before activation and dropout, if the layer reads that; it then drops."""
    if not wrapping.reads_before_activation:
        return _features_before_dropout(layer, wrapping, x)
    if not is_recording_origins():
        _refuse_backward(wrapping)
        raise InputError(
            f"'{wrapping.name}' was called from outside the model's forward, where activations "
            "are not recorded; train and evaluate by calling the model itself (or pack it and "
            "predict), or convert with center=True and first= the layer that reads the features"
        )
    before = origin_of(x)
    if not before.is_intact:
        raise InputError(
            f"the value before the activation that '{wrapping.name}' reads has been changed in "
            "place since; write 'h = h + y' instead of 'h += y', or convert with center=True"
        )
    _choose_drop(layer, before.value)
    if layer.training and not wrapping.own_dropout:
        dropped = 1 - (1 - wrapping.dropout) * (1 - before.dropped)
        if is_features(before.value):
            dropped = dropped or wrapping.features_dropout
        elif hasattr(layer, "input_stage"):
            dropped = dropped or wrapping.default_dropout
        else:
            dropped = min(dropped or wrapping.default_dropout, MOST_DROPPED)
        set_dropout(layer, dropped)
    return before.value


def _features_before_dropout(layer: WrappedLayer, wrapping: Wrapping, x: Tensor) -> Tensor:
    """Look up the model's features where x is these, dropped; the layer then drops instead.

    A dropped number is 0, whose sign would be +1 in place of the usual bit. Other values stay.
    """
    if not is_recording_origins() and wrapping.has_looked_past:
        _refuse_backward(wrapping)
    before = origin_of(x) if is_recording_origins() else None
    read, dropped = x, 0.0
    if before is not None and before.is_intact and is_features(before.value):
        read, dropped = before.value, before.dropped
        wrapping.has_looked_past = wrapping.has_looked_past or dropped > 0
    _choose_drop(layer, read)
    if layer.training and not wrapping.own_dropout:
        set_dropout(layer, 1 - (1 - wrapping.dropout) * (1 - dropped))
    return read


def _refuse_backward(wrapping: Wrapping) -> None:
    if int(torch._C._current_graph_task_id()) >= 0:
        raise InputError(
            f"'{wrapping.name}' is computed again in the backward pass, where what the forward "
            "dropped or activated is not known; leave it out of torch.utils.checkpoint"
        )


def _choose_drop(layer: WrappedLayer, x: Tensor) -> None:
    """Let a linear map of the features drop the bits that are not usual in their column alone.

    A bag of words has a few of these per node. Dropping half of all bits adds noise of the size of
    what the words add up to; a sum over neighbours averages it out, a linear map does not
    (docs/design.md, Converting PyG models).
    """
    if layer.training and isinstance(layer, Linear):
        layer.drop = "present" if is_features(x) else "all"


def _prepare_input(layer: WrappedLayer, wrapping: Wrapping, x: Tensor) -> Any:
    read: Any = value_before(layer, wrapping, x)
    is_input = is_features(read)
    if isinstance(stage := getattr(layer, "input_stage", None), nn.Module):
        read, is_input = stage(read), True
    elif isinstance(center := getattr(layer, "center", None), nn.Module):
        read = center(read)
    watch_signs(layer, wrapping, read, is_input=is_input)
    # Signs, and which of them are not usual, are the same in every epoch.
    is_constant = layer.training and is_features(read) and not read.requires_grad
    return signs_of_features(read) if is_constant and isinstance(layer, Linear) else read


def watch_signs(layer: nn.Module, wrapping: Wrapping, x: Any, *, is_input: bool = False) -> None:
    """Look at what a layer takes the signs of, while it trains."""
    if layer.training and not torch.compiler.is_compiling():
        wrapping.signs.see(x, wrapping.name, is_input=is_input)


def standardize_input(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Standardise the input of a model, x or a PyG ``Data``; a forward pre-hook."""
    if "x" in kwargs:
        return args, {**kwargs, "x": _standardized(model, kwargs["x"])}
    first = args[0] if args else None
    if isinstance(first, Tensor):
        return (_standardized(model, first), *args[1:]), kwargs
    if isinstance(getattr(first, "x", None), Tensor):
        data = copy.copy(first)
        data.x = _standardized(model, first.x)  # type: ignore[union-attr]
        return (data, *args[1:]), kwargs
    raise input_error(
        "model",
        "called with x, or a PyG Data, first",
        type(first).__name__,
        _NAME_FIRST,
    )


def _standardized(model: nn.Module, x: Tensor) -> Any:
    stage: nn.Module = model.input_stage  # type: ignore[assignment]
    _check_dense(x)
    if any(isinstance(module, nn.Embedding) for module in model.modules()) and (
        x.ndim != 2 or not x.is_floating_point()
    ):
        got = f"{str(x.dtype).removeprefix('torch.')} of shape {list(x.shape)}, as ids"
        raise input_error("x", "features, which are standardised", got, _NAME_FIRST)
    if x.ndim == 2 and x.shape[1] != stage.num_features:
        reader = stage.reader
        expected = f"[nodes, {stage.num_features}], as '{reader}' reads"
        fix = (
            f"if '{reader}' does not read the features themselves, tell so: "
            f"binarize_(model, first='{reader}')"
        )
        raise input_error("x", expected, f"shape {list(x.shape)}", fix)
    return stage(x)

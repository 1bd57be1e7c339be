"""How a converted layer is called: as the layer whose place it took."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bignn.errors import InputError, input_error
from bignn.nn.convert.before_activation import is_remembering, origin
from bignn.nn.features import BinaryRows, SparseFeatures
from bignn.nn.gat_conv import GATConv
from bignn.nn.gcn_conv import GCNConv
from bignn.nn.gin_conv import GINConv
from bignn.nn.linear import Linear
from bignn.nn.sage_conv import SAGEConv
from bignn.nn.sg_conv import SGConv
from bignn.nn.sparse import SparseMatrix

Layer = GCNConv | SAGEConv | GATConv | GINConv | SGConv | Linear

#: PyG's arguments, in order.
_ARGUMENTS: dict[type[nn.Module], tuple[str, ...]] = {
    GCNConv: ("x", "edge_index", "edge_weight"),
    SGConv: ("x", "edge_index", "edge_weight"),
    SAGEConv: ("x", "edge_index", "size"),
    GINConv: ("x", "edge_index", "size"),
    GATConv: ("x", "edge_index", "edge_attr", "size", "return_attention_weights"),
    Linear: ("x",),
}


@dataclass
class Port:
    """What a converted layer does with its input before it is one of bits.

    Attributes:
        name: of the layer in its model.
        sees_before: it reads what was there before activation and dropout, and drops by itself.
        own_dropout: the layer's share to drop is its own, whatever the model's dropout says.
        looked: whether an input was looked at for signs that are all +1.

    """

    name: str
    sees_before: bool
    own_dropout: bool
    looked: bool = False


def open_port(layer: Layer, port: Port) -> None:
    """Makes a layer callable as PyG's."""
    layer.port = port  # type: ignore[assignment]
    layer.register_forward_pre_hook(_receive, with_kwargs=True)


def entrances(layer: Layer) -> list[Linear]:
    """The linear maps that read a layer's input."""
    if isinstance(layer, Linear):
        return [layer]
    return [layer.lin_l, layer.lin_r] if isinstance(layer, SAGEConv) else [layer.lin]


def _receive(
    layer: Layer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    port: Port = layer.port  # type: ignore[assignment]
    given = _named(layer, port, args, kwargs)
    x = given.pop("x", None)
    if not isinstance(x, Tensor | BinaryRows | SparseFeatures):
        raise input_error("x", f"a tensor [nodes, features] for '{port.name}'", type(x).__name__)
    if entrances(layer)[0].binarization.features and isinstance(x, Tensor):
        if x.ndim != 2:
            raise input_error("x", f"two-dimensional for '{port.name}'", f"shape {list(x.shape)}")
        x = _input_of(layer, port, x)
    return (x,), given


def _named(
    layer: Layer, port: Port, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    names = _ARGUMENTS[type(layer)]
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    if isinstance(layer, Linear) and "input" in given:  # as torch calls it
        given["x"] = given.pop("input")
    for name in [*given]:
        if name in ("x", "edge_index") or (name == "edge_weight" and name in names):
            continue
        if given.pop(name) is not None or name not in names:
            raise InputError(f"'{port.name}' is a bignn {type(layer).__name__}: no '{name}'")
    edges = given.get("edge_index")
    if not isinstance(layer, Linear) and not isinstance(edges, Tensor | SparseMatrix):
        raise input_error(
            "edge_index",
            f"a tensor [2, E] or a sparse CSR adjacency for '{port.name}'",
            type(edges).__name__,
        )
    return given


def _input_of(layer: Layer, port: Port, x: Tensor) -> Any:
    if port.sees_before:
        if not is_remembering():
            raise InputError(
                f"'{port.name}' was called from outside the model's forward, where bignn does not "
                "see activations; call the model itself, or convert with center=True"
            )
        before = origin(x)
        if not before.is_intact:
            raise InputError(
                f"what '{port.name}' reads was, before its activation, a value that has been "
                "changed in place since; write 'h = h + y' instead of 'h += y', or convert with "
                "center=True"
            )
        if layer.training and not port.own_dropout:
            for linear in entrances(layer):
                linear.dropout = before.dropped
        x = before.value
    if isinstance(norm := getattr(layer, "input_stage", None), nn.Module):
        return norm(x)
    if isinstance(center := getattr(layer, "center", None), nn.Module):
        return center(x)
    if layer.training and not port.looked and not torch.compiler.is_compiling():
        port.looked = True
        if x.numel() > 1 and float(x.detach().min()) >= 0:
            warnings.warn(
                f"the first input of '{port.name}' has no number below 0, so its signs are all +1; "
                "take an activation away before it, or convert with center=True",
                stacklevel=2,
            )
    return x


def standardize_input(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A hook that standardises what a model is given: x, or the x of a PyG ``Data``."""
    norm: nn.Module = model.input_stage  # type: ignore[assignment]
    if "x" in kwargs:
        return args, {**kwargs, "x": norm(kwargs["x"])}
    first = args[0] if args else None
    if isinstance(first, Tensor):
        return (norm(first), *args[1:]), kwargs
    if isinstance(getattr(first, "x", None), Tensor):
        data = copy.copy(first)
        data.x = norm(first.x)  # type: ignore[union-attr]
        return (data, *args[1:]), kwargs
    raise input_error(
        "model",
        "called with x, or a PyG Data, first",
        type(first).__name__,
        "name the layer that reads the features: binarize_(model, first='conv1')",
    )

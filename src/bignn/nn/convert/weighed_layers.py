"""Which layers of a converted model weigh edges: by its forward, and by what training gave them."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any, NamedTuple

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from bignn.kernels.edge_kinds import EDGE_KINDS, WeightUse
from bignn.nn.convert.wrapped_layer import WrappedLayer, argument_names
from bignn.nn.convolution import Convolution

# The attribute of a layer in which its last training forward is remembered.
_MEMORY = "was_given_weights"


class LayerCall(NamedTuple):
    """A call of a layer that can weigh edges, in a traced forward.

    Attributes:
        layer: the layer.
        is_given: whether the traced forward gives it edge weights.

    """

    layer: nn.Module
    is_given: bool


def names_of(layer: nn.Module) -> tuple[str, ...]:
    """List the arguments of a layer, bignn's or PyG's, in order."""
    if isinstance(layer, Convolution):
        return layer.arguments
    if isinstance(layer, WrappedLayer):
        return argument_names(layer)
    return tuple(signature(layer.forward).parameters)


def can_weigh(layer: nn.Module) -> bool:
    """Whether a layer takes edge weights, and they count in its sums."""
    kind = EDGE_KINDS.get(str(getattr(layer, "aggr", "")))
    return "edge_weight" in names_of(layer) and (kind is None or kind.is_weighted)


def remember_weights_in(model: nn.Module) -> None:
    """Let the layers of a model remember whether they were given edge weights in training."""
    for module in model.modules():
        is_layer = isinstance(module, (Convolution, WrappedLayer, pyg.MessagePassing))
        if is_layer and "edge_weight" in names_of(module):
            module.register_forward_pre_hook(_remember, with_kwargs=True)


def _remember(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if not layer.training:
        return
    given = dict(zip(names_of(layer), args, strict=False)) | kwargs
    edges = given.get("edge_index")
    # A sparse adjacency holds the weights of its edges, whatever the forward's arguments are.
    is_list = isinstance(edges, Tensor) and edges.layout is torch.strided
    was_given = given.get("edge_weight") is not None or not is_list
    if getattr(layer, _MEMORY, None) is not was_given:
        setattr(layer, _MEMORY, was_given)


def use_of_weights(calls: Sequence[LayerCall]) -> WeightUse:
    """Decide what edge weights are to a model, given the calls of its layers that can weigh edges.

    What a layer was given in training counts; where that is not known, what the forward gives it.
    """
    remembered = [getattr(call.layer, _MEMORY, None) for call in calls]
    known = {some for some in remembered if some is not None}
    weighs = {
        (call.is_given and True in (known or {True})) if some is None else some
        for call, some in zip(calls, remembered, strict=True)
    }
    if len(weighs) == 2:
        return "refused"
    return "ignored" if weighs == {False} else "used"

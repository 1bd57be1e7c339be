"""Taking activations and dropout out before binary layers, where a model's structure is known."""

from __future__ import annotations

from typing import Any

import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.nn.models.basic_gnn import BasicGNN

from bignn.nn.convert.before_activation import ACTIVATION_MODULES
from bignn.nn.convert.layers import FunctionModule
from bignn.nn.convert.wrapped_layer import MOST_DROPPED, WrappedLayer, set_dropout

# Modules that may stand between an activation and a linear map.
_NORMS = (nn.BatchNorm1d, nn.LayerNorm, nn.Identity, pyg.BatchNorm, pyg.LayerNorm)


def remove_in_basic_gnn(model: BasicGNN) -> None:
    """Take activations and dropout out of one of PyG's own models; its layers drop instead.

    So does the first layer. In floats weight decay takes its part: weights of features that mislead
    grow small. Binary weights of one column all count alike.
    """
    gnn: Any = model
    gnn.act = nn.Identity()
    p = gnn.dropout.p
    gnn.dropout.p = 0.0
    for place, conv in enumerate(gnn.convs):
        set_dropout(conv, min(p, MOST_DROPPED) if place else p)
    if hasattr(gnn, "lin"):
        set_dropout(gnn.lin, min(p, MOST_DROPPED))


def remove_in_sequential(sequence: nn.Sequential, *, is_hidden: bool) -> None:
    """Take activations and dropout out before every binary linear map in a chain of modules.

    ``is_hidden`` tells whether the first of them reads hidden values; all others do.
    """
    waiting: list[str] = []
    kept = 1.0
    # ``named_children`` leaves out a module's second place; PyG's MLP has one ``act`` for all.
    for name, module in list(sequence._modules.items()):
        if isinstance(module, WrappedLayer):
            for some in waiting:
                setattr(sequence, some, nn.Identity())
            if waiting:
                set_dropout(module, min(1 - kept, MOST_DROPPED) if is_hidden else 1 - kept)
            waiting, kept, is_hidden = [], 1.0, True
        elif isinstance(module, (*ACTIVATION_MODULES, FunctionModule)):
            waiting.append(name)
        elif isinstance(module, nn.Dropout):
            waiting.append(name)
            kept *= 1 - module.p
        elif not isinstance(module, _NORMS):
            waiting, kept = [], 1.0

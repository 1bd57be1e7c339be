"""One call of a model on an example, which sets sizes that were given as -1."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from bignn.errors import input_error
from bignn.graph.hetero import is_hetero
from bignn.graph.pyg import is_data
from bignn.nn.convert.hetero import is_of_edges, types_of
from bignn.nn.evaluation import evaluating


def call_once(model: nn.Module, example: Any) -> None:
    """Call a model on an example, in evaluation and without gradients.

    Args:
        model: the model, as yet of PyG's layers.
        example: a PyG ``Data`` or ``HeteroData``, or a tuple of the model's arguments.

    """
    arguments = example if isinstance(example, tuple) else _arguments(model, example)
    with torch.no_grad(), evaluating(model):
        model(*arguments)


def _arguments(model: nn.Module, example: Any) -> list[Any]:
    """Find a forward's arguments in a graph by their names, up to the first that is not there."""
    if not is_data(example) and not is_hetero(example):
        expected = "a PyG Data or HeteroData, or a tuple of the model's arguments"
        raise input_error("example", expected, type(example).__name__)
    kinds = types_of(model)
    if kinds.edges and not is_hetero(example):
        listed = f"a HeteroData with nodes of {list(kinds.nodes)} for a heterogeneous model"
        raise input_error("example", listed, type(example).__name__)
    names = list(inspect.signature(model.forward).parameters)
    if is_hetero(example) and not kinds.edges and len(names) != 1:
        fix = "make the model heterogeneous first: torch_geometric.nn.to_hetero, or HeteroConv"
        expected = "a Data for a model of one type of nodes"
        raise input_error("example", expected, type(example).__name__, fix)
    if len(names) == 1:
        return [example]
    found = []
    for place, name in enumerate(names):
        if is_hetero(example):
            usual = ("x", "edge_index")[is_of_edges(name)]
            name = f"{usual if place < 2 else name.removesuffix('_dict')}_dict"
        elif place < 2:
            name = ("x", "edge_index")[place]
        if getattr(example, name, None) is None:
            break
        found.append(getattr(example, name))
    return found

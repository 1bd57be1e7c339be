"""Checks of a PyG ``Data``: the edges and the nodes that loaders sample from."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bignn.errors import InputError, input_error
from bignn.graph.names import Names


def checked_edges(data: Any) -> tuple[Tensor, int]:
    """Return ``edge_index`` as int64 on the CPU, and the number of nodes."""
    edge_index = getattr(data, "edge_index", None)
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        raise InputError("'data' has no edge_index [2, E]; to_sparse_tensor drops it: undo that")
    if edge_index.ndim != 2 or edge_index.shape[0] != 2 or edge_index.is_floating_point():
        raise input_error(
            "edge_index",
            "an integer tensor [2, E]",
            f"{edge_index.dtype} of shape {list(edge_index.shape)}",
        )
    num_nodes = int(data.num_nodes or 0)
    if num_nodes == 0:
        raise InputError("'data' has no nodes")
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        raise input_error(
            "edge_index",
            f"node ids in 0..{num_nodes - 1}",
            f"{int(edge_index.min())}..{int(edge_index.max())}",
        )
    return edge_index.detach().long().cpu().contiguous(), num_nodes


def without_lists(data: Any) -> Any:
    """Return a ``Data`` whose ``node_names`` PyG leaves whole, where they are a list.

    PyG takes a list as long as there are nodes for a tensor, and cannot cut it.
    """
    names = getattr(data, "node_names", None)
    if names is None or isinstance(names, Names):
        return data
    data = copy(data)
    data.node_names = Names.of(names)
    return data


def checked_nodes(input_nodes: Any, num_nodes: int) -> Tensor:
    """Return the ids, int64 [n], of nodes that are given by ids or a mask; all for None."""
    if input_nodes is None:
        return torch.arange(num_nodes)
    if isinstance(input_nodes, np.ndarray):  # torch warns of arrays that cannot be written to
        input_nodes = input_nodes.copy()
    nodes = torch.as_tensor(input_nodes).detach().cpu()
    if nodes.dtype == torch.bool:
        if nodes.shape != (num_nodes,):
            raise input_error(
                "input_nodes", f"a mask of {num_nodes} nodes", f"one of shape {list(nodes.shape)}"
            )
        nodes = nodes.nonzero().flatten()
    if nodes.numel() == 0:
        raise input_error("input_nodes", "at least one node", "none")
    if nodes.ndim != 1 or nodes.is_floating_point():
        raise input_error(
            "input_nodes",
            "a vector of node ids, or a mask",
            f"{nodes.dtype} of shape {list(nodes.shape)}",
        )
    if not 0 <= int(nodes.min()) <= int(nodes.max()) < num_nodes:
        raise input_error(
            "input_nodes",
            f"node ids in 0..{num_nodes - 1}",
            f"{int(nodes.min())}..{int(nodes.max())}",
        )
    return nodes.long()

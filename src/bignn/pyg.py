"""To and from PyG's ``Data``."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from bignn.errors import wrong
from bignn.graph import SPLITS, Graph
from bignn.graph.graph import from_arrays


def to_pyg(graph: Graph) -> Data:
    """A PyG ``Data`` with dense x and boolean split masks; it shares no memory with the graph."""
    data = Data(
        x=torch.tensor(graph.dense_x()),
        edge_index=torch.tensor(graph.edge_index),
        num_nodes=graph.num_nodes,
    )
    if graph.edge_weight is not None:
        data.edge_weight = torch.tensor(graph.edge_weight)
    if graph.y is not None:
        data.y = torch.tensor(graph.y)
    for key in SPLITS:
        ids = getattr(graph, key)
        if ids is not None:
            mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
            mask[torch.from_numpy(ids)] = True
            data[key.replace("_idx", "_mask")] = mask
    return data


def from_pyg(data: Any, name: str = "data") -> Graph:
    """A :class:`bignn.Graph` from a PyG ``Data``.

    Takes x (made dense), edge_index, edge_weight, y and the split masks (an all-False one counts as
    absent). ``edge_attr`` is not used, with a warning: PyG's convolutions do not take it for
    weights by themselves, and codes of edge types would be wrong ones.
    """
    if not hasattr(data, "keys"):
        raise wrong("graph", "a bignn.Graph or a PyG Data", type(data).__name__, "see bignn.load")
    if getattr(data, "x", None) is None:
        raise wrong(
            "data", "a Data with node features x", "none", "give every node a feature vector"
        )
    if getattr(data, "edge_index", None) is None:
        raise wrong(
            "data", "a Data with an edge_index", "none", "to_sparse_tensor drops it: undo that"
        )
    x = data.x.to_dense() if data.x.layout != torch.strided else data.x
    arrays = {"x": _numpy(x.float()), "edge_index": _numpy(data.edge_index)}
    weight = getattr(data, "edge_weight", None)
    if weight is None and getattr(data, "edge_attr", None) is not None:
        warnings.warn(
            "'edge_attr' is not used; if it holds weights that the model is called with, set "
            "data.edge_weight = data.edge_attr.view(-1)",
            stacklevel=2,
        )
    if weight is not None:
        arrays["edge_weight"] = _numpy(weight)
    if getattr(data, "y", None) is not None:
        arrays["y"] = _numpy(data.y)
    for key in SPLITS:
        mask = getattr(data, key.replace("_idx", "_mask"), None)
        if mask is None:
            continue
        if mask.shape != (len(x),) or mask.dtype != torch.bool:
            raise wrong(
                key.replace("_idx", "_mask"),
                f"one boolean per node [{len(x)}]",
                f"{mask.dtype} of shape {list(mask.shape)}",
                "of several splits, choose one: data.train_mask = data.train_mask[:, 0], ...",
            )
        if bool(mask.any()):
            arrays[key] = np.flatnonzero(_numpy(mask))
    return from_arrays(arrays, name=name)


def _numpy(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().cpu().numpy()

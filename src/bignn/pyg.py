"""To PyG's ``Data``; from it is :func:`bignn.graph.from_pyg`, which needs no torch."""

from __future__ import annotations

import torch
from torch_geometric.data import Data

from bignn.graph import SPLITS, GraphLike, as_graph


def to_pyg(graph: GraphLike) -> Data:
    """A PyG ``Data`` with dense x and boolean split masks; it shares no memory with the graph."""
    graph = as_graph(graph)
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

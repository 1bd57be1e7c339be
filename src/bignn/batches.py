"""Pieces of a graph as tensors: what a training loop iterates over."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bignn.errors import InputError
from bignn.graph import Graph
from bignn.nn import GCN, SparseMatrix, normalized_adjacency
from bignn.nn.adjacency import receptive_field


@dataclass(frozen=True)
class Batch:
    """A piece of a graph as tensors; the loss is taken on ``loss_nodes``.

    ``targets`` [N, classes] are a teacher's probabilities, which are learned on all nodes.
    """

    x: Tensor
    edge_index: Tensor | SparseMatrix
    edge_weight: Tensor | None
    y: Tensor
    loss_nodes: Tensor
    targets: Tensor | None = None

    def logits(self, model: nn.Module) -> Tensor:
        """The model's output on this piece."""
        weight = () if self.edge_weight is None else (self.edge_weight,)
        out: Tensor = model(self.x, self.edge_index, *weight)
        return out


def reachable(batch: Batch, model: nn.Module) -> Batch:
    """The part of a whole graph that can influence the outputs at ``loss_nodes``.

    Aggregation is local, so a model of L layers needs the nodes within L steps and Â among them
    (with the degrees of the whole graph); outputs and gradients are those of the whole graph. Few
    labels make it small: 2,798 of PubMed's 19,717 nodes. Where a model's reach is not known, batch
    statistics tie all nodes together, or a teacher has an opinion of all, the batch stays whole.
    """
    num_hops = model.num_hops if isinstance(model, GCN) else None
    if num_hops is None or isinstance(batch.edge_index, SparseMatrix) or batch.targets is not None:
        return batch
    adjacency = normalized_adjacency(batch.edge_index, batch.edge_weight, len(batch.x))
    nodes = receptive_field(adjacency, batch.loss_nodes, num_hops)
    loss_nodes = torch.searchsorted(nodes, batch.loss_nodes)
    return Batch(batch.x[nodes], adjacency.among(nodes), None, batch.y[nodes], loss_nodes)


def full_batch(graph: Graph, device: torch.device) -> Batch:
    """The whole graph as one batch."""
    if graph.y is None or graph.train_idx is None or graph.val_idx is None:
        absent = [k for k in ("y", "train_idx", "val_idx") if getattr(graph, k) is None]
        raise InputError(
            f"{graph.name}: training needs {absent}; 'bignn convert --split 60,20,20' makes a split"
        )
    weight = graph.edge_weight
    return Batch(
        torch.from_numpy(graph.dense_x()).to(device),
        torch.from_numpy(graph.edge_index).to(device),
        None if weight is None else torch.from_numpy(weight).to(device),
        torch.from_numpy(graph.y).to(device),
        torch.from_numpy(graph.train_idx).to(device),
    )

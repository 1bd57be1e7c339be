"""Batches: pieces of a graph as tensors, which a training loop iterates over."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from bignn.errors import InputError, input_error
from bignn.graph import Graph
from bignn.nn import GNN
from bignn.nn.adjacency import receptive_field
from bignn.nn.gnn import Graphs
from bignn.nn.linear import FeaturesLike
from bignn.train.forward import Forward

# What a batch has of a graph by itself.
_PARTS = ("x", "edge_index", "edge_weight", "edge_type")


@dataclass(frozen=True)
class Batch:
    """A piece of a graph as tensors; the loss is taken on ``loss_nodes``.

    Attributes:
        x: features; a tensor, or (for our own models) what ``model.input_stage`` made of one.
        edge_index: the edges, in any form the model takes.
        edge_weight: [E], or None.
        y: classes of the nodes that the model predicts.
        loss_nodes: numbers of the nodes whose labels are learned.
        loss_weight: a weight for each of them, to take a weighted sum; None for the mean.
        targets: [N, classes], a teacher's probabilities; None without a teacher.
        target_nodes: the nodes whose targets are learned; all by default.
        target_weight: [N], a weight for each target, as ``loss_weight`` for labels.
        edge_type: [E], the relation of each edge, for models whose forward takes it; or None.
        data: the PyG ``Data`` that the batch was made of, for all else that a forward takes of it.

    """

    x: FeaturesLike
    edge_index: Graphs
    edge_weight: Tensor | None
    y: Tensor
    loss_nodes: Tensor
    loss_weight: Tensor | None = None
    targets: Tensor | None = None
    target_nodes: slice = field(default_factory=lambda: slice(None))
    target_weight: Tensor | None = None
    edge_type: Tensor | None = None
    data: Any = None

    #: What a model raises whose forward cannot be called with such a graph.
    call_errors: ClassVar[tuple[type[Exception], ...]] = (TypeError,)

    @property
    def widths(self) -> tuple[int, ...]:
        """Numbers of features that a model is given."""
        return (int(self.x.shape[-1]),)

    def called_as(self, forward: Forward) -> tuple[str, str]:
        """Return how a model is called, and what to do where it cannot be."""
        how = "model(data)" if forward.takes_data else "model(x, edge_index, ...)"
        return how, (
            "a forward takes x, edge_index and, by their names, what the graph has, or a Data; any "
            "other model is trained in your own loop, as in the README"
        )

    @property
    def num_terms(self) -> tuple[int, int]:
        """Numbers of terms that the loss of the labels and that of the targets are means of.

        A weighted sum estimates the loss of the whole graph by itself and counts as one term.
        """
        labels = len(self.loss_nodes) if self.loss_weight is None else 1
        if self.targets is None:
            return labels, 0
        return labels, len(self.targets[self.target_nodes]) if self.target_weight is None else 1

    @property
    def device(self) -> torch.device:
        """The device of all tensors."""
        return self.y.device

    def logits(self, model: nn.Module) -> Tensor:
        """Call the model with what its forward takes: a ``Data``, or x, edge_index and more."""
        forward = Forward.of(model)
        out: Tensor
        if forward.takes_data:
            out = model(self.as_data())
            return out
        args = [self.x, self.edge_index][: forward.num_leading]
        if forward.takes_any and self.edge_weight is not None:
            args.append(self.edge_weight)
        out = model(*args, **forward.named(self._part))
        return out

    def as_data(self) -> Data:
        """Return the batch as a PyG ``Data``, with all that the given one has."""
        data = Data() if self.data is None else copy(self.data)
        for name in _PARTS:
            data[name] = self._part(name)
        return data

    def _part(self, name: str) -> Any:
        """Return a part of the graph by its name, of the ``Data`` where it is not the batch's."""
        own = getattr(self, name) if name in _PARTS else None
        return self.data.get(name) if own is None and self.data is not None else own


def reachable(batch: Batch, model: nn.Module) -> Batch:
    """Return the part of a whole graph that can influence the outputs at ``loss_nodes``.

    Aggregation is local, so a model of L layers needs the nodes within L steps and Â among them
    (with the degrees of the whole graph); outputs and gradients are those of the whole graph. Few
    labels make it small: 2,798 of PubMed's 19,717 nodes. Where a model's reach is not known, batch
    statistics tie all nodes together, or all nodes have targets, the batch stays whole.
    """
    num_hops = model.num_hops if isinstance(model, GNN) else None
    if num_hops is None or not isinstance(batch.edge_index, Tensor) or batch.targets is not None:
        return batch
    assert isinstance(model, GNN)
    assert isinstance(batch.x, Tensor)
    adjacency = model.adjacency(batch.edge_index, batch.edge_weight, len(batch.x))
    nodes = receptive_field(adjacency, batch.loss_nodes, num_hops)
    loss_nodes = torch.searchsorted(nodes, batch.loss_nodes.contiguous())
    return Batch(batch.x[nodes], adjacency.among(nodes), None, batch.y[nodes], loss_nodes)


def check_labels(graph: Graph) -> None:
    """Refuse a graph without labels or without a train and val split."""
    absent = [k for k in ("y", "train_idx", "val_idx") if getattr(graph, k) is None]
    if absent:
        raise InputError(
            f"{graph.name}: training needs {absent} (of a PyG Data: y, train_mask, val_mask); "
            "'bignn convert NEW.npz --graph FILE.npz --split 60,20,20' or PyG's RandomNodeSplit "
            "splits labelled nodes"
        )


def full_batch(graph: Graph, device: torch.device) -> Batch:
    """Return the whole graph as one batch."""
    check_labels(graph)
    assert graph.y is not None
    assert graph.train_idx is not None
    weight = graph.edge_weight
    return Batch(
        torch.from_numpy(graph.dense_x()).to(device),
        torch.from_numpy(graph.edge_index).to(device),
        None if weight is None else torch.from_numpy(weight).to(device),
        torch.from_numpy(graph.y).to(device),
        torch.from_numpy(graph.train_idx).to(device),
        edge_type=edge_types_of(graph, device),
    )


def edge_types_of(graph: Graph, device: torch.device) -> Tensor | None:
    """Return the relation of each edge, if the graph has it."""
    return None if graph.edge_type is None else torch.from_numpy(graph.edge_type).to(device)


def take_loss_share(batch: Batch, share: slice) -> Batch:
    """Return the batch with a share of its labels and targets in the loss."""
    weight = None if batch.loss_weight is None else batch.loss_weight[share]
    nodes = batch.loss_nodes[share]
    return replace(batch, loss_nodes=nodes, loss_weight=weight, target_nodes=share)


def training_subgraph(whole: Batch) -> Batch:
    """Return the ``loss_nodes`` and the edges among them: all that inductive training may see."""
    assert isinstance(whole.x, Tensor)
    assert isinstance(whole.edge_index, Tensor)
    nodes = whole.loss_nodes.unique()
    number = torch.full((len(whole.x),), -1, dtype=torch.int64, device=whole.device)
    number[nodes] = torch.arange(len(nodes), device=whole.device)
    edges = number[whole.edge_index]
    kept = (edges >= 0).all(dim=0)
    return Batch(
        whole.x[nodes],
        edges[:, kept],
        None if whole.edge_weight is None else whole.edge_weight[kept],
        whole.y[nodes],
        number[whole.loss_nodes],
        edge_type=None if whole.edge_type is None else whole.edge_type[kept],
        data=None if whole.data is None else whole.data.subgraph(nodes),
    )


def as_batch(data: Any, device: torch.device) -> Batch:
    """Convert what a PyG loader yields into a batch; return a batch as it is.

    The loss is taken on the nodes of ``train_mask``; of a neighbour loader's ``Data``, on those of
    its seed nodes (the first ``batch_size``), or without a mask on all seed nodes. GraphSAINT's
    ``node_norm`` weighs the loss; its ``edge_norm`` is passed on as ``edge_weight``, for models
    that take one.
    """
    if isinstance(data, Batch):
        return data
    if not hasattr(data, "keys") or getattr(data, "x", None) is None or data.y is None:
        raise input_error(
            "batches", "of bignn batches, or PyG Data with x and y", type(data).__name__
        )
    if getattr(data, "layers", None) is not None:
        fix = (
            "train a bignn.nn.GCN with "
            "bignn.Settings(sampling=bignn.Sampling('layer', 256, (400, 400)))"
        )
        raise InputError(f"'batches' of a LayerLoader have a graph per layer, not one each; {fix}")
    data = copy(data).to(device)
    mask = getattr(data, "train_mask", None)
    # The batch_size of a PyG Batch counts graphs; neighbour loaders number their seeds.
    has_seeds = getattr(data, "input_id", None) is not None
    if mask is None and not has_seeds:
        fix = "keep data.train_mask, or sample around input_nodes=data.train_mask"
        raise InputError(f"'batches' have neither a train_mask nor seed nodes; {fix}")
    is_learned = torch.ones(len(data.y), dtype=torch.bool, device=device) if mask is None else mask
    nodes = is_learned[: int(data.batch_size) if has_seeds else None].nonzero()[:, 0]
    weight = getattr(data, "edge_weight", None)
    if getattr(data, "edge_norm", None) is not None:
        weight = data.edge_norm if weight is None else weight * data.edge_norm
    types = getattr(data, "edge_type", None)
    batch = Batch(data.x, data.edge_index, weight, data.y, nodes, edge_type=types, data=data)
    if getattr(data, "node_norm", None) is not None:
        batch = replace(batch, loss_weight=data.node_norm[nodes])
    return batch

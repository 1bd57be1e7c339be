"""Sampled batches of a graph, as :class:`bignn.config.Sampling` describes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from bignn import loaders
from bignn.config import Sampling
from bignn.errors import input_error
from bignn.nn import GNN
from bignn.nn.adjacency import edge_weights
from bignn.nn.features import BinaryRows, SparseFeatures
from bignn.nn.linear import FeaturesLike
from bignn.nn.sparse import SparseMatrix
from bignn.train.batches import Batch

__all__ = ["SampledBatches", "Sampling"]


class SampledBatches:
    """Batches of a training graph for one of our models; every iteration draws new ones.

    All draws come from torch's generator. Features are normalised and binarized once, for the whole
    graph, and batches take their rows of the result; where bits are learned, of the features.

    With a ``share``, ``slice(rank, None, size)``, the batches are those of one of several
    processes: it takes every ``size``-th node of an epoch's order, ``batch_size / size`` (rounded
    up) at a time, or every ``size``-th of GraphSAINT's subgraphs.
    """

    def __init__(
        self, sampling: Sampling, model: GNN, whole: Batch, share: slice = slice(None)
    ) -> None:
        if not isinstance(model, GNN):
            raise input_error(
                "model", "a bignn.nn.GNN to be trained on samples", type(model).__name__
            )
        convs = model.config["conv"]
        sampling.check_model(convs, len(model.convs), jumps=model.lin is not None)
        self.sampling, self.model, self.whole, self.share = sampling, model, whole, share
        assert isinstance(whole.x, Tensor)
        assert isinstance(whole.edge_index, Tensor)
        self.adjacency = model.adjacency(whole.edge_index, whole.edge_weight, len(whole.x))
        # Bits that learn are made of the rows of each batch anew.
        x = whole.x if model.input_stage.is_learned else model.input_stage(whole.x)
        # A GPU unpacks bits faster than it reads floats; on a CPU products read both.
        pays = isinstance(x, BinaryRows) and whole.device.type == "cuda"
        self.x: FeaturesLike = x.packed() if pays else x  # type: ignore[union-attr]
        aggr = model.layers[0].aggr
        self._edge_weights, self._self_weights = edge_weights(
            aggr, whole.edge_index, whole.edge_weight, len(whole.x), torch.float32
        )
        self._has_self_entries = aggr != "mean"
        self._degree = torch.bincount(whole.edge_index[1], minlength=len(whole.x))
        self._loader = self._make_loader()

    def __iter__(self) -> Iterator[Batch]:
        for data in self._loader:
            yield self._batch(data)

    def __len__(self) -> int:
        return len(self._loader)

    def _make_loader(self) -> Any:
        sampling, whole = self.sampling, self.whole
        assert isinstance(whole.edge_index, Tensor)
        seeds_per_step = -(-sampling.batch_size // (self.share.step or 1))
        if sampling.kind == "neighbor":
            return loaders.NeighborLoader(
                Data(edge_index=whole.edge_index.cpu(), num_nodes=len(whole.y)),
                list(sampling.fan_outs),
                batch_size=seeds_per_step,
                input_nodes=whole.loss_nodes.cpu(),
                shuffle=True,
                share=self.share,
            )
        if sampling.kind == "layer":
            weight = None if whole.edge_weight is None else whole.edge_weight.cpu()
            # The rows of the features are taken afterwards, from our own form of them.
            data = Data(
                x=torch.empty(len(whole.y), 0),
                edge_index=whole.edge_index.cpu(),
                edge_weight=weight,
            )
            return loaders.LayerLoader(
                data,
                list(sampling.fan_outs),
                batch_size=seeds_per_step,
                input_nodes=whole.loss_nodes.cpu(),
                shuffle=True,
                share=self.share,
            )
        # The entries of the weighted adjacency as edges: their numbers find the weights again.
        row, column, self._entry_weights = self.adjacency.entries()
        data = Data(edge_index=torch.stack([column, row]).cpu(), num_nodes=len(whole.y))
        options: dict[str, Any] = {"sample_coverage": sampling.coverage, "share": self.share}
        size, num_nodes = sampling.batch_size, len(whole.y)
        if sampling.kind == "walk":
            options["walk_length"] = sampling.walk_length
            size *= sampling.walk_length + 1
        options["num_steps"] = max(1, -(-num_nodes // size))
        makers: dict[str, Any] = {
            "walk": loaders.SaintRandomWalkLoader,
            "node": loaders.SaintNodeLoader,
            "edge": loaders.SaintEdgeLoader,
        }
        return makers[sampling.kind](data, batch_size=sampling.batch_size, **options)

    def _batch(self, data: Any) -> Batch:
        device = self.whole.device
        nodes = data.n_id.to(device)
        if self.sampling.kind == "neighbor":
            matrices = self._layer_matrices(data, nodes)
            return self._batch_of_targets(nodes, nodes[: matrices[-1].shape[0]], matrices)
        if self.sampling.kind == "layer":
            matrices = tuple(
                SparseMatrix.from_entries(
                    edges[1].to(device), edges[0].to(device), weight.to(device), (targets, sources)
                )
                for edges, weight, (sources, targets) in data.layers
            )
            return self._batch_of_targets(nodes, data.target_id.to(device), matrices)
        weight = self._entry_weights[data.e_id.to(device)] * data.edge_norm.to(device)
        row, column = data.edge_index[1].to(device), data.edge_index[0].to(device)
        matrix = SparseMatrix.from_entries(row, column, weight, (len(nodes), len(nodes)))
        loss_nodes = torch.isin(nodes, self.whole.loss_nodes).nonzero()[:, 0]
        # 1/λ makes a sum over a subgraph a mean over all nodes, of which only some have labels.
        weights = data.node_norm.to(device)
        nodes_per_label = len(self.whole.y) / max(1, len(self.whole.loss_nodes))
        targets = self.whole.targets
        return Batch(
            _rows(self.x, nodes),
            matrix,
            None,
            self.whole.y[nodes],
            loss_nodes,
            weights[loss_nodes] * nodes_per_label,
            None if targets is None else targets[nodes],
            target_weight=None if targets is None else weights,
        )

    def _batch_of_targets(
        self, sources: Tensor, targets: Tensor, matrices: tuple[SparseMatrix, ...]
    ) -> Batch:
        return Batch(
            _rows(self.x, sources),
            matrices,
            None,
            self.whole.y[targets],
            torch.arange(len(targets), device=self.whole.device),
            None,
            None if self.whole.targets is None else self.whole.targets[targets],
        )

    def _layer_matrices(self, data: Any, nodes: Tensor) -> tuple[SparseMatrix, ...]:
        """Build the weighted adjacency of each layer.

        Nodes come in the order of discovery: layer l of L makes those of the first L - l hops from
        those of one hop more. Where k of the d edges that reach a node were drawn, each has its
        weight in the whole graph times d / k, so that a sum is right on average (and a mean over
        all is one over those drawn).
        """
        source, target = data.edge_index.to(nodes.device)
        drawn = torch.bincount(target, minlength=len(nodes))
        values = self._edge_weights[data.e_id.to(nodes.device)]
        if self.model.layers[0].aggr != "ones_self":  # attention shares out 1 by itself
            values = values * (self._degree[nodes] / drawn.clamp(min=1))[target]
        own = self._self_weights[nodes] if self._has_self_entries else None
        return hop_matrices(source, target, values, own, len(nodes), data.num_sampled_nodes)


def hop_matrices(
    source: Tensor,
    target: Tensor,
    values: Tensor,
    own: Tensor | None,
    num_nodes: int,
    nodes_per_hop: Sequence[int],
) -> tuple[SparseMatrix, ...]:
    """Build a matrix per layer of sampled edges; layer l of L makes the first L - l hops.

    ``own`` are weights of the nodes' own terms, None where they have none.
    """
    if own is not None:
        loops = torch.arange(num_nodes, device=source.device)
        # Where nodes keep a term of their own, it stands for their self-loops too.
        kept = (source != target).nonzero()[:, 0]
        source, target = torch.cat([source[kept], loops]), torch.cat([target[kept], loops])
        values = torch.cat([values[kept], own])
    matrix = SparseMatrix.from_entries(target, source, values, (num_nodes, num_nodes))
    found = torch.as_tensor(nodes_per_hop).cumsum(0).tolist()
    return tuple(
        matrix.corner(found[hop], found[hop + 1]) for hop in reversed(range(len(found) - 1))
    )


def _rows(x: FeaturesLike, nodes: Tensor) -> FeaturesLike:
    return x.rows(nodes) if isinstance(x, BinaryRows | SparseFeatures) else x[nodes]

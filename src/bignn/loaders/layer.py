"""FastGCN's sampling: every layer reads a few drawn nodes, the same for the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch_geometric.data import Data

from bignn.errors import InputError, input_error
from bignn.kernels.fastgcn import column_norms, sample_layer
from bignn.kernels.random import random_word
from bignn.kernels.sampling import CompressedGraph
from bignn.loaders.seeded import SeededIndex, SeededLoader, seed_and_indices
from bignn.loaders.structure import checked_edges, checked_nodes
from bignn.nn.adjacency import normalized_adjacency


class LayerLoader(SeededLoader):
    """A loader of mini-batches of nodes, with the sampled layers that lead to them.

    A layer's product with Â (``"gcn"`` of :func:`bignn.nn.adjacency.edge_weights`) is estimated
    from t nodes u that are drawn from the targets' neighbours with ``q(u) ∝ ‖Â(:,u)‖²``
    (:func:`bignn.kernels.fastgcn.sample_layer`). For each layer ``(edge_index, edge_weight,
    (num_sources, num_targets))``, Σ over the edges of ``edge_weight · x[source]`` is on average the
    exact product; the targets of one layer are the sources of the next.

    Yields a ``Data`` with ``layers``, a tuple, first layer first; ``x`` and ``n_id`` of the first
    layer's sources; ``y`` and ``target_id`` of the last layer's targets, which are the batch's
    nodes; ``input_id``, their numbers among the input nodes; ``batch_size``.

    Args:
        data: a PyG ``Data`` with x and an ``edge_index``, perhaps ``edge_weight`` and ``y``.
        num_samples: t of each layer, first layer first.
        input_nodes: ids (unique in a batch) or a mask; all nodes by default.
        transform: applied to every batch.
        kwargs: ``batch_size``, ``shuffle``, ``num_workers``, ... of torch's ``DataLoader``.

    """

    def __init__(
        self,
        data: Any,
        num_samples: Sequence[int],
        input_nodes: Any = None,
        *,
        transform: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        edge_index, num_nodes = checked_edges(data)
        if getattr(data, "x", None) is None:
            raise InputError("'data' has no node features x; give every node a feature vector")
        counts = list(num_samples)
        if not counts or any(not isinstance(count, int) or count < 1 for count in counts):
            raise input_error("num_samples", "a number of nodes per layer, 1 or more", counts)
        self.data = data
        self.num_samples = counts
        self.transform = transform
        self.input_nodes = checked_nodes(input_nodes, num_nodes)
        weight = getattr(data, "edge_weight", None)
        weight = None if weight is None else weight.detach().cpu().float()
        adjacency = normalized_adjacency(edge_index, weight, num_nodes).matrix
        self._graph = CompressedGraph(
            adjacency.crow_indices().numpy(), adjacency.col_indices().numpy()
        )
        self._weights = adjacency.values().numpy()
        self._importance = column_norms(self._graph, self._weights)
        super().__init__(self.input_nodes, collate_fn=self._batch, **kwargs)

    def _batch(self, index: list[SeededIndex]) -> Any:
        seed, indices = seed_and_indices(index)
        input_id = torch.tensor(indices)
        targets = self.input_nodes[input_id]
        nodes = targets.numpy()
        layers: list[tuple[torch.Tensor, torch.Tensor, tuple[int, int]]] = []
        for number in reversed(range(len(self.num_samples))):
            layer = sample_layer(
                self._graph,
                self._weights,
                nodes,
                self._importance,
                self.num_samples[number],
                seed=random_word(seed, number),
            )
            edge_index = torch.stack(
                [torch.from_numpy(layer.sources), torch.from_numpy(layer.targets)]
            )
            sizes = (len(layer.nodes), len(nodes))
            layers.insert(0, (edge_index, torch.from_numpy(layer.weights), sizes))
            nodes = layer.nodes
        n_id = torch.from_numpy(nodes)
        batch = Data(
            x=self.data.x[n_id],
            n_id=n_id,
            target_id=targets,
            input_id=input_id,
            batch_size=len(indices),
            layers=tuple(layers),
        )
        if getattr(self.data, "y", None) is not None:
            batch.y = self.data.y[targets]
        return batch if self.transform is None else self.transform(batch)

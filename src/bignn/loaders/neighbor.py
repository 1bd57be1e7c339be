"""Neighbour sampling behind PyG's interfaces: a sampler for its ``NodeLoader``, and a loader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch_geometric.loader import NodeLoader
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler.base import SubgraphType

from bignn.errors import InputError
from bignn.kernels.sampling import CompressedGraph, checked_fanouts, sample_neighbours
from bignn.loaders.seeded import SeededIndex, SeededLoader, draw_seed, seed_and_indices, with_seed
from bignn.loaders.store import MappedEdges
from bignn.loaders.structure import checked_edges, checked_nodes, without_lists

#: Options of PyG's loader that are not supported, and their values that change nothing.
_PYG_ONLY = {
    *("disjoint", "subgraph_type", "temporal_strategy", "time_attr", "weight_attr", "is_sorted"),
    *("directed", "neighbor_sampler"),
}
_DEFAULTS: dict[str, tuple[Any, ...]] = {
    "subgraph_type": ("directional", SubgraphType.directional),
    "temporal_strategy": ("uniform",),
    "directed": (True,),
    "is_sorted": (False, True),
}


def _mapped_edges(data: Any) -> MappedEdges | None:
    """Return the edges of a pair of stores; None of anything else."""
    is_pair = isinstance(data, tuple) and len(data) == 2
    return data[1] if is_pair and isinstance(data[1], MappedEdges) else None


class NeighborSampler(BaseSampler):  # type: ignore[misc]  # PyG has no types
    """A sampler that draws neighbours of nodes, neighbours of these, and so on.

    Neighbours of a node are the sources of the edges that reach it.

    PyG's own ``NodeLoader(data, node_sampler=...)`` takes it. There the seeds come from the torch
    generator of the process that samples, so batches depend on the number of workers, as PyG's do;
    batches of :class:`NeighborLoader` do not.

    Args:
        data: a PyG ``Data`` with an ``edge_index``, or the pair that ``open_store`` returns.
        num_neighbors: how many per hop, -1 for all.
        replace: draw with replacement.

    """

    def __init__(self, data: Any, num_neighbors: Sequence[int], *, replace: bool = False) -> None:
        self.num_neighbors = checked_fanouts("num_neighbors", num_neighbors).tolist()
        self.replace = replace
        if (edges := _mapped_edges(data)) is not None:
            self._graph = edges.compressed()
            return
        edge_index, num_nodes = checked_edges(data)
        sources, targets = edge_index.numpy()
        self._graph = CompressedGraph.from_edges(targets, sources, num_nodes)

    def sample_from_nodes(
        self, index: NodeSamplerInput, *, seed: int | None = None
    ) -> SamplerOutput:
        """Sample the neighbourhood of ``index.node`` (unique ids); these nodes come first."""
        found = sample_neighbours(
            self._graph,
            index.node.numpy(),
            self.num_neighbors,
            seed=draw_seed() if seed is None else seed,
            replace=self.replace,
        )
        return SamplerOutput(
            node=torch.from_numpy(found.nodes),
            row=torch.from_numpy(found.edges.sources),
            col=torch.from_numpy(found.edges.targets),
            edge=torch.from_numpy(found.edges.numbers),
            num_sampled_nodes=found.nodes_per_hop,
            num_sampled_edges=found.edges_per_hop,
            metadata=(index.input_id, index.time),
        )

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
        """Raise NotImplementedError: this sampler samples around nodes."""
        raise NotImplementedError("NeighborSampler samples around nodes; use a NodeLoader")


class NeighborLoader(NodeLoader, SeededLoader):  # type: ignore[misc]
    """PyG's ``NeighborLoader`` for a ``Data``: mini-batches of nodes with sampled neighbourhoods.

    Yields a ``Data`` with the features and edges of the sampled nodes, ``n_id``, ``e_id``,
    ``input_id`` and ``batch_size``; the first ``batch_size`` nodes are the batch's own.

    Args:
        data: a PyG ``Data`` with an ``edge_index``, or the pair that ``open_store`` returns.
        num_neighbors: how many per hop, -1 for all.
        input_nodes: ids (unique in a batch) or a mask; all nodes by default.
        replace: draw with replacement.
        transform: applied to every batch.
        kwargs: ``batch_size``, ``shuffle``, ``num_workers``, ... of torch's ``DataLoader``, and
            ``filter_per_worker``, ``transform_sampler_output``, ... of PyG's ``NodeLoader``.

    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Sequence[int],
        input_nodes: Any = None,
        *,
        replace: bool = False,
        transform: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        for name in _PYG_ONLY & kwargs.keys():
            if kwargs.pop(name) not in _DEFAULTS.get(name, (None, False)):
                raise InputError(
                    f"'{name}' is not supported; leave it out, or take torch_geometric.loader's "
                    "NeighborLoader (with pyg-lib)"
                )
        sampler = NeighborSampler(data, num_neighbors, replace=replace)
        nodes = None
        edges = _mapped_edges(data)
        num_nodes = int(data.num_nodes) if edges is None else edges.num_nodes
        if input_nodes is not None or edges is not None:  # PyG asks for nodes of stores
            nodes = checked_nodes(input_nodes, num_nodes)
            # As in PyG, the input ids of a mask's nodes are the nodes' own numbers.
            is_mask = isinstance(input_nodes, torch.Tensor) and input_nodes.dtype == torch.bool
            kwargs.setdefault("input_id", nodes if is_mask else None)
        given = data if edges is not None else without_lists(data)
        NodeLoader.__init__(self, given, sampler, nodes, transform=transform, **kwargs)

    def __call__(self, index: torch.Tensor | Sequence[int]) -> Any:
        """Sample a batch of the input nodes with these indices."""
        indices = index.tolist() if isinstance(index, torch.Tensor) else list(index)
        return super().__call__(with_seed(indices))

    def collate_fn(self, index: list[SeededIndex]) -> Any:
        """Sample a batch from seeded indices of the input nodes."""
        seed, indices = seed_and_indices(index)
        out = self.node_sampler.sample_from_nodes(self.input_data[indices], seed=seed)
        return self.filter_fn(out) if self.filter_per_worker else out

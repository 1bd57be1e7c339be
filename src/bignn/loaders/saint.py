"""GraphSAINT: subgraphs of sampled nodes, with the coefficients that remove the sampling's bias.

The arguments are those of PyG's ``GraphSAINT...Sampler``. A step draws nodes and takes all edges
among them; with ``sample_coverage`` C, subgraphs are drawn beforehand until C N nodes have been
met, and batches carry ``node_norm`` (1/λ_v, a weight of the loss) and ``edge_norm`` (1/α_uv, a
weight of the sum over neighbours); :class:`bignn.kernels.saint_weights.Coverage` has the formulas.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader.utils import filter_data

from bignn.errors import InputError, input_error
from bignn.kernels.fastgcn import column_norms
from bignn.kernels.random import below, random_word, random_words
from bignn.kernels.saint_weights import Coverage, edge_importance
from bignn.kernels.sampling import (
    Choice,
    CompressedGraph,
    SampledEdges,
    induced_subgraph,
    random_walks,
    sorted_unique,
)
from bignn.kernels.sampling_reference import Ints
from bignn.loaders.seeded import SeededIndex, SeededLoader, draw_seed, seed_and_indices
from bignn.loaders.structure import checked_edges, without_lists
from bignn.nn.adjacency import normalized_adjacency


class SaintLoader(SeededLoader):
    """The base class of GraphSAINT's loaders.

    Yields a ``Data`` with the features of the nodes and edges of a subgraph, ``n_id`` (rising),
    ``e_id`` and, with ``sample_coverage``, ``node_norm`` and ``edge_norm``.

    Args:
        data: a PyG ``Data`` with an ``edge_index``.
        batch_size: draws per subgraph.
        num_steps: subgraphs per epoch.
        sample_coverage: how often, on average, a node is drawn to estimate the coefficients; 0 for
            none.
        kwargs: ``num_workers``, ... of torch's ``DataLoader``.

    """

    def __init__(
        self,
        data: Any,
        batch_size: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        **kwargs: Any,
    ) -> None:
        edge_index, num_nodes = checked_edges(data)
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("num_steps", num_steps, 1),
            ("sample_coverage", sample_coverage, 0),
        ):
            if value < least:
                raise input_error(name, f"{least} or more", value)
        for key in ("node_norm", "edge_norm"):
            if key in data:
                raise InputError(f"'data' has a {key} already; del data.{key} first")
        self.data = without_lists(data)
        self.num_draws = batch_size
        self.num_steps = num_steps
        self._edges = edge_index
        # Rows are the sources: walks go along the edges.
        sources, targets = edge_index.numpy()
        self._graph = CompressedGraph.from_edges(sources, targets, num_nodes)
        self._prepare()
        self.node_norm: torch.Tensor | None = None
        self.edge_norm: torch.Tensor | None = None
        if sample_coverage > 0:
            coverage = self._coverage(sample_coverage * num_nodes, draw_seed())
            self.node_norm = torch.from_numpy(coverage.node_norm())
            self.edge_norm = torch.from_numpy(coverage.edge_norm(targets))
        super().__init__(range(num_steps), collate_fn=self._batch, **kwargs)

    def _prepare(self) -> None:
        """Prepare what drawing needs, once."""

    @abstractmethod
    def _draw_nodes(self, seed: int) -> Ints:
        """Draw the nodes of a subgraph; repeats do not matter."""

    def _subgraph(self, seed: int) -> tuple[Ints, SampledEdges]:
        nodes = sorted_unique(self._draw_nodes(seed))
        return nodes, induced_subgraph(self._graph, nodes)

    def _coverage(self, num_met: int, seed: int) -> Coverage:
        coverage = Coverage(self._graph.num_nodes, self._graph.num_edges)
        while num_met > 0:
            nodes, edges = self._subgraph(random_word(seed, coverage.num_subgraphs))
            coverage.add(nodes, edges.numbers)
            num_met -= len(nodes)
        return coverage

    def _batch(self, index: list[SeededIndex]) -> Data:
        seed, _ = seed_and_indices(index)
        nodes, edges = self._subgraph(seed)
        n_id, e_id = torch.from_numpy(nodes), torch.from_numpy(edges.numbers)
        source, target = torch.from_numpy(edges.targets), torch.from_numpy(edges.sources)
        batch = filter_data(self.data, n_id, source, target, e_id)
        batch.num_nodes = len(nodes)
        batch.n_id, batch.e_id = n_id, e_id
        if self.node_norm is not None and self.edge_norm is not None:
            batch.node_norm, batch.edge_norm = self.node_norm[n_id], self.edge_norm[e_id]
        return batch


class SaintNodeLoader(SaintLoader):
    """A loader that draws ``batch_size`` nodes with ``p_v ∝ ‖Â(:,v)‖²``, with a GCN's Â."""

    def _prepare(self) -> None:
        adjacency = normalized_adjacency(self._edges, None, self._graph.num_nodes).matrix
        graph = CompressedGraph(adjacency.crow_indices().numpy(), adjacency.col_indices().numpy())
        self._choice = Choice(column_norms(graph, adjacency.values().numpy()))

    def _draw_nodes(self, seed: int) -> Ints:
        return self._choice.draw(self.num_draws, seed=seed)


class SaintEdgeLoader(SaintLoader):
    """A loader that draws ``batch_size`` edges with ``p_e ∝ 1/deg(u) + 1/deg(v)``.

    The ends of the drawn edges are the subgraph's nodes.
    """

    def _prepare(self) -> None:
        if self._graph.num_edges == 0:
            raise InputError("'data' has no edges; use SaintNodeLoader")
        sources, targets = self._edges.numpy()
        self._choice = Choice(edge_importance(sources, targets, self._graph.num_nodes))

    def _draw_nodes(self, seed: int) -> Ints:
        ends: Ints = self._edges.numpy()[:, self._choice.draw(self.num_draws, seed=seed)]
        return ends


class SaintRandomWalkLoader(SaintLoader):
    """A loader that draws ``batch_size`` roots uniformly and walks ``walk_length`` edges from each.

    Args:
        data: a PyG ``Data`` with an ``edge_index``.
        batch_size: roots per subgraph.
        walk_length: steps of each walk.
        num_steps, sample_coverage, kwargs: see :class:`SaintLoader`.

    """

    def __init__(
        self,
        data: Any,
        batch_size: int,
        walk_length: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        **kwargs: Any,
    ) -> None:
        if walk_length < 1:
            raise input_error("walk_length", "1 or more", walk_length)
        self.walk_length = walk_length
        super().__init__(data, batch_size, num_steps, sample_coverage, **kwargs)

    def _draw_nodes(self, seed: int) -> Ints:
        words = random_words(random_word(seed, 0), np.arange(self.num_draws))
        roots = below(words, self._graph.num_nodes)
        return random_walks(self._graph, roots, self.walk_length, seed=random_word(seed, 1))

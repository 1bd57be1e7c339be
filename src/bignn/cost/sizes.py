"""The four sizes of a graph that costs depend on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bignn.config.options import check_size
from bignn.errors import input_error
from bignn.graph import GraphLike, as_graph
from bignn.graph.published_sizes import PUBLISHED_SIZES


@dataclass(frozen=True)
class Sizes:
    """A graph's nodes N, undirected edges |E|, features per node and classes."""

    nodes: int
    edges: int
    features: int
    classes: int

    def __post_init__(self) -> None:
        for name, least in (("nodes", 1), ("edges", 0), ("features", 1), ("classes", 0)):
            size = getattr(self, name)
            is_whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
            if not is_whole or size < least:
                raise input_error(name, f"a whole number, at least {least}", repr(size))
            check_size(name, int(size))
            object.__setattr__(self, name, int(size))  # products of NumPy's could overflow

    @classmethod
    def of(cls, graph: GraphLike) -> Sizes:
        """Count the sizes of a graph at hand.

        An edge counts once, in whichever directions and however often it is stored; self-loops do
        not count.

        Differs from the paper: its 5,429 edges of Cora have repetitions among them, the graph
        itself has 5,278 (:meth:`published` has the paper's).
        """
        graph = as_graph(graph)
        ends = graph.edge_index[:, graph.edge_index[0] != graph.edge_index[1]]
        pairs = ends.min(axis=0) * graph.num_nodes + ends.max(axis=0)
        edges = int(np.unique(pairs).size)
        return cls(graph.num_nodes, edges, graph.num_features, graph.num_classes)

    @classmethod
    def published(cls, name: str) -> Sizes:
        """Look up the published sizes of a graph known by name, which need not be at hand.

        The paper's seven graphs have the sizes of its table of datasets, except PubMed's nodes:
        there are 19,717 (the table has 19,711; no printed cost tells them apart).
        """
        if name not in PUBLISHED_SIZES:
            raise input_error("name", f"one of {list(PUBLISHED_SIZES)}", repr(name))
        facts = PUBLISHED_SIZES[name]
        edges = facts.edges if facts.paper_edges is None else facts.paper_edges
        return cls(facts.nodes, edges, facts.features, facts.classes)

"""GraphSAINT's weights: how edges are drawn, and what makes its estimates unbiased."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bignn.kernels.sampling_reference import Ints

Floats = NDArray[np.float32]


def edge_importance(sources: Ints, targets: Ints, num_nodes: int) -> NDArray[np.float64]:
    """Compute GraphSAINT's edge probabilities, ``p_e ∝ 1 / deg(u) + 1 / deg(v)`` for e = (u, v).

    Of a directed graph, deg(u) counts the edges that leave u, deg(v) those that reach v.
    """
    leaving = np.bincount(sources, minlength=num_nodes)
    reaching = np.bincount(targets, minlength=num_nodes)
    return np.asarray(1 / leaving[sources] + 1 / reaching[targets])


class Coverage:
    """Counts of how often GraphSAINT's sampler takes each node (C_v) and edge (C_uv)."""

    def __init__(self, num_nodes: int, num_edges: int) -> None:
        self.num_subgraphs = 0
        self.nodes = np.zeros(num_nodes, dtype=np.int64)
        self.edges = np.zeros(num_edges, dtype=np.int64)

    def add(self, nodes: Ints, edges: Ints) -> None:
        """Count a sampled subgraph's nodes and edges, each once."""
        self.num_subgraphs += 1
        self.nodes[nodes] += 1
        self.edges[edges] += 1

    def node_norm(self) -> Floats:
        """Compute ``1/λ_v = S / (C_v N)`` of S subgraphs, the weight of v's loss, float32 [N].

        The sum over a subgraph of weighted losses is then, on average, the mean over all nodes. A
        node that was not met counts as met 0.1 times, as in PyG.
        """
        counts = np.where(self.nodes > 0, self.nodes, 0.1)
        return (self.num_subgraphs / counts / max(len(counts), 1)).astype(np.float32)

    def edge_norm(self, targets: Ints) -> Floats:
        """Compute ``1/α_uv = C_v / C_uv``, the weight of edge (u, v) in v's sum, float32 [E].

        v is the edge's target, whose sum is then right on average given that v was sampled (PyG's
        counts the source's; the same where both are met equally often). As in PyG, an edge that was
        never met has 10^4, or 0.1 if its target was not either.
        """
        counts = self.nodes[targets]
        with np.errstate(divide="ignore", invalid="ignore"):
            norm = np.minimum(counts / self.edges, 1e4)
        return np.where(np.isnan(norm), 0.1, norm).astype(np.float32)

"""Contenders of GCN: PyG's layers, the best of torch by hand, and a simulation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bignn.lab.bench.contenders.base import (
    Buffers,
    Contender,
    activate_,
    adjacency,
    edge_index,
    light_features,
    multiply,
    pairs,
    product,
    through,
)
from bignn.lab.bench.contenders.simulated import Simulated
from bignn.lab.bench.problems import Problem
from bignn.nn import GCNConv


class PyGEdgeIndex(Contender):
    """PyG's GCN on dense features and an edge index, ``cached=True``: what its examples do."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.edges, self.edge_weight = edge_index(problem), None
        if problem.entry_weights is not None:  # PyG keeps the self-loops that it is given
            self.edges = pairs(problem.ids, problem.rows)
            self.edge_weight = torch.from_numpy(problem.entry_weights)

    def load(self) -> None:
        """See the base class."""
        self.x = torch.from_numpy(self.problem.raw_features())
        self.convs = pyg_convs(self.problem, cached=True)

    @torch.no_grad()
    def run(self) -> Tensor:
        """See the base class."""
        return through(self.problem, self.convs, self.x, self.edges, self.edge_weight)

    @classmethod
    def bytes_needed(cls, problem: Problem) -> int:
        """Return the bytes of a message per edge and column."""
        return 4 * len(problem.ids) * max(problem.sizes[1:])


class PyGSparse(Contender):
    """PyG's GCN with the normalised adjacency as a CSR matrix."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.adjacency = adjacency(problem)

    def load(self) -> None:
        """See the base class."""
        self.x = torch.from_numpy(self.problem.raw_features())
        self.convs = pyg_convs(self.problem, normalize=False)

    @torch.no_grad()
    def run(self) -> Tensor:
        """See the base class."""
        return through(self.problem, self.convs, self.x, self.adjacency)

    @classmethod
    def bytes_needed(cls, problem: Problem) -> int:
        """Return the bytes of three wide activations: transformed, summed, with the bias."""
        return 4 * problem.num_nodes * (problem.sizes[0] + 3 * max(problem.sizes[1:]))


class TorchSparse(Contender):
    """Torch by hand: CSR adjacency, sparse features where they are sparse, each layer in the
    cheaper order of its two products, all outputs preallocated.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.adjacency = adjacency(problem)

    def load(self) -> None:
        """See the base class."""
        self.weights = [weight.t().contiguous() for weight in self.problem.weights]
        self.biases = self.problem.biases
        self.x = light_features(self.problem)
        self.sparse = self.x.is_sparse_csr
        sizes = self.problem.sizes[1:] if self.sparse else self.problem.sizes
        self.buffers = Buffers(self.problem.num_nodes, max(sizes))

    @torch.no_grad()
    def run(self) -> Tensor:
        """See the base class."""
        h: Tensor = self.x
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            d_in, d_out = weight.shape
            gathers_first = d_in < d_out and not (layer == 0 and self.sparse)
            if gathers_first:
                sums = multiply(self.adjacency, h, self.buffers.take(0, d_in))
                h = torch.addmm(bias, sums, weight, out=self.buffers.take(1, d_out))
            else:
                z = product(h, weight, self.buffers.take(0, d_out))
                h = multiply(self.adjacency, z, self.buffers.take(1, d_out)).add_(bias)
            if layer + 1 < len(self.weights):
                h = activate_(self.problem, h)
        return h.argmax(dim=1)


class SimulatedGcn(Simulated):
    """The binary GCN in floats: a CSR adjacency, preallocated outputs."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.adjacency = adjacency(problem)

    def take_weights(self, conv: Any) -> None:
        """See the base class."""
        assert isinstance(conv, GCNConv)
        self.take(conv.lin, conv.bias)

    def layer(self, number: int, signs: Tensor, beta: Tensor) -> Tensor:
        """See the base class."""
        z = self.transformed(number, signs, beta)
        out = multiply(self.adjacency, z, self.buffers.take(1, z.shape[1]))
        return out.add_(self.biases[number])


def pyg_convs(problem: Problem, **options: Any) -> list[Any]:
    """Return PyG's layers with the float model's weights."""
    from torch_geometric.nn import GCNConv as TheirConv

    convs = [TheirConv(w.shape[1], w.shape[0], **options).eval() for w in problem.weights]
    with torch.no_grad():
        for conv, weight, bias in zip(convs, problem.weights, problem.biases, strict=True):
            conv.lin.weight.copy_(weight)
            conv.bias.copy_(bias)
    return convs

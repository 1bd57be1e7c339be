"""Contenders of GraphSAGE: PyG's layers, the best of torch by hand, and a simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bignn.lab.bench.contenders.base import (
    Buffers,
    Contender,
    activate_,
    light_features,
    multiply,
    pairs,
    product,
    through,
)
from bignn.lab.bench.contenders.simulated import Simulated
from bignn.lab.bench.problems import Problem
from bignn.nn import SAGEConv
from bignn.nn.sparse import csr_tensor


def _mean_matrix(problem: Problem) -> Tensor:
    """Return the CSR matrix whose rows hold ``1 / |N(i)|``."""
    offsets, ids = problem.adjacency_rows
    degree = np.diff(offsets)
    values = np.repeat((1 / np.maximum(degree, 1)).astype(np.float32), degree)
    size = (problem.num_nodes, problem.num_nodes)
    pointers = torch.from_numpy(offsets.astype(np.int32))
    return csr_tensor(pointers, torch.from_numpy(ids), torch.from_numpy(values), size)


class PyGSage(Contender):
    """PyG's SAGEConv on dense features and an edge index."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.edges: Any = self._edges(problem)

    def _edges(self, problem: Problem) -> Any:
        offsets, ids = problem.adjacency_rows
        rows = np.repeat(np.arange(problem.num_nodes), np.diff(offsets))
        return pairs(ids, rows)

    @torch.no_grad()
    def load(self) -> None:
        """See the base class."""
        from torch_geometric.nn import SAGEConv as TheirConv

        problem = self.problem
        self.x = torch.from_numpy(problem.raw_features())
        self.convs = [TheirConv(w.shape[1], w.shape[0]).eval() for w in problem.weights]
        for conv, weight, own, bias in zip(
            self.convs, problem.weights, problem.own_weights, problem.biases, strict=True
        ):
            conv.lin_l.weight.copy_(weight)
            conv.lin_r.weight.copy_(own)
            conv.lin_l.bias.copy_(bias)

    @torch.no_grad()
    def run(self) -> Tensor:
        """See the base class."""
        return through(self.problem, self.convs, self.x, self.edges)

    @classmethod
    def bytes_needed(cls, problem: Problem) -> int:
        """Return the bytes of a message per edge and input column."""
        return 4 * len(problem.ids) * max(problem.sizes[:-1])


class PyGSageSparse(PyGSage):
    """PyG's SAGEConv with the adjacency as a CSR matrix."""

    def _edges(self, problem: Problem) -> Any:
        offsets, ids = problem.adjacency_rows
        size = (problem.num_nodes, problem.num_nodes)
        pointers = torch.from_numpy(offsets.astype(np.int32))  # as MKL likes them
        return csr_tensor(pointers, torch.from_numpy(ids), torch.ones(len(ids)), size)

    @classmethod
    def bytes_needed(cls, problem: Problem) -> int:
        """Return the bytes of three wide activations."""
        return 4 * problem.num_nodes * (problem.sizes[0] + 3 * max(problem.sizes[1:]))


class TorchSage(Contender):
    """Torch by hand: CSR means, each layer in the cheaper order of its products, the node's own
    product first and the neighbours' added onto it, all outputs preallocated.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.matrix = _mean_matrix(problem)

    def load(self) -> None:
        """See the base class."""
        self.weights = [weight.t().contiguous() for weight in self.problem.weights]
        self.own = [weight.t().contiguous() for weight in self.problem.own_weights]
        self.biases = self.problem.biases
        self.x = light_features(self.problem)
        sizes = self.problem.sizes[1:] if self.x.is_sparse_csr else self.problem.sizes
        self.buffers = Buffers(self.problem.num_nodes, max(sizes))

    @torch.no_grad()
    def run(self) -> Tensor:
        """See the base class."""
        h = self.x
        for layer, (weight, own, bias) in enumerate(
            zip(self.weights, self.own, self.biases, strict=True)
        ):
            d_in, d_out = weight.shape
            out = self.buffers.take(1 + layer % 2, d_out)
            if h.is_sparse_csr:
                out = multiply(h, own, out).add_(bias)
            else:
                torch.addmm(bias, h, own, out=out)
            if d_in < d_out and not h.is_sparse_csr:
                sums = multiply(self.matrix, h, self.buffers.take(0, d_in))
                h = torch.addmm(out, sums, weight, out=out)
            else:
                z = product(h, weight, self.buffers.take(0, d_out))
                h = torch.addmm(out, self.matrix, z, out=out)
            if layer + 1 < len(self.weights):
                h = activate_(self.problem, h)
        return h.argmax(dim=1)


class SimulatedSage(Simulated):
    """The binary GraphSAGE in floats."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.matrix = _mean_matrix(problem)
        self.own: list[tuple[Tensor, Tensor]] = []

    def take_weights(self, conv: Any) -> None:
        """See the base class."""
        assert isinstance(conv, SAGEConv)
        self.take(conv.lin_l, conv.lin_l.bias)
        signs, alpha = conv.lin_r.binary_weight()
        self.own.append((signs.t().contiguous(), alpha[:, 0].clone()))

    def layer(self, number: int, signs: Tensor, beta: Tensor) -> Tensor:
        """See the base class."""
        weight, alpha = self.own[number]
        own = torch.mm(signs, weight, out=self.buffers.take(2, weight.shape[1]))
        own.mul_(beta).mul_(alpha)
        z = self.transformed(number, signs, beta)
        out = multiply(self.matrix, z, self.buffers.take(1, z.shape[1]))
        return out.add_(own).add_(self.biases[number])

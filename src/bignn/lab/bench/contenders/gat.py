"""Contenders of GAT: PyG's layers, the best of torch by hand, and a simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bignn.lab.bench.contenders.base import (
    Buffers,
    Contender,
    activate_,
    edge_index,
    light_features,
    multiply,
    product,
    through,
)
from bignn.lab.bench.contenders.simulated import Simulated
from bignn.lab.bench.problems import Problem
from bignn.nn import GATConv
from bignn.nn.sparse import csr_tensor

_SLOPE = 0.2


class _Attention:
    """A softmax per row of compressed entries, and sums by it."""

    def __init__(self, problem: Problem) -> None:
        self.size = (problem.num_nodes, problem.num_nodes)
        self.pointers = torch.from_numpy(problem.offsets.astype(np.int32))
        self.offsets = torch.from_numpy(problem.offsets)
        self.rows = torch.from_numpy(problem.rows)
        self.ids = torch.from_numpy(problem.ids)
        self.ones = torch.ones(problem.num_nodes, 1)

    def sums(self, z: Tensor, source: Tensor, target: Tensor, out: Tensor) -> Tensor:
        """Compute ``Σ_j softmax_j(leaky(target_i + source_j)) z_j`` of one head [N, C]."""
        scores = target.index_select(0, self.rows).add_(source.index_select(0, self.ids))
        scores = functional.leaky_relu_(scores, _SLOPE)
        top = torch.segment_reduce(scores, "max", offsets=self.offsets)
        shares = scores.sub_(top.index_select(0, self.rows)).exp_()
        matrix = csr_tensor(self.pointers, self.ids, shares, self.size)
        total = multiply(matrix, self.ones, torch.empty_like(self.ones))
        # Dividing rows is cheaper than dividing entries.
        return multiply(matrix, z, out).div_(total)


class PyGGat(Contender):
    """PyG's GATConv on dense features and an edge index."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.edges = edge_index(problem)

    @torch.no_grad()
    def load(self) -> None:
        """See the base class."""
        from torch_geometric.nn import GATConv as TheirConv

        problem = self.problem
        self.x = torch.from_numpy(problem.raw_features())
        self.convs = [
            TheirConv(w.shape[1], w.shape[0] // heads, heads=heads).eval()
            for w, heads in zip(problem.weights, problem.heads, strict=True)
        ]
        for conv, weight, vectors, bias in zip(
            self.convs, problem.weights, problem.attention, problem.biases, strict=True
        ):
            conv.lin.weight.copy_(weight)
            conv.att_src.copy_(vectors[:1])
            conv.att_dst.copy_(vectors[1:])
            conv.bias.copy_(bias)

    @torch.no_grad()
    def run(self) -> Tensor:
        """See the base class."""
        return through(self.problem, self.convs, self.x, self.edges)

    @classmethod
    def bytes_needed(cls, problem: Problem) -> int:
        """Return the bytes of two messages per edge and column: gathered, and weighted."""
        return 8 * len(problem.ids) * max(problem.sizes[1:])


class TorchGat(Contender):
    """Torch by hand: scores from the inputs by one narrow product, a softmax over compressed rows,
    a CSR product per head with shares as its values, rows divided at the end.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.attention = _Attention(problem)

    def load(self) -> None:
        """See the base class."""
        problem = self.problem
        self.weights, self.vectors = [], []
        for weight, vectors, heads in zip(
            problem.weights, problem.attention, problem.heads, strict=True
        ):
            parts = weight.view(heads, -1, weight.shape[1])
            self.weights.append([part.t().contiguous() for part in parts])
            self.vectors.append(torch.einsum("hcd,shc->dsh", parts, vectors).flatten(1))
        self.x = light_features(problem)
        self.buffers = Buffers(problem.num_nodes, max(problem.sizes[1:]))

    @torch.no_grad()
    def run(self) -> Tensor:
        """See the base class."""
        h = self.x
        for layer, (weights, vectors) in enumerate(zip(self.weights, self.vectors, strict=True)):
            heads, width = len(weights), weights[0].shape[1]
            scores = product(h, vectors, torch.empty(len(self.attention.ones), vectors.shape[1]))
            scores = scores.t().contiguous()
            out = self.buffers.take(2 + layer % 2, heads * width)
            for head, weight in enumerate(weights):
                z = product(h, weight, self.buffers.take(0, width))
                whole = heads == 1
                place = out if whole else self.buffers.take(1, width)
                sums = self.attention.sums(z, scores[head], scores[heads + head], place)
                if not whole:
                    out[:, head * width : (head + 1) * width] = sums
            h = out.add_(self.problem.biases[layer])
            if layer + 1 < len(self.weights):
                h = activate_(self.problem, h)
        return h.argmax(dim=1)


class SimulatedGat(Simulated):
    """The binary GAT in floats."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.attention = _Attention(problem)
        self.vectors: list[Tensor] = []
        self.concat: list[bool] = []

    def take_weights(self, conv: Any) -> None:
        """See the base class."""
        assert isinstance(conv, GATConv)
        self.take(conv.lin, conv.bias)
        self.vectors.append(torch.cat([conv.att_src, conv.att_dst]).detach().clone())
        self.concat.append(conv.concat)

    def layer(self, number: int, signs: Tensor, beta: Tensor) -> Tensor:
        """See the base class."""
        z = self.transformed(number, signs, beta)
        heads = self.vectors[number].shape[1]
        outs = []
        for head, part in enumerate(z.chunk(heads, dim=1)):
            source, target = (part @ vector[head] for vector in self.vectors[number])
            own = part.contiguous()
            outs.append(self.attention.sums(own, source, target, torch.empty_like(own)))
        out = torch.cat(outs, dim=1) if self.concat[number] else torch.stack(outs).mean(dim=0)
        return out.add_(self.biases[number])

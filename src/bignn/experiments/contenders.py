"""The ways to run a model that the benchmarks compare, each in the best form its users have.

A contender is built from a problem's structure; ``load`` makes its features and weights, arrays of
its own in the form that it runs with, and buffers; ``run`` predicts all classes. All torch ones run
without gradients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

import bignn.nn
from bignn.experiments.problems import Problem
from bignn.nn.sparse import csr_tensor
from bignn.runtime import PackedModel

Classes = NDArray[np.int64]

# Features below this density are multiplied as a sparse matrix by the sparse contender.
_SPARSE_DENSITY = 0.25


class Contender(ABC):
    """Something that predicts every node's class."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @abstractmethod
    def load(self) -> None:
        """Makes features, weights and buffers."""

    @abstractmethod
    def run(self) -> Any:
        """The classes of all nodes."""

    @classmethod
    def bytes_needed(cls, problem: Problem) -> int:
        """A lower bound of features and activations, weights aside, to refuse what cannot fit."""
        widest = max(problem.sizes[1:])
        return 4 * problem.num_nodes * (problem.sizes[0] + 2 * widest)


class Packed(Contender):
    """Ours, on the problem's own neighbours."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.neighbours = problem.packed_neighbours  # some problems make them when asked

    def load(self) -> None:
        """See the base class."""
        made = self.problem.packed_graph()
        self.graph = self.problem.graph_of(made.features, made.beta)
        packed = self.problem.packed
        arrays = {name: array.copy() for name, array in packed.arrays.items()}
        self.model = PackedModel(packed.operations, arrays, packed.num_features)

    def run(self) -> Classes:
        """See the base class."""
        return self.model.predict(self.graph)

    @classmethod
    def bytes_needed(cls, problem: Problem) -> int:
        """See the base class."""
        return problem.num_nodes * sum(problem.sizes) // 8


class PyGEdgeIndex(Contender):
    """PyG's GCN on dense features and an edge index, ``cached=True``: what its examples do."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.edges, self.edge_weight = edge_index(problem), None
        if problem.entry_weights is not None:  # PyG keeps the self-loops that it is given
            self.edges = _pairs(problem.ids, problem.rows)
            self.edge_weight = torch.from_numpy(problem.entry_weights)

    def load(self) -> None:
        """See the base class."""
        self.x = torch.from_numpy(self.problem.raw_features())
        self.convs = _pyg_convs(self.problem, cached=True)

    @torch.no_grad()
    def run(self) -> Tensor:
        """See the base class."""
        return through(self.problem, self.convs, self.x, self.edges, self.edge_weight)

    @classmethod
    def bytes_needed(cls, problem: Problem) -> int:
        """A message per edge and column."""
        return 4 * len(problem.ids) * max(problem.sizes[1:])


class PyGSparse(Contender):
    """PyG's GCN with the normalised adjacency as a CSR matrix."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.adjacency = adjacency(problem)

    def load(self) -> None:
        """See the base class."""
        self.x = torch.from_numpy(self.problem.raw_features())
        self.convs = _pyg_convs(self.problem, normalize=False)

    @torch.no_grad()
    def run(self) -> Tensor:
        """See the base class."""
        return through(self.problem, self.convs, self.x, self.adjacency)

    @classmethod
    def bytes_needed(cls, problem: Problem) -> int:
        """Three wide activations: transformed, summed, with its bias."""
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
        # Two buffers that all layers share.
        num_nodes, widest = self.problem.num_nodes, max(self.problem.sizes[1:])
        first = 0 if self.sparse else self.problem.sizes[0]
        self.buffers = [torch.empty(num_nodes * max(widest, first)) for _ in range(2)]

    def _buffer(self, number: int, width: int) -> Tensor:
        num_nodes = self.problem.num_nodes
        return self.buffers[number][: num_nodes * width].view(num_nodes, width)

    @torch.no_grad()
    def run(self) -> Tensor:
        """See the base class."""
        h: Tensor = self.x
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            d_in, d_out = weight.shape
            gathers_first = d_in < d_out and not (layer == 0 and self.sparse)
            if gathers_first:
                sums = multiply(self.adjacency, h, self._buffer(0, d_in))
                h = torch.addmm(bias, sums, weight, out=self._buffer(1, d_out))
            else:
                z = product(h, weight, self._buffer(0, d_out))
                h = multiply(self.adjacency, z, self._buffer(1, d_out)).add_(bias)
            if layer + 1 < len(self.weights):
                h = activate_(self.problem, h)
        return h.argmax(dim=1)


class Simulated(Contender):
    """The binary model simulated with floats, as its authors run it: signs times scales, float
    products. Hidden activations are binarized in place; a CSR adjacency, preallocated outputs.

    Its classes are torch's word on the binary model: ``agreement`` is counted against them.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.adjacency = adjacency(problem)

    def load(self) -> None:
        """See the base class."""
        self.signs: list[Tensor] = []
        self.alphas: list[Tensor] = []
        self.biases: list[Tensor] = []
        self._take_weights()
        x = torch.from_numpy(self.problem.binary_input())
        self.x, self.beta = sign_(x)
        num_nodes, widest = self.problem.num_nodes, max(self.problem.sizes[1:])
        self.buffers = [torch.empty(num_nodes * widest) for _ in range(2)]

    @torch.no_grad()
    def _take_weights(self) -> None:
        for conv in self.problem.model.layers:
            assert isinstance(conv, bignn.nn.GCNConv)
            assert conv.bias is not None
            self._take(conv.lin, conv.bias)

    def _take(self, linear: Any, bias: Tensor | None) -> None:
        signs, alpha = linear.binary_weight()
        self.signs.append(signs.t().contiguous())
        self.alphas.append(alpha[:, 0].clone())
        self.biases.append(torch.zeros(1) if bias is None else bias.detach().clone())

    def _buffer(self, number: int, width: int) -> Tensor:
        num_nodes = self.problem.num_nodes
        return self.buffers[number][: num_nodes * width].view(num_nodes, width)

    def run(self) -> Tensor:
        """See the base class."""
        return self.layers(len(self.signs)).argmax(dim=1)

    @torch.no_grad()
    def layers(self, count: int) -> Tensor:
        """The output of the first ``count`` layers [N, d]; overwritten by the next call."""
        h, beta = self.x, self.beta
        for layer in range(count):
            if layer > 0:
                h, beta = sign_(h)
            z = torch.mm(h, self.signs[layer], out=self._buffer(0, self.signs[layer].shape[1]))
            z.mul_(beta).mul_(self.alphas[layer])
            h = multiply(self.adjacency, z, self._buffer(1, z.shape[1])).add_(self.biases[layer])
        return h


#: Of GCN; experiments/family.py has those of other models.
CONTENDERS: dict[str, type[Contender]] = {
    "packed": Packed,
    "pyg": PyGEdgeIndex,
    "pyg_sparse": PyGSparse,
    "torch_sparse": TorchSparse,
    "simulated": Simulated,
}


def edge_index(problem: Problem) -> Tensor:
    """The edges without self-loops [2, E]; PyG adds them itself."""
    kept = problem.rows != problem.ids
    return _pairs(problem.ids[kept], problem.rows[kept])


def _pairs(source: NDArray[Any], target: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.stack([source.astype(np.int64), target.astype(np.int64)]))


def _csr(
    pointers: NDArray[Any], columns: NDArray[Any], values: NDArray[Any], shape: tuple[int, ...]
) -> Tensor:
    """Arrays of its own, with 32-bit indices, as MKL likes them."""
    ids = torch.from_numpy(columns.astype(np.int32))
    offsets = torch.from_numpy(pointers.astype(np.int32))
    return csr_tensor(offsets, ids, torch.from_numpy(values.copy()), (shape[0], shape[1]))


def sign_(h: Tensor) -> tuple[Tensor, Tensor]:
    """Signs, in place, and row scales [N, 1], by blocks so that no copy of h is made."""
    beta = torch.empty(len(h), 1)
    for start in range(0, len(h), 65536):
        rows = h[start : start + 65536]
        beta[start : start + 65536] = rows.abs().mean(dim=1, keepdim=True)
        rows.copy_((rows >= 0).to(h.dtype).mul_(2).sub_(1))
    return h, beta


def adjacency(problem: Problem) -> Tensor:
    """Â as a CSR tensor (32-bit indices, as MKL likes them)."""
    size = (problem.num_nodes, problem.num_nodes)
    return csr_tensor(
        torch.from_numpy(problem.offsets.astype(np.int32)),
        torch.from_numpy(problem.ids),
        torch.from_numpy(problem.edge_values),
        size,
    )


def light_features(problem: Problem) -> Tensor:
    """The float model's features, as a CSR tensor where few of them are not 0: the same whichever
    form the graph has them in. Of compressed rows no dense matrix is made on the way.
    """
    kept = problem.sparse_features()
    if kept is not None and len(kept.values) < _SPARSE_DENSITY * np.prod(kept.shape):
        return _csr(kept.indptr, kept.indices, kept.values, kept.shape)
    x = problem.raw_features()
    if np.count_nonzero(x) >= _SPARSE_DENSITY * x.size:
        return torch.from_numpy(x)
    rows, columns = np.nonzero(x)
    pointers = np.zeros(len(x) + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=len(x)), out=pointers[1:])
    return _csr(pointers, columns, x[rows, columns], x.shape)


def multiply(sparse: Tensor, dense: Tensor, out: Tensor) -> Tensor:
    """Into a buffer."""
    return torch.addmm(out, sparse, dense, beta=0, out=out)


def product(h: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """``h weight`` into a buffer; h is dense or CSR."""
    return multiply(h, weight, out) if h.is_sparse_csr else torch.mm(h, weight, out=out)


def _pyg_convs(problem: Problem, **options: Any) -> list[Any]:
    from torch_geometric.nn import GCNConv

    convs = [GCNConv(w.shape[1], w.shape[0], **options).eval() for w in problem.weights]
    with torch.no_grad():
        for conv, weight, bias in zip(convs, problem.weights, problem.biases, strict=True):
            conv.lin.weight.copy_(weight)
            conv.bias.copy_(bias)
    return convs


def activate_(problem: Problem, h: Tensor) -> Tensor:
    """The float model's activation, in place."""
    return functional.elu_(h) if problem.activation == "elu" else h.relu_()


def through(problem: Problem, convs: list[Any], x: Tensor, *edges: Tensor | None) -> Tensor:
    """Classes from layers with the activation between them."""
    h = x
    for number, conv in enumerate(convs):
        h = conv(h, *edges)
        if number + 1 < len(convs):
            h = activate_(problem, h)
    return h.argmax(dim=1)

"""The base class of contenders, the packed one, and the tensors that float ones share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from bignn.lab.bench.problems import Problem
from bignn.nn.sparse import csr_tensor
from bignn.runtime import PackedModel

Classes = NDArray[np.int64]

# Features below this density are multiplied as a sparse matrix by the sparse contender.
_SPARSE_DENSITY = 0.25


class Contender(ABC):
    """A way to run a model that predicts every node's class."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @abstractmethod
    def load(self) -> None:
        """Make features, weights and buffers."""

    @abstractmethod
    def run(self) -> Any:
        """Return the classes of all nodes."""

    def structure_bytes(self) -> int:
        """Return the bytes of the graph's edges as this contender keeps them: its tensors before
        ``load``.
        """
        return sum(map(_tensor_bytes, vars(self).values()))

    @classmethod
    def bytes_needed(cls, problem: Problem) -> int:
        """Return a lower bound of the bytes of features and activations."""
        widest = max(problem.sizes[1:])
        return 4 * problem.num_nodes * (problem.sizes[0] + 2 * widest)


def _tensor_bytes(value: object) -> int:
    """Return the bytes of a tensor, dense or CSR, or of all tensors in an object of ours."""
    if isinstance(value, Tensor):
        parts = [value]
        if value.layout == torch.sparse_csr:
            parts = [value.crow_indices(), value.col_indices(), value.values()]
        return sum(part.nbytes for part in parts)
    held = () if isinstance(value, Problem) else getattr(value, "__dict__", {}).values()
    return sum(_tensor_bytes(part) for part in held if isinstance(part, Tensor))


class Packed(Contender):
    """The packed engine, on the problem's own neighbours."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.neighbours = problem.packed_neighbours  # some problems make them when asked

    def structure_bytes(self) -> int:
        """Return the bytes of the loaded packed graph without its features."""
        return self.graph.edge_bytes

    def load(self) -> None:
        """See the base class."""
        made = self.problem.packed_graph()
        self.graph = self.problem.graph_of(made.features, made.beta)
        packed = self.problem.packed
        arrays = {name: array.copy() for name, array in packed.arrays.items()}
        self.model = PackedModel(packed.operations, arrays, packed.num_features)

    def run(self) -> Classes:
        """See the base class."""
        return self.model.predict(self.graph, backend=self.problem.backend)

    @classmethod
    def bytes_needed(cls, problem: Problem) -> int:
        """See the base class."""
        return problem.num_nodes * sum(problem.sizes) // 8


class Buffers:
    """Float matrices that all layers share, allocated when they are first taken."""

    def __init__(self, num_nodes: int, width: int) -> None:
        self._num_nodes, self._width = num_nodes, width
        self._data: dict[int, Tensor] = {}

    def take(self, number: int, width: int) -> Tensor:
        """Return the matrix [N, width] of that number."""
        if number not in self._data:
            self._data[number] = torch.empty(self._num_nodes * self._width)
        return self._data[number][: self._num_nodes * width].view(self._num_nodes, width)


def edge_index(problem: Problem) -> Tensor:
    """Return the edges without self-loops [2, E]; PyG adds them itself."""
    kept = problem.rows != problem.ids
    return pairs(problem.ids[kept], problem.rows[kept])


def pairs(source: NDArray[Any], target: NDArray[Any]) -> Tensor:
    """Return an edge index [2, E]."""
    return torch.from_numpy(np.stack([source.astype(np.int64), target.astype(np.int64)]))


def _csr(
    pointers: NDArray[Any], columns: NDArray[Any], values: NDArray[Any], shape: tuple[int, ...]
) -> Tensor:
    """Make a CSR tensor of copied arrays, with 32-bit indices, which MKL prefers."""
    ids = torch.from_numpy(columns.astype(np.int32))
    offsets = torch.from_numpy(pointers.astype(np.int32))
    return csr_tensor(offsets, ids, torch.from_numpy(values.copy()), (shape[0], shape[1]))


def sign_(h: Tensor) -> tuple[Tensor, Tensor]:
    """Replace h by its signs, block by block without a copy; return it with row scales [N, 1]."""
    beta = torch.empty(len(h), 1)
    for start in range(0, len(h), 65536):
        rows = h[start : start + 65536]
        beta[start : start + 65536] = rows.abs().mean(dim=1, keepdim=True)
        rows.copy_((rows >= 0).to(h.dtype).mul_(2).sub_(1))
    return h, beta


def adjacency(problem: Problem) -> Tensor:
    """Return Â as a CSR tensor, with 32-bit indices, which MKL prefers."""
    size = (problem.num_nodes, problem.num_nodes)
    return csr_tensor(
        torch.from_numpy(problem.offsets.astype(np.int32)),
        torch.from_numpy(problem.ids),
        torch.from_numpy(problem.edge_values),
        size,
    )


def light_features(problem: Problem) -> Tensor:
    """Return the float model's features, as a CSR tensor where most of them are 0.

    The result does not depend on how the graph stores them; compressed rows are never made dense.
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
    """Multiply into a preallocated buffer."""
    return torch.addmm(out, sparse, dense, beta=0, out=out)


def product(h: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """Compute ``h weight`` into a preallocated buffer; h is dense or CSR."""
    return multiply(h, weight, out) if h.is_sparse_csr else torch.mm(h, weight, out=out)


def activate_(problem: Problem, h: Tensor) -> Tensor:
    """Apply the float model's activation in place."""
    return functional.elu_(h) if problem.activation == "elu" else h.relu_()


def through(problem: Problem, convs: list[Any], x: Tensor, *edges: Tensor | None) -> Tensor:
    """Return the classes after all layers, with the activation between them."""
    h = x
    for number, conv in enumerate(convs):
        h = conv(h, *edges)
        if number + 1 < len(convs):
            h = activate_(problem, h)
    return h.argmax(dim=1)

"""Neighbourhood sums: the normalised adjacency matrix, built once per graph, and its product.

May import torch. The product has a gradient with respect to the features only.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from bignn.errors import wrong


@dataclass(frozen=True)
class Adjacency:
    """A square sparse matrix Â in compressed rows (row = target node), ready for ``Â @ x``.

    ``transposed`` is what the backward pass multiplies with; for a symmetric matrix it is the same
    object.
    """

    matrix: Tensor
    transposed: Tensor

    @property
    def num_nodes(self) -> int:
        """Number of rows."""
        return int(self.matrix.shape[0])

    def __matmul__(self, x: Tensor) -> Tensor:
        out: Tensor = _SparseProduct.apply(self.matrix, self.transposed, x)  # type: ignore[no-untyped-call]
        return out


class _SparseProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, transposed: Tensor, x: Tensor) -> Tensor:
        ctx.transposed = transposed
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, Tensor]:
        return None, None, ctx.transposed @ grads[0]


def gcn_norm(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int
) -> tuple[Tensor, Tensor]:
    r"""Symmetric normalisation with self-loops, ``Â = D̂^{-1/2} (A + I) D̂^{-1/2}``.

    D̂ holds the weighted in-degrees of A + I. A node that has self-loops already keeps them (as the
    last one's weight) instead of getting another, as in PyG.

    Returns:
        ``(edge_weight [E], self_weight [N])``: the normalised weight of every given edge (0 for
        self-loops, whose part is in ``self_weight``) and of every node's own term. No shape depends
        on the data, so the function compiles without graph breaks.
    """
    source, target = edge_index[0], edge_index[1]
    dtype = torch.get_default_dtype() if edge_weight is None else edge_weight.dtype
    weight = (
        torch.ones(edge_index.shape[1], dtype=dtype, device=edge_index.device)
        if edge_weight is None
        else edge_weight
    )
    is_loop = source == target
    # A scatter to an extra slot N takes what is not a self-loop, so that shapes stay fixed.
    slot = torch.where(is_loop, target, num_nodes)
    own = weight.new_ones(num_nodes + 1).scatter(0, slot, weight)[:num_nodes]
    weight = torch.where(is_loop, 0, weight)
    degree = own.scatter_add(0, target, weight)
    scale = torch.where(degree > 0, degree, 1).rsqrt() * (degree > 0)
    return scale[source] * weight * scale[target], own * scale * scale


def normalized_adjacency(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int
) -> Adjacency:
    """Â of :func:`gcn_norm` as one sparse matrix."""
    weight, own = gcn_norm(edge_index, edge_weight, num_nodes)
    kept = edge_index[0] != edge_index[1]
    loops = torch.arange(num_nodes, device=edge_index.device)
    row = torch.cat([edge_index[1][kept], loops])
    column = torch.cat([edge_index[0][kept], loops])
    values = torch.cat([weight[kept], own])
    matrix = _compressed_rows(row, column, values, num_nodes)
    transposed = _compressed_rows(column, row, values, num_nodes)
    same = torch.equal(matrix.col_indices(), transposed.col_indices()) and torch.equal(
        matrix.values(), transposed.values()
    )
    return Adjacency(matrix, matrix if same else transposed)


def _compressed_rows(row: Tensor, column: Tensor, values: Tensor, size: int) -> Tensor:
    order = torch.argsort(row * size + column, stable=True)
    pointers = torch.zeros(size + 1, dtype=torch.int64, device=row.device)
    pointers[1:] = torch.bincount(row, minlength=size).cumsum(0)
    return torch.sparse_csr_tensor(
        pointers, column[order], values[order], (size, size), check_invariants=False
    )


def edges_of(adjacency: Tensor) -> tuple[Tensor, Tensor]:
    """The edge list and weights of a sparse CSR adjacency whose rows are targets (PyG's adj_t)."""
    if adjacency.layout != torch.sparse_csr or adjacency.shape[0] != adjacency.shape[1]:
        raise wrong(
            "edge_index",
            "an integer tensor [2, E] or a square sparse CSR adjacency",
            f"{adjacency.layout} of shape {list(adjacency.shape)}",
        )
    pointers = adjacency.crow_indices()
    target = torch.repeat_interleave(
        torch.arange(adjacency.shape[0], device=pointers.device), pointers.diff()
    )
    return torch.stack([adjacency.col_indices(), target]), adjacency.values()


def aggregate(edge_index: Tensor, edge_weight: Tensor | None, x: Tensor) -> Tensor:
    """``Â x`` for raw edges: by a sparse matrix, built once per graph, or when compiling by scatter.

    The matrix is remembered for as long as the edge tensor lives and is unchanged, so full-batch
    epochs build it once and no layer needs telling (unlike PyG's ``cached=True``, a different or
    modified graph is never served an old matrix).
    """
    num_nodes = x.shape[0]
    if torch.compiler.is_compiling() and edge_index.layout == torch.strided:
        weight, own = gcn_norm(edge_index, edge_weight, num_nodes)
        messages = weight.unsqueeze(-1) * x[edge_index[0]]
        return (own.unsqueeze(-1) * x).index_add(0, edge_index[1], messages)
    return _remembered_adjacency(edge_index, edge_weight, num_nodes) @ x


@dataclass(frozen=True)
class _Remembered:
    index_version: int
    weight: weakref.ref[Tensor] | None
    weight_version: int
    num_nodes: int
    adjacency: Adjacency

    def is_for(self, edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int) -> bool:
        same_weight = (
            edge_weight is None
            if self.weight is None
            else edge_weight is not None and self.weight() is edge_weight
        )
        return (
            same_weight
            and self.num_nodes == num_nodes
            and self.index_version == tensor_version(edge_index)
            and self.weight_version == tensor_version(edge_weight)
        )


_remembered = WeakIdKeyDictionary()


def _remembered_adjacency(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int
) -> Adjacency:
    found: _Remembered | None = _remembered.get(edge_index)
    if found is not None and found.is_for(edge_index, edge_weight, num_nodes):
        return found.adjacency
    edges, weights = edge_index, edge_weight
    if edge_index.layout != torch.strided:
        edges, weights = edges_of(edge_index)
    adjacency = normalized_adjacency(edges, weights, num_nodes)
    _remembered[edge_index] = _Remembered(
        tensor_version(edge_index),
        None if edge_weight is None else weakref.ref(edge_weight),
        tensor_version(edge_weight),
        num_nodes,
        adjacency,
    )
    return adjacency


def tensor_version(tensor: Tensor | None) -> int:
    """Rises with every in-place change of a tensor (inference tensors do not count: 0)."""
    if tensor is None or tensor.is_inference():
        return 0
    return (tensor.values() if tensor.layout == torch.sparse_csr else tensor)._version

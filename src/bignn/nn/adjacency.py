"""Neighbourhood sums: the normalised adjacency matrix, built once per graph."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from bignn.errors import wrong
from bignn.nn.sparse import SparseMatrix


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
) -> SparseMatrix:
    """Â of :func:`gcn_norm` as one sparse matrix, a row per target node.

    The edges may be [2, E], or a sparse CSR adjacency with targets as rows (PyG's ``adj_t``). The
    result is remembered for as long as the edge tensor lives and is unchanged, so full-batch epochs
    build it once and no layer needs telling (unlike PyG's ``cached=True``, a different or modified
    graph is never served an old matrix).
    """
    found: _Remembered | None = _remembered.get(edge_index)
    if found is None or not found.is_for(edge_index, edge_weight, num_nodes):
        found = _Remembered(
            tensor_version(edge_index),
            None if edge_weight is None else weakref.ref(edge_weight),
            tensor_version(edge_weight),
            num_nodes,
            _build(edge_index, edge_weight, num_nodes),
        )
        _remembered[edge_index] = found
    return found.matrix


def aggregate(edge_index: Tensor, edge_weight: Tensor | None, x: Tensor) -> Tensor:
    """``Â x`` for raw edges: by a sparse matrix or, when compiling, by gather and scatter."""
    num_nodes = x.shape[0]
    if not torch.compiler.is_compiling():
        return normalized_adjacency(edge_index, edge_weight, num_nodes) @ x
    weight, own = gcn_norm(edge_index, edge_weight, num_nodes)
    messages = weight.unsqueeze(-1) * x[edge_index[0]]
    return (own.unsqueeze(-1) * x).index_add(0, edge_index[1], messages)


def receptive_field(adjacency: SparseMatrix, nodes: Tensor, num_hops: int) -> Tensor:
    """The ids, rising, of all nodes whose input reaches ``nodes`` within ``num_hops`` products."""
    reached = torch.zeros(adjacency.shape[0], 1, device=nodes.device)
    reached[nodes] = 1
    for _ in range(num_hops):
        reached = ((adjacency.transposed @ reached) > 0).float()
    return reached[:, 0].nonzero()[:, 0]


def _build(edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int) -> SparseMatrix:
    if edge_index.layout != torch.strided:
        if edge_weight is not None:
            raise wrong("edge_weight", "None beside a sparse adjacency", "a tensor")
        edge_index, edge_weight = edges_of(edge_index)
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise wrong("edge_index", "of shape [2, E]", f"shape {list(edge_index.shape)}")
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        raise wrong(
            "edge_index",
            f"node ids in 0..{num_nodes - 1}",
            f"{int(edge_index.min())}..{int(edge_index.max())}",
        )
    weight, own = gcn_norm(edge_index, edge_weight, num_nodes)
    kept = edge_index[0] != edge_index[1]
    loops = torch.arange(num_nodes, device=edge_index.device)
    row = torch.cat([edge_index[1][kept], loops])
    column = torch.cat([edge_index[0][kept], loops])
    values = torch.cat([weight[kept], own])
    return SparseMatrix.from_entries(row, column, values, (num_nodes, num_nodes))


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


@dataclass(frozen=True)
class _Remembered:
    index_version: int
    weight: weakref.ref[Tensor] | None
    weight_version: int
    num_nodes: int
    matrix: SparseMatrix

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


def tensor_version(tensor: Tensor | None) -> int:
    """Rises with every in-place change of a tensor (inference tensors do not count: 0)."""
    if tensor is None or tensor.is_inference():
        return 0
    return (tensor.values() if tensor.layout == torch.sparse_csr else tensor)._version

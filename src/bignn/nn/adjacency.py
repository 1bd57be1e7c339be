"""Neighbourhood sums: the normalised adjacency matrix, built once per graph."""

from __future__ import annotations

import torch
from torch import Tensor

from bignn.errors import wrong
from bignn.nn.memory import Memory
from bignn.nn.sparse import SparseMatrix, row_of_each_entry

_memory = Memory()


def gcn_norm(
    edge_index: Tensor,
    edge_weight: Tensor | None,
    num_nodes: int,
    dtype: torch.dtype | None = None,
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
    weight = (
        torch.ones(edge_index.shape[1], dtype=dtype, device=edge_index.device)
        if edge_weight is None
        else edge_weight.to(dtype)
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
    edge_index: Tensor,
    edge_weight: Tensor | None,
    num_nodes: int,
    dtype: torch.dtype = torch.float32,
) -> SparseMatrix:
    """Â of :func:`gcn_norm` as one sparse matrix, a row per target node; a constant.

    The edges may be [2, E], or a sparse CSR adjacency with targets as rows (PyG's ``adj_t``). The
    matrix is remembered (see :class:`bignn.nn.memory.Memory`).
    """

    def build() -> SparseMatrix:
        edges, weights = _edge_list(edge_index, edge_weight, num_nodes)
        weight, own = gcn_norm(edges, weights, num_nodes, dtype)
        kept = edges[0] != edges[1]
        loops = torch.arange(num_nodes, device=edges.device)
        row = torch.cat([edges[1][kept], loops])
        column = torch.cat([edges[0][kept], loops])
        values = torch.cat([weight[kept], own])
        return SparseMatrix.from_entries(row, column, values, (num_nodes, num_nodes))

    return _memory.get(edge_index, [edge_weight], (num_nodes, dtype), build)


def aggregate(edge_index: Tensor, edge_weight: Tensor | None, x: Tensor) -> Tensor:
    """``Â x`` for raw edges: by a sparse matrix; by gather and scatter when compiling, or when the
    edge weights are learned.
    """
    num_nodes = x.shape[0]
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    weights = edge_weight if edge_index.layout == torch.strided else edge_index
    learns = torch.is_grad_enabled() and weights is not None and weights.requires_grad
    if not torch.compiler.is_compiling() and not learns:
        return normalized_adjacency(edge_index, edge_weight, num_nodes, dtype) @ x
    if not torch.compiler.is_compiling():
        edge_index, edge_weight = _edge_list(edge_index, edge_weight, num_nodes)
    elif edge_index.layout != torch.strided:
        raise wrong("edge_index", "an edge list [2, E] in a compiled model", "a sparse matrix")
    weight, own = gcn_norm(edge_index, edge_weight, num_nodes, dtype)
    z = x.to(dtype)
    messages = weight.unsqueeze(-1) * z[edge_index[0]]
    return (own.unsqueeze(-1) * z).index_add(0, edge_index[1], messages).to(x.dtype)


def receptive_field(adjacency: SparseMatrix, nodes: Tensor, num_hops: int) -> Tensor:
    """The ids, rising, of all nodes whose input reaches ``nodes`` within ``num_hops`` products."""
    reached = torch.zeros(adjacency.shape[0], 1, device=nodes.device)
    reached[nodes] = 1
    for _ in range(num_hops):
        reached = ((adjacency.transposed @ reached + reached) > 0).float()
    return reached[:, 0].nonzero()[:, 0]


def _edge_list(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int
) -> tuple[Tensor, Tensor | None]:
    """Edges as [2, E] and weights as [E], checked."""
    if edge_index.layout != torch.strided:
        if edge_index.layout != torch.sparse_csr or edge_index.shape != (num_nodes, num_nodes):
            raise wrong(
                "edge_index",
                f"an integer tensor [2, E] or a sparse CSR adjacency of {num_nodes} nodes",
                f"{edge_index.layout} of shape {list(edge_index.shape)}",
            )
        if edge_weight is not None:
            raise wrong("edge_weight", "None beside a sparse adjacency", "a tensor")
        edges = torch.stack([edge_index.col_indices(), row_of_each_entry(edge_index)])
        return edges, edge_index.values()
    if edge_index.ndim != 2 or edge_index.shape[0] != 2 or edge_index.is_floating_point():
        raise wrong(
            "edge_index",
            "an integer tensor [2, E]",
            f"{edge_index.dtype} of shape {list(edge_index.shape)}",
        )
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        raise wrong(
            "edge_index",
            f"node ids in 0..{num_nodes - 1}",
            f"{int(edge_index.min())}..{int(edge_index.max())}",
        )
    if edge_weight is not None and edge_weight.shape != (edge_index.shape[1],):
        raise wrong(
            "edge_weight",
            f"one number per edge [{edge_index.shape[1]}]",
            f"shape {list(edge_weight.shape)}",
        )
    return edge_index.long(), edge_weight

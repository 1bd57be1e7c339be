"""Neighbourhood sums: the matrix of weights, built once per graph."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from bignn.errors import input_error
from bignn.nn.memory import Memory
from bignn.nn.sparse import SparseMatrix, csr_with_values, row_of_each_entry

#: How neighbours are weighed, see :func:`edge_weights`.
Norm = Literal["gcn", "mean", "mean_self", "ones_self", "sum"]

#: What a layer takes as a graph: edges [2, E], a sparse CSR adjacency with targets as rows, or a
#: matrix of weights that is ready (rectangular where a layer makes fewer rows than it reads; row i
#: is then the node of source i).
Edges = Tensor | SparseMatrix

# One per norm, since a graph may serve layers of several kinds at once.
_memory: dict[str, Memory] = {norm: Memory() for norm in get_args(Norm)}


def edge_weights(
    norm: Norm,
    edge_index: Tensor,
    edge_weight: Tensor | None,
    num_nodes: int,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    r"""What each edge and each node's own term weigh in a neighbourhood sum.

    With A the (weighted) edges, d_i the in-degree of i, without self-loops where ``I`` is added:

    - ``"gcn"``: ``Â = D̂^{-1/2} (A + I) D̂^{-1/2}``, D̂ the weighted in-degrees of A + I;
    - ``"mean_self"``: ``1 / (d_i + 1)``, the mean over neighbours and the node itself;
    - ``"mean"``: ``1 / d_i``, the mean over neighbours; 0 for a node that has none;
    - ``"ones_self"``: 1, the neighbours and the node itself, for attention to weigh;
    - ``"sum"``: 1, the neighbours alone.

    Where ``I`` is added, a node that has self-loops already keeps one instead of getting another
    (in ``"gcn"`` with the last one's weight), as in PyG. Only ``"gcn"`` looks at edge weights, as
    PyG's layers do with edge lists.

    Returns:
        ``(edge_weight [E], self_weight [N])``: of every given edge (0 for self-loops whose part is
        in ``self_weight``) and of every node's own term. No shape depends on the data, so the
        function compiles without graph breaks.

    """
    source, target = edge_index[0], edge_index[1]
    ones = torch.ones(edge_index.shape[1], dtype=dtype, device=edge_index.device)
    if norm == "sum":
        return ones, ones.new_zeros(num_nodes)
    if norm == "mean":
        degree = ones.new_zeros(num_nodes).scatter_add(0, target, ones)
        return ones / degree.clamp(min=1)[target], ones.new_zeros(num_nodes)
    is_loop = source == target
    if norm != "gcn" or edge_weight is None:
        weight, own = torch.where(is_loop, 0, ones), ones.new_ones(num_nodes)
    else:
        # A scatter to an extra slot N takes what is not a self-loop, so that shapes stay fixed.
        weight = edge_weight.to(dtype)
        slot = torch.where(is_loop, target, num_nodes)
        own = weight.new_ones(num_nodes + 1).scatter(0, slot, weight)[:num_nodes]
        weight = torch.where(is_loop, 0, weight)
    if norm == "ones_self":
        return weight, own
    degree = own.scatter_add(0, target, weight)
    if norm == "mean_self":
        return weight / degree[target], own / degree
    scale = torch.where(degree > 0, degree, 1).rsqrt() * (degree > 0)
    return scale[source] * weight * scale[target], own * scale * scale


def normalized_adjacency(
    edge_index: Tensor,
    edge_weight: Tensor | None,
    num_nodes: int,
    dtype: torch.dtype = torch.float32,
    norm: Norm = "gcn",
) -> SparseMatrix:
    """The weights of :func:`edge_weights` as one sparse matrix, a row per target; a constant.

    The edges may be [2, E], or a sparse CSR adjacency with targets as rows (PyG's ``adj_t``). The
    matrix is remembered (see :class:`bignn.nn.memory.Memory`).
    """

    def build() -> SparseMatrix:
        edges, weights = _edge_list(edge_index, edge_weight, num_nodes)
        is_matrix = edge_index.layout != torch.strided
        if is_matrix and norm != "gcn" and weights is not None and bool((weights != 1).any()):
            # PyG's layers disagree on what to do with them.
            place = int((weights != 1).nonzero()[0])
            got = f"{float(weights[place])} from {int(edges[0, place])} to {int(edges[1, place])}"
            fix = "give its edges as [2, E] to leave weights out"
            raise input_error("edge_index", "a sparse adjacency of ones for this layer", got, fix)
        values, own = edge_weights(norm, edges, weights, num_nodes, dtype)
        row, column = edges[1], edges[0]
        if norm not in ("mean", "sum"):
            kept = row != column
            loops = torch.arange(num_nodes, device=edges.device)
            row, column = torch.cat([row[kept], loops]), torch.cat([column[kept], loops])
            values = torch.cat([values[kept], own])
        return SparseMatrix.from_entries(row, column, values, (num_nodes, num_nodes))

    return _memory[norm].get(edge_index, [edge_weight], (num_nodes, dtype), build)


def aggregate(edges: Edges, edge_weight: Tensor | None, x: Tensor, norm: Norm = "gcn") -> Tensor:
    """The neighbourhood sums of x: by a sparse matrix; by gather and scatter when compiling, or
    when the edge weights are learned.
    """
    if isinstance(edges, SparseMatrix):
        return edges @ x
    num_nodes = x.shape[0]
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    weights = edge_weight if edges.layout == torch.strided else edges
    learns = torch.is_grad_enabled() and weights is not None and weights.requires_grad
    if not torch.compiler.is_compiling() and not learns:
        return normalized_adjacency(edges, edge_weight, num_nodes, dtype, norm) @ x
    if not torch.compiler.is_compiling():
        edges, edge_weight = _edge_list(edges, edge_weight, num_nodes)
    elif edges.layout != torch.strided:
        raise input_error(
            "edge_index", "an edge list [2, E] in a compiled model", "a sparse matrix"
        )
    weight, own = edge_weights(norm, edges, edge_weight, num_nodes, dtype)
    z = x.to(dtype)
    messages = weight.unsqueeze(-1) * z[edges[0]]
    return (own.unsqueeze(-1) * z).index_add(0, edges[1], messages).to(x.dtype)


def receptive_field(adjacency: SparseMatrix, nodes: Tensor, num_hops: int) -> Tensor:
    """The ids, rising, of all nodes whose input reaches ``nodes`` within ``num_hops`` products."""
    reached = torch.zeros(adjacency.shape[0], 1, device=nodes.device)
    reached[nodes] = 1
    # By where there are entries: their values may be negative, or cancel.
    back = csr_with_values(adjacency.transposed, torch.ones(len(adjacency.rows)).to(reached))
    for _ in range(num_hops):
        reached = ((back @ reached + reached) > 0).float()
    return reached[:, 0].nonzero()[:, 0]


def _edge_list(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int
) -> tuple[Tensor, Tensor | None]:
    """Edges as [2, E] and weights as [E], checked."""
    if edge_index.layout != torch.strided:
        if edge_index.layout != torch.sparse_csr or edge_index.shape != (num_nodes, num_nodes):
            raise input_error(
                "edge_index",
                f"an integer tensor [2, E] or a sparse CSR adjacency of {num_nodes} nodes",
                f"{edge_index.layout} of shape {list(edge_index.shape)}",
            )
        if edge_weight is not None:
            raise input_error("edge_weight", "None beside a sparse adjacency", "a tensor")
        edges = torch.stack([edge_index.col_indices(), row_of_each_entry(edge_index)])
        return edges, edge_index.values()
    if edge_index.ndim != 2 or edge_index.shape[0] != 2 or edge_index.is_floating_point():
        raise input_error(
            "edge_index",
            "an integer tensor [2, E]",
            f"{edge_index.dtype} of shape {list(edge_index.shape)}",
        )
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        raise input_error(
            "edge_index",
            f"node ids in 0..{num_nodes - 1}",
            f"{int(edge_index.min())}..{int(edge_index.max())}",
        )
    if edge_weight is not None and edge_weight.shape != (edge_index.shape[1],):
        raise input_error(
            "edge_weight",
            f"one number per edge [{edge_index.shape[1]}]",
            f"shape {list(edge_weight.shape)}",
        )
    return edge_index.long(), edge_weight

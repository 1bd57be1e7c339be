"""Sums over neighbours: the matrix of edge weights, built once per graph."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from bignn.errors import input_error
from bignn.kernels.edge_kinds import EDGE_KINDS, EdgeKind, weigh_edges
from bignn.kernels.gcn_degrees import degree_scale
from bignn.nn.sparse import SparseMatrix, csr_with_values, row_of_each_entry
from bignn.nn.tensor_cache import TensorCache

#: Kinds of neighbourhood sum, see :func:`edge_weights`.
Aggregation = Literal[
    "gcn",
    "gcn_improved",
    "gcn_plain",
    "gcn_source",
    "mean",
    "mean_self",
    "ones_self",
    "sum",
    "weighted_sum",
    "weighted_mean",
]

#: Forms of a graph that a layer accepts: edges [2, E], a sparse CSR adjacency with targets as rows,
#: or a matrix of weights (rectangular where a layer makes fewer rows than it reads; row i is then
#: the node of source i).
EdgesLike = Tensor | SparseMatrix

# One per kind, since a graph may serve layers of several kinds at once.
_matrices: dict[str, TensorCache] = {aggr: TensorCache() for aggr in get_args(Aggregation)}
_factored: dict[str, TensorCache] = {aggr: TensorCache() for aggr in get_args(Aggregation)}
_relations = TensorCache()


def edge_weights(
    aggr: Aggregation,
    edge_index: Tensor,
    edge_weight: Tensor | None,
    num_nodes: int,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Compute the weight of each edge and of each node's own term in a neighbourhood sum.

    With A the (weighted) edges, d_i the in-degree of i, without self-loops where ``I`` is added:

    - ``"gcn"``: ``Â = D̂^{-1/2} (A + I) D̂^{-1/2}``, D̂ the weighted in-degrees of A + I;
    - ``"gcn_improved"``: the same of A + 2I, of A + I without edge weights (as PyG computes it);
      ``"gcn_plain"``: of A as it is;
    - ``"gcn_source"``: of A without self-loops, with the weighted out-degrees;
    - ``"mean_self"``: ``1 / (d_i + 1)``, the mean over neighbours and the node itself;
    - ``"mean"``: ``1 / d_i``, the mean over neighbours; 0 for a node that has none;
      ``"weighted_mean"``: the same times the edge's weight;
    - ``"ones_self"``: 1 for neighbours and the node itself, which attention then weighs;
    - ``"sum"``: 1 for neighbours alone; ``"weighted_sum"``: the edge's weight.

    Where ``I`` is added, a node that has self-loops already keeps one instead of getting another
    (where weights count, with the last one's weight), as in PyG. Weights count in ``"gcn"`` and
    its kin and where the name says so, as in PyG's layers with edge lists.

    Returns:
        ``(edge_weight [E], self_weight [N])``: the weight of every given edge (0 for self-loops,
        which are part of ``self_weight``) and of every node's own term. No shape depends on the
        data, so the function compiles without graph breaks.

    """
    source, target = edge_index[0], edge_index[1]
    ones = torch.ones(edge_index.shape[1], dtype=dtype, device=edge_index.device)
    kind = _kind(aggr)
    is_loop = source == target
    weight = ones if edge_weight is None or not kind.is_weighted else edge_weight.to(dtype)
    own = weight.new_zeros(num_nodes)
    if kind.loops == "added":
        own = own + 1
        if kind.is_weighted and edge_weight is not None:
            own = own * kind.own_weight
            # A scatter to an extra slot N takes what is not a self-loop, so that shapes stay fixed.
            slot = torch.where(is_loop, target, num_nodes)
            own = torch.cat([own, own.new_zeros(1)]).scatter(0, slot, weight)[:num_nodes]
    present = ones if kind.loops == "given" else torch.where(is_loop, 0, ones)
    if kind.loops != "given":
        weight = torch.where(is_loop, 0, weight)
    if kind.factor == "mean":
        entries = own.new_full((num_nodes,), float(kind.loops == "added"))
        entries = entries.scatter_add(0, target, present).clamp(min=1)
        return weight / entries[target], own / entries
    if kind.factor == "none":
        return weight, own
    ends = target if kind.factor == "degree" else source
    # In double, so that the order of edges rounds nothing.
    degree = own.double().scatter_add(0, ends, weight.double())
    scale = degree_scale(degree).to(own.dtype)
    return scale[source] * weight * scale[target], own * scale * scale


def _kind(aggr: Aggregation) -> EdgeKind:
    return EDGE_KINDS["attention" if aggr == "ones_self" else aggr]


def normalized_adjacency(
    edge_index: Tensor,
    edge_weight: Tensor | None,
    num_nodes: int,
    dtype: torch.dtype = torch.float32,
    aggr: Aggregation = "gcn",
) -> SparseMatrix:
    """Build the weights of :func:`edge_weights` as one constant sparse matrix, a row per target.

    The edges may be [2, E], or a sparse CSR adjacency with targets as rows (PyG's ``adj_t``). The
    matrix is cached (:class:`bignn.nn.tensor_cache.TensorCache`).
    """
    _check_kind(edge_index)

    def build() -> SparseMatrix:
        edges, weights = _usable_edges(edge_index, edge_weight, num_nodes, aggr)
        values, own = edge_weights(aggr, edges, weights, num_nodes, dtype)
        row, column = edges[1], edges[0]
        if _kind(aggr).loops == "removed":
            kept = row != column
            row, column, values = row[kept], column[kept], values[kept]
        elif _kind(aggr).loops == "added":
            kept = row != column
            loops = torch.arange(num_nodes, device=edges.device)
            row, column = torch.cat([row[kept], loops]), torch.cat([column[kept], loops])
            values = torch.cat([values[kept], own])
        return SparseMatrix.from_entries(row, column, values, (num_nodes, num_nodes))

    return _matrices[aggr].get(edge_index, [edge_weight], (num_nodes, dtype), build)


def factored_adjacency(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, aggr: Aggregation = "gcn"
) -> SparseMatrix:
    r"""Build the matrix of :func:`normalized_adjacency` with the factors of rows and columns apart.

    The values are the edge weights ``w_ij`` as given (1 for the node's own term unless a self-loop
    has another), the factors those of packed models: ``D̂^{-1/2}`` of rows and columns in ``"gcn"``,
    one over the number of entries of rows in means. All are float32; the matrix is cached.
    """
    _check_kind(edge_index)

    def build() -> SparseMatrix:
        edges, weights = _usable_edges(edge_index, edge_weight, num_nodes, aggr)
        source, target = edges.cpu().numpy()
        weight = None if weights is None else weights.detach().cpu().float().numpy()
        if weight is not None and _kind(aggr).is_weighted and (weight < 0).any():
            expected = "non-negative where 'edge_bits' rounds weights"
            fix = "edge_bits=None adds up float weights"
            raise input_error("edge_weight", expected, float(weight.min()), fix)
        name = "attention" if aggr == "ones_self" else aggr
        weighed = weigh_edges(name, source, target, weight, num_nodes)
        given = (weighed.target, weighed.source, weighed.target_factor, weighed.source_factor)
        row, column, row_factor, column_factor = (
            None if some is None else torch.from_numpy(some).to(edges.device) for some in given
        )
        assert row is not None
        assert column is not None
        values = torch.ones(len(row)).to(edges.device)
        if weighed.weights is not None:
            values = torch.from_numpy(weighed.weights).to(edges.device)
        size = (num_nodes, num_nodes)
        return SparseMatrix.from_entries(row, column, values, size, row_factor, column_factor)

    return _factored[aggr].get(edge_index, [edge_weight], num_nodes, build)


def aggregate(
    edges: EdgesLike, edge_weight: Tensor | None, x: Tensor, aggr: Aggregation = "gcn"
) -> Tensor:
    """Sum x over neighbours: by a sparse matrix, or by gather and scatter when compiling or when
    edge weights are learned.
    """
    if isinstance(edges, SparseMatrix):
        return edges @ x
    _check_kind(edges)
    num_nodes = x.shape[0]
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    weights = edge_weight if edges.layout == torch.strided else edges
    learns = torch.is_grad_enabled() and weights is not None and weights.requires_grad
    if not torch.compiler.is_compiling() and not learns:
        return normalized_adjacency(edges, edge_weight, num_nodes, dtype, aggr) @ x
    if not torch.compiler.is_compiling():
        edges, edge_weight = edge_list(edges, edge_weight, num_nodes)
    elif edges.layout != torch.strided:
        raise input_error(
            "edge_index", "an edge list [2, E] in a compiled model", "a sparse matrix"
        )
    weight, own = edge_weights(aggr, edges, edge_weight, num_nodes, dtype)
    z = x.to(dtype)
    messages = weight.unsqueeze(-1) * z[edges[0]]
    return (own.unsqueeze(-1) * z).index_add(0, edges[1], messages).to(x.dtype)


def edges_of_relations(edge_index: EdgesLike, edge_type: Tensor | None) -> list[Tensor]:
    """Split edges [2, E] by their relations [E]: the edges of relation 0, of relation 1, and so on.

    The lists are cached, and with them the matrices that are built from each.
    """
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        got = "a sparse matrix"
        raise input_error("edge_index", "edges [2, E] beside their relations", got)
    num_edges = edge_index.shape[-1]
    if not isinstance(edge_type, Tensor):
        expected = f"the relation of each edge [{num_edges}]"
        raise input_error("edge_type", expected, type(edge_type).__name__)
    if edge_type.shape != (num_edges,) or edge_type.is_floating_point():
        expected = f"whole numbers, one relation per edge [{num_edges}]"
        got = f"{edge_type.dtype} of shape {list(edge_type.shape)}"
        raise input_error("edge_type", expected, got)

    def build() -> list[Tensor]:
        if num_edges and int(edge_type.min()) < 0:
            raise input_error("edge_type", "relations from 0", int(edge_type.min()))
        count = int(edge_type.max()) + 1 if num_edges else 0
        return [edge_index[:, edge_type == relation] for relation in range(count)]

    return _relations.get(edge_index, [edge_type], None, build)


def receptive_field(adjacency: SparseMatrix, nodes: Tensor, num_hops: int) -> Tensor:
    """Find all nodes whose input reaches ``nodes`` within ``num_hops`` products; ascending ids."""
    reached = torch.zeros(adjacency.shape[0], 1, device=nodes.device)
    reached[nodes] = 1
    # Ones instead of the values, which may be negative or cancel.
    back = csr_with_values(adjacency.transposed, torch.ones(len(adjacency.rows)).to(reached))
    for _ in range(num_hops):
        reached = ((back @ reached + reached) > 0).float()
    return reached[:, 0].nonzero()[:, 0]


def _check_kind(edges: object) -> None:
    if not isinstance(edges, Tensor):
        expected = "an integer tensor [2, E] or a sparse CSR adjacency"
        raise input_error("edge_index", expected, type(edges).__name__)


def _usable_edges(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, aggr: Aggregation
) -> tuple[Tensor, Tensor | None]:
    """Check a graph for a kind of sum and return its edges [2, E] and its weights [E]."""
    edges, weights = edge_list(edge_index, edge_weight, num_nodes)
    is_matrix = edge_index.layout != torch.strided
    ignored = None if _kind(aggr).is_weighted else weights
    if is_matrix and ignored is not None and bool((ignored != 1).any()):
        # PyG's layers disagree on how to use them.
        place = int((ignored != 1).nonzero()[0])
        got = f"{float(ignored[place])} from {int(edges[0, place])} to {int(edges[1, place])}"
        fix = "give its edges as [2, E] to leave weights out"
        raise input_error("edge_index", "a sparse adjacency of ones for this layer", got, fix)
    return edges, weights


def edge_list(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int
) -> tuple[Tensor, Tensor | None]:
    """Check a graph and return its edges as [2, E] and its weights as [E]."""
    if edge_index.is_meta:
        raise input_error("edge_index", "a tensor with values", "one on the meta device")
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

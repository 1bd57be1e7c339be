"""PyG's convolutions: the layer of bignn that replaces each, or why there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch_geometric.nn as pyg
from torch import Tensor, nn

from bignn.nn.cheb_conv import ChebConv
from bignn.nn.convert.inner_linear import InnerLinear
from bignn.nn.convert.layers import (
    convert_gat,
    convert_gcn,
    convert_gin,
    convert_linear,
    convert_sgc,
    gcn_aggr,
    unlike,
)
from bignn.nn.convolution import Convolution
from bignn.nn.gatv2_conv import GATv2Conv
from bignn.nn.gcn2_conv import GCN2Conv
from bignn.nn.linear import Linear
from bignn.nn.pair_conv import PairConv
from bignn.nn.power_conv import PowerConv
from bignn.nn.relational_conv import RelationalConv
from bignn.nn.residual_gat_conv import ResidualGATConv
from bignn.nn.sage_conv import SAGEConv
from bignn.nn.ssg_conv import SSGConv
from bignn.nn.sum_first_conv import SumFirstConv
from bignn.nn.transformer_conv import TransformerConv

Options = dict[str, Any]

_SAGE_SUMS = {"mean": "mean", "add": "sum", "sum": "sum", "max": "max"}
_GRAPH_SUMS = {name: f"weighted_{aggr}" for name, aggr in _SAGE_SUMS.items()}


def _inner(module: Any, options: Options) -> Linear | None:
    return None if module is None else convert_linear(module, options, InnerLinear)


def _sage(conv: Any, options: Options) -> nn.Module | str:
    if conv.aggr not in tuple(_SAGE_SUMS):  # it may be a list
        return f" with aggr={conv.aggr!r}"
    if why := unlike(conv):
        return why
    aggr, own = _SAGE_SUMS[conv.aggr], conv.lin_r if conv.root_weight else None
    if conv.project or aggr == "max":
        project = conv.lin if conv.project else None
        lin_l, lin_r, lin = (_inner(some, options) for some in (conv.lin_l, own, project))
        assert lin_l is not None
        return SumFirstConv(lin_l, lin_r, aggr, lin, normalize=conv.normalize)
    if aggr == "mean" and own is not None and not conv.normalize:
        has_bias = conv.lin_l.bias is not None
        layer = SAGEConv(conv.lin_l.in_channels, conv.out_channels, bias=has_bias, **options)
        layer.lin_l = convert_linear(conv.lin_l, options)
        layer.lin_r = convert_linear(conv.lin_r, options)
        return layer
    lins = [own and convert_linear(own, options), convert_linear(conv.lin_l, options, bias=False)]
    return PowerConv(lins, aggr, conv.lin_l.bias, normalize=conv.normalize)


def _graph(conv: Any, options: Options) -> nn.Module | str:
    if conv.aggr not in tuple(_GRAPH_SUMS):  # it may be a list
        return f" with aggr={conv.aggr!r}"
    if why := unlike(conv):
        return why
    aggr = _GRAPH_SUMS[conv.aggr]
    if conv.aggr == "max":
        lin_l, lin_r = (_inner(some, options) for some in (conv.lin_rel, conv.lin_root))
        assert lin_l is not None
        return SumFirstConv(lin_l, lin_r, aggr)
    lins = [
        convert_linear(conv.lin_root, options),
        convert_linear(conv.lin_rel, options, bias=False),
    ]
    return PowerConv(lins, aggr, conv.lin_rel.bias)


def _tag(conv: Any, options: Options) -> nn.Module | str:
    if why := unlike(conv, aggr="add"):
        return why
    lins = [convert_linear(lin, options) for lin in conv.lins]
    return PowerConv(lins, "gcn_plain" if conv.normalize else "weighted_sum", conv.bias)


def _cheb(conv: Any, options: Options) -> nn.Module | str:
    if why := unlike(conv, aggr="add", normalization="sym"):
        return why
    return ChebConv([convert_linear(lin, options) for lin in conv.lins], conv.bias)


def _gat_v2(conv: Any, options: Options) -> nn.Module | str:
    if why := unlike(conv, aggr="add", edge_dim=None):
        return why
    return GATv2Conv(
        convert_linear(conv.lin_l, options),
        None if conv.share_weights else convert_linear(conv.lin_r, options),
        conv.att,
        conv.bias,
        None if conv.res is None else convert_linear(conv.res, options),
        concat=conv.concat,
        negative_slope=conv.negative_slope,
        add_self_loops=conv.add_self_loops,
        attention_dropout=conv.dropout,
    )


def _transformer(conv: Any, options: Options) -> nn.Module | str:
    if why := unlike(conv, aggr="add", edge_dim=None):
        return why
    skip = convert_linear(conv.lin_skip, options) if conv.root_weight else None
    return TransformerConv(
        convert_linear(conv.lin_query, options),
        convert_linear(conv.lin_key, options),
        convert_linear(conv.lin_value, options),
        skip,
        _inner(conv.lin_beta if conv.root_weight else None, options),
        heads=conv.heads,
        concat=conv.concat,
        attention_dropout=conv.dropout,
    )


def _gat(conv: Any, options: Options) -> nn.Module | str:
    if not conv.residual:
        return convert_gat(conv, options)
    if why := unlike(conv, aggr="add", edge_dim=None, add_self_loops=True):
        return why
    return ResidualGATConv(
        convert_linear(conv.lin, options),
        convert_linear(conv.res, options),
        conv.att_src,
        conv.att_dst,
        conv.bias,
        concat=conv.concat,
        negative_slope=conv.negative_slope,
        attention_dropout=conv.dropout,
    )


def _ssg(conv: Any, options: Options) -> nn.Module | str:
    if why := unlike(conv, aggr="add"):
        return why
    linear = convert_linear(conv.lin, options, bias=False)
    return SSGConv(linear, conv.lin.bias, conv.alpha, conv.K, gcn_aggr(conv))


def _gcn2(conv: Any, options: Options) -> nn.Module | str:
    if why := unlike(conv, aggr="add"):
        return why
    lin1 = _transposed(conv.weight1, options)
    lin2 = None if conv.weight2 is None else _transposed(conv.weight2, options)
    return GCN2Conv(lin1, lin2, conv.alpha, conv.beta, gcn_aggr(conv))


def _transposed(weight: Tensor, options: Options) -> Linear:
    """Make a linear map of a matrix that PyG multiplies from the right; a copy, as it must be."""
    linear = InnerLinear(*weight.shape, bias=False, **options)
    linear.weight = nn.Parameter(weight.detach().t().contiguous())
    return linear


def _relational(conv: Any, options: Options) -> nn.Module | str:
    if conv.aggr not in ("mean", "add", "sum"):
        return f" with aggr={conv.aggr!r}"
    if why := unlike(conv, num_blocks=None):
        return why
    aggr = _SAGE_SUMS[conv.aggr]
    return RelationalConv(conv.weight, conv.comp, conv.root, conv.bias, aggr, **options)


#: The function that converts each kind of convolution, given the module and options of ours; text
#: is why bignn has no layer for it.
CONVERSIONS: dict[type[nn.Module], Callable[[Any, Options], nn.Module | str]] = {
    pyg.GCNConv: convert_gcn,
    pyg.SAGEConv: _sage,
    pyg.GATConv: _gat,
    pyg.GINConv: convert_gin,
    pyg.SGConv: convert_sgc,
    pyg.GraphConv: _graph,
    pyg.TAGConv: _tag,
    pyg.ChebConv: _cheb,
    pyg.GATv2Conv: _gat_v2,
    pyg.TransformerConv: _transformer,
    pyg.GCN2Conv: _gcn2,
    pyg.SSGConv: _ssg,
    pyg.RGCNConv: _relational,
    pyg.FastRGCNConv: _relational,
}


def _pair(conv: Any, options: Options) -> nn.Module | str:
    """Convert a convolution of one relation of a heterogeneous model."""
    is_sage = type(conv) is pyg.SAGEConv
    if type(conv) not in (pyg.SAGEConv, pyg.GraphConv) or (is_sage and conv.project):
        return " of a relation"
    if conv.aggr not in tuple(_SAGE_SUMS):  # it may be a list
        return f" with aggr={conv.aggr!r}"
    if conv.flow != "source_to_target":
        return f" with flow={conv.flow!r}"
    lin_l = conv.lin_l if is_sage else conv.lin_rel
    lin_r = None if is_sage and not conv.root_weight else conv.lin_r if is_sage else conv.lin_root
    return PairConv(
        convert_linear(lin_l, options, InnerLinear, bias=False),
        _inner(lin_r, options),
        lin_l.bias,
        _SAGE_SUMS[conv.aggr],
        normalize=is_sage and conv.normalize,
    )


# Arguments of PyG's convolutions that share a layer of bignn, in order.
_ARGUMENTS: dict[type[nn.Module], tuple[str, ...]] = {
    pyg.SAGEConv: ("x", "edge_index", "size"),
    pyg.GraphConv: ("x", "edge_index", "edge_weight", "size"),
}
# What convolutions read that packed graphs do not carry.
_READ_MORE: dict[type[nn.Module], str] = {
    **dict.fromkeys((pyg.GINEConv, pyg.NNConv, pyg.CGConv, pyg.PDNConv), " of edge features"),
    **dict.fromkeys((pyg.RGATConv, pyg.HGTConv), " of edge types"),
}


def converted(conv: nn.Module, options: Options, *, of_relation: bool = False) -> nn.Module | str:
    """Convert a convolution, or say why bignn has no layer for it: text after its class's name.

    Args:
        conv: a convolution of PyG's.
        options: of the linear maps.
        of_relation: whether it is one of the relations of a heterogeneous model.

    """
    made = _converted(conv, options, of_relation=of_relation)
    if isinstance(made, Convolution) and type(conv) in _ARGUMENTS:
        made.arguments = _ARGUMENTS[type(conv)]
    return made


def _converted(conv: nn.Module, options: Options, *, of_relation: bool) -> nn.Module | str:
    if of_relation:
        return _pair(conv, options)
    convert = CONVERSIONS.get(type(conv))
    if type(conv) in (pyg.APPNP, pyg.LGConv):  # they have no weights, and stay
        return unlike(conv, aggr="add")
    return _READ_MORE.get(type(conv), "") if convert is None else convert(conv, options)


#: Parts of convolutions that read edge features, and stay float; so does what has 'edge' in its
#: name.
_READ_EDGES: dict[type[nn.Module], tuple[str, ...]] = {
    pyg.GINEConv: ("lin",),
    pyg.NNConv: ("nn",),
    pyg.PDNConv: ("mlp",),
    pyg.PointTransformerConv: ("pos_nn",),
}


def reads_edges(conv: nn.Module, part: str) -> bool:
    """Whether a part of a convolution, by its name, reads edge features."""
    return "edge" in part or part.split(".")[0] in _READ_EDGES.get(type(conv), ())

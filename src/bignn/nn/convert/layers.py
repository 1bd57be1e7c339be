"""Linear maps and PyG's GCN, GAT, GIN and SGC convolutions: the layer that replaces each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch_geometric.nn as pyg
from torch import Tensor, nn

from bignn.nn.adjacency import Aggregation
from bignn.nn.gat_conv import GATConv
from bignn.nn.gcn_conv import GCNConv
from bignn.nn.gin_conv import GINConv
from bignn.nn.linear import Linear
from bignn.nn.power_conv import PowerConv
from bignn.nn.sg_conv import SGConv

LINEARS = (nn.Linear, pyg.Linear)


def _share_parameters(mine: Linear, theirs: nn.Module) -> Linear:
    mine.weight = theirs.weight  # type: ignore[assignment]
    if mine.bias is not None:
        mine.bias = theirs.bias  # type: ignore[assignment]
    return mine


def convert_linear(
    module: Any, options: dict[str, Any], kind: type[Linear] = Linear, *, bias: bool = True
) -> Linear:
    """Convert a linear map of torch or PyG, keeping its parameters (the bias if asked to)."""
    outputs, inputs = module.weight.shape
    has_bias = bias and module.bias is not None
    return _share_parameters(kind(inputs, outputs, bias=has_bias, **options), module)


def convert_gcn(conv: Any, options: dict[str, Any]) -> GCNConv | str:
    """Convert a GCNConv, with or without self-loops and normalisation."""
    if why := unlike(conv, aggr="add"):
        return why
    has_bias = conv.bias is not None
    layer = GCNConv(
        conv.lin.in_channels, conv.out_channels, aggr=gcn_aggr(conv), bias=has_bias, **options
    )
    _share_parameters(layer.lin, conv.lin)
    layer.bias = conv.bias
    return layer


def gcn_aggr(conv: Any) -> Aggregation:
    """Name the neighbourhood sum of a convolution with GCN's options."""
    if not getattr(conv, "normalize", True):
        return "weighted_sum"
    if not conv.add_self_loops:
        return "gcn_plain"
    return "gcn_improved" if getattr(conv, "improved", False) else "gcn"


def convert_sgc(conv: Any, options: dict[str, Any]) -> SGConv | PowerConv | str:
    """Convert an SGConv."""
    if why := unlike(conv, aggr="add"):
        return why
    has_bias = conv.lin.bias is not None
    if not conv.add_self_loops:
        return PowerConv(
            [*[None] * conv.K, convert_linear(conv.lin, options, bias=False)],
            "gcn_plain",
            conv.lin.bias,
        )
    layer = SGConv(conv.lin.in_channels, conv.out_channels, K=conv.K, bias=has_bias, **options)
    _share_parameters(layer.lin, conv.lin)
    return layer


def convert_gat(conv: Any, options: dict[str, Any]) -> GATConv | str:
    """Convert a GATConv without edge features."""
    if why := unlike(conv, aggr="add", edge_dim=None, add_self_loops=True, residual=False):
        return why
    layer = GATConv(
        conv.lin.in_channels,
        conv.out_channels,
        heads=conv.heads,
        concat=conv.concat,
        negative_slope=conv.negative_slope,
        attention_dropout=conv.dropout,
        bias=conv.bias is not None,
        **options,
    )
    _share_parameters(layer.lin, conv.lin)
    layer.att_src, layer.att_dst, layer.bias = conv.att_src, conv.att_dst, conv.bias
    return layer


def convert_gin(conv: Any, options: dict[str, Any]) -> GINConv | str:
    """Convert a GINConv whose network begins with a linear map."""
    if why := unlike(conv, aggr="add"):
        return why
    network = conv.nn
    begins = type(network) in (*LINEARS, pyg.MLP) or (
        type(network) is nn.Sequential and len(network) and type(network[0]) in LINEARS
    )
    if not begins:
        return f" whose network ({type(network).__name__}) begins with no Linear"
    first, rest = _first_and_rest(network)
    return GINConv(convert_linear(first, options), rest, conv.eps)


def _first_and_rest(network: Any) -> tuple[nn.Module, nn.Module]:
    """Split GIN's network into its first linear map and the rest."""
    if type(network) in LINEARS:
        return network, nn.Identity()
    # ``named_children`` would leave out a module's second place.
    chain = _unrolled(network) if type(network) is pyg.MLP else OrderedDict(network._modules)
    name = next(iter(chain))
    first = chain.pop(name)
    return first, nn.Sequential(chain)


def _unrolled(mlp: Any) -> OrderedDict[str, nn.Module]:
    """Write PyG's MLP as a chain of modules."""
    chain: OrderedDict[str, nn.Module] = OrderedDict()
    for number, linear in enumerate(mlp.lins):
        chain[f"lin{number}"] = linear
        if number < len(mlp.norms):
            act = mlp.act if isinstance(mlp.act, nn.Module) else FunctionModule(mlp.act)
            parts = {f"norm{number}": mlp.norms[number], f"act{number}": act}
            for name in sorted(parts, reverse=not mlp.act_first):
                chain[name] = parts[name]
        chain[f"dropout{number}"] = nn.Dropout(mlp.dropout[number])
    return chain


class FunctionModule(nn.Module):
    """A module that applies a function."""

    def __init__(self, function: Callable[[Tensor], Tensor] | None) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Compute ``f(x)``, or return x without a function."""
        return x if self.function is None else self.function(x)


def unlike(conv: Any, **expected: Any) -> str:
    """Describe the first option of a convolution that is not as expected; empty for none."""
    for option, usual in {**expected, "flow": "source_to_target"}.items():
        given = getattr(conv, option)
        given = "add" if option == "aggr" and given == "sum" else given
        if given is not usual and given != usual:
            return f" with {option}={given!r}"
    channels = getattr(conv, "in_channels", 1)
    if not isinstance(channels, int) and len({*channels}) > 1:  # of nodes of two kinds
        return f" with in_channels={channels!r}"
    return ""

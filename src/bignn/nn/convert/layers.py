"""Conversion of single PyG layers: which can be converted, and the layer that replaces each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch_geometric.nn as pyg
from torch import Tensor, nn

from bignn.errors import InputError
from bignn.nn.convert.wrapped_layer import WrappedLayer
from bignn.nn.gat_conv import GATConv
from bignn.nn.gcn_conv import GCNConv
from bignn.nn.gin_conv import GINConv
from bignn.nn.linear import Linear
from bignn.nn.sage_conv import SAGEConv
from bignn.nn.sg_conv import SGConv

LINEARS = (nn.Linear, pyg.Linear)


def cannot_binarize(
    name: str,
    module: nn.Module,
    why: str,
    instead: str = "use GCNConv, SAGEConv, GATConv, GINConv or SGConv",
) -> InputError:
    """Build the error for a layer that cannot be converted; ``instead`` is what to do."""
    return InputError(
        f"'{name}' is a {type(module).__name__}{why}, which bignn cannot binarize; pass "
        f"skip=['{name}'] to keep it float, or {instead}"
    )


def _share_parameters(mine: Linear, theirs: nn.Module) -> Linear:
    mine.weight = theirs.weight  # type: ignore[assignment]
    if mine.bias is not None:
        mine.bias = theirs.bias  # type: ignore[assignment]
    return mine


def convert_linear(module: Any, options: dict[str, Any]) -> Linear:
    """Convert a linear map of torch or PyG, keeping its parameters."""
    outputs, inputs = module.weight.shape
    return _share_parameters(
        Linear(inputs, outputs, bias=module.bias is not None, **options), module
    )


def _gcn(conv: Any, options: dict[str, Any]) -> GCNConv:
    has_bias = conv.bias is not None
    layer = GCNConv(conv.in_channels, conv.out_channels, bias=has_bias, **options)
    _share_parameters(layer.lin, conv.lin)
    layer.bias = conv.bias
    return layer


def _sgc(conv: Any, options: dict[str, Any]) -> SGConv:
    has_bias = conv.lin.bias is not None
    layer = SGConv(conv.in_channels, conv.out_channels, K=conv.K, bias=has_bias, **options)
    _share_parameters(layer.lin, conv.lin)
    return layer


def _sage(conv: Any, options: dict[str, Any]) -> SAGEConv:
    has_bias = conv.lin_l.bias is not None
    layer = SAGEConv(conv.lin_l.in_channels, conv.out_channels, bias=has_bias, **options)
    _share_parameters(layer.lin_l, conv.lin_l)
    _share_parameters(layer.lin_r, conv.lin_r)
    return layer


def _gat(conv: Any, options: dict[str, Any]) -> GATConv:
    layer = GATConv(
        conv.in_channels,
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


def _gin(conv: Any, options: dict[str, Any]) -> GINConv:
    first, rest = _first_and_rest(conv.nn)
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


def _only(**options: Any) -> Callable[[str, Any], None]:
    def check(name: str, conv: Any) -> None:
        options_of_all = {**options, "flow": "source_to_target"}
        for option, expected in options_of_all.items():
            given = getattr(conv, option)
            if given is not expected and given != expected:
                plain = expected is None or expected is False
                instead = f"without {option}" if plain else f"with {option}={expected!r}"
                why = f" with {option}={given!r}"
                raise cannot_binarize(name, conv, why, f"make it {instead}")
        if not isinstance(getattr(conv, "in_channels", 1), int):
            raise cannot_binarize(name, conv, f" with in_channels={conv.in_channels!r}")

    return check


def _check_gin(name: str, conv: Any) -> None:
    _only(aggr="add")(name, conv)
    network = conv.nn
    begins = type(network) in (*LINEARS, pyg.MLP) or (
        type(network) is nn.Sequential and len(network) and type(network[0]) in LINEARS
    )
    if not begins:
        raise cannot_binarize(
            name, conv, f" whose network ({type(network).__name__}) begins with no Linear"
        )


#: The function that converts each kind of layer, given the layer and options of ours.
CONVERSIONS: dict[type[nn.Module], Callable[[Any, dict[str, Any]], WrappedLayer]] = {
    pyg.GCNConv: _gcn,
    pyg.SAGEConv: _sage,
    pyg.GATConv: _gat,
    pyg.GINConv: _gin,
    pyg.SGConv: _sgc,
}
#: The check that refuses a layer, by its name, whose options ours does not have.
CHECKS: dict[type[nn.Module], Callable[[str, Any], None]] = {
    pyg.GCNConv: _only(improved=False, add_self_loops=True, normalize=True, aggr="add"),
    pyg.SAGEConv: _only(aggr="mean", normalize=False, project=False, root_weight=True),
    pyg.GATConv: _only(edge_dim=None, residual=False, add_self_loops=True, aggr="add"),
    pyg.GINConv: _check_gin,
    pyg.SGConv: _only(add_self_loops=True, aggr="add"),
}

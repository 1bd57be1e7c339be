"""Finding binary layers whose input is not centred, from a model's traced forward.

The sign of a number tells something where both signs occur. Layers and norms make such numbers; a
ReLU, a sum of activated values, an embedding or a pooling need not. Neither do many binary layers
in a row: every one shifts its columns, until most have one sign at all nodes.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any, NamedTuple

import torch
import torch_geometric.nn as pyg
from torch import Tensor, fx, nn
from torch.nn import functional

from bignn.nn.convert.before_activation import (
    ACTIVATION_MODULES,
    ACTIVATIONS,
    DROPOUTS,
    MOVES,
    functions_named,
)
from bignn.nn.convert.convolution_steps import WITHOUT_WEIGHTS
from bignn.nn.convert.convolutions import CONVERSIONS
from bignn.nn.convert.feature_readers import PRODUCTS, first_argument
from bignn.nn.convert.layers import FunctionModule
from bignn.nn.convert.wrapped_layer import WrappedLayer
from bignn.nn.convolution import Convolution
from bignn.nn.gin_conv import GINConv
from bignn.nn.input_stage import InputStage

# Norms that only scale, and so does torch's normalize. What they make may be so small that the bias
# of a binary layer, whose scales β are as small, outweighs all it computes: centring gives it the
# size back (docs/design.md, Converting PyG models).
_SCALING_NORMS = (pyg.GraphSizeNorm, pyg.MessageNorm)
_NORMS = (
    *(nn.BatchNorm1d, nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1d),
    *{getattr(pyg.norm, name) for name in pyg.norm.__all__}.difference(_SCALING_NORMS),
)
# Of PyG's convolutions those that bignn has a layer for, which may be left float. Others may end in
# a ReLU, or add what they were given.
_CENTRED_MODULES = (*(WrappedLayer, Convolution, *CONVERSIONS, *_NORMS, nn.Linear, pyg.Linear),)
_NORM_FUNCTIONS = {functional.batch_norm, functional.layer_norm, functional.group_norm}
_CENTRED_FUNCTIONS = _NORM_FUNCTIONS | PRODUCTS
# Activations without numbers of both signs; others have the sign of their input.
_ONE_SIGN = functions_named(["relu", "relu6", "sigmoid", "hardsigmoid", "softplus", "logsigmoid"])
_ONE_SIGN_MODULES = (nn.ReLU, nn.ReLU6, nn.Sigmoid, nn.Softplus)
_SUMS = {
    *(operator.add, operator.iadd, operator.sub, operator.isub),
    *(torch.add, torch.sub, Tensor.add, Tensor.add_, Tensor.sub, Tensor.sub_),
}
# Functions whose result has the signs of their first argument.
_SAME_SIGNS = functions_named(["squeeze", "unsqueeze", "chunk", "split"])
_SCALINGS = {
    *(operator.mul, operator.truediv, torch.mul, torch.div, Tensor.mul, Tensor.div),
    *(operator.imul, operator.itruediv),
}


# The most binary layers in a row that need no normalisation: of the columns that a third one reads
# up to nine tenths have one sign (docs/design.md, Converting PyG models).
_MOST_IN_A_ROW = 2


class _Centred(NamedTuple):
    """Whether a value has numbers of both signs.

    Attributes:
        value: whether the value itself has.
        before: whether the value before activation has.
        num_layers: binary layers in a row, without normalisation, that it has been through.

    """

    value: bool
    before: bool
    num_layers: int = 0


_NO = _Centred(False, False)


def uncentred_layers(
    model: nn.Module, graph: fx.Graph, never: Collection[nn.Module] = ()
) -> set[nn.Module]:
    """Find the converted layers that read a value which may be of one sign.

    What follows is judged as if all of these were centred, but for those that are ``never``.
    """
    found: set[nn.Module] = set()
    known: dict[fx.Node, _Centred] = {}
    is_standardized = isinstance(getattr(model, "input_stage", None), InputStage)
    features = {node for node in graph.nodes if node.op == "placeholder"}
    for place, node in enumerate(graph.nodes):
        if node.op == "placeholder":
            is_centred = is_standardized and place == 0
            known[node] = _Centred(is_centred, is_centred)
        elif node.op == "get_attr":
            known[node] = _Centred(True, True)
        elif node.op == "call_module":
            module = model.get_submodule(str(node.target))
            known[node] = _after_module(module, _of(first_argument(node), known), found, never)
            # The most frequent value of a standardised word is just below 0: a learned shift would
            # flip the signs of all nodes that lack it.
            if isinstance(module, _NORMS) and first_argument(node) in features:
                known[node] = _NO
        elif node.op in ("call_function", "call_method"):
            known[node] = _after_function(node, known)
            if node.target in DROPOUTS and first_argument(node) in features:
                features.add(node)
    return found


def _of(given: Any, known: dict[fx.Node, _Centred]) -> _Centred:
    """Look up a value; a list is centred where all its parts are, a number is not."""
    if isinstance(given, list | tuple):
        parts = [_of(part, known) for part in given]
        return _Centred(
            all(part.value for part in parts),
            all(part.before for part in parts),
            max((part.num_layers for part in parts), default=0),
        )
    return known.get(given, _NO) if isinstance(given, fx.Node) else _NO


def _after_module(
    module: nn.Module, x: _Centred, found: set[nn.Module], never: Collection[nn.Module]
) -> _Centred:
    if isinstance(module, WrappedLayer):
        reads_before = module.wrapping.reads_before_activation  # type: ignore[union-attr]
        has_stage = isinstance(getattr(module, "input_stage", None), InputStage)
        is_centred = (x.before if reads_before else x.value) and x.num_layers < _MOST_IN_A_ROW
        num_layers = x.num_layers + 1
        if not has_stage and not is_centred:
            found.add(module)
            if module not in never:
                num_layers = 1  # centring is a normalisation
        out = _Centred(True, True, num_layers)
        if isinstance(module, GINConv):  # its network reads sums, most of them of few neighbours
            out = out._replace(num_layers=_MOST_IN_A_ROW)
            rest = module.rest
            for part in rest if isinstance(rest, nn.Sequential) else [rest]:
                out = _after_module(part, out, found, never)
        return out._replace(num_layers=num_layers)
    if type(module) in WITHOUT_WEIGHTS:  # not looked past
        return _Centred(x.value, x.value, x.num_layers)
    if isinstance(module, _CENTRED_MODULES):
        return _Centred(True, True, 0 if isinstance(module, _NORMS) else x.num_layers)
    if isinstance(module, nn.Identity | nn.Dropout):
        return x
    if isinstance(module, (*ACTIVATION_MODULES, FunctionModule)):
        has_one_sign = isinstance(module, (*_ONE_SIGN_MODULES, FunctionModule))
        return _Centred(x.value and not has_one_sign, x.before, x.num_layers)
    return _NO._replace(num_layers=x.num_layers)


def _after_function(node: fx.Node, known: dict[fx.Node, _Centred]) -> _Centred:
    target: Any = node.target
    if node.op == "call_method":
        target = getattr(Tensor, str(target), None)
    if target is getattr:  # of a Data
        return known.get(node.args[0], _NO) if node.args[1] == "x" else _NO  # type: ignore[arg-type]
    x = _of(first_argument(node), known)
    if target in _CENTRED_FUNCTIONS:
        return _Centred(True, True, 0 if target in _NORM_FUNCTIONS else x.num_layers)
    if target in ACTIVATIONS:
        return _Centred(x.value and target not in _ONE_SIGN, x.before, x.num_layers)
    if target in DROPOUTS or target in MOVES or target is operator.getitem:
        return x
    num_layers = _of(node.args, known).num_layers
    is_centred = False
    if target in _SAME_SIGNS:  # not looked past
        is_centred = x.value
    elif target in _SUMS:
        is_centred = len(node.args) == 2 and all(_of(part, known).value for part in node.args)
    elif target in _SCALINGS and any(isinstance(part, int | float) for part in node.args):
        is_centred = any(_of(part, known).value for part in node.args)
    return _Centred(is_centred, is_centred, num_layers)

"""Replacing a model's PyG layers by bignn's, in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch_geometric.nn as pyg
from torch import nn
from torch.nn.parameter import UninitializedParameter

from bignn.binarize import Binarization
from bignn.errors import InputError, input_error
from bignn.nn.cheb_conv import ChebConv
from bignn.nn.convert.convolution_steps import WITHOUT_WEIGHTS
from bignn.nn.convert.convolutions import converted, reads_edges
from bignn.nn.convert.hetero import types_of
from bignn.nn.convert.inner_linear import InnerLinear
from bignn.nn.convert.layers import LINEARS, convert_linear
from bignn.nn.convert.norms import NORMS_WITH_LAYERS
from bignn.nn.convert.report import ReportEntry
from bignn.nn.convert.wrapped_layer import WrappedLayer, input_maps
from bignn.nn.convolution import TransformLater
from bignn.nn.gat_conv import GATConv
from bignn.nn.gatv2_conv import GATv2Conv
from bignn.nn.gcn_conv import GCNConv
from bignn.nn.gin_conv import GINConv
from bignn.nn.gnn import GNN
from bignn.nn.input_stage import InputStage
from bignn.nn.linear import Linear
from bignn.nn.pair_conv import PairConv
from bignn.nn.power_conv import PowerConv
from bignn.nn.relational_conv import RelationalConv
from bignn.nn.residual_gat_conv import ResidualGATConv
from bignn.nn.sage_conv import SAGEConv
from bignn.nn.sg_conv import SGConv
from bignn.nn.ssg_conv import SSGConv
from bignn.nn.transformer_conv import TransformerConv

# Modules whose own linear maps stay float.
_WITH_FLOAT_LAYERS = (pyg.JumpingKnowledge, *NORMS_WITH_LAYERS)
_FLOAT_PARTS: dict[type[nn.Module], str] = {
    GCNConv: "float: bias, sums over neighbours",
    SGConv: "float: bias, sums over neighbours",
    SAGEConv: "float: bias, means over neighbours",
    GATConv: "float: bias, attention, sums over neighbours",
    GINConv: "float: bias, eps, sums over neighbours (after the first linear map)",
    Linear: "float: bias",
    InnerLinear: "float: bias; its input is centred",
    PowerConv: "float: bias, sums over neighbours",
    ChebConv: "float: bias, sums over neighbours",
    SSGConv: "float: bias, sums over neighbours",
    RelationalConv: "float: bias, sums over the neighbours of each relation",
    ResidualGATConv: "float: bias, attention, sums over neighbours",
    GATv2Conv: "float: biases, attention, sums over neighbours",
    TransformerConv: "float: biases, attention, sums over neighbours",
}


def is_replaceable(module: nn.Module) -> bool:
    """Whether a module is a convolution of PyG or a linear map."""
    return type(module) in LINEARS or isinstance(module, pyg.MessagePassing)


def _num_inputs(linear: nn.Module) -> int:
    """Count the inputs of a linear map; -1 where they are not known yet."""
    return int(getattr(linear, "in_features", getattr(linear, "in_channels", -1)))


class LayerReplacement:
    """The replacement of a model's layers: which were replaced, by what.

    Attributes:
        model: the model that is converted.
        is_heterogeneous: whether the model has a convolution per relation.
        layers: the new layers, by their names in the model.
        first_is_binary: whether the layer that reads the features was replaced.
        unknown: convolutions that bignn has no layer for, by name, with the option that is why;
            their linear maps were replaced.

    """

    def __init__(
        self,
        model: nn.Module,
        binarization: Binarization,
        options: dict[str, Any],
        skip: tuple[str, ...],
        narrow: int,
    ) -> None:
        self.model = model
        self.is_heterogeneous = bool(types_of(model).edges)
        self.layers: dict[str, WrappedLayer] = {}
        self.first_is_binary = False
        self._binarization = binarization
        self._options = options
        self._skip = skip
        self._narrow = narrow
        self.unknown: dict[str, str] = {}
        self._kinds: dict[str, str] = {}

    def _is_skipped(self, name: str) -> bool:
        return any(name == some or name.startswith(some + ".") for some in self._skip)

    def _is_narrow(self, module: nn.Module) -> bool:
        """Whether a module is a linear map of so few inputs that it stays float."""
        return type(module) in LINEARS and 0 <= _num_inputs(module) < self._narrow

    def _stays_float(self, name: str, module: nn.Module) -> bool:
        return self._is_skipped(name) or self._is_narrow(module)

    def check(self, first: str | None) -> None:
        """Refuse a model that cannot be converted, before anything is changed."""
        model = self.model
        names = dict(model.named_modules(remove_duplicate=False))
        if isinstance(model, GNN) or any(isinstance(m, WrappedLayer) for m in names.values()):
            fix = "build it anew to convert it with other options"
            raise input_error("model", "one of PyG's layers", "one with bignn's already", fix)
        if is_replaceable(model):
            raise input_error(
                "model", "a module that contains layers", f"a {type(model).__name__} itself"
            )
        if first is not None and not isinstance(first, str):
            raise input_error("first", "the name of one layer", repr(first))
        for argument, given in (("skip", self._skip), ("first", () if first is None else (first,))):
            for name in given:
                if name not in names or not name:
                    known = [n for n, m in names.items() if is_replaceable(m) and "." not in n]
                    known = known or [n for n, m in names.items() if is_replaceable(m)]
                    raise input_error(
                        argument, f"names of modules of the model, such as {known[:4]}", repr(name)
                    )
        for name in ("input_stage", "fit_input"):
            if hasattr(model, name):
                raise InputError(
                    f"'model' has an attribute '{name}' already, which binarize_ sets; rename it"
                )
        found = []
        for name, module in names.items():
            if self._stays_float(name, module) or not is_replaceable(module):
                continue
            found.append(name)
            if not isinstance(getattr(module, "weight", None), nn.Parameter | None):
                got = f"'{name}', whose weight is computed anew in every call (weight_norm, ...)"
                fix = f"keep it float with skip=['{name}'], or take torch.nn.utils.parametrizations"
                raise input_error("model", "one whose weights are parameters", got, fix)
            if any(isinstance(p, UninitializedParameter) for p in module.parameters()):
                got = f"'{name}' with in_channels=-1"
                fix = "give binarize_(model, example=data), or call it once before"
                raise input_error("model", "one whose sizes are set", got, fix)
        if not found:
            raise InputError(
                "'model' has nothing to binarize: no PyG convolutions or linear maps"
                + (" but those in 'skip'" if self._skip else "")
                + (f" of {self._narrow} inputs or more" if self._narrow else "")
            )
        if first is not None and not is_replaceable(names[first]):
            raise input_error("first", "a convolution or a linear map", type(names[first]).__name__)

    def replace(self) -> None:
        """Put bignn's layers in the place of PyG's; a layer that is shared is replaced once."""
        done: dict[int, nn.Module] = {}
        kept_alive: list[nn.Module] = []  # so that no new module gets an old one's id
        seen_any = False

        def walk(parent: nn.Module, prefix: str) -> None:
            nonlocal seen_any
            for child_name, child in list(parent.named_children()):
                name = f"{prefix}{child_name}"
                if is_replaceable(child) and not seen_any:
                    seen_any, self.first_is_binary = True, not self._stays_float(name, child)
                if self._stays_float(name, child) or isinstance(child, _WITH_FLOAT_LAYERS):
                    continue
                if not is_replaceable(child):
                    walk(child, f"{name}.")
                    continue
                if id(child) not in done:
                    new = self._converted(name, child)
                    if isinstance(new, str):
                        self.unknown[name] = new
                        child.not_packed = new  # type: ignore[assignment]
                        for linear, inner in self._inner_maps(name, child):
                            kept_alive.append(linear)
                            done[id(linear)] = inner
                        new = child
                    kept_alive.append(child)
                    done[id(child)] = new
                    if isinstance(new, GINConv):
                        walk(new.rest, f"{name}.rest.")
                setattr(parent, child_name, done[id(child)])

        walk(self.model, "")
        # ``named_children`` yields a module that has two names once.
        for module in list(self.model.modules()):
            for child_name, child in module._modules.items():
                if child is not None and id(child) in done:
                    module._modules[child_name] = done[id(child)]

    def _converted(self, name: str, module: nn.Module) -> nn.Module | str:
        if type(module) in LINEARS:
            layer: nn.Module | str = convert_linear(module, self._options)
        else:
            layer = converted(module, self._options, of_relation=self.is_heterogeneous)
        if isinstance(layer, str):
            return layer
        self._register(name, module, layer)
        return layer

    def _register(self, name: str, module: nn.Module, layer: nn.Module) -> None:
        """Note a new layer, or the linear maps in it that prepare their own input."""
        layer.train(module.training)
        layer.to(next(module.parameters()).device)
        self._kinds[name] = type(module).__name__
        layer.replaced_class = type(module).__name__  # type: ignore[assignment]
        if isinstance(layer, WrappedLayer):
            self.layers[name] = layer
        for inner_name, inner in layer.named_children():
            if isinstance(inner, InnerLinear):
                self.layers[f"{name}.{inner_name}"] = inner
                self._kinds[f"{name}.{inner_name}"] = "Linear"

    def _inner_maps(self, name: str, conv: nn.Module) -> Iterator[tuple[nn.Module, Linear]]:
        """Convert the linear maps of nodes in a convolution that bignn has no layer for."""
        for part_name, part in conv.named_modules():
            full_name = f"{name}.{part_name}"
            is_map = type(part) in LINEARS and not self._stays_float(full_name, part)
            if not is_map or reads_edges(conv, part_name):
                continue
            inner = convert_linear(part, self._options, InnerLinear)
            self._register(full_name, part, inner)
            yield part, inner

    def is_complete_in(self, part: nn.Module) -> bool:
        """Whether every layer in a part of the model was replaced by one that reads signs alone."""
        return not any(
            is_replaceable(child)
            or isinstance(child, TransformLater)
            or not self.is_complete_in(child)
            for child in part.children()
            if not isinstance(child, (WrappedLayer, *_WITH_FLOAT_LAYERS))
        )

    def entries(self) -> Iterator[ReportEntry]:
        """Describe every layer, and every other module that has parameters."""
        what = [name for name in ("features", "weights") if getattr(self._binarization, name)]
        binary = "+".join(what)
        inside = {
            id(linear)
            for layer in self.layers.values()
            for linear in input_maps(layer)
            if linear is not layer
        }
        names = {id(layer): name for name, layer in self.layers.items()}
        for name, module in self.model.named_modules():
            if id(module) in names:
                layer = self.layers[names[id(module)]]
                note = _FLOAT_PARTS[type(layer)] if binary else "as it was"
                p = input_maps(layer)[0].dropout
                note += f"; drops {p:g} after the sign" if p and binary else ""
                if (edge_bits := getattr(layer, "edge_bits", None)) is not None:
                    note += f"; neighbours' weights of {edge_bits} bits"
                yield ReportEntry(name, self._kinds[names[id(module)]], binary, note)
            elif id(module) in inside or isinstance(module, InputStage):
                continue
            elif self._is_skipped(name):
                if name in self._skip:
                    yield ReportEntry(name, type(module).__name__, "", "float: in 'skip'")
            elif isinstance(module, PairConv):
                note = "float: bias, sums over the neighbours of a relation"
                yield ReportEntry(name, self._kinds[name], "", note)
            elif name in self.unknown:
                note = "message passing as it is, in torch; it does not pack"
                if type(module) in WITHOUT_WEIGHTS and not self.unknown[name]:
                    note = "float: has no weights"
                yield ReportEntry(name, type(module).__name__, "", note)
            elif list(module.parameters(recurse=False)):
                note = "stays float"
                if self._is_narrow(module):
                    note = (
                        f"float: reads {_num_inputs(module)} numbers, whose signs tell too little"
                    )
                yield ReportEntry(name, type(module).__name__, "", note)

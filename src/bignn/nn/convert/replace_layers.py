"""Replacing a model's PyG layers by bignn's, in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch_geometric.nn as pyg
from torch import nn
from torch.nn.parameter import UninitializedParameter

from bignn.binarize import Binarization
from bignn.errors import InputError, input_error
from bignn.nn.convert.layers import (
    CHECKS,
    CONVERSIONS,
    LINEARS,
    cannot_binarize,
    convert_linear,
)
from bignn.nn.convert.report import ReportEntry
from bignn.nn.convert.wrapped_layer import WrappedLayer, input_maps
from bignn.nn.gat_conv import GATConv
from bignn.nn.gcn_conv import GCNConv
from bignn.nn.gin_conv import GINConv
from bignn.nn.gnn import GNN
from bignn.nn.input_stage import InputStage
from bignn.nn.linear import Linear
from bignn.nn.sage_conv import SAGEConv
from bignn.nn.sg_conv import SGConv

_FLOAT_PARTS: dict[type[nn.Module], str] = {
    GCNConv: "float: bias, sums over neighbours",
    SGConv: "float: bias, sums over neighbours",
    SAGEConv: "float: bias, means over neighbours",
    GATConv: "float: bias, attention, sums over neighbours",
    GINConv: "float: bias, eps, sums over neighbours (after the first linear map)",
    Linear: "float: bias",
}


def is_replaceable(module: nn.Module) -> bool:
    """Whether a module is a convolution of PyG or a linear map."""
    return type(module) in LINEARS or isinstance(module, pyg.MessagePassing)


class LayerReplacement:
    """The replacement of a model's layers: which were replaced, by what.

    Attributes:
        model: the model that is converted.
        layers: the new layers, by their names in the model.
        first_is_binary: whether the layer that reads the features was replaced.

    """

    def __init__(
        self,
        model: nn.Module,
        binarization: Binarization,
        options: dict[str, Any],
        skip: tuple[str, ...],
    ) -> None:
        self.model = model
        self.layers: dict[str, WrappedLayer] = {}
        self.first_is_binary = False
        self._binarization = binarization
        self._options = options
        self._skip = skip
        self._kinds: dict[str, str] = {}

    def _is_skipped(self, name: str) -> bool:
        return any(name == some or name.startswith(some + ".") for some in self._skip)

    def check(self, first: str | None) -> None:
        """Refuse a model that cannot be converted, before anything is changed."""
        model = self.model
        names = dict(model.named_modules(remove_duplicate=False))
        if isinstance(model, GNN) or any(isinstance(m, WrappedLayer) for m in names.values()):
            raise InputError("the model has bignn's layers already; binarize_ is for PyG's")
        if type(model) in (*CONVERSIONS, *LINEARS) or isinstance(model, pyg.MessagePassing):
            raise input_error(
                "model", "a module that contains layers", f"a {type(model).__name__} itself"
            )
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
            if self._is_skipped(name) or not is_replaceable(module):
                continue
            found.append(name)
            if type(module) in CONVERSIONS:
                CHECKS[type(module)](name, module)
            elif isinstance(module, pyg.MessagePassing):
                raise cannot_binarize(name, module, "")
            if any(isinstance(p, UninitializedParameter) for p in module.parameters()):
                got = f"'{name}' with in_channels=-1"
                raise input_error("model", "one whose sizes are set", got, "call it once before")
        if not found:
            raise InputError(
                "'model' has nothing to binarize: no PyG convolutions or linear maps"
                + (" but those in 'skip'" if self._skip else "")
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
                    seen_any, self.first_is_binary = True, not self._is_skipped(name)
                if self._is_skipped(name) or isinstance(child, pyg.JumpingKnowledge):
                    continue
                if not is_replaceable(child):
                    walk(child, f"{name}.")
                    continue
                if id(child) not in done:
                    kept_alive.append(child)
                    done[id(child)] = self._converted(name, child)
                    if isinstance(new := done[id(child)], GINConv):
                        walk(new.rest, f"{name}.rest.")
                setattr(parent, child_name, done[id(child)])

        walk(self.model, "")
        # ``named_children`` yields a module that has two names once.
        for module in list(self.model.modules()):
            for child_name, child in module._modules.items():
                if child is not None and id(child) in done:
                    module._modules[child_name] = done[id(child)]

    def _converted(self, name: str, module: nn.Module) -> WrappedLayer:
        convert = convert_linear if type(module) in LINEARS else CONVERSIONS[type(module)]
        layer = convert(module, self._options)
        layer.train(module.training)
        layer.to(next(module.parameters()).device)
        self.layers[name] = layer
        self._kinds[name] = type(module).__name__
        return layer

    def is_complete_in(self, part: nn.Module) -> bool:
        """Whether every layer in a part of the model was replaced."""
        return not any(
            is_replaceable(module)
            for child_name, child in part.named_children()
            if child_name != "jk"
            for module in child.modules()
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
                yield ReportEntry(name, self._kinds[names[id(module)]], binary, note)
            elif id(module) in inside or isinstance(module, InputStage):
                continue
            elif self._is_skipped(name):
                if name in self._skip:
                    yield ReportEntry(name, type(module).__name__, "", "float: in 'skip'")
            elif list(module.parameters(recurse=False)):
                note = "float: not a layer bignn binarizes"
                yield ReportEntry(name, type(module).__name__, "", note)

"""A PyG user's own model becomes binary, in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch_geometric.nn as pyg
from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch_geometric.nn.models.basic_gnn import BasicGNN

from bignn.binarize import Binarization
from bignn.bits import words_per_row
from bignn.config import BinarizeMode, SteRule
from bignn.config.options import BELOW_ONE
from bignn.errors import InputError, input_error
from bignn.nn.batch_norm import BatchNorm
from bignn.nn.convert.before_activation import ACTIVATION_MODULES, remember_in
from bignn.nn.convert.layers import (
    CHECKS,
    CONVERSIONS,
    LINEARS,
    Applied,
    convert_linear,
    refuse,
)
from bignn.nn.convert.trace import obstacle
from bignn.nn.convert.wrapped_layer import Layer, Port, entrances, open_port, standardize_input
from bignn.nn.gat_conv import GATConv
from bignn.nn.gcn_conv import GCNConv
from bignn.nn.gin_conv import GINConv
from bignn.nn.gnn import GNN
from bignn.nn.input_stage import InputStage
from bignn.nn.linear import Linear
from bignn.nn.sage_conv import SAGEConv
from bignn.nn.sg_conv import SGConv


@dataclass(frozen=True)
class Entry:
    """What became of one module.

    Attributes:
        name: in the model.
        kind: its class.
        binary: what of it is 1-bit; empty if nothing.
        note: what stays float, and why.

    """

    name: str
    kind: str
    binary: str
    note: str


@dataclass
class Report:
    """What :func:`binarize_` did.

    Attributes:
        entries: module by module.
        notes: on the model as a whole.
        bytes_before, bytes_after: of all parameters; bits are counted as packed, with their scales.
        obstacle: why :func:`bignn.pack` will refuse the model, trained or not; None if it will not.

    """

    entries: list[Entry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bytes_before: int = 0
    bytes_after: int = 0
    obstacle: str | None = None

    def __str__(self) -> str:
        rows = [("module", "kind", "1 bit", "note")]
        rows += [(e.name, e.kind, e.binary or "-", e.note) for e in self.entries]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [
            "  ".join(
                [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]
            )
            for row in rows
        ]
        ratio = self.bytes_before / max(1, self.bytes_after)
        size = (
            f"parameters: {self.bytes_before:,} -> {self.bytes_after:,} bytes ({ratio:.1f}x less)"
        )
        notes = self.notes if self.obstacle is None else [*self.notes, f"Note: {self.obstacle}."]
        return "\n".join(line.rstrip() for line in [*lines, size, *notes])


def binarize_(
    model: nn.Module,
    *,
    binarize: BinarizeMode = "both",
    ste: SteRule = "input",
    dropout: float | None = None,
    skip: Sequence[str] = (),
    first: str | None = None,
    balance: bool = True,
    center: bool = False,
) -> Report:
    r"""Makes a model of PyG layers binary, in place, by the paper's general recipe (Sec. 4.4).

    1. The columns of the input are standardised (:class:`bignn.nn.InputStage`), with statistics
       from the first training batch or ``model.fit_input(x)``, which are part of the state.
    2. GCNConv, SAGEConv (mean), GATConv, GINConv, SGConv and Linear layers become bignn's, called
       as before and with the very same parameters: an optimiser that has them goes on working, and
       trained weights are a start. Normalisation layers, biases and attention vectors stay float.
    3. Activations before a binary layer are dropped, since the sign is one (and after a ReLU all
       signs would be +1), and dropout before it acts after the sign.

    In ``torch_geometric.nn.GCN``, ``GraphSAGE``, ``GAT`` and ``GIN``, and within an
    ``nn.Sequential``, step 3 changes the modules. What a model's own ``forward`` calls cannot be
    taken out, whether ``F.relu`` or a module; while it runs, binary layers look past it
    (:mod:`bignn.nn.convert.before_activation`), and all others see it.

    With ``binarize="none"`` or ``"weights"`` steps 1 and 3 are left out; ``"none"`` computes what
    the model did.

    Args:
        model: a ``torch_geometric.nn.GCN``, ``GraphSAGE``, ``GAT`` or ``GIN``, or a module of your
            own; called with x or a ``Data`` first.
        binarize: ``"none"``, ``"features"``, ``"weights"`` or ``"both"``.
        ste: gradient rule for features, see :func:`bignn.binarize.binarize_features`.
        dropout: probability of dropping an entry of a binary layer's input; None for what the
            model's own dropout says.
        skip: names of modules that stay float, with all they contain.
        first: name of the layer whose input is standardised, where that is not the model's.
        balance: binarize ``W - median(W)``, per column, so that columns have as many +1 as -1
            (:class:`bignn.nn.Linear`). Of bag-of-words features the many that a node lacks
            otherwise add up to the same large number at every node: weights drawn by PyG then
            learn nothing on Cora (32 % of validation nodes instead of 78 %, docs/design.md).
        center: batch normalisation (no affine part) before the sign of every layer but the first:
            step 1 of the paper for all layers. Binary layers then take what they are given, and do
            not look past activations and dropout.

    """
    binarization = Binarization.of(binarize, ste)
    if not isinstance(model, nn.Module):
        raise input_error("model", "a torch.nn.Module", type(model).__name__)
    if dropout is not None:
        BELOW_ONE.check("dropout", dropout)
    options = {"binarize": binarize, "ste": ste, "balance": balance and binarization.weights}
    converter = _Converter(model, binarization, options, tuple(skip))
    converter.check(first)
    report = Report(bytes_before=sum(4 * p.numel() for p in model.parameters()))
    converter.replace()
    sequences = [m for m in model.modules() if type(m) is nn.Sequential]
    if binarization.features:
        for sequence in sequences:
            _simplify_sequence(sequence)
        families = [m for m in model.modules() if isinstance(m, BasicGNN)]
        simple = [family for family in families if converter.is_all_binary(family)]
        for family in simple:
            _simplify_family(family)
        looks_past = not center and not (simple and simple[0] is model)
        _standardize(model, converter.layers, converter.first_is_binary, first, report)
        if looks_past:
            remember_in(model)
            report.notes.append(
                "Binary layers look past activations and dropout of the model's own forward."
            )
    else:
        looks_past = False
    for name, layer in converter.layers.items():
        open_port(layer, Port(name, looks_past, dropout is not None))
        if dropout is not None:
            _set_dropout(layer, dropout)
        if center and binarization.features and not hasattr(layer, "input_stage"):
            weight = entrances(layer)[0].weight
            layer.center = BatchNorm(weight.shape[1]).to(weight.device)
    report.entries = list(converter.entries(model))
    report.bytes_after = _bytes_after(model)
    report.obstacle = obstacle(model)
    return report


class _Converter:
    """Replaces layers; knows which."""

    def __init__(
        self,
        model: nn.Module,
        binarization: Binarization,
        options: dict[str, Any],
        skip: tuple[str, ...],
    ) -> None:
        self.model = model
        self.binarization = binarization
        self.options = options
        self.skip = skip
        self.layers: dict[str, Layer] = {}
        self.kinds: dict[str, str] = {}
        self.first_is_binary = False

    def _is_skipped(self, name: str) -> bool:
        return any(name == some or name.startswith(some + ".") for some in self.skip)

    def check(self, first: str | None) -> None:
        """Refuses what cannot be, before anything is changed."""
        model = self.model
        names = dict(model.named_modules(remove_duplicate=False))
        if isinstance(model, GNN) or any(isinstance(m, Layer | GINConv) for m in names.values()):
            raise InputError("the model has bignn's layers already; binarize_ is for PyG's")
        if type(model) in (*CONVERSIONS, *LINEARS) or isinstance(model, pyg.MessagePassing):
            raise input_error(
                "model", "a module that contains layers", f"a {type(model).__name__} itself"
            )
        for argument, given in (("skip", self.skip), ("first", () if first is None else (first,))):
            for name in given:
                if name not in names or not name:
                    known = [n for n, m in names.items() if self._reads(m) and "." not in n]
                    known = known or [n for n, m in names.items() if self._reads(m)]
                    raise input_error(
                        argument, f"names of modules, such as {known[:4]}", repr(name)
                    )
        for name in ("input_stage", "fit_input"):
            if hasattr(model, name):
                raise InputError(
                    f"'model' has an attribute '{name}' already, which binarize_ sets; rename it"
                )
        found = []
        for name, module in names.items():
            if self._is_skipped(name) or not self._reads(module):
                continue
            found.append(name)
            if type(module) in CONVERSIONS:
                CHECKS[type(module)](name, module)
            elif isinstance(module, pyg.MessagePassing):
                raise refuse(name, module, "")
            if any(isinstance(p, UninitializedParameter) for p in module.parameters()):
                got = f"'{name}' with in_channels=-1"
                raise input_error("model", "one that knows its sizes", got, "call it once before")
        if not found:
            raise InputError(
                "'model' has nothing to binarize: no PyG convolutions or linear maps"
                + (" but those in 'skip'" if self.skip else "")
            )
        if first is not None and not self._reads(names[first]):
            raise input_error("first", "a convolution or a linear map", type(names[first]).__name__)

    @staticmethod
    def _reads(module: nn.Module) -> bool:
        return type(module) in LINEARS or isinstance(module, pyg.MessagePassing)

    def replace(self) -> None:
        """Puts our layers in the place of PyG's, the first time by name, shared ones once."""
        done: dict[int, nn.Module] = {}
        kept_alive: list[nn.Module] = []  # so that no new module gets an old one's id
        seen_any = False

        def walk(parent: nn.Module, prefix: str) -> None:
            nonlocal seen_any
            for child_name, child in list(parent.named_children()):
                name = f"{prefix}{child_name}"
                if self._reads(child) and not seen_any:
                    seen_any, self.first_is_binary = True, not self._is_skipped(name)
                if self._is_skipped(name) or isinstance(child, pyg.JumpingKnowledge):
                    continue
                if not self._reads(child):
                    walk(child, f"{name}.")
                    continue
                if id(child) not in done:
                    kept_alive.append(child)
                    done[id(child)] = self._converted(name, child)
                    if isinstance(new := done[id(child)], GINConv):
                        walk(new.rest, f"{name}.rest.")
                setattr(parent, child_name, done[id(child)])

        # ``named_children`` gives a module that has two names once.
        walk(self.model, "")
        for module in list(self.model.modules()):
            for child_name, child in module._modules.items():
                if child is not None and id(child) in done:
                    module._modules[child_name] = done[id(child)]

    def _converted(self, name: str, module: nn.Module) -> Layer:
        convert = convert_linear if type(module) in LINEARS else CONVERSIONS[type(module)]
        layer = convert(module, self.options)
        layer.train(module.training)
        layer.to(next(module.parameters()).device)
        self.layers[name] = layer
        self.kinds[name] = type(module).__name__
        return layer

    def is_all_binary(self, part: nn.Module) -> bool:
        """Whether no layer in it stayed float."""
        return not any(
            self._reads(module)
            for child_name, child in part.named_children()
            if child_name != "jk"
            for module in child.modules()
        )

    def entries(self, model: nn.Module) -> Iterator[Entry]:
        """What became of every layer, and of what else has parameters."""
        what = [name for name in ("features", "weights") if getattr(self.binarization, name)]
        binary = "+".join(what)
        inside = {id(m) for layer in self.layers.values() for m in _own_parts(layer)}
        names = {id(layer): name for name, layer in self.layers.items()}
        for name, module in model.named_modules():
            if id(module) in names:
                layer = self.layers[names[id(module)]]
                note = _FLOAT_PARTS[type(layer)] if binary else "as it was"
                p = entrances(layer)[0].dropout
                note += f"; drops {p:g} after the sign" if p and binary else ""
                yield Entry(name, self.kinds[names[id(module)]], binary, note)
            elif id(module) in inside or isinstance(module, InputStage):
                continue
            elif self._is_skipped(name):
                if name in self.skip:
                    yield Entry(name, type(module).__name__, "", "float: in 'skip'")
            elif list(module.parameters(recurse=False)):
                yield Entry(name, type(module).__name__, "", "float: not a layer bignn binarizes")


def _own_parts(layer: Layer) -> Iterator[nn.Module]:
    for linear in entrances(layer):
        if linear is not layer:
            yield linear


_FLOAT_PARTS: dict[type[nn.Module], str] = {
    GCNConv: "float: bias, sums over neighbours",
    SGConv: "float: bias, sums over neighbours",
    SAGEConv: "float: bias, means over neighbours",
    GATConv: "float: bias, attention, sums over neighbours",
    GINConv: "float: bias, eps, sums over neighbours (after the first linear map)",
    Linear: "float: bias",
}


def _standardize(
    model: nn.Module,
    layers: dict[str, Layer],
    first_is_binary: bool,
    first: str | None,
    report: Report,
) -> None:
    """Puts an :class:`InputStage` before the first layer, or before the model."""
    if first is None and isinstance(model, BasicGNN):
        # At the layer, not at the model: PyG's layer-wise ``inference`` calls layers.
        first = "convs.0"
    if (first not in layers) if first is not None else not first_is_binary:
        report.notes.append("The first layer stays float, so the input is not standardised.")
        return
    layer = layers[first] if first is not None else next(iter(layers.values()))
    weight = entrances(layer)[0].weight
    norm = InputStage(
        weight.shape[1],
        normalize_rows=False,
        standardize=True,
        binarize=first is not None,
        dense=first is None,
    ).to(weight.device)
    norm.train(model.training)
    if first is not None:
        layer.input_stage = norm
        where = f"'{first}'"
    else:
        model.input_stage = norm
        model.register_forward_pre_hook(standardize_input, with_kwargs=True)
        where = "the model"
    model.fit_input = norm.fit  # type: ignore[assignment]
    report.notes.append(
        f"The input of {where} is standardised, with the statistics of the first training batch "
        "unless model.fit_input(x) is called before."
    )


def _simplify_family(model: BasicGNN) -> None:
    """Step 3 in PyG's own models, whose structure is known."""
    family: Any = model
    family.act = nn.Identity()
    p = family.dropout.p
    family.dropout.p = 0.0
    for conv in list(family.convs)[1:]:
        _set_dropout(conv, p)
    if hasattr(family, "lin"):
        _set_dropout(family.lin, p)


def _simplify_sequence(sequence: nn.Sequential) -> None:
    """Step 3 within a chain of modules: what comes before a binary linear map in it."""
    waiting: list[str] = []
    kept = 1.0
    # ``named_children`` leaves out a module's second place; PyG's MLP has one ``act`` for all.
    for name, module in list(sequence._modules.items()):
        if isinstance(module, Layer):
            for some in waiting:
                setattr(sequence, some, nn.Identity())
            if waiting:
                _set_dropout(module, 1 - kept)
            waiting, kept = [], 1.0
        elif isinstance(module, (*ACTIVATION_MODULES, Applied)):
            waiting.append(name)
        elif isinstance(module, nn.Dropout):
            waiting.append(name)
            kept *= 1 - module.p
        elif not isinstance(module, _NORMS):
            waiting, kept = [], 1.0


_NORMS = (nn.BatchNorm1d, nn.LayerNorm, nn.Identity, pyg.BatchNorm, pyg.LayerNorm)


def _set_dropout(layer: Layer, p: float) -> None:
    for linear in entrances(layer):
        linear.dropout = p


def _bytes_after(model: nn.Module) -> int:
    total = sum(4 * p.numel() for p in model.parameters())
    for module in model.modules():
        if isinstance(module, Linear) and module.binarization.weights:
            rows, columns = module.weight.shape
            total += rows * (8 * words_per_row(columns) + 4 - 4 * columns)
    return total

"""How to train: settings, and the models by name with those that served them on validation.

How they were chosen, and what else was tried: docs/results.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from torch import nn

from bignn.binarize import BinarizeMode, SteRule
from bignn.errors import InputError, wrong
from bignn.graph import Graph
from bignn.nn import GNN, MODELS, Activation, ConvName, DropMode, JumpMode, NormMode
from bignn.sampling import SampleKind, Sampling


@dataclass(frozen=True)
class Settings:
    """How long and how fast to train.

    Attributes:
        lr: Adam's learning rate.
        weight_decay: Adam's coupled L2 penalty on weight matrices; biases are not decayed.
        beta1: Adam's memory of past gradients.
        last_layer_lr: factor on the learning rate of the last weight matrix.
        epochs: at most so many.
        patience: stop after so many epochs without a lower validation loss.
        distill_mix: with a teacher, its share of the loss (the labels have the rest).
        temperature: with a teacher, what both sides' logits are divided by.
        inductive: training sees the training nodes and the edges among them only; evaluation is on
            the whole graph.
        sampling: how batches are drawn; None for the whole graph in one.

    """

    lr: float = 0.001
    weight_decay: float = 0.0
    beta1: float = 0.9
    last_layer_lr: float = 1.0
    epochs: int = 1000
    patience: int = 100
    distill_mix: float = 0.9
    temperature: float = 1.0
    inductive: bool = False
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("patience", 1)):
            if getattr(self, name) < least:
                raise wrong(name, f"at least {least}", getattr(self, name))
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise wrong("lr", "a positive number", self.lr)
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise wrong("weight_decay", "0 or more", self.weight_decay)
        if not 0 <= self.beta1 < 1:
            raise wrong("beta1", "in [0, 1)", self.beta1)
        if not (math.isfinite(self.last_layer_lr) and self.last_layer_lr > 0):
            raise wrong("last_layer_lr", "a positive number", self.last_layer_lr)
        if not 0 <= self.distill_mix <= 1:
            raise wrong("distill_mix", "in [0, 1]", self.distill_mix)
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise wrong("temperature", "a positive number", self.temperature)


@dataclass(frozen=True)
class Recipe:
    """A model and how to train it."""

    binarize: BinarizeMode
    settings: Settings
    hidden: int = 64
    layers: int = 2
    conv: ConvName = "gcn"
    heads: int = 1
    out_heads: int = 1
    jump: JumpMode = "none"
    binarize_head: bool = False
    dropout: float = 0.4
    input_dropout: float | None = None
    attention_dropout: float = 0.0
    drop: DropMode = "all"
    balance: bool = False
    norm: NormMode = "none"
    activation: Activation = "relu"
    normalize_rows: bool = True
    ste: SteRule = "input"

    def __post_init__(self) -> None:
        # As the model does, but by the names of the flags, and before there is a graph.
        for name in ("hidden", "layers", "heads", "out_heads"):
            if getattr(self, name) < 1:
                raise wrong(name, "at least 1", getattr(self, name))
        for name in ("dropout", "input_dropout", "attention_dropout"):
            p = getattr(self, name)
            if p is not None and not 0 <= p < 1:
                raise wrong(name, "in [0, 1)", p)

    def build(self, graph: Graph) -> GNN:
        """A freshly initialised model for this graph (draws from torch's generator)."""
        if graph.num_classes == 0:
            raise InputError(
                f"{graph.name}: training needs labels 'y'; 'bignn convert --labels' adds them"
            )
        own = {"binarize", "settings", "hidden", "layers"}
        options = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in own}
        return MODELS.get(self.conv, GNN)(
            graph.num_features,
            self.hidden,
            self.layers,
            graph.num_classes,
            binarize=self.binarize,
            **options,
        )


#: The float model that a binary one is compared with, and learns from.
TWINS = {
    **{"bi-gcn": "gcn", "bi-gcn-f": "gcn", "bi-gcn-w": "gcn"},
    **{"bi-gat": "gat", "bi-sage": "sage", "bi-saint": "saint"},
}

_GAT: dict[str, Any] = {"conv": "gat", "hidden": 8, "heads": 8}
_SAINT: dict[str, Any] = {"conv": "sage", "jump": "cat"}

#: Where few nodes have labels, as in the citation graphs. All see the whole graph: what is left of
#: one when only its labelled nodes may be seen (140 of Cora's 2,708) is next to nothing.
RECIPES = {
    "gcn": Recipe("none", Settings(lr=0.01, weight_decay=1e-3), dropout=0.8),
    "bi-gcn-f": Recipe("features", Settings(lr=0.001, weight_decay=0.0)),
    "bi-gcn-w": Recipe("weights", Settings(lr=0.001, weight_decay=0.0), dropout=0.6),
    "bi-gcn": Recipe("both", Settings(lr=0.001, weight_decay=0.0, beta1=0.5, last_layer_lr=0.3)),
    "gat": Recipe(
        "none",
        Settings(lr=0.005, weight_decay=5e-4),
        dropout=0.6,
        attention_dropout=0.6,
        activation="elu",
        **_GAT,
    ),
    "bi-gat": Recipe("both", Settings(beta1=0.5, last_layer_lr=0.3), **_GAT),
    "sage": Recipe("none", Settings(lr=0.01, weight_decay=1e-3), dropout=0.8, conv="sage"),
    "bi-sage": Recipe("both", Settings(beta1=0.5, last_layer_lr=0.3), conv="sage"),
    "saint": Recipe("none", Settings(lr=0.01, weight_decay=1e-3), dropout=0.8, **_SAINT),
    "bi-saint": Recipe("both", Settings(beta1=0.5, last_layer_lr=0.3), **_SAINT),
    "sgc": Recipe("none", Settings(lr=0.2, weight_decay=1e-5), layers=1, dropout=0.0, conv="sgc"),
    "fastgcn": Recipe(
        "none",
        Settings(lr=0.01, weight_decay=5e-4, sampling=Sampling("layer", 256, fan_outs=(400, 400))),
        dropout=0.5,
    ),
}

#: The same with a teacher, whose opinion of every node makes up for the labels. Trials were made of
#: "gcn" and "bi-gcn"; the others take after them.
STUDENTS = {
    **RECIPES,
    "gcn": Recipe("none", Settings(lr=0.01, weight_decay=5e-4), dropout=0.5),
    "bi-gcn-f": Recipe("features", Settings(), dropout=0.2, input_dropout=0.8, drop="present"),
    "bi-gcn-w": Recipe("weights", Settings(), dropout=0.4, balance=True),
    "bi-gcn": Recipe("both", Settings(), dropout=0.2, input_dropout=0.8, drop="present"),
    "bi-gat": Recipe("both", Settings(), dropout=0.2, input_dropout=0.8, drop="present", **_GAT),
    "bi-sage": Recipe(
        "both", Settings(), dropout=0.2, input_dropout=0.8, drop="present", conv="sage"
    ),
    "bi-saint": Recipe(
        "both", Settings(), dropout=0.2, input_dropout=0.8, drop="present", **_SAINT
    ),
}

_NEIGHBOURS: dict[str, Any] = {
    "inductive": True,
    "sampling": Sampling("neighbor", 1024, fan_outs=(25, 10)),
    "epochs": 200,
    "patience": 30,
}
_WALKS: dict[str, Any] = {
    "inductive": True,
    "sampling": Sampling("walk", 1500, walk_length=2),
    "epochs": 200,
    "patience": 30,
}
_BINARY: dict[str, Any] = {"drop": "present", "balance": True, "norm": "batch"}

#: Where a tenth of the nodes or more have labels, with or without a teacher.
MANY_LABELS = {
    **RECIPES,
    "gcn": Recipe("none", Settings(lr=0.01), hidden=128, dropout=0.2, normalize_rows=False),
    "bi-gcn-f": Recipe("features", Settings(), 128, dropout=0.2, drop="present", norm="batch"),
    "bi-gcn-w": Recipe("weights", Settings(), 128, dropout=0.2, balance=True, norm="batch"),
    "bi-gcn": Recipe("both", Settings(), 128, dropout=0.2, **_BINARY),
    "gat": Recipe(
        "none",
        Settings(lr=0.005),
        hidden=16,
        heads=8,
        dropout=0.2,
        conv="gat",
        activation="elu",
        normalize_rows=False,
    ),
    "bi-gat": Recipe("both", Settings(), 16, heads=8, dropout=0.2, conv="gat", **_BINARY),
    "sage": Recipe(
        "none",
        Settings(lr=0.003, **_NEIGHBOURS),
        hidden=128,
        dropout=0.2,
        conv="sage",
        normalize_rows=False,
    ),
    "bi-sage": Recipe("both", Settings(**_NEIGHBOURS), 128, dropout=0.2, conv="sage", **_BINARY),
    "saint": Recipe(
        "none",
        Settings(lr=0.003, **_WALKS),
        hidden=128,
        dropout=0.2,
        normalize_rows=False,
        **_SAINT,
    ),
    "bi-saint": Recipe("both", Settings(**_WALKS), 128, dropout=0.2, **_BINARY, **_SAINT),
}

_MANY = 0.1


def recipe(
    model: str, *, graph: Graph | None = None, distill: bool = False, **changes: Any
) -> Recipe:
    """The recipe of a model name, with some of its values changed.

    Args:
        model: a key of :data:`RECIPES`.
        graph: what it is for: graphs with many labels ask for another recipe than those with few.
        distill: for training with a teacher.
        changes: any field of :class:`Recipe`, :class:`Settings` or :class:`bignn.sampling.Sampling`
            (its kind as ``sampler``, ``"none"`` for the whole graph); None keeps the recipe's own.

    """
    if model not in RECIPES:
        raise wrong("model", f"one of {list(RECIPES)}", repr(model))
    base = _table(graph, distill)[model]
    given = {name: value for name, value in changes.items() if value is not None}
    of_sampling = {name: given.pop(name) for name in list(given) if name in _SAMPLING}
    of_settings = {field.name for field in fields(Settings)}
    settings = {name: given.pop(name) for name in list(given) if name in of_settings}
    if of_sampling:
        settings["sampling"] = _sampled(base.settings.sampling, of_sampling)
    return replace(base, settings=replace(base.settings, **settings), **given)


_SAMPLING = ("sampler", "batch_size", "fan_outs", "walk_length", "coverage")
_FIRST_TRY: dict[str, Sampling] = {
    "neighbor": Sampling("neighbor", 1024, fan_outs=(25, 10)),
    "walk": Sampling("walk", 1500),
    "node": Sampling("node", 4000),
    "edge": Sampling("edge", 2000),
    "layer": Sampling("layer", 256, fan_outs=(400, 400)),
}


def _sampled(own: Sampling | None, changes: dict[str, Any]) -> Sampling | None:
    kind: SampleKind | Literal["none"] | None = changes.pop("sampler", None)
    if kind == "none" or (kind is None and own is None):
        if changes:
            raise wrong(next(iter(changes)), "left out without a sampler", "a value", "name one")
        return None
    if kind is not None and (own is None or kind != own.kind):
        if kind not in _FIRST_TRY:
            raise wrong("sampler", f"'none' or one of {list(_FIRST_TRY)}", repr(kind))
        own = _FIRST_TRY[kind]
    assert own is not None
    return replace(own, **changes)


def teacher_recipe(model: str = "bi-gcn", graph: Graph | None = None, **changes: Any) -> Recipe:
    """The float twin of a model, to learn from: not the one that is best itself, but the one whose
    students are (docs/results.md).
    """
    return recipe(TWINS.get(model, model), graph=graph, distill=True, **changes)


def _table(graph: Graph | None, distill: bool) -> dict[str, Recipe]:
    labelled = 0 if graph is None or graph.train_idx is None else len(graph.train_idx)
    if graph is not None and labelled and labelled >= _MANY * graph.num_nodes:
        return MANY_LABELS
    return STUDENTS if distill else RECIPES


def settings_for(
    model: nn.Module, graph: Graph | None = None, *, distill: bool = False
) -> Settings:
    """The settings of the recipe whose model is of this kind, or the plain defaults."""
    if isinstance(model, GNN):
        for known in _table(graph, distill).values():
            kind = (known.binarize, known.conv, known.jump)
            if kind == tuple(model.config[key] for key in ("binarize", "conv", "jump")):
                return known.settings
    return Settings()

"""How to train: settings, and the models by name with those that served them on validation.

How they were chosen, and what else was tried: docs/results.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import nn

from bignn.binarize import BinarizeMode, SteRule
from bignn.errors import InputError, wrong
from bignn.graph import Graph
from bignn.nn import GCN, DropMode, NormMode


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

    """

    lr: float = 0.001
    weight_decay: float = 0.0
    beta1: float = 0.9
    last_layer_lr: float = 1.0
    epochs: int = 1000
    patience: int = 100
    distill_mix: float = 0.9
    temperature: float = 1.0

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
    dropout: float = 0.4
    input_dropout: float | None = None
    drop: DropMode = "all"
    balance: bool = False
    norm: NormMode = "none"
    normalize_rows: bool = True
    ste: SteRule = "input"

    def __post_init__(self) -> None:
        # As the model does, but by the names of the flags, and before there is a graph.
        for name in ("hidden", "layers"):
            if getattr(self, name) < 1:
                raise wrong(name, "at least 1", getattr(self, name))
        for name in ("dropout", "input_dropout"):
            p = getattr(self, name)
            if p is not None and not 0 <= p < 1:
                raise wrong(name, "in [0, 1)", p)

    def build(self, graph: Graph) -> GCN:
        """A freshly initialised model for this graph (draws from torch's generator)."""
        if graph.num_classes == 0:
            raise InputError(
                f"{graph.name}: training needs labels 'y'; 'bignn convert --labels' adds them"
            )
        return GCN(
            graph.num_features,
            self.hidden,
            self.layers,
            graph.num_classes,
            dropout=self.dropout,
            input_dropout=self.input_dropout,
            drop=self.drop,
            balance=self.balance,
            norm=self.norm,
            normalize_rows=self.normalize_rows,
            binarize=self.binarize,
            ste=self.ste,
        )


#: Where few nodes have labels, as in the citation graphs.
RECIPES = {
    "gcn": Recipe("none", Settings(lr=0.01, weight_decay=1e-3), dropout=0.8),
    "bi-gcn-f": Recipe("features", Settings(lr=0.001, weight_decay=0.0)),
    "bi-gcn-w": Recipe("weights", Settings(lr=0.001, weight_decay=0.0), dropout=0.6),
    "bi-gcn": Recipe("both", Settings(lr=0.001, weight_decay=0.0, beta1=0.5, last_layer_lr=0.3)),
}

#: The same with a teacher, whose opinion of every node makes up for the labels. Trials were made of
#: "gcn" and "bi-gcn"; the other two take after them.
STUDENTS = {
    "gcn": Recipe("none", Settings(lr=0.01, weight_decay=5e-4), dropout=0.5),
    "bi-gcn-f": Recipe("features", Settings(), dropout=0.2, input_dropout=0.8, drop="present"),
    "bi-gcn-w": Recipe("weights", Settings(), dropout=0.4, balance=True),
    "bi-gcn": Recipe("both", Settings(), dropout=0.2, input_dropout=0.8, drop="present"),
}

#: Where a tenth of the nodes or more have labels, with or without a teacher.
MANY_LABELS = {
    "gcn": Recipe("none", Settings(lr=0.01), hidden=128, dropout=0.2, normalize_rows=False),
    "bi-gcn-f": Recipe("features", Settings(), 128, dropout=0.2, drop="present", norm="batch"),
    "bi-gcn-w": Recipe("weights", Settings(), 128, dropout=0.2, balance=True, norm="batch"),
    "bi-gcn": Recipe(
        "both", Settings(), 128, dropout=0.2, drop="present", balance=True, norm="batch"
    ),
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
        changes: any field of :class:`Recipe` or :class:`Settings`; None keeps the recipe's own.

    """
    if model not in RECIPES:
        raise wrong("model", f"one of {list(RECIPES)}", repr(model))
    base = _table(graph, distill)[model]
    given = {name: value for name, value in changes.items() if value is not None}
    of_settings = {field.name for field in fields(Settings)}
    settings = {name: given.pop(name) for name in list(given) if name in of_settings}
    return replace(base, settings=replace(base.settings, **settings), **given)


def teacher_recipe(graph: Graph | None = None, **changes: Any) -> Recipe:
    """The float GCN to learn from: not the one that is best itself, but the one whose students are
    (docs/results.md).
    """
    return recipe("gcn", graph=graph, distill=True, **changes)


def _table(graph: Graph | None, distill: bool) -> dict[str, Recipe]:
    labelled = 0 if graph is None or graph.train_idx is None else len(graph.train_idx)
    if graph is not None and labelled and labelled >= _MANY * graph.num_nodes:
        return MANY_LABELS
    return STUDENTS if distill else RECIPES


def settings_for(
    model: nn.Module, graph: Graph | None = None, *, distill: bool = False
) -> Settings:
    """The settings of the recipe whose model is of this kind, or the plain defaults."""
    if isinstance(model, GCN):
        for known in _table(graph, distill).values():
            if known.binarize == model.config["binarize"]:
                return known.settings
    return Settings()

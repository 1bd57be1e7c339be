"""What a recipe is: a model's arguments and how to train it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

from bignn.binarize import BinarizeMode, SteRule
from bignn.errors import InputError, wrong
from bignn.graph import GraphLike, as_graph
from bignn.nn import GNN, MODELS, Activation, ConvName, DropMode, JumpMode, NormMode
from bignn.sampling import Sampling

SelectBy = Literal["loss", "accuracy"]


@dataclass(frozen=True)
class Settings:
    """How long and how fast to train.

    Attributes:
        lr: Adam's learning rate.
        weight_decay: Adam's coupled L2 penalty on weight matrices and attention vectors; biases
            are not decayed.
        beta1: Adam's memory of past gradients.
        last_layer_lr: factor on the learning rate of the last layer's weight matrices.
        epochs: at most so many.
        patience: stop after so many epochs without a better one.
        select_by: what makes an epoch better, and its weights the ones kept: the lower validation
            ``"loss"``, or the higher validation ``"accuracy"`` (the first of equals).
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
    select_by: SelectBy = "loss"
    distill_mix: float = 0.9
    temperature: float = 1.0
    inductive: bool = False
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("patience", 1)):
            if getattr(self, name) < least:
                raise wrong(name, f"at least {least}", getattr(self, name))
        if self.select_by not in get_args(SelectBy):
            raise wrong("select_by", f"one of {list(get_args(SelectBy))}", repr(self.select_by))
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
    scale_gradient: bool = True
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

    def build(self, graph: GraphLike) -> GNN:
        """A freshly initialised model for this graph (draws from torch's generator)."""
        graph = as_graph(graph)
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

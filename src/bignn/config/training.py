"""Declarations of the arguments of training: its length, its rates, and its batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from bignn.config.options import (
    BELOW_ONE,
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    about,
    check,
    check_choice,
    option,
)
from bignn.errors import InputError, did_you_mean, input_error

SampleKind = Literal["neighbor", "walk", "node", "edge", "layer"]
SelectBy = Literal["loss", "accuracy"]


@dataclass(frozen=True)
class Sampling:
    """Drawing of an epoch's batches.

    Attributes:
        kind: ``"neighbor"`` (GraphSAGE: some neighbours of each node), ``"walk"``, ``"node"``,
            ``"edge"`` (GraphSAINT: subgraphs by random walks, nodes or edges, with its
            normalisation) or ``"layer"`` (FastGCN: nodes per layer, by importance).
        batch_size: nodes whose loss is taken (``"neighbor"``, ``"layer"``); walks begun, or nodes
            or edges drawn, per subgraph.
        fan_outs: neighbours per hop, nearest first, -1 for all (``"neighbor"``); nodes per layer,
            first layer first (``"layer"``).
        walk_length: steps of a random walk.
        coverage: how often each node is drawn, on average, to estimate GraphSAINT's normalisation.

    """

    kind: SampleKind
    batch_size: int = field(metadata=about("nodes, walks or edges per batch", COUNT))
    fan_outs: tuple[int, ...] = option((), "neighbours per hop, -1 for all, or nodes per layer")
    walk_length: int = option(2, "steps of a random walk", COUNT)
    coverage: int = option(50, "how often GraphSAINT draws a node to estimate its weight", COUNT)

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, SampleKind)
        check(self)
        if self.kind in ("neighbor", "layer") and not self.fan_outs:
            what = "neighbours per hop" if self.kind == "neighbor" else "nodes per layer"
            raise input_error("fan_outs", f"given for '{self.kind}'", "none", f"{what}: (10, 10)")
        for number in self.fan_outs:
            if number < 1 and not (number == -1 and self.kind == "neighbor"):
                expected = "1 or more each, or -1 for all neighbours"
                raise input_error("fan_outs", expected, list(self.fan_outs))

    def check_model(self, conv: str, num_layers: int, *, jumps: bool) -> None:
        """Refuse a model that cannot be trained on such samples."""
        if self.kind == "layer" and (conv != "gcn" or jumps):
            got = f"'{conv}' convolutions" if conv != "gcn" else "jk='cat'"
            raise InputError(
                f"'sampler' cannot be 'layer' for a model with {got}: it is for plain GCNs"
            )
        if self.kind == "neighbor" and conv == "sgc":
            raise input_error("sampler", "'none' or a subgraph sampler for 'sgc'", "'neighbor'")
        if self.kind in ("neighbor", "layer") and len(self.fan_outs) != num_layers:
            raise input_error("fan_outs", f"a number per layer ({num_layers})", list(self.fan_outs))


@dataclass(frozen=True)
class Settings:
    """Length, rates and batches of training.

    Attributes:
        lr: Adam's learning rate.
        weight_decay: Adam's coupled L2 penalty on weight matrices and attention vectors; biases
            are not decayed.
        beta1: Adam's decay rate of the running mean of gradients.
        last_layer_lr: factor on the learning rate of the last layer's weight matrices.
        epochs: maximum number of epochs.
        patience: number of epochs without a better one after which training stops.
        select_by: criterion of the epoch whose weights are kept: the lowest validation ``"loss"``,
            or the highest validation ``"accuracy"`` (the first of equals).
        distill_mix: share of the loss that comes from a teacher; labels have the rest.
        temperature: divisor of the teacher's and the student's logits.
        leave_teacher: when the epochs with a teacher are over, train on from the best one's weights
            by labels alone, with as many epochs and as much patience again. The best epoch of all
            counts: a teacher that is worse than its student does not hold it back.
        inductive: training sees the training nodes and the edges among them only; evaluation is on
            the whole graph.
        sampling: how batches are drawn; None for the whole graph in one.

    """

    lr: float = option(0.001, "learning rate", POSITIVE)
    weight_decay: float = option(0.0, "L2 penalty", NOT_NEGATIVE)
    beta1: float = option(0.9, "Adam's first moment", BELOW_ONE)
    last_layer_lr: float = option(1.0, "factor on the last layer's learning rate", POSITIVE)
    epochs: int = option(1000, "maximum number of epochs", COUNT)
    patience: int = option(100, "stop after this many epochs without improvement", COUNT)
    select_by: SelectBy = option("loss", "what validation chooses the epoch by")
    distill_mix: float = option(0.9, "the teacher's share of the loss", SHARE)
    temperature: float = option(1.0, "temperature of distillation", POSITIVE)
    leave_teacher: bool = option(False, "train on by labels alone after the teacher")
    inductive: bool = option(False, "train on the training nodes alone")
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        check(self)

    def changed(self, changes: Mapping[str, Any]) -> Settings:
        """Return these settings with others in place of some, by name."""
        names = [option.name for option in fields(self)]
        for name in changes:
            if name not in names:
                expected = f"changes of some of {names}"
                raise input_error("settings", expected, repr(name), did_you_mean(name, names))
        return replace(self, **changes)

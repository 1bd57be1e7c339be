"""What a run learns from: the nodes of a graph, many graphs, or links; in batches, with a task."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from bignn.config import Settings
from bignn.config.input_bits import AUTO
from bignn.errors import input_error
from bignn.graph import Graph
from bignn.graph.split import has_many_labels
from bignn.nn import GNN
from bignn.nn.convert.converted_input import ConvertedInput
from bignn.runtime.input_bits import choose_input_bits
from bignn.train.batches import Batch, as_batch, reachable, take_loss_share, training_subgraph
from bignn.train.distill import soft_targets
from bignn.train.distributed import World
from bignn.train.ids import reads_ids
from bignn.train.recipes import settings_for
from bignn.train.sampled_batches import SampledBatches
from bignn.train.tasks import Task


class LearningProblem(Protocol):
    """What a run learns from.

    Attributes:
        name: what it is called in messages.
        task: what is predicted.
        device: where it is computed.
        num_nodes: nodes of the largest batch.
        class_names: names of classes or labels in the order of their numbers, where there are any.

    """

    name: str
    task: Task
    device: torch.device
    num_nodes: int
    class_names: tuple[str, ...] | None

    def digest(self) -> str:
        """Return a fingerprint of all that training reads."""

    def settings(self, model: nn.Module, *, distill: bool) -> Settings:
        """Return the settings that are used where none are given."""

    def prepare(self, model: nn.Module, settings: Settings, world: World) -> None:
        """Choose what training and validation see; called once, before anything below."""

    def fit_input(self, model: nn.Module) -> None:
        """Let a model with an input stage take the statistics of training nodes' features."""

    def trial(self) -> Batch:
        """Return a batch that the model, and teachers, are tried on."""

    def learn_from(self, teachers: Sequence[nn.Module], temperature: float) -> None:
        """Give the batches from now on the teachers' targets."""

    def batches(
        self, given: Iterable[Any] | None, model: nn.Module, settings: Settings, world: World
    ) -> tuple[Iterable[Any], bool]:
        """Return this process's batches of an epoch, and whether all processes have the same."""

    def as_batch(self, data: Any) -> Batch:
        """Return one of the batches of an epoch as tensors."""

    def statistics(self) -> Batch | None:
        """Return what exact statistics are taken of before validation; None for its own batch."""

    def validation(self) -> Iterable[Batch]:
        """Return this process's share of what the best epoch is chosen by."""

    def test(self, world: World) -> Iterable[Batch] | None:
        """Return this process's share of what the best epoch is tested on."""


class NodeProblem:
    """The nodes of one graph.

    Args:
        graph: the graph.
        whole: all of it as a batch, whose ``loss_nodes`` are the training nodes.
        task: what is predicted.
        val_idx: the validation nodes.
        test_idx: the test nodes, if there are any.
        ids: the features as whole numbers, if that is what they are: models that embed them are
            given these, all others floats.

    """

    def __init__(
        self,
        graph: Graph,
        whole: Batch,
        task: Task,
        val_idx: Tensor,
        test_idx: Tensor | None,
        ids: Tensor | None = None,
    ) -> None:
        self.graph, self.whole, self.task = graph, whole, task
        self.name, self.device, self.num_nodes = graph.name, whole.device, graph.num_nodes
        self.class_names = None if graph.class_names is None else tuple(graph.class_names)
        self.val_idx, self.test_idx, self._ids = val_idx, test_idx, ids

    def digest(self) -> str:
        """Return a fingerprint of the graph, and of targets that are not the graph's classes."""
        if self.graph.y is not None:
            return self.graph.digest()
        idx = [self.whole.loss_nodes, self.val_idx, self.test_idx]
        return digest_of([self.graph.digest(), self.whole.y, *idx])

    def settings(self, model: nn.Module, *, distill: bool) -> Settings:
        """Return the best known settings for such a model."""
        return settings_for(model, self.graph, distill=distill)

    def prepare(self, model: nn.Module, settings: Settings, world: World) -> None:
        """Cut out what training may see, and what validation needs."""
        self._is_inductive = settings.inductive
        if self._ids is not None and reads_ids(model, self.whole, self._ids):
            self.whole = replace(self.whole, x=self._ids)
        self._visible = training_subgraph(self.whole) if settings.inductive else self.whole
        share = replace(self.whole, loss_nodes=self.val_idx[world.share])
        self.validation_batch = reachable(share, model)

    def fit_input(self, model: nn.Module) -> None:
        """Take the statistics of the nodes that training may see."""
        x, options = self._visible.x, []
        is_auto = isinstance(model, GNN) and model.config["input_bits"] == AUTO
        if is_auto and isinstance(x, Tensor):
            many = has_many_labels(self.num_nodes, len(self.whole.loss_nodes))
            some = x.detach().float().cpu().numpy()
            options = [None, choose_input_bits(some, has_many_labels=many)]
        fit_input_stage(model, x, *options)

    def trial(self) -> Batch:
        """Return what training may see."""
        return self._visible

    def learn_from(self, teachers: Sequence[nn.Module], temperature: float) -> None:
        """Compute the teachers' targets of every node, once."""
        targets = soft_targets(teachers, self._visible, temperature, self.task)
        self._visible = replace(self._visible, targets=targets)

    def batches(
        self, given: Iterable[Any] | None, model: nn.Module, settings: Settings, world: World
    ) -> tuple[Iterable[Any], bool]:
        """Return the given batches, those that the settings ask for, or the whole graph."""
        if given is not None:
            return EveryNth(given, world.share), False
        if settings.sampling is None:
            return [take_loss_share(reachable(self._visible, model), world.share)], True
        if not isinstance(model, GNN):
            raise input_error(
                "batches", "given for a model of your own that trains on samples", None
            )
        return SampledBatches(settings.sampling, model, self._visible, world.share), False

    def as_batch(self, data: Any) -> Batch:
        """Return a batch as it is, and convert what a loader yields."""
        return as_batch(data, self.device)

    def statistics(self) -> Batch | None:
        """Return the training nodes of an inductive run; validation has all nodes otherwise."""
        return self._visible if self._is_inductive else None

    def validation(self) -> Iterable[Batch]:
        """Return the validation nodes and what they depend on."""
        return [self.validation_batch]

    def test(self, world: World) -> Iterable[Batch] | None:
        """Return the test nodes in the whole graph."""
        if self.test_idx is None:
            return None
        return [replace(self.whole, loss_nodes=self.test_idx[world.share])]


def fit_input_stage(model: nn.Module, x: Any, *options: Any) -> None:
    """Call ``fit_input`` of our models, and of those that bignn.binarize_ has made ours.

    A stage at a layer inside, which reads something else than x, is left alone.
    """
    fit_input = getattr(model, "fit_input", None)
    stage = getattr(fit_input, "__self__", None)
    if fit_input is not None and (not isinstance(stage, ConvertedInput) or stage.reads_x):
        fit_input(x, *options)


class EveryNth:
    """Every n-th of some batches; each iteration goes through the batches again."""

    def __init__(self, batches: Iterable[Any], share: slice) -> None:
        self._batches, self._share = batches, share

    def __iter__(self) -> Iterator[Any]:
        share = self._share
        return islice(iter(self._batches), share.start, share.stop, share.step)


def digest_of(parts: Iterable[Tensor | str | None]) -> str:
    """Return a fingerprint of tensors and texts."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, Tensor):
            state.update(f"{part.dtype} {list(part.shape)};".encode())
            octets = part.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            state.update(octets.numpy().tobytes())
        else:
            state.update(f"{part};".encode())
    return state.hexdigest()

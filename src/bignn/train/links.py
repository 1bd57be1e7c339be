"""Learning links: pairs of nodes are scored by the dot products of a model's outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from bignn.config import Settings
from bignn.errors import InputError, input_error
from bignn.train.batches import Batch, take_loss_share
from bignn.train.distill import soft_targets
from bignn.train.distributed import World
from bignn.train.problem import digest_of, fit_input_stage
from bignn.train.tasks import Task

_SETTINGS = Settings(lr=0.01, epochs=300, patience=50, leave_teacher=True)
# A drawn pair is a link by chance; after so many draws those that still are stay out.
_DRAWS = 8


@dataclass(frozen=True)
class PairBatch(Batch):
    """A graph and pairs of its nodes; ``y`` and the outputs are of pairs.

    Attributes:
        pairs: node ids [2, n].

    """

    pairs: Tensor | None = None

    def logits(self, model: nn.Module) -> Tensor:
        """Score the pairs: ``z_s · z_t``."""
        assert self.pairs is not None
        z = super().logits(model)
        if z.ndim != 2 or len(z) != len(self.data.x):
            fix = "return the embeddings of all nodes; pairs are scored by their dot products"
            raise input_error("model", "one that returns a row per node", list(z.shape), fix)
        return (z[self.pairs[0]] * z[self.pairs[1]]).sum(dim=-1)


def pairs_of(data: Any, argument: str, device: torch.device) -> PairBatch:
    """Convert a ``Data`` of PyG's ``RandomLinkSplit``."""
    pairs, y = data.get("edge_label_index"), data.get("edge_label")
    if pairs is None:
        fix = "split it with PyG's RandomLinkSplit"
        raise InputError(f"'{argument}' has no edge_label_index; {fix}")
    if y is None:
        y = torch.ones(pairs.shape[1])
    data = copy(data).to(device)
    learned = torch.arange(pairs.shape[1], device=device)
    weight = data.get("edge_weight")
    return PairBatch(
        data.x,
        data.edge_index,
        weight,
        y.to(device).float(),
        learned,
        edge_type=data.get("edge_type"),
        data=data,
        pairs=pairs.to(device),
    )


class LinkProblem:
    """Links of a graph: pairs of nodes that have one, and pairs that have not.

    Where the training pairs are all links, as many others are drawn anew in every epoch.

    Args:
        training, validation, test: the graph with pairs, as PyG's ``RandomLinkSplit`` makes it.
        loss_function: a loss of the user's; None for binary cross-entropy.

    """

    name = "links"
    class_names: tuple[str, ...] | None = None

    def __init__(
        self, training: PairBatch, validation: PairBatch, test: PairBatch | None, loss_function: Any
    ) -> None:
        self._training, self._validation, self._test = training, validation, test
        self.task = Task("links", 1, loss_function)
        self.device = training.device
        assert isinstance(training.x, Tensor)
        self.num_nodes = len(training.x)
        self._teachers: Sequence[nn.Module] = ()
        self._temperature = 1.0

    def digest(self) -> str:
        """Return a fingerprint of the graphs and pairs."""
        parts: list[Any] = []
        for batch in (self._training, self._validation, self._test):
            if batch is not None:
                parts += [batch.x, batch.edge_index, batch.edge_weight, batch.edge_type]
                parts += [batch.pairs, batch.y]
        return digest_of(parts)

    def settings(self, model: nn.Module, *, distill: bool) -> Settings:
        """Return settings for one batch per epoch."""
        return _SETTINGS

    def prepare(self, model: nn.Module, settings: Settings, world: World) -> None:
        """Note which share of the pairs is this process's."""
        self._share = world.share
        if settings.inductive or settings.sampling is not None:
            raise input_error("settings", "without 'inductive' and 'sampling' for links", "one")

    def fit_input(self, model: nn.Module) -> None:
        """Take the statistics of all nodes."""
        fit_input_stage(model, self._training.x)

    def trial(self) -> Batch:
        """Return the training pairs."""
        return self._training

    def learn_from(self, teachers: Sequence[nn.Module], temperature: float) -> None:
        """Compute teachers' targets of every batch, as it comes."""
        self._teachers, self._temperature = teachers, temperature

    def batches(
        self, given: Iterable[Any] | None, model: nn.Module, settings: Settings, world: World
    ) -> tuple[Iterable[Any], bool]:
        """Return all training pairs as one batch."""
        if given is not None:
            raise input_error("batches", "left out for links", "some")
        return _TrainingPairs(self._training), True

    def as_batch(self, data: PairBatch) -> Batch:
        """Return this process's share of a batch, with the teachers' targets."""
        if self._teachers:
            targets = soft_targets(self._teachers, data, self._temperature, self.task)
            data = replace(data, targets=targets)
        return take_loss_share(data, self._share)

    def statistics(self) -> Batch | None:
        """Return the training graph."""
        return self._training

    def validation(self) -> Iterable[Batch]:
        """Return this process's share of the validation pairs."""
        return [take_loss_share(self._validation, self._share)]

    def test(self, world: World) -> Iterable[Batch] | None:
        """Return this process's share of the test pairs."""
        return None if self._test is None else [take_loss_share(self._test, world.share)]


class _TrainingPairs:
    """The training pairs; links alone are joined by as many pairs that are none, drawn anew."""

    def __init__(self, training: PairBatch) -> None:
        self._training = training

    def __iter__(self) -> Iterator[PairBatch]:
        training = self._training
        if bool((training.y == 1).all()):
            assert training.pairs is not None
            drawn = _draw_others(training)
            y = torch.cat([training.y, torch.zeros(drawn.shape[1], device=training.device)])
            training = replace(
                training,
                y=y,
                pairs=torch.cat([training.pairs, drawn], dim=1),
                loss_nodes=torch.arange(len(y), device=training.device),
            )
        yield training


def _draw_others(training: PairBatch) -> Tensor:
    """Draw as many pairs as there are links, without links and pairs of a node with itself."""
    pairs, edges = training.pairs, training.edge_index
    assert isinstance(training.x, Tensor)
    assert isinstance(edges, Tensor)
    assert pairs is not None
    num_nodes = len(training.x)
    links = torch.cat([edges, pairs, pairs.flip(0)], dim=1)
    alone = torch.arange(num_nodes, device=training.device) * (num_nodes + 1)
    taken = torch.cat([links[0] * num_nodes + links[1], alone])
    drawn = torch.randint(num_nodes**2, (pairs.shape[1],), device=training.device)
    for _ in range(_DRAWS):
        is_link = torch.isin(drawn, taken)
        again = torch.randint(num_nodes**2, (len(drawn),), device=training.device)
        drawn = torch.where(is_link, again, drawn)
    drawn = drawn[~torch.isin(drawn, taken)]
    return torch.stack([drawn // num_nodes, drawn % num_nodes])

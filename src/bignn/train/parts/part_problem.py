"""Full-batch training on a graph in parts: each process has a part, the loss is of all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bignn.config import Settings
from bignn.errors import InputError, input_error
from bignn.kernels.edge_kinds import weigh_edges
from bignn.nn import GNN
from bignn.nn.adjacency import Aggregation
from bignn.nn.batch_norm import shared_statistics
from bignn.nn.features import BinaryRows
from bignn.nn.gat_conv import GATConv
from bignn.nn.gcn_conv import GCNConv
from bignn.nn.halo import PartMatrix
from bignn.nn.linear import FeaturesLike
from bignn.nn.sage_conv import SAGEConv
from bignn.runtime.parts.graph_part import GraphPart, StoredBits
from bignn.train.batches import Batch
from bignn.train.distill import soft_targets
from bignn.train.distributed import World
from bignn.train.parts.training_halo import (
    GradientForm,
    TrainingHalo,
    largest_over_processes,
    sum_over_processes,
)
from bignn.train.problem import fit_input_stage
from bignn.train.recipes import settings_for
from bignn.train.tasks import Loss, Task

#: Convolutions that run in parts.
CONVOLUTIONS = (GCNConv, SAGEConv, GATConv)


@dataclass(frozen=True)
class PartBatch(Batch):
    """The nodes of a part as a batch; statistics of batch normalisation are those of all parts."""

    world: World = field(default_factory=World)

    def logits(self, model: nn.Module) -> Tensor:
        """Return the model's output at the part's nodes; all processes must call it."""
        with shared_statistics(model, partial(sum_over_processes, self.world)):
            return super().logits(model)


class PartProblem:
    """The nodes of a graph in parts, of which this process has one.

    Args:
        part: the part.
        loss: as in :func:`bignn.fit`.
        device: where it is computed.
        gradients: how gradients of the halo are sent.

    """

    def __init__(
        self,
        part: GraphPart,
        loss: Loss | None,
        device: torch.device,
        gradients: GradientForm = "float",
    ) -> None:
        partition = part.partition
        absent = [key for key in ("y", "train_idx", "val_idx") if getattr(part, key) is None]
        if absent:
            raise InputError(f"{partition.name}: training needs {absent}; cut a graph that has it")
        if isinstance(loss, str) and loss != "cross_entropy":
            raise input_error("loss", "that of classes for a graph in parts", repr(loss))
        self.part, self.device, self.name = part, device, partition.name
        self.num_nodes = part.num_nodes
        self.class_names = partition.class_names
        function = loss if callable(loss) else None
        self.task = Task("classes", partition.num_classes, function)
        self._gradients = gradients

    def digest(self) -> str:
        """Return the fingerprint of the whole graph and its parts."""
        return f"{self.part.partition.digest} {self._gradients}"

    def settings(self, model: nn.Module, *, distill: bool) -> Settings:
        """Return the best known settings for such a model."""
        return settings_for(model, self.part.partition, distill=distill)

    def prepare(self, model: nn.Module, settings: Settings, world: World) -> None:
        """Connect the part with the others, and weigh its edges."""
        if world.size != self.part.partition.num_parts:
            expected = f"one of {world.size} parts, as many as there are processes"
            raise input_error("graph", expected, self.part.partition.num_parts)
        layer = _first_layer("model", model)
        if settings.sampling is not None:
            expected = "'none' for a graph in parts, which is trained full batch"
            raise input_error("sampler", expected, repr(settings.sampling.kind))
        if settings.inductive:
            raise input_error("inductive", "left out for a graph in parts", True)
        self._world = world
        self.halo = TrainingHalo(world, self.part, self.device, self._gradients)
        self._aggr = layer.aggr
        y, train = self._tensor(self.part.y), self._tensor(self.part.train_idx)
        self._whole: Batch = PartBatch(
            self._features(model),
            self._matrix(layer.aggr),
            None,
            y,
            train,
            world=world,
        )

    def _features(self, model: nn.Module) -> FeaturesLike:
        """Return the owned nodes' features; the bits of a store come with its input stage."""
        stored = self.part.x
        if not isinstance(stored, StoredBits):
            x = self.part.features_graph().dense_x()
            return torch.from_numpy(np.array(x)).to(self.device)
        assert isinstance(model, GNN)
        model.load_input_stage(stored.stage)
        # Copies, since tensors may be written to and files may not.
        words, beta = np.array(stored.words), np.array(stored.beta)
        return BinaryRows.of_bits(words, beta, stored.stage.num_columns).to(self.device)

    def _tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(np.array(array)).to(self.device)

    def _matrix(self, aggr: Aggregation) -> PartMatrix:
        """Weigh the part's edges, factors of rows and columns apart; halos' come from owners."""
        part = self.part
        name = "attention" if aggr == "ones_self" else aggr
        source, target, weights = part.edges
        weighed = weigh_edges(name, source, target, weights, part.num_local)
        is_mine = weighed.target < part.num_nodes  # not the loops of the halo's rows
        values = np.ones(len(weighed.target), dtype=np.float32)
        if weighed.weights is not None:
            values = weighed.weights
        column_factor = None
        if weighed.source_factor is not None:
            own = self._tensor(weighed.source_factor[: part.num_nodes]).unsqueeze(1)
            sent = own[self.halo.sent_rows].contiguous()
            arrived = self.halo.exchange.start_tensor(sent).wait_tensor()
            column_factor = torch.cat([own, arrived]).squeeze(1)
        row_factor = self._tensor(weighed.target_factor[: part.num_nodes])
        made = PartMatrix.from_entries(
            self._tensor(weighed.target[is_mine]),
            self._tensor(weighed.source[is_mine]),
            self._tensor(values[is_mine]),
            (part.num_nodes, part.num_local),
            row_factor,
            column_factor,
        )
        assert isinstance(made, PartMatrix)
        return replace(made, halo=self.halo)

    def fit_input(self, model: nn.Module) -> None:
        """Take the statistics of all nodes of the graph, unless a store had its own."""
        if isinstance(x := self._whole.x, Tensor):
            fit_input_stage(model, x, self._moments, self.part.partition.input_bits)

    def _moments(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        world, count = self._world, self.part.partition.num_nodes
        mean = sum_over_processes(world, rows.sum(dim=0)) / count
        squares = sum_over_processes(world, (rows - mean).square().sum(dim=0))
        largest = largest_over_processes(world, rows.abs().amax(dim=0))
        # The leader's first row: where a column is constant, any.
        first = sum_over_processes(world, rows[0] if world.is_leader else torch.zeros_like(rows[0]))
        return mean, (squares / count).sqrt(), largest, first

    def exchanged(self) -> dict[str, int]:
        """Count what all processes have sent since this run began, for reports."""
        forward, backward = self.halo.exchange.forward, self.halo.exchange.backward
        numbers = self._world.totals(
            forward.sent, forward.as_float32, backward.sent, backward.as_float32
        )
        names = ("forward_bytes", "forward_float32_bytes", "backward_bytes")
        counts = map(int, numbers)
        return dict(zip((*names, "backward_float32_bytes"), counts, strict=True))

    def trial(self) -> Batch:
        """Return the part."""
        return self._whole

    def learn_from(self, teachers: Sequence[nn.Module], temperature: float) -> None:
        """Compute the teachers' targets of every node, once."""
        if isinstance(self.part.x, StoredBits):
            raise InputError("learning from a teacher needs raw features, which no store has")
        for teacher in teachers:
            if (theirs := _first_layer("teacher", teacher).aggr) != self._aggr:
                expected = f"one that weighs neighbours as the model does ({self._aggr}), for parts"
                raise input_error("teacher", expected, theirs)
        targets = soft_targets(teachers, self._whole, temperature, self.task)
        self._whole = replace(self._whole, targets=targets)

    def batches(
        self, given: Iterable[Any] | None, model: nn.Module, settings: Settings, world: World
    ) -> tuple[Iterable[Any], bool]:
        """Return the part; each process has its own."""
        if given is not None:
            raise input_error("batches", "left out for a graph in parts", type(given).__name__)
        return [self._whole], False

    def as_batch(self, data: Any) -> Batch:
        """Return the batch as it is."""
        assert isinstance(data, Batch)
        return data

    def statistics(self) -> Batch | None:
        """Return None: validation has all nodes."""
        return None

    def validation(self) -> Iterable[Batch]:
        """Return the part with its validation nodes."""
        return [replace(self._whole, loss_nodes=self._tensor(self.part.val_idx), targets=None)]

    def test(self, world: World) -> Iterable[Batch] | None:
        """Return the part with its test nodes."""
        if self.part.test_idx is None:
            return None
        return [replace(self._whole, loss_nodes=self._tensor(self.part.test_idx), targets=None)]


def _first_layer(argument: str, model: nn.Module) -> GCNConv | SAGEConv | GATConv:
    """Return the first layer of a model that runs in parts; refuse others."""
    first = model.convs[0] if isinstance(model, GNN) else None
    if not isinstance(first, CONVOLUTIONS):
        got = model.config["conv"] if isinstance(model, GNN) else type(model).__name__
        expected = "a bignn.nn.GNN of 'gcn', 'mean-gcn', 'sage' or 'gat' layers for parts"
        raise input_error(argument, expected, repr(got))
    return first

"""Learning from many graphs: batches of whole graphs, with targets of graphs or of their nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch as PyGBatch

from bignn.config import Settings
from bignn.errors import InputError, input_error
from bignn.graph.graph import from_arrays
from bignn.graph.names import class_names_of
from bignn.graph.pyg import array_of
from bignn.graph.several import check_edges_within
from bignn.train.batches import Batch
from bignn.train.distill import soft_targets
from bignn.train.distributed import World
from bignn.train.problem import EveryNth, digest_of, fit_input_stage
from bignn.train.tasks import Loss, task_of

#: Settings that are used where none are given: an epoch has many steps.
_SETTINGS = Settings(lr=0.001, epochs=100, patience=20, leave_teacher=True)
# Statistics of the input stage and of batch normalisation are those of this many graphs, evenly
# spaced, and of no more than this many numbers.
_NUM_STATISTICS_GRAPHS = 1024
_MAX_STATISTICS_NUMBERS = 1 << 27
# The mask that chooses nodes of the graphs of each argument.
_MASKS = {"graph": "train_mask", "val": "val_mask", "test": "test_mask"}


class GraphSet:
    """Graphs in a list, or in a loader's batches, one after the other as :class:`Batch`."""

    def __init__(self, graphs: Any, argument: str, batch_size: int, device: torch.device) -> None:
        self.graphs, self._device, self._batch_size = graphs, device, batch_size
        self._argument = argument
        #: The mask of the nodes that count, where targets are of nodes and the graphs have it.
        self._mask = _MASKS[argument]
        if isinstance(graphs, PyGBatch):
            self.graphs = graphs.to_data_list()
        elif not isinstance(graphs, Iterable) or iter(graphs) is graphs:
            expected = "a list of PyG Data, a Batch, or a loader of Batches"
            raise input_error(argument, expected, type(graphs).__name__)
        #: Whether graphs come one by one instead of in a loader's batches.
        self.is_list = hasattr(self.graphs, "__getitem__") and hasattr(self.graphs, "__len__")
        if self.is_list and len(self.graphs) == 0:
            raise input_error(argument, "at least one graph", "none")

    def check(self) -> GraphSet:
        """Refuse a graph of a list without nodes, with ids of none, or with unlike features."""
        width = None
        for number in range(len(self.graphs) if self.is_list else 0):
            data = self.graphs[number]
            name = f"graph {number}" if self._argument == "graph" else f"{self._argument}[{number}]"
            try:
                self._check(data)
                x = array_of("x", data.x, as_floats=True)
                x = x.reshape(len(x), math.prod(x.shape[1:]))
                edges = array_of("edge_index", data.edge_index)
                from_arrays({"x": x, "edge_index": edges}, name=name)
                width = x.shape[1] if width is None else width
                if x.shape[1] != width:
                    expected = f"as wide as that of the first graph ({width} features)"
                    raise input_error("x", expected, x.shape[1])
            except InputError as error:
                raise InputError(f"{name}: {str(error).removeprefix(f'{name}: ')}") from None
        return self

    def numbered(self, numbers: Iterable[int], argument: str) -> GraphSet:
        """Return the graphs of a list that have some numbers, in the part of an argument."""
        chosen = [self.graphs[number] for number in numbers]
        return GraphSet(chosen, argument, self._batch_size, self._device)

    def sample(self, count: int) -> Batch:
        """Return up to ``count`` graphs of a list, evenly spaced, or a loader's first batch."""
        if not self.is_list:
            return self.as_batch(next(iter(self.graphs)))
        step = -(-len(self.graphs) // count)
        return self.as_batch([self.graphs[at] for at in range(0, len(self.graphs), step)])

    def shuffled(self) -> Iterator[Any]:
        """Yield the batches of an epoch: lists of graphs in a new order, or a loader's."""
        if not self.is_list:
            yield from self.graphs
            return
        order = torch.randperm(len(self.graphs)).tolist()
        for at in range(0, len(order), self._batch_size):
            yield [self.graphs[number] for number in order[at : at + self._batch_size]]

    def __iter__(self) -> Iterator[Batch]:
        if not self.is_list:
            yield from map(self.as_batch, self.graphs)
            return
        for at in range(0, len(self.graphs), self._batch_size):
            part = range(at, min(at + self._batch_size, len(self.graphs)))
            yield self.as_batch([self.graphs[number] for number in part])

    def as_batch(self, data: Any) -> Batch:
        """Convert a list of graphs, or what a loader yields."""
        if isinstance(data, list | tuple):
            for graph in data:
                self._check(graph)
            if len({graph.get(self._mask) is None for graph in data}) > 1:
                fix = "give every Data one, or none"
                raise input_error(self._mask, "of all graphs", "that of some", fix)
            data = PyGBatch.from_data_list(data)
        self._check(data)
        if not self.is_list and data.get("batch") is not None:
            edges = array_of("edge_index", data.edge_index)
            if edges.size and not 0 <= edges.min() <= edges.max() < len(data.batch):
                raise input_error("edge_index", f"node ids below {len(data.batch)}", edges.max())
            check_edges_within(array_of("batch", data.batch), edges)
        data = data.to(self._device)
        y = data.y
        if y.ndim == 2 and y.shape[1] == 1 and not y.is_floating_point():
            y = y[:, 0]
        if data.get("batch") is None:  # one graph
            data.batch = torch.zeros(data.num_nodes, dtype=torch.long, device=self._device)
        rows = {int(data.batch[-1]) + 1: "graph", data.num_nodes: "node"}
        if y.ndim not in (1, 2) or len(y) not in rows:
            expected = f"one target per graph ({next(iter(rows))} rows) or per node"
            fix = "give every Data a 'y' of shape [1] or [1, targets]"
            raise input_error("y", expected, f"shape {list(y.shape)}", fix)
        learned = torch.arange(len(y), device=self._device)
        if rows[len(y)] == "node" and (mask := data.get(self._mask)) is not None:
            if mask.dtype != torch.bool or mask.shape != learned.shape:
                got = f"{str(mask.dtype).removeprefix('torch.')} of shape {list(mask.shape)}"
                raise input_error(self._mask, f"one boolean per node [{len(y)}]", got)
            learned = learned[mask]
        weight = data.get("edge_weight")
        types = data.get("edge_type")
        return Batch(data.x, data.edge_index, weight, y, learned, edge_type=types, data=data)

    def _check(self, data: Any) -> None:
        if not hasattr(data, "keys") or getattr(data, "edge_index", None) is None:
            raise input_error(self._argument, "of PyG Data", type(data).__name__)
        for name in ("x", "y"):
            if getattr(data, name, None) is None:
                raise InputError(
                    f"'{self._argument}' has a Data without {name}; give every one its {name}"
                )

    def class_names(self) -> tuple[str, ...] | None:
        """Return the names of classes that the first graph of a list has, if it has any."""
        names = getattr(self.graphs[0], "class_names", None) if self.is_list else None
        return None if names is None else class_names_of(names)

    def targets(self) -> Tensor:
        """Return the targets of all graphs, whose type decides the task."""
        return torch.cat([batch.y for batch in self])

    def refuse_without_terms(self) -> None:
        """Refuse a list of graphs whose masks have no node."""
        if self.is_list and not any(len(batch.loss_nodes) for batch in self):
            raise InputError(f"'{self._mask}' has no True in any graph of '{self._argument}'")

    def tensors(self) -> Iterator[Tensor]:
        """Yield all tensors that are read of the graphs, in an order that is always the same."""
        graphs = self.graphs if self.is_list else getattr(self.graphs, "dataset", ())
        for data in graphs:
            names = ("x", "edge_index", "edge_weight", "edge_attr", "edge_type", "y", self._mask)
            for name in names:
                if isinstance(part := data.get(name), Tensor):
                    yield part


class GraphSetProblem:
    """Many graphs: some to train on, some to validate and to test.

    Args:
        training: the graphs to train on.
        validation: graphs to choose the best epoch by.
        test: graphs to test on, if there are any.
        loss: the loss, by name or as a function; None for that of the targets' type.
        device: where to compute.

    """

    name = "graphs"

    def __init__(
        self,
        training: GraphSet,
        validation: GraphSet,
        test: GraphSet | None,
        loss: Loss | None,
        device: torch.device,
    ) -> None:
        self._training, self._validation, self._test = training, validation, test
        self.device = device
        self._sample = training.sample(_NUM_STATISTICS_GRAPHS)
        self.num_nodes = len(self._sample.data.batch)
        self.class_names = training.class_names()
        self.task = task_of(training.targets(), loss)
        for graphs in (training, validation):
            graphs.refuse_without_terms()
        self._teachers: Sequence[nn.Module] = ()
        self._temperature = 1.0

    def digest(self) -> str:
        """Return a fingerprint of all graphs that can be listed."""
        sets = [self._training, self._validation, *([self._test] if self._test else [])]
        return digest_of(tensor for graphs in sets for tensor in graphs.tensors())

    def settings(self, model: nn.Module, *, distill: bool) -> Settings:
        """Return settings for epochs of many steps."""
        return _SETTINGS

    def prepare(self, model: nn.Module, settings: Settings, world: World) -> None:
        """Note which share of the graphs is this process's."""
        self._share = world.share
        if settings.inductive or settings.sampling is not None:
            raise input_error(
                "settings", "without 'inductive' and 'sampling' for many graphs", "one"
            )

    def fit_input(self, model: nn.Module) -> None:
        """Take the statistics of the nodes of some training graphs, evenly spaced."""
        x: Tensor = self._sample.data.x
        fit_input_stage(model, x[:: -(-x.numel() // _MAX_STATISTICS_NUMBERS)])

    def trial(self) -> Batch:
        """Return some training graphs."""
        return self._sample

    def learn_from(self, teachers: Sequence[nn.Module], temperature: float) -> None:
        """Compute teachers' targets of every batch, as it comes."""
        self._teachers, self._temperature = teachers, temperature

    def batches(
        self, given: Iterable[Any] | None, model: nn.Module, settings: Settings, world: World
    ) -> tuple[Iterable[Any], bool]:
        """Return batches of the training graphs, in a new order every epoch."""
        if given is not None:
            raise input_error("batches", "left out for many graphs", "some", "pass the loader")
        return EveryNth(_ShuffledGraphs(self._training), world.share), False

    def as_batch(self, data: Any) -> Batch:
        """Return graphs as a batch, with the teachers' targets."""
        batch = self._training.as_batch(data)
        if not self._teachers:
            return batch
        targets = soft_targets(self._teachers, batch, self._temperature, self.task)
        return replace(batch, targets=targets)

    def statistics(self) -> Batch | None:
        """Return some training graphs."""
        return self._sample

    def validation(self) -> Iterable[Batch]:
        """Return this process's share of the validation graphs."""
        return EveryNth(self._validation, self._share)

    def test(self, world: World) -> Iterable[Batch] | None:
        """Return this process's share of the test graphs."""
        return None if self._test is None else EveryNth(self._test, world.share)


class _ShuffledGraphs:
    """The batches of an epoch; each iteration shuffles anew."""

    def __init__(self, graphs: GraphSet) -> None:
        self._graphs = graphs

    def __iter__(self) -> Iterator[Any]:
        return self._graphs.shuffled()


def split_off(graphs: GraphSet, share: float, seed: int) -> tuple[GraphSet, GraphSet]:
    """Split a share of a list of graphs off at random: ``(the rest, the share)``."""
    if not graphs.is_list:
        raise input_error("val", "graphs for a loader", share, "split the data set first")
    count = len(graphs.graphs)
    size = round(share * count) if 0 < share < 1 else 0
    if count == 1:
        fix = "for one graph with masks call fit(model, data)"
        raise InputError(
            f"'val' must be given for a list of one graph, which cannot be split; {fix}"
        )
    if not 0 < size < count:
        expected = f"a share, as 0.2, that leaves some of {count} graphs on both sides"
        raise input_error("val", expected, share)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    rest, chosen = sorted(order[size:]), sorted(order[:size])
    return graphs.numbered(rest, "graph"), graphs.numbered(chosen, "val")

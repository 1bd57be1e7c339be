"""Training from a store: sampled batches of bits, whatever the graph's size.

Nothing of the size of the features or of the edges is read into memory: batches unpack the rows
that they sampled, and samplers read the mapped edges. Validation and test are on sampled
neighbourhoods too, the same ones in every epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bignn.config import Sampling, Settings
from bignn.errors import InputError, input_error, not_for_a_store
from bignn.kernels.random import random_word
from bignn.kernels.sampling import sample_neighbours
from bignn.loaders.seeded import SeededIndex, SeededLoader, seed_and_indices
from bignn.loaders.store import MappedEdges
from bignn.nn import GNN
from bignn.nn.features import BinaryRows
from bignn.runtime.store import Store
from bignn.runtime.store.row_edges import RowEdges
from bignn.train.batches import Batch
from bignn.train.distributed import World
from bignn.train.problem import EveryNth
from bignn.train.recipes import recipe, recipe_name
from bignn.train.sampled_batches import hop_matrices
from bignn.train.tasks import Task

#: Nodes of a batch that is only evaluated, and most nodes that validate after an epoch.
_EVALUATED_AT_ONCE = 512
_MOST_VALIDATED = 4096
#: Seeds of what is the same in every epoch.
_VALIDATION, _TEST, _STATISTICS = 1, 2, 3
_BLOCK_ROWS = 1 << 18


class StoreProblem:
    """The nodes of a store.

    Args:
        store: the store, with labels and a train and val split.
        loss: a function of outputs and targets; None for cross-entropy.
        device: where batches go.

    """

    def __init__(self, store: Store, loss: Any, device: torch.device) -> None:
        absent = [key for key in ("train_idx", "val_idx") if store.split(key) is None]
        if store.labels is None or absent:
            raise InputError(
                f"{store.name}: training needs labels and {' and '.join(absent) or 'splits'}; "
                "'bignn pack-features X -o DIR --labels FILE.npz' adds them"
            )
        self.store, self.device = store, device
        self.name, self.num_nodes = store.name, store.num_nodes
        self.class_names: tuple[str, ...] | None = None
        self.task = Task("classes", store.num_classes, loss)
        self._sampler: _StoreSampler | None = None

    def digest(self) -> str:
        """Return a fingerprint of the store."""
        return self.store.digest()

    def settings(self, model: nn.Module, *, distill: bool) -> Settings:
        """Return the settings of the model's recipe, with neighbour sampling."""
        name = recipe_name(model)
        if name is None or not isinstance(model, GNN):
            raise input_error("settings", "given for a model of your own on a store", None)
        made = recipe(name, graph=self.store, distill=distill, sampler="neighbor",
                      inductive=False, num_layers=len(model.convs))  # fmt: skip
        return made.settings

    def prepare(self, model: nn.Module, settings: Settings, world: World) -> None:
        """Give the model the store's input stage, and make the sampler."""
        if not isinstance(model, GNN):
            raise input_error("model", "a bignn.nn.GNN to train on a store", type(model).__name__)
        sampling = settings.sampling
        if sampling is None or sampling.kind != "neighbor":
            got = "the whole graph" if sampling is None else repr(sampling.kind)
            raise input_error("sampler", "'neighbor' to train on a store", got)
        if settings.inductive:
            raise not_for_a_store("inductive", True)
        sampling.check_model(model.config["conv"], len(model.convs), jumps=model.lin is not None)
        model.load_input_stage(self.store.stage)
        self._sampler = _StoreSampler(self.store, model, sampling, self.device)
        self._world = world

    def fit_input(self, model: nn.Module) -> None:
        """Do nothing: the statistics are the store's, which :meth:`prepare` gave the model."""

    def trial(self) -> Batch:
        """Return a batch of some validation nodes."""
        return next(iter(self.validation()))

    def learn_from(self, teachers: Sequence[nn.Module], temperature: float) -> None:
        """Refuse: teachers would have to predict all nodes."""
        raise InputError("learning from a teacher needs a graph in memory; a store has none")

    def batches(
        self, given: Iterable[Any] | None, model: nn.Module, settings: Settings, world: World
    ) -> tuple[Iterable[Any], bool]:
        """Return the given batches, or sampled ones of the training nodes."""
        if given is not None:
            return EveryNth(given, world.share), False
        return _StoreBatches(self._made, self._nodes("train_idx"), world.share), False

    @property
    def _made(self) -> _StoreSampler:
        assert self._sampler is not None, "prepare comes first"
        return self._sampler

    def _nodes(self, key: str) -> NDArray[np.int64]:
        nodes = self.store.split(key)
        assert nodes is not None
        return nodes

    def as_batch(self, data: Any) -> Batch:
        """Return a batch as it is."""
        assert isinstance(data, Batch)
        return data

    def statistics(self) -> Batch | None:
        """Return a sample that the statistics of batch normalisation are taken of."""
        nodes = self._nodes("train_idx")
        chosen = nodes[:: max(1, len(nodes) // (4 * _EVALUATED_AT_ONCE))]
        return self._made.batch(chosen[: 4 * _EVALUATED_AT_ONCE], _STATISTICS)

    def validation(self) -> Iterable[Batch]:
        """Return this process's share of the validation nodes, or of 4,096 of many."""
        nodes = self._nodes("val_idx")
        nodes = nodes[:: max(1, -(-len(nodes) // _MOST_VALIDATED))][self._world.share]
        return _FixedBatches(self._made, nodes, _VALIDATION)

    def test(self, world: World) -> Iterable[Batch] | None:
        """Return this process's share of the test nodes."""
        nodes = self.store.split("test_idx")
        if nodes is None:
            return None
        return _FixedBatches(self._made, nodes[world.share], _TEST)


class _StoreSampler:
    """Makes batches around nodes of a store, for one model."""

    def __init__(self, store: Store, model: GNN, sampling: Sampling, device: torch.device) -> None:
        self.store, self.sampling, self.device = store, sampling, device
        self._graph = MappedEdges(store).compressed()
        self._aggr = model.layers[0].aggr
        #: 1 / sqrt(degree) with self-loops, for sums that take nodes themselves in.
        self._scale: NDArray[np.float32] | None = None
        if self._aggr in ("gcn", "mean_self"):
            self._scale = RowEdges(store, _BLOCK_ROWS).source_scale("gcn")
        elif self._aggr not in ("mean", "ones_self"):
            raise input_error("model", "one of gcn, mean-gcn, sage or gat on a store", self._aggr)

    def batch(self, seeds: NDArray[np.int64], seed: int) -> Batch:
        """Sample the neighbourhood of some nodes."""
        found = sample_neighbours(self._graph, seeds, self.sampling.fan_outs, seed=seed)
        nodes = found.nodes
        source = torch.from_numpy(found.edges.sources)
        target = torch.from_numpy(found.edges.targets)
        values, own = self._weights(nodes, source, target)
        place = self.device
        matrices = hop_matrices(
            source.to(place),
            target.to(place),
            values.to(place),
            None if own is None else own.to(place),
            len(nodes),
            found.nodes_per_hop,
        )
        x = BinaryRows.of_bits(self.store.words[nodes], self.store.beta[nodes], self.store.num_bits)
        y = torch.from_numpy(self.store.y[nodes[: len(seeds)]].astype(np.int64))
        loss_nodes = torch.arange(len(seeds), device=place)
        return Batch(x.to(place), matrices, None, y.to(place), loss_nodes)

    def _weights(
        self, nodes: NDArray[np.int64], source: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Return weights of sampled edges and of the nodes' own terms, as SampledBatches does.

        Where k of d edges were drawn, each has its weight in the whole graph times d / k.
        """
        if self._aggr == "ones_self":
            return torch.ones(len(source)), torch.ones(len(nodes))
        drawn = torch.bincount(target, minlength=len(nodes)).clamp(min=1)
        if self._scale is None:
            return (1.0 / drawn)[target], None
        offsets = self._graph.offsets
        degree = torch.from_numpy(offsets[nodes + 1] - offsets[nodes])
        scale = torch.from_numpy(self._scale[nodes])
        own = scale * scale
        weight = scale[source] * scale[target] if self._aggr == "gcn" else own[target]
        return weight * (degree / drawn)[target], own


class _StoreBatches:
    """Batches of an epoch, in a new order each time; draws come from torch's generator."""

    def __init__(self, sampler: _StoreSampler, nodes: NDArray[np.int64], share: slice) -> None:
        self._sampler, self._nodes = sampler, nodes
        size = -(-sampler.sampling.batch_size // (share.step or 1))
        self._loader = SeededLoader(
            nodes, collate_fn=self._batch, batch_size=size, shuffle=True, share=share
        )

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._loader)

    def __len__(self) -> int:
        return len(self._loader)

    def _batch(self, indices: list[SeededIndex]) -> Batch:
        seed, places = seed_and_indices(indices)
        return self._sampler.batch(np.asarray(self._nodes[places]), seed)


class _FixedBatches:
    """Batches of some nodes, the same in every iteration."""

    def __init__(self, sampler: _StoreSampler, nodes: NDArray[np.int64], purpose: int) -> None:
        self._sampler, self._nodes, self._purpose = sampler, nodes, purpose

    def __iter__(self) -> Iterator[Batch]:
        for begin in range(0, len(self._nodes), _EVALUATED_AT_ONCE):
            seeds = np.asarray(self._nodes[begin : begin + _EVALUATED_AT_ONCE])
            yield self._sampler.batch(seeds, random_word(self._purpose, begin))

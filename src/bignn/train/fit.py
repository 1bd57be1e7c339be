"""The only training loop. Full-batch, neighbour and subgraph training differ in their batches.

One process or several (``torchrun``) run it: a process alone is a world of one, whose share is all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from bignn.config.options import check_choice
from bignn.errors import input_error
from bignn.files import checked_path, prepare, remove_leftovers
from bignn.graph import Graphs
from bignn.runtime.parts.graph_part import GraphPart
from bignn.runtime.store import Store
from bignn.train import distributed
from bignn.train.checks import check_parameters
from bignn.train.distill import Teacher, checked_teachers
from bignn.train.find_problem import find_problem
from bignn.train.parts.training_halo import GradientForm
from bignn.train.problem import LearningProblem
from bignn.train.recipes import Settings
from bignn.train.recorded import Lane
from bignn.train.result import FitResult
from bignn.train.run import TrainingRun
from bignn.train.tasks import Loss

__all__ = ["FitResult", "fit"]

#: How accurate a model shall be, at which cost: one training, or the best known.
Quality = Literal["plain", "best"]

#: Graphs of up to this many nodes train on one of torch's threads (ours stay as they are).
_MAX_NODES_ON_ONE_THREAD = 4096


def fit(
    model: nn.Module,
    graph: Graphs | Iterable[Any] | Store | GraphPart,
    settings: Settings | Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    teacher: Teacher | None = None,
    device: str | None = None,
    batches: Iterable[Any] | None = None,
    val: Any = None,
    test: Any = None,
    loss: Loss | None = None,
    batch_size: int = 32,
    checkpoint_path: str | os.PathLike[str] | None = None,
    resume: bool = False,
    save_every: float = 10.0,
    progress: bool = True,
    on_epoch: Callable[[int, float, float], object] | None = None,
    quality: Quality = "plain",
    halo_gradients: GradientForm = "float",
    node_type: str | None = None,
) -> FitResult:
    """Train a model in place; it ends with the weights of its best epoch on validation.

    Under ``torchrun`` all processes call it alike and train one model together: each takes its
    share of the loss (docs/design.md), all end with the leader's weights bit for bit, and the
    leader (rank 0) shows the bar and writes the checkpoint.

    Args:
        model: anything called as ``model(x, edge_index, ...)``, ``model(data)`` or
            ``model(x_dict, edge_index_dict, ...)`` that returns logits, or values; of many graphs
            a row per graph, or per node; for links embeddings, whose dot products are scores. Its
            forward is given, by their names, edge_weight, edge_type, edge_attr and batch where the
            graph has them, and what has no default.
        graph: one of these. A :class:`bignn.Graph` or a PyG ``Data`` with labels and a train and
            val split, or a ``Dataset`` of one; ``Data.y`` may also be labels of 0 and 1 [nodes,
            labels] or numbers; its names of classes become ``model.class_names``. Many
            graphs: a list of PyG ``Data``, a ``Batch``, or a loader of batches; where targets are
            of nodes, their ``train_mask`` (of ``val`` and ``test`` theirs) chooses some. Links: a
            ``Data`` with ``edge_label_index``, as PyG's ``RandomLinkSplit`` makes it; where all of
            them are links, as many other pairs are drawn in every epoch. A part of a graph
            (:func:`bignn.open_part`), one in each process: all train on the whole graph together.
            A ``HeteroData`` whose nodes of one type have ``y``, ``train_mask`` and ``val_mask``.
        settings: by default the best known for this kind of model (``bignn.train.recipes``); a
            dictionary such as ``{"epochs": 50}`` changes these. With ``leave_teacher``, the default
            of converted models, links and many graphs, a run with a teacher takes up to twice as
            many epochs.
        seed: the seed of dropout and sampling; the model's initial weights are the caller's.
        teacher: a trained model to learn from, on every node, labelled or not (on the nodes of the
            batch where neighbours or layers are sampled); or several, whose
            probabilities are averaged. ``settings.distill_mix`` is their share of the loss.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ...; None is the model's own. Under
            ``torchrun``, ``"cuda"`` is each process's own GPU.
        batches: a list or a loader (not a generator) of PyG's ``Data``, iterated once per epoch;
            the loss is taken on the nodes of its ``train_mask``, or on a neighbour loader's seeds.
            Resuming is exact if the loader draws from torch's generator. By default the samples
            of ``settings.sampling``, or the whole graph in one batch, without the nodes that are
            too far away from the training nodes to matter. Several processes take them in turn.
        val: of many graphs those that validate, in any form that ``graph`` has, or the share of a
            list that does (default 0.1, drawn by ``seed``); of links a ``Data`` with other pairs.
        test: of many graphs and links, what the result is tested on; None for nothing.
        loss: ``"cross_entropy"``, ``"bce"`` (labels that do not exclude each other), ``"mse"`` or
            ``"l1"``, or a function of outputs and targets. By default whole numbers are classes
            (cross-entropy), several numbers of 0 and 1 are labels (BCE), others are values (MSE).
        batch_size: graphs per batch where ``graph`` is a list.
        checkpoint_path: the .safetensors file to save the run to; None does not save.
        resume: continue from ``checkpoint_path`` if it exists; the result is that of a run that was
            never interrupted.
        save_every: seconds between checkpoints.
        progress: show a bar on stderr, or, if that is no terminal, a line every ten seconds.
        on_epoch: called after each epoch with its number, validation loss and score (accuracy), for
            example to log them.
        quality: ``"best"`` trains a binary model of ours with four float teachers, which are
            trained first, and without them, and keeps the better one on validation (classes of one
            graph only). The width stays the model's own; ``bignn train --quality best`` chooses it.
        halo_gradients: how processes with parts of a graph send gradients to each other:
            ``"float"``, or ``"int8"`` for a quarter of the bytes (with error feedback; what
            rounding left over is not part of a checkpoint).
        node_type: of a ``HeteroData``, the type of nodes that is learned; None where one type alone
            has labels and masks.

    """
    check_choice("quality", quality, Quality)
    check_choice("halo_gradients", halo_gradients, GradientForm)
    if quality == "best":
        from bignn.train.quality import fit_best

        others = {
            "teacher": teacher,
            "batches": batches,
            "val": val,
            "test": test,
            "loss": loss,
            "checkpoint_path": checkpoint_path,
        }
        for name, value in others.items():
            if value is not None:
                raise input_error(name, "left out with quality 'best'", type(value).__name__)
        same: dict[str, Any] = {"device": device, "progress": progress, "on_epoch": on_epoch}
        return fit_best(model, graph, settings, seed=seed, **same)  # type: ignore[arg-type]
    if not isinstance(model, nn.Module):
        raise input_error("model", "a torch.nn.Module", type(model).__name__)
    check_parameters(model)
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        raise input_error("seed", "a whole number, 0 or more", seed)
    if resume and checkpoint_path is None:
        raise input_error("checkpoint_path", "given when 'resume' is true", None)
    if checkpoint_path is not None and checked_path(checkpoint_path).suffix != ".safetensors":
        expected = "a file name ending in .safetensors"
        raise input_error("checkpoint_path", expected, repr(os.fspath(checkpoint_path)))
    if not save_every >= 0:
        raise input_error("save_every", "0 seconds or more", save_every)
    if settings is not None and not isinstance(settings, (Settings, Mapping)):
        expected = "bignn.Settings, or a dictionary of what to change"
        raise input_error("settings", expected, type(settings).__name__, 'as {"epochs": 200}')
    if batches is not None and not isinstance(batches, Iterable):
        raise input_error("batches", "a list or a loader", type(batches).__name__)
    if batches is not None and iter(batches) is batches:
        raise input_error(
            "batches", "iterable again and again, as a list or a loader", "an iterator"
        )
    place = _find_device(device, model)
    if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
        raise input_error("batch_size", "a number of graphs, at least 1", batch_size)
    teachers = [] if teacher is None else checked_teachers(teacher)
    if any(one is model for one in teachers):
        raise input_error("teacher", "another model than 'model'", "the same")
    with ExitStack() as stack:
        stack.enter_context(seeded_generators(seed, place))
        problem = find_problem(
            graph, val, test, loss, batch_size, seed, place, halo_gradients, node_type
        )
        stack.enter_context(threads_for(problem.num_nodes))
        started = StartedFit(
            model, problem, settings, seed, teachers, batches, checkpoint_path,
            resume=resume, save_every=save_every, progress=progress, on_epoch=on_epoch,
        )  # fmt: skip
        while started.advance():
            pass
        return started.result()


class StartedFit:
    """A training run that is done an epoch at a time, so that several can take turns.

    Made, as it goes on, where torch's generators are seeded; on a GPU it draws from a state of its
    own from then on.
    """

    def __init__(
        self,
        model: nn.Module,
        problem: LearningProblem,
        settings: Settings | Mapping[str, Any] | None,
        seed: int,
        teachers: Sequence[nn.Module],
        batches: Iterable[Any] | None = None,
        checkpoint_path: str | os.PathLike[str] | None = None,
        *,
        resume: bool = False,
        save_every: float = 10.0,
        progress: bool = True,
        on_epoch: Callable[[int, float, float], object] | None = None,
    ) -> None:
        place = problem.device
        if not isinstance(settings, Settings):
            usual = problem.settings(model, distill=bool(teachers))
            settings = usual.changed(settings or {})
        model.to(place)
        world = distributed.current_world(place)
        lane = Lane(place) if place.type == "cuda" and world.size == 1 else None
        self._entered = nullcontext if lane is None else lane.entered
        with self._entered():
            self._run = TrainingRun(model, problem, settings, seed, teachers, world)
            # Before generators are restored, since making batches may draw from them.
            own_batches = self._run.own_batches(batches)
            if checkpoint_path is not None:  # after everything that can be refused
                prepare(checkpoint_path)
                if world.is_leader:
                    remove_leftovers(checkpoint_path)
            # All processes read it, or none: the leader decides whether it exists.
            if checkpoint_path is not None and (
                world.gather(resume and Path(checkpoint_path).exists())[0] == [1]
            ):
                self._run.restore(checkpoint_path)
        self._epochs: Iterator[None] = iter(())
        if not self._run.progress.finished:
            self._epochs = self._run.epochs(
                own_batches, checkpoint_path, save_every, progress, on_epoch
            )

    @property
    def epoch(self) -> int:
        """The number of epochs that have begun."""
        return self._run.progress.epoch

    def advance(self) -> bool:
        """End the epoch that is under way and begin the next; return whether there is one."""
        with self._entered():
            return next(self._epochs, self) is not self

    def result(self) -> FitResult:
        """Return the result of a run that is over; the model has its best weights."""
        with self._entered():
            return self._run.result()


def _find_device(name: str | None, model: nn.Module) -> torch.device:
    """Return the device of a name if it can be used; None means the model's own."""
    if name is None:
        return next((p.device for p in model.parameters()), torch.device("cpu"))
    return distributed.resolve_device(name)


@contextmanager
def threads_for(num_nodes: int) -> Iterator[None]:
    """Give torch one thread for the block if the graph is small.

    A small graph's operations are too short to be shared: a second thread gains nothing on Cora,
    and where another process keeps a core busy, every operation waits for that thread (20x the time
    per epoch was seen).
    """
    before = torch.get_num_threads()
    if num_nodes <= _MAX_NODES_ON_ONE_THREAD:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def seeded_generators(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's generators for the block and restore their state after it.

    The seed is mixed first: where a caller drew the initial weights after ``manual_seed(seed)``,
    dropout must not repeat the same numbers.
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed((seed * 0x9E3779B97F4A7C15 + 1) % 2**63)
        yield

"""A training run: its state, its epochs, and the checkpoint it can continue from."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from bignn.errors import FileError, InputError, input_error, printable
from bignn.nn import GNN
from bignn.nn.batch_norm import exact_statistics
from bignn.nn.convert.center import following_norms
from bignn.nn.convert.converted_input import fit_inner_stage
from bignn.nn.convert.sign_watch import warn_of_equal_rows
from bignn.nn.convert.wrapped_layer import has_binary_layers
from bignn.nn.evaluation import evaluating
from bignn.packing import TRAINED_NODE_TYPE, TRAINED_OUTPUT
from bignn.train import checkpoint
from bignn.train.batch_lines import BatchLines
from bignn.train.batches import Batch
from bignn.train.checkpoint import copy_state, set_class_names
from bignn.train.checks import check_model, check_teacher, warn_of_far_values
from bignn.train.distill import distillation_loss, on_device, weights_digest
from bignn.train.distributed import World
from bignn.train.early_stopping import is_better, should_stop
from bignn.train.hetero_problem import HeteroProblem
from bignn.train.lost_accuracy import warn_of_lost_accuracy
from bignn.train.optimizer import adam, adam_state
from bignn.train.parts.part_problem import PartProblem
from bignn.train.problem import LearningProblem
from bignn.train.progress import Progress
from bignn.train.recipes import Settings
from bignn.train.recorded import Number, Recorder
from bignn.train.result import FitResult

#: Seconds between copies of the run's state, one of which Ctrl-C saves.
_COPY_EVERY = 1.0

#: A loss, and the two parts of a score.
Parts = tuple[Number, Number, Number]
#: The parts of a checkpoint and its header.
_RunState = tuple[dict[str, dict[str, Tensor]], dict[str, Any]]


class TrainingRun:
    """The state of one training run: all that a checkpoint must hold to continue it.

    Args:
        model: the model to train, in place.
        problem: what it learns from.
        settings: how to train.
        seed: the seed of dropout and sampling.
        teachers: trained models to learn from; none to learn from labels alone.
        world: the processes that train together.

    """

    def __init__(
        self,
        model: nn.Module,
        problem: LearningProblem,
        settings: Settings,
        seed: int,
        teachers: Sequence[nn.Module],
        world: World,
    ) -> None:
        self.model, self.problem, self.world = model, problem, world
        self.settings, self.seed = settings, seed
        self.teachers_digest = weights_digest(teachers) if teachers else None
        self._first_teacher = teachers[0] if teachers else None
        problem.prepare(model, settings, world)
        problem.fit_input(model)
        fit_inner_stage(
            model, lambda: check_model(model, problem.trial(), problem.task, with_gradients=True)
        )
        warn_of_far_values(model, problem.trial(), problem.task)
        for batch in islice(problem.validation(), 1):
            num_outputs = check_model(model, batch, problem.task)
            if len(problem.class_names or ()) != num_outputs:
                problem.class_names = None  # the names are not those of the outputs
        if teachers:
            for teacher in teachers:
                with on_device(teacher, problem.device):
                    check_teacher(teacher, problem.trial(), problem.task)
            problem.learn_from(teachers, settings.temperature)
        self.problem_digest = problem.digest()
        if world.differs(json.dumps(self._identity())):
            raise InputError(
                "the processes differ in 'graph', 'settings', 'seed', 'teacher' or 'model'; give "
                "all of them the same"
            )
        world.copy_from_leader(model.state_dict().values())
        self.optimizer = adam(model, settings)
        #: Whether all processes have the same batch, the whole graph.
        self.is_full_batch = True
        self.progress = Progress()
        self.best_state = copy_state(model.state_dict())
        self._recorder = self._new_recorder()
        self._lines = BatchLines("", is_shown=False)
        #: A state of this run between two epochs.
        self._snapshot: _RunState | None = None

    def _new_recorder(self) -> Recorder:
        task = self.problem.task
        is_alone = self.world.size == 1 and not isinstance(self.problem, PartProblem)
        is_able = is_alone and self.is_full_batch and task.kind == "classes"
        is_able = is_able and task.loss_function is None and isinstance(self.model, GNN)
        return Recorder(is_able, self.problem.device, self.problem.num_nodes, self.progress.epoch)

    def own_batches(self, batches: Iterable[Any] | None) -> Iterable[Any]:
        """Return this process's share of the batches, or of those that the settings ask for."""
        own, self.is_full_batch = self.problem.batches(
            batches, self.model, self.settings, self.world
        )
        self._recorder = self._new_recorder()
        return own

    def epochs(
        self,
        batches: Iterable[Any],
        checkpoint_path: str | os.PathLike[str] | None,
        save_every: float,
        show_progress: bool,
        on_epoch: Callable[[int, float, float], object] | None,
    ) -> Iterator[None]:
        """Train to the end, saving on the way; the model ends with its best weights.

        Yields when an epoch has begun, which another run need not wait for. After Ctrl-C the
        checkpoint is that of the last epoch, or of one a second before.
        """
        progress = self.progress
        copied = -math.inf
        saved = epoch_began = time.monotonic()
        label = f"{self.problem.name} seed {self.seed}"
        show_progress = show_progress and self.world.is_leader
        bar = tqdm(
            total=self.settings.epochs + progress.left_teacher,
            initial=progress.epoch,
            desc=label,
            disable=not (show_progress and sys.stderr.isatty()),
            leave=False,
            unit="epoch",
        )
        self._lines = BatchLines(label, is_shown=show_progress and bar.disable)
        with self._saved_when_interrupted(checkpoint_path), bar:
            while not progress.finished:
                read = self._begin_epoch(batches)
                yield
                loss, accuracy = self._validate(*read())
                if on_epoch is not None:
                    on_epoch(progress.epoch, loss, accuracy)
                now = time.monotonic()
                progress.seconds += now - epoch_began
                epoch_began = now
                bar.total = self.settings.epochs + progress.left_teacher
                bar.update()
                score = self.problem.task.describe(progress.best_acc)
                best = f"best val loss {progress.best_loss:.4f} {score}"
                bar.set_postfix_str(best)
                if progress.finished:
                    break
                self._lines.epoch_ended(f"epoch {progress.epoch}, {best}")
                if checkpoint_path is not None and now - saved >= save_every:
                    self.save(checkpoint_path)
                    copied = saved = epoch_began = time.monotonic()
                elif checkpoint_path is not None and now - copied >= _COPY_EVERY:
                    self._snapshot = self._state()
                    copied = now
            self._finish(checkpoint_path)

    @contextmanager
    def _saved_when_interrupted(
        self, checkpoint_path: str | os.PathLike[str] | None
    ) -> Iterator[None]:
        """Write the last snapshot after Ctrl-C: in the middle of an epoch no run can continue."""
        try:
            yield
        except KeyboardInterrupt:
            if checkpoint_path is not None and self._snapshot is not None:
                self._write(checkpoint_path, self._snapshot)
            raise

    def _finish(self, checkpoint_path: str | os.PathLike[str] | None) -> None:
        """Take the best weights, which all processes must agree on, and save them."""
        self._recorder.forget()
        self.model.load_state_dict(self.best_state)
        if self.world.differs(weights_digest([self.model]) + str(torch.get_rng_state().tolist())):
            raise InputError(
                "the processes ended with different weights; this should not happen: "
                "compare their versions of torch and bignn"
            )
        if checkpoint_path is not None:
            self.save(checkpoint_path)
            self.world.barrier()  # no process looks for the file before it is there

    def _begin_epoch(self, batches: Iterable[Any]) -> Callable[[], tuple[float, float]]:
        """Train an epoch and return what waits for its loss and score on validation.

        On small graphs of a GPU the work is recorded and replayed.
        """
        begun = self.progress.epoch
        read = self._recorder.begin(begun, lambda: self._trained(batches))
        self.progress.epoch = begun  # recording does nothing yet
        if read is None:
            with self._recorder.watched(begun):
                found = self._trained(batches)
            return lambda: self._totals(*found)
        self.progress.epoch += 1
        return lambda: self._totals(*read())

    def _trained(self, batches: Iterable[Any]) -> Parts:
        """Train an epoch and measure it on validation."""
        self._train_epoch(batches)
        return self._measured()

    def _train_epoch(self, batches: Iterable[Any]) -> None:
        self.model.train()
        step = 0
        what = f"epoch {self.progress.epoch + 1}"
        padded = self._lines.watched(self.world.pad_batches(batches), what, batches)
        for step, data in enumerate(padded, 1):
            self.optimizer.zero_grad(set_to_none=True)
            with self._dropout_generator(step):
                self._backward(None if data is None else self.problem.as_batch(data))
            self.world.sum_gradients(self.model)
            self.optimizer.step()
        if step == 0:
            raise input_error("batches", "at least one batch per epoch", "none")
        # Running averages differ, since each process has seen batches of its own.
        self.world.copy_from_leader(self.model.buffers())
        self.progress.epoch += 1

    def _dropout_generator(self, step: int) -> AbstractContextManager[None]:
        """Let processes that share one batch, and only those, draw the same dropout."""
        if self.is_full_batch:
            return nullcontext()
        return self.world.seeded_by_rank(self.problem.device, self.seed, self.progress.epoch, step)

    def _backward(self, batch: Batch | None) -> None:
        """Compute the gradients of a batch's part of the loss.

        Over all processes the parts add up to ``(1 - mix) mean(labels) + mix mean(teacher)``, with
        means over what all batches have.
        """
        if batch is None:
            self.world.fractions(0, 0)
            return
        label_fraction, target_fraction = self.world.fractions(*batch.num_terms)
        logits = batch.logits(self.model)
        nodes = batch.loss_nodes
        task = self.problem.task
        loss = label_fraction * task.loss(logits[nodes], batch.y[nodes], batch.loss_weight)
        if self.teachers_digest is not None and not self.progress.left_teacher:
            if batch.targets is None:
                raise InputError("'batches' have no 'targets', which learning from a teacher needs")
            mix, temperature = self.settings.distill_mix, self.settings.temperature
            rows = batch.target_nodes
            weight = None if batch.target_weight is None else batch.target_weight[rows]
            divergence = distillation_loss(
                logits[rows], batch.targets[rows], temperature, weight, task
            )
            loss = (1 - mix) * loss + mix * target_fraction * divergence
        loss.backward()

    def _measured(self) -> Parts:
        """Measure the model on validation."""
        if (statistics := self.problem.statistics()) is not None:
            self._update_statistics(statistics)
            return self._parts(self.problem.validation())
        # A model with batch normalisation is validated on all nodes.
        with exact_statistics(self.model):
            return self._parts(self.problem.validation())

    def _validate(self, loss: float, score: float) -> tuple[float, float]:
        """Keep the weights if an epoch's loss and score on validation are the best, or end."""
        progress = self.progress
        if not math.isfinite(loss):
            raise InputError(
                f"{self.problem.name}: training diverged (validation loss {loss} in epoch "
                f"{progress.epoch}); lower 'lr' (now {self.settings.lr}) or check the model"
            )
        # Statistics too: the sums of two GPUs may be rounded differently.
        self.world.copy_from_leader(self.model.buffers())
        best = progress.best_loss, progress.best_acc
        lower_is_better = self.problem.task.lower_is_better
        if progress.best_epoch == 0 or is_better(
            loss, score, best, self.settings.select_by, lower_is_better=lower_is_better
        ):
            progress.best_loss, progress.best_acc = loss, score
            progress.best_epoch = progress.epoch
            self.best_state = copy_state(self.model.state_dict(), self.best_state)
        progress.finished = should_stop(
            progress.epoch, progress.best_epoch, self.settings, progress.left_teacher
        )
        has_teacher = self.teachers_digest is not None and not progress.left_teacher
        if progress.finished and has_teacher and self.settings.leave_teacher:
            self._leave_teacher()
        return loss, score

    def _leave_teacher(self) -> None:
        """Go on from the best weights so far, by labels alone."""
        self.progress.left_teacher, self.progress.finished = self.progress.epoch, False
        self.model.load_state_dict(self.best_state)
        self.optimizer = adam(self.model, self.settings)
        self._recorder = self._new_recorder()

    @torch.no_grad()
    def _update_statistics(self, batch: Batch) -> None:
        """Take the statistics of batch normalisation from what training may see."""
        with exact_statistics(self.model) as norms:
            if norms:
                batch.logits(self.model.eval())

    def _score(self, batches: Iterable[Batch]) -> tuple[float, float]:
        """Return the mean loss and the score on the ``loss_nodes`` of all batches.

        Each process scores its share; the results are those of all shares together.
        """
        return self._totals(*self._parts(batches))

    @torch.no_grad()
    def _parts(self, batches: Iterable[Batch], model: nn.Module | None = None) -> Parts:
        """Return this process's share of a model's loss, and the parts of its score.

        By default of the model that learns, which stays in evaluation mode.
        """
        model = self.model.eval() if model is None else model
        task = self.problem.task
        found = [
            (batch.logits(model)[batch.loss_nodes], batch.y[batch.loss_nodes])
            for batch in self._lines.watched(batches, "evaluation")
        ]
        own_count = sum(len(y) for _, y in found)
        (fraction,) = self.world.fractions(own_count)
        if not found:
            return 0.0, 0.0, 0.0
        out, y = (torch.cat(parts) for parts in zip(*found, strict=True))
        return fraction * task.loss(out, y, None), *task.score_parts(out, y)

    def _totals(self, loss: Number, part: Number, whole: Number) -> tuple[float, float]:
        """Add up the parts of all processes, to their loss and score."""
        loss, part, whole = self.world.totals(float(loss), float(part), float(whole))
        return loss, part / whole if whole else 0.0

    def result(self) -> FitResult:
        """Load the best weights into the model and score them."""
        self.model.load_state_dict(self.best_state)
        with torch.no_grad(), evaluating(self.model):
            is_warned = warn_of_equal_rows(self.problem.trial().logits(self.model))
        if not is_warned:
            self._warn_of_lost_accuracy()
        batches = self.problem.test(self.world)
        test = None if batches is None else self._score(batches)[1]
        self.model.eval()
        set_class_names(self.model, self.problem.class_names)
        setattr(self.model, TRAINED_OUTPUT, self.problem.task.output)
        if isinstance(self.problem, HeteroProblem):
            setattr(self.model, TRAINED_NODE_TYPE, self.problem.node_type)
        best, metric = self.progress, self.problem.task.metric
        exchanged = self.problem.exchanged() if isinstance(self.problem, PartProblem) else None
        return FitResult(
            best.best_loss, best.best_acc, test, best.best_epoch, best.epoch, best.seconds, metric,
            exchanged,
        )  # fmt: skip

    def _warn_of_lost_accuracy(self) -> None:
        teacher, progress = self._first_teacher, self.progress
        if teacher is None or not has_binary_layers(self.model):
            return
        with evaluating(teacher), on_device(teacher, self.problem.device):
            taught = self._totals(*self._parts(self.problem.validation(), teacher))[1]
        was_improving = progress.epoch - progress.best_epoch < self.settings.patience
        if self.world.is_leader:
            warn_of_lost_accuracy(
                self.model, self.problem.task, progress.best_acc, taught,
                was_improving=was_improving,
            )  # fmt: skip

    def _identity(self) -> dict[str, Any]:
        """Return what tells this run from others; only its own checkpoint can be resumed."""
        shapes = {name: list(value.shape) for name, value in self.model.state_dict().items()}
        return {
            "config": self.model.config if isinstance(self.model, GNN) else {"shapes": shapes},
            "settings": json.loads(json.dumps(asdict(self.settings))),
            "seed": self.seed,
            "graph": self.problem_digest,
            "teachers": self.teachers_digest,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint, in the leader alone; a finished run keeps its best weights only."""
        self._snapshot = self._state()
        self._write(path, self._snapshot)

    def _write(self, path: str | os.PathLike[str], state: _RunState) -> None:
        if self.world.is_leader:
            checkpoint.write(path, *state)

    def _state(self) -> _RunState:
        """Return copies of all that a checkpoint holds, and its header."""
        parts: dict[str, dict[str, Tensor]] = {"model": copy_state(self.best_state)}
        if not self.progress.finished:
            parts["last"] = copy_state(self.model.state_dict())
            parts["adam"] = {
                f"{index}.{name}": value.clone()
                for index, slots in self.optimizer.state_dict()["state"].items()
                for name, value in slots.items()
            }
            parts["rng"] = checkpoint.generator_state(self.problem.device)
            parts["batches"] = {name: norm.state() for name, norm in following_norms(self.model)}
        header = {**self._identity(), "progress": asdict(self.progress)}
        if self.problem.class_names is not None:
            header["class_names"] = list(self.problem.class_names)
        return parts, header

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Continue the run of a checkpoint, which must be this very run."""
        parts, header = checkpoint.read(path)
        absent = object()

        def shown(value: object) -> str:
            return "absent" if value is absent else printable(repr(value))

        for key, mine in self._identity().items():
            theirs = header[key]
            if key == "settings":  # one that did not exist yet had the default
                theirs = asdict(Settings()) | theirs
            if theirs == mine:
                continue
            if isinstance(mine, dict):
                names = {**mine, **theirs}
                key = next(n for n in names if mine.get(n, absent) != theirs.get(n, absent))
                mine, theirs = mine.get(key, absent), theirs.get(key, absent)
            raise FileError(
                f"cannot resume from '{path}': its '{printable(key, 40)}' is {shown(theirs)}, "
                f"this run's is {shown(mine)}; use the same graph and arguments, or another --out"
            )
        try:
            self._load(parts, self._progress(header["progress"]))
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            line = printable(error, 300)
            raise FileError(f"'{path}' is not a whole checkpoint ({line}); remove it") from error

    def _progress(self, stored: Any) -> Progress:
        is_percent = self.problem.task.metric != "mae"
        return Progress.from_json(stored, self.settings, is_percent=is_percent)

    def _load(self, parts: checkpoint.Parts, progress: Progress) -> None:
        self.model.load_state_dict(parts["model"])
        self.best_state = copy_state(self.model.state_dict())
        if not progress.finished:
            self.model.load_state_dict(parts["last"])
            if progress.epoch > progress.left_teacher:  # otherwise Adam is new
                self.optimizer.load_state_dict(
                    {
                        "state": adam_state(parts["adam"], self.optimizer),
                        "param_groups": self.optimizer.state_dict()["param_groups"],
                    }
                )
            checkpoint.set_generator_state(parts["rng"], self.problem.device)
            seen = parts.get("batches", {})
            for name, norm in following_norms(self.model):
                if name in seen:  # of older checkpoints they are not known
                    norm.load(seen[name])
        self.progress = progress
        self._recorder = self._new_recorder()

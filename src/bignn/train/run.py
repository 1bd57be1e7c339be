"""A training run: its state, its epochs, and the checkpoint it can continue from."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from bignn.errors import FileError, InputError, input_error
from bignn.graph import Graph
from bignn.nn import GNN
from bignn.nn.batch_norm import exact_statistics
from bignn.train import checkpoint
from bignn.train.batches import Batch, as_batch, part_of_loss, reachable, training_part
from bignn.train.checks import check_model, check_teacher
from bignn.train.distill import digest, distillation_loss, moved, soft_targets
from bignn.train.distributed import World
from bignn.train.recipes import Settings
from bignn.train.sampled_batches import SampledBatches

#: Seconds between lines about a run where there is no terminal for a bar.
_TOLD_EVERY = 10.0


@dataclass(frozen=True)
class FitResult:
    """What a run reached, in its best epoch (``Settings.select_by``). Accuracies in percent."""

    val_loss: float
    val_acc: float
    test_acc: float | None
    best_epoch: int
    epochs: int
    seconds: float

    @property
    def test_micro_f1(self) -> float | None:
        """In percent. Every node has one class and gets one, so each error is one false positive
        and one false negative: precision, recall and F1 over all classes are the accuracy.
        """
        return self.test_acc


class Run:
    """The state of one training run: all that a checkpoint must hold to continue it."""

    _PROGRESS = ("epoch", "best_epoch", "best_loss", "best_acc", "seconds", "finished")

    def __init__(
        self,
        model: nn.Module,
        graph: Graph,
        whole: Batch,
        settings: Settings,
        seed: int,
        teachers: Sequence[nn.Module],
        world: World,
    ) -> None:
        self.model, self.graph, self.world = model, graph, world
        self.settings, self.seed = settings, seed
        self.teachers = digest(teachers) if teachers else None
        # What training may see.
        seen = training_part(whole) if settings.inductive else whole
        # Our models, and those that bignn.binarize_ has made ours.
        if (fit_input := getattr(model, "fit_input", None)) is not None:
            fit_input(seen.x)
        nodes = torch.from_numpy(graph.val_idx).to(whole.device)
        self.validation = reachable(replace(whole, loss_nodes=nodes[world.share]), model)
        check_model(model, self.validation, graph.num_classes)
        if teachers:
            for teacher in teachers:
                with moved(teacher, whole.device):
                    check_teacher(teacher, seen, graph.num_classes)
            seen = replace(seen, targets=soft_targets(teachers, seen, settings.temperature))
        self.whole, self.seen = whole, seen
        self.digest = graph.digest()
        if world.differ(json.dumps(self._about())):
            raise InputError(
                "the processes differ in 'graph', 'settings', 'seed', 'teacher' or 'model'; give "
                "all of them the same"
            )
        world.follow_leader(model.state_dict().values())
        self.optimizer = adam(model, settings)
        #: Whether all processes have the same batch, the whole graph.
        self.same_batch = True
        self.epoch = 0
        self.best_epoch = 0
        self.best_loss = math.inf
        self.best_acc = 0.0
        self.best_state = _copy(model.state_dict())
        self.seconds = 0.0
        self.finished = False

    def batches(self, given: Iterable[Any] | None) -> Iterable[Any]:
        """The given batches, or what the settings ask for: this process's share."""
        self.same_batch = given is None and self.settings.sampling is None
        if given is not None:
            return _InTurn(given, self.world.share)
        if self.settings.sampling is None:
            return [part_of_loss(reachable(self.seen, self.model), self.world.share)]
        if not isinstance(self.model, GNN):
            raise input_error(
                "batches", "given for a model of your own that trains on samples", None
            )
        return SampledBatches(self.settings.sampling, self.model, self.seen, self.world.share)

    def train(
        self,
        batches: Iterable[Any],
        checkpoint_path: str | os.PathLike[str] | None,
        save_every: float,
        progress: bool,
        on_epoch: Callable[[int, float, float], object] | None,
    ) -> None:
        """Trains to the end, saving on the way."""
        saved = ticked = told = time.monotonic()
        label = f"{self.graph.name} seed {self.seed}"
        progress = progress and self.world.is_leader
        with tqdm(
            total=self.settings.epochs,
            initial=self.epoch,
            desc=label,
            disable=not (progress and sys.stderr.isatty()),
            leave=False,
            unit="epoch",
        ) as bar:
            while not self.finished:
                self._train_epoch(batches)
                loss, accuracy = self._validate()
                if on_epoch is not None:
                    on_epoch(self.epoch, loss, accuracy)
                now = time.monotonic()
                self.seconds += now - ticked
                ticked = now
                bar.update()
                best = f"best val loss {self.best_loss:.4f} acc {self.best_acc:.1f}%"
                bar.set_postfix_str(best)
                if progress and bar.disable and now - told >= _TOLD_EVERY and not self.finished:
                    print(f"{label}: epoch {self.epoch}, {best}", file=sys.stderr, flush=True)
                    told = now
                if checkpoint_path is not None and now - saved >= save_every and not self.finished:
                    self.save(checkpoint_path)
                    saved = ticked = time.monotonic()
        self.model.load_state_dict(self.best_state)
        if self.world.differ(digest([self.model]) + str(torch.get_rng_state().tolist())):
            raise InputError(
                "the processes ended with different weights; this should not happen: "
                "compare their versions of torch and bignn"
            )
        if checkpoint_path is not None:
            self.save(checkpoint_path)
            self.world.wait()  # nobody looks for it before it is there

    def _train_epoch(self, batches: Iterable[Any]) -> None:
        self.model.train()
        step = 0
        for step, piece in enumerate(self.world.in_step(batches), 1):
            self.optimizer.zero_grad(set_to_none=True)
            with self._dropout(step):
                self._learn(None if piece is None else as_batch(piece, self.whole.device))
            self.world.add_gradients(self.model)
            self.optimizer.step()
        if step == 0:
            raise input_error("batches", "at least one batch per epoch", "none")
        self.world.follow_leader(self.model.buffers())  # running averages, of what each has seen
        self.epoch += 1

    def _dropout(self, step: int) -> AbstractContextManager[None]:
        """Processes that have the same batch, and only they, drop the same from it."""
        if self.same_batch:
            return nullcontext()
        return self.world.own_numbers(self.whole.device, self.seed, self.epoch, step)

    def _learn(self, batch: Batch | None) -> None:
        """Leaves the gradients of a batch's part of the loss. Over all processes the parts add up
        to ``(1 - mix) mean(labels) + mix mean(teacher)``, means over what all batches have.
        """
        if batch is None:
            self.world.parts(0, 0)
            return
        of_labels, of_teacher = self.world.parts(*batch.terms)
        logits = batch.logits(self.model)
        nodes = batch.loss_nodes
        loss = of_labels * _label_loss(logits[nodes], batch.y[nodes], batch.loss_weight)
        if self.teachers is not None:
            if batch.targets is None:
                raise InputError("'batches' have no 'targets', which learning from a teacher needs")
            mix, temperature = self.settings.distill_mix, self.settings.temperature
            rows = batch.taught
            weight = None if batch.taught_weight is None else batch.taught_weight[rows]
            opinion = distillation_loss(logits[rows], batch.targets[rows], temperature, weight)
            loss = (1 - mix) * loss + mix * of_teacher * opinion
        loss.backward()

    def _validate(self) -> tuple[float, float]:
        if self.settings.inductive:
            self._take_statistics()
            loss, accuracy = self._score(self.validation)
        else:
            # A model with batch normalisation is validated on all nodes.
            with exact_statistics(self.model):
                loss, accuracy = self._score(self.validation)
        if not math.isfinite(loss):
            raise InputError(
                f"{self.graph.name}: training diverged (validation loss {loss} in epoch "
                f"{self.epoch}); lower 'lr' (now {self.settings.lr}) or check the model"
            )
        self.world.follow_leader(self.model.buffers())  # statistics: a GPU's sums vary in rounding
        better = loss < self.best_loss
        if self.settings.select_by == "accuracy":
            better = self.best_epoch == 0 or accuracy > self.best_acc
        if better:
            self.best_loss, self.best_acc, self.best_epoch = loss, accuracy, self.epoch
            self.best_state = _copy(self.model.state_dict())
        waited = self.epoch - self.best_epoch
        self.finished = self.epoch >= self.settings.epochs or waited >= self.settings.patience
        return loss, accuracy

    @torch.no_grad()
    def _take_statistics(self) -> None:
        """Those of the nodes that training sees, and of no others."""
        with exact_statistics(self.model) as norms:
            if norms:
                self.seen.logits(self.model.eval())

    @torch.no_grad()
    def _score(self, batch: Batch) -> tuple[float, float]:
        """Mean cross-entropy and accuracy in percent on the ``loss_nodes`` of all processes."""
        self.model.eval()
        logits = batch.logits(self.model)[batch.loss_nodes]
        y = batch.y[batch.loss_nodes]
        mine = int((logits.argmax(dim=-1) == y).sum())
        (share,) = self.world.parts(len(y))
        loss = share * float(_label_loss(logits, y, None))
        loss, correct, count = self.world.totals(loss, mine, len(y))
        return loss, 100.0 * correct / count

    def result(self) -> FitResult:
        """The score of the best weights, which the model now has."""
        self.model.load_state_dict(self.best_state)
        test = None
        if self.graph.test_idx is not None:
            nodes = torch.from_numpy(self.graph.test_idx).to(self.whole.device)
            share = replace(self.whole, loss_nodes=nodes[self.world.share])
            test = self._score(share)[1]
        self.model.eval()
        return FitResult(
            self.best_loss, self.best_acc, test, self.best_epoch, self.epoch, self.seconds
        )

    def _about(self) -> dict[str, Any]:
        shapes = {name: list(value.shape) for name, value in self.model.state_dict().items()}
        return {
            "config": self.model.config if isinstance(self.model, GNN) else {"shapes": shapes},
            "settings": json.loads(json.dumps(asdict(self.settings))),
            "seed": self.seed,
            "graph": self.digest,
            "teachers": self.teachers,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint; a finished run keeps its best weights only. The leader does."""
        if not self.world.is_leader:
            return
        progress = {key: getattr(self, key) for key in self._PROGRESS}
        parts: dict[str, dict[str, Tensor]] = {"model": self.best_state}
        if not self.finished:
            parts["last"] = _copy(self.model.state_dict())
            parts["adam"] = {
                f"{index}.{name}": value
                for index, slots in self.optimizer.state_dict()["state"].items()
                for name, value in slots.items()
            }
            parts["rng"] = checkpoint.generator_state(self.whole.device)
        checkpoint.write(path, parts, {**self._about(), "progress": progress})

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Continues the run of a checkpoint, which must be this very run."""
        parts, about = checkpoint.read(path)
        for key, mine in self._about().items():
            theirs = about.get(key)
            if theirs == mine:
                continue
            if isinstance(mine, dict) and isinstance(theirs, dict):
                key = next(
                    name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)
                )
                mine, theirs = mine.get(key), theirs.get(key)
            raise FileError(
                f"cannot resume from '{path}': its {key} is {theirs}, this run's is {mine}; "
                "use the same graph and arguments, or another --out"
            )
        try:
            self._take(parts, about["progress"])
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            line = str(error).splitlines()[0]
            raise FileError(f"'{path}' is not a whole checkpoint ({line}); remove it") from error

    def _take(self, parts: checkpoint.Parts, progress: dict[str, Any]) -> None:
        for key in self._PROGRESS:
            setattr(self, key, progress[key])
        self.best_state = parts["model"]
        self.model.load_state_dict(parts["model"] if self.finished else parts["last"])
        if self.finished:
            return
        slots: dict[int, dict[str, Tensor]] = {}
        for name, value in parts["adam"].items():
            index, _, slot = name.partition(".")
            slots.setdefault(int(index), {})[slot] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})
        checkpoint.set_generator_state(parts["rng"], self.whole.device)


def adam(model: nn.Module, settings: Settings) -> torch.optim.Adam:
    """Adam with the settings' decay of matrices only, and the last layer's own rate."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    last = matrices[-1:]
    if isinstance(model, GNN):
        end = model.convs[-1] if model.lin is None else model.lin
        last = [p for p in end.parameters() if p.ndim == 2]
    slow = {id(p) for p in last}
    decay, last_lr = settings.weight_decay, settings.lr * settings.last_layer_lr
    groups: list[dict[str, Any]] = [
        {"params": [p for p in matrices if id(p) not in slow], "weight_decay": decay},
        {"params": last, "weight_decay": decay, "lr": last_lr},
        {"params": others, "weight_decay": 0.0},
    ]
    # Fused: one pass over each parameter, on the CPU too.
    return torch.optim.Adam(groups, lr=settings.lr, betas=(settings.beta1, 0.999), fused=True)


def _label_loss(logits: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
    """The mean cross-entropy, or the sum with a weight per node; 0 for no nodes."""
    if len(y) == 0:
        return logits.sum()
    if weight is None:
        return functional.cross_entropy(logits, y)
    return (functional.cross_entropy(logits, y, reduction="none") * weight).sum()


class _InTurn:
    """A share of batches that are made anew in every iteration."""

    def __init__(self, batches: Iterable[Any], share: slice) -> None:
        self._batches, self._share = batches, share

    def __iter__(self) -> Iterator[Any]:
        share = self._share
        return islice(iter(self._batches), share.start, share.stop, share.step)


def _copy(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in state.items()}

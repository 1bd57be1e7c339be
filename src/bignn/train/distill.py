"""Learning from a teacher: a trained model's probabilities for every node, labelled or not."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from bignn.errors import input_error
from bignn.nn.evaluation import evaluating
from bignn.train.batches import Batch
from bignn.train.tasks import Task, class_task

#: One model, or several whose probabilities are averaged.
Teacher = nn.Module | Sequence[nn.Module]

#: The task of a graph's classes.
CLASSES = class_task(0)


def checked_teachers(teacher: Teacher) -> list[nn.Module]:
    """Return the teachers as a list of modules; refuse anything else."""
    if isinstance(teacher, nn.Module):
        return [teacher]
    teachers: list[nn.Module] = list(teacher) if isinstance(teacher, list | tuple) else [teacher]  # type: ignore[list-item]
    if not teachers:
        raise input_error("teacher", "at least one model", "none")
    for model in teachers:
        if not isinstance(model, nn.Module):
            raise input_error(
                "teacher", "a trained torch.nn.Module, or several", type(model).__name__
            )
    return teachers


@contextmanager
def on_device(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Move a model to a device for the block, and back after it."""
    before = next((p.device for p in model.parameters()), device)
    model.to(device)
    try:
        yield
    finally:
        model.to(before)


@torch.no_grad()
def soft_targets(
    teachers: Sequence[nn.Module], batch: Batch, temperature: float, task: Task = CLASSES
) -> Tensor:
    """Average the teachers' probabilities of each row's classes: [N, classes].

    Of labels and links they are those of each one; of values they are the values themselves.
    """
    total: Tensor | None = None
    for model in teachers:
        with evaluating(model), on_device(model, batch.device):
            logits = batch.logits(model)
        if not bool(torch.isfinite(logits).all()):
            raise input_error(
                "teacher", "a model whose logits are finite", "NaN or infinite logits"
            )
        probabilities = task.soft_targets(logits, temperature)
        total = probabilities if total is None else total + probabilities
    assert total is not None
    return total / len(teachers)


def distillation_loss(
    logits: Tensor,
    targets: Tensor,
    temperature: float,
    weight: Tensor | None = None,
    task: Task = CLASSES,
) -> Tensor:
    """Return ``T² KL(teacher ‖ student)``, both at temperature T (Hinton et al. 2015).

    It is the mean over rows, or with a weight per row the sum. Labels, links and values are learned
    as they are from data, with the teacher's in their place.
    """
    if logits.shape != targets.shape:
        got = f"one with {targets.shape[-1]}"
        raise input_error(
            "teacher", f"a model with {logits.shape[-1]} outputs, as the student has", got
        )
    if task.kind != "classes":
        return task.distillation(logits, targets, temperature, weight)
    students = functional.log_softmax(logits / temperature, dim=-1)
    if weight is None:
        return functional.kl_div(students, targets, reduction="batchmean") * temperature**2
    per_node = functional.kl_div(students, targets, reduction="none").sum(dim=-1)
    return (per_node * weight).sum() * temperature**2


def weights_digest(models: Sequence[nn.Module]) -> str:
    """Return a fingerprint of the weights and options of some models."""
    whole = hashlib.sha256()
    for model in models:
        for name, value in sorted(model.state_dict().items()):
            whole.update(f"{name} {value.dtype} {list(value.shape)}".encode())
            # As bytes, since NumPy does not have every type of torch's.
            octets = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            whole.update(octets.numpy().tobytes())
        whole.update(repr(getattr(model, "config", type(model).__name__)).encode())
    return whole.hexdigest()[:16]

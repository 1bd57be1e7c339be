"""Checks before training: a model that does not fit the graph is refused in one line."""

import warnings

import torch
from torch import Tensor, nn

from bignn.errors import InputError, input_error
from bignn.nn.evaluation import evaluating, naming_width_errors
from bignn.train.batches import Batch
from bignn.train.forward import Forward
from bignn.train.tasks import Task


def check_parameters(model: nn.Module) -> None:
    """Refuse a model that cannot be trained: of other numbers than float32, or frozen."""
    kinds = {p.dtype for p in model.parameters() if p.is_floating_point()} - {torch.float32}
    if kinds:
        got = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
        fix = "call model.float(); torch.autocast in a loop of your own computes in half precision"
        raise input_error("model", "one of float32 parameters", got, fix)
    is_frozen = [not p.requires_grad for p in model.parameters()]
    if is_frozen and all(is_frozen):
        fix = "call model.requires_grad_()"
        raise input_error("model", "one with parameters that learn", "none that do", fix)


def check_model(
    model: nn.Module,
    batch: Batch,
    task: Task,
    argument: str = "model",
    *,
    with_gradients: bool = False,
) -> int:
    """Evaluate a model once; refuse one that does not fit the graph or the task in one line.

    With gradients, layers see which of their inputs are learned.

    Returns:
        The number of its outputs per row.

    """
    forward = Forward.of(model)
    try:
        with (
            evaluating(model),
            naming_width_errors(argument, *batch.widths),
            torch.set_grad_enabled(with_gradients),
        ):
            out = batch.logits(model)
    except batch.call_errors as error:
        called_as, fix = batch.called_as(forward)
        got = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        raise input_error(argument, f"one called as {called_as}", got, fix) from error
    if batch.edge_weight is not None and forward.weights is None:
        warnings.warn(
            f"'edge_weight' is not used: the forward of '{argument}' takes none", stacklevel=3
        )
    if _leaves_out_edge_attr(model, forward, batch):
        warnings.warn(
            f"'edge_attr' is not used: the forward of '{argument}' takes none; if these are "
            "weights, set data.edge_weight = data.edge_attr.view(-1)",
            stacklevel=3,
        )
    if isinstance(out, Tensor) and out.ndim == 1 and task.kind != "classes":
        out = out[:, None]
    if not isinstance(out, Tensor) or out.ndim != 2 or len(out) != len(batch.y):
        got = f"shape {list(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise input_error(argument, "one that returns a tensor of logits [nodes, classes]", got)
    expected, num_outputs = task.num_outputs, int(out.shape[1])
    if task.kind == "classes" and num_outputs < expected:
        raise input_error(argument, f"one with an output per class ({expected})", num_outputs)
    if task.kind != "classes" and num_outputs != expected:
        looks_whole = batch.y.is_floating_point() and bool((batch.y == batch.y.round()).all())
        fix = (
            "floats are learned as values; classes are whole numbers: y.long()"
            if looks_whole
            else ""
        )
        raise input_error(
            argument, f"one with as many outputs as 'y' ({expected})", num_outputs, fix
        )
    return num_outputs


def _leaves_out_edge_attr(model: nn.Module, forward: Forward, batch: Batch) -> bool:
    """Whether one graph has features of edges, and no weights, that a model does not take."""
    data = batch.data
    if data is None or data.get("edge_attr") is None or data.get("batch") is not None:
        return False
    is_read = "edge_attr" in forward.names and getattr(model, "supports_edge_attr", True)
    return batch.edge_weight is None and not is_read and not forward.takes_data


def check_teacher(teacher: nn.Module, whole: Batch, task: Task) -> None:
    """Evaluate a teacher once; every error names the teacher."""
    try:
        check_model(teacher, whole, task, "teacher")
    except (InputError, RuntimeError) as error:
        if str(error).startswith("'teacher'"):
            raise
        line = str(error).splitlines()[0]
        raise input_error(
            "teacher", "a model that takes this graph", f"the error: {line}"
        ) from error

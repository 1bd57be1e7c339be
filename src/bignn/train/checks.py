"""Checks before training: a model that does not fit the graph is refused in one line."""

import warnings

import torch
from torch import Tensor, nn

from bignn.errors import InputError, input_error
from bignn.nn import GNN
from bignn.nn.convert.wrapped_layer import has_binary_layers
from bignn.nn.evaluation import evaluating, naming_width_errors
from bignn.train.batches import Batch
from bignn.train.forward import Forward
from bignn.train.tasks import Task

#: The largest mean, in standard deviations, and the largest deviation of values without a warning.
_FARTHEST = 3.0


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
        fix = f"y has classes up to {expected - 1}"
        raise input_error(argument, f"one with an output per class ({expected})", num_outputs, fix)
    if task.kind != "classes" and num_outputs != expected:
        is_bool = batch.y.dtype == torch.bool
        looks_whole = batch.y.is_floating_point() and bool((batch.y == batch.y.round()).all())
        fix = ""
        if is_bool and num_outputs > 1:
            fix = "True and False are learned as one label; two classes are numbers: y.long()"
        elif looks_whole:
            fix = "floats are learned as values; classes are whole numbers: y.long()"
        raise input_error(
            argument, f"one with as many outputs as 'y' ({expected})", num_outputs, fix
        )
    return num_outputs


def warn_of_far_values(model: nn.Module, batch: Batch, task: Task) -> None:
    """Warn if a binary model is to learn values that are far from 0, or far apart.

    Binary layers begin with outputs of about 1, and weights that are clipped, or whose columns are
    centred, reach others slowly or never.
    """
    is_binary = has_binary_layers(model) or (isinstance(model, GNN) and model.binarization.weights)
    if task.kind != "values" or not is_binary:
        return
    for column, y in enumerate(batch.y[batch.loss_nodes].reshape(len(batch.loss_nodes), -1).t()):
        known = y[~y.isnan()].double()
        if len(known) < 2:
            continue
        mean, spread = float(known.mean()), float(known.std())
        is_near = abs(mean) <= _FARTHEST * max(spread, 1) and spread <= _FARTHEST
        if spread == 0 or is_near:
            continue
        of_column = f" in column {column}" if batch.y.ndim > 1 and batch.y.shape[1] > 1 else ""
        warnings.warn(
            f"the values of 'y'{of_column} have a mean of {mean:.3g} and a standard deviation of "
            f"{spread:.3g}; binary layers learn values near 0 of deviation 1 best: train on "
            f"(y - {mean:.3g}) / {spread:.3g}, and scale what is predicted back",
            stacklevel=4,
        )
        return


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

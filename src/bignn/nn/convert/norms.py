"""Normalisation layers of torch and PyG in evaluation, as steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from bignn.nn.batch_norm import BatchNorm
from bignn.nn.convert.steps import LazyValue, Steps, failing, title_of

#: Every normalisation layer of torch and PyG that a model may call.
NORMS = (
    *(getattr(pyg.norm, name) for name in pyg.norm.__all__),
    *(nn.BatchNorm1d, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.InstanceNorm1d, BatchNorm),
)
#: Those with layers inside that stay float.
NORMS_WITH_LAYERS = (pyg.DiffGroupNorm,)


def after_norm(
    steps: Steps, norm: Any, name: str, values: list[LazyValue], *, per_graph: bool = False
) -> LazyValue:
    """Build the value after a normalisation layer.

    Args:
        steps: makes the values of steps.
        norm: the layer.
        name: its name in the model.
        values: the values it is called with.
        per_graph: whether it is called with the graph of each node too, the model's 'batch'.

    """
    kind = type(norm)
    needs = 2 if kind is pyg.MessageNorm else 1
    if kind not in _WRITERS or len(values) < needs:
        instead = "BatchNorm, LayerNorm, GraphNorm, InstanceNorm or PairNorm"
        return failing(f"{title_of(norm, name)} has no packed form; take {instead}")
    if kind is pyg.MessageNorm and len(values) > needs:
        return failing(f"{title_of(norm, name)} packs with p=2 only")
    if len(values) > needs and not is_per_row(norm):
        return failing(
            f"{title_of(norm, name)} is given something other than a value of the nodes and the "
            "model's own 'batch'"
        )
    if per_graph and not is_per_row(norm):
        return _WRITERS[kind](steps, norm, *values[:needs], per_graph=True)
    return _WRITERS[kind](steps, norm, *values[:needs])


def is_per_row(norm: nn.Module) -> bool:
    """Whether a norm in evaluation computes each node from its own numbers alone."""
    if isinstance(norm, pyg.LayerNorm):
        return bool(norm.mode == "node")
    if isinstance(norm, pyg.InstanceNorm):
        return bool(norm.track_running_stats)
    if isinstance(norm, nn.BatchNorm1d | pyg.BatchNorm):
        return getattr(norm, "module", norm).running_mean is not None  # PyG's holds torch's
    over_all = (pyg.GraphNorm, pyg.PairNorm, pyg.MeanSubtractionNorm, pyg.GraphSizeNorm)
    return not isinstance(norm, over_all)


def _affine(
    steps: Steps, x: LazyValue, weight: Tensor | None, bias: Tensor | None = None
) -> LazyValue:
    if weight is not None:
        x = times_columns(steps, x, weight)
    return x if bias is None else steps.value("bias", [x], bias=bias)


def times_columns(steps: Steps, x: LazyValue, factors: Tensor) -> LazyValue:
    """Multiply every column by a factor of its own."""
    return steps.value("batch_norm", [x], mean=torch.zeros_like(factors), scale=factors)


def _over_all(
    steps: Steps,
    x: LazyValue,
    spread: str,
    eps: float = 0.0,
    *,
    center: bool = True,
    per_graph: bool = False,
) -> LazyValue:
    which: dict[str, Any] = {"per_graph": True} if per_graph else {}
    return steps.value("graph_norm", [x], spread=spread, eps=float(eps), center=center, **which)


def _batch(steps: Steps, norm: Any, x: LazyValue) -> LazyValue:
    if is_per_row(norm):
        return steps.value("batch_norm", [x], norm)
    norm = getattr(norm, "module", norm)
    return _affine(steps, _over_all(steps, x, "columns", norm.eps), norm.weight, norm.bias)


def _per_row(
    steps: Steps, norm: Any, x: LazyValue, groups: int = 1, *, center: bool = True
) -> LazyValue:
    eps = torch.finfo(torch.float32).eps if norm.eps is None else norm.eps
    out = steps.value("layer_norm", [x], eps=float(eps), groups=groups, center=center)
    return _affine(steps, out, norm.weight, getattr(norm, "bias", None))


def _layer(steps: Steps, norm: Any, x: LazyValue) -> LazyValue:
    if len(norm.normalized_shape) != 1:
        return failing(f"LayerNorm over {list(norm.normalized_shape)} is not over a node's columns")
    return _per_row(steps, norm, x)


def _rms(steps: Steps, norm: Any, x: LazyValue) -> LazyValue:
    if len(norm.normalized_shape) != 1:
        return failing(f"RMSNorm over {list(norm.normalized_shape)} is not over a node's columns")
    return _per_row(steps, norm, x, center=False)


def _pyg_layer(steps: Steps, norm: Any, x: LazyValue, *, per_graph: bool = False) -> LazyValue:
    if norm.mode == "node":
        return _per_row(steps, norm, x)
    spread = "variance" if per_graph else "entries"  # PyG adds eps elsewhere, given a batch
    out = _over_all(steps, x, spread, norm.eps, per_graph=per_graph)
    return _affine(steps, out, norm.weight, norm.bias)


def _graph(steps: Steps, norm: Any, x: LazyValue, *, per_graph: bool = False) -> LazyValue:
    """Write ``x - s ⊙ mean`` as ``s ⊙ (x - mean) + (1 - s) ⊙ x``."""
    share = norm.mean_scale
    parts = [
        times_columns(steps, _over_all(steps, x, "none", per_graph=per_graph), share),
        times_columns(steps, x, 1 - share),
    ]
    out = steps.value("add", parts)
    out = _over_all(steps, out, "columns", norm.eps, center=False, per_graph=per_graph)
    return _affine(steps, out, norm.weight, norm.bias)


def _instance(steps: Steps, norm: Any, x: LazyValue, *, per_graph: bool = False) -> LazyValue:
    if norm.track_running_stats:
        return steps.value("batch_norm", [x], norm)
    out = _over_all(steps, x, "columns", norm.eps, per_graph=per_graph)
    return _affine(steps, out, norm.weight, norm.bias)


def _pair(steps: Steps, norm: Any, x: LazyValue, *, per_graph: bool = False) -> LazyValue:
    spread = "length" if norm.scale_individually else "rows"
    out = _over_all(steps, x, spread, norm.eps, per_graph=per_graph)
    return steps.value("scale", [out], factor=float(norm.scale))


def _mean_subtraction(
    steps: Steps, norm: Any, x: LazyValue, *, per_graph: bool = False
) -> LazyValue:
    return _over_all(steps, x, "none", per_graph=per_graph)


def _size(steps: Steps, norm: Any, x: LazyValue, *, per_graph: bool = False) -> LazyValue:
    return _over_all(steps, x, "size", center=False, per_graph=per_graph)


def _message(steps: Steps, norm: Any, x: LazyValue, message: LazyValue) -> LazyValue:
    directions = steps.value("unit_length", [message], eps=1e-12)
    out = steps.value("multiply", [directions, steps.value("length", [x])])
    return steps.value("scale", [out], factor=float(norm.scale.detach()))


def _groups(steps: Steps, norm: Any, x: LazyValue) -> LazyValue:
    """Write ``x + λ Σ_g ((s_g x - mean_g) scale_g + b_g)`` with one factor of x per column."""
    inner = norm.norm
    if inner.running_mean is None:
        return failing("DiffGroupNorm with track_running_stats=False has no packed form")
    shape = norm.groups, norm.in_channels
    scale = (inner.running_var + inner.eps).rsqrt()
    shift = -inner.running_mean * scale
    if inner.weight is not None:
        scale, shift = scale * inner.weight, shift * inner.weight + inner.bias
    shares = steps.value("softmax", [steps.value("linear", [x], weight=norm.lin.weight)])
    factors = steps.value("linear", [shares], weight=norm.lamda * scale.view(shape).t())
    out = steps.value("add", [x, steps.value("multiply", [x, factors])])
    return steps.value("bias", [out], bias=norm.lamda * shift.view(shape).sum(dim=0))


_WRITERS: dict[type[nn.Module], Callable[..., LazyValue]] = {
    BatchNorm: _batch,
    nn.BatchNorm1d: _batch,
    pyg.BatchNorm: _batch,
    nn.LayerNorm: _layer,
    nn.RMSNorm: _rms,
    nn.GroupNorm: lambda steps, norm, x: _per_row(steps, norm, x, norm.num_groups),
    pyg.LayerNorm: _pyg_layer,
    pyg.GraphNorm: _graph,
    pyg.InstanceNorm: _instance,
    pyg.PairNorm: _pair,
    pyg.MeanSubtractionNorm: _mean_subtraction,
    pyg.GraphSizeNorm: _size,
    pyg.MessageNorm: _message,
    pyg.DiffGroupNorm: _groups,
}

"""Values before their activation and dropout, for binary layers in a model with its own forward.

A binary layer needs the sign of the value *before* a ReLU, since after it every sign is +1, and
drops entries itself, after the sign. A model's own ``forward`` cannot be edited from outside. So
while it runs, the value before is recorded with every result of an activation or dropout; binary
layers read it, and all other code reads the results themselves.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from bignn.errors import InputError
from bignn.nn.convert.converted_input import is_features

_NAME = "_bignn_origin"

_ACTIVATION_NAMES = [
    *["relu", "elu", "leaky_relu", "gelu", "silu", "selu", "celu", "prelu", "rrelu", "relu6"],
    *["softplus", "mish", "hardswish", "hardtanh", "hardsigmoid", "sigmoid", "tanh", "softsign"],
    *["logsigmoid", "tanhshrink"],
]

#: Activations as modules.
ACTIVATION_MODULES = (
    *(nn.ReLU, nn.ELU, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.GELU, nn.SiLU, nn.SELU, nn.CELU),
    *(nn.ReLU6, nn.Softplus, nn.Mish, nn.Hardswish, nn.Tanh, nn.Sigmoid, nn.Hardtanh),
    *(nn.Hardsigmoid, nn.Softsign, nn.LogSigmoid, nn.Tanhshrink),
)


def functions_named(names: list[str]) -> set[Callable[..., Any]]:
    """Collect functions by name wherever torch has them, with their in-place forms."""
    homes: tuple[Any, ...] = (torch, functional, Tensor)
    found = {
        getattr(home, name + ending, None)
        for home in homes
        for name in names
        for ending in ("", "_")
    }
    return {function for function in found if function is not None}


ACTIVATIONS = functions_named(_ACTIVATION_NAMES)
DROPOUTS = functions_named(["dropout"])
#: Products entry by entry.
MULTIPLICATIONS = functions_named(["mul", "multiply"]) | {operator.mul, operator.imul}
#: Functions that move entries, or cut gradients off, without changing them.
MOVES = functions_named(
    ["cat", "concat", "contiguous", "clone", "detach", "view", "reshape", "flatten"]
) | {
    Tensor.__getitem__,
    Tensor.index_select,
    torch.index_select,
    Tensor.to,
    Tensor.float,
}


def works_in_place(function: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether a call overwrites its input: ``relu_``; ``inplace=True``, always by name here."""
    name = getattr(function, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or bool(kwargs.get("inplace"))


_NEVER = -1


def _version(x: Tensor) -> int:
    """Count the changes of x in place; a tensor of inference mode cannot be changed outside."""
    return 0 if x.is_inference() else x._version


class Origin(NamedTuple):
    """A value before activation and dropout, and the share that was dropped.

    The value is not copied, so the user's code can change it in place later. Its version, torch's
    count of changes, shows that.
    """

    value: Tensor
    dropped: float
    version: int

    @property
    def is_intact(self) -> bool:
        """Whether the value is unchanged since it was recorded."""
        return _version(self.value) == self.version


def origin_of(x: Tensor) -> Origin:
    """Look up the origin of x; x itself if it has none, or was changed since."""
    known = getattr(x, _NAME, None)
    if known is None or known[1] != _version(x):
        return Origin(x, 0.0, _version(x))
    found: Origin = known[0]
    return found


def _record(out: Tensor, found: Origin) -> None:
    setattr(out, _NAME, (found, _version(out)))


_active = threading.local()


def is_recording_origins() -> bool:
    """Whether a model is running in :class:`RecordOrigins`."""
    return getattr(_active, "depth", 0) > 0


class RecordOrigins(TorchFunctionMode):
    """A mode in which the origins of activated and dropped values are recorded.

    Args:
        looks_past_masks: whether features that are multiplied by a mask are dropped features.

    """

    def __init__(self, *, looks_past_masks: bool = False) -> None:
        super().__init__()
        self._looks_past_masks = looks_past_masks

    def __enter__(self) -> Any:
        _active.depth = getattr(_active, "depth", 0) + 1
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        _active.depth -= 1
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call a function, and record the origin of its result."""
        kwargs = kwargs or {}
        if func in ACTIVATIONS:
            return _after_activation(func, args, kwargs)
        if func in DROPOUTS:
            return _after_dropout(func, args, kwargs)
        out = func(*args, **kwargs)
        if func in MULTIPLICATIONS and self._looks_past_masks:
            _record_masked_features(args, out)
        if func in MOVES and isinstance(out, Tensor):
            _record_move(func, args, kwargs, out)
        return out


def _argument(
    args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str, usual: Any
) -> Any:
    return args[place] if len(args) > place else kwargs.get(name, usual)


def _after_activation(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = _argument(args, kwargs, 0, "input", None)
    before = origin_of(x)
    if before.value is x:  # it may be overwritten in place
        kept = x.clone() if works_in_place(func, kwargs) else x
        before = Origin(kept, 0.0, _version(kept))
    out = func(*args, **kwargs)
    if isinstance(out, Tensor):
        _record(out, before)
    return out


def _after_dropout(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x = _argument(args, kwargs, 0, "input", None)
    p = float(_argument(args, kwargs, 1, "p", 0.5))
    training = bool(_argument(args, kwargs, 2, "training", kwargs.get("train", True)))
    before = origin_of(x)
    if not training or p == 0:
        out = func(*args, **kwargs)
        if out is not x and before.value is not x:
            _record(out, before)
        return out
    if before.value is x and works_in_place(func, kwargs):
        kept = x.clone()
        before = Origin(kept, 0.0, _version(kept))
    out = func(*args, **kwargs)
    # Two dropouts in a row keep (1 - p)(1 - q).
    _record(out, before._replace(dropped=1 - (1 - before.dropped) * (1 - p)))
    return out


def _record_masked_features(args: tuple[Any, ...], out: Any) -> None:
    """Record a product of features and a mask, of 0 and another number, as dropped features."""
    if len(args) != 2 or not all(isinstance(part, Tensor) for part in (*args, out)):
        return
    x, mask = args if is_features(args[0]) else args[::-1]
    if not is_features(x):
        return
    zeros = mask == 0
    share = float(zeros.float().mean())
    if 0 < share < 1 and bool((zeros | (mask == mask.max())).all()):
        _record(out, Origin(x, share, _version(x)))


def _record_move(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Tensor) -> None:
    """Move the origins as the values were moved, if any part has one.

    A layer has one share to drop: where parts had different ones, the largest. So a layer reads the
    same in training and in evaluation.
    """
    given = args[0] if args else kwargs.get("tensors", kwargs.get("input"))
    several = isinstance(given, list | tuple)
    parts: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
    if not parts or not all(isinstance(part, Tensor) for part in parts):
        return
    origins = [origin_of(part) for part in parts]
    if all(o.value is part for o, part in zip(origins, parts, strict=True)):
        return
    values = [o.value for o in origins]
    others = {name: some for name, some in kwargs.items() if name not in ("tensors", "input")}
    moved = func(values if several else values[0], *args[1:], **others)
    # Code that uses the activated values only may have changed the others: no error here.
    version = _version(moved) if all(o.is_intact for o in origins) else _NEVER
    _record(out, Origin(moved, max(o.dropped for o in origins), version))


def record_origins_in(model: nn.Module, *, is_needed: bool, masks_in_training: bool) -> None:
    """Run every call of the model in :class:`RecordOrigins`.

    Args:
        model: the model.
        is_needed: whether it cannot do without; otherwise it may be compiled, and then does.
        masks_in_training: whether features are multiplied in training alone, if at all, so that a
            mask there is a way of dropping them.

    """
    enter = partial(_enter, is_needed=is_needed, masks_in_training=masks_in_training)
    model.register_forward_pre_hook(enter, prepend=True, with_kwargs=True)
    # Whatever is raised, the mode must not outlive the call.
    model.register_forward_hook(_leave, always_call=True)


def _enter(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    is_needed: bool,
    masks_in_training: bool,
) -> None:
    if torch.compiler.is_compiling():
        if not is_needed:
            return
        raise InputError(
            "torch.compile cannot follow what binarize_ records in a model's own forward; "
            "convert with center=True, or compile a torch_geometric.nn.GCN, GraphSAGE, GAT or GIN"
        )
    modes = ExitStack()
    if torch.is_inference_mode_enabled():  # where torch does not count changes in place
        modes.enter_context(torch.inference_mode(False))
        modes.enter_context(torch.no_grad())
    # A mask that the caller gives may be given in evaluation too.
    is_given = any("mask" in name for name in kwargs) or any(
        isinstance(given, Tensor) and given.dtype == torch.bool
        for given in (*args, *kwargs.values())
    )
    looks_past = masks_in_training and model.training and not is_given
    modes.enter_context(RecordOrigins(looks_past_masks=looks_past))
    _stack().append((id(model), modes))


def _leave(model: nn.Module, args: Any, out: Any) -> None:
    stack = _stack()
    if stack and stack[-1][0] == id(model):  # else the call failed before it was entered
        stack.pop()[1].close()


def _stack() -> list[tuple[int, ExitStack]]:
    if not hasattr(_active, "stack"):
        _active.stack = []
    stack: list[tuple[int, ExitStack]] = _active.stack
    return stack

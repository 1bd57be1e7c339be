"""Batch normalisation before the sign of a converted layer's input."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator, Mapping
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from bignn.nn.batch_norm import BatchNorm

# Running statistics that trail behind the weights turn signs (docs/design.md, Converting PyG
# models). Those of different batches are averaged over a few.
_MOMENTUM = 0.2
# Features of another tensor are compared by so many of their rows, evenly spaced.
_COMPARED = 32


class ForwardCount:
    """A count of a model's forward calls: how often one of them calls a norm shows by it.

    It also sees whether the calls in training are all given the same features. Threads have counts
    of their own; compiled models are not counted.

    Attributes:
        inputs_vary: whether calls in training were given different features.

    """

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._under_way: set[int] = set()
        self._features: tuple[weakref.ref[Tensor], int] | None = None
        self._rows: Tensor | None = None
        self.inputs_vary = False

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy in another process needs, which has other tensors."""
        return {**vars(self), "_features": None}

    def watch(self, model: nn.Module) -> None:
        """Count the calls of a model."""
        model.register_forward_pre_hook(self._begin, prepend=True, with_kwargs=True)
        model.register_forward_hook(self._end, always_call=True)

    @property
    def current(self) -> int | None:
        """The number of the call under way; None outside of any, where parts are called alone."""
        thread = get_ident()
        return self._numbers[thread] if thread in self._under_way else None

    def _begin(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch.compiler.is_compiling():
            return
        thread = get_ident()
        self._numbers[thread] = self._numbers.get(thread, 0) + 1
        self._under_way.add(thread)
        if model.training and torch.is_grad_enabled() and not self.inputs_vary:
            x = _features_of(args[0] if args else kwargs.get("x", kwargs.get("x_dict")))
            self.inputs_vary = x is not None and not self._is_as_before(x)

    def _is_as_before(self, x: Tensor) -> bool:
        """Whether x has the numbers of the call before; some rows of other tensors are compared."""
        version = 0 if x.is_inference() else x._version
        known, known_version = self._features or (None, 0)
        if known is not None and known() is x and known_version == version:
            return True
        before, self._features = self._rows, (weakref.ref(x), version)
        self._rows = x.detach()[:: max(1, len(x) // _COMPARED)].clone()
        return before is None or torch.equal(before, self._rows.to(before.device))

    def _end(self, model: nn.Module, args: Any, out: Any) -> None:
        if not torch.compiler.is_compiling():
            self._under_way.discard(get_ident())


def _features_of(given: Any) -> Tensor | None:
    """Return the features that a model is called with, of one type of nodes; None if unknown."""
    if isinstance(given, Mapping):
        given = next(iter(given.values()), None)
    x = given if isinstance(given, Tensor) else getattr(given, "x", None)
    is_known = isinstance(x, Tensor) and x.layout is torch.strided and x.ndim and not x.is_meta
    return x if is_known else None


class FollowWeights:
    """A forward pre-hook of a batch normalisation, whose running statistics follow the weights.

    Where all training batches are the same nodes, as with the whole graph, the statistics are those
    of the last one. Otherwise a batch moves them by a fifth of its rows' share in the
    largest batch so far: a last batch of a few nodes hardly does. Without gradients nothing learns,
    and the momentum is the norm's own.

    A norm that one forward calls more than once has the momentum that it was made with: its
    statistics are an average over all calls, not those of the last. A momentum that somebody else
    sets, as ``torch.optim.swa_utils.update_bn`` does, is left alone.

    Args:
        norm: the norm.
        name: its name in the model.
        forwards: the count of the model's calls.

    """

    def __init__(self, norm: nn.BatchNorm1d, name: str, forwards: ForwardCount) -> None:
        self.is_repeated = False
        self._own_momentum = self._chosen = norm.momentum
        self._name = name
        self._forwards = forwards
        self._last_call: tuple[int, int] | None = None
        self._rows: int | None = None
        self._most_rows = 1
        self._varies = False

    def __call__(self, norm: nn.Module, args: tuple[Any, ...]) -> None:
        """Choose how far this batch moves the running statistics."""
        if not norm.training or not args or not isinstance(args[0], Tensor):
            return
        if not torch.compiler.is_compiling():
            self._watch_calls(norm)
        rows = len(args[0])
        if norm.momentum != self._chosen:
            return
        if not torch.is_grad_enabled():
            self._chosen = norm.momentum = self._own_momentum  # type: ignore[assignment]
            return
        varies = self._forwards.inputs_vary or self._rows not in (None, rows)
        self._varies = self._varies or varies
        self._rows, self._most_rows = rows, max(self._most_rows, rows)
        share = _MOMENTUM * rows / self._most_rows if self._varies else 1.0
        self._chosen = self._own_momentum if self.is_repeated else share
        norm.momentum = self._chosen  # type: ignore[assignment]

    def _watch_calls(self, norm: nn.Module) -> None:
        """Find out whether the forward under way has called the norm before."""
        call = self._forwards.current
        # Threads may take turns; the same number twice in a row is the same call of one of them.
        key = None if call is None else (get_ident(), call)
        if not self.is_repeated and key is not None and key == self._last_call:
            self.is_repeated = True
            warnings.warn(self._advice(norm), stacklevel=3)
        self._last_call = key

    def _advice(self, norm: nn.Module) -> str:
        if isinstance(norm, Center):
            so = "is not centred" if norm.is_optional else "is centred by averages over all calls"
            return (
                f"the model's forward calls '{self._name}' more than once, so its input {so}; give "
                "each call a layer of its own"
            )
        return (
            f"the model's forward calls '{self._name}' more than once, so in evaluation it "
            "normalises all calls by one average, which turns signs; give each call a norm of its "
            "own"
        )

    def state(self) -> Tensor:
        """Return what this norm has seen: rows of the last batch and the largest, and two flags."""
        return torch.tensor([self._rows or 0, self._most_rows, self._varies, self.is_repeated])

    def load(self, state: Tensor) -> None:
        """Take what :meth:`state` returned."""
        rows, most_rows, varies, is_repeated = (int(number) for number in state)
        self._rows, self._most_rows, self._varies = rows or None, most_rows, bool(varies)
        self.is_repeated = bool(is_repeated)


class Center(BatchNorm):
    """Batch normalisation, without an affine part, that follows the weights.

    Args:
        num_features: columns.
        name: the name of the layer whose input it centres.
        forwards: the count of the model's calls; without it all are taken for single ones.
        is_optional: whether values pass as they are from the time on when one forward has called
            the layer more than once, since one set of statistics is not that of several values.

    """

    def __init__(
        self,
        num_features: int,
        name: str = "",
        forwards: ForwardCount | None = None,
        *,
        is_optional: bool = False,
    ) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__(num_features)
        self.is_optional = is_optional
        self._follow = FollowWeights(self, name, forwards or ForwardCount())
        self.register_forward_pre_hook(self._follow)

    def forward(self, h: Tensor) -> Tensor:
        """Normalise the columns of h: [N, d] -> [N, d]."""
        if not (self.is_optional and self._follow.is_repeated):
            return super().forward(h)
        # So values pass where the state is loaded, too. The backward pass of a call before does not
        # read these, but torch would take a change for one of what it needs.
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.data.zero_()
            self.running_var.data.fill_(1 - self.eps)
        return h


def follow_weights_in(model: nn.Module, forwards: ForwardCount) -> list[str]:
    """Let the batch normalisations that a model has itself follow its weights; return their names.

    Those that keep a plain average of all batches (a momentum of None) are left alone.
    """
    found = []
    for name, module in model.named_modules():
        is_plain = isinstance(module, nn.BatchNorm1d) and not isinstance(module, BatchNorm)
        if is_plain and module.track_running_stats and module.momentum is not None:
            module.register_forward_pre_hook(FollowWeights(module, name, forwards))
            found.append(name)
    return found


def following_norms(model: nn.Module) -> Iterator[tuple[str, FollowWeights]]:
    """Yield the names of a model's norms whose statistics follow its weights, and their hooks."""
    for name, module in model.named_modules():
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, FollowWeights):
                yield name, hook

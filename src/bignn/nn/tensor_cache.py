"""A cache of values computed from tensors, valid while the tensors are unchanged."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

T = TypeVar("T")


class TensorCache:
    """A cache with one value per tensor: the one computed last from it.

    A value is served again while the tensor and everything else it was made from are the very same
    objects and have not been changed in place; it goes when the tensor goes. Full-batch epochs thus
    build their matrices once, without a flag that could serve a stale one. Torch does not count
    changes through ``.data`` or a shared NumPy array, so these are not noticed.
    """

    def __init__(self) -> None:
        self._entries = WeakIdKeyDictionary()

    def get(
        self,
        key: Tensor,
        made_from: Sequence[Tensor | None],
        options: Hashable,
        build: Callable[[], T],
    ) -> T:
        """Return the value for ``key``, calling ``build()`` without gradients if there is none."""
        tensors = [tensor for tensor in (key, *made_from) if tensor is not None]
        if any(tensor.is_inference() for tensor in tensors):  # torch counts no changes of these
            return build()
        state = (options, tuple(tensor is not None for tensor in made_from), _versions(tensors))
        found = self._entries.get(key)
        if found is not None:
            old_state, references, known = found
            same = all(ref() is t for ref, t in zip(references, tensors[1:], strict=False))
            if old_state == state and same:
                return cast(T, known)
        # Inference mode would taint what is kept for training.
        with torch.inference_mode(False), torch.no_grad():
            value = build()
        if value is not key:  # a dictionary that holds its own key never lets it go
            self._entries[key] = (state, [weakref.ref(tensor) for tensor in tensors[1:]], value)
        return value

    def __deepcopy__(self, memo: dict[int, Any]) -> TensorCache:
        return TensorCache()

    def __reduce__(self) -> tuple[type[TensorCache], tuple[()]]:
        return TensorCache, ()


def _versions(tensors: list[Tensor]) -> tuple[int, ...]:
    parts = (t.values() if t.layout == torch.sparse_csr else t for t in tensors)
    return tuple(part._version for part in parts)

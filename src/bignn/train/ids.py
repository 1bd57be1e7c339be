"""Features that are whole numbers: whether a model reads them as ids, or as floats."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from bignn.nn import GNN
from bignn.nn.evaluation import evaluating
from bignn.nn.input_stage import without_statistics
from bignn.train.batches import Batch

# Above it, float32 does not hold every whole number.
_EXACT = 2**24


class _ReadsIds(Exception):  # noqa: N818 - no error
    """Ends a call in which an embedding was given features."""


def reads_ids(model: nn.Module, as_floats: Batch, ids: Tensor) -> bool:
    """Find out, by calls of a model, whether its features have to stay whole numbers.

    So it is where an ``nn.Embedding`` is given floats, or has more rows than floats can tell
    apart, and where the model fails with floats alone. All others are given floats, and so are
    models that fail either way, whose errors are told by the checks that follow.
    """
    if isinstance(model, GNN):
        return False
    embeddings = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    hooks = [some.register_forward_pre_hook(_stop_at_ids) for some in embeddings]
    try:
        if _is_callable(model, as_floats):
            return False
    except _ReadsIds:
        return True
    finally:
        for hook in hooks:
            hook.remove()
    return _is_callable(model, replace(as_floats, x=ids))


def _stop_at_ids(embedding: nn.Module, given: tuple[Any, ...]) -> None:
    rows: Any = embedding.num_embeddings
    if rows > _EXACT or any(isinstance(v, Tensor) and v.is_floating_point() for v in given):
        raise _ReadsIds


def _is_callable(model: nn.Module, batch: Batch) -> bool:
    """Whether a call of the model comes to its end."""
    try:
        with evaluating(model), without_statistics(model), torch.no_grad():
            batch.logits(model)
    except _ReadsIds:
        raise
    except Exception:  # whatever a model of the user's raises
        return False
    return True

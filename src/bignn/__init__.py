"""Binary graph neural networks that are really binary.

The names below are the public surface. Importing this package never imports torch; the names that
need it load when first used.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from bignn import bits
from bignn.errors import FileError, InputError, missing_extra
from bignn.graph import Graph, from_pyg, load, save, to_pyg
from bignn.kernels.threads import get_num_threads, set_num_threads
from bignn.runtime import PackedGraph, PackedModel, open_packed, pack_graph

if TYPE_CHECKING:
    from bignn import capacity, cost, loaders, nn
    from bignn.capacity import recommend_width
    from bignn.config import Sampling
    from bignn.nn.convert.binarize_model import binarize_
    from bignn.packing import pack
    from bignn.train.checkpoint import load_model, load_state
    from bignn.train.fit import FitResult, fit
    from bignn.train.recipes import Recipe, Settings, recipe

__version__ = "0.1.0"

#: Opens a packed model or a packed graph. Not in ``__all__``: the builtin of that name stays itself
#: after ``from bignn import *``.
open = open_packed  # noqa: A001

#: Where names come from when first used; rooms come as they are.
_WITH_TORCH = {
    "capacity": "bignn.capacity",
    "loaders": "bignn.loaders",
    "nn": "bignn.nn",
    "binarize_": "bignn.nn.convert.binarize_model",
    "load_model": "bignn.train.checkpoint",
    "load_state": "bignn.train.checkpoint",
    "pack": "bignn.packing",
    "Recipe": "bignn.train.recipes",
    "Settings": "bignn.train.recipes",
    "recipe": "bignn.train.recipes",
    "recommend_width": "bignn.capacity",
    "Sampling": "bignn.config",
    "FitResult": "bignn.train.fit",
    "fit": "bignn.train.fit",
}
_LAZY = _WITH_TORCH | {"cost": "bignn.cost"}

__all__ = [
    "FileError",
    "FitResult",
    "Graph",
    "InputError",
    "PackedGraph",
    "PackedModel",
    "Recipe",
    "Sampling",
    "Settings",
    "binarize_",
    "bits",
    "capacity",
    "cost",
    "fit",
    "from_pyg",
    "get_num_threads",
    "load",
    "load_model",
    "load_state",
    "loaders",
    "nn",
    "pack",
    "pack_graph",
    "recipe",
    "recommend_width",
    "save",
    "set_num_threads",
    "to_pyg",
]
if not all(find_spec(package) for package in ("torch", "torch_geometric", "tqdm")):
    # What cannot be imported must not make ``from bignn import *`` fail.
    __all__ = [name for name in __all__ if name not in _WITH_TORCH]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'bignn' has no attribute {name!r}")
    try:
        module = importlib.import_module(_LAZY[name])
    except ImportError as error:
        if (line := missing_extra(f"bignn.{name}", error)) is None:
            raise
        raise ImportError(line, name=error.name) from error
    return module if _LAZY[name] == f"bignn.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])

"""Binary graph neural networks that are really binary.

The names in ``__all__`` are the public surface. Importing this package never imports torch; names
that need torch import it when they are first used.
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
    from bignn.config import Sampling, Settings
    from bignn.nn.convert.binarize_model import binarize_
    from bignn.packing import pack
    from bignn.train.checkpoint import load_model, load_state
    from bignn.train.fit import FitResult, fit
    from bignn.train.recipes import Recipe, recipe

__version__ = "0.1.0"

#: Opens a packed model or a packed graph. It is not in ``__all__``, so that
#: ``from bignn import *`` leaves the builtin ``open`` alone.
open = open_packed  # noqa: A001

#: Modules of the names that load when first used, and need torch. A room is its own module.
_WITH_TORCH = {
    "capacity": "bignn.capacity",
    "loaders": "bignn.loaders",
    "nn": "bignn.nn",
    "binarize_": "bignn.nn.convert.binarize_model",
    "load_model": "bignn.train.checkpoint",
    "load_state": "bignn.train.checkpoint",
    "pack": "bignn.packing",
    "recommend_width": "bignn.capacity",
    "FitResult": "bignn.train.fit",
    "fit": "bignn.train.fit",
}
#: Names that load when first used, with torch or without.
_LAZY = _WITH_TORCH | {
    "cost": "bignn.cost",
    "Recipe": "bignn.train.recipes",
    "Sampling": "bignn.config",
    "Settings": "bignn.config",
    "recipe": "bignn.train.recipes",
}

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
    # ``from bignn import *`` must not fail on names that cannot be imported here.
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

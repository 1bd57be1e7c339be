"""Binary graph neural networks that are really binary.

The names below are the public surface. Importing this package never imports torch; the names that
need it load when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bignn import bits, cost
from bignn.errors import FileError, InputError, missing_extra
from bignn.graph import Graph, load, save
from bignn.runtime import PackedGraph, PackedModel, pack_graph
from bignn.runtime import open_packed as open  # noqa: A004 (used as bignn.open)
from bignn.threads import get_num_threads, set_num_threads

if TYPE_CHECKING:
    from bignn import nn
    from bignn.capacity import recommend_width
    from bignn.checkpoint import load_model
    from bignn.nn.convert import binarize_
    from bignn.packing import pack
    from bignn.pyg import from_pyg, to_pyg
    from bignn.recipes import Settings, recipe
    from bignn.sampling import Sampling
    from bignn.train import FitResult, fit

__version__ = "0.1.0"

_WITH_TORCH = {
    "nn": "bignn.nn",
    "binarize_": "bignn.nn.convert",
    "load_model": "bignn.checkpoint",
    "pack": "bignn.packing",
    "from_pyg": "bignn.pyg",
    "to_pyg": "bignn.pyg",
    "Settings": "bignn.recipes",
    "recipe": "bignn.recipes",
    "recommend_width": "bignn.capacity",
    "Sampling": "bignn.sampling",
    "FitResult": "bignn.train",
    "fit": "bignn.train",
}

__all__ = [
    "FileError",
    "FitResult",
    "Graph",
    "InputError",
    "PackedGraph",
    "PackedModel",
    "Sampling",
    "Settings",
    "binarize_",
    "bits",
    "cost",
    "fit",
    "from_pyg",
    "get_num_threads",
    "load",
    "load_model",
    "nn",
    "open",
    "pack",
    "pack_graph",
    "recipe",
    "recommend_width",
    "save",
    "set_num_threads",
    "to_pyg",
]


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module 'bignn' has no attribute {name!r}")
    try:
        module = importlib.import_module(_WITH_TORCH[name])
    except ImportError as error:
        if (line := missing_extra(f"bignn.{name}", error)) is None:
            raise
        raise ImportError(line) from error
    return module if name == "nn" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WITH_TORCH])

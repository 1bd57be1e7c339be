"""Binary graph neural networks that are really binary.

The names in ``__all__`` are the public surface. Each loads its module when it is first used:
importing this package imports neither NumPy nor torch.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bignn import bits, capacity, cost, loaders, nn
    from bignn import kernels as kernels
    from bignn.capacity import recommend_width
    from bignn.config import Sampling, Settings
    from bignn.errors import FileError, InputError
    from bignn.graph import (
        Graph,
        from_dgl,
        from_networkx,
        from_ogb,
        from_pyg,
        from_scipy,
        load,
        save,
        to_pyg,
    )
    from bignn.kernels.threads import get_num_threads, set_num_threads
    from bignn.nn.convert.binarize_model import binarize_
    from bignn.packing import pack
    from bignn.runtime import LiveGraph, PackedGraph, PackedModel, open_packed, pack_graph
    from bignn.runtime.parts.part_files import open_part, write_parts
    from bignn.runtime.store import Store
    from bignn.train.checkpoint import load_model, load_state
    from bignn.train.fit import FitResult, fit
    from bignn.train.recipes import Recipe, recipe

    open = open_packed  # noqa: A001

__version__ = "0.1.0"

#: Modules of the public names that need torch. A room is its own module.
_WITH_TORCH = {
    "FitResult": "bignn.train.fit",
    "binarize_": "bignn.nn.convert.binarize_model",
    "capacity": "bignn.capacity",
    "fit": "bignn.train.fit",
    "load_model": "bignn.train.checkpoint",
    "load_state": "bignn.train.checkpoint",
    "loaders": "bignn.loaders",
    "nn": "bignn.nn",
    "pack": "bignn.packing",
    "recommend_width": "bignn.capacity",
}
#: Modules of the other public names.
_WITHOUT_TORCH = {
    "FileError": "bignn.errors",
    "Graph": "bignn.graph",
    "InputError": "bignn.errors",
    "LiveGraph": "bignn.runtime",
    "PackedGraph": "bignn.runtime",
    "PackedModel": "bignn.runtime",
    "Recipe": "bignn.train.recipes",
    "Sampling": "bignn.config",
    "Settings": "bignn.config",
    "Store": "bignn.runtime.store",
    "bits": "bignn.bits",
    "cost": "bignn.cost",
    "from_dgl": "bignn.graph",
    "from_networkx": "bignn.graph",
    "from_ogb": "bignn.graph",
    "from_pyg": "bignn.graph",
    "from_scipy": "bignn.graph",
    "get_num_threads": "bignn.kernels.threads",
    "load": "bignn.graph",
    "open_part": "bignn.runtime.parts.part_files",
    "pack_graph": "bignn.runtime",
    "recipe": "bignn.train.recipes",
    "save": "bignn.graph",
    "set_num_threads": "bignn.kernels.threads",
    "to_pyg": "bignn.graph",
    "write_parts": "bignn.runtime.parts.part_files",
}
#: Names that ``from bignn import *`` leaves out, so that the builtin ``open`` stays itself.
_NOT_IN_ALL = {"kernels": "bignn.kernels", "open": "bignn.runtime"}
_MODULES = _WITH_TORCH | _WITHOUT_TORCH | _NOT_IN_ALL

__all__ = [
    "FileError",
    "FitResult",
    "Graph",
    "InputError",
    "LiveGraph",
    "PackedGraph",
    "PackedModel",
    "Recipe",
    "Sampling",
    "Settings",
    "Store",
    "binarize_",
    "bits",
    "capacity",
    "cost",
    "fit",
    "from_dgl",
    "from_networkx",
    "from_ogb",
    "from_pyg",
    "from_scipy",
    "get_num_threads",
    "load",
    "load_model",
    "load_state",
    "loaders",
    "nn",
    "open_part",
    "pack",
    "pack_graph",
    "recipe",
    "recommend_width",
    "save",
    "set_num_threads",
    "to_pyg",
    "write_parts",
]
if not all(find_spec(package) for package in ("torch", "torch_geometric", "tqdm")):
    # ``from bignn import *`` must not fail on names that cannot be imported here.
    __all__ = [name for name in __all__ if name not in _WITH_TORCH]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'bignn' has no attribute {name!r}")
    try:
        module = importlib.import_module(_MODULES[name])
    except ImportError as error:
        from bignn.errors import missing_extra

        if (line := missing_extra(f"bignn.{name}", error)) is None:
            raise
        raise ImportError(line, name=error.name) from error
    if _MODULES[name] == f"bignn.{name}":
        return module
    value = getattr(module, "open_packed" if name == "open" else name)
    globals()[name] = value  # found without this function from now on
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_NOT_IN_ALL, *(name for name in globals() if name[:2] == "__")})

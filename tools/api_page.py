"""Writes docs/api.md: every public name, its signature and the first sentence of its docstring.

The sentences stand beside the code; this file only has the order of the page.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import bignn

#: Rooms whose ``__all__`` is public: every name in it is documented here or is a helper.
ROOMS = ("nn", "loaders", "capacity", "cost")

#: Names in the order of a reader's work. ``f()`` stands for the class of what ``f`` returns.
GROUPS: dict[str, tuple[str, ...]] = {
    "Load and convert graphs": (
        "bignn.load",
        "bignn.save",
        "bignn.Graph",
        "bignn.from_pyg",
        "bignn.from_scipy",
        "bignn.from_networkx",
        "bignn.from_ogb",
        "bignn.from_dgl",
        "bignn.to_pyg",
    ),
    "Models": (
        "bignn.nn.GNN",
        "bignn.nn.GCN",
        "bignn.nn.GraphSAGE",
        "bignn.nn.GAT",
        "bignn.binarize_",
        "bignn.binarize_()",
        "bignn.load_model",
        "bignn.load_state",
    ),
    "Layers": (
        "bignn.nn.Linear",
        "bignn.nn.GCNConv",
        "bignn.nn.SAGEConv",
        "bignn.nn.GATConv",
        "bignn.nn.GINConv",
        "bignn.nn.SGConv",
        "bignn.nn.JumpingHead",
        "bignn.nn.InputStage",
        "bignn.nn.BatchNorm",
    ),
    "Training": (
        "bignn.fit",
        "bignn.FitResult",
        "bignn.Settings",
        "bignn.recipe",
        "bignn.Recipe",
    ),
    "Packing and prediction": (
        "bignn.pack",
        "bignn.PackedModel",
        "bignn.PackedModel.sizes()",
        "bignn.PackedModel.explain()",
        "bignn.LiveGraph",
        "bignn.Store",
        "bignn.runtime.LayerPlan",
        "bignn.runtime.LayerWork",
        "bignn.pack_graph",
        "bignn.PackedGraph",
        "bignn.open",
        "bignn.write_parts",
        "bignn.open_part",
    ),
    "Widths": (
        "bignn.recommend_width",
        "bignn.capacity.WidthAdvice",
        "bignn.capacity.lower_bound",
        "bignn.capacity.layer_entropies",
        "bignn.capacity.entropy",
    ),
    "Costs": (
        "bignn.cost.estimate",
        "bignn.cost.Sizes",
        "bignn.cost.Cost",
        "bignn.cost.LayerCost",
        "bignn.cost.Ratios",
        "bignn.cost.LayerRatios",
        "bignn.cost.on_machines",
        "bignn.cost.MachineCost",
        "bignn.cost.calibrate",
        "bignn.cost.Calibration",
    ),
    "Sampling": (
        "bignn.Sampling",
        "bignn.loaders.NeighborLoader",
        "bignn.loaders.open_store",
        "bignn.loaders.BitFeatures",
        "bignn.loaders.MappedEdges",
        "bignn.loaders.NeighborSampler",
        "bignn.loaders.SaintNodeLoader",
        "bignn.loaders.SaintEdgeLoader",
        "bignn.loaders.SaintRandomWalkLoader",
        "bignn.loaders.LayerLoader",
    ),
    "Errors": ("bignn.InputError", "bignn.FileError"),
    "Threads": ("bignn.set_num_threads", "bignn.get_num_threads"),
    "Bits and kernels": (
        "bignn.bits.sign",
        "bignn.bits.pack",
        "bignn.bits.unpack",
        "bignn.bits.words_per_row",
        "bignn.kernels.xnor_matmul",
        "bignn.kernels.pack_rows",
        "bignn.kernels.available_backends",
        "bignn.kernels.default_backend",
    ),
}

#: Names that rooms have for each other; users neither make nor call them.
HELPERS = {
    "nn": {
        *("Activation", "BinaryRows", "ConvName", "DropMode", "JumpMode", "MODELS", "NormMode"),
        *("SparseFeatures", "SparseMatrix", "evaluating", "exact_statistics"),
        "normalized_adjacency",
    },
    "capacity": {
        *("Correction", "ESTIMATES", "Estimate", "EstimateName", "Interval", "LayerEntropy"),
        *("bootstrap", "bound_of", "copula_entropy", "dependence", "estimate_bits", "rate"),
        *("robust_entropy", "visit_layers"),
    },
    "cost": {"Architecture", "CountedLayer", "Layer"},
    "loaders": set[str](),
}

#: Classes whose methods are worth a line each.
WITH_METHODS = {
    *("bignn.Graph", "bignn.PackedModel", "bignn.PackedGraph", "bignn.LiveGraph"),
    *("bignn.FitResult", "bignn.Recipe"),
    *("bignn.nn.GNN", "bignn.cost.Cost", "bignn.cost.Sizes", "bignn.PackedModel.explain()"),
}

WIDEST = 200  # characters of a signature

HEAD = """\
# The Python interface

Every public name with its arguments and the first sentence of its documentation; `help(name)` shows
the rest. Arguments that do not fit on a line are cut (`...`). A graph may be a `bignn.Graph` or a
PyG `Data` everywhere. Training needs torch and PyG (`pip install '.[train]'`); loading, prediction,
costs, bits and kernels need neither.
[cli.md](cli.md) describes the command line, [format.md](format.md) the files byte by byte. This
page is written by `make docs`.

## What opens what

| file | what it is | written by | opened by |
|---|---|---|---|
| `.npz` | a graph | `bignn.save`, `bignn convert` | `bignn.load`, every command that takes a \
dataset |
| `.safetensors` | a checkpoint: a training run and its best weights | `bignn.fit(checkpoint_path=\
...)`, `bignn train`, `bignn compare` | `bignn.load_model` (our models), `bignn.load_state` (any \
module), `fit(resume=True)`, `bignn pack` and `bignn train --teacher` (our models) |
| `.bignn` | a packed model | `PackedModel.save`, `bignn pack` | `PackedModel.open`, `bignn \
predict`; no torch |
| `.bigraph` | a packed graph | `PackedGraph.save`, `bignn predict \
--save-graph` | `PackedGraph.open`, `bignn.open` (of a \
`HeteroData` too), `bignn predict`, `bignn serve`; mapped into memory, no torch |
| `.biglive`, `.biglive.journal` | a live graph with its model, and its updates since | \
`LiveGraph.save` | `LiveGraph.open`; no torch |
| a folder of `part-N.bigpart` | a graph in parts, one for each process | `bignn.write_parts`, \
`bignn partition` | `bignn.open_part`; `bignn predict` and `bignn train` under torchrun |
| a folder with `runs.jsonl` | results | `bignn reproduce`, `bignn capacity` | the same commands \
(they resume), `bignn report` |
"""


def check_names() -> None:
    """Refuse a documented name that does not exist, and a public name that is not documented."""
    placed = [name for names in GROUPS.values() for name in names]
    assert len(placed) == len(set(placed)), "a name stands in two groups of tools/api_page.py"
    for name in placed:
        resolve(name)
    public = {f"bignn.{name}" for name in (*bignn.__all__, "open")}
    public -= {f"bignn.{room}" for room in (*ROOMS, "bits")}
    for room in ROOMS:
        exported = set(importlib.import_module(f"bignn.{room}").__all__) - HELPERS[room]
        public |= {f"bignn.{room}.{name}" for name in exported - set(bignn.__all__)}
    missing = sorted(public - set(placed))
    assert not missing, f"tools/api_page.py lacks {missing}: document them, or name them as helpers"


def resolve(name: str) -> Any:
    """Find the object of a documented name; ``f()`` is the class of what ``f`` returns."""
    if name.endswith("()"):
        thing = resolve(name.removesuffix("()"))
        function: Any = thing.fget if isinstance(thing, property) else thing
        returned = function.__annotations__["return"]
        return eval(returned, function.__globals__) if isinstance(returned, str) else returned
    found: Any = bignn
    for part in name.split(".")[1:]:
        try:
            found = (
                inspect.getattr_static(found, part) if inspect.isclass(found) else _get(found, part)
            )
        except (AttributeError, ImportError) as error:
            raise AssertionError(
                f"docs/api.md documents '{name}', which does not exist ({error}); "
                "mend GROUPS in tools/api_page.py"
            ) from None
    return found


def _get(module: ModuleType, name: str) -> Any:
    """Return a name of a module, or a module inside it that nobody has imported yet."""
    try:
        return getattr(module, name)
    except AttributeError:
        if not hasattr(module, "__path__"):
            raise
        return importlib.import_module(f"{module.__name__}.{name}")


def api_page() -> str:
    """Write the whole page."""
    check_names()
    parts = [HEAD]
    for title, names in GROUPS.items():
        parts.append(f"\n## {title}\n\n" + "".join(map(_entry, names)))
    return "".join(parts)


def _entry(name: str) -> str:
    thing = resolve(name)
    shown = name
    if name.endswith("()"):
        shown = thing.__name__
    about = _first_sentence(name, inspect.getdoc(thing) or "")
    entry = f"- `{shown}{_signature(thing)}`: {about}\n"
    if name.endswith("()"):
        source = name.removesuffix("()")
        entry = f"- `{shown}{_signature(thing)}`, returned by `{source}`: {about}\n"
    if name in WITH_METHODS:
        entry += "".join(_methods(thing))
    return entry


def _methods(kind: type) -> Iterator[str]:
    for own, thing in vars(kind).items():
        inner = getattr(thing, "__func__", thing)  # of a class method
        if own.startswith("_") or own in ("forward", "reset_parameters"):
            continue
        if isinstance(thing, property):
            yield f"  - `.{own}`: {_first_sentence(own, inspect.getdoc(thing) or '')}\n"
        elif inspect.isfunction(inner):
            called = _signature(inner, method=not isinstance(thing, staticmethod))
            yield f"  - `.{own}{called}`: {_first_sentence(own, inspect.getdoc(inner) or '')}\n"


def _signature(thing: Any, *, method: bool = False) -> str:
    """Return the arguments with their defaults, without types."""
    if inspect.isclass(thing) and (
        issubclass(thing, Exception) or getattr(thing, "_is_protocol", False)
    ):
        return ""
    signature = inspect.signature(thing)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty, default=_Shown.of(parameter.default))
        for parameter in signature.parameters.values()
    ][1 if method else 0 :]
    inherits = inspect.isclass(thing) and "__init__" not in vars(thing)
    if inherits and any(parameter.kind == parameter.KEYWORD_ONLY for parameter in parameters):
        positional = (p for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD)
        return f"({', '.join(map(str, positional))}, ...)"
    shown = str(signature.replace(parameters=parameters, return_annotation=signature.empty))
    if len(shown) <= WIDEST:
        return shown
    return shown[: shown.rindex(", ", 0, WIDEST)] + ", ...)"


class _Shown:
    """A default value as the page writes it; one that is no literal becomes ``...``."""

    def __init__(self, value: object) -> None:
        self._value = value

    @classmethod
    def of(cls, value: object) -> Any:
        return value if value is inspect.Parameter.empty else cls(value)

    def __repr__(self) -> str:
        simple = isinstance(self._value, str | int | float | tuple | None)
        named = str(self._value)
        return repr(self._value) if simple else "..." if named.startswith("<") else named


def _first_sentence(name: str, text: str) -> str:
    paragraph = " ".join(text.split("\n\n")[0].split())
    paragraph = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", paragraph).replace("``", "`")
    sentence = re.split(r"(?<=[^.][a-z0-9)`][.])(?<!Sec\.)(?<!Eq\.) (?=[A-Z`])", paragraph)[0]
    assert sentence, f"'{name}' is documented in docs/api.md and has no docstring"
    return sentence if sentence.endswith((".", ":")) else sentence + "."

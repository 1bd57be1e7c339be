"""docs/api.md: every public name with its signature and the first sentence about it.

What is said of a name stands beside its code; only the order in which a reader looks is here.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

import bignn

#: Rooms whose names are public. ``bits`` has no list of its own: what it defines is public.
ROOMS = ("bignn", *(f"bignn.{room}" for room in ("nn", "loaders", "capacity", "cost")))
LOW_ROOMS = ("bignn.bits", "bignn.kernels")

#: Names in the order of a reader's work; each public name stands in one of them.
GROUPS: dict[str, tuple[str, ...]] = {
    "Load and convert graphs": (
        "bignn.load",
        "bignn.save",
        "bignn.Graph",
        "bignn.from_pyg",
        "bignn.to_pyg",
    ),
    "Models": (
        "bignn.nn.GNN",
        "bignn.nn.GCN",
        "bignn.nn.GraphSAGE",
        "bignn.nn.GAT",
        "bignn.binarize_",
        "bignn.load_model",
        "bignn.load_state",
        "bignn.nn.MODELS",
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
    "Distillation": (),
    "Packing and prediction": (
        "bignn.pack",
        "bignn.PackedModel",
        "bignn.pack_graph",
        "bignn.PackedGraph",
        "bignn.open",
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
        "bignn.cost.LayerRatios",
        "bignn.cost.Ratios",
        "bignn.cost.Architecture",
        "bignn.cost.Layer",
        "bignn.cost.calibrate",
        "bignn.cost.Calibration",
    ),
    "Sampling": (
        "bignn.Sampling",
        "bignn.loaders.NeighborLoader",
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
        "bignn.bits.check_words",
        "bignn.bits.Words",
        "bignn.bits.WORD_BITS",
        "bignn.kernels.xnor_matmul",
        "bignn.kernels.xnor_matmul_into",
        "bignn.kernels.prepare_columns",
        "bignn.kernels.Columns",
        "bignn.kernels.pack_rows",
        "bignn.kernels.available_backends",
        "bignn.kernels.default_backend",
        "bignn.kernels.checked_backend",
    ),
}

#: Classes whose methods are worth a line each.
WITH_METHODS = {
    *("bignn.Graph", "bignn.PackedModel", "bignn.PackedGraph", "bignn.FitResult", "bignn.Recipe"),
    *("bignn.nn.GNN", "bignn.cost.Cost", "bignn.cost.Sizes"),
}

WIDEST = 200  # characters of a signature

HEAD = """\
# The Python interface

Every public name: its arguments and the first sentence of what `help(name)` says of it. Arguments
that do not fit on a line are cut (`...`). Graphs may be a `bignn.Graph` or a PyG `Data`
everywhere but in packed models' methods, which take packed graphs.
What trains needs torch and PyG (`pip install '.[train]'`); loading, prediction, costs, bits and
kernels need neither. The command line is in [cli.md](cli.md), files byte by byte in
[format.md](format.md). This page is written by `make docs`.

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
| any other name, as `cora.graph` | a packed graph | `PackedGraph.save`, `bignn predict \
--save-graph` | `PackedGraph.open`, `bignn predict`; mapped into memory, no torch |
| a folder with `runs.jsonl` | results | `bignn reproduce`, `bignn capacity` | the same commands \
(they resume), `bignn report` |
"""


def public_names() -> set[str]:
    """All of them, with the room's name: a name of ``bignn`` itself stands there alone."""
    top = {name for name in bignn.__all__ if not isinstance(getattr(bignn, name), ModuleType)}
    names = {f"bignn.{name}" for name in [*top, "open"]}
    for room in (*ROOMS[1:], *LOW_ROOMS):
        module = importlib.import_module(room)
        own = getattr(module, "__all__", None) or _defined(module)
        names |= {f"{room}.{name}" for name in own if room in LOW_ROOMS or name not in top}
    return names


def api_page() -> str:
    """The whole page; refuses names without a place, and places without a name."""
    placed = [name for names in GROUPS.values() for name in names]
    assert len(placed) == len(set(placed)), "a name stands in two groups of tools/api_page.py"
    assert set(placed) == public_names(), (
        f"tools/api_page.py lacks {sorted(public_names() - set(placed))} "
        f"and has {sorted(set(placed) - public_names())} too many"
    )
    parts = [HEAD]
    for title, names in GROUPS.items():
        parts.append(f"\n## {title}\n\n" + "".join(map(_entry, names)))
    return "".join(parts)


def _entry(name: str) -> str:
    room, _, own = name.rpartition(".")
    thing = getattr(importlib.import_module(room), own)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        said = f"- `{name}{_signature(thing)}`: {_first_sentence(inspect.getdoc(thing) or '')}\n"
    else:
        values = _values(thing)
        about = _first_sentence(_comment_above(room, own))
        said = f"- `{name}`: {' '.join(filter(None, (about, values)))}\n"
    if name in WITH_METHODS:
        said += "".join(_methods(thing))
    return said


def _methods(kind: type) -> Iterator[str]:
    for own, thing in vars(kind).items():
        inner = getattr(thing, "__func__", thing)  # of a class method
        if own.startswith("_") or own in ("forward", "reset_parameters"):
            continue
        if isinstance(thing, property):
            yield f"  - `.{own}`: {_first_sentence(inspect.getdoc(thing) or '')}\n"
        elif inspect.isfunction(inner):
            called = _signature(inner, method=not isinstance(thing, staticmethod))
            yield f"  - `.{own}{called}`: {_first_sentence(inspect.getdoc(inner) or '')}\n"


def _signature(thing: Any, *, method: bool = False) -> str:
    """The arguments with their defaults, without types."""
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
    """A default as the page writes it: one without a literal is not told."""

    def __init__(self, value: object) -> None:
        self._value = value

    @classmethod
    def of(cls, value: object) -> Any:
        return value if value is inspect.Parameter.empty else cls(value)

    def __repr__(self) -> str:
        simple = isinstance(self._value, str | int | float | tuple | None)
        named = str(self._value)
        return repr(self._value) if simple else "..." if named.startswith("<") else named


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.split("\n\n")[0].split())
    paragraph = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", paragraph).replace("``", "`")
    sentence = re.split(r"(?<=[^.][a-z0-9)`][.])(?<!Sec\.)(?<!Eq\.) (?=[A-Z`])", paragraph)[0]
    assert sentence, "a public name without a word about it"
    return sentence if sentence.endswith((".", ":")) else sentence + "."


def _values(thing: Any) -> str:
    """The words of a Literal, the keys of a table, a number itself."""
    if get_origin(thing) is Literal:
        return ", ".join(f"`{value!r}`" for value in get_args(thing)).replace("'", '"') + "."
    if isinstance(thing, dict | tuple):
        return ", ".join(f"`{key}`" for key in thing) + "."
    return f"{thing}." if isinstance(thing, int) else ""


def _defined(module: ModuleType) -> list[str]:
    """What a file without ``__all__`` defines itself."""
    tree = ast.parse(Path(str(module.__file__)).read_text())
    names = [name for node in tree.body for name in _names_of(node)]
    return [name for name in names if not name.startswith("_")]


def _names_of(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign):
        return [ast.unparse(node.target)]
    return [ast.unparse(target) for target in node.targets] if isinstance(node, ast.Assign) else []


def _comment_above(room: str, name: str) -> str:
    """The ``#:`` lines above a constant, in the file that it comes from."""
    text = Path(str(importlib.import_module(room).__file__)).read_text()
    for node in ast.parse(text).body:
        if name in _names_of(node):
            lines = text.splitlines()[: node.lineno - 1]
            found: list[str] = []
            while lines and lines[-1].startswith("#:"):
                found.insert(0, lines.pop().removeprefix("#:"))
            return " ".join(found)
        if isinstance(node, ast.ImportFrom) and any(a.name == name for a in node.names):
            return _comment_above(str(node.module), name)
    raise AssertionError(f"{room}.{name} is defined nowhere")

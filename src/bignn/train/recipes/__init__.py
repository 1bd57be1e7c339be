"""How to train which model: recipes by name, by what is known of the graph, changed as asked.

Plain data without torch, but for building a model.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from bignn.config import SampleKind, Sampling, Settings
from bignn.errors import input_error
from bignn.graph import GraphLike, as_graph
from bignn.train.recipes.definition import Recipe
from bignn.train.recipes.paper import PAPER
from bignn.train.recipes.tables import MANY_LABELS, MANY_LABELS_STUDENTS, RECIPES, STUDENTS, TWINS

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "MANY_LABELS",
    "MANY_LABELS_STUDENTS",
    "PAPER",
    "RECIPES",
    "SAMPLING",
    "STUDENTS",
    "TWINS",
    "Known",
    "Recipe",
    "Settings",
    "recipe",
    "settings_for",
    "teacher_recipe",
]

#: From this share of labelled nodes on a graph has many.
_MANY = 0.1


@runtime_checkable
class Known(Protocol):
    """What recipes go by: of a :class:`bignn.Graph`, or of one that is not at hand."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def num_nodes(self) -> int:
        """N."""

    @property
    def train_idx(self) -> Sized | None:
        """The labelled nodes."""


def recipe(
    model: str, *, graph: Known | GraphLike | None = None, distill: bool = False, **changes: Any
) -> Recipe:
    """The recipe of a model name, with some of its values changed.

    Args:
        model: a key of :data:`RECIPES`.
        graph: what it is for, a PyG ``Data`` too: graphs with many labels ask for another recipe
            than those with few.
        distill: for training with a teacher.
        changes: any field of :class:`Recipe`, :class:`Settings` or :class:`Sampling`
            (its kind as ``sampler``, ``"none"`` for the whole graph); None keeps the recipe's own.

    """
    if model not in RECIPES:
        raise input_error("model", f"one of {list(RECIPES)}", repr(model))
    base = _base(model, _known(graph), distill)
    given = {name: value for name, value in changes.items() if value is not None}
    of_sampling = {name: given.pop(name) for name in list(given) if name in SAMPLING}
    of_settings = {field.name for field in fields(Settings)}
    settings = {name: given.pop(name) for name in list(given) if name in of_settings}
    if of_sampling:
        settings["sampling"] = _sampled(base.settings.sampling, of_sampling)
    changed = replace(base, settings=replace(base.settings, **settings), **given)
    if "fan_outs" not in of_sampling:
        changed = replace(changed, settings=_as_deep(changed.settings, changed.layers))
    if (sampling := changed.settings.sampling) is not None:
        sampling.check_model(changed.conv, changed.layers, jumps=changed.jump != "none")
    return changed


def _as_deep(settings: Settings, layers: int) -> Settings:
    """The same with a fan-out for each layer: the last one given serves those beyond it."""
    sampling = settings.sampling
    if sampling is None or not sampling.fan_outs:
        return settings
    fan_outs = (sampling.fan_outs + sampling.fan_outs[-1:] * layers)[:layers]
    return replace(settings, sampling=replace(sampling, fan_outs=fan_outs))


#: Changes that are about samples.
SAMPLING = ("sampler", *(field.name for field in fields(Sampling) if field.name != "kind"))
_FIRST_TRY: dict[str, Sampling] = {
    "neighbor": Sampling("neighbor", 1024, fan_outs=(10, 10)),
    "walk": Sampling("walk", 1500),
    "node": Sampling("node", 4000),
    "edge": Sampling("edge", 2000),
    "layer": Sampling("layer", 256, fan_outs=(400, 400)),
}


def _sampled(own: Sampling | None, changes: dict[str, Any]) -> Sampling | None:
    kind: SampleKind | Literal["none"] | None = changes.pop("sampler", None)
    if kind is None and own is None:  # what is only said of one sampler means it
        meant: dict[str, SampleKind] = {"fan_outs": "neighbor", "walk_length": "walk"}
        kind = next((meant[name] for name in changes if name in meant), "none")
    if kind == "none":
        if changes:
            fix = f"name a sampler, one of {list(_FIRST_TRY)}"
            name, value = next(iter(changes.items()))
            raise input_error(name, "left out without a sampler", value, fix)
        return None
    if kind is not None and (own is None or kind != own.kind):
        if kind not in _FIRST_TRY:
            raise input_error("sampler", f"'none' or one of {list(_FIRST_TRY)}", repr(kind))
        own = _FIRST_TRY[kind]
    assert own is not None
    for name, kinds in (("fan_outs", ("neighbor", "layer")), ("walk_length", ("walk",))):
        if name in changes and own.kind not in kinds:
            raise input_error(name, f"left out with sampler '{own.kind}'", changes[name])
    return replace(own, **changes)


def teacher_recipe(model: str = "bi-gcn", graph: GraphLike | None = None, **changes: Any) -> Recipe:
    """The float twin of a model, to learn from: not the one that is best itself, but the one whose
    students are (docs/trials.md).
    """
    # Teachers of students who listen to them more or less are the same.
    plain = {"distill_mix": Settings.distill_mix, **changes}
    return recipe(TWINS.get(model, model), graph=graph, distill=True, **plain)


def _known(graph: Known | GraphLike | None) -> Known | None:
    return graph if graph is None or isinstance(graph, Known) else as_graph(graph)


def _base(model: str, graph: Known | None, distill: bool) -> Recipe:
    of_paper = {} if graph is None else PAPER.get(graph.name, {})
    return of_paper[model] if model in of_paper else _table(graph, distill)[model]


def _table(graph: Known | None, distill: bool) -> dict[str, Recipe]:
    labelled = 0 if graph is None or graph.train_idx is None else len(graph.train_idx)
    if graph is not None and labelled and labelled >= _MANY * graph.num_nodes:
        return MANY_LABELS_STUDENTS if distill else MANY_LABELS
    return STUDENTS if distill else RECIPES


def settings_for(
    model: nn.Module, graph: Known | GraphLike | None = None, *, distill: bool = False
) -> Settings:
    """The settings of the recipe whose model is of this kind, or the plain defaults."""
    from bignn.nn import GNN

    if isinstance(model, GNN):
        about = _known(graph)
        for known in (_base(name, about, distill) for name in RECIPES):
            kind = (known.binarize, known.conv, known.jump)
            if kind == tuple(model.config[key] for key in ("binarize", "conv", "jump")):
                return _as_deep(known.settings, len(model.convs))
    return Settings()

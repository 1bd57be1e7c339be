"""Recipes: how to train which model, by the model's name and what the graph is like.

A graph's name plays no part. The paper's own settings are used where they are asked for by name:
``recipe("bi-sage", paper="reddit")``. Plain data without torch, except for building a model.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from bignn.config import SampleKind, Sampling, Settings
from bignn.config.input_bits import AUTO
from bignn.errors import did_you_mean, input_error
from bignn.graph import Graph, GraphLike, as_graph
from bignn.graph.split import has_many_labels
from bignn.runtime.input_bits import choose_input_bits, is_dense
from bignn.runtime.parts.graph_part import Partition
from bignn.train.recipes.definition import Recipe
from bignn.train.recipes.paper import PAPER
from bignn.train.recipes.tables import (
    CONVERTED,
    MANY_LABELS,
    MANY_LABELS_STUDENTS,
    RECIPES,
    STUDENTS,
    TWINS,
)

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "CONVERTED",
    "MANY_LABELS",
    "MANY_LABELS_STUDENTS",
    "PAPER",
    "RECIPES",
    "SAMPLING",
    "STUDENTS",
    "TWINS",
    "Labelled",
    "Recipe",
    "Settings",
    "recipe",
    "recipe_name",
    "settings_for",
    "teacher_recipe",
]

#: Values that are None where there is no such thing, and "none" in changes.
_MAY_BE_NONE = ("jk", "edge_bits")


@runtime_checkable
class Labelled(Protocol):
    """Properties of a graph that recipes depend on; the graph itself need not be at hand."""

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""

    @property
    def train_idx(self) -> Sized | None:
        """The labelled nodes."""


def recipe(
    model: str,
    *,
    graph: Labelled | GraphLike | None = None,
    distill: bool = False,
    paper: str | None = None,
    **changes: Any,
) -> Recipe:
    """Choose the recipe of a model, with some of its values changed.

    Args:
        model: a key of :data:`RECIPES`.
        graph: the graph to train on, a PyG ``Data`` too; graphs with many labels have other recipes
            than those with few.
        distill: whether the model learns from a teacher.
        paper: a dataset of the paper, a key of :data:`PAPER`, whose settings there to use instead;
            None for recipes by what the graph is like.
        changes: any field of :class:`Recipe`, :class:`Settings` or :class:`Sampling`
            (its kind as ``sampler``, ``"none"`` for the whole graph; ``jk="none"`` for no jumping
            knowledge, ``edge_bits="none"`` for float weights); None keeps the recipe's own.

    """
    if model not in RECIPES:
        raise input_error("model", f"one of {list(RECIPES)}", repr(model))
    base = _of_graph(model, graph, distill) if paper is None else _of_paper(model, paper)
    given = {name: value for name, value in changes.items() if value is not None}
    for name in _MAY_BE_NONE:
        if given.get(name) == "none":
            given[name] = None
    of_sampling = {name: given.pop(name) for name in list(given) if name in SAMPLING}
    of_settings = {field.name for field in fields(Settings)}
    settings = {name: given.pop(name) for name in list(given) if name in of_settings}
    if of_sampling:
        settings["sampling"] = _sampled(base.settings.sampling, of_sampling)
    of_recipe = {field.name for field in fields(Recipe)}
    for name in given.keys() - of_recipe:
        known = sorted((of_recipe - {"settings"}) | of_settings | set(SAMPLING))
        raise input_error("changes", f"some of {known}", repr(name), did_you_mean(name, known))
    changed = replace(base, settings=replace(base.settings, **settings), **given)
    if paper is None and changed.binarize in ("features", "both"):
        changed = _for_features(changed, graph, given)
    if "fan_outs" not in of_sampling:
        changed = replace(changed, settings=_as_deep(changed.settings, changed.num_layers))
    if (sampling := changed.settings.sampling) is not None:
        sampling.check_model(changed.conv, changed.num_layers, jumps=changed.jk is not None)
    return changed


def teacher_recipe(
    model: str = "bi-gcn",
    graph: Labelled | GraphLike | None = None,
    *,
    paper: str | None = None,
    **changes: Any,
) -> Recipe:
    """Choose the recipe of a model's float teacher: its float twin, with settings for teaching.

    These make the best students, not the highest float accuracy (docs/trials.md). With ``paper`` a
    teacher has the paper's own settings.
    """
    # A teacher does not depend on how much its students learn from it.
    plain = {"distill_mix": Settings.distill_mix, **changes}
    return recipe(TWINS.get(model, model), graph=graph, distill=True, paper=paper, **plain)


def settings_for(
    model: nn.Module, graph: Labelled | GraphLike | None = None, *, distill: bool = False
) -> Settings:
    """Choose the settings of the recipe that builds such a model, or of converted models.

    All other models have the plain defaults.
    """
    from bignn.nn.convert.wrapped_layer import has_binary_layers

    if (name := recipe_name(model)) is not None:
        return _as_deep(_of_graph(name, graph, distill).settings, len(model.convs))  # type: ignore[arg-type]
    return CONVERTED if has_binary_layers(model) else Settings()


def recipe_name(model: nn.Module) -> str | None:
    """Return the name of the recipe that builds such a model, whatever its width; None if none."""
    from bignn.nn import GNN

    options = ("binarize", "conv", "jk")
    if isinstance(model, GNN):
        for name, known in RECIPES.items():
            if all(getattr(known, option) == model.config[option] for option in options):
                return name
    return None


def _of_graph(model: str, graph: Labelled | GraphLike | None, distill: bool) -> Recipe:
    """Return a model's recipe for such a graph; one in parts is trained full batch."""
    own = _table(graph, distill)[model]
    if isinstance(graph, Partition):
        own = replace(own, settings=replace(own.settings, sampling=None, inductive=False))
    return own


def _table(graph: Labelled | GraphLike | None, distill: bool) -> dict[str, Recipe]:
    if graph is not None and not isinstance(graph, Labelled):
        graph = as_graph(graph)
    if graph is not None and _has_many_labels(graph):
        return MANY_LABELS_STUDENTS if distill else MANY_LABELS
    return STUDENTS if distill else RECIPES


def _has_many_labels(graph: Labelled) -> bool:
    return has_many_labels(graph.num_nodes, 0 if graph.train_idx is None else len(graph.train_idx))


def _for_features(own: Recipe, graph: Labelled | GraphLike | None, given: dict[str, Any]) -> Recipe:
    """Adapt the recipe of a model with binary features to what the features are like.

    A node's length tells something where features are dense: their rows are not normalised.
    """
    if isinstance(graph, Partition):
        dense, chosen = graph.is_dense, graph.input_bits
    elif graph is None or (isinstance(graph, Labelled) and not isinstance(graph, Graph)):
        return own  # a graph that is not at hand
    else:
        whole = as_graph(graph)
        dense, chosen = is_dense(whole.x), auto_input_bits(whole)
    if "normalize_rows" not in given and dense:
        own = replace(own, normalize_rows=False)
    if own.input_bits == AUTO:
        own = replace(own, input_bits=chosen)
    if "drop" not in given and own.input_bits.startswith("learned") and own.input_dropout is None:
        own = replace(own, drop="all")  # as accurate (docs/trials.md), and far faster
    return own


def auto_input_bits(graph: Graph) -> str:
    """Choose what ``input_bits="auto"`` means for a graph."""
    return choose_input_bits(graph.x, has_many_labels=_has_many_labels(graph))


def _of_paper(model: str, paper: str) -> Recipe:
    if paper not in PAPER:
        raise input_error("paper", f"a dataset of the paper, one of {list(PAPER)}", repr(paper))
    if model not in PAPER[paper]:
        expected = f"one that the paper trains on {paper}, one of {list(PAPER[paper])}"
        raise input_error("model", expected, repr(model))
    return PAPER[paper][model]


def _as_deep(settings: Settings, num_layers: int) -> Settings:
    """Give every layer a fan-out; the last one given serves the layers beyond it."""
    sampling = settings.sampling
    if sampling is None or not sampling.fan_outs:
        return settings
    fan_outs = (sampling.fan_outs + sampling.fan_outs[-1:] * num_layers)[:num_layers]
    return replace(settings, sampling=replace(sampling, fan_outs=fan_outs))


#: Changes that are about samples.
SAMPLING = ("sampler", *(field.name for field in fields(Sampling) if field.name != "kind"))
_DEFAULT_SAMPLING: dict[str, Sampling] = {
    "neighbor": Sampling("neighbor", 1024, fan_outs=(10, 10)),
    "walk": Sampling("walk", 1500),
    "node": Sampling("node", 4000),
    "edge": Sampling("edge", 2000),
    "layer": Sampling("layer", 256, fan_outs=(400, 400)),
}


def _sampled(own: Sampling | None, changes: dict[str, Any]) -> Sampling | None:
    kind: SampleKind | Literal["none"] | None = changes.pop("sampler", None)
    if kind is None and own is None:  # an option of one sampler alone implies that sampler
        implied: dict[str, SampleKind] = {"fan_outs": "neighbor", "walk_length": "walk"}
        kind = next((implied[name] for name in changes if name in implied), "none")
    if kind == "none":
        if changes:
            fix = f"name a sampler, one of {list(_DEFAULT_SAMPLING)}"
            name, value = next(iter(changes.items()))
            raise input_error(name, "left out without a sampler", value, fix)
        return None
    if kind is not None and (own is None or kind != own.kind):
        if kind not in _DEFAULT_SAMPLING:
            raise input_error("sampler", f"'none' or one of {list(_DEFAULT_SAMPLING)}", repr(kind))
        own = _DEFAULT_SAMPLING[kind]
    assert own is not None
    for name, kinds in (("fan_outs", ("neighbor", "layer")), ("walk_length", ("walk",))):
        if name in changes and own.kind not in kinds:
            raise input_error(name, f"left out with sampler '{own.kind}'", changes[name])
    return replace(own, **changes)

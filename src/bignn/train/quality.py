"""The accurate path, by one name: the recommended width, float teachers, and what validation says.

A student does not follow teachers that make it worse: it is trained without them too, and the
better kind on validation counts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copyfile
from statistics import fmean
from typing import Any, Literal

from torch import nn

from bignn.capacity import recommend_width
from bignn.config import Settings
from bignn.errors import InputError, input_error
from bignn.files import atomic_path
from bignn.graph import Graph, GraphLike, as_graph
from bignn.train import distributed
from bignn.train.checkpoint import load_model
from bignn.train.fit import FitResult, Quality, fit
from bignn.train.recipes import (
    TWINS,
    Recipe,
    recipe,
    recipe_name,
    teacher_recipe,
)
from bignn.train.seeds import (
    SeedResults,
    Teachers,
    fit_model,
    teachers_of,
    train_seeds,
    train_teachers,
)

__all__ = ["NUM_TEACHERS", "BestResults", "Quality", "Students", "fit_best", "train_best"]

#: Teachers of each seed; more hardly help (docs/trials.md).
NUM_TEACHERS = 4
#: Options of a recipe that matter only with a teacher.
_OF_TEACHING = ("distill_mix", "temperature")


@dataclass(frozen=True)
class Students:
    """Models that were trained with teachers and without.

    Attributes:
        kind: ``"distilled"``, or ``"alone"`` where teachers make validation worse, by the mean
            accuracy of the seeds that were trained both ways.
        distilled, alone: the seeds of both kinds; those of the kind that was not chosen are the
            ones that decided.

    """

    kind: Literal["distilled", "alone"]
    distilled: SeedResults
    alone: SeedResults

    @property
    def chosen(self) -> SeedResults:
        """The seeds of the better kind."""
        return self.distilled if self.kind == "distilled" else self.alone

    @property
    def validation(self) -> dict[str, float]:
        """Mean validation accuracy of both kinds, over the seeds that were trained both ways."""
        both = min(len(self.distilled.seeds), len(self.alone.seeds))
        kinds = {"distilled": self.distilled, "alone": self.alone}
        return {
            kind: fmean(result.val_acc for result in some.results[:both])
            for kind, some in kinds.items()
        }


@dataclass(frozen=True)
class BestResults:
    """What :func:`train_best` trained.

    Attributes:
        students: the binary models, with teachers and without.
        teachers: the float teachers.
        recipe: the recipe of the chosen kind.

    """

    students: Students
    teachers: SeedResults
    recipe: Recipe

    @property
    def chosen(self) -> SeedResults:
        """The seeds of the better kind by mean validation accuracy."""
        return self.students.chosen

    @property
    def seconds_per_seed(self) -> float:
        """Time that a seed took, its teachers and the kind that was not chosen included."""
        every = (self.teachers, self.students.distilled, self.students.alone)
        return sum(some.seconds for some in every) / len(self.chosen.seeds)


def train_students(
    taught: Recipe,
    alone: Recipe,
    graph: Graph,
    seeds: list[int],
    teachers: Teachers,
    *,
    out: Path,
    out_alone: Path,
    deciding: int = 1,
    label: str = "",
    **options: Any,
) -> Students:
    """Train models with teachers, unless validation says that they are better without.

    Args:
        taught: the recipe with teachers.
        alone: the recipe without.
        graph: the graph.
        seeds: the seeds.
        teachers: the teachers of each seed.
        out: folder of the checkpoints of those with teachers.
        out_alone: folder of the others.
        deciding: how many seeds, the first ones, are trained both ways; the others are trained as
            these are better.
        label: name of the run in messages.
        options: those of :func:`bignn.train.seeds.train_seeds`.

    """
    ways: dict[str, dict[str, Any]] = {
        "distilled": {"recipe": taught, "out": out, "teachers": teachers},
        "alone": {"recipe": alone, "out": out_alone, "teachers": None},
    }

    def train(kind: str, some: list[int]) -> SeedResults:
        labelled = f"{label}, {kind}"
        return train_seeds(graph=graph, seeds=some, label=labelled, **ways[kind], **options)

    found = {kind: train(kind, seeds[:deciding]) for kind in ways}
    follows = found["distilled"].val_acc >= found["alone"].val_acc
    kind: Literal["distilled", "alone"] = "distilled" if follows else "alone"
    if rest := seeds[deciding:]:
        found[kind] = found[kind] + train(kind, rest)
    return Students(kind, found["distilled"], found["alone"])


def keep_chosen(students: Students, out: Path) -> SeedResults:
    """Copy the chosen models to ``out``, where they are whichever kind was better."""
    paths = [out / path.name for path in students.chosen.checkpoints]
    if distributed.is_leader():
        for path, kept in zip(students.chosen.checkpoints, paths, strict=True):
            with atomic_path(kept) as file:
                copyfile(path, file)
    return replace(students.chosen, checkpoints=paths)


def without_teaching(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the changes to a recipe that a model without teachers can have."""
    return {name: value for name, value in changes.items() if name not in _OF_TEACHING}


def train_best(
    model: str,
    graph: Graph,
    seeds: list[int],
    out: str | os.PathLike[str],
    *,
    num_teachers: int = NUM_TEACHERS,
    label: str = "",
    resume: bool = False,
    changes: dict[str, Any] | None = None,
    **options: Any,
) -> BestResults:
    """Train a binary model as accurately as is known, by what validation says.

    Float teachers, which read the features themselves, are trained first; the binary model is as
    wide as :func:`bignn.recommend_width` advises for the first of them, and trained both with its
    teachers and alone. Its input bits are chosen by the features, as always.

    Args:
        model: a binary model, a key of ``recipes.RECIPES`` that has a float twin.
        graph: the graph.
        seeds: the seeds; neighbouring ones share teachers (:func:`~bignn.train.seeds.teachers_of`).
        out: folder of the checkpoints, with folders ``teacher``, ``distilled`` and ``alone``.
        num_teachers: teachers of each seed.
        label: name of the run in messages.
        resume: read finished checkpoints in ``out`` instead of training anew.
        changes: changes to the recipe; a width (``hidden_channels``) in place of the recommended.
        options: those of :func:`bignn.train.seeds.train_seeds`.

    """
    if model not in TWINS:
        raise input_error("model", f"a binary one for the best quality, of {list(TWINS)}", model)
    given = {name: value for name, value in (changes or {}).items() if value is not None}
    of_both = {name: given[name] for name in ("epochs", "patience") if name in given}
    asked = teacher_recipe(model, graph, **of_both)
    folder, label = Path(out), label or f"{model} on {graph.name}"
    teaching, teachers = train_teachers(
        asked, graph, seeds, num_teachers, folder / "teacher", label=f"{label}, teacher", **options
    )
    if "hidden_channels" not in given:
        given["hidden_channels"] = _width(teaching.checkpoints[0], graph, model)
    taught = recipe(model, graph=graph, distill=True, **given)
    alone = recipe(model, graph=graph, **without_teaching(given))
    students = train_students(
        taught,
        alone,
        graph,
        seeds,
        teachers,
        out=folder / "distilled",
        out_alone=folder / "alone",
        deciding=len(seeds),
        label=label,
        resume=resume,
        replace_unusable=resume,
        **options,
    )
    return BestResults(students, teaching, taught if students.kind == "distilled" else alone)


def fit_best(
    model: nn.Module,
    graph: GraphLike,
    settings: Settings | Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    num_teachers: int = NUM_TEACHERS,
    **options: Any,
) -> FitResult:
    """Train a binary model in place with float teachers and without, and keep the better one.

    The teachers are float versions as deep as the model, by their own recipe, and are not kept.
    The model's width stays as it is, and its input bits are chosen by the features as always.

    Args:
        model: a binary :class:`bignn.nn.GNN` of a kind that has a recipe.
        graph: a graph with classes.
        settings: those of both trainings; by default the best known for each.
        seed: the seed, as of :func:`bignn.fit`; that of teacher k is ``seed + k``.
        num_teachers: how many teachers.
        options: those of :func:`bignn.fit`.

    """
    name = recipe_name(model)
    if name not in TWINS:
        got = type(model).__name__ if name is None else f"'{name}'"
        raise input_error("model", "a binary model of bignn.nn for the best quality", got)
    graph = as_graph(graph)
    asked = teacher_recipe(name, graph, num_layers=len(model.convs))  # type: ignore[arg-type]
    quiet = {**options, "on_epoch": None}
    teachers = [
        fit_model(asked, graph, number, **quiet)[0] for number in teachers_of(seed, num_teachers)
    ]
    alone = deepcopy(model)
    by_teachers, by_itself = (
        fit(
            student,
            graph,
            settings,
            seed=seed,
            teacher=taught_by,
            **options,
        )
        for student, taught_by in ((model, teachers), (alone, None))
    )
    if by_itself.val_acc <= by_teachers.val_acc:
        return by_teachers
    model.load_state_dict(alone.state_dict())
    return by_itself


def _width(teacher: Path, graph: Graph, model: str) -> int:
    """Return the recommended width per head, at least the recipe's own."""
    own = recipe(model, graph=graph, distill=True)
    try:
        advice = int(recommend_width(load_model(teacher), graph))
    except InputError:  # no hidden layer
        return own.hidden_channels
    return max(own.hidden_channels, -(-advice // own.heads))

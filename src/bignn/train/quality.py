"""The accurate path: a binary model as wide as is recommended, taught by several float models."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from bignn.capacity import recommend_width
from bignn.errors import InputError, input_error
from bignn.graph import Graph
from bignn.train.checkpoint import load_model
from bignn.train.recipes import TWINS, Recipe, recipe, teacher_recipe
from bignn.train.seeds import SeedResults, train_seeds, train_teachers

#: Teachers of each seed; more hardly help (docs/trials.md).
NUM_TEACHERS = 4


@dataclass(frozen=True)
class BestResults:
    """What :func:`train_best` trained.

    Attributes:
        chosen: the seeds of the better kind by mean validation accuracy.
        kind: ``"distilled"``, or ``"alone"`` where teachers make validation worse.
        distilled, alone: the seeds of both kinds.
        teachers: the float teachers.
        recipe: the recipe of the chosen kind.

    """

    chosen: SeedResults
    kind: Literal["distilled", "alone"]
    distilled: SeedResults
    alone: SeedResults
    teachers: SeedResults
    recipe: Recipe


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

    Float teachers are trained first; the binary model is as wide as :func:`bignn.recommend_width`
    advises for the first of them, and trained both with its teachers and alone. A student does not
    follow teachers that make it worse: of the two kinds that with the higher mean validation
    accuracy counts. Its input bits are chosen by the features, as always.

    Args:
        model: a binary model, a key of ``recipes.RECIPES`` that has a float twin.
        graph: the graph.
        seeds: the seeds; each has teachers of its own.
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
    students = recipe(model, graph=graph, distill=True, **given)
    # Only teachers are learned from by shares and temperatures.
    alone = recipe(
        model,
        graph=graph,
        **{name: value for name, value in given.items() if name not in _OF_TEACHING},
    )
    trained: dict[str, SeedResults] = {}
    for kind, chosen, taught_by in (("distilled", students, teachers), ("alone", alone, None)):
        trained[kind] = train_seeds(
            chosen,
            graph,
            seeds,
            folder / kind,
            resume=resume,
            replace_unusable=resume,
            label=f"{label}, {kind}",
            teachers=taught_by,
            **options,
        )
    follows = _validation(trained["distilled"]) >= _validation(trained["alone"])
    return BestResults(
        trained["distilled" if follows else "alone"],
        "distilled" if follows else "alone",
        trained["distilled"],
        trained["alone"],
        teaching,
        students if follows else alone,
    )


_OF_TEACHING = ("distill_mix", "temperature")


def _validation(trained: SeedResults) -> float:
    return fmean(result.val_acc for result in trained.results)


def _width(teacher: Path, graph: Graph, model: str) -> int:
    """Return the recommended width per head, at least the recipe's own."""
    own = recipe(model, graph=graph, distill=True)
    try:
        advice = int(recommend_width(load_model(teacher), graph))
    except InputError:  # no hidden layer
        return own.hidden_channels
    return max(own.hidden_channels, -(-advice // own.heads))

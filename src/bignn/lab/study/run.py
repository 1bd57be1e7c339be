"""One training run of an experiment as data. No torch, so that results are read without it.

A run is identified by what decides its result: the graph, the recipe, the teacher's recipe and the
seed (:meth:`Run.key`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from bignn.config.input_bits import SIGN
from bignn.graph import Graph
from bignn.train.recipes import Recipe, recipe, teacher_recipe

#: The ledger of runs in a folder of results.
RUNS = "runs.jsonl"
#: A digest of all that decides a run's result except the seed, and the seed.
Key = tuple[str, int]


@dataclass(frozen=True)
class Run:
    """A model trained on a graph with a seed.

    Attributes:
        dataset: a name or a path, as :func:`bignn.load` takes it.
        model: a key of ``recipes.RECIPES``.
        seed: of weights, dropout and samples.
        distill: from float teachers, trained first; they are the same for all students of a seed.
        teachers: how many of them, whose opinions are averaged.
        paper: train by the paper's settings on this dataset, not by what the graph is like.
        changes: to the recipe, as ``(("hidden_channels", 128), ...)``.
        curve: whether the validation loss of every epoch is wanted too.

    """

    dataset: str
    model: str
    seed: int = 0
    distill: bool = False
    teachers: int = 1
    changes: tuple[tuple[str, Any], ...] = ()
    paper: bool = False
    curve: bool = False

    @property
    def row(self) -> str:
        """Its name without the seed, as ``cora/bi-gcn/distilled/hidden_channels=128``."""
        changes = [f"{name}={value}" for name, value in self.changes]
        if self.distill:
            changes.insert(0, "distilled" if self.teachers == 1 else f"distilled-{self.teachers}")
        if self.paper:
            changes.insert(0, "as-paper")
        return "/".join([Path(self.dataset).stem, self.model, *changes])

    def recipe(self, graph: Graph) -> Recipe:
        """Return the recipe of this run."""
        paper = Path(self.dataset).stem if self.paper else None
        changes = dict(self.changes)
        return recipe(self.model, graph=graph, distill=self.distill, paper=paper, **changes)

    def teacher_recipe(self, graph: Graph) -> Recipe | None:
        """Return the teacher's recipe: the default one, trained at most as long as the student."""
        if not self.distill:
            return None
        of_both = {k: v for k, v in self.changes if k in ("epochs", "patience")}
        paper = Path(self.dataset).stem if self.paper else None
        return teacher_recipe(self.model, graph, paper=paper, **of_both)

    def key(self, graph: Graph) -> Key:
        """Return a digest of everything but the seed that affects the result, and the seed."""
        several = {} if self.teachers == 1 or not self.distill else {"teachers": self.teachers}
        recipes = self.recipe(graph), self.teacher_recipe(graph)
        return digest(graph, *recipes, **several), self.seed


def digest(graph: Graph, *recipes: Recipe | None, **more: int) -> str:
    """Return a digest of a graph and of all settings in recipes that differ from their defaults.

    An option that is added later thus leaves the keys of older runs as they are.
    """
    decides = [graph.digest(), *map(_not_default, recipes), *more.items()]
    text = json.dumps(decides, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


#: Defaults of the time when options were added, where they are others now.
_FIRST_DEFAULTS: dict[str, Any] = {"edge_bits": None, "input_bits": SIGN}


def _not_default(value: Any) -> Any:
    if not is_dataclass(value):
        return value
    changed = {}
    for field in fields(value):
        mine = getattr(value, field.name)
        if field.name == "edge_bits" and getattr(value, "binarize", None) != "both":
            continue  # nothing is rounded
        default = _FIRST_DEFAULTS.get(field.name, field.default)
        if default is MISSING or mine != default:
            changed[field.name] = _not_default(mine)
    return changed

"""Trains the models of a comparison, each into a folder of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bignn.graph import Graph
from bignn.lab.compare.comparison import BEST, Comparison
from bignn.train.quality import BestResults, Students, train_best, train_students
from bignn.train.recipes import TWINS, Recipe, recipe, teacher_recipe
from bignn.train.seeds import SeedResults, Teachers, train_seeds


@dataclass
class Training:
    """The trained models of a comparison.

    Attributes:
        what: the comparison.
        graph: its graph.
        out: the folder of all checkpoints.
        resume: whether finished ones are read.
        options: device, processes and progress, as :func:`train_seeds` takes them.
        trained: the seeds of each row, and of teachers and float students.
        students: of distilled rows, those with teachers and without.
        best: of rows of the best quality, all that was trained for them.

    """

    what: Comparison
    graph: Graph
    out: Path
    resume: bool
    options: dict[str, Any]
    trained: dict[str, SeedResults] = field(default_factory=dict)
    students: dict[str, Students] = field(default_factory=dict)
    best: dict[str, BestResults] = field(default_factory=dict)

    def train_all(self) -> None:
        """Train every row; with ``distill`` float students and teachers too.

        Float models are trained first, since binary ones may learn from them.
        """
        what = self.what
        for name in what.models:
            if name not in TWINS or not what.distill:
                chosen = recipe(name, graph=self.graph, **what.changes(name))
                self.trained[name] = self.train(chosen, self._kind(name))
        for name in what.models if what.distill else ():
            if name in TWINS:
                self._train_students(name)
        for name in what.models if what.quality == "best" else ():
            if name in TWINS:
                self._train_best(name)

    @property
    def seconds(self) -> float:
        """Time that all of it took."""
        students = [*self.students.values(), *(some.students for some in self.best.values())]
        every = [
            *self.trained.values(),
            *(kind for some in students for kind in (some.distilled, some.alone)),
            *(some.teachers for some in self.best.values()),
        ]
        return sum(one.seconds for one in {id(one): one for one in every}.values())

    def train(
        self,
        chosen: Recipe,
        folder: str,
        teachers: Teachers | None = None,
        seeds: list[int] | None = None,
    ) -> SeedResults:
        """Train a model by a recipe, with all seeds or some."""
        return train_seeds(
            chosen,
            self.graph,
            self._seeds if seeds is None else seeds,
            self.out / folder,
            label=f"{folder} on {self._label}",
            teachers=teachers,
            **self._common,
        )

    def teachers(self, name: str, seeds: list[int] | None = None) -> Teachers:
        """Return the float teachers of a binary model's seeds, one each, trained if need be."""
        twin = TWINS[name]
        asked = teacher_recipe(name, self.graph, **self.what.changes(twin))
        key = teacher_of(twin)
        if asked == recipe(twin, graph=self.graph, **self.what.changes(twin)):
            self.trained[key] = self.trained[twin]
        elif key not in self.trained:
            self.trained[key] = self.train(asked, self._kind(twin, "-teacher"), seeds=seeds)
        found = self.trained[key]
        paths = zip(found.seeds, found.checkpoints, strict=True)
        return Teachers(checkpoints={seed: [path] for seed, path in paths})

    def _train_students(self, name: str) -> None:
        """Train a binary model as a student, unless it is better alone, and a float student."""
        teachers, twin = self.teachers(name), TWINS[name]
        changes = self.what.changes(name)
        folder = self._kind(name, "-distilled")
        self.students[name] = train_students(
            recipe(name, graph=self.graph, distill=True, **changes),
            recipe(name, graph=self.graph, **changes),
            self.graph,
            self._seeds,
            teachers,
            out=self.out / folder,
            out_alone=self.out / self._kind(name),
            label=f"{self._kind(name)} on {self._label}",
            **self._common,
        )
        self.trained[name] = self.students[name].chosen
        if (key := student_of(twin)) not in self.trained:
            chosen = recipe(twin, graph=self.graph, distill=True, **self.what.changes(twin))
            self.trained[key] = self.train(chosen, self._kind(twin, "-distilled"), teachers)

    def _train_best(self, name: str) -> None:
        """Train a binary model of the best quality, as wide as is recommended."""
        changes = {**self.what.changes(name), "hidden_channels": self.what.bi_hidden}
        self.best[name + BEST] = train_best(
            name,
            self.graph,
            self._seeds,
            self.out / (name + BEST),
            label=f"{name + BEST} on {self._label}",
            resume=self.resume,
            changes=changes,
            **self.options,
        )
        self.trained[name + BEST] = self.best[name + BEST].chosen

    @property
    def _seeds(self) -> list[int]:
        return list(range(self.what.seeds))

    @property
    def _label(self) -> str:
        return Path(self.what.dataset).stem

    @property
    def _common(self) -> dict[str, Any]:
        return {**self.options, "resume": self.resume, "replace_unusable": True}

    def _kind(self, name: str, suffix: str = "") -> str:
        hidden = self.what.changes(name)["hidden_channels"]
        return name + ("" if hidden is None else f"-{hidden}") + suffix


def teacher_of(float_model: str) -> str:
    """Return the key of a float model's teachers."""
    return f"{float_model} as a teacher"


def student_of(float_model: str) -> str:
    """Return the key of a float model's students of the same kind."""
    return f"{float_model} as a student"

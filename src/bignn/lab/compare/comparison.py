"""The settings of a comparison, and the command that repeats it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bignn.config.options import COUNT, check_choice
from bignn.errors import InputError, input_error
from bignn.kernels.threads import get_num_threads
from bignn.train.quality import Quality
from bignn.train.recipes import RECIPES, TWINS, recipe

MODELS = ("gcn", "bi-gcn", "sage", "bi-sage")

#: What follows the name of a binary model in that of its row of the best quality.
BEST = "-best"


def model_of(row: str) -> str:
    """Return the model of a row."""
    return row.removesuffix(BEST)


@dataclass(frozen=True)
class Comparison:
    """The settings of a comparison.

    Attributes:
        dataset: a name or a file, as :func:`bignn.load` takes it.
        models: names of recipes; the float twins of binary ones are added, each before its first.
        seeds: number of seeds, from 0 on.
        distill: whether the binary models learn from float ones.
        epochs, patience, hidden: settings of all models; None for those of the recipes.
        bi_hidden: the width of binary models, if it is another.
        input_bits: bits of their input; None for those of the recipes.
        quality: ``"best"`` adds a row for each binary model, trained as accurately as is known.
        advice: whether a binary model that loses accuracy is tried with what may help.

    """

    dataset: str
    models: tuple[str, ...] = MODELS
    seeds: int = 3
    distill: bool = False
    epochs: int | None = None
    patience: int | None = None
    hidden: int | None = None
    bi_hidden: int | None = None
    input_bits: str | None = None
    quality: Quality = "plain"
    advice: bool = True

    def __post_init__(self) -> None:
        names = [name.strip() for name in self.models]
        if not names or len(set(names)) < len(names):
            raise input_error("models", "some names, each once", repr(",".join(names)))
        if self.bi_hidden is not None:
            COUNT.check("bi_hidden", self.bi_hidden)
        for name in names:
            if name not in RECIPES:
                raise input_error("models", f"some of {list(RECIPES)}", repr(name))
            recipe(name, **self.changes(name))  # refuses values that it cannot have
        for name in [name for name in names if name in TWINS]:
            if TWINS[name] not in names:
                names.insert(names.index(name), TWINS[name])
        object.__setattr__(self, "models", tuple(names))
        check_choice("quality", self.quality, Quality)
        if self.seeds < 1:
            raise input_error("seeds", "at least 1", self.seeds)
        asked = "--distill" if self.distill else "--quality best"
        if (self.distill or self.quality == "best") and not any(name in TWINS for name in names):
            raise InputError(
                f"'models' must include a binary model where {asked} is given, got "
                f"'{','.join(names)}'; name one, such as bi-gcn"
            )

    def changes(self, model: str) -> dict[str, Any]:
        """Return the changes to a model's recipe."""
        hidden = self.hidden
        if model in TWINS and self.bi_hidden is not None:
            hidden = self.bi_hidden
        own = {"input_bits": self.input_bits} if model in TWINS else {}
        return {"epochs": self.epochs, "patience": self.patience, "hidden_channels": hidden, **own}

    @property
    def rows(self) -> tuple[str, ...]:
        """The names of all rows: the models, and after a binary one that of the best quality."""
        best = self.quality == "best"
        return tuple(
            row
            for name in self.models
            for row in ((name, name + BEST) if best and name in TWINS else (name,))
        )

    @property
    def folder(self) -> Path:
        """The default folder of its checkpoints."""
        return Path("runs") / f"compare-{Path(self.dataset).stem}"

    def command(self, out: Path, device: str = "cpu", memory: bool = True) -> str:
        """Return the command that repeats this comparison, in a folder and with as many threads."""
        parts = ["bignn", "compare", self.dataset]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value == field.default:
                continue
            flag = f"--{'no-' if value is False else ''}{field.name.replace('_', '-')}"
            listed = ",".join(value) if isinstance(value, tuple) else str(value)
            parts += [flag] if isinstance(value, bool) else [flag, listed]
        parts += [] if device == "cpu" else ["--device", device]
        parts += ["--threads", str(get_num_threads())]
        parts += [] if memory else ["--no-memory"]
        parts += [] if out == self.folder else ["--out", str(out)]
        return shlex.join(parts)

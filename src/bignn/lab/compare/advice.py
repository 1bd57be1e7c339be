"""Advice that was tried: what teachers, width and input bits are worth to a binary model here.

Each is tried alone with one seed where a binary model is behind its float twin on validation, then
those that helped together; the command is that of the best by validation accuracy.
"""

from __future__ import annotations

import shlex
from typing import Any

from bignn.config.input_bits import MOST_BITS_PER_FEATURE, SIGN, InputBits, parse_input_bits
from bignn.lab.compare.measured import Row
from bignn.lab.compare.training import Training
from bignn.lab.compare.verdict import width_per_head
from bignn.train.recipes import TWINS, auto_input_bits, recipe

#: Changes to a recipe; ``"distill"`` is not of the recipe.
Changes = dict[str, Any]

#: The seed that is tried.
_SEED = 0
#: Flags of ``bignn train`` for what a comparison can change.
_FLAGS = {
    "hidden_channels": "--hidden",
    "input_bits": "--input-bits",
    "epochs": "--epochs",
    "patience": "--patience",
}


def advise(training: Training, rows: dict[str, Row]) -> list[dict[str, Any]]:
    """Try what may help every binary model that is behind its float twin on validation.

    Runs that ended by their limit of epochs are left alone: they need more epochs first.
    """
    found = []
    for name in training.what.models:
        if name not in TWINS:
            continue
        binary, twin = training.trained[name], training.trained[TWINS[name]]
        limit = training.what.epochs
        is_cut = limit is not None and min(rows[name]["epochs"]) >= limit
        if binary.val_acc < twin.val_acc and not is_cut:
            found.append(_advice_for(name, training, rows[name]))
    return found


def _advice_for(name: str, training: Training, row: Row) -> dict[str, Any]:
    """Try each remedy, and those that helped together."""
    first = training.trained[name].results[_SEED]
    own = {"hidden_channels": row["hidden"] // row["heads"], "input_bits": row["input_bits"]}
    trials: list[dict[str, Any]] = []
    remedies = _remedies(name, training, row)
    for what, changes in remedies.items():
        trials.append(_trial(name, training, what, changes, own, first.val_acc))
    helped = [trial["what"] for trial in trials if trial["points"] > 0]
    if len(helped) > 1:
        together: Changes = {}
        for what in helped:
            together |= remedies[what]
        trials.append(_trial(name, training, "all that help", together, own, first.val_acc))
    best = max(trials, key=lambda trial: float(trial["points"]), default=None)
    is_better = best is not None and best["points"] > 0
    return {
        "model": name,
        "val_acc": first.val_acc,
        "float_val_acc": training.trained[TWINS[name]].results[_SEED].val_acc,
        "trials": trials,
        "best": best["what"] if best is not None and is_better else None,
        "command": best["command"] if best is not None and is_better else None,
    }


def _remedies(name: str, training: Training, row: Row) -> dict[str, Changes]:
    """Return what may help, each by its name: changes to the model's recipe."""
    found: dict[str, Changes] = {}
    if not training.what.distill:
        found["a teacher"] = {"distill": True}
    width = width_per_head(row)
    if width is not None and width * row["heads"] > row["hidden"]:
        found[f"{width * row['heads']} hidden neurons"] = {"hidden_channels": width}
    if (bits := _more_bits(training, row)) is not None:
        found[f"input bits {bits}"] = {"input_bits": bits}
    return found


def _more_bits(training: Training, row: Row) -> str | None:
    """Return input bits that dense features may need: twice those of the model's encoder."""
    chosen = auto_input_bits(training.graph)
    if chosen == SIGN or recipe(row["model"]).binarize == "weights":
        return None
    encoder = parse_input_bits(row["input_bits"])
    if encoder is None:
        return chosen
    more = 2 * encoder.per_feature
    return str(InputBits(encoder.kind, more)) if more <= MOST_BITS_PER_FEATURE else None


def _trial(
    name: str, training: Training, what: str, changes: Changes, own: Changes, base: float
) -> dict[str, Any]:
    """Train one seed of a changed model; return its validation accuracy and its command."""
    asked = training.what.changes(name)
    given = {**asked, **own, **changes}
    students = training.students.get(name)
    is_taught = students is not None and students.kind == "distilled"
    distill = bool(given.pop("distill", is_taught))
    chosen = recipe(name, graph=training.graph, distill=distill, **given)
    parts = [f"{key}-{value}" for key, value in changes.items() if key != "distill"]
    folder = "-".join([name, *(["distilled"] if distill else []), *parts]).replace(":", "-")
    teachers = training.teachers(name, [_SEED]) if distill else None
    trained = training.train(chosen, f"trials/{folder}", teachers, [_SEED])
    training.trained[f"{name} with {what}"] = trained
    command = ["bignn", "train", training.what.dataset, "--model", name]
    command += ["--distill"] if distill else []
    for key, flag in _FLAGS.items():
        if key in changes or asked[key] is not None:
            command += [flag, str(given[key])]
    return {
        "what": what,
        "val_acc": trained.val_acc,
        "points": trained.val_acc - base,
        "seconds": trained.seconds,
        "command": shlex.join(command),
    }

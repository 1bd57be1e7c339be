"""The verdict of a comparison: what 1 bit costs and saves on this graph, in plain sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from bignn.lab.compare.comparison import model_of
from bignn.lab.compare.measured import Row
from bignn.lab.report.wording import name_of

#: Ratios nearer to 1 than this are called equal.
_EQUAL = 0.05
#: Standard errors from which on a difference of accuracy is not put down to the choice of seeds.
_SURE = 2.0
#: Points of accuracy whose loss is worth an advice where one seed gives no standard error.
_WORTH_ADVICE = 0.5


def verdict(report: dict[str, Any]) -> str:
    """Return a sentence for each binary model beside its float twin, and what to try next."""
    rows = {row["model"]: row for row in report["models"]}
    pairs = [(rows[row["float_twin"]], row) for row in rows.values() if row["compared"] is not None]
    sentences = [_sentence(plain, binary, report) for plain, binary in pairs]
    if not pairs:
        return "Nothing was compared: there is no binary model; name one too, such as bi-gcn."
    sentences[0] = f"On this graph, {sentences[0]}"
    if any(binary["machine_was_busy"] for _, binary in pairs):
        sentences.append(
            "Times are left out: other processes used the machine; measure again when it is idle."
        )
    advice = (_advice(plain, binary, report) for plain, binary in pairs)
    return " ".join([*sentences, *dict.fromkeys(filter(None, advice))])


def accuracy_on(report: dict[str, Any]) -> str:
    """Return the name of the split whose accuracy is compared."""
    return "test" if report["accuracy_on"] == "test" else "validation"


def width_per_head(row: Row) -> int | None:
    """Return the ``--bi-hidden`` that is recommended for a binary model."""
    advice = row["recommended_width"]
    return None if advice is None else -(-advice["width"] // row["heads"])


def binary_name(row: Row) -> str:
    """Return the name of a binary model, and that it is of the best quality where it is."""
    name = name_of(model_of(row["model"]))
    return f"{name} of the best quality" if row["quality"] == "best" else name


def _sentence(plain: Row, binary: Row, report: dict[str, Any]) -> str:
    name, twin = binary_name(binary), name_of(plain["model"])
    taught = ", distilled," if report["distilled"] and binary["quality"] == "plain" else ""
    first, *others = _clauses(plain, binary, report)
    *most, last = [f"{first} against {twin}", *others]
    told = f"{', '.join(most)} and {last}"
    return f"1-bit {name}{taught} {told}."


def _clauses(plain: Row, binary: Row, report: dict[str, Any]) -> Iterator[str]:
    beside = binary["compared"]
    yield _accuracy(plain, binary, accuracy_on(report))
    if beside["memory_times_less"] is not None:
        yield _ratio(beside["memory_times_less"], "takes", "less memory", "more memory")
    else:
        less = beside["model_times_smaller"]
        yield _ratio(less, "takes", "less memory for weights", "more memory for weights")
    if beside["times_faster"] is not None and not binary["machine_was_busy"]:
        yield _ratio(beside["times_faster"], "predicts", "faster", "slower")


def _ratio(times: float, verb: str, better: str, worse: str) -> str:
    if abs(times - 1) < _EQUAL:
        equal = better.replace("less", "as much").replace("faster", "as fast")
        return f"{verb} {equal}"
    return f"{verb} {times:.1f}x {better}" if times > 1 else f"{verb} {1 / times:.1f}x {worse}"


def _accuracy(plain: Row, binary: Row, split: str) -> str:
    points = binary["compared"]["accuracy_points"]
    error = _standard_error(plain, binary)
    what = f"{split} accuracy"
    if error is not None and abs(points) < _SURE * error:
        seeds = len(binary["accuracy"])
        return f"keeps the {what} as far as {seeds} seeds show ({points:+.1f} ± {error:.1f} points)"
    if abs(round(points, 1)) == 0:
        told = f"keeps the {what}"
    else:
        told = f"{'loses' if points < 0 else 'gains'} {abs(points):.1f} points of {what}"
    return told if error is not None else f"{told} (one seed)"


def _standard_error(plain: Row, binary: Row) -> float | None:
    """Return the standard error of the difference of two means; None for one seed."""
    deviations = [(row["accuracy_std"], len(row["accuracy"])) for row in (plain, binary)]
    if any(std is None for std, _ in deviations):
        return None
    return math.sqrt(sum(std**2 / seeds for std, seeds in deviations))


def _advice(plain: Row, binary: Row, report: dict[str, Any]) -> str | None:
    points, error = binary["compared"]["accuracy_points"], _standard_error(plain, binary)
    tried = {found["model"]: found for found in report["advice"]}.get(binary["model"])
    if tried is not None:
        return _tried(tried)
    if points > -max(_WORTH_ADVICE if error is None else _SURE * error, 0.05):
        return None
    limit = report["epochs"]
    if limit is not None and min(binary["epochs"]) >= limit:
        return f"Training stopped at `--epochs {limit}` before it had converged: try more."
    return None if report["quality"] == "best" else "Try `--quality best`."


def _tried(found: dict[str, Any]) -> str | None:
    """Describe what was tried for a model that is behind its float twin on validation."""
    name, trials = name_of(found["model"]), found["trials"]
    if not trials:
        return None
    worth = ", ".join(f"{trial['what']} {trial['points']:+.1f}" for trial in trials)
    tried = f"Tried for {name} with one seed, points of validation accuracy: {worth}"
    if found["command"] is None:
        return f"{tried}; nothing helped."
    return f"{tried}. So train it by `{found['command']}`."

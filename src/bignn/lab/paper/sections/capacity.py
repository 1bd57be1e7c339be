"""Entropy and width."""

from __future__ import annotations

import math
import statistics
from typing import Any

from bignn.lab.paper.published import CAPACITY
from bignn.lab.paper.results import Results
from bignn.lab.paper.width_report import figure as figure_of
from bignn.lab.paper.wording import NOT_MEASURED
from bignn.lab.report.document import Part, Section, Table
from bignn.lab.report.wording import name_of
from bignn.train.averages import plus_minus


def entropy(results: Results) -> Section:
    """The paper's table of entropies, and the hypothesis on the graphs at hand."""
    cells = []
    for found in results.capacity:
        # By name: the files of earlier versions do not have all of it.
        theirs = CAPACITY.get(found["dataset"], {}).get(found["model"])
        published = {} if theirs is None else theirs._asdict()
        cells.append(
            (
                f"{name_of(found['dataset'])}, {name_of(found['model'])}"
                + (", the paper's training" if found["as_paper"] else ""),
                f"{found['bins']}",
                _beside(found["min_width"], published.get("min_width")),
                _beside(_entropy(found), published.get("entropy_bits")),
                _beside(found["lower_bound"], published.get("lower_bound")),
                f"{found['bi_min_width'] * found['bi_heads']}",
                _beside(found["bi_peak_width"] * found["bi_heads"], published.get("bi_peak_width")),
                _holds(found),
                "yes" if found["needed"] else "no",
                _beside(f"{found['size_ratio']:.1f}x", _about(published.get("times_smaller"))),
            )
        )
    measured = {(found["dataset"], found["model"]) for found in results.capacity}
    cells += [
        (
            f"{name_of(dataset)}, {name_of(model)}",
            f"{theirs.bins}",
            f"[{theirs.min_width}]",
            f"{NOT_MEASURED} [{theirs.entropy_bits}]",
            f"[{theirs.lower_bound}]",
            *("", "", "", ""),
            f"[{_about(theirs.times_smaller)}]",
        )
        for dataset, models in CAPACITY.items()
        for model, theirs in models.items()
        if (dataset, model) not in measured
    ]
    columns = (
        *("graph and model", "M", "least float width", "entropy, bits", "bound"),
        *("least binary width", "best binary width", "enough", "needed"),
        "smaller at both least widths",
    )
    return Section(
        "entropy",
        "The Entropy Cover Hypothesis",
        (
            "`bignn capacity`: the least width is the narrowest with 99 % of the best mean test "
            "accuracy, neurons in all heads. The entropy is the sum over neurons of the hidden "
            "layer of the float model of that width; the bound is it rounded up. The hypothesis is "
            "that a binary layer of so many neurons is enough: it has 99 % of its best at the "
            "first swept width from the bound on. In brackets behind that is the share of "
            "resamples of the seeds in which it is so: the best of several noisy means is a strict "
            "judge. A bound would also be needed: no narrower binary layer would do. The paper's "
            "figures are in square brackets. docs/design.md, under How much a layer holds, has "
            "what this says.",
            Table("", columns, tuple(cells)),
            *_estimates(results),
        ),
    )


def _holds(found: dict[str, Any]) -> str:
    if found["holds"] is None:
        return "not swept so far"
    return f"{'yes' if found['holds'] else 'no'} ({100 * found['holds_share']:.0f} %)"


def _entropy(found: dict[str, Any]) -> str:
    """Bits at our least width, and at the paper's where that is another."""
    ours = plus_minus(found["entropy_bits"], found["entropy_std"])
    at_papers = found["at_papers_width"]
    if at_papers is None or found["paper"]["min_width"] == found["min_width"]:
        return ours
    other = plus_minus(at_papers["bits"], at_papers["std"])
    return f"{ours}; {other} at {found['paper']['min_width']}"


def _about(times: int | None) -> str | None:
    return None if times is None else f"~{times}x"


def _beside(ours: object, printed: object) -> str:
    return f"{ours}" if printed is None else f"{ours} [{printed}]"


def _estimates(results: Results) -> list[Table]:
    """What other estimates say, beside the widths that binary models were found to need."""
    names = list(dict.fromkeys(name for found in results.capacity for name in found["estimates"]))
    cells = [
        (
            name_of(found["dataset"]) + (", the paper's training" if found["as_paper"] else ""),
            *(
                f"{found['estimates'][name]['bits']:.0f}" if name in found["estimates"] else ""
                for name in names
            ),
            f"{found['bi_min_width'] * found['bi_heads']}",
            f"{found['bi_peak_width'] * found['bi_heads']}",
        )
        for found in results.capacity
    ]
    if not cells:
        return []
    for measure, key in (("least", "bi_min_width"), ("best", "bi_peak_width")):
        apart = (
            statistics.fmean(
                abs(math.log2(found["estimates"][name]["bits"] / found[key] / found["bi_heads"]))
                for found in results.capacity
                if name in found["estimates"] and found["estimates"][name]["bits"] > 0
            )
            for name in names
        )
        shown = (f"{value:.1f}" for value in apart)
        cells.append((f"doublings from the {measure} binary width, mean", *shown, "", ""))
    columns = ("graph", *names, "least binary width", "best binary width")
    return [Table("Bits of the hidden layer by estimate", columns, tuple(cells))]


def width(results: Results) -> Section:
    """The paper's figure of widths."""
    parts: list[Part] = [
        "Mean test accuracy by width of the hidden layer, float and binary, and the bound."
    ]
    parts += [figure_of(found) for found in results.capacity]
    return Section("width", "Width", tuple(parts))

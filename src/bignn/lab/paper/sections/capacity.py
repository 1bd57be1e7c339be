"""Sections of entropy and width."""

from __future__ import annotations

import math
import statistics
from typing import Any

from bignn.lab.paper.published import CAPACITY
from bignn.lab.paper.results import Results
from bignn.lab.paper.width_report import figure as figure_of
from bignn.lab.paper.wording import NOT_MEASURED
from bignn.lab.report.document import Footnotes, Part, Section, Table
from bignn.lab.report.wording import name_of
from bignn.train.averages import plus_minus


def entropy(results: Results) -> Section:
    """Make the section of the paper's entropies, and of its hypothesis on the graphs at hand."""
    cells = []
    for found in results.capacity:
        # By name: files of earlier versions do not have every field.
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
    notes = Footnotes()
    columns = (
        "graph and model",
        "M" + notes.mark("Bins of the histogram by which entropy is estimated."),
        "least float width"
        + notes.mark(
            "The narrowest with 99 % of the best mean test accuracy, counting neurons in all heads."
        ),
        "entropy, bits"
        + notes.mark("Summed over the neurons of the hidden layer of the float model that wide."),
        "bound" + notes.mark("The entropy, rounded up."),
        *("least binary width", "best binary width"),
        "enough"
        + notes.mark(
            "The hypothesis: a binary layer of as many neurons as the bound is enough, so at the "
            "first swept width from the bound on it has 99 % of its best accuracy. In brackets, "
            "the share of resamples of the seeds in which that holds: the best of several noisy "
            "means is a strict judge."
        ),
        "needed" + notes.mark("Whether no narrower binary layer is enough."),
        "smaller at both least widths",
    )
    return Section(
        "entropy",
        "The Entropy Cover Hypothesis",
        (
            "From `bignn capacity`; the paper's figures are in square brackets. docs/design.md, "
            "under How much a layer holds, discusses what follows from it.",
            Table("", columns, tuple(cells), notes.texts),
            *_estimates(results),
        ),
    )


def _holds(found: dict[str, Any]) -> str:
    if found["holds"] is None:
        return "not swept so far"
    return f"{'yes' if found['holds'] else 'no'} ({100 * found['holds_share']:.0f} %)"


def _entropy(found: dict[str, Any]) -> str:
    """Write the bits at our least width, and at the paper's where that is another."""
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
    """Make a table of other estimates beside the widths that binary models were found to need."""
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
    """Make the section of the paper's figure of widths."""
    parts: list[Part] = [
        "Mean test accuracy by width of the hidden layer, float and binary, and the bound."
    ]
    parts += [figure_of(found) for found in results.capacity]
    return Section("width", "Width", tuple(parts))

"""Entropy and width."""

from __future__ import annotations

from bignn.experiments.document import Part, Section, Table
from bignn.experiments.results import Results
from bignn.experiments.sections.words import name_of
from bignn.experiments.width import figure as figure_of


def entropy(results: Results) -> Section:
    """The paper's table of entropies, and the hypothesis on the graphs at hand."""
    cells = []
    for found in results.capacity:
        published = found.get("paper") or {}
        cells.append(
            (
                f"{name_of(found['dataset'])}, {name_of(found['model'])}"
                + (", the paper's training" if found.get("as_paper") else ""),
                f"{found['bins']}",
                _beside(found["min_width"], published.get("min_width")),
                _beside(
                    f"{found['entropy_bits']:.1f} ± {found['entropy_std']:.1f}",
                    published.get("entropy_bits"),
                ),
                _beside(found["lower_bound"], published.get("lower_bound")),
                f"{found['bi_min_width']}",
                _beside(found["bi_peak_width"], published.get("bi_peak_width")),
                {True: "yes", False: "no", None: "not swept so far"}[found["holds"]],
                f"{found['size_ratio']:.1f}x",
            )
        )
    columns = (
        *("graph and model", "M", "least float width", "entropy, bits", "bound"),
        *("least binary width", "best binary width", "holds", "smaller at both least widths"),
    )
    return Section(
        "entropy",
        "The Entropy Cover Hypothesis",
        (
            "`bignn capacity`: the least width is the narrowest with 99 % of the best mean "
            "accuracy. The entropy is the sum over neurons of the hidden layer of the float model "
            "of that width; the bound is it rounded up. The hypothesis holds where the binary "
            "model has 99 % of its best at the first swept width from the bound on. The paper's "
            "figures are in brackets.",
            Table("", columns, tuple(cells)),
            *_estimates(results),
        ),
    )


def _beside(ours: object, printed: object) -> str:
    return f"{ours}" if printed is None else f"{ours} [{printed}]"


def _estimates(results: Results) -> list[Table]:
    """What other estimates say, beside the widths that binary models were found to need."""
    names = list(dict.fromkeys(name for found in results.capacity for name in found["estimates"]))
    cells = [
        (
            name_of(found["dataset"]) + (", the paper's training" if found.get("as_paper") else ""),
            *(
                f"{found['estimates'][name]['bits']:.0f}" if name in found["estimates"] else ""
                for name in names
            ),
            f"{found['bi_min_width']}",
            f"{found['bi_peak_width']}",
        )
        for found in results.capacity
    ]
    columns = ("graph", *names, "least binary width", "best binary width")
    return [Table("Bits of the hidden layer by estimate", columns, tuple(cells))] if cells else []


def width(results: Results) -> Section:
    """The paper's figure of widths."""
    parts: list[Part] = [
        "Mean test accuracy by width of the hidden layer, float and binary, and the bound."
    ]
    parts += [figure_of(found) for found in results.capacity]
    return Section("width", "Width", tuple(parts))

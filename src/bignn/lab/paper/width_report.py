"""The report of ``bignn capacity`` as text and as a figure. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bignn.errors import counted
from bignn.lab.report.document import Figure, Series
from bignn.lab.report.wording import name_of
from bignn.train.averages import plus_minus

#: Numbers of epochs below this one leave models untrained.
_FEW_EPOCHS = 10


def describe(report: dict[str, Any]) -> str:
    """Describe the report for a terminal."""
    model, twin = report["model"], report["bi_model"]
    seeds = report["seeds"]
    plural = "s" if seeds > 1 else ""
    lines = [f"{'width':>8}{model:>16}{twin:>16}   test accuracy, {seeds} seed{plural}"]
    columns = (report[key] for key in ("widths", "float_acc", "float_std", "bi_acc", "bi_std"))
    for width, mean, std, bi_mean, bi_std in zip(*columns, strict=True):
        marks = [
            mark
            for mark, key in ((model, "min_width"), (twin, "bi_min_width"))
            if report[key] == width
        ]
        note = f"   <- {' and '.join(marks)} proper from here" if marks else ""
        lines.append(
            f"{width:>8}{plus_minus(mean, std):>16}{plus_minus(bi_mean, bi_std):>16}{note}"
        )
    heads = f" (times {report['heads']} heads)" if report["heads"] > 1 else ""
    lines += [
        "",
        f"minimum proper width: {model} {report['min_width']}, {twin} {report['bi_min_width']}"
        f"{heads}; best at {report['peak_width']} and {report['bi_peak_width']}",
        f"model size at these: {report['model_bytes']:,.0f} and {report['bi_model_bytes']:,.0f} "
        f"bytes, {report['size_ratio']:.1f}x less",
        f"bits of {model}'s hidden layer at {report['min_width']}, {report['bins']} bins:",
    ]
    judged = {True: "holds", False: "does not hold", None: "no swept width reaches it"}
    for name, found in report["estimates"].items():
        paper = " (the paper's)" if name == "independent" else ""
        lines.append(
            f"  {name + paper:<28}{plus_minus(found['bits'], found['std']):>15}   width of {twin} "
            f"at least {found['lower_bound']}: {judged[found['holds']]}"
        )
    if report["paper"] is not None:
        of_paper = report["paper"]
        peak = of_paper["bi_peak_width"]
        lines.append(
            f"the paper: {model} {of_paper['min_width']}, {of_paper['entropy_bits']} bits "
            f"({of_paper['bins']} bins), bound {of_paper['lower_bound']}"
            + ("" if peak is None else f", {twin} best at {peak}")
        )
        if (ours := report["at_papers_width"]) is not None:
            lines.append(
                f"ours at the paper's width of {of_paper['min_width']}: "
                f"{plus_minus(ours['bits'], ours['std'])} bits, bound {ours['lower_bound']}"
            )
    if len(report["widths"]) == 1:
        lines.append("One width shows nothing: give several, to see where accuracy stops rising.")
    if (epochs := report.get("epochs")) is not None and epochs < _FEW_EPOCHS:
        trained = counted(epochs, "epoch")
        lines.append(f"So short a training ({trained}) shows nothing: the models have not learned.")
    return "\n".join(lines)


def figure(report: dict[str, Any]) -> Figure:
    """Draw accuracy against width of both models, the bound as a line (Fig. neuron-acc)."""
    heads = {"float": report["heads"], "bi": report["bi_heads"]}
    name = Path(report["dataset"]).stem
    bound = report["lower_bound"]
    return Figure(
        name=f"width-{report['name']}",
        caption=f"Test accuracy on {name_of(name)} against hidden neurons"
        + (", the paper's training" if report["as_paper"] else ""),
        kind="lines",
        x_label="hidden neurons",
        y_label="test accuracy, %",
        series=tuple(
            Series(
                label,
                tuple(float(width * heads[key]) for width in report["widths"]),
                tuple(report[f"{key}_acc"]),
                tuple(report[f"{key}_std"]),
            )
            for label, key in (
                (name_of(report["model"]), "float"),
                (name_of(report["bi_model"]), "bi"),
            )
        ),
        log_x=True,
        verticals=((f"bound {bound}", float(bound)),),
    )

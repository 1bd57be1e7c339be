"""The section of accuracy and validation loss against depth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from bignn.lab.paper import rows as paper
from bignn.lab.paper.results import Results, Summary
from bignn.lab.report.document import Figure, Part, Section, Series, Table
from bignn.lab.report.wording import name_of
from bignn.lab.study.run import Run


class Decline(NamedTuple):
    """Points lost with depth, and the variance of that difference of means; None for one seed."""

    points: float
    variance: float | None

    @classmethod
    def between(cls, first: Summary, last: Summary) -> Decline:
        """Compare the accuracies of two depths."""
        variance = None
        if first.std is not None and last.std is not None:
            variance = first.std**2 / len(first.test) + last.std**2 / len(last.test)
        return cls(first.mean - last.mean, variance)


def depth(results: Results) -> Section:
    """Make the section of the paper's figure of depth: GCN and Bi-GCN."""
    kinds = {"the paper's training": paper.depth_rows(())}
    kinds |= {name: paper.depth_rows(more) for name, more in paper.DEPTH_VARIANTS.items()}
    kinds["our recipes"] = paper.depth_rows(None)
    columns = ("model", *(f"{layers} layers" for layers in paper.DEPTHS), "2 to 8", "seeds")
    cells, series = [], []
    declines: dict[str, dict[str, Decline]] = {}
    for kind, some in kinds.items():
        for model in ("gcn", "bi-gcn"):
            found = [results.of(row) for row in some if row.model == model]
            first, last = found[0], found[-1]
            change = "" if first is None or last is None else f"{last.mean - first.mean:+.1f}"
            if first is not None and last is not None:
                declines.setdefault(kind, {})[model] = Decline.between(first, last)
            label = f"{name_of(model)}, {kind}"
            seeds = "/".join(map(str, sorted({len(f.test) for f in found if f is not None})))
            cells.append(
                (label, *("–" if f is None else f.plus_minus() for f in found), change, seeds)
            )
            if any(found) and kind != "epochs chosen by accuracy":
                y = tuple(None if f is None else f.mean for f in found)
                spread = tuple(None if f is None else f.std for f in found)
                series.append(Series(label, paper.DEPTHS, y, spread))
    parts: list[Part] = [
        "Cora. The paper's training (rate 0.001, dropout 0.4) at every depth; the same with the "
        "epoch of the highest validation accuracy instead of the lowest loss, and with batch "
        "normalisation between all layers; and our recipes for two layers. In the paper, GCN drops "
        "sharply from three layers on.",
        Table("Test accuracy by depth", columns, tuple(cells)),
        *_who_declines_less(declines),
        Figure(
            "depth-accuracy",
            "Test accuracy on Cora by number of layers",
            "lines",
            "layers",
            "test accuracy, %",
            tuple(series),
        ),
    ]
    if curves := _curves(results, kinds["the paper's training"]):
        parts.append(curves)
    return Section("depth", "Depth", tuple(parts))


def _who_declines_less(declines: dict[str, dict[str, Decline]]) -> list[str]:
    """Describe how the paper's finding, that Bi-GCN declines less, depends on the training."""
    both = {kind: found for kind, found in declines.items() if len(found) == 2}
    if not both:
        return []
    kinds = ", ".join(_beyond(kind, found["gcn"], found["bi-gcn"]) for kind, found in both.items())
    return [
        f"Points that GCN loses more than Bi-GCN from 2 to 8 layers (± standard error): {kinds}. "
        "Under two standard errors it is open which loses more."
    ]


def _beyond(kind: str, gcn: Decline, binary: Decline) -> str:
    points = f"{gcn.points - binary.points:+.1f}"
    if gcn.variance is None or binary.variance is None:
        return f"{points} with {kind}"
    return f"{points} ± {math.sqrt(gcn.variance + binary.variance):.1f} with {kind}"


def _curves(results: Results, rows: Sequence[Run]) -> Figure | None:
    """Draw validation losses by epoch of some depths, seed 0."""
    series = []
    for row in rows:
        layers = dict(row.changes)["num_layers"]
        curve = next((r["curve"] for r in results.seeds(row) if "curve" in r), None)
        if layers in (2, 4, 8) and curve:
            epochs = tuple(range(1, len(curve) + 1, 4))
            label = f"{name_of(row.model)}, {layers} layers"
            series.append(Series(label, epochs, tuple(curve[::4])))
    if not series:
        return None
    caption = "Validation loss on Cora by epoch, seed 0, the paper's training"
    return Figure("depth-loss", caption, "lines", "epoch", "validation loss", tuple(series))

"""The section of graphs with dense features: what input bits and teachers are worth there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bignn.errors import counted
from bignn.lab.paper import rows as paper
from bignn.lab.paper.results import Results, Summary
from bignn.lab.paper.wording import NOT_MEASURED, above
from bignn.lab.report.document import Section, Table
from bignn.lab.report.wording import name_of

#: The rows of :func:`bignn.lab.paper.rows.dense_rows`, in its order.
_COLUMNS = (
    "float model",
    "signs",
    f"rotations, 4 teachers, {dict(paper.WIDE)['hidden_channels']} wide",
    "default bits, distilled",
    f"default bits, 4 teachers, {dict(paper.WIDE)['hidden_channels']} wide",
)
#: The first row with more bits than one per feature.
_FIRST_ENCODED = 2
#: Points of accuracy below the float model that are called near.
_NEAR = 0.3


def dense(results: Results) -> Section:
    """Make the section of dense features."""
    found = [_Pair.of(results, *pair) for pair in paper.DENSE_PAIRS]
    text = (
        "Graphs whose features are dense numbers: bags of words reduced to 100 or 128 columns by a "
        "truncated singular value decomposition, with the splits of the graphs, and a stochastic "
        "block model with eight Gaussian features (`benchmarks/dense_graphs.py` makes them in the "
        "data folder). Signs are one bit a feature, as in the paper, rotations four or more (32 of "
        "the eight features), and default bits those of `--input-bits auto`: learned directions, "
        "or rotations where few nodes have labels (pubmed). Cells have test accuracy ± the "
        "standard deviation of a seed, and validation accuracy in brackets. Of the last three "
        "columns that with the highest mean validation accuracy is chosen (of those with at least "
        "half as many seeds as another), and compared with the float model by test accuracy (± the "
        "standard error). The last column has the seeds of each of these columns. The float models "
        "have no teachers. Students of neighbouring seeds share three of their four teachers, so "
        "standard errors are rather too small."
    )
    parts = [text, *filter(None, (_seeds(found), _verdicts(found)))]
    columns = ("graph and model", *_COLUMNS, "chosen", "minus the float model", "seeds")
    table = Table("", columns, tuple(pair.cells() for pair in found))
    return Section("dense", "Dense features", (*parts, table))


@dataclass(frozen=True)
class _Pair:
    """A graph and a model: what was measured of each column."""

    dataset: str
    model: str
    found: tuple[Summary | None, ...]

    @classmethod
    def of(cls, results: Results, dataset: str, model: str) -> _Pair:
        rows = paper.dense_rows(dataset, model)
        return cls(dataset, model, tuple(results.of(row) for row in rows))

    @property
    def chosen(self) -> int | None:
        """The column of several bits per feature with the highest validation accuracy.

        One with less than half as many seeds as another may be high by luck.
        """
        measured = {
            number: one
            for number, one in enumerate(self.found)
            if number >= _FIRST_ENCODED and one is not None
        }
        most = max((len(one.test) for one in measured.values()), default=0)
        certain = {number: one for number, one in measured.items() if 2 * len(one.test) >= most}
        return max(certain, key=lambda number: certain[number].val, default=None)

    def compared(self) -> tuple[Summary, Summary] | None:
        """Return the chosen model and its float twin, if there are both."""
        ours, twin = None if self.chosen is None else self.found[self.chosen], self.found[0]
        return None if ours is None or twin is None else (ours, twin)

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table."""
        compared = self.compared()
        return (
            f"{name_of(self.dataset)}, {name_of(self.model)}",
            *map(_cell, self.found),
            "" if self.chosen is None else _COLUMNS[self.chosen],
            "" if compared is None else above(*compared),
            "/".join("-" if one is None else str(len(one.test)) for one in self.found),
        )


def _cell(found: Summary | None) -> str:
    return NOT_MEASURED if found is None else f"{found.plus_minus(2)} ({found.val:.2f})"


def _seeds(pairs: Sequence[_Pair]) -> str:
    """Say that there are fewer seeds than a row should have."""
    counts = [0 if one is None else len(one.test) for pair in pairs for one in pair.found]
    wanted = paper.EXPERIMENTS["dense"].seeds
    whole = sum(count >= wanted for count in counts)
    if not any(counts) or whole == len(counts):
        return ""
    return (
        f"{wanted} seeds of each cell are meant, and {whole} of the {len(counts)} cells have them: "
        f"{sum(count > 0 for count in counts)} have some, {max(counts)} at most. Differences of a "
        "few tenths are not certain with so few."
    )


def _verdicts(pairs: Sequence[_Pair]) -> str:
    """Say per model how often the chosen one comes up to its float twin."""
    sentences = []
    for model in dict.fromkeys(pair.model for pair in pairs):
        compared = [found for pair in pairs if pair.model == model and (found := pair.compared())]
        points = [ours.minus(twin)[0] for ours, twin in compared]
        if points:
            near = sum(-_NEAR <= one < 0 for one in points)
            sentences.append(
                f"{name_of(f'bi-{model}')}: of {counted(len(points), 'graph')} the chosen model "
                f"is at or above the float one on {sum(one >= 0 for one in points)}, at most "
                f"{_NEAR} points below on {near}, further below on "
                f"{sum(one < -_NEAR for one in points)}."
            )
    return " ".join(sentences)

"""The section of graphs with dense features: what input bits and teachers are worth there."""

from __future__ import annotations

from bignn.lab.paper import rows as paper
from bignn.lab.paper.results import Results, Summary
from bignn.lab.paper.wording import NOT_MEASURED, above
from bignn.lab.report.document import Section, Table
from bignn.lab.report.wording import name_of

#: The rows of :func:`bignn.lab.paper.rows.dense_rows`, in its order.
_COLUMNS = (
    "float model",
    "signs",
    "encoder",
    "encoder, distilled",
    f"encoder, 4 teachers, {paper.DENSE_WIDTH} wide",
)
#: The first row that has an encoder.
_FIRST_ENCODED = 2


def dense(results: Results) -> Section:
    """Make the section of dense features."""
    cells = [_cells(results, *pair) for pair in paper.DENSE_PAIRS]
    text = (
        "Graphs whose features are dense numbers: bags of words reduced to 100 or 128 columns by a "
        "truncated singular value decomposition, with the splits of the graphs, and a stochastic "
        "block model with eight Gaussian features (`benchmarks/dense_graphs.py` makes them in the "
        "data folder). Signs are one bit a feature, as in the paper; the encoder is the one that a "
        "model has by default there (`--input-bits auto`). Cells have test accuracy ± the standard "
        "deviation of a seed, and validation accuracy in brackets. Of the three columns with an "
        "encoder that with the highest mean validation accuracy is chosen, and compared with the "
        "float model by test accuracy (± the standard error). The last column has the seeds of "
        "each of these columns."
    )
    columns = ("graph and model", *_COLUMNS, "chosen", "minus the float model", "seeds")
    return Section("dense", "Dense features", (text, Table("", columns, tuple(cells))))


def _cells(results: Results, dataset: str, model: str) -> tuple[str, ...]:
    found = [results.of(row) for row in paper.dense_rows(dataset, model)]
    measured = {
        column: one
        for column, one in zip(_COLUMNS[_FIRST_ENCODED:], found[_FIRST_ENCODED:], strict=True)
        if one is not None
    }
    chosen = max(measured, key=lambda column: measured[column].val, default=None)
    twin = found[0]
    beside = "" if chosen is None or twin is None else above(measured[chosen], twin)
    return (
        f"{name_of(dataset)}, {name_of(model)}",
        *map(_cell, found),
        "" if chosen is None else chosen.removeprefix("encoder, "),
        beside,
        "/".join("-" if one is None else str(len(one.test)) for one in found),
    )


def _cell(found: Summary | None) -> str:
    return NOT_MEASURED if found is None else f"{found.plus_minus(2)} ({found.val:.2f})"

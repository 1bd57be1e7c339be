"""Figures drawn by matplotlib, which is set up here and nowhere else: as files, and for a page.

The same figure gives the same bytes, so that a drawing kept under version control changes with its
numbers only. :mod:`bignn.lab.report.marks` draws the series.
"""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from bignn.errors import input_error, missing_extra
from bignn.files import atomic_path
from bignn.lab.report import marks
from bignn.lab.report.document import Figure
from bignn.lab.report.themed_svg import themed

FORMATS = (".png", ".svg", ".pdf")

_STYLE = {
    "font.size": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "black",
    "grid.alpha": 0.15,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.7,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text that can be read, selected and set in the page's own font
    "svg.hashsalt": "bignn",
    "text.parse_math": False,  # names may have a $ in them
}
_NO_DATES: dict[str, dict[str, None]] = {
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".png": {"Software": None},
}


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Draws on white to a file that ends as one of :data:`FORMATS`."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise input_error("path", f"a file name ending in {', '.join(FORMATS)}", f"'{path}'")
    with _drawn(figure) as canvas, atomic_path(path) as temporary:
        canvas.savefig(temporary, dpi=200, format=suffix[1:], metadata=_NO_DATES[suffix])


def inline(figure: Figure, prefix: str = "") -> str:
    """An ``<svg>`` for the inside of a page, whose colours are the page's.

    Lines and letters have the page's text colour, series ``var(--series-1)`` and on. Ids begin with
    ``prefix`` (without one, the figure's name), which must be another for each figure of a page.
    """
    text = io.StringIO()
    with _drawn(figure) as canvas:
        canvas.savefig(text, format="svg", transparent=True, metadata=_NO_DATES[".svg"])
    return themed(text.getvalue(), figure.caption, prefix or figure.name, marks.PALETTE)


def check_matplotlib() -> None:
    """Raises the one clear line where matplotlib is missing."""
    try:
        import matplotlib.style  # noqa: F401
    except ImportError as error:
        line = missing_extra("drawing figures", error)
        raise ImportError(line or str(error), name=error.name) from error


@contextmanager
def _drawn(figure: Figure) -> Iterator[Any]:
    """The figure as matplotlib's, while our settings and none of the user's hold."""
    check_matplotlib()
    import matplotlib.style
    from matplotlib.figure import Figure as Canvas

    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        # The viewer has a font for what ours lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        canvas = Canvas(figsize=(marks.width_of(figure), marks.HEIGHT), layout="constrained")
        axes = canvas.subplots()
        axes.set_xlabel(marks.wrapped(figure.x_label, 52))
        # The lengths of bars on such an axis are no proportions: it says so.
        is_told = figure.log_y and figure.kind == "bars"
        label = f"{figure.y_label} (logarithmic)" if is_told else figure.y_label
        axes.set_ylabel(marks.wrapped(label, 36))
        if figure.log_x:
            axes.set_xscale("log", nonpositive="mask")
        if figure.log_y:
            axes.set_yscale("log", nonpositive="mask")
        if marks.with_data(figure):
            named = marks.draw(axes, figure)
            _ticks(axes, figure)
            _verticals(axes, figure)
            _legend(canvas, named)
            if figure.kind == "points":
                canvas.canvas.draw()  # places are known from here on
                marks.label_points(axes, figure)
        else:
            axes.set(xticks=[], yticks=[])
            axes.text(0.5, 0.5, "no data", ha="center", va="center", transform=axes.transAxes)
        yield canvas


def _ticks(axes: Any, figure: Figure) -> None:
    """Plain numbers; where x takes few values, those."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    def logarithmic(axis: Any, low: float, high: float) -> None:
        steps = (1.0,) if high / low > 300 else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(subs=steps, numticks=20))
        axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
        axis.set_minor_locator(NullLocator())

    if figure.log_y:
        logarithmic(axes.yaxis, *axes.get_ylim())
    if figure.kind == "bars":
        return
    if figure.log_x:
        logarithmic(axes.xaxis, *axes.get_xlim())
    values = sorted({float(x) for series in figure.series for x in series.x})
    if figure.kind == "lines" and len(values) <= 10 and _are_apart(values, figure.log_x):
        axes.set_xticks(values, [_tick(value) for value in values])


def _tick(value: float) -> str:
    """As 1,024; from a hundred thousand on as 2·10⁷."""
    if abs(value) < 1e5:
        return f"{value:,.10g}"
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    digits = f"{value / 10**exponent:.3g}"
    power = "10" + str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return power if digits == "1" else f"{digits}·{power}"


def _are_apart(values: list[float], log: bool) -> bool:
    """Whether numbers at these places do not run into each other."""
    at = [math.log(value) for value in values if value > 0] if log else values
    if len(at) < 2:
        return True
    return min(b - a for a, b in pairwise(at)) / (at[-1] - at[0]) >= 0.08


def _verticals(axes: Any, figure: Figure) -> None:
    """Dotted lines, their labels above the frame, one higher than the other."""
    for number, (label, x) in enumerate(sorted(figure.verticals, key=lambda line: line[1])):
        axes.axvline(x, color="black", alpha=0.6, linewidth=0.9, linestyle=":")
        axes.text(
            x,
            1.02 + 0.065 * number,
            marks.wrapped(label, 60),
            transform=axes.get_xaxis_transform(),
            ha="center",
            va="bottom",
            fontsize=8,
        )


def _legend(canvas: Any, named: marks.Named) -> None:
    """Below the figure, where it hides nothing; the figure grows by it."""
    if not named:
        return
    labels = [marks.wrapped(label, 46) for _, label in named]
    longest = max(len(line) for label in labels for line in label.split("\n"))
    room = canvas.get_figwidth() / (longest * marks.LETTER + 0.55)
    columns = max(1, min(len(labels), int(room)))
    rows = max(label.count("\n") + 1 for label in labels) * math.ceil(len(labels) / columns)
    canvas.set_figheight(canvas.get_figheight() + 0.17 * rows)
    # Matplotlib leaves out names that begin with an underscore, so they are set afterwards.
    legend = canvas.legend(
        [drawn for drawn, _ in named],
        ["-"] * len(labels),
        loc="outside lower center",
        ncols=columns,
        columnspacing=1.4,
        handlelength=2.2,
    )
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text(label)

"""Draws figures by matplotlib, which is set up here and nowhere else: as files, and for a page.

Equal figures give equal bytes, so that a drawing kept under version control changes with its
numbers only. :mod:`bignn.lab.report.marks` draws the series.
"""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from bignn.errors import input_error
from bignn.files import atomic_path
from bignn.lab.report import marks
from bignn.lab.report.document import Figure, Panels, Picture
from bignn.lab.report.packages import check_lab
from bignn.lab.report.themed_svg import inline_svg, svg_file

FORMATS = (".png", ".svg", ".pdf")

#: The width of one of several panels, in inches.
_PANEL = 2.5

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


def save(figure: Picture, path: str | os.PathLike[str]) -> None:
    """Draw a figure to a file that ends as one of :data:`FORMATS`.

    An .svg follows the light or dark theme of its reader; the others are on white.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise input_error("path", f"a file name ending in {', '.join(FORMATS)}", f"'{path}'")
    with _drawn(figure) as canvas, atomic_path(path) as temporary:
        if suffix == ".svg":
            temporary.write_text(svg_file(_svg(canvas), figure.caption), encoding="utf-8")
        else:
            canvas.savefig(temporary, dpi=200, format=suffix[1:], metadata=_NO_DATES[suffix])


def inline(figure: Picture, prefix: str = "") -> str:
    """Return an ``<svg>`` for the inside of a page, in the page's colours.

    Lines and letters have the page's text colour, series ``var(--series-1)`` and so on. Ids begin
    with ``prefix`` (by default, the figure's name), which no two figures of a page may share.
    """
    with _drawn(figure) as canvas:
        return inline_svg(_svg(canvas), figure.caption, prefix or figure.name)


def _svg(canvas: Any) -> str:
    text = io.StringIO()
    canvas.savefig(text, format="svg", transparent=True, metadata=_NO_DATES[".svg"])
    return text.getvalue()


@contextmanager
def _drawn(figure: Picture) -> Iterator[Any]:
    """Draw with our settings and none of the user's; yield matplotlib's figure."""
    check_lab()
    import matplotlib.style
    from matplotlib.figure import Figure as Canvas

    panels = _in_own_colours(figure) if isinstance(figure, Panels) else (figure,)
    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        # The viewer has a font for what ours lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        width = marks.WIDTH if len(panels) == 1 else 1.1 + _PANEL * len(panels)
        height = max(map(marks.height_of, panels)) + (0.55 if len(panels) > 1 else 0)
        canvas = Canvas(figsize=(width, height), layout="constrained")
        for panel, axes in zip(
            panels, canvas.subplots(1, len(panels), squeeze=False)[0], strict=True
        ):
            legend = _draw(axes, panel)
            if len(panels) > 1:
                axes.set_title(marks.wrapped(panel.caption, 34), fontsize=9.5)
                _legend_below(axes, legend)
                if panel is not panels[0]:
                    axes.set_yticklabels([])
            else:
                _legend(canvas, legend)
        if figure is panels[0] and figure.kind == "points" and marks.with_data(figure):
            canvas.draw_without_rendering()  # lays out; places are final from here on
            marks.label_points(axes, figure)
        yield canvas


def _in_own_colours(picture: Panels) -> tuple[Figure, ...]:
    """Return the panels such that no two series of the picture have the same colour."""
    before = accumulate((len(figure.series) for figure in picture.figures), initial=0)
    return tuple(
        replace(figure, first_colour=first)
        for figure, first in zip(picture.figures, before, strict=False)
    )


def _draw(axes: Any, figure: Figure) -> marks.Legend:
    """Draw a figure on its axes and return the entries of its legend."""
    x_label, y_label = figure.x_label, figure.y_label
    log_x, log_y = figure.log_x, figure.log_y
    if figure.kind == "dots":  # values run to the right
        x_label, y_label, log_x, log_y = y_label, x_label, log_y, False
    axes.set_xlabel(marks.wrapped(x_label, 52))
    axes.set_ylabel(marks.wrapped(y_label, 36))
    if log_x:
        axes.set_xscale("log", nonpositive="mask")
    if log_y:
        axes.set_yscale("log", nonpositive="mask")
    if not marks.with_data(figure):
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "no data", ha="center", va="center", transform=axes.transAxes)
        return []
    legend = marks.draw(axes, figure)
    _ticks(axes, figure, log_x, log_y)
    _verticals(axes, figure)
    return legend


def _ticks(axes: Any, figure: Figure, log_x: bool, log_y: bool) -> None:
    """Put plain numbers on the axes; where x takes few values, these."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    def logarithmic(axis: Any, low: float, high: float) -> None:
        steps = (1.0,) if high / low > 300 else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(subs=steps, numticks=20))
        axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
        axis.set_minor_locator(NullLocator())

    if log_y:
        logarithmic(axes.yaxis, *axes.get_ylim())
    if log_x:
        logarithmic(axes.xaxis, *axes.get_xlim())
    if figure.kind != "lines":
        return
    values = sorted({float(x) for series in figure.series for x in series.x})
    if len(values) <= 10 and _are_apart(values, log_x):
        axes.set_xticks(values, [_tick(value) for value in values])


def _tick(value: float) -> str:
    """Write a number as 1,024; from a hundred thousand on as 2·10⁷."""
    if abs(value) < 1e5:
        return f"{value:,.10g}"
    exponent = math.floor(math.log10(abs(value)) + 1e-9)
    digits = f"{value / 10**exponent:.3g}"
    power = "10" + str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return power if digits == "1" else f"{digits}·{power}"


def _are_apart(values: list[float], log: bool) -> bool:
    """Return whether numbers at these places do not run into each other."""
    at = [math.log(value) for value in values if value > 0] if log else values
    if len(at) < 2:
        return True
    return min(b - a for a, b in pairwise(at)) / (at[-1] - at[0]) >= 0.08


def _verticals(axes: Any, figure: Figure) -> None:
    """Draw dotted lines, their labels above the frame, one higher than the other."""
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


def _legend(canvas: Any, entries: marks.Legend) -> None:
    """Put the legend below the figure, where it hides nothing; the figure grows by it."""
    if not entries:
        return
    labels = [marks.wrapped(label, 46) for _, label in entries]
    longest = max(len(line) for label in labels for line in label.split("\n"))
    room = canvas.get_figwidth() / (longest * marks.LETTER + 0.55)
    columns = max(1, min(len(labels), int(room)))
    rows = max(label.count("\n") + 1 for label in labels) * math.ceil(len(labels) / columns)
    canvas.set_figheight(canvas.get_figheight() + 0.17 * rows)
    # Matplotlib leaves out names that begin with an underscore, so they are set afterwards.
    legend = canvas.legend(
        [drawn for drawn, _ in entries],
        ["-"] * len(labels),
        loc="outside lower center",
        ncols=columns,
        columnspacing=1.4,
        handlelength=2.2,
    )
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text(label)


def _legend_below(axes: Any, entries: marks.Legend) -> None:
    """Put the legend of one panel below its axis."""
    if entries:
        axes.legend(
            [drawn for drawn, _ in entries],
            [marks.wrapped(label, 34) for _, label in entries],
            loc="upper center",
            bbox_to_anchor=(0.5, -0.62 / axes.figure.get_figheight()),
            handlelength=1.4,
        )

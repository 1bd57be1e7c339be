"""Draws the series of a figure on matplotlib's axes: lines, points or dots."""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable
from typing import Any

from bignn.lab.report.document import Figure, Series
from bignn.lab.report.palette import LIGHT

_MARKERS = "osD^vPX"

#: Inches. Small, so that type of 9 points is still read when 400 pixels show all of it.
WIDTH, HEIGHT = 4.6, 3.0
LETTER = 0.078  # the average width of a letter of 9 points
#: Inches of a dot and of the space between groups, and of the axis below them all.
_DOT, _BETWEEN, _BELOW = 0.155, 0.13, 0.65
_NAME = 22  # letters of a group's name in a line

#: The entries of a legend: what matplotlib drew, and its name.
Legend = list[tuple[Any, str]]
_Box = tuple[float, float, float, float]


def wrapped(text: str, width: int) -> str:
    """Wrap text to lines of a width and drop characters that XML cannot hold."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return "\n".join(textwrap.wrap(printable, width))


def with_data(figure: Figure) -> list[Series]:
    """Return the series that have anything to draw."""
    return [series for series in figure.series if _count(series)]


def draw(axes: Any, figure: Figure) -> Legend:
    """Draw all series and return the entries of the legend."""
    return {"lines": _lines, "points": _points, "dots": _dots}[figure.kind](axes, figure)


def _count(series: Series) -> int:
    return sum(y is not None for y in series.y)


def _twin(figure: Figure, series: Series) -> Series | None:
    """Return our series of the same model: "GCN" for "GCN, paper", not for "Bi-GCN, paper"."""
    ours = [
        other
        for other in with_data(figure)
        if not other.is_papers
        and re.search(rf"(?<![\w-]){re.escape(other.label)}(?![\w-])", series.label)
    ]
    return max(ours, key=lambda other: len(other.label)) if series.is_papers and ours else None


def _look(figure: Figure, series: Series) -> dict[str, Any]:
    """Return colour and marker; the paper's series looks like ours, but lighter and dashed."""
    own = [other for other in figure.series if _twin(figure, other) is None]
    of = _twin(figure, series) or series
    number = next(n for n, other in enumerate(own, figure.first_colour) if other is of)
    colours = LIGHT.series
    found: dict[str, Any] = {
        "color": colours[number % len(colours)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "linestyle": "-" if number < len(colours) else (0, (6, 1.5, 1, 1.5)),
    }
    if series.is_papers:
        found |= {"alpha": 0.6, "linestyle": "--", "markerfacecolor": "none"}
    return found


def _floats(series: Series) -> tuple[list[float], list[float], list[float]]:
    """Return x, y and spread: a gap is nan, which interrupts a line; an unknown spread is 0."""
    x = [float(value) for value in series.x]
    y = [math.nan if value is None else value for value in series.y]
    return x, y, [spread or 0.0 for spread in series.spread or [None] * len(y)]


def _lines(axes: Any, figure: Figure) -> Legend:
    legend: Legend = []
    for series in with_data(figure):
        look = _look(figure, series)
        x, y, spread = _floats(series)
        if len(x) > 40:  # they would hide the line
            look["marker"] = "none"
        (line,) = axes.plot(x, y, **look)
        legend.append((line, series.label))
        if any(spread):
            low = [a - s for a, s in zip(y, spread, strict=True)]
            high = [a + s for a, s in zip(y, spread, strict=True)]
            faint = 0.08 if series.is_papers else 0.15
            axes.fill_between(x, low, high, color=look["color"], alpha=faint, linewidth=0)
            if _count(series) == 1:  # a band of no width
                axes.errorbar(x, y, spread, color=look["color"], fmt="none", capsize=2)
    return legend if len(legend) > 1 else []


def _points(axes: Any, figure: Figure) -> Legend:
    legend: Legend = []
    shown = with_data(figure)
    for series in shown:
        look = _look(figure, series) | {"linestyle": "none", "markersize": 6}
        x, y, spread = _floats(series)
        (points,) = axes.plot(x, y, **look)
        legend.append((points, series.label))
        if any(spread):
            bar = {"color": look["color"], "alpha": 0.6 * look.get("alpha", 1), "elinewidth": 1}
            axes.errorbar(x, y, spread, fmt="none", capsize=2, **bar)
    axes.margins(0.12)
    if any(_count(series) > 1 for series in shown):
        return legend
    if all(_twin(figure, series) is None for series in shown):
        return []
    look = {"color": "black", "marker": "o", "linestyle": "none", "markersize": 6}
    (ours,) = axes.plot([], [], **look)
    (papers,) = axes.plot([], [], **look, alpha=0.6, markerfacecolor="none")
    return [(ours, "ours"), (papers, "the paper's")]


def label_points(axes: Any, figure: Figure) -> None:
    """Write the name of each series beside its only point, where it hides the least of others.

    The frame must have its final place by now. The paper's points look like ours and have no name.
    """
    shown = with_data(figure)
    if any(_count(series) > 1 for series in shown):
        return
    frame = axes.get_window_extent()
    inside = (frame.x0, frame.y0, frame.x1, frame.y1)
    taken: list[_Box] = []
    places = []
    for series in shown:
        x, y, spread = _floats(series)
        *point, around = next(
            (a, b, s) for a, b, s in zip(x, y, spread, strict=True) if not math.isnan(b)
        )
        at, top, bottom = (
            axes.transData.transform((point[0], point[1] + up)) for up in (0.0, around, -around)
        )
        taken.append((at[0] - 4, at[1] - 4, at[0] + 4, at[1] + 4))
        taken.append((at[0] - 2, bottom[1], at[0] + 2, top[1]))
        if _twin(figure, series) is None:
            places.append((series, point))
    offsets = (
        *((6, 0, "left", "center"), (-6, 0, "right", "center")),
        *((0, 6, "center", "bottom"), (0, -6, "center", "top")),
        *((5, 5, "left", "bottom"), (5, -5, "left", "top")),
        *((-5, 5, "right", "bottom"), (-5, -5, "right", "top")),
        *((6, 11, "left", "center"), (6, -11, "left", "center")),
        *((-6, 11, "right", "center"), (-6, -11, "right", "center")),
    )
    for series, point in places:
        text = axes.annotate(
            wrapped(series.label, 26), point, (0, 0), textcoords="offset points", fontsize=8
        )
        tried = []
        for choice, (dx, dy, ha, va) in enumerate(offsets):
            text.set(position=(dx, dy), ha=ha, va=va)
            found = text.get_window_extent()
            box = (found.x0, found.y0, found.x1, found.y1)
            outside = (box[2] - box[0]) * (box[3] - box[1]) - _overlap(box, inside)
            tried.append((outside + sum(_overlap(box, other) for other in taken), choice, box))
        _, choice, box = min(tried)
        dx, dy, ha, va = offsets[choice]
        text.set(position=(dx, dy), ha=ha, va=va)
        taken.append(box)


def _overlap(a: _Box, b: _Box) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return width * height if width > 0 and height > 0 else 0.0


def groups_of(figure: Figure) -> list[str]:
    """Return the names of the groups of a figure of dots, in order."""
    every = (str(x) for series in figure.series for x in series.x)
    return list(dict.fromkeys([*figure.groups, *every]))


def _lines_per_group(figure: Figure) -> float:
    """Return how many lines a group takes: one per series, or one if no group has several."""
    shown = with_data(figure)
    filled = Counter(
        str(x) for one in shown for x, y in zip(one.x, one.y, strict=True) if y is not None
    )
    return len(shown) if max(filled.values(), default=0) > 1 else 1


def height_of(figure: Figure) -> float:
    """Return the height in inches; in a figure of dots, every dot has a line of its own."""
    if figure.kind != "dots" or not with_data(figure):
        return HEIGHT
    names = [wrapped(name, _NAME) for name in groups_of(figure)]
    needed = max(name.count("\n") + 1 for name in names)  # lines of the longest name
    lines = max(_lines_per_group(figure), needed) * _DOT + _BETWEEN
    return _BELOW + len(names) * lines


def _dots(axes: Any, figure: Figure) -> Legend:
    """Draw a row per group and in it a line per series, the value written beside each dot."""
    names, shown = groups_of(figure), with_data(figure)
    lines = _lines_per_group(figure)
    step = _DOT / (lines * _DOT + _BETWEEN) if lines > 1 else 0.0  # rows are 1 apart
    baseline = -math.inf if figure.baseline is None else figure.baseline
    form = _number_form(figure)
    for row in range(0, len(names), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="black", alpha=0.04, linewidth=0)
    if figure.baseline is not None:
        axes.axvline(figure.baseline, color="black", linewidth=0.8)
    legend: Legend = []
    for number, series in enumerate(shown):
        look = _look(figure, series) | {"linestyle": "none", "markersize": 5}
        shift = (number - (len(shown) - 1) / 2) * step
        spreads = series.spread or (None,) * len(series.y)
        dots = [
            (names.index(str(x)) + shift, y, spread or 0.0)
            for x, y, spread in zip(series.x, series.y, spreads, strict=True)
            if y is not None and (y > 0 or not figure.log_y)
        ]
        places, values, spread = zip(*dots, strict=True) if dots else ((), (), ())
        (drawn,) = axes.plot(values, places, **look)
        legend.append((drawn, series.label))
        if any(spread):
            axes.errorbar(
                values, places, xerr=spread, fmt="none", capsize=1.5,
                color=look["color"], alpha=0.7 * look.get("alpha", 1), elinewidth=0.9,
            )  # fmt: skip
        for place, value, around in dots:
            side = -1 if value < baseline else 1  # away from the line that it is compared with
            axes.annotate(
                form(value), (value + side * around, place), (5 * side, 0),
                textcoords="offset points", va="center", ha="right" if side < 0 else "left",
                fontsize=7.5,
            )  # fmt: skip
    for row, name in enumerate(names):
        if not _has_value(figure, name):
            at = {"xy": (0.07, row), "xycoords": ("axes fraction", "data")}
            axes.annotate("not measured", **at, va="center", fontsize=7.5, alpha=0.75)
    axes.set_yticks(range(len(names)), [wrapped(name, _NAME) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.5, -0.5)
    _leave_room_for_values(axes, figure, baseline)
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    return legend if len(legend) > 1 else []


def _has_value(figure: Figure, group: str) -> bool:
    return any(
        str(x) == group and y is not None
        for series in figure.series
        for x, y in zip(series.x, series.y, strict=True)
    )


def _leave_room_for_values(axes: Any, figure: Figure, baseline: float) -> None:
    """Widen the axis where numbers stand beside the outermost dots."""
    low, high = axes.get_xlim()
    transform, inverse = axes.transData.transform, axes.transData.inverted().transform
    left, right = transform((low, 0))[0], transform((high, 0))[0]
    room = 0.14 * (right - left)
    values = [y for series in figure.series for y in series.y if y is not None]
    left -= room if min(values) < baseline else 0.02 * (right - left)
    axes.set_xlim(inverse((left, 0))[0], inverse((right + room, 0))[0])


def _number_form(figure: Figure) -> Callable[[float], str]:
    """Return how to write values: alike on a linear axis, in three digits on a logarithmic one."""
    largest = max(abs(y) for series in figure.series for y in series.y if y is not None)

    def form(value: float) -> str:
        size = abs(value) if figure.log_y else largest
        digits = 0 if size >= 100 and figure.log_y else 1 if size >= 10 else 2
        return f"{value:,.{digits}f}".replace("-", "−")

    return form

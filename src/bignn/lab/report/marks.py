"""What is drawn of the series of a figure, on matplotlib's axes: lines, points or bars."""

from __future__ import annotations

import math
import re
import textwrap
from typing import Any

from bignn.lab.report.document import Figure, Series

#: Told apart with any kind of colour vision, each at least 3:1 against a light page.
PALETTE = ("#0072b2", "#d55e00", "#008060", "#b25b8c", "#8c6d00", "#3f8fc6")
_MARKERS = "osD^vPX"

#: Inches. Small, so that type of 9 points is still read when 400 pixels show all of it.
WIDTH, HEIGHT, _MAX_WIDTH = 4.6, 3.0, 16.0
LETTER = 0.078  # of 9 points, on average
_MARGIN = 0.8  # left of the bars

#: A legend: what matplotlib drew, and its name.
Named = list[tuple[Any, str]]
_Box = tuple[float, float, float, float]


def wrapped(text: str, width: int) -> str:
    """In lines of a width, without characters that XML has no place for."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return "\n".join(textwrap.wrap(printable, width))


def with_data(figure: Figure) -> list[Series]:
    """The series that have anything to draw."""
    return [series for series in figure.series if _count(series)]


def draw(axes: Any, figure: Figure) -> Named:
    """Draws all series; returns what the legend has to name."""
    return {"lines": _lines, "points": _points, "bars": _bars}[figure.kind](axes, figure)


def _count(series: Series) -> int:
    return sum(y is not None for y in series.y)


def _twin(figure: Figure, series: Series) -> Series | None:
    """Ours whose name the paper's has in it: "GCN" of "GCN, paper", not of "Bi-GCN, paper"."""
    ours = [
        other
        for other in with_data(figure)
        if not other.is_papers
        and re.search(rf"(?<![\w-]){re.escape(other.label)}(?![\w-])", series.label)
    ]
    return max(ours, key=lambda other: len(other.label)) if series.is_papers and ours else None


def _look(figure: Figure, series: Series) -> dict[str, Any]:
    """Colour and marker. The paper's are those of our series of that name, lighter and dashed."""
    own = [other for other in figure.series if _twin(figure, other) is None]
    of = _twin(figure, series) or series
    number = next(n for n, other in enumerate(own) if other is of)
    found: dict[str, Any] = {
        "color": PALETTE[number % len(PALETTE)],
        "marker": _MARKERS[number % len(_MARKERS)],
        "linestyle": "-" if number < len(PALETTE) else (0, (6, 1.5, 1, 1.5)),
    }
    if series.is_papers:
        found |= {"alpha": 0.6, "linestyle": "--", "markerfacecolor": "none"}
    return found


def _floats(series: Series) -> tuple[list[float], list[float], list[float]]:
    """x, y, spread: gaps are nan, which interrupts a line; an unknown spread is 0."""
    x = [float(value) for value in series.x]
    y = [math.nan if value is None else value for value in series.y]
    return x, y, [spread or 0.0 for spread in series.spread or [None] * len(y)]


def _lines(axes: Any, figure: Figure) -> Named:
    named: Named = []
    for series in with_data(figure):
        look = _look(figure, series)
        x, y, spread = _floats(series)
        if len(x) > 40:  # they would hide the line
            look["marker"] = "none"
        (line,) = axes.plot(x, y, **look)
        named.append((line, series.label))
        if any(spread):
            low = [a - s for a, s in zip(y, spread, strict=True)]
            high = [a + s for a, s in zip(y, spread, strict=True)]
            faint = 0.08 if series.is_papers else 0.15
            axes.fill_between(x, low, high, color=look["color"], alpha=faint, linewidth=0)
            if _count(series) == 1:  # a band of no width
                axes.errorbar(x, y, spread, color=look["color"], fmt="none", capsize=2)
    return named if len(named) > 1 else []


def _points(axes: Any, figure: Figure) -> Named:
    named: Named = []
    shown = with_data(figure)
    for series in shown:
        look = _look(figure, series) | {"linestyle": "none", "markersize": 6}
        x, y, spread = _floats(series)
        (points,) = axes.plot(x, y, **look)
        named.append((points, series.label))
        if any(spread):
            bar = {"color": look["color"], "alpha": 0.6 * look.get("alpha", 1), "elinewidth": 1}
            axes.errorbar(x, y, spread, fmt="none", capsize=2, **bar)
    axes.margins(0.12)
    if any(_count(series) > 1 for series in shown):
        return named
    if all(_twin(figure, series) is None for series in shown):
        return []
    look = {"color": "black", "marker": "o", "linestyle": "none", "markersize": 6}
    (ours,) = axes.plot([], [], **look)
    (papers,) = axes.plot([], [], **look, alpha=0.6, markerfacecolor="none")
    return [(ours, "ours"), (papers, "the paper's")]


def label_points(axes: Any, figure: Figure) -> None:
    """Writes names beside points that are alone in their series, but those of the paper's twins.

    Each where it hides the least of others and stays inside the frame, which must have its final
    place by now.
    """
    shown = with_data(figure)
    if any(_count(series) > 1 for series in shown):
        return
    frame = axes.get_window_extent()
    inside = (frame.x0, frame.y0, frame.x1, frame.y1)
    taken: list[_Box] = []
    places = []
    for series in shown:
        x, y, _ = _floats(series)
        point = next((a, b) for a, b in zip(x, y, strict=True) if not math.isnan(b))
        at = axes.transData.transform(point)
        taken.append((at[0] - 4, at[1] - 4, at[0] + 4, at[1] + 4))
        if _twin(figure, series) is None:
            places.append((series, point))
    offsets = (
        *((6, 0, "left", "center"), (-6, 0, "right", "center")),
        *((0, 6, "center", "bottom"), (0, -6, "center", "top")),
        *((5, 5, "left", "bottom"), (5, -5, "left", "top")),
        *((-5, 5, "right", "bottom"), (-5, -5, "right", "top")),
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


def _groups(figure: Figure) -> list[str]:
    return list(dict.fromkeys(str(x) for series in figure.series for x in series.x))


def width_of(figure: Figure) -> float:
    """Inches. Bars take room for a number above each."""
    if figure.kind != "bars":
        return WIDTH
    bars = len(_groups(figure)) * (len(with_data(figure)) + 1)
    return min(max(WIDTH, _MARGIN + 0.22 * bars), _MAX_WIDTH)


def _bars(axes: Any, figure: Figure) -> Named:
    names, shown = _groups(figure), with_data(figure)
    width = 0.8 / len(shown)
    slot = (width_of(figure) - _MARGIN) / len(names)  # inches of a group
    floor = _floor(figure)
    if figure.bars_from is not None:
        axes.axhline(floor, color="black", linewidth=0.8)
    named: Named = []
    for number, series in enumerate(shown):
        color = _look(figure, series)["color"]
        shift = (number - (len(shown) - 1) / 2) * width
        spreads = series.spread or (None,) * len(series.y)
        bars = [
            (names.index(str(x)) + shift, y, spread or 0.0)
            for x, y, spread in zip(series.x, series.y, spreads, strict=True)
            if y is not None and (y > 0 or not figure.log_y)
        ]
        places, heights, spread = zip(*bars, strict=True) if bars else ((), (), ())
        drawn = axes.bar(
            places,
            [y - floor for y in heights],
            0.92 * width,
            bottom=floor,
            color="none" if series.is_papers else color,
            hatch="////" if series.is_papers else None,
            edgecolor=color,
            linewidth=0.8 if series.is_papers else 0,
            yerr=spread if any(spread) else None,
            error_kw={"elinewidth": 0.8, "capsize": 1.5},
        )
        named.append((drawn, series.label))
        if not any(spread) and width_of(figure) < _MAX_WIDTH:
            size = 8.5 if slot * width > 0.34 else 7
            axes.bar_label(drawn, labels=[_brief(y) for y in heights], fontsize=size, padding=1)
    folded = [wrapped(name, max(8, int(slot / LETTER))) for name in names]
    is_slanted = max(len(line) for name in folded for line in name.split("\n")) * LETTER > slot
    slanted = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if is_slanted else {}
    axes.set_xticks(range(len(names)), folded, **slanted)
    if figure.log_y and figure.bars_from is None:
        axes.set_ylim(bottom=floor)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, len(names) - 0.4)
    return named if len(named) > 1 else []


def _floor(figure: Figure) -> float:
    """Where bars begin; on a log axis, a power of ten below them all."""
    if figure.bars_from is not None:
        return figure.bars_from
    values = [y for series in figure.series for y in series.y if y is not None and y > 0]
    if not figure.log_y or not values:
        return 0.0
    return float(10 ** math.floor(math.log10(min(values)) - 0.1))


def _brief(value: float) -> str:
    if abs(value) >= 10:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"

"""Figures drawn by matplotlib, which is set up here and nowhere else: as files, and for a page.

The same figure gives the same bytes, so that a drawing that is kept under version control only
changes with its numbers.
"""

from __future__ import annotations

import io
import math
import os
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bignn.errors import missing_extra, wrong
from bignn.experiments.document import Figure, Series
from bignn.experiments.themed_svg import themed
from bignn.files import atomic_path

FORMATS = (".svg", ".png", ".pdf")

#: Told apart with any kind of colour vision, each at least 3:1 against white.
PALETTE = ("#0072b2", "#d55e00", "#008060", "#b25b8c", "#8c6d00", "#4a9bd1")
_MARKERS = "osD^vPX"

#: Inches. Small, so that type of 9 points is still read when 400 pixels show all of it.
_WIDTH, _HEIGHT, _MAX_WIDTH = 4.6, 3.0, 16.0
_LETTER = 0.078  # of 9 points, on average

_STYLE = {
    "font.size": 9,
    "hatch.linewidth": 0.7,
    "axes.labelsize": 9,
    "legend.fontsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "black",
    "grid.alpha": 0.15,
    "grid.linewidth": 0.6,
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
    """Draws on white to a file ending in .svg, .png or .pdf."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise wrong("path", f"a file name ending in one of {', '.join(FORMATS)}", f"'{path}'")
    with _drawn(figure) as canvas, atomic_path(path) as temporary:
        canvas.savefig(temporary, dpi=200, format=suffix[1:], metadata=_NO_DATES[suffix])


def inline(figure: Figure, prefix: str = "") -> str:
    """An ``<svg>`` for the inside of a page, whose colours are the page's.

    Lines and letters have the page's text colour, series ``var(--series-1)`` and on. Ids begin with
    ``prefix`` (the figure's name if there is none), which must be another for each figure of a page.
    """
    with _drawn(figure) as canvas:
        text = io.StringIO()
        canvas.savefig(text, format="svg", transparent=True, metadata=_NO_DATES[".svg"])
    return themed(text.getvalue(), figure.caption, prefix or figure.name, PALETTE)


def width_of(figure: Figure) -> float:
    """Inches. Bars take room for a number above each."""
    if figure.kind != "bars":
        return _WIDTH
    bars = len(_groups(figure)) * (len(figure.series) + 1)
    return min(max(_WIDTH, 0.8 + 0.22 * bars), _MAX_WIDTH)


@contextmanager
def _drawn(figure: Figure) -> Iterator[Any]:
    """The figure as matplotlib's, while our settings and none of the user's hold."""
    try:
        import matplotlib.style
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        line = missing_extra("drawing figures", error)
        raise ImportError(line or str(error), name=error.name) from error
    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        # The viewer has a font for what ours lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        labels = [_wrapped(series.label, 46) for series in _shown(figure)]
        width = width_of(figure)
        columns = _legend_columns(labels, width)
        lines = max((label.count("\n") + 1 for label in labels), default=0)
        rows = lines * math.ceil(len(labels) / columns)
        canvas = Canvas(figsize=(width, _HEIGHT + 0.17 * rows), layout="constrained")
        axes = canvas.subplots()
        axes.set_xlabel(_wrapped(figure.x_label, 52))
        axes.set_ylabel(_wrapped(figure.y_label, 36))
        if figure.log_x:
            axes.set_xscale("log", nonpositive="mask")
        if figure.log_y:
            axes.set_yscale("log", nonpositive="mask")
        if any(y is not None for series in figure.series for y in series.y):
            draw = {"lines": _lines, "points": _points, "bars": _bars}[figure.kind]
            handles = draw(axes, figure)
            _ticks(axes, figure)
            _verticals(axes, figure)
            _legend(canvas, handles, labels, columns)
            if figure.kind == "points":
                canvas.canvas.draw()  # places are known from here on
                _label_points(axes, figure)
        else:
            axes.set(xticks=[], yticks=[])
            axes.text(0.5, 0.5, "no data", ha="center", va="center", transform=axes.transAxes)
        yield canvas


def _shown(figure: Figure) -> list[Series]:
    """The series in the legend: those with data; none where points bear their own names."""
    with_data = [s for s in figure.series if any(y is not None for y in s.y)]
    named_in_place = figure.kind == "points" and all(_count(s) == 1 for s in with_data)
    return [] if named_in_place or len(with_data) < 2 else with_data


def _count(series: Series) -> int:
    return sum(y is not None for y in series.y)


def _wrapped(text: str, width: int) -> str:
    """In lines of a width, without characters that XML has no place for."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return "\n".join(textwrap.wrap(printable, width))


def _style_of(figure: Figure, series: Series) -> dict[str, Any]:
    """Colour and marker. The paper's n-th series has the colour of our n-th, lighter and dashed."""
    alike = [other for other in figure.series if other.is_papers == series.is_papers]
    number = next(n for n, other in enumerate(alike) if other is series)
    found = {
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
    return x, y, list(series.spread or [0.0] * len(y))


def _lines(axes: Any, figure: Figure) -> list[Any]:
    handles = []
    for series in figure.series:
        look = _style_of(figure, series)
        x, y, spread = _floats(series)
        if len(x) > 40:  # they would hide the line
            look["marker"] = "none"
        if len(figure.series) > 1 and not _count(series):
            continue
        handles += axes.plot(x, y, **look)
        if any(spread):
            low = [a - s for a, s in zip(y, spread, strict=True)]
            high = [a + s for a, s in zip(y, spread, strict=True)]
            faint = 0.08 if series.is_papers else 0.15
            axes.fill_between(x, low, high, color=look["color"], alpha=faint, linewidth=0)
            if _count(series) == 1:  # a band of no width
                axes.errorbar(x, y, spread, color=look["color"], fmt="none", capsize=2)
    return handles


def _points(axes: Any, figure: Figure) -> list[Any]:
    handles = []
    for series in figure.series:
        if not _count(series):
            continue
        look = _style_of(figure, series) | {"linestyle": "none", "markersize": 6}
        x, y, spread = _floats(series)
        handles += axes.plot(x, y, **look)
        if any(spread):
            color, alpha = look["color"], 0.6 * look.get("alpha", 1)
            axes.errorbar(
                x, y, spread, color=color, alpha=alpha, fmt="none", capsize=2, elinewidth=1
            )
    axes.margins(0.12)
    return handles


def _label_points(axes: Any, figure: Figure) -> None:
    """Writes each name beside its point, where it hides the fewest others and stays inside."""
    alone = [series for series in figure.series if _count(series) == 1]
    if len(alone) < sum(_count(series) > 0 for series in figure.series):
        return
    frame = axes.get_window_extent()
    taken = []
    places = []
    for series in alone:
        x, y, _ = _floats(series)
        at = next(n for n, value in enumerate(y) if not math.isnan(value))
        place = axes.transData.transform((x[at], y[at]))
        places.append((series, (x[at], y[at])))
        taken.append((place[0] - 4, place[1] - 4, place[0] + 4, place[1] + 4))
    offsets = (
        *((6, 0, "left", "center"), (-6, 0, "right", "center")),
        *((0, 6, "center", "bottom"), (0, -6, "center", "top")),
        *((5, 5, "left", "bottom"), (5, -5, "left", "top")),
        *((-5, 5, "right", "bottom"), (-5, -5, "right", "top")),
    )
    for series, point in places:
        text = axes.annotate(
            _wrapped(series.label, 26), point, (0, 0), textcoords="offset points", fontsize=8
        )
        tried = []
        for choice, (dx, dy, ha, va) in enumerate(offsets):
            text.set(position=(dx, dy), ha=ha, va=va)
            box = text.get_window_extent()
            edges = (box.x0, box.y0, box.x1, box.y1)
            outside = _area(edges) - _overlap(edges, (frame.x0, frame.y0, frame.x1, frame.y1))
            hidden = sum(_overlap(edges, other) for other in taken)
            tried.append((hidden + outside, choice, edges))
        _, choice, edges = min(tried)
        dx, dy, ha, va = offsets[choice]
        text.set(position=(dx, dy), ha=ha, va=va)
        taken.append(edges)


Box = tuple[float, float, float, float]


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _overlap(a: Box, b: Box) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return width * height if width > 0 and height > 0 else 0.0


def _groups(figure: Figure) -> list[str]:
    return list(dict.fromkeys(str(x) for series in figure.series for x in series.x))


def _bars(axes: Any, figure: Figure) -> list[Any]:
    names = _groups(figure)
    present = [series for series in figure.series if _count(series)]
    width = 0.8 / len(present)
    slot = (width_of(figure) - 0.8) / len(names)
    positive = [y for s in present for y in s.y if y is not None and (y > 0 or not figure.log_y)]
    floor = 0.0
    if figure.bars_from is not None:
        floor = figure.bars_from
        axes.axhline(floor, color="black", linewidth=0.8)
    elif figure.log_y and positive:
        floor = 10 ** math.floor(math.log10(min(positive)) - 0.1)
    handles = []
    for number, series in enumerate(present):
        look = _style_of(figure, series)
        shift = (number - (len(present) - 1) / 2) * width
        bars = [
            (names.index(str(x)) + shift, y, s)
            for x, y, s in zip(
                series.x, series.y, series.spread or (0.0,) * len(series.y), strict=True
            )
            if y is not None and (y > 0 or not figure.log_y)
        ]
        spread = [s for _, _, s in bars]
        drawn = axes.bar(
            [place for place, _, _ in bars],
            [y - floor for _, y, _ in bars],
            0.92 * width,
            bottom=floor,
            color="none" if series.is_papers else look["color"],
            hatch="////" if series.is_papers else None,
            edgecolor=look["color"],
            linewidth=0.8 if series.is_papers else 0,
            yerr=spread if any(spread) else None,
            error_kw={"elinewidth": 0.8, "capsize": 1.5},
        )
        if not any(spread) and width_of(figure) < _MAX_WIDTH:
            size = 8.5 if slot * width > 0.34 else 7
            axes.bar_label(drawn, labels=[_brief(y) for _, y, _ in bars], fontsize=size, padding=1)
        handles.append(drawn)
    folded = [_wrapped(name, max(8, int(slot / _LETTER))) for name in names]
    if max(len(line) for name in folded for line in name.split("\n")) * _LETTER > slot:
        axes.set_xticks(range(len(names)), folded, rotation=30, ha="right", rotation_mode="anchor")
    else:
        axes.set_xticks(range(len(names)), folded)
    if figure.log_y and figure.bars_from is None:
        axes.set_ylim(bottom=floor)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, len(names) - 0.4)
    return handles


def _brief(value: float) -> str:
    return (
        f"{value:,.0f}"
        if abs(value) >= 10
        else f"{value:.2g}"
        if abs(value) < 1
        else f"{value:.1f}"
    )


def _ticks(axes: Any, figure: Figure) -> None:
    """Plain numbers; where x takes few values, those."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    plain = FuncFormatter(lambda value, _: f"{value:,.10g}")
    if figure.log_y:
        low, high = axes.get_ylim()
        decades = math.log10(high / low)
        subs = (1.0,) if decades > 2.5 else (1.0, 2.0, 5.0)
        axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=20))
        axes.yaxis.set_major_formatter(plain)
        axes.yaxis.set_minor_locator(NullLocator())
    if figure.kind == "bars":
        return
    values = sorted({float(x) for series in figure.series for x in series.x})
    if figure.kind == "lines" and len(values) <= 10 and _are_apart(values, figure.log_x):
        axes.set_xticks(values)
        axes.xaxis.set_major_formatter(plain)
    elif figure.log_x:
        low, high = axes.get_xlim()
        subs = (1.0,) if high / low > 300 else (1.0, 2.0, 5.0)
        axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=20))
        axes.xaxis.set_major_formatter(plain)
    if figure.log_x:
        axes.xaxis.set_minor_locator(NullLocator())


def _are_apart(values: list[float], log: bool) -> bool:
    """Whether numbers at these places do not run into each other."""
    at = [math.log(value) for value in values if value > 0] if log else values
    if len(at) < 2:
        return True
    least = min(b - a for a, b in zip(at, at[1:], strict=False))
    return least / (at[-1] - at[0]) >= 0.08


def _verticals(axes: Any, figure: Figure) -> None:
    """Dotted lines, their labels above the frame, one higher than the other."""
    for number, (label, x) in enumerate(sorted(figure.verticals, key=lambda line: line[1])):
        axes.axvline(x, color="black", alpha=0.6, linewidth=0.9, linestyle=":")
        axes.text(
            x,
            1.02 + 0.065 * number,
            _wrapped(label, 40),
            transform=axes.get_xaxis_transform(),
            ha="center",
            va="bottom",
            fontsize=8,
        )


def _legend_columns(labels: list[str], width: float) -> int:
    longest = max((len(line) for label in labels for line in label.split("\n")), default=1)
    return max(1, min(len(labels), int(width / (longest * _LETTER + 0.55))))


def _legend(canvas: Any, handles: list[Any], labels: list[str], columns: int) -> None:
    """Below the figure, where it hides nothing."""
    if not labels:
        return
    # Matplotlib leaves out names that begin with an underscore, so they are set afterwards.
    legend = canvas.legend(
        handles,
        ["-"] * len(labels),
        loc="outside lower center",
        ncols=columns,
        columnspacing=1.4,
        handlelength=2.2,
    )
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text(label)

"""A document as data: sections of text, tables and figures, whatever shows them.

:mod:`bignn.lab.report.markdown` and :mod:`bignn.lab.report.page` write it,
:mod:`bignn.lab.report.figures` draws its figures.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Tone = Literal["good", "even", "poor"]

#: A reference to a footnote in text, as ``[^2]``.
NOTE_MARK = re.compile(r"\[\^(\d+)\]")


class Verdict(str):
    """A cell that judges its row in words; its tone may be shown as a colour as well."""

    __slots__ = ("tone",)
    tone: Tone

    def __new__(cls, text: str, tone: Tone) -> Verdict:
        """Make a cell of a text and a tone."""
        verdict = super().__new__(cls, text)
        verdict.tone = tone
        return verdict


class Footnotes:
    """Footnotes of a table while it is made; each text is numbered once, in the order of use."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def mark(self, text: str) -> str:
        """Return the reference to a footnote, to be put behind what it explains."""
        if text not in self._texts:
            self._texts.append(text)
        return f"[^{self._texts.index(text) + 1}]"

    @property
    def texts(self) -> tuple[str, ...]:
        """All footnotes, the first one numbered 1."""
        return tuple(self._texts)


@dataclass(frozen=True)
class Table:
    """Cells as they are shown, some of them a :class:`Verdict`. The first column names the rows.

    ``[^n]`` in a cell, a column or the caption refers to the n-th of ``notes``.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows)
        assert _are_noted((self.caption, *self.columns, *sum(self.rows, ())), self.notes)


def _are_noted(texts: Iterable[str], notes: tuple[str, ...]) -> bool:
    """Whether every footnote is referred to somewhere."""
    used = {int(number) for text in texts for number in NOTE_MARK.findall(text)}
    return used >= set(range(1, len(notes) + 1))


@dataclass(frozen=True)
class Listing:
    """Text whose lines and spaces count, as in a diagram or a command."""

    text: str


@dataclass(frozen=True)
class Series:
    """Points of one kind, with a spread (standard deviation) around each y if it is known.

    In a figure of dots, x are the names of groups. A y of None is a gap.
    """

    label: str
    x: tuple[float, ...] | tuple[str, ...]
    y: tuple[float | None, ...]
    spread: tuple[float | None, ...] | None = None
    #: The paper's numbers, drawn lighter than ours.
    is_papers: bool = False

    def __post_init__(self) -> None:
        assert len(self.x) == len(self.y)
        assert self.spread is None or len(self.spread) == len(self.y)


@dataclass(frozen=True)
class Figure:
    """What to draw. ``name`` is the name of its file; ``verticals`` are lines at some x, labelled.

    Of the three kinds, ``lines`` joins the points of a series, ``points`` labels each point, and
    ``dots`` has a row for each group, its values running to the right.
    """

    name: str
    caption: str
    kind: Literal["lines", "points", "dots"]
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    verticals: tuple[tuple[str, float], ...] = ()
    #: The value that dots are compared with, drawn as a line: 1 for ratios, 0 for differences.
    baseline: float | None = None
    #: The number of the first series' colour: panels of one picture share none.
    first_colour: int = 0
    #: The rows of dots from top to bottom; by default, in the order of the series.
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Panels:
    """Figures of dots in one picture, side by side: their groups are the same and named once."""

    name: str
    caption: str
    figures: tuple[Figure, ...]

    def __post_init__(self) -> None:
        assert all(figure.kind == "dots" for figure in self.figures)


Picture = Figure | Panels
Part = str | Table | Figure | Panels | Listing


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it, in the order of ``parts``.

    Text is one paragraph; ``code`` in backticks is the only mark-up in it.
    """

    name: str
    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Document:
    """A page: a title, a sentence or two, headline figures as (value, what it is), sections."""

    title: str
    lead: str
    headline: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]

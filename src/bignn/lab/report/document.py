"""What is shown of results, whatever shows it: sections of text, tables and figures, as data.

:mod:`bignn.lab.report.markdown` and :mod:`bignn.lab.report.page` make pages of them,
:mod:`bignn.lab.report.figures` draws the figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tone = Literal["good", "even", "poor"]


class Verdict(str):
    """A cell that judges its row, in words; its tone may be shown as a colour as well."""

    __slots__ = ("tone",)
    tone: Tone

    def __new__(cls, words: str, tone: Tone) -> Verdict:
        """The words, with a tone."""
        verdict = super().__new__(cls, words)
        verdict.tone = tone
        return verdict


@dataclass(frozen=True)
class Table:
    """Cells as they are shown, some of them a :class:`Verdict`. The first column names the rows."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows)


@dataclass(frozen=True)
class Listing:
    """Text whose lines and spaces count, as a diagram or a command."""

    text: str


@dataclass(frozen=True)
class Series:
    """Points of one kind, with a spread (standard deviation) around each y if it is known.

    In a figure of bars, x are the names of groups; a y of None is a gap.
    """

    label: str
    x: tuple[float, ...] | tuple[str, ...]
    y: tuple[float | None, ...]
    spread: tuple[float | None, ...] | None = None
    #: As the paper has it, drawn lighter than ours.
    is_papers: bool = False

    def __post_init__(self) -> None:
        assert len(self.x) == len(self.y)
        assert self.spread is None or len(self.spread) == len(self.y)


@dataclass(frozen=True)
class Figure:
    """What to draw. ``name`` is that of its file; ``verticals`` are lines at some x, with a label.

    ``points`` are labelled by their series, ``lines`` joined, ``bars`` stand in groups.
    """

    name: str
    caption: str
    kind: Literal["lines", "points", "bars"]
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    verticals: tuple[tuple[str, float], ...] = ()
    #: Where bars begin, if not at 0 or the bottom of a log axis: 1 for ratios.
    bars_from: float | None = None


Part = str | Table | Figure | Listing


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it, in the order of ``parts``.

    Text is one paragraph; ``code`` in backticks is the only mark in it.
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

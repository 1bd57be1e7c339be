"""What is shown of results, whatever shows it: sections of text, tables and figures, as data.

:mod:`bignn.experiments.markdown` and :mod:`bignn.experiments.page` make pages of them,
:mod:`bignn.experiments.figures` draws the figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Table:
    """Cells as they are shown. The first column names the rows."""

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
    spread: tuple[float, ...] | None = None
    #: As the paper has it, drawn lighter than ours.
    is_papers: bool = False


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

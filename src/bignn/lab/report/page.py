"""A document as one HTML file that needs nothing else: no script, no font, no network.

How it looks is :mod:`bignn.lab.report.page_style`'s.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from itertools import groupby

from bignn.lab.report.document import Document, Figure, Listing, Part, Section, Table, Verdict
from bignn.lab.report.figures import inline
from bignn.lab.report.marks import width_of
from bignn.lab.report.page_style import STYLE

#: The page may style itself and show images that it holds, nothing more.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)
#: More numbers than these say less than the figure does.
_MOST_NUMBERS = 40


def page(document: Document) -> str:
    """The HTML. The same document gives the same text."""
    anchors = _anchors(section.name for section in document.sections)
    builder = _Builder()
    sections = "\n".join(
        builder.section(section, anchor)
        for section, anchor in zip(document.sections, anchors, strict=True)
    )
    links = "\n".join(
        f'<li><a href="#{anchor}">{escape(section.title)}</a></li>'
        for section, anchor in zip(document.sections, anchors, strict=True)
    )
    contents = f'<nav aria-label="Contents">\n<h2>Contents</h2>\n<ol>\n{links}\n</ol>\n</nav>'
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="description" content="{escape(document.lead)}">
<title>{escape(document.title)}</title>
<link rel="icon" href="data:,">
<style>
{STYLE}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the results</a>
<header>
<h1>{escape(document.title)}</h1>
<p class="lead">{_text(document.lead)}</p>
{_headline(document.headline)}</header>
<div class="body">
{contents if links else ""}
<main id="main">
{sections}
</main>
</div>
</body>
</html>
"""


def _anchors(names: Iterable[str]) -> list[str]:
    """An id per name: letters, digits and hyphens, each once."""
    found: list[str] = []
    for name in names:
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "section"
        anchor, number = f"s-{slug}", 2
        while anchor in found:
            anchor, number = f"s-{slug}-{number}", number + 1
        found.append(anchor)
    return found


def _headline(figures: tuple[tuple[str, str], ...]) -> str:
    if not figures:
        return ""
    items = "\n".join(
        f"<div><dt>{_text(what)}</dt><dd>{escape(value)}</dd></div>" for value, what in figures
    )
    return f'<dl class="headline">\n{items}\n</dl>\n'


def _text(text: str) -> str:
    """A paragraph's inside: what stands between backticks is code, a lone backtick itself."""
    parts = re.split(r"`([^`]+)`", text)
    return "".join(
        f"<code>{escape(part)}</code>" if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


def _paragraph(text: str) -> str:
    """A paragraph; one that is code alone, as a command is, stands apart."""
    if re.fullmatch(r"`[^`]+`", text.strip()):
        code = escape(text.strip().strip("`"))
        return f"<pre><code>{code}</code></pre>"
    return f"<p>{_text(text)}</p>"


class _Builder:
    """Makes sections; tables and figures are numbered through the page."""

    def __init__(self) -> None:
        self.tables = self.figures = self.listings = 0

    def section(self, section: Section, anchor: str) -> str:
        blocks = [f'<section id="{anchor}" aria-labelledby="{anchor}-title">']
        blocks.append(f'<h2 id="{anchor}-title">{escape(section.title)}</h2>')
        for kind, parts in groupby(section.parts, key=type):
            if kind is Figure:
                drawn = "\n".join(self.figure(part) for part in parts if isinstance(part, Figure))
                blocks.append(f'<div class="figures">\n{drawn}\n</div>')
            else:
                blocks += [self.block(part, section.title) for part in parts]
        return "\n".join([*blocks, "</section>"])

    def block(self, part: Part, title: str) -> str:
        if isinstance(part, Table):
            return self.table(part, title)
        if isinstance(part, Listing):
            self.listings += 1
            label = f"Listing {self.listings}: {title}"
            return _scrolling(f"<pre>{escape(part.text)}</pre>", label)
        return _paragraph(str(part))

    def table(self, table: Table, title: str) -> str:
        self.tables += 1
        name, caption = f"Table {self.tables}", table.caption or title
        return _scrolling(_table(table, f"<b>{name}.</b> {_text(caption)}"), f"{name}: {caption}")

    def figure(self, figure: Figure) -> str:
        self.figures += 1
        name = f"Figure {self.figures}"
        drawing = _scrolling(inline(figure, f"figure-{self.figures}"), f"{name}: {figure.caption}")
        numbers = numbers_of(figure)
        told = ""
        if numbers is not None:
            region = _scrolling(_table(numbers, _text(numbers.caption)), f"{name} in numbers")
            told = f"\n<details><summary>{name} in numbers</summary>\n{region}\n</details>"
        kind = ' class="wide"' if width_of(figure) > 6 else ""
        caption = f"<figcaption><b>{name}.</b> {_text(figure.caption)}</figcaption>"
        return f'<figure id="figure-{self.figures}"{kind}>\n{drawing}\n{caption}{told}\n</figure>'


def _scrolling(inside: str, label: str) -> str:
    """A box whose inside scrolls, also by keyboard, where the screen is narrower than it."""
    return (
        f'<div class="box" role="region" tabindex="0" aria-label="{escape(label)}">{inside}</div>'
    )


#: Tables of more columns are set closer, so that they fit the page.
_MANY = 9


def _table(table: Table, caption: str) -> str:
    are_numbers = [
        number > 0 and _is_number_column(row[number] for row in table.rows)
        for number in range(len(table.columns))
    ]
    head = "".join(
        f'<th scope="col"{_classes(number=number, short=len(column) <= 14)}>{_text(column)}</th>'
        for column, number in zip(table.columns, are_numbers, strict=True)
    )
    rows = "\n".join(f"<tr>{_row(row, are_numbers)}</tr>" for row in table.rows)
    return (
        f"<table{_classes(many=len(table.columns) > _MANY)}>\n"
        f"<caption><span>{caption}</span></caption>\n<thead>\n<tr>{head}</tr>\n</thead>\n"
        f"<tbody>\n{rows}\n</tbody>\n</table>"
    )


def _row(row: tuple[str, ...], are_numbers: list[bool]) -> str:
    name = row[0]
    cells = [f'<th scope="row"{_classes(short=len(name) <= 20)}>{_text(name)}</th>']
    for cell, number in zip(row[1:], are_numbers[1:], strict=True):
        inside = _text(cell)
        if isinstance(cell, Verdict):
            inside = f'<span class="verdict {cell.tone}">{inside}</span>'
        short = 0 < len(cell) <= (20 if number else 24)
        cells.append(f"<td{_classes(number=number, short=short)}>{inside}</td>")
    return "".join(cells)


def _classes(**which: bool) -> str:
    names = " ".join(name for name, holds in which.items() if holds)
    return f' class="{names}"' if names else ""


_GAPS = ("", "-", "–", "—")


def _is_number_column(cells: Iterable[str]) -> bool:
    """Whether cells are numbers with no words but units, most of them or all but one saying."""
    said = [cell for cell in cells if cell.strip() not in _GAPS]
    words = [
        cell
        for cell in said
        if isinstance(cell, Verdict)
        or not re.match(r"[+\-−~≈<>≤≥]*\s?\d", cell.strip())
        or re.search(r"[^\W\d_]{5,}", cell)
    ]
    # All but one saying: "not measured here", however often.
    return len(words) < len(said) and (2 * len(words) < len(said) or len(set(words)) == 1)


def numbers_of(figure: Figure) -> Table | None:
    """What a figure shows, for those who cannot see it: of very many points, some; None of none."""
    series = [one for one in figure.series if one.y]
    if not series:
        return None
    columns = (figure.x_label or "group", *(one.label for one in series))
    places = list(dict.fromkeys(x for one in series for x in one.x))
    if figure.kind != "bars":
        places.sort()
    places = places[:: -(-len(places) // _MOST_NUMBERS)]
    rows = []
    for place in places:
        cells = [place if isinstance(place, str) else _number(place)]
        for one in series:
            at = one.x.index(place) if place in one.x else None
            y = None if at is None else one.y[at]
            known = None if at is None or one.spread is None else one.spread[at]
            spread = "" if known is None else f" ± {_number(known)}"
            cells.append("" if y is None else _number(y) + spread)
        rows.append(tuple(cells))
    return Table(figure.y_label, columns, tuple(rows))


def _number(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"

"""A document as one HTML file that needs nothing else: no script, no font, no network.

``page.html.jinja`` is its structure and ``page.css`` its look; here is what they are filled with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from bignn.lab.report.document import (
    NOTE_MARK,
    Document,
    Listing,
    Panels,
    Part,
    Picture,
    Section,
    Table,
    Verdict,
)
from bignn.lab.report.figures import inline
from bignn.lab.report.palette import DARK, LIGHT

#: The page may style itself and show images that it holds, nothing more.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)
#: A figure with more numbers shows more than they do.
_MOST_NUMBERS = 40
#: Tables of more columns are set closer, so that they fit the page.
_MANY_COLUMNS = 9
_SHORT_CODE = 24
_GAPS = ("", "-", "–", "—")


def page(document: Document) -> str:
    """Write a document as HTML. Equal documents give equal text."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["marked"] = _marked
    template = environment.get_template("page.html.jinja")
    sections = _Builder().sections(document.sections)
    return template.render(
        document=document, sections=sections, policy=POLICY, light=LIGHT, dark=DARK
    ).lstrip()


def _marked(text: str, place: str = "", notes: int = 0, seen: set[int] | None = None) -> Markup:
    """Make HTML of text: code between backticks, and ``[^n]`` as a link to the n-th of ``notes``.

    The first link to a note has an id, where the note links back to; ``seen`` are those before.
    """
    linked = set[int]() if seen is None else seen

    def reference(found: re.Match[str]) -> str:
        number = int(found[1])
        if not 0 < number <= notes:
            return found[0]
        identity = "" if number in linked else f' id="{place}-ref-{number}"'
        linked.add(number)
        link = f'<a href="#{place}-note-{number}"{identity} aria-label="note {number}">'
        return f"<sup>{link}{number}</a></sup>"

    parts = re.split(r"`([^`]+)`", text)
    return Markup("").join(
        _code(part) if number % 2 else Markup(NOTE_MARK.sub(reference, str(escape(part))))
        for number, part in enumerate(parts)
    )


def _code(text: str) -> Markup:
    """Make an element of code; an option with its value is not broken at its hyphens."""
    element = "<code>{}</code>" if len(text) > _SHORT_CODE else '<code class="short">{}</code>'
    return Markup(element).format(text)


class _Builder:
    """Prepares sections for the template; tables and figures are numbered throughout."""

    def __init__(self) -> None:
        self._tables, self._figures, self._listings = count(1), count(1), count(1)

    def sections(self, sections: Sequence[Section]) -> list[dict[str, Any]]:
        anchors = _anchors(section.name for section in sections)
        return [
            {"anchor": anchor, "title": section.title, "parts": list(self._parts(section))}
            for section, anchor in zip(sections, anchors, strict=True)
        ]

    def _parts(self, section: Section) -> Iterator[dict[str, Any]]:
        for are_figures, parts in groupby(section.parts, lambda one: isinstance(one, Picture)):
            if are_figures:
                figures = [self._figure(one) for one in parts if isinstance(one, Picture)]
                yield {"kind": "figures", "figures": figures}
            else:
                yield from (self._part(one, section.title) for one in parts)

    def _part(self, part: Part, title: str) -> dict[str, Any]:
        if isinstance(part, Table):
            name, caption = f"Table {next(self._tables)}", part.caption or title
            table = _table(part, name, caption)
            return {"kind": "table", "table": table, "label": f"{name}: {caption}"}
        if isinstance(part, Listing):
            label = f"Listing {next(self._listings)}: {title}"
            return {"kind": "listing", "inside": part.text, "label": label}
        text = str(part)
        if re.fullmatch(r"`[^`]+`", text.strip()):  # code alone, as a command is, stands apart
            return {"kind": "code", "inside": text.strip().strip("`")}
        return {"kind": "paragraph", "inside": _marked(text)}

    def _figure(self, figure: Picture) -> dict[str, Any]:
        number = next(self._figures)
        name, identity = f"Figure {number}", f"figure-{number}"
        numbers = numbers_of(figure)
        return {
            **{"id": identity, "name": name, "label": f"{name}: {figure.caption}"},
            "caption": _marked(figure.caption),
            "classes": ["wide"] if isinstance(figure, Panels) else [],
            "svg": Markup(inline(figure, identity)),
            "numbers": numbers and _table(numbers, "", numbers.caption),
        }


def _anchors(names: Iterable[str]) -> list[str]:
    """Make an id of each name, of letters, digits and hyphens, no two of them equal."""
    found: list[str] = []
    for name in names:
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "section"
        anchor, number = f"s-{slug}", 2
        while anchor in found:
            anchor, number = f"s-{slug}-{number}", number + 1
        found.append(anchor)
    return found


def _table(table: Table, name: str, caption: str) -> dict[str, Any]:
    """Prepare a table for the template."""
    place, seen = name.lower().replace(" ", "-"), set[int]()

    def marked(text: str) -> Markup:
        return _marked(text, place, len(table.notes), seen)

    def cell(text: str, number: bool, short: bool) -> dict[str, Any]:
        classes = {"number": number, "short": short}
        return {
            "inside": marked(text),
            "tone": text.tone if isinstance(text, Verdict) else None,
            "classes": [name for name, holds in classes.items() if holds],
        }

    are_numbers = [
        number > 0 and _is_number_column(row[number] for row in table.rows)
        for number in range(len(table.columns))
    ]
    return {
        **{"name": name, "place": place, "caption": marked(caption)},
        "classes": ["many"] if len(table.columns) > _MANY_COLUMNS else [],
        "head": [
            cell(column, number, len(column) <= 14)
            for column, number in zip(table.columns, are_numbers, strict=True)
        ],
        "rows": [
            [
                cell(row[0], False, len(row[0]) <= 20),
                *(
                    cell(text, number, 0 < len(text) <= (20 if number else 24))
                    for text, number in zip(row[1:], are_numbers[1:], strict=True)
                ),
            ]
            for row in table.rows
        ],
        "notes": [_marked(note) for note in table.notes],
    }


def _is_number_column(cells: Iterable[str]) -> bool:
    """Return whether most cells are numbers with units, or all but one repeated phrase."""
    filled = [cell for cell in cells if cell.strip() not in _GAPS]
    phrases = [
        cell
        for cell in filled
        if isinstance(cell, Verdict)
        or not re.match(r"[+\-−~≈<>≤≥]*\s?\d", cell.strip())
        or re.search(r"[^\W\d_]{5,}", cell)
    ]
    # The repeated phrase: "not measured here", however often.
    few = 2 * len(phrases) < len(filled) or len(set(phrases)) == 1
    return len(phrases) < len(filled) and few


def numbers_of(picture: Picture) -> Table | None:
    """Return the numbers of a figure, for those who cannot see it; of very many points, some."""
    figures = picture.figures if isinstance(picture, Panels) else (picture,)
    several = len(figures) > 1
    columns = [
        (f"{figure.y_label}: {one.label}" if several else one.label, one)
        for figure in figures
        for one in figure.series
        if one.y
    ]
    if not columns:
        return None
    places = list(dict.fromkeys([*figures[0].groups, *(x for _, one in columns for x in one.x)]))
    if figures[0].kind != "dots":
        places.sort()
    places = places[:: -(-len(places) // _MOST_NUMBERS)]
    rows = []
    for place in places:
        cells = [place if isinstance(place, str) else _number(place)]
        for _, one in columns:
            at = one.x.index(place) if place in one.x else None
            y = None if at is None else one.y[at]
            known = None if at is None or one.spread is None else one.spread[at]
            spread = "" if known is None else f" ± {_number(known)}"
            cells.append("" if y is None else _number(y) + spread)
        rows.append(tuple(cells))
    first = figures[0].x_label or "group"
    caption = picture.caption if several else figures[0].y_label
    return Table(caption, (first, *(label for label, _ in columns)), tuple(rows))


def _number(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"

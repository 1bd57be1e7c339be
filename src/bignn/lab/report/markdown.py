"""A document written as Markdown."""

from __future__ import annotations

from urllib.parse import quote

from bignn.lab.report.document import (
    NOTE_MARK,
    Document,
    Figure,
    Listing,
    Panels,
    Section,
    Table,
)


def markdown(document: Document, figures: str) -> str:
    """Write a document; ``figures`` is the folder of its figures, which are called ``NAME.svg``."""
    blocks = [f"# {document.title}", document.lead]
    if document.headline:
        blocks.append("\n".join(f"- **{value}** {what}" for value, what in document.headline))
    for section in document.sections:
        blocks += _section(section, figures)
    return "\n\n".join(blocks) + "\n"


def _section(section: Section, figures: str) -> list[str]:
    blocks = [f"## {section.title}"]
    for part in section.parts:
        if isinstance(part, Table):
            blocks += _table(part)
        elif isinstance(part, Figure | Panels):
            file = quote(f"{figures}/{part.name}.svg")
            blocks += [f"![{part.caption}]({file})", part.caption]
        elif isinstance(part, Listing):
            blocks.append(f"```\n{part.text}\n```")
        else:
            blocks.append(part)
    return blocks


def _table(table: Table) -> list[str]:
    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    head = [line(table.columns), "|" + "---|" * len(table.columns)]
    blocks = [table.caption, "\n".join([*head, *map(line, table.rows)])]
    # Two spaces at the end of a line break it.
    blocks.append("  \n".join(f"[^{n}] {text}" for n, text in enumerate(table.notes, 1)))
    return [_with_raised_numbers(block) for block in blocks if block]


def _with_raised_numbers(text: str) -> str:
    """Raise the references to footnotes; those that stand together are divided by a comma."""
    return NOTE_MARK.sub(r"<sup>\1</sup>", text).replace("</sup><sup>", ",")

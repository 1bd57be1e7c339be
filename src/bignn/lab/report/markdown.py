"""A document as Markdown."""

from __future__ import annotations

from urllib.parse import quote

from bignn.lab.report.document import Document, Figure, Listing, Section, Table


def markdown(document: Document, figures: str) -> str:
    """The text; ``figures`` is the folder that the page finds them in, as ``NAME.svg``."""
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
            blocks.append(_table(part))
        elif isinstance(part, Figure):
            blocks.append(
                f"![{part.caption}]({quote(f'{figures}/{part.name}.svg')})\n\n{part.caption}"
            )
        elif isinstance(part, Listing):
            blocks.append(f"```\n{part.text}\n```")
        else:
            blocks.append(part)
    return blocks


def _table(table: Table) -> str:
    def line(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    head = [line(table.columns), "|" + "---|" * len(table.columns)]
    rows = "\n".join([*head, *map(line, table.rows)])
    return f"{table.caption}\n\n{rows}" if table.caption else rows

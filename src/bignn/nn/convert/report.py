"""The report of a conversion: what became of every module."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ReportEntry:
    """What became of one module.

    Attributes:
        name: name of the module in the model.
        kind: name of its class before the conversion.
        binary: its 1-bit parts, ``"features"``, ``"weights"`` or both; empty if there are none.
        note: its float parts, and the reason.

    """

    name: str
    kind: str
    binary: str
    note: str


@dataclass
class Report:
    """The result of :func:`bignn.binarize_`; ``print`` shows it as a table.

    Attributes:
        entries: one entry per module that has parameters.
        notes: remarks on the model as a whole.
        bytes_before: bytes of all parameters in float32.
        bytes_after: bytes of all parameters, with bits counted as packed, and their scales.
        obstacle: the reason why :func:`bignn.pack` will refuse the model, trained or not; None if
            it can be packed.

    """

    entries: list[ReportEntry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bytes_before: int = 0
    bytes_after: int = 0
    obstacle: str | None = None

    def __str__(self) -> str:
        rows = [("module", "kind", "1 bit", "note")]
        rows += [(e.name, e.kind, e.binary or "-", e.note) for e in self.entries]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [
            "  ".join(
                [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]
            )
            for row in rows
        ]
        sizes = sorted([max(1, self.bytes_before), max(1, self.bytes_after)])
        ratio = f"{sizes[1] / sizes[0]:.1f}x {'less' if sizes[0] == self.bytes_after else 'more'}"
        size = f"parameters: {self.bytes_before:,} -> {self.bytes_after:,} bytes ({ratio})"
        packs = "yes" if self.obstacle is None else f"no: {self.obstacle}"
        packs = f"packs: {packs.replace('the model cannot be packed: ', '', 1)}"
        return "\n".join(line.rstrip() for line in [*lines, size, *self.notes, packs])

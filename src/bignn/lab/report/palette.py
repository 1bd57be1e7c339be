"""Colours of pages and figures, for light and for dark screens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Theme:
    """Background, text and the colours of series, as CSS variables."""

    page: str
    text: str
    series: tuple[str, ...]

    @property
    def css(self) -> str:
        """The declarations ``--page``, ``--text``, ``--series-1``, ``--series-2``, ..."""
        series = (f"--series-{number}: {colour};" for number, colour in enumerate(self.series, 1))
        return " ".join([f"--page: {self.page}; --text: {self.text};", *series])


#: Series are told apart with any kind of colour vision, each at least 3:1 against the page.
LIGHT = Theme(
    "#fdfcfa", "#1d1c1a", ("#0072b2", "#d55e00", "#008060", "#b25b8c", "#8c6d00", "#3f8fc6")
)
#: The same hues, each at least 5:1 against the page.
DARK = Theme(
    "#17181a", "#e7e5e0", ("#5aa9e6", "#ff8f4d", "#35c195", "#e295c3", "#dcbb45", "#a9d8f7")
)

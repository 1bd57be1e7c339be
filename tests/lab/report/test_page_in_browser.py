"""The page in Chromium: that it loads alone, says what it was given, and fits phones and themes.

Skipped without a browser; ``make test`` installs one where it can.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from browser import LOWEST_CONTRAST, NAMES, Browser, complaints, find, requests
from documents import DOCUMENT, FIGURES, HOSTILE, TABLES

from bignn.lab.report.page import numbers_of, page

pytestmark = pytest.mark.skipif(
    find() is None, reason=f"none of {', '.join(NAMES)} is installed (make browser)"
)

#: Name, row headers and cells of every table, as a reader has them.
READ_TABLES = """
[...document.querySelectorAll("table")].map(table => ({
  columns: [...table.tHead.rows[0].cells].map(cell => cell.textContent),
  rows: [...table.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent)),
}))
"""
SERIES_CONTRAST = LOWEST_CONTRAST.replace(
    'document.querySelectorAll("body *")', 'document.querySelectorAll(".swatch")'
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(DOCUMENT))
    return path


def test_it_loads_alone_and_without_complaint(browser: Browser, path: Path) -> None:
    browser.open(path, 1280)
    assert complaints(browser) == []
    assert [url for url in requests(browser) if not url.startswith("data:")] == [path.as_uri()]
    assert (
        browser.evaluate("document.querySelectorAll('script, img, link[href^=http]').length") == 0
    )


def test_what_would_load_or_run_is_stopped(browser: Browser, path: Path) -> None:
    """The policy holds, and the test above would notice."""
    foreign = '<img src="http://127.0.0.1:9/x.png"><script>document.title = "run"</script></main>'
    changed = path.with_name("changed.html")
    changed.write_text(path.read_text().replace("</main>", foreign))
    browser.open(changed, 1280)
    assert browser.evaluate("document.title") == DOCUMENT.title
    told = str(complaints(browser))
    assert "img-src" in told
    assert "default-src" in told


def shown(cells: Sequence[str]) -> list[str]:
    """Footnotes are shown by their numbers."""
    return [re.sub(r"\[\^([12])\]", r"\1", cell) for cell in cells]


def test_tables_hold_what_was_given(browser: Browser, path: Path) -> None:
    browser.open(path, 1280)
    numbers = [numbers_of(figure) for figure in FIGURES]
    expected = [
        {"columns": shown(table.columns), "rows": [shown(row) for row in table.rows]}
        for table in (*TABLES, *numbers)
        if table is not None
    ]
    assert len(expected) == 6
    assert browser.evaluate(READ_TABLES) == expected
    headings = browser.evaluate("[...document.querySelectorAll('main h2')].map(h => h.textContent)")
    assert headings == [section.title for section in DOCUMENT.sections]
    values = browser.evaluate("[...document.querySelectorAll('dd')].map(d => d.textContent)")
    assert values == [value for value, _ in DOCUMENT.headline]
    captions = browser.evaluate(
        "[...document.querySelectorAll('figcaption')].map(c => c.innerText)"
    )
    assert captions[0] == f"Figure 1. Accuracy against width on {HOSTILE}"


def test_a_footnote_is_one_click_away_and_leads_back(browser: Browser, path: Path) -> None:
    browser.open(path, 1280)
    for target in ("table-2-note-2", "table-2-ref-2"):
        browser.evaluate(f"""document.querySelector('a[href="#{target}"]').click()""")
        assert browser.evaluate("location.hash") == f"#{target}"
        assert browser.evaluate("document.querySelector(':target').id") == target


@pytest.mark.parametrize("width", [320, 400, 700, 1280])
def test_nothing_overflows(browser: Browser, path: Path, width: int) -> None:
    browser.open(path, width)
    assert browser.evaluate("innerWidth") == width
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    # A wide table moves inside its box, and its first column stays.
    moved = browser.evaluate(
        """(() => {
          const box = document.querySelectorAll(".box")[1], cell = box.querySelector("tbody th");
          const before = cell.getBoundingClientRect().left;
          box.scrollLeft = 150;
          return [box.scrollLeft, cell.getBoundingClientRect().left - before];
        })()"""
    )
    assert moved[0] == 150
    assert abs(moved[1]) <= 1


@pytest.mark.parametrize("width", [400, 1280])
def test_letters_of_figures_can_be_read(browser: Browser, path: Path, width: int) -> None:
    browser.open(path, width)
    smallest = browser.evaluate(
        """Math.min(...[...document.querySelectorAll("svg text")].map(text =>
          parseFloat(getComputedStyle(text).fontSize)
          * Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b)))"""
    )
    assert smallest >= 8


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(browser: Browser, path: Path, scheme: str) -> None:
    browser.open(path, 1280, scheme=scheme)
    contrast, text = browser.evaluate(LOWEST_CONTRAST)
    assert contrast >= 4.5, text
    browser.evaluate(
        """document.querySelector("main").insertAdjacentHTML("beforeend",
          [1, 2, 3, 4, 5, 6].map(n =>
            `<b class="swatch" style="color: var(--series-${n})">series ${n}</b>`).join(""))"""
    )
    contrast, text = browser.evaluate(SERIES_CONTRAST)
    assert 3 <= contrast < 99, text


def test_dark_is_dark_and_paper_is_light(browser: Browser, path: Path) -> None:
    def look() -> list[int]:
        page, text = (
            browser.evaluate(f"getComputedStyle(document.body).{name}.match(/\\d+/g).map(Number)")
            for name in ("backgroundColor", "color")
        )
        return [sum(page[:3]), sum(text[:3])]

    browser.open(path, 1280, scheme="light")
    page_light, text_light = look()
    axis = "getComputedStyle(document.querySelector('svg text')).fill"
    fill_light = browser.evaluate(axis)
    browser.open(path, 1280, scheme="dark")
    page_dark, text_dark = look()
    assert page_light > 700 > 100 > text_light
    assert page_dark < 100 < 600 < text_dark
    assert browser.evaluate(axis) != fill_light
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.call("Emulation.setEmulatedMedia", media="print", features=features)
    assert look() == [3 * 255, text_light]
    assert browser.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    assert browser.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"


def test_the_keyboard_reaches_every_box(browser: Browser, path: Path) -> None:
    browser.open(path, 400)
    focused = browser.evaluate(
        """[...document.querySelectorAll(":not(details) > .box")].map(box => {
          box.focus();
          return document.activeElement === box && box.getAttribute("aria-label");
        })"""
    )
    assert len(focused) == 3 + len(FIGURES)
    assert all(focused)


def test_what_a_screen_reader_is_told(browser: Browser, path: Path) -> None:
    browser.open(path, 1280)
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    told = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node["ignored"]
    ]
    for figure in FIGURES:
        assert any(role in ("image", "img") and name == figure.caption for role, name in told)
    assert ("rowheader", "Bi-GCN") in told
    assert ("columnheader", "the paper's") in told
    assert ("navigation", "Contents") in told

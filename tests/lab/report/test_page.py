"""The page as text: one file, escaped, of the right elements. A browser has a test of its own."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from documents import ACCURACY, DOCUMENT, DOTS, FIGURES, HOSTILE, LINES, TABLES

from bignn.lab.report import write_page
from bignn.lab.report.document import Document, Figure, Listing, Section, Series, Table, Verdict
from bignn.lab.report.page import numbers_of, page

VOID = {"meta", "link", "br"}


class Outline(HTMLParser):
    """Every element with its attributes, and whether all are closed in their order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def html() -> str:
    return page(DOCUMENT)


def test_the_same_document_is_the_same_page(html: str) -> None:
    assert page(DOCUMENT) == html


def test_nothing_is_run_and_nothing_is_loaded(html: str) -> None:
    outline = Outline(html)
    assert not {tag for tag, _ in outline.elements} & {"script", "img", "iframe", "object", "form"}
    for _, attributes in outline.elements:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:,"))
    assert not re.search(r"@import|url\((?!#)", html)
    policy = next(meta for meta in outline.named("meta") if "http-equiv" in meta)
    assert policy["content"].startswith("default-src 'none'; style-src 'unsafe-inline';")


def test_names_are_shown_not_obeyed(html: str) -> None:
    assert HOSTILE not in html
    # The cells of both tables, a section's heading and its link, and a figure's caption.
    escaped = (
        "&lt;img src=x onerror=&#34;alert(1)&#34;&gt; &amp; &lt;script&gt;&#39;&lt;/script&gt;"
    )
    assert html.count(escaped) >= 5
    assert '<td class="short">&lt;&amp;&gt;</td>' in html


def test_elements_say_what_they_are(html: str) -> None:
    outline = Outline(html)
    assert outline.named("html") == [{"lang": "en"}]
    for tag in ("header", "nav", "main", "h1", "title"):
        assert len(outline.named(tag)) == 1, tag
    assert len(outline.named("section")) == 4
    regions = [box for box in outline.named("div") if box.get("class") == "box"]
    # Two tables, a listing, and for each figure the drawing and its numbers.
    assert len(regions) == 3 + 2 * len(FIGURES)
    assert all(box["role"] == "region" and box["tabindex"] == "0" for box in regions)
    assert len({box["aria-label"] for box in regions}) == len(regions)
    assert all(cell["scope"] in ("row", "col") for cell in outline.named("th"))
    assert len(outline.named("caption")) == len(outline.named("table")) == 2 + len(FIGURES)
    assert [cell["scope"] for cell in outline.named("th")].count("row") == 4 + 3 + 5 + 2 + 7 + 7


def test_anchors_lead_somewhere(html: str) -> None:
    outline = Outline(html)
    ids = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [link["href"].removeprefix("#") for link in outline.named("a")]
    assert links[:5] == ["main", "s-transductive", "s-width", "s-width-2", "s-made"]
    assert set(links) <= set(ids)


def test_numbers_stand_right_and_verdicts_have_their_tone(html: str) -> None:
    row = next(line for line in html.splitlines() if "<tr>" in line and "as high" in line)
    assert row == (
        '<tr><th scope="row" class="short">GCN</th><td class="number short">83.2 ± 0.4</td>'
        '<td class="number short">81.4 ± 0.4</td><td class="number short">+1.8</td>'
        '<td class="short"><span class="verdict good">as high or higher</span></td>'
        '<td class="short">float</td></tr>'
    )


def test_which_columns_are_numbers() -> None:
    for cells, is_number in (
        (("360.0K", "2.50e8", "–"), True),
        (("2.4x (2.3x)[^1]", "does not fit", "31.2x"), True),
        (("47 / 0.8", "< 0.001", "−3", "100.00 %"), True),
        (("not measured here", "not measured here", "81.2 ± 0.4"), True),
        (("distilled", "384 wide", "float"), False),
        (("not measured here",), False),
        (("3 layers of bits",), False),
        (("", "-"), False),
        ((Verdict("7 of 9", "good"),), False),
    ):
        table = Table("", ("a", "b"), tuple(("x", cell) for cell in cells))
        text = page(Document("t", "", (), (Section("s", "s", (table,)),)))
        assert ('<td class="number short">' in text) is is_number, cells


def test_footnotes_are_numbered_and_linked(html: str) -> None:
    """The second table has two: one of a column, one of two cells; a third number is no note."""
    outline = Outline(html)
    ids = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [link["href"][1:] for link in outline.named("a")]
    assert set(links) <= set(ids)
    assert links.count("table-2-note-1") == 1
    assert links.count("table-2-note-2") == 2
    assert {"table-2-ref-1", "table-2-ref-2"} <= set(links)
    assert "[^9]</th>" in html
    assert "Some &lt;graphs&gt;. <a" in html
    assert html.index("</table>", html.index("Table 2.")) < html.index("Some &lt;graphs&gt;.")


def test_paragraphs_code_and_listings(html: str) -> None:
    assert "<p>A lone ` stays.</p>" in html
    assert "<pre><code>bignn reproduce all</code></pre>" in html
    assert 'by <code class="short">bignn reproduce</code> and' in html
    assert "<pre>F · B\n  = K − 2·popcount(F ^ B) &lt;&gt;</pre>" in html


def test_the_numbers_of_figures() -> None:
    lines, dots = numbers_of(LINES), numbers_of(DOTS)
    assert lines is not None
    assert lines.columns == ("hidden units", "GCN", "GCN, paper", "_$x^2$ & <b>")
    assert lines.rows == (
        ("4", "70 ± 1", "69", ""),
        ("16", "78.5 ± 0.5", "78", ""),
        ("64", "", "79", "75 ± 2"),
        ("256", "80.1 ± 0.3", "79.5", ""),
        ("1,024", "80.3 ± 0.25", "79.6", ""),
    )
    assert dots is not None
    assert dots.rows[5] == ("reddit", "4.6", "6", "", "5.1")
    epochs = tuple(range(1000))
    curve = Figure("c", "", "lines", "x", "y", (Series("s", epochs, tuple(map(float, epochs))),))
    thinned = numbers_of(curve)
    assert thinned is not None
    assert thinned.rows[:2] == (("0", "0"), ("25", "25"))  # 40 of 1000
    assert len(thinned.rows) == 40


def test_listings_are_told_apart() -> None:
    sections = tuple(Section(name, name, (Listing("x"), Listing("y"))) for name in ("a", "b"))
    text = page(Document("t", "", (), sections))
    assert len(set(re.findall(r'aria-label="Listing[^"]*"', text))) == 4


def test_a_table_without_a_caption_has_its_sections_title() -> None:
    table = Table("", ("a",), (("x",),))
    text = page(Document("t", "", (), (Section("s", "Graphs & sizes", (table,)),)))
    assert "<caption><span><b>Table 1.</b> Graphs &amp; sizes</span></caption>" in text


def test_an_empty_document_is_a_page() -> None:
    outline = Outline(page(Document("Nothing", "", (), ())))
    assert outline.named("nav") == []


def test_a_page_is_written_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "folder" / "report.html"
    told = write_page.write(DOCUMENT, out)
    assert told == {
        "out": str(out),
        "bytes": out.stat().st_size,
        "sections": 4,
        "tables": len(TABLES),
        "figures": len(FIGURES),
    }
    json.dumps(told)
    assert out.read_text() == page(DOCUMENT)
    assert [file.name for file in out.parent.iterdir()] == ["report.html"]
    assert "drawing 4 figures" in capsys.readouterr().err
    assert "4 sections, 2 tables, 4 figures" in write_page.describe(told)


def test_half_a_character_does_not_stop_a_page(tmp_path: Path) -> None:
    table = Table("", ("a", "b"), (("\ud800 half", "1"),))
    write_page.write(Document("t", "", (), (Section("s", "s", (table,)),)), tmp_path / "r.html")
    assert "? half" in (tmp_path / "r.html").read_text()


def test_verdicts_are_words() -> None:
    verdict = ACCURACY.rows[0][4]
    assert verdict == "as high or higher"
    assert isinstance(verdict, Verdict)
    assert verdict.tone == "good"

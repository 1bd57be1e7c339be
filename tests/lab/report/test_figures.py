"""Figures: what is drawn, and that the same figure is the same bytes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from documents import BARS, FIGURES, HOSTILE, LINES, POINTS

from bignn.errors import InputError
from bignn.lab.report.document import Figure, Series
from bignn.lab.report.figures import inline, save

SVG = "{http://www.w3.org/2000/svg}"


def figure(*series: Series, kind: str = "lines", **options: bool) -> Figure:
    return Figure("some", "caption", kind, "x", "y", series, **options)  # type: ignore[arg-type]


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("drawn", FIGURES, ids=lambda drawn: drawn.name)
@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_a_file_is_the_same_each_time(drawn: Figure, suffix: str, tmp_path: Path) -> None:
    first, second = tmp_path / f"new/a{suffix}", tmp_path / f"b{suffix}"
    save(drawn, first)
    save(drawn, second)
    start = {".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}[suffix]
    assert first.read_bytes().startswith(start)
    assert first.read_bytes() == second.read_bytes()


def test_a_users_settings_change_nothing() -> None:
    import matplotlib as mpl

    before = inline(POINTS)
    with mpl.rc_context({"font.size": 30, "svg.fonttype": "path", "lines.linewidth": 9}):
        assert inline(POINTS) == before
        assert mpl.rcParams["font.size"] == 30  # nor do ours outlive the drawing


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'path' must be a file name ending in .*got '.*x\.gif'"):
        save(POINTS, tmp_path / "x.gif")


@pytest.mark.parametrize("drawn", FIGURES, ids=lambda drawn: drawn.name)
def test_colours_are_the_pages(drawn: Figure) -> None:
    svg = inline(drawn, "figure-7")
    assert not re.search(r"(fill|stroke)[:=\"\s]+#", svg)
    assert "var(--series-1)" in svg
    assert "currentColor" in svg
    for outside in ("<style", "<script", "font-family", "xlink", "<metadata"):
        assert outside not in svg
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert root.get("aria-label") == drawn.caption
    # Every id is this figure's own, and each reference finds one.
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids))
    assert all(name.startswith("figure-7-") for name in ids)
    used = set(re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", svg))
    assert used == set(ids)


def test_lines_have_their_names_ticks_and_verticals() -> None:
    found = texts(inline(LINES))
    for label in ("GCN", "GCN, paper", "_$x^2$ & <b>", "bound 81", "recommended 256"):
        assert label in found
    assert [text for text in found if text in ("4", "16", "64", "256", "1,024")] == [
        *("4", "16", "64", "256", "1,024")
    ]
    assert "empty" not in found
    assert {"hidden units", "test accuracy, %"} <= set(found)


def test_a_gap_interrupts_a_line() -> None:
    def pieces(*y: float | None) -> int:
        svg = inline(figure(Series("only", (1, 2, 3, 4, 5), y)))
        paths = ElementTree.fromstring(svg).iter(f"{SVG}path")
        (line,) = (
            path.attrib["d"]
            for path in paths
            if "stroke:var(--series-1);stroke-width:1.6" in path.get("style", "")
        )
        return line.count("M")

    assert pieces(1.0, 2.0, 3.0, 4.0, 5.0) == 1
    assert pieces(1.0, 2.0, None, 4.0, 5.0) == 2


def test_the_papers_series_has_the_colour_of_ours_but_dashed() -> None:
    both = (1, 2)
    drawn = inline(
        figure(
            Series("Bi-GCN, paper", both, (1.0, 2.0), is_papers=True),
            Series("GCN", both, (2.0, 3.0)),
            Series("Bi-GCN", both, (3.0, 4.0)),
        )
    )
    styles = [
        element.attrib["style"]
        for element in ElementTree.fromstring(drawn).iter(f"{SVG}path")
        if "stroke-width:1.6" in element.get("style", "") and "fill:none" in element.attrib["style"]
    ]
    dashed = {style for style in styles if "stroke-dasharray" in style}
    assert dashed
    assert all("var(--series-2)" in style and "stroke-opacity" in style for style in dashed)
    assert any("var(--series-1)" in style for style in styles)
    assert "var(--series-3)" not in drawn


def test_points_bear_the_names_of_ours_and_the_legend_tells_whose_they_are() -> None:
    found = texts(inline(POINTS))
    assert {"GCN", "Bi-GCN", "ours", "the paper's"} <= set(found)
    assert not {"GCN, paper", "Bi-GCN, paper"} & set(found)
    assert "10⁶" in found


def test_bars_bear_their_numbers_and_leave_gaps() -> None:
    found = texts(inline(BARS))
    for label in ("2.4", "0.8", "63", "Cora", "products", "PyG, edge_index"):
        assert label in found
    svg = ElementTree.fromstring(inline(BARS))
    bars = [
        path
        for path in svg.iter(f"{SVG}path")
        if path.get("clip-path") and path.get("style", "").startswith("fill:var(--series-")
    ]
    assert len(bars) == 4 * 7 - 2


@pytest.mark.parametrize("kind", ["lines", "points", "bars"])
@pytest.mark.parametrize("log_y", [False, True])
def test_odd_series(kind: str, log_y: bool) -> None:
    names: tuple[str, ...] | tuple[float, ...]
    names = ("a", "b") if kind == "bars" else (1.0, 2.0)
    one = names[:1]
    some = [
        figure(kind=kind, log_y=log_y),
        figure(Series("empty", (), ()), kind=kind, log_y=log_y),
        figure(Series("gaps", names, (None, None)), kind=kind, log_y=log_y),
        figure(Series("one", one, (3.0,), (0.5,)), kind=kind, log_y=log_y),
        figure(Series("same", names, (3.0, 3.0), (0.0, 0.0)), kind=kind, log_y=log_y),
        figure(Series("at 0", names, (0.0, 4.0), (1.0, 9.0)), kind=kind, log_y=log_y),
        figure(Series("日本語 \x07\ud800", names, (2.0, 4.0)), Series("b", one, (1.0,)), kind=kind),
    ]
    found = [texts(inline(drawn)) for drawn in some]
    assert ["no data" in words for words in found] == [True, True, True, *[False] * 4]


def test_many_series_are_all_told_apart() -> None:
    drawn = figure(*(Series(f"s{n}", (1, 2), (float(n), n + 1.0)) for n in range(12)))
    svg = inline(drawn)
    looks = {
        element.attrib["style"]
        for element in ElementTree.fromstring(svg).iter(f"{SVG}path")
        if "stroke-width:1.6" in element.get("style", "")
    }
    assert len(looks) == 12


def test_a_caption_is_an_attribute_and_no_more() -> None:
    assert HOSTILE not in inline(LINES)
    assert "onerror=&quot;alert(1)&quot;&gt;" in inline(LINES)


def test_without_matplotlib_one_line_says_so(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules.update({'matplotlib': None, 'matplotlib.style': None})\n"
        "from bignn.cli import main\n"
        f"sys.exit(main(['bench', 'gemm', '--plot', {str(tmp_path / 'x.png')!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1  # before anything is measured
    assert "needs matplotlib" in done.stderr
    assert "pip install '.[plot]'" in done.stderr

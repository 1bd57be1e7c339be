"""Figures: what is drawn, and that the same figure is the same bytes."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from xml.etree import ElementTree

import pytest
from documents import DOTS, FIGURES, HOSTILE, LINES, PANELS, POINTS

from bignn.errors import InputError
from bignn.lab.report import figures
from bignn.lab.report.document import Figure, Picture, Series
from bignn.lab.report.figures import inline, save

SVG = "{http://www.w3.org/2000/svg}"


def figure(*series: Series, kind: str = "lines", **options: bool) -> Figure:
    return Figure("some", "caption", kind, "x", "y", series, **options)  # type: ignore[arg-type]


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_file_is_the_same_each_time(tmp_path: Path) -> None:
    for drawn in FIGURES:
        for suffix, start in ((".svg", b"<svg "), (".png", b"\x89PNG"), (".pdf", b"%PDF")):
            first, second = tmp_path / f"new/a{suffix}", tmp_path / f"b{suffix}"
            save(drawn, first)
            save(drawn, second)
            assert first.read_bytes().startswith(start)
            assert first.read_bytes() == second.read_bytes()


def test_an_svg_file_follows_light_and_dark(tmp_path: Path) -> None:
    """Every colour is a variable that both themes define."""
    save(LINES, tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text()
    root = ElementTree.fromstring(text)
    style = root.findtext(f"{SVG}style") or ""
    light, _, dark = style.partition("@media (prefers-color-scheme: dark)")
    for name in set(re.findall(r"var\((--[\w-]+)\)", text)):
        assert f"{name}: #" in light
        assert f"{name}: #" in dark
    assert not re.search(r"(fill|stroke)[:=\"\s]+#", text)
    assert root.get("width", "").endswith("pt")


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
def test_colours_are_the_pages(drawn: Picture) -> None:
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


def test_dots_have_their_values_beside_them_and_leave_gaps() -> None:
    found = texts(inline(DOTS))
    for label in ("2.40", "0.80", "63.0", "Cora", "products", "PyG, edge_index"):
        assert label in found
    values = [text for text in found if re.fullmatch(r"\d+\.\d+", text)]
    assert len(values) == 4 * 7 - 2
    unmeasured = texts(inline(replace(DOTS, groups=("Cora", "somewhere"))))
    assert unmeasured.count("not measured") == 1
    assert unmeasured.index("Cora") < unmeasured.index("somewhere") < unmeasured.index("PubMed")


def test_letters_do_not_run_into_each_other() -> None:
    """Many groups with long names, and series whose values are nearly or exactly equal."""
    names = tuple(f"a graph with a very long name, number {number}" for number in range(30))
    near = [tuple(50 + n / 100 + k / 1000 for n in range(30)) for k in range(3)]
    difference = tuple(-y if n % 2 else y for n, y in enumerate(near[0]))
    some = figure(
        *(Series(f"series {k}", names, values, near[0]) for k, values in enumerate(near)),
        Series("difference", names, difference),
        kind="dots",
    )
    for drawn in (
        POINTS,
        some,
        replace(some, baseline=0.0),
        replace(DOTS, log_y=False),
        DOTS,
        PANELS,
    ):
        assert overlaps(drawn) == []


def overlaps(drawn: Picture) -> list[tuple[str, str]]:
    """Return the pairs of texts of a drawing that hide a part of each other."""
    from matplotlib.text import Text

    shown = set(filter(None, texts(inline(drawn))))
    with figures._drawn(drawn) as canvas:
        canvas.draw_without_rendering()
        boxes = [
            (text.get_text(), text.get_window_extent())
            for text in canvas.findobj(Text)
            if text.get_text().partition("\n")[0] in shown  # ticks outside the frame are not
        ]
    return [
        (one, other)
        for (one, a), (other, b) in combinations(boxes, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]


def test_odd_series() -> None:
    for kind, log_y in product(("lines", "points", "dots"), (False, True)):
        names: tuple[str, ...] | tuple[float, ...]
        names = ("a", "b") if kind == "dots" else (1.0, 2.0)
        one = names[:1]
        some = [
            figure(kind=kind, log_y=log_y),
            figure(Series("empty", (), ()), kind=kind, log_y=log_y),
            figure(Series("gaps", names, (None, None)), kind=kind, log_y=log_y),
            figure(Series("one", one, (3.0,), (0.5,)), kind=kind, log_y=log_y),
            figure(Series("same", names, (3.0, 3.0), (0.0, 0.0)), kind=kind, log_y=log_y),
            figure(Series("at 0", names, (0.0, 4.0), (1.0, 9.0)), kind=kind, log_y=log_y),
            figure(
                Series("日本語 \x07\ud800", names, (2.0, 4.0)), Series("b", one, (1.0,)), kind=kind
            ),
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


@pytest.mark.parametrize("package", ["matplotlib", "scipy", "jinja2"])
def test_without_the_extra_lab_one_line_says_so(package: str, tmp_path: Path) -> None:
    results = Path(__file__).parents[3] / "docs" / "results"
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from bignn.cli import main\n"
        f"out, results = {str(tmp_path)!r}, {str(results)!r}\n"
        "sys.exit(main(['bench', 'gemm', '--plot', out + '/x.png'])\n"
        "         + main(['report', results, '-o', out + '/x.html'])\n"
        "         + main(['reproduce', 'cora-cost', '--out', out + '/new']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    lines = done.stderr.splitlines()  # before anything is measured or trained
    assert [line.split(":")[0] for line in lines] == [
        *("bignn bench", "bignn report", "bignn reproduce")
    ]
    for line in lines:
        assert f"needs {package}, which is not installed" in line
        assert "pip install '.[lab]'" in line
    assert list(tmp_path.iterdir()) == []

"""The written pages agree with the code."""

import re

import api_page
import pytest
from cli_page import cli_page
from write_docs import DOCS, PAGES

import bignn
from bignn.cli.run_command import make_parser

README = DOCS.parent / "README.md"


def test_pages_are_those_of_the_code() -> None:
    old = [name for name, write in PAGES.items() if (DOCS / name).read_text() != write()]
    assert not old, f"{old} are older than the code: make docs"


def test_every_public_name_has_a_line() -> None:
    page = api_page.api_page()
    rooms = {"bits", "capacity", "cost", "loaders", "nn"}
    for name in set(bignn.__all__) - rooms:
        assert len(re.findall(rf"^- `bignn\.{name}\b", page, re.MULTILINE)) == 1, name
    for room in rooms:
        assert f"- `bignn.{room}." in page
    assert "- `bignn.recommend_width(model, graph, bins=200, *, estimate='robust')`: " in page
    for returned in ("FitResult", "ModelSizes", "Plan", "LayerPlan"):
        assert re.search(rf"^- `[\w.]*{returned}\(", page, re.MULTILINE), returned
    assert "returned by `bignn.binarize_`" in page


def test_a_documented_name_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(api_page.GROUPS, "Models", ("bignn.nn.GIN",))
    with pytest.raises(AssertionError, match=r"documents 'bignn\.nn\.GIN', which does not exist"):
        api_page.api_page()
    monkeypatch.setitem(api_page.GROUPS, "Models", ())
    with pytest.raises(AssertionError, match=r"lacks \['bignn\.binarize_', .*'bignn\.nn\.GAT'"):
        api_page.api_page()


def test_every_option_of_every_command_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    sections = dict(re.findall(r"^## bignn (\w+)\n(.*?)(?=^## |\Z)", cli_page(), re.M | re.S))
    assert {"compare", "train", "demo", "doctor"} <= set(sections)
    for command, section in sections.items():
        with pytest.raises(SystemExit):
            make_parser().parse_args([command, "--help"])
        shown = re.findall(r"^  (-.*?)(?:  |$)", capsys.readouterr().out, re.MULTILINE)
        options = set(re.findall(r"--[a-z][a-z0-9-]*", " ".join(shown))) - {"--help", "--json"}
        assert options == set(re.findall(r"`(--[a-z][a-z0-9-]*)", section)), command


def test_a_first_sentence_ends_where_it_should() -> None:
    first = api_page._first_sentence
    assert first("f", "One (Sec. 4.2), `x`. Two.") == "One (Sec. 4.2), `x`."
    assert first("f", "By :func:`bignn.f` and\n``g``\n\nMore.") == "By `bignn.f` and `g`."


def test_links_lead_somewhere() -> None:
    for page in (README, *DOCS.glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_files_that_pages_name_exist() -> None:
    for page in (README, *DOCS.glob("*.md")):
        for name in re.findall(r"`([a-z_]+/[\w/]+\.(?:py|h|cpp))`", page.read_text()):
            places = (DOCS.parent, DOCS.parent / "src" / "bignn")
            assert any((place / name).exists() for place in places), f"{page.name} names {name}"


def test_anchors_exist() -> None:
    """Links to a heading of a page, as GitHub names them."""
    for page in (README, *DOCS.glob("*.md")):
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            aim = (page.parent / target) if target else page
            headings = re.findall(r"^#+ (.*)$", aim.read_text(), re.MULTILINE)
            assert anchor in {_anchor(heading) for heading in headings}, f"{page.name}: {anchor}"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_citation_is_of_this_version() -> None:
    citation = (DOCS.parent / "CITATION.cff").read_text()
    assert f"\nversion: {bignn.__version__}\n" in citation
    title = re.findall(r"^  title: (.*)$", citation, re.MULTILINE)
    assert title[0] in " ".join(README.read_text().split("## Cite")[1].split())

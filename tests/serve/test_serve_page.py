"""The page of a running service in Chromium: it loads alone, asks, fits phones and themes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import LOWEST_CONTRAST, NAMES, Browser, complaints, find, requests
from serving import Served, serve, write_files

from bignn import PackedModel
from bignn.lab.report.palette import DARK, LIGHT
from bignn.serve import app

pytestmark = pytest.mark.skipif(
    find() is None, reason=f"none of {', '.join(NAMES)} is installed (make browser)"
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    model, graph = write_files(tmp_path_factory.mktemp("served"))
    with serve(model, graph) as served:
        yield served


def wait_for(browser: Browser, expression: str) -> Any:
    end = time.monotonic() + 30
    while not (value := browser.evaluate(expression)):
        assert time.monotonic() < end, expression
        time.sleep(0.05)
    return value


def open_page(browser: Browser, served: Served, width: int = 1280, scheme: str = "light") -> None:
    browser.open(served.report["url"] + "/", width, scheme=scheme)
    wait_for(browser, "document.getElementById('state').textContent === 'ok'")


def ask(browser: Browser, nodes: str, output: str = "classes") -> None:
    browser.evaluate(
        f"""document.querySelector("input").value = "{nodes}";
        document.querySelector("select").value = "{output}";
        document.querySelector("button").click()"""
    )


def test_it_loads_alone_and_shows_the_state(browser: Browser, served: Served) -> None:
    open_page(browser, served)
    assert complaints(browser) == []
    url = served.report["url"]
    allowed = (f"{url}/", f"{url}/health", "data:")
    assert all(some.startswith(allowed) for some in requests(browser)), requests(browser)
    assert wait_for(browser, "document.getElementById('num_nodes').textContent") == "60"
    assert browser.evaluate("document.getElementById('num_classes').textContent") == "5"
    served.ask("/predict?nodes=1")
    served.ask("/update", {"add_edges": [[1], [2]]})
    # It looks again by itself.
    wait_for(browser, "document.getElementById('updates').textContent !== '0'")
    shown = wait_for(
        browser, "[...document.querySelectorAll('#latency tbody th')].map(th => th.textContent)"
    )
    assert {"predict", "update"} <= set(shown)


def test_a_node_is_asked_for(browser: Browser, served: Served) -> None:
    open_page(browser, served)
    rows = """[...document.querySelectorAll("#answers tbody tr")].map(
      row => [...row.cells].map(cell => cell.textContent))"""
    ask(browser, "3, 9")
    found = wait_for(browser, f"!document.getElementById('answers').hidden && {rows}")
    answers = served.ask("/predict?nodes=3,9")[1]["predictions"]
    assert found == [[str(row["node"]), str(row["class"])] for row in answers]
    ask(browser, "3", "probabilities")
    found = wait_for(browser, f"({rows}).length === 1 && {rows}")
    (answer,) = served.ask("/predict?nodes=3&output=probabilities")[1]["predictions"]
    assert found[0][2].startswith(f"{answer['class']}: {max(answer['probabilities']):.3f}, ")
    ask(browser, "99")
    line = wait_for(browser, "document.getElementById('error').textContent")
    assert line == "'nodes' must be node ids in 0..59, got 99"
    assert browser.evaluate("document.getElementById('answers').hidden")


def test_a_model_of_labels_is_asked_for_labels(browser: Browser, tmp_path: Path) -> None:
    name, graph = write_files(tmp_path)
    model = PackedModel.open(name)
    model.output = "labels"
    model.save(name)
    with serve(name, graph) as served:
        open_page(browser, served)
        asked = "document.querySelector('select').value === 'labels'"
        assert wait_for(browser, asked)
        assert browser.evaluate("document.getElementById('outputs').textContent") == "labels"
        ask(browser, "3", "labels")
        cells = "[...document.querySelectorAll('#answers td')].map(cell => cell.textContent)"
        found = wait_for(browser, f"!document.getElementById('answers').hidden && {cells}")
        (row,) = served.ask("/predict?nodes=3")[1]["predictions"]
        places = [str(place) for place, is_true in enumerate(row["labels"]) if is_true]
        assert found == [", ".join(places) or "none"]


@pytest.mark.parametrize("width", [320, 400, 1280])
def test_nothing_overflows(browser: Browser, served: Served, width: int) -> None:
    open_page(browser, served, width)
    ask(browser, ",".join(map(str, range(20))), "probabilities")
    wait_for(browser, "!document.getElementById('answers').hidden")
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_the_reports_colours(
    browser: Browser, served: Served, scheme: str
) -> None:
    open_page(browser, served, scheme=scheme)
    ask(browser, "99")  # shows the line about an error as well
    wait_for(browser, "!document.getElementById('error').hidden")
    contrast, text = browser.evaluate(LOWEST_CONTRAST)
    assert contrast >= 4.5, text
    theme = DARK if scheme == "dark" else LIGHT
    found = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert [int(part) for part in re.findall(r"\d+", found)] == [
        int(theme.page[at : at + 2], 16) for at in (1, 3, 5)
    ]


def test_what_would_load_or_run_is_stopped(
    browser: Browser, served: Served, tmp_path: Path
) -> None:
    """The policy of the response lets the page's own script run, and no other."""
    html, policy = app._page()
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]
    changed = tmp_path / "changed.html"
    meta = f'<meta http-equiv="content-security-policy" content="{policy}">'
    foreign = '<script>document.title = "run"</script><img src="http://127.0.0.1:9/x.png"></main>'
    changed.write_text(html.replace("<head>", f"<head>{meta}").replace("</main>", foreign))
    browser.open(changed, 1280)
    assert browser.evaluate("document.title") == "bignn serve"
    told = str(complaints(browser))
    assert "script-src" in told
    assert "img-src" in told


def test_what_a_screen_reader_is_told(browser: Browser, served: Served) -> None:
    open_page(browser, served)
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    told = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in nodes
        if not node["ignored"]
    ]
    assert ("textbox", "Nodes, such as 0,5,9") in told
    assert ("combobox", "Answer with") in told
    assert ("button", "Ask") in told
    assert any(role == "status" for role, _ in told)

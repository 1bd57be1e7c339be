"""Many who ask at once: batches, updates beside readers, and what waits for what."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from serving import NUM_FEATURES, some_graph, some_model, write_files

from bignn import FileError, InputError, LiveGraph
from bignn.runtime.live.new_answers import NewQuestion
from bignn.runtime.live.stored import journal_path
from bignn.serve import served_graph
from bignn.serve.batcher import Batcher
from bignn.serve.limits import Limits, RequestError
from bignn.serve.metrics import Timings
from bignn.serve.served_graph import MadeUpdate, ServedLiveGraph, open_served
from bignn.serve.service import Service


class HeldGraph(ServedLiveGraph):
    """A live graph that computes when it is told to, and counts."""

    def __init__(self, live: LiveGraph) -> None:
        super().__init__(live, None)
        self.go = threading.Event()
        self.calls: list[int] = []

    def logits(self, nodes: NDArray[np.int64]) -> NDArray[np.float32]:
        self.go.wait(30)
        self.calls.append(len(nodes))
        return super().logits(nodes)

    def logits_of_new(self, questions: Sequence[NewQuestion]) -> Any:
        self.go.wait(30)
        self.calls.append(len(questions))
        return super().logits_of_new(questions)

    def update(self, changes: Mapping[str, Any]) -> MadeUpdate:
        made = super().update(changes)
        self.go.wait(30)
        return made


def live_graph() -> LiveGraph:
    return some_model().live(some_graph())


def test_questions_that_wait_share_a_call() -> None:
    async def ask() -> None:
        live = live_graph()
        graph = HeldGraph(live)
        service = Service(graph, Limits())
        x = np.ones((1, NUM_FEATURES))
        asked, asked_new = [], []
        for node in range(9):
            question = NewQuestion(x, [[node], [-1]])
            asked.append(asyncio.create_task(service.predict([node], "probabilities")))
            asked_new.append(asyncio.create_task(service.predict_new(question, "logits")))
            if node == 0:
                await asyncio.sleep(0.05)
        bad = asyncio.create_task(service.predict_new(NewQuestion(x, [[99], [-1]])))
        await asyncio.sleep(0.05)
        graph.go.set()
        found = [await one for one in asked]
        with pytest.raises(InputError, match="'edges' must be node ids"):
            await bad
        new = [await one for one in asked_new]
        for node, answer in enumerate(found):
            expected = live.predict([node], output="probabilities")
            np.testing.assert_array_equal(answer.values, expected)
            assert answer.classes == live.predict([node])
        for node, answer in enumerate(new):
            expected = live.predict_new(x, [[node], [-1]], output="logits")
            np.testing.assert_array_equal(answer.values, expected)
        # The first question of each kind finds the thread free; all others wait for it.
        assert sorted(graph.calls) == sorted([1, 8, 1, 9])
        await service.close()

    asyncio.run(ask())


def test_classes_are_read_while_an_update_runs_and_whole_after_it() -> None:
    async def ask() -> None:
        live = live_graph()
        before = live.predict()
        graph = HeldGraph(live)
        service = Service(graph, Limits())
        nodes = np.arange(60)
        x = np.random.default_rng(0).standard_normal((60, NUM_FEATURES))
        update = asyncio.create_task(service.update({"nodes": nodes, "x": x}))
        while (live.predict() == before).all():  # until the thread has made it
            await asyncio.sleep(0.01)
        during = await service.predict(nodes)
        np.testing.assert_array_equal(during.classes, before)
        assert not update.done()
        graph.go.set()
        made = await update
        after = await service.predict(nodes)
        np.testing.assert_array_equal(after.classes, live.predict())
        np.testing.assert_array_equal(made.nodes, np.flatnonzero(live.predict() != before))
        assert len(made.nodes)
        await service.close()

    asyncio.run(ask())


def test_updates_are_made_in_order_whoever_hangs_up() -> None:
    async def ask() -> None:
        live = live_graph()
        graph = HeldGraph(live)
        service = Service(graph, Limits(waiting=4))
        row = np.ones((1, NUM_FEATURES))
        asked = [asyncio.create_task(service.update({"add_nodes": row})) for _ in range(4)]
        await asyncio.sleep(0.05)
        with pytest.raises(RequestError, match="4 updates are waiting already") as refused:
            await service.update({"add_nodes": row})
        assert refused.value.status == 503
        asked[1].cancel()
        await asyncio.sleep(0)
        graph.go.set()
        done = [await one for one in (asked[0], asked[2], asked[3])]
        assert [made.num_nodes for made in done] == [61, 63, 64]
        assert service.num_nodes == live.num_nodes == 64
        every = await service.predict(np.arange(64))
        np.testing.assert_array_equal(every.classes, live.predict())
        await service.close()

    asyncio.run(ask())


def test_closing_waits_for_updates(tmp_path: Path) -> None:
    async def ask() -> None:
        live = live_graph()
        live.save(tmp_path / "g.biglive")
        graph = ServedLiveGraph(live, tmp_path / "g.biglive")
        service = Service(graph, Limits())
        asked = [
            asyncio.create_task(service.update({"remove_nodes": np.array([node])}))
            for node in range(5)
        ]
        await asyncio.sleep(0)
        await service.close()
        assert all(one.done() for one in asked)

    asyncio.run(ask())
    opened = LiveGraph.open(tmp_path / "g.biglive")
    assert opened.removed.tolist() == [0, 1, 2, 3, 4]


def test_a_batcher_refuses_more_than_it_may_hold() -> None:
    async def ask() -> None:
        go = threading.Event()

        def answer(questions: Sequence[int]) -> list[int | Exception]:
            go.wait(30)
            return [ValueError("odd") if number % 2 else number for number in questions]

        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(answer, executor, 3)
            first = asyncio.create_task(batcher.ask(0))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            others = [asyncio.create_task(batcher.ask(number)) for number in (1, 2, 4)]
            await asyncio.sleep(0)
            with pytest.raises(RequestError, match="3 requests are waiting already"):
                await batcher.ask(6)
            others[2].cancel()
            go.set()
            assert await first == 0
            with pytest.raises(ValueError, match="odd"):
                await others[0]
            assert await others[1] == 2
            assert await batcher.ask(8) == 8
            assert (batcher.calls, batcher.questions) == (3, 5)

    asyncio.run(ask())


def test_percentiles_and_bins() -> None:
    timings = Timings()
    assert timings.percentiles() == {}
    for milliseconds in range(1, 101):
        timings.add(milliseconds / 1e3)
    assert timings.percentiles() == {"p50_ms": 50.5, "p99_ms": 99.01}
    assert timings.counts == [0, 1, 1, 3, 5, 15, 25, 50, 0, 0, 0, 0, 0, 0]


# --- Files --------------------------------------------------------------------------------------


def test_a_long_journal_is_written_into_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_graph, "_LEAST_JOURNAL", 2000)
    model, graph = write_files(tmp_path)
    path = tmp_path / "live.biglive"
    served = open_served(model, graph, str(path))
    sizes = []
    for node in range(40):
        served.update({"remove_nodes": np.array([node])})
        sizes.append(journal_path(path).stat().st_size)
    assert (np.diff(sizes) < 0).any()
    file_bytes = path.stat().st_size
    assert max(sizes) < file_bytes + 2000
    served.close()
    assert LiveGraph.open(path).removed.tolist() == list(range(40))


def test_what_can_be_served(tmp_path: Path) -> None:
    model, graph = write_files(tmp_path)
    path = str(tmp_path / "live.biglive")
    assert open_served(model, graph, None).path is None
    made = open_served(model, graph, path)
    made.update({"remove_nodes": np.array([3])})
    made.close()
    # The file is opened from then on, whatever the graph is, or stands alone, or for the graph.
    for names in ((model, "no such graph", path), (path, None, None), (model, path, None)):
        opened = open_served(*names)
        assert opened.classes()[3] == -1
        assert str(opened.path) == path
        opened.close()
    for names, line in (
        ((path, graph, None), "has a model and a graph in it"),
        ((model, None, None), "'graph' must be given"),
        ((model, path, path), "'live' must be left out"),
        ((model, graph, str(tmp_path / "live.bigraph")), r"'live' must be a file name ending in"),
        ((str(tmp_path / "none.bignn"), graph, None), "does not exist"),
    ):
        with pytest.raises(InputError, match=line):
            open_served(*names)
    other = some_model()
    other.about["seed"] = 5
    other.save(tmp_path / "other.bignn")
    with pytest.raises(FileError, match="was made with another model"):
        open_served(str(tmp_path / "other.bignn"), graph, path)


def test_a_model_without_live_graphs_is_served_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, graph = write_files(tmp_path)

    def refuse(*_: Any) -> None:
        raise InputError("a live graph needs bits")

    monkeypatch.setattr("bignn.runtime.live.live_graph.check_model", refuse)
    served = open_served(model, graph, None)
    np.testing.assert_array_equal(served.classes(), some_model().predict(some_graph()))
    with pytest.raises(InputError, match="cannot be changed: a live graph needs bits"):
        served.update({})
    monkeypatch.setattr("bignn.serve.served_graph.check_model", refuse)
    with pytest.raises(InputError, match=r"needs bits; leave --live out to serve a graph that st"):
        open_served(model, graph, str(tmp_path / "g.biglive"))

"""New nodes of a live graph: answers as of the enlarged graph, each question by itself."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from conftest import make_graph
from numpy.typing import NDArray
from packed_family import SIZES, make_chain, make_floats

from bignn import Graph, InputError, LiveGraph, PackedModel, pack_graph
from bignn.runtime.live.fair_lock import FairLock
from bignn.runtime.live.new_answers import NewQuestion, predict_new

KINDS = {
    "gcn": ["gcn", "gcn", "gcn"],
    "sage": ["sage", "sage", "sage"],
    "gat": ["gat", "gat"],
    "others": ["gcn_improved", "gcn_source"],
    "one layer": ["gcn"],
}


def changed_live(model: PackedModel, *, weighted: bool, order: Any = None) -> LiveGraph:
    """A live graph after an update of every kind."""
    rng = np.random.default_rng(1)
    graph = make_graph(150, SIZES[0], 3)
    if weighted:
        of_edges = rng.choice([0.5, 1.0, 2.0], graph.num_edges).astype(np.float32)
        graph = Graph(graph.x, graph.edge_index, of_edges)
    live = model.live(pack_graph(graph, like=model, order=order))
    gone = graph.edge_index[:, 7:9]
    live.update(
        nodes=[5],
        x=rng.standard_normal((1, SIZES[0])),
        add_nodes=rng.standard_normal((2, SIZES[0])),
        remove_edges=gone,
        add_edges=[[150, 151, 3, 20], [3, 3, 150, 151]],
        remove_nodes=[9],
    )
    return live


def questions_about(live: LiveGraph, count: int, *, weighted: bool) -> list[NewQuestion]:
    rng = np.random.default_rng(2)
    others = np.setdiff1d(np.arange(live.num_nodes), live.removed)
    made = []
    for number in range(count):
        x = rng.standard_normal((3, SIZES[0])).astype(np.float32)
        into, out = rng.choice(others, (2, 5)), rng.integers(-3, 0, (2, 5))
        among = np.array([[-1, -2, -3, -3], [-2, -2, -1, -3]])
        edges = np.concatenate([[into[0], out[0]], [out[1], into[1]], among], axis=1)
        if number == 1:  # nothing reads the new nodes
            edges = edges[:, :5]
        weights = rng.choice([0.25, 1.0], edges.shape[1]).astype(np.float32) if weighted else None
        made.append(NewQuestion(x, edges, weights))
    return [*made, NewQuestion(np.ones((1, SIZES[0])), np.empty((2, 0), dtype=np.int64))]


def fresh(live: LiveGraph, question: NewQuestion) -> NDArray[Any]:
    """The answer of the whole graph, packed."""
    edges = np.asarray(question.edges)
    numbered = np.where(edges < 0, live.num_nodes - 1 - edges, edges)
    return live.model.predict_new(
        live.packed_graph(),
        question.x,
        numbered,
        edge_weight=question.edge_weight,
        output="logits",
    )


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize(("weighted", "order"), [(False, None), (True, None), (False, "locality")])
def test_answers_are_those_of_the_whole_graph(kinds: str, weighted: bool, order: Any) -> None:
    live = changed_live(make_chain(KINDS[kinds]), weighted=weighted, order=order)
    before = live.predict(output="logits")
    questions = questions_about(live, 4, weighted=weighted)
    together = predict_new(live, questions, "logits")
    for question, answer in zip(questions, together, strict=True):
        expected = fresh(live, question)
        assert isinstance(answer, np.ndarray)
        np.testing.assert_array_equal(answer, expected)
        alone = live.predict_new(
            question.x, question.edges, edge_weight=question.edge_weight, output="logits"
        )
        np.testing.assert_array_equal(alone, expected)
        classes = live.predict_new(question.x, question.edges, edge_weight=question.edge_weight)
        np.testing.assert_array_equal(classes, expected.argmax(axis=1))
    np.testing.assert_array_equal(live.predict(output="logits"), before)


def test_new_nodes_are_numbered_from_the_end_too() -> None:
    live = changed_live(make_chain(KINDS["gcn"]), weighted=False)
    x = np.ones((2, SIZES[0]), dtype=np.float32)
    edges = np.array([[4, -1, -2], [-1, 4, -1]])
    numbered = np.where(edges < 0, live.num_nodes - 1 - edges, edges)
    np.testing.assert_array_equal(
        live.predict_new(x, edges, output="logits"), live.predict_new(x, numbered, output="logits")
    )


@pytest.mark.parametrize(
    ("x", "edges", "line"),
    [
        (1, [[4], [-2]], "'edges' must be node ids from 0 on, and -1 for the new node, got -2"),
        (1, [[4], [5]], "'edges' must be edges with a new node"),
        (1, [[9], [-1]], "'edges' must be nodes that were not removed, got node 9"),
        (1, [[-1], [9]], "'edges' must be nodes that were not removed, got node 9"),
        (np.nan, [[4], [-1]], "'x' must be finite"),
        (1, [[4, 5], [-1]], "'edges' must be an array"),
    ],
)
def test_a_bad_question_has_one_line_and_spoils_no_other(x: float, edges: Any, line: str) -> None:
    live = changed_live(make_chain(KINDS["gcn"]), weighted=False)
    bad = NewQuestion(x * np.ones((1, SIZES[0])), edges)
    (good,) = questions_about(live, 1, weighted=False)[:1]
    with pytest.raises(InputError, match=line):
        live.predict_new(*bad[:2])
    refused, answer = predict_new(live, [bad, good], "logits")
    assert isinstance(refused, InputError)
    assert isinstance(answer, np.ndarray)
    np.testing.assert_array_equal(answer, fresh(live, good))


def test_numbers_that_are_not_finite_are_refused_by_models_of_floats() -> None:
    model = make_floats("gat")
    x = np.full((1, SIZES[0]), np.inf, dtype=np.float32)
    with pytest.raises(InputError, match="'x' must be finite"):
        model.predict_new(make_graph(40, SIZES[0]), x, [[1], [40]])


def test_answers_while_the_graph_changes_are_of_one_state() -> None:
    """The new node reads one whose features and whose neighbours change in one update."""
    model = make_chain(KINDS["gcn"])
    rng = np.random.default_rng(0)
    live = model.live(make_graph(400, SIZES[0], 1))
    x = rng.standard_normal((2, 1, SIZES[0])).astype(np.float32)
    edges = np.stack([rng.choice(400, (2, 30), replace=False), np.full((2, 30), 10)], axis=1)
    live.update(add_edges=edges[0])
    question = NewQuestion(np.ones((1, SIZES[0])), [[10, -1], [-1, 10]])

    def turn(number: int) -> None:
        one, other = number % 2, 1 - number % 2
        live.update(nodes=[10], x=x[one], remove_edges=edges[other], add_edges=edges[one])

    known = []
    for number in (1, 2):
        turn(number)
        known.append(fresh(live, question))
    assert not np.array_equal(known[0], known[1])
    stop = threading.Event()

    def write() -> None:
        number = 3
        while not stop.is_set():
            turn(number)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(100):
            answer = live.predict_new(question.x, question.edges, output="logits")
            assert any(np.array_equal(answer, some) for some in known)
    finally:
        stop.set()
        writer.join()


def test_a_lock_that_is_given_back_and_taken_again_lets_others_in() -> None:
    lock, stop = FairLock(), threading.Event()
    turns = 0

    def keep_taking() -> None:
        nonlocal turns
        while not stop.is_set():
            with lock, lock:  # again, by the thread that has it
                turns += 1
                time.sleep(0.001)

    taker = threading.Thread(target=keep_taking)
    taker.start()
    try:
        waited = []
        for _ in range(31):
            while lock._depth == 0:  # until the other thread has it
                time.sleep(0)
            before = turns
            with lock:
                waited.append(turns - before)
        assert sorted(waited)[15] == 0  # more where this thread did not run for a while
    finally:
        stop.set()
        taker.join()

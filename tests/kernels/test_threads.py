"""Any number of threads gives the same bytes. Without torch: `make sanitize` runs this file too."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import make_graph, make_packed_model
from numpy.typing import NDArray

import bignn
from bignn import InputError, PackedGraph, PackedModel, bits, pack_graph
from bignn.kernels.layer import DenseBits, SparseBits

# Enough rows for several pieces of work each, however many threads there are.
NODES = 1000


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = bignn.get_num_threads()
    yield
    bignn.set_num_threads(before)


@pytest.fixture(scope="module")
def model() -> PackedModel:
    return make_packed_model([300, 40, 7])


@pytest.fixture(scope="module", params=["dense bits", "sparse bits"])
def graph(request: pytest.FixtureRequest, model: PackedModel) -> PackedGraph:
    like_words = request.param == "sparse bits"
    packed = pack_graph(make_graph(NODES, 300, like_words=like_words), like=model)
    assert isinstance(packed.features, SparseBits) == like_words
    return packed


def run(code: str, folder: Path | None = None, **environment: str) -> str:
    """What a Python process of its own prints; a hang is a failure, and ends with its children."""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, errors
    return output.strip()


@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_the_number_of_threads_does_not_change_a_byte(
    model: PackedModel, graph: PackedGraph, instruction_set: str, count: int
) -> None:
    expected = model.predict(graph, output="logits", backend="reference")
    bignn.set_num_threads(count)
    assert bignn.get_num_threads() == count
    plans = ["TT", "TG", "GT", "GG"]
    if isinstance(graph.features, SparseBits):
        plans += ["ST", "SG"]
    for plan in plans:
        for _ in range(3):
            got = model.predict(graph, output="logits", plan=plan, backend=instruction_set)
            assert got.tobytes() == expected.tobytes()
    classes = model.predict(graph, backend=instruction_set)
    assert np.array_equal(classes, expected.argmax(axis=1))
    blocks = [some for _, some in model.stream(graph, output="logits", block=300)]
    assert np.concatenate(blocks).tobytes() == expected.tobytes()


def overflowing() -> tuple[PackedModel, PackedGraph]:
    """A model and a graph of which one value does not fit a byte."""
    wide = make_packed_model([600, 40, 7])
    wide.arrays["layers.0.words"][:] = bits.pack(np.ones(600))
    x = np.ones((NODES, 600))
    x[-1] = -1  # in the last piece of work, and not among the rows that are looked at beforehand
    some = pack_graph(make_graph(NODES, 600), like=wide)
    some = replace(some, features=DenseBits(bits.pack(x)))
    wide = PackedModel(wide.operations, wide.arrays, 600)
    return wide, some


def test_records_that_overflow_on_many_threads(instruction_set: str) -> None:
    """Whichever thread meets the value that does not fit, the record is widened."""
    wide, some = overflowing()
    expected = wide.predict(some, output="logits", backend="reference")
    bignn.set_num_threads(4)
    got = wide.predict(some, output="logits", plan="T", backend=instruction_set)
    assert got.tobytes() == expected.tobytes()
    assert wide.network.layers[0].native.bytes_per_column == 2


def test_records_that_overflow_in_many_calls_at_once() -> None:
    expected = None
    for _ in range(5):
        wide, some = overflowing()
        if expected is None:
            expected = wide.predict(some, output="logits", backend="reference").tobytes()
        start = threading.Barrier(8)
        results: list[bytes] = []

        def work(
            wide: PackedModel = wide,
            some: PackedGraph = some,
            start: threading.Barrier = start,
            results: list[bytes] = results,
        ) -> None:
            start.wait()
            results.append(wide.predict(some, output="logits", plan="T").tobytes())

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [expected] * 8
        assert wide.network.layers[0].native.bytes_per_column == 2


def test_predicting_from_many_threads_at_once(model: PackedModel, graph: PackedGraph) -> None:
    bignn.set_num_threads(2)
    nodes = np.random.default_rng(0).permutation(NODES)[:99]
    expected = model.predict(graph, output="logits", backend="reference")
    start = threading.Barrier(8)
    wrong: list[str] = []
    done: list[int] = []

    def compare(what: str, got: NDArray[Any], wanted: NDArray[Any]) -> None:
        if got.tobytes() != wanted.tobytes():
            wrong.append(what)

    def work(number: int) -> None:
        try:
            start.wait()
            for repeat in range(10):
                plan = ["T", "G", None][(number + repeat) % 3]
                got = model.predict(graph, output="logits", plan=plan)
                compare(f"logits {plan}", got, expected)
                compare("classes", model.predict(graph), expected.argmax(axis=1))
                got = model.predict(graph, nodes, output="logits")
                compare("nodes", got, expected[nodes])
            done.append(number)
        except BaseException as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sorted(done) == list(range(8))


def test_changing_the_number_while_others_predict(model: PackedModel, graph: PackedGraph) -> None:
    expected = model.predict(graph, output="logits", backend="reference").tobytes()
    stop = threading.Event()
    results: list[bool] = []

    def work() -> None:
        while not stop.is_set():
            results.append(model.predict(graph, output="logits").tobytes() == expected)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for repeat in range(30):
        bignn.set_num_threads(1 + repeat % 4)
        results.append(model.predict(graph, output="logits").tobytes() == expected)
    stop.set()
    for thread in threads:
        thread.join()
    assert all(results)
    assert len(results) >= 30


FORK = """
import os, sys, warnings
warnings.simplefilter("ignore")  # Python's, about forking with threads: the point of this test
import bignn
bignn.set_num_threads(2)
model, graph = bignn.open("model.bignn"), bignn.open("graph.bigraph")
expected = model.predict(graph, output="logits").tobytes()

def same():
    return all(model.predict(graph, output="logits").tobytes() == expected for _ in range(5))

child = os.fork()
if child == 0:
    try:
        works = same()
        bignn.set_num_threads(3)
        works = works and same()
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(0 if same() else 9)
        status = os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1])
        os._exit(status if works else 8)
    finally:
        os._exit(7)
works = same()
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(status, works and same())
"""


def test_predicting_after_a_fork(model: PackedModel, graph: PackedGraph, tmp_path: Path) -> None:
    model.save(tmp_path / "model.bignn")
    graph.save(tmp_path / "graph.bigraph")
    assert run(FORK, tmp_path) == "0 True"


def test_what_is_no_number_of_threads_is_refused() -> None:
    bignn.set_num_threads(3)
    wrong: list[Any] = [0, -1, 1025, True, "2", 2.0, None]
    for count in wrong:
        with pytest.raises(InputError, match=r"^'threads' must be a number from 1 to 1024, got "):
            bignn.set_num_threads(count)
        assert bignn.get_num_threads() == 3


def test_torch_follows_where_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(set_num_threads=told.append))
    bignn.set_num_threads(2)
    assert told == [2]
    monkeypatch.setitem(sys.modules, "torch", None)
    bignn.set_num_threads(1)
    assert told == [2]


@pytest.mark.parametrize(
    ("variable", "expected"),
    [("3", 3), ("1", 1), ("1000000", 1024), ("", 0), ("0", 0), ("many", 0)],
)
def test_omp_num_threads_is_the_number_to_begin_with(variable: str, expected: int) -> None:
    code = "import bignn; print(bignn.get_num_threads())"
    printed = run(code, OMP_NUM_THREADS=variable)
    assert int(printed) == (expected or len(os.sched_getaffinity(0)))


def test_without_the_extension_there_is_one_thread() -> None:
    code = (
        "import sys; sys.modules['bignn._native'] = None\n"
        "import bignn; bignn.set_num_threads(2); print(bignn.get_num_threads())"
    )
    assert run(code) == "1"

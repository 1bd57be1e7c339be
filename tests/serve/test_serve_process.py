"""``bignn serve`` as a process: signals, kills, and clients that are slow or talk nonsense."""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_packed_model
from serving import NUM_FEATURES, Served, serve, some_graph, some_model, write_files

from bignn import LiveGraph
from bignn.cli import main
from bignn.cli.serve import _describe
from bignn.serve.server import address_of, listen

UPDATE = b'{"add_edges": [[1, 2], [2, 1]]}'


def numbered_update(number: int) -> dict[str, Any]:
    """An update that differs from all others: a new node, with an edge from an old one."""
    columns = np.random.default_rng(number).choice(NUM_FEATURES, 9, replace=False)
    return {"add_nodes": {"columns": [columns.tolist()]}, "add_edges": [[number % 60], [-1]]}


def after_updates(count: int) -> LiveGraph:
    """The graph after so many of them, made in this process."""
    live = some_model().live(some_graph())
    for number in range(count):
        update = numbered_update(number)
        x = np.zeros((1, NUM_FEATURES), dtype=np.float32)
        x[0, update["add_nodes"]["columns"][0]] = 1
        live.update(add_nodes=x, add_edges=[[number % 60], [live.num_nodes]])
    return live


def request(body: bytes, *, length: int | None = None, path: str = "update") -> bytes:
    size = len(body) if length is None else length
    head = f"POST /{path} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {size}\r\n\r\n".encode() + body


def received(connection: socket.socket) -> bytes:
    """All that comes until the server closes; what is cut by force ends there too."""
    found = b""
    connection.settimeout(30)
    try:
        while data := connection.recv(65536):
            found += data
    except ConnectionResetError:
        pass
    return found


def connect(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=30)


def test_acknowledged_updates_survive_kill_9(tmp_path: Path) -> None:
    model, graph = write_files(tmp_path)
    path = tmp_path / "live.biglive"
    rng = np.random.default_rng(0)
    acknowledged = 0
    for _ in range(3):
        with serve(model, graph, "--live", str(path)) as served:
            # What was in the journal and not acknowledged may be there too.
            first = served.ask("/health")[1]["num_nodes"] - 60
            assert acknowledged <= first <= acknowledged + 1
            acknowledged = first
            stop = acknowledged + int(rng.integers(3, 25))
            reached = threading.Event()

            def kill(served: Served = served, reached: threading.Event = reached) -> None:
                reached.wait(30)
                served.process.kill()

            killer = threading.Thread(target=kill)
            killer.start()
            connection = served.connect()
            try:
                while True:
                    body = json.dumps(numbered_update(acknowledged))
                    headers = {"Content-Type": "application/json"}
                    connection.request("POST", "/update", body, headers)
                    answer = connection.getresponse()
                    assert (answer.status, json.loads(answer.read())["added"]) == (
                        200,
                        [60 + acknowledged],
                    )
                    acknowledged += 1
                    if acknowledged == stop:
                        reached.set()
            except OSError:
                pass
            killer.join()
            connection.close()
            assert acknowledged >= stop
    with warnings.catch_warnings():  # a record that was cut short is told of
        warnings.filterwarnings("ignore", "'.*' ended in an update")
        opened = LiveGraph.open(path)
    made = opened.num_nodes - 60
    assert acknowledged <= made <= acknowledged + 1
    expected = after_updates(made)
    np.testing.assert_array_equal(
        opened.predict(output="logits"), expected.predict(output="logits")
    )


def test_sigterm_ends_well(tmp_path: Path) -> None:
    """A request that has begun is answered, an idle connection closed, updates are in the file."""
    model, graph = write_files(tmp_path)
    path = tmp_path / "live.biglive"
    with serve(model, graph, "--live", str(path)) as served:
        assert served.report["kept_in"] == str(path)
        idle, busy = connect(served), connect(served)
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n")
        assert idle.recv(12) == b"HTTP/1.1 200"
        busy.sendall(request(UPDATE[:10], length=len(UPDATE)))
        time.sleep(0.3)  # until the head has been read
        served.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        busy.sendall(UPDATE[10:])
        answer = received(busy)
        assert answer.startswith(b"HTTP/1.1 200"), answer
        received(idle)
        assert served.process.wait(30) == 0
        assert served.process.stderr is not None
        assert served.process.stderr.read() == ""
        with pytest.raises(OSError):
            connect(served)
        for connection in (idle, busy):
            connection.close()
    assert (tmp_path / "live.biglive.journal").stat().st_size < 200  # its first line alone
    opened, expected = LiveGraph.open(path), after_updates(0)
    expected.update(add_edges=[[1, 2], [2, 1]])
    np.testing.assert_array_equal(
        opened.predict(output="logits"), expected.predict(output="logits")
    )


def test_slow_and_broken_clients_are_cut_and_others_served(tmp_path: Path) -> None:
    model, graph = write_files(tmp_path)
    with serve(model, graph, "--timeout", "0.5", "--max-body", "0.01") as served:
        begun = {
            "nothing": b"",
            "half a head": b"POST /predict HTTP/1.1\r\nHost: he",
            "half a body": request(UPDATE[:9], length=len(UPDATE)),
            "nonsense": b"\x16\x03\x01\x02\x00\x01\x00 nonsense\r\n\r\n",
            "an endless head": b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 30_000,
            "a large body": request(b" " * 15_000),
            "a huge body": request(b" " * 99, length=1 << 40),
            "half a second head": b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n",
        }
        connections = {name: connect(served) for name in begun}
        for name, sent in begun.items():
            try:
                connections[name].sendall(sent)
            except OSError:
                assert name == "an endless head"
        assert served.ask("/predict?nodes=3")[0] == 200  # meanwhile
        assert connections["half a second head"].recv(65536).startswith(b"HTTP/1.1 200 ")
        connections["half a second head"].sendall(b"GET /he")
        answers = {name: received(some) for name, some in connections.items()}
        for some in connections.values():
            some.close()
        assert answers["nothing"] == answers["half a head"] == b""
        assert answers["half a body"].startswith(b"HTTP/1.1 408 ")
        assert b'{"error":"the body did not arrive within 0.5 s"}' in answers["half a body"]
        assert answers["nonsense"].startswith(b"HTTP/1.1 400 ")
        for name in ("a large body", "a huge body"):
            assert answers[name].startswith(b"HTTP/1.1 413 ")
        assert b"HTTP/1.1 2" not in answers["an endless head"]
        assert answers["half a second head"] == b""
        status, state = served.ask("/health")
        assert (status, state["status"], state["updates"]) == (200, "ok", 0)


def test_many_clients_at_once(tmp_path: Path) -> None:
    """Readers beside a writer: every answer is right, and every update is counted."""
    model, graph = write_files(tmp_path)
    expected = some_model().live(some_graph()).predict()
    with serve(model, graph) as served:
        wrong: list[Any] = []

        def read(seed: int) -> None:
            rng = np.random.default_rng(seed)
            for _ in range(30):
                node = int(rng.integers(0, 60))
                output = rng.choice(["classes", "probabilities"])
                status, answer = served.ask(f"/predict?nodes={node}&output={output}")
                (row,) = answer["predictions"]
                if status != 200 or (row["node"], row["class"]) != (node, expected[node]):
                    wrong.append(answer)

        def write() -> None:
            for number in range(20):  # new nodes that no other node reads
                update = numbered_update(number)
                status, _ = served.ask("/update", {"add_nodes": update["add_nodes"]})
                if status != 200:
                    wrong.append(status)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        threads.append(threading.Thread(target=write))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        state = served.ask("/health")[1]
        assert (state["num_nodes"], state["updates"]) == (80, 20)
        assert state["latency"]["predict"]["requests"] == 120


def test_the_programs_of_the_guide_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
    model = tmp_path / "cora.bignn"
    make_packed_model([1433, 16, 7]).save(model)
    with serve(str(model), "cora") as served:
        names: dict[str, Any] = {}
        for program in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
            exec(program.replace("http://127.0.0.1:8000", served.report["url"]), names)
        told = capsys.readouterr().out
        assert "'node': -1" in told
        assert "logits: fixed_size_list" in told
        assert names["answer"].num_rows == 1000
        # The lines for curl, as curl sends them.
        (body,) = re.findall(r"-d '(.*)'", page)
        status, answer = served.ask("/update", json.loads(body))
        assert (status, answer["added"], answer["num_nodes"]) == (200, [2708], 2709)
        paths = re.findall(r"curl 'http://127.0.0.1:8000(.*)'", page)
        assert [served.ask(path)[0] for path in paths] == [200, 200]


def test_small_answers_are_sent_at_once() -> None:
    """asyncio takes the delay off sockets whose protocol it can see; it cost 40 ms an answer."""
    for host in ("127.0.0.1", "localhost"):
        with listen(host, 0) as listening:
            assert listening.proto == socket.IPPROTO_TCP
            assert address_of(listening).startswith("http://")


def test_wrong_command_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, graph = write_files(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, code, line in (
            ([model, graph, "--port", port], 1, "cannot listen on 127.0.0.1 port"),
            ([model, graph, "--port", "99999"], 2, "--port must be in 0..65535, got 99999"),
            ([model, graph, "--max-body", "0"], 2, "--max-body must be more than 0"),
            ([model, graph, "--max-nodes", "-1"], 2, "--max-nodes must be more than 0"),
            ([model, graph, "--timeout", "nan"], 2, "--timeout must be more than 0"),
            ([graph, model, "--port", "0"], 1, "holds a packed graph, expected a packed model"),
            ([model, "--port", "0"], 1, "'graph' must be given"),
        ):
            assert main(["serve", *arguments]) == code
            told = capsys.readouterr().err
            assert line in told
            assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("output", "count", "told"),
    [("classes", 7, "7 classes"), ("labels", 3, "3 labels"), ("values", 1, "1 value")],
)
def test_the_line_at_the_start_names_what_is_answered(output: str, count: int, told: str) -> None:
    report = {
        "url": "http://127.0.0.1:8000",
        "num_nodes": 60,
        "num_classes": count,
        "output": output,
        "kept_in": "g.biglive",
        "why_fixed": "",
    }
    line = f"http://127.0.0.1:8000: 60 nodes, {told}; updates are kept in g.biglive"
    assert _describe(report) == line

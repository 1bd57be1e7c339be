"""The routes: what is asked and answered, and every way to ask wrongly."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from serving import NUM_FEATURES, NUM_NODES, some_graph, some_model
from starlette.testclient import TestClient

from bignn import LiveGraph, pack_graph
from bignn.graph import Graph
from bignn.graph.names import Names
from bignn.runtime.predicted_values import Output
from bignn.serve.app import make_app
from bignn.serve.arrow import ARROW
from bignn.serve.limits import Limits
from bignn.serve.served_graph import FixedGraph, ServedLiveGraph
from bignn.serve.service import Service

LIMITS = Limits(body_bytes=20_000, nodes=50, changes=40)
ROW = [0.0, 1.0] * (NUM_FEATURES // 2)


@pytest.fixture
def live() -> LiveGraph:
    return some_model().live(some_graph())


@pytest.fixture
def client(live: LiveGraph) -> Iterator[TestClient]:
    app = make_app(Service(ServedLiveGraph(live, None), LIMITS))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def rows(response: Any, name: str = "predictions") -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()[name]
    return found


# --- Answers ------------------------------------------------------------------------------------


def named_graph() -> Graph:
    names = Names.of([f"paper_{i}" for i in range(NUM_NODES)])
    return replace(some_graph(), node_names=names)


def test_updates_and_new_nodes_by_name() -> None:
    """Whatever has ids may have names, and numbers among them; -1 is the first new node."""
    served = [ServedLiveGraph(some_model().live(named_graph()), None) for _ in range(3)]
    by_number = {
        "nodes": [7],
        "x": [ROW],
        "add_nodes": [ROW],
        "add_edges": [[3, -1, 8], [-1, 3, 9]],
        "remove_nodes": [12],
    }
    by_name = by_number | {
        "nodes": ["paper_7"],
        "add_edges": [["paper_3", -1, 8], [-1, "paper_3", "paper_9"]],
        "remove_nodes": ["paper_12"],
    }
    columns = by_number | {"nodes": ["paper_7"], "remove_nodes": ["paper_12"]}
    question = {"x": [ROW], "edges": [["paper_3", "paper_4"], [-1, -1]]}
    made, answers = [], []
    requests: list[Any] = [by_number, by_name, stream(columns)]
    for some, sent in zip(served, requests, strict=True):
        with TestClient(make_app(Service(some, LIMITS))) as client:
            is_stream = isinstance(sent, bytes)
            response = (
                post(client, "/update", sent) if is_stream else client.post("/update", json=sent)
            )
            assert response.status_code == 200, response.text
            made.append(some.logits(np.arange(NUM_NODES + 1)))
            answers.append(client.post("/predict_new", json=question).json())
            gone = {"add_edges": [["paper_12"], [1]]}
            error = client.post("/update", json=gone).json()["error"]
            assert "nodes that were not removed, got node 'paper_12'" in error
            error = client.post("/update", json={"remove_edges": [["a"], [1]]}).json()["error"]
            assert "'remove_edges' must be names of nodes, got 'a'" in error
            error = client.post("/update", json={"nodes": ["paper_1", 1], "x": [ROW, ROW]}).json()
            assert "free of repetitions" in error["error"]
    for other in made[1:]:
        assert np.array_equal(made[0], other, equal_nan=True)
    numbered = {"x": [ROW], "edges": [[3, 4], [-1, -1]]}
    with TestClient(make_app(Service(served[0], LIMITS))) as client:
        assert client.post("/predict_new", json=numbered).json() == answers[0] == answers[2]


def test_classes_of_nodes(client: TestClient, live: LiveGraph) -> None:
    nodes = [3, 59, 3, 0]
    expected = [
        {"node": node, "class": int(number)}
        for node, number in zip(nodes, live.predict(nodes), strict=True)
    ]
    assert rows(client.get("/predict?nodes=3,59,3,0")) == expected
    assert rows(client.post("/predict", json={"nodes": nodes})) == expected
    assert rows(client.post("/predict", json={"nodes": []})) == []


@pytest.mark.parametrize("is_live", [True, False])
@pytest.mark.parametrize("output", ["labels", "values"])
def test_models_of_labels_and_values_give_their_own_output(output: Output, is_live: bool) -> None:
    model = some_model()
    model.output = output
    live = model.live(some_graph())
    fixed = FixedGraph(model, pack_graph(some_graph(), like=model), "fixed")
    service = Service(ServedLiveGraph(live, None) if is_live else fixed, LIMITS)
    with TestClient(make_app(service)) as client:
        assert client.get("/health").json()["output"] == output
        expected = [
            {"node": node, output: live.predict([node])[0].tolist()} for node in range(NUM_NODES)
        ]
        assert rows(client.get("/predict?nodes=0,7")) == [expected[0], expected[7]]
        assert rows(client.post("/predict", json={"nodes": [7]})) == [expected[7]]
        streamed = client.get("/predict?nodes=7", headers={"accept": ARROW})
        assert table_of(streamed).to_pylist() == [expected[7]]
        classes = rows(client.get("/predict?nodes=7&output=classes"))
        assert classes == [{"node": 7, "class": int(live.predict([7], output="classes")[0])}]
        edges = [[3], [-1]]
        (new,) = live.predict_new([ROW], edges)
        answer = client.post("/predict_new", json={"x": [ROW], "edges": edges})
        assert rows(answer) == [{"node": -1, output: new.tolist()}]
        if not is_live:
            return
        # Whose class is another now says nothing here: the nodes that came and went are told.
        changes = {"add_nodes": [ROW], "add_edges": edges, "remove_nodes": [9]}
        made = client.post("/update", json=changes)
        assert rows(made, "changed") == [{"node": 9}, {"node": NUM_NODES}]
        assert made.json()["added"] == [NUM_NODES]
        assert rows(client.get(f"/predict?nodes={NUM_NODES}"))[0][output] == new.tolist()
        assert client.get("/health").json()["num_removed"] == 1


def test_no_update_follows_one_that_was_not_published(
    live: LiveGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made, and whoever sends it again must not make it twice."""
    service = Service(ServedLiveGraph(live, None), LIMITS)

    def fail(_: Any) -> None:
        raise ValueError("could not broadcast")

    monkeypatch.setattr(service, "_publish", fail)
    with TestClient(make_app(service)) as client:
        first = client.post("/update", json={"add_nodes": [ROW]})
        assert first.status_code == 500
        assert "look whether it was made before you send it again" in first.json()["error"]
        assert client.post("/update", json={"add_nodes": [ROW]}).status_code == 503
        assert client.get("/health").status_code == 503
        assert live.num_nodes == NUM_NODES + 1


def test_names_that_are_whole_numbers() -> None:
    """An address has names first, whatever they look like; JSON tells numbers from texts."""
    names = Names.of([str(1000 - i) for i in range(NUM_NODES)])
    live = some_model().live(replace(some_graph(), node_names=names))
    live.update(add_nodes=[ROW])
    with TestClient(make_app(Service(ServedLiveGraph(live, None), LIMITS))) as client:
        for question, expected in (
            ("1000,990", [0, 10]),
            ("60,3", [60, 3]),  # no names: a node without one, and a number
            ("%20995%20,%203", [5, 3]),
        ):
            found = rows(client.get(f"/predict?nodes={question}"))
            assert [row["node"] for row in found] == expected
        found = rows(client.post("/predict", json={"nodes": ["990", 5]}))
        assert [row["node"] for row in found] == [10, 5]


def test_blanks_around_ids_are_trimmed(client: TestClient) -> None:
    assert [row["node"] for row in rows(client.get("/predict?nodes=3,%209 ,1"))] == [3, 9, 1]


def test_names_of_nodes_and_classes() -> None:
    """Of nodes that the graph had at first; new ones have numbers alone."""
    graph = named_graph()
    model = some_model()
    model.class_names = tuple(f"field_{i}" for i in range(model.num_classes))
    fixed = FixedGraph(model, pack_graph(graph, like=model), "fixed")
    for served in (ServedLiveGraph(model.live(graph), None), fixed):
        with TestClient(make_app(Service(served, LIMITS))) as client:
            expected = [
                {"node": node, "name": f"paper_{node}", "class": k, "class_name": f"field_{k}"}
                for node, k in zip((3, 59), model.predict(graph, [3, 59]).tolist(), strict=True)
            ]
            asked = {"nodes": ["paper_3", "paper_59"]}
            assert rows(client.get("/predict?nodes=paper_3,paper_59")) == expected
            assert rows(client.get("/predict?nodes=3,59")) == expected
            assert rows(client.post("/predict", json=asked)) == expected
            refused = client.get("/predict?nodes=paper_3,nobody")
            assert refused.status_code == 400
            assert "must be names of nodes, got 'nobody'" in refused.json()["error"]
            (new,) = rows(client.post("/predict_new", json={"x": [ROW]}))
            assert (new["node"], new["name"]) == (-1, None)
            arrow = client.get("/predict?nodes=3", headers={"accept": ARROW})
            assert pa.ipc.open_stream(arrow.content).read_all().to_pylist() == expected[:1]


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("probabilities", "probabilities"),
        ("logits", "logits"),
        ("labels", "labels"),
        ("label_probabilities", "probabilities"),
        ("values", "values"),
    ],
)
def test_other_outputs(client: TestClient, live: LiveGraph, output: Any, name: str) -> None:
    answers = rows(client.post("/predict", json={"nodes": [4, 9], "output": output}))
    assert rows(client.get(f"/predict?nodes=4,9&output={output}")) == answers
    assert [answer[name] for answer in answers] == live.predict([4, 9], output=output).tolist()
    has_class = output in ("probabilities", "logits")
    assert [answer.get("class") for answer in answers] == (
        live.predict([4, 9]).tolist() if has_class else [None, None]
    )


def test_new_nodes_are_answered_and_not_added(client: TestClient, live: LiveGraph) -> None:
    edges = [[4, -1, -2], [-1, 4, -1]]
    body = {"x": [ROW, ROW[::-1]], "edges": edges, "output": "logits"}
    answers = rows(client.post("/predict_new", json=body))
    expected = live.predict_new(np.array([ROW, ROW[::-1]]), edges, output="logits")
    assert [answer["logits"] for answer in answers] == expected.tolist()
    assert [answer["class"] for answer in answers] == expected.argmax(axis=1).tolist()
    assert [answer["node"] for answer in answers] == [-1, -2]
    assert client.get("/health").json()["num_nodes"] == NUM_NODES
    lonely = rows(client.post("/predict_new", json={"x": [ROW]}))
    assert lonely[0]["class"] == live.predict_new(np.array([ROW]), np.empty((2, 0), int))[0]


def test_features_by_their_columns(client: TestClient) -> None:
    body = {"x": {"columns": [[3, 17], []], "values": [[1.0, 2.0], []]}, "edges": [[4], [-1]]}
    x = np.zeros((2, NUM_FEATURES))
    x[0, [3, 17]] = 1, 2
    dense = {"x": x.tolist(), "edges": [[4], [-1]]}
    for some in (body, dense):
        some["output"] = "logits"
    assert rows(client.post("/predict_new", json=body)) == rows(
        client.post("/predict_new", json=dense)
    )
    # Without values all are 1.
    body["x"] = {"columns": [[3, 17], []]}
    x[0, 17] = 1
    dense["x"] = x.tolist()
    assert rows(client.post("/predict_new", json=body)) == rows(
        client.post("/predict_new", json=dense)
    )


def test_an_update_is_seen_by_the_next_question(client: TestClient, live: LiveGraph) -> None:
    other = some_model().live(some_graph())
    changed = other.update(add_nodes=[ROW, ROW], add_edges=[[60, 4, 61], [4, 60, 60]])
    body = {"add_nodes": [ROW, ROW], "add_edges": [[-1, 4, -2], [4, -1, -1]]}
    response = client.post("/update", json=body)
    expected = [
        {"node": int(node), "class": int(number)}
        for node, number in zip(changed, other.predict(changed), strict=True)
    ]
    assert rows(response, "changed") == expected
    assert response.json()["added"] == [60, 61]
    assert response.json()["num_nodes"] == 62
    every = rows(client.post("/predict", json={"nodes": list(range(20, 62))}))
    assert [answer["class"] for answer in every] == other.predict(range(20, 62)).tolist()
    assert (live.predict() == other.predict()).all()


def test_empty_lists_are_no_changes(client: TestClient) -> None:
    fields: dict[str, Any] = {"add_edges": [], "remove_edges": [[], []], "remove_nodes": []}
    response = client.post("/update", json=fields)
    assert response.json() == {"changed": [], "added": [], "num_nodes": 60}
    alone = client.post("/predict_new", json={"x": [ROW], "edges": []})
    assert alone.json()["predictions"][0]["node"] == -1


def test_a_removed_node_has_no_class(client: TestClient) -> None:
    changed = rows(client.post("/update", json={"remove_nodes": [7]}), "changed")
    assert {"node": 7, "class": None} in changed
    assert rows(client.get("/predict?nodes=7,8"))[0] == {"node": 7, "class": None}
    answer = rows(client.get("/predict?nodes=7&output=probabilities"))[0]
    assert answer == {"node": 7, "class": None, "probabilities": None}
    state = client.get("/health").json()
    assert (state["num_nodes"], state["num_removed"], state["updates"]) == (60, 1, 1)


def test_all_kinds_of_changes_in_one_update(client: TestClient, live: LiveGraph) -> None:
    other = some_model().live(some_graph())
    source, target = some_graph().edge_index[:, 5].tolist()
    changes: dict[str, Any] = {
        "nodes": [11],
        "x": [ROW],
        "remove_edges": [[source], [target]],
        "add_edges": [[1, 2], [2, 1]],
        "edge_weight": [0.5, 2.0],
        "remove_nodes": [30],
    }
    other.update(**changes)
    assert client.post("/update", json=changes).status_code == 200
    assert (live.predict(output="logits")[:30] == other.predict(output="logits")[:30]).all()
    assert live.removed.tolist() == [30]


def test_metrics_are_prometheus_text(client: TestClient) -> None:
    client.get("/predict?nodes=1")
    client.get("/predict?nodes=1000")
    client.post("/update", json={"add_edges": [[1], [2]]})
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = response.text.splitlines()
    assert 'bignn_requests_total{endpoint="predict",status="200"} 1' in lines
    assert 'bignn_requests_total{endpoint="predict",status="400"} 1' in lines
    assert 'bignn_request_seconds_bucket{endpoint="predict",le="+Inf"} 2' in lines
    assert 'bignn_request_seconds_count{endpoint="predict"} 2' in lines
    assert "bignn_nodes 60" in lines
    assert "bignn_updates_total 1" in lines
    for line in lines:
        if not line.startswith("#"):
            float(line.rpartition(" ")[2])
            family = line.partition("{")[0].partition(" ")[0]
            assert any(f"# TYPE {family.removesuffix(end)} " in response.text
                       for end in ("", "_bucket", "_sum", "_count"))  # fmt: skip


def test_a_graph_that_stays_as_it_is() -> None:
    """As of a model with float parts, which has no live graph."""
    model = some_model()
    graph = pack_graph(some_graph(), like=model)
    service = Service(FixedGraph(model, graph, "this graph cannot be changed: why"), LIMITS)
    with TestClient(make_app(service)) as client:
        answers = rows(client.get("/predict?nodes=3,5&output=logits"))
        expected = model.predict(graph, [3, 5], output="logits")
        assert [answer["logits"] for answer in answers] == expected.tolist()
        x = np.ones((1, model.num_features))
        body = {"x": x.tolist(), "edges": [[3, -1], [-1, 3]]}
        found = rows(client.post("/predict_new", json=body))[0]["class"]
        assert found == model.predict_new(graph, x, [[3, 60], [60, 3]])[0]
        refused = client.post("/update", json={"remove_nodes": [1]})
        assert refused.status_code == 409
        assert refused.json() == {"error": "this graph cannot be changed: why"}
        bad = client.post("/predict_new", json={"x": [[1.0]]})
        assert bad.status_code == 400
        assert client.get("/health").json()["is_live"] is False


# --- Arrow --------------------------------------------------------------------------------------


def stream(fields: dict[str, Any], **options: Any) -> bytes:
    """Fields as a table of one row, as the guide makes it."""
    return table_stream(pa.table({name: [value] for name, value in fields.items()}), **options)


def table_stream(table: Any, **options: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, **options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def post(client: TestClient, path: str, content: bytes, **headers: str) -> Any:
    return client.post(path, content=content, headers={"Content-Type": ARROW, **headers})


def table_of(response: Any) -> Any:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == ARROW
    return pa.ipc.open_stream(response.content).read_all()


def test_arrow_is_answered_with_arrow(client: TestClient, live: LiveGraph) -> None:
    column = table_stream(pa.table({"nodes": [3, 9]}))
    for content in (column, stream({"nodes": [3, 9]})):
        table = table_of(post(client, "/predict?output=logits", content))
        assert table.column("node").to_pylist() == [3, 9]
        assert table.column("class").to_pylist() == live.predict([3, 9]).tolist()
        logits = live.predict([3, 9], output="logits")
        assert table.column("logits").to_pylist() == logits.tolist()
    as_json = post(client, "/predict", column, Accept="application/json")
    assert rows(as_json)[0]["node"] == 3
    asked = client.post("/predict", json={"nodes": [3]}, headers={"Accept": ARROW})
    assert table_of(asked).column("node").to_pylist() == [3]


def test_new_nodes_and_updates_as_arrow(client: TestClient, live: LiveGraph) -> None:
    x = np.array([ROW, ROW[::-1]], dtype=np.float32)
    edges = np.array([[4, -1, -2], [-1, 4, -1]])
    expected = live.predict_new(x, edges)
    fields = {"x": x.tolist(), "edges": edges.tolist(), "output": "classes"}
    fixed = pa.table(
        {
            "x": pa.array([x.tolist()], pa.list_(pa.list_(pa.float32(), NUM_FEATURES))),
            "edges": pa.array([edges.tolist()], pa.list_(pa.list_(pa.int32()))),
        }
    )
    columns = [np.flatnonzero(row).tolist() for row in x]
    sparse = {"x": {"columns": columns}, "edges": edges.tolist()}
    for content in (stream(fields), table_stream(fixed), stream(sparse)):
        table = table_of(post(client, "/predict_new", content))
        assert table.column("class").to_pylist() == expected.tolist()
    other = some_model().live(some_graph())
    other.update(remove_nodes=[5], add_nodes=x, add_edges=[[60], [61]])
    body = {"remove_nodes": [5], "add_nodes": x.tolist(), "add_edges": [[-1], [-2]]}
    table = table_of(post(client, "/update", stream(body)))
    about = json.loads(table.schema.metadata[b"bignn"])
    assert about == {"added": [60, 61], "num_nodes": 62}
    by_node = dict(zip(table["node"].to_pylist(), table["class"].to_pylist(), strict=True))
    assert by_node[5] is None
    assert by_node[60] == other.predict([60])[0]
    assert (live.predict() == other.predict()).all()


def test_without_pyarrow_arrow_is_415(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    content = stream({"nodes": [3]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused = post(client, "/predict", content)
    assert refused.status_code == 415
    assert refused.json()["error"].startswith("Arrow needs pyarrow, which the server does not have")
    asked = client.post("/predict", json={"nodes": [3]}, headers={"Accept": ARROW})
    assert asked.status_code == 415
    assert client.get("/predict?nodes=3").status_code == 200


@pytest.mark.parametrize(
    ("table", "options", "line"),
    [
        ({"nodes": pa.array(["a"]).dictionary_encode()}, {}, "without dictionaries"),
        ({"nodes": [[1] * 4000]}, {"compression": "zstd"}, "without compression"),
        ({"nodes": [[1, None]]}, {}, "'nodes' must be free of nulls"),
        ({"nodes": [[1], [2]]}, {}, "'nodes' must have one row, a list, got 2 of list"),
        ({"nodes": [True, False]}, {}, "'nodes' must be numbers or names, got bool"),
        ({"nodes": pa.nulls(3)}, {}, "'nodes' must be free of nulls"),
        ({"nodes": [1.5]}, {}, "a list of node ids or names, got numbers with fractions"),
        ({"nodes": [[[1], [2, 3]]]}, {}, "'nodes' must be an array, got lists of several"),
        ({"nodes": [1], "output": ["logit"]}, {}, "'output' must be one of"),
        ({"nodez": [1]}, {}, "'nodez' is not known here; a request has nodes, output"),
    ],
)
def test_bad_arrow(client: TestClient, table: Any, options: dict[str, Any], line: str) -> None:
    if options:
        options = {"options": pa.ipc.IpcWriteOptions(**options)}
    response = post(client, "/predict", table_stream(pa.table(table), **options))
    assert response.status_code == 400
    assert line in response.json()["error"]


def test_damaged_arrow_is_refused_or_read(client: TestClient) -> None:
    """Every byte changed, every length: an answer or one line, never an error of the server."""
    content = stream({"nodes": [3, 9]})
    for at in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[at] ^= 0x5A
        for sent in (bytes(damaged), content[:at]):
            response = post(client, "/predict", sent)
            assert response.status_code in (200, 400), (at, response.text)


# --- Bad requests -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "line"),
    [
        ("/predict", {}, "'nodes' must be given"),
        ("/predict", {"nodes": [60]}, "'nodes' must be node ids in 0..59, got 60"),
        ("/predict", {"nodes": [-1]}, "'nodes' must be node ids in 0..59, got -1"),
        ("/predict", {"nodes": [1.5]}, "'nodes' must be a list of node ids or names, got numbers "),
        ("/predict", {"nodes": [True]}, "a list of node ids or names, got true or false"),
        ("/predict", {"nodes": [3, None]}, "a list of node ids or names, got null"),
        ("/predict", {"nodes": 3}, "a list of node ids or names, got a number"),
        ("/predict", {"nodes": [[1], [2]]}, "a list of node ids or names, got lists in lists"),
        ("/predict", {"nodes": ["paper"]}, "'nodes' must be node ids: the graph has no names"),
        ("/predict", {"nodes": [10**40]}, "or names, got a number past 64 bits"),
        ("/predict", {"nodes": [[1], [1, 2]]}, "or names, got lists of several lengths"),
        ("/predict", {"nodes": {"a": 1}}, "a list of node ids or names, got an object"),
        ("/predict", {"nodes": [1], "output": "class"}, "'output' must be one of"),
        ("/predict", {"nodes": [1], "output": 3}, "'output' must be a name, got a number"),
        ("/predict", {"node": [1]}, "'node' is not known here; a request has nodes, output"),
        ("/predict", [1], "the body must be a JSON object, got a list"),
        ("/predict_new", {}, "'x' must be given"),
        ("/predict_new", {"x": [[1.0]]}, "'x' must be rows of 300 features, got rows of 1"),
        ("/predict_new", {"x": [ROW], "edges": [[1], [2]]}, "'edges' must be edges with a new"),
        (
            "/predict_new",
            {"x": [ROW], "edges": [[1], [-2]]},
            "'edges' must be node ids from 0 on, and -1 for the new node, got -2",
        ),
        (
            "/predict_new",
            {"x": [ROW], "edges": [1]},
            "'edges' must be two lists of one length, sources and targets, of node ids or names, "
            "got a list without lists in it",
        ),
        ("/predict_new", {"x": [ROW], "edges": [[1]]}, "of node ids or names, got 1 lists"),
        ("/predict_new", {"x": [["a"] * 300]}, "'x' must be rows of 300 numbers, got texts"),
        ("/predict_new", {"x": [[None] * 300]}, "'x' must be rows of 300 numbers, got null"),
        ("/predict_new", {"x": [[1e39] * 300]}, "'x' must be within float32's"),
        ("/predict_new", {"x": {"columns": [[300]]}}, "'x' must have columns in 0..299, got 300"),
        ("/predict_new", {"x": {"rows": [[3]]}}, "'x' must have 'columns' and perhaps 'values'"),
        (
            "/predict_new",
            {"x": {"columns": [3]}},
            "'x' must have a list of lists as 'columns', one per row, got a number in the list",
        ),
        ("/predict_new", {"x": {"columns": "a"}}, "as 'columns', one per row, got a text"),
        ("/predict_new", {"x": {"columns": [[[3]]]}}, "one per row, got lists in lists"),
        (
            "/predict_new",
            {"x": {"columns": [[3]], "values": [[]]}},
            "as many 'values' as 'columns' in every row, got [1] columns and [0] values",
        ),
        ("/predict_new", {"x": {"columns": [["a"]]}}, "numbers as values, got texts"),
        (
            "/predict_new",
            {"x": {"columns": [[3]], "values": [[1e39]]}},
            "'x' must be within float32's range, 3.4e+38 at most in size, got 1e+39",
        ),
        ("/update", {"nodes": [1]}, "'x' must be given together with 'nodes'"),
        ("/update", {"remove_edges": [[3], [14]]}, "'remove_edges' must be edges that exist"),
        ("/update", {"add_edges": [[1], [-1]]}, "'add_edges' must be node ids from 0 on, got -1"),
        ("/update", {"add_edges": [["a"], [1]]}, "must be node ids: the graph has no names"),
        ("/update", {"add_edges": [[1], [2]], "edge_weight": ["a"]}, "of numbers, got texts"),
        ("/update", {"add_edges": [[1], [2]], "edge_weight": [1, 2]}, "added edge (1), got 2"),
        ("/update", {"remove_nodes": [-1]}, "'remove_nodes' must be node ids in 0..59, got -1"),
        ("/update", {"add_edges": [[1], [2]], "edge_weight": [-1]}, "'edge_weight' must be finite"),
    ],
)
def test_bad_fields_are_one_line(
    client: TestClient, live: LiveGraph, path: str, body: Any, line: str
) -> None:
    before = live.predict(output="logits")
    response = client.post(path, json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert line in error
    assert "\n" not in error
    assert (live.predict(output="logits") == before).all()
    assert client.get("/health").json()["status"] == "ok"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "the body must be JSON"),
        (b"{", "the body must be JSON"),
        (b'{"nodes": [NaN]}', "the body must have finite numbers, got NaN"),
        (b'{"nodes": [-Infinity]}', "the body must have finite numbers, got -Infinity"),
        (b'{"nodes": [\xff]}', "the body must be JSON in UTF-8"),
        (b'{"nodes":' + b"[" * 15_000, "the body must be JSON, got lists nested too deeply"),
        (b'{"nodes": [' + b"9" * 5000 + b"]}", "the body must be JSON"),
    ],
)
def test_bad_json_is_one_line(client: TestClient, content: bytes, line: str) -> None:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    response = client.post("/predict", content=content, headers=headers)
    assert response.status_code == 400
    assert line in response.json()["error"]


def test_paths_methods_and_types(client: TestClient) -> None:
    for response, status in (
        (client.get("/nothing"), 404),
        (client.get("/update"), 405),
        (client.delete("/predict"), 405),
        (client.post("/predict", content=b"{}"), 415),
        (client.post("/update", data={"remove_nodes": "1"}), 415),
        (client.get("/predict"), 400),
        (client.get("/predict?nodes=1,,2"), 400),
        (client.get("/predict?nodes=" + "1" * 99), 400),
        (client.get("/predict?nodes=1&output=class"), 400),
    ):
        assert response.status_code == status
        assert list(response.json()) == ["error"]


def test_nodes_that_are_given_several_times_are_all_answered(client: TestClient) -> None:
    expected = rows(client.get("/predict?nodes=3,9,1"))
    assert [row["node"] for row in expected] == [3, 9, 1]
    assert rows(client.get("/predict?nodes=3&nodes=9,1")) == expected
    assert rows(client.get("/predict?nodes=3&output=classes&nodes=9&nodes=1")) == expected


def test_parameters_that_are_not_known_are_one_line(client: TestClient) -> None:
    body = {"nodes": [3]}
    new = {"x": [ROW]}
    for response, line in (
        (
            client.get("/predict?nodes=0&outptu=logits"),
            "'outptu' is not known here; the address has nodes, output",
        ),
        (client.get("/predict?nodes=0&also"), "'also' is not known here; the address has nodes, o"),
        (
            client.get("/predict?nodes=0&output=logits&output=classes"),
            "'output' must be given once in the address, got 2 of them",
        ),
        (
            client.post("/predict?nodes=5", json=body),
            "'nodes' is not known here; the address has output",
        ),
        (
            client.post("/predict_new?outptu=logits", json=new),
            "'outptu' is not known here; the address has output",
        ),
        (
            client.post("/update?remove_nodes=1", json={}),
            "'remove_nodes' is not known here; the address has no parameters",
        ),
    ):
        assert response.status_code == 400
        assert response.json()["error"].startswith(line)
    assert "logits" in rows(client.post("/predict?output=logits", json=body))[0]
    assert "logits" in rows(client.post("/predict_new?output=logits", json=new))[0]


def test_unknown_paths_and_methods_name_the_known_ones(client: TestClient) -> None:
    known = (
        "there are GET or POST /predict, POST /predict_new, POST /update, GET /health, "
        "GET /metrics, GET /"
    )
    missing = client.get("/nothing?nodes=3")
    assert missing.status_code == 404
    assert missing.json() == {"error": f"'GET /nothing' is not known; {known}"}
    refused = client.get("/update")
    assert refused.status_code == 405
    assert refused.json() == {"error": f"'GET /update' is not known; {known}"}
    assert refused.headers["allow"] == "POST"


def test_what_is_too_large_is_413(client: TestClient) -> None:
    def check(response: Any, line: str) -> None:
        assert response.status_code == 413
        assert line in response.json()["error"]

    many = list(range(51))
    check(client.post("/predict", json={"nodes": many}), "may name 50 nodes at most, got 51")
    check(client.get("/predict?nodes=" + ",".join(map(str, many))), "may name 50 nodes at most")
    sparse: dict[str, Any] = {"columns": [[]] * 51}
    check(client.post("/predict_new", json={"x": sparse}), "may name 50 new nodes at most, got 51")
    edges = [[1] * 41, [2] * 41]
    body = {"x": [ROW], "edges": edges}
    check(client.post("/predict_new", json=body), "may name 40 edges at most, got 41")
    update = {"remove_nodes": [1, 2], "add_edges": [[1] * 39, [2] * 39]}
    check(client.post("/update", json=update), "may name 40 nodes and edges at most, got 41")
    large = b" " * 20_001
    headers = {"Content-Type": "application/json"}
    for content in (large, b" " * 90_000, iter([large[:15_000]] * 9)):
        response = client.post("/predict", content=content, headers=headers)
        check(response, "a body may have 20,000 bytes at most")
        assert response.headers["connection"] == "close"


def test_an_update_that_ends_half_way_is_told(
    client: TestClient, live: LiveGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no memory")

    classes = [answer["class"] for answer in rows(client.get("/predict?nodes=1,2"))]
    monkeypatch.setattr(live, "_apply", fail)
    broken = client.post("/update", json={"add_edges": [[1], [2]]})
    assert broken.status_code == 500
    assert "no memory" not in broken.text
    monkeypatch.undo()
    refused = client.post("/update", json={"add_edges": [[1], [2]]})
    assert refused.status_code == 503
    assert "restart the service" in refused.json()["error"]
    assert client.get("/health").status_code == 503
    # What was known before is still answered.
    assert [answer["class"] for answer in rows(client.get("/predict?nodes=1,2"))] == classes


def test_a_full_disk_is_told_and_changes_nothing(
    live: LiveGraph, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "g.biglive"
    live.save(path)
    with TestClient(make_app(Service(ServedLiveGraph(live, path), LIMITS))) as client:

        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        journal: Any = live._journal
        monkeypatch.setattr(journal, "_write", full)
        response = client.post("/update", json={"remove_nodes": [1]})
        assert response.status_code == 503
        assert "No space left on device; the update was not made" in response.json()["error"]
        monkeypatch.undo()
        assert client.get("/health").json()["status"] == "ok"
        assert client.post("/update", json={"remove_nodes": [2]}).status_code == 200
    assert LiveGraph.open(path).removed.tolist() == [2]

"""Names of nodes and classes from tables and PyG's ``Data`` through training to predictions."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from conftest import make_arrays, make_graph, make_packed_model
from torch_geometric.data import Data

import bignn
from bignn import FileError, Graph, InputError, PackedGraph, PackedModel
from bignn.cli import main
from bignn.graph import from_arrays
from bignn.runtime.predicted_values import scores_of
from bignn.train import checkpoint

CLASSES = ("Case_Based", "Neural, Networks")


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """A graph made from tables by ``bignn convert``, as ``g.npz``; nodes are in another order."""
    monkeypatch.chdir(tmp_path)
    graph = from_arrays(make_arrays())
    assert graph.y is not None
    order = np.random.default_rng(1).permutation(graph.num_nodes)
    with Path("x.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["paper", *(f"w{k}" for k in range(graph.num_features)), "topic"])
        for node in order:
            rows.writerow([f"paper_{node}", *graph.dense_x()[node], CLASSES[graph.y[node]]])
    with Path("e.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["from", "to"])
        rows.writerows((f"paper_{a}", f"paper_{b}") for a, b in graph.edge_index.T)
    command = "convert g.npz --edges e.csv --features x.csv --id paper --label-column topic"
    assert main([*command.split(), "--split", "40,30,30"]) == 0
    made = bignn.load("g.npz")
    assert made.node_names is not None
    assert list(made.node_names) == [f"paper_{node}" for node in order]
    assert made.class_names == CLASSES
    return made


def run(line: str) -> int:
    return main(line.split())


def rows_of(path: str) -> list[list[str]]:
    with Path(path).open(newline="") as file:
        return list(csv.reader(file))


def test_from_tables_to_named_predictions(named: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train g.npz --epochs 30 --hidden 8 --out runs") == 0
    assert run("pack runs/seed-0.safetensors m.bignn") == 0
    assert run("predict m.bignn g.npz --out p.csv --save-graph g.bigraph") == 0
    head, *rows = rows_of("p.csv")
    assert head == ["node", "class", "score"]
    # The same as torch: the class of the largest logit, and its softmax.
    model = bignn.load_model("runs/seed-0.safetensors")
    assert model.class_names == CLASSES
    with torch.no_grad():
        logits = model(torch.from_numpy(named.dense_x()), torch.from_numpy(named.edge_index))
    score, number = logits.softmax(dim=1).max(dim=1)
    assert named.node_names is not None
    assert [row[0] for row in rows] == list(named.node_names)
    assert [row[1] for row in rows] == [CLASSES[place] for place in number.tolist()]
    assert {row[1] for row in rows} == set(CLASSES)
    assert [float(row[2]) for row in rows] == pytest.approx(score.tolist(), abs=1e-6)
    assert len({row[2] for row in rows}) > 10
    capsys.readouterr()
    # From the packed graph, in another order of rows, the same file.
    assert run("predict m.bignn g.bigraph --out q.csv") == 0
    assert run("predict m.bignn g.npz --order locality --out r.csv") == 0
    assert Path("p.csv").read_text() == Path("q.csv").read_text() == Path("r.csv").read_text()
    # Some nodes, by name.
    wanted = [rows[3][0], rows[0][0], rows[3][0]]
    few = ["--nodes", ", ".join(wanted)]
    assert main(["predict", "m.bignn", "g.bigraph", *few, "--out", "few.csv"]) == 0
    assert rows_of("few.csv")[1:] == [rows[3], rows[0], rows[3]]
    capsys.readouterr()
    assert main(["predict", "m.bignn", "g.npz", *few, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["nodes"] == wanted
    assert report["predictions"] == [rows[3][1], rows[0][1], rows[3][1]]
    assert report["scores"] == [float(rows[place][2]) for place in (3, 0, 3)]
    assert main(["predict", "m.bignn", "g.npz", *few]) == 0
    shown = capsys.readouterr().out
    assert f"  node {wanted[0]}: {rows[3][1]}, {float(rows[3][2]):.2f}\n" in shown
    # Other outputs and files.
    assert run("predict m.bignn g.npz --output probabilities --out p.csv") == 0
    head, *probabilities = rows_of("p.csv")
    assert head == ["node", *CLASSES]
    assert max(map(float, probabilities[0][1:])) == pytest.approx(float(rows[0][2]), abs=1e-6)
    assert run("predict m.bignn g.npz --out p.npy") == 0
    assert np.load("p.npy").tolist() == number.tolist()
    capsys.readouterr()
    for nodes, line in (
        ("paper_0,paper_99", "--nodes must be names of nodes, got 'paper_99'; names are such as"),
        ("5", "--nodes must be names of nodes, got '5'; names are such as 'paper_"),
        (" ,", "--nodes must be names or ids such as 0,5,9, got none"),
        ("a\nb", "--nodes must be names between commas, got"),
    ):
        assert main(["predict", "m.bignn", "g.npz", "--nodes", nodes]) == 2
        error = capsys.readouterr().err
        assert line in error
        assert error.count("\n") == 1


def test_class_names_belong_to_the_model(named: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    model = bignn.nn.GCN(named.num_features, 8, 2, 2, binarize="both")
    settings = bignn.Settings(epochs=20)
    bignn.fit(model, named, settings, progress=False, checkpoint_path="c.safetensors")
    assert model.class_names == CLASSES
    bignn.pack(model).save("m.bignn")
    assert PackedModel.open("m.bignn").class_names == CLASSES

    def predicted(graph: Graph) -> dict[str, Any]:
        bignn.save(graph, "other.npz")
        capsys.readouterr()
        assert run("predict m.bignn other.npz --json") == 0
        return dict(json.loads(capsys.readouterr().out))

    first = predicted(named)
    # A graph without names: numbers of nodes, names of classes.
    bare = predicted(replace(named, node_names=None, class_names=None))
    assert bare["nodes"] == list(range(named.num_nodes))
    assert bare["predictions"] == first["predictions"]
    # A graph that numbers the same classes otherwise is scored by their names.
    assert named.y is not None
    turned = replace(named, y=(2 - named.y), class_names=("other", *CLASSES[::-1]))
    assert predicted(turned)["test_acc"] == first["test_acc"] not in (None, 0, 50, 100)
    # A model without names takes the graph's, if they fit.
    model.class_names = None
    bignn.pack(model).save("m.bignn")
    assert PackedModel.open("m.bignn").class_names is None
    assert predicted(named)["predictions"] == first["predictions"]
    assert set(predicted(replace(named, class_names=None))["predictions"]) == {0, 1}
    assert set(predicted(turned)["predictions"]) == {0, 1}  # three names for two outputs
    # They are in the checkpoint too.
    assert bignn.load_model("c.safetensors").class_names == CLASSES
    again = bignn.nn.GCN(named.num_features, 8, 2, 2, binarize="both")
    bignn.load_state(again, "c.safetensors")
    assert again.class_names == CLASSES
    bignn.fit(again, replace(named, class_names=None), settings, progress=False)
    assert again.class_names is None


def test_wrong_class_names_of_a_model_are_refused(named: Graph) -> None:
    model = make_packed_model([20, 8, 2])
    parts = model.operations, model.arrays, 20
    with pytest.raises(InputError, match=r"'class_names' must be a name for each of the model's"):
        PackedModel(*parts, class_names=["a"])
    with pytest.raises(InputError, match="'class_names' must be different names, got 'a'"):
        PackedModel(*parts, class_names=["a", "a"])
    trained = bignn.nn.GCN(20, 8, 2, 2, binarize="both")
    trained.fit_input(torch.from_numpy(named.dense_x()))
    with pytest.raises(InputError, match=r"outputs \(2\), got 3 names"):
        bignn.pack(trained, class_names=["a", "b", "c"])
    assert bignn.pack(trained, class_names=["a", "b"]).class_names == ("a", "b")
    # More outputs than names: the names are of other classes.
    wide = bignn.nn.GCN(20, 8, 2, 5, binarize="both")
    bignn.fit(
        wide, named, bignn.Settings(epochs=1), progress=False, checkpoint_path="w.safetensors"
    )
    assert wide.class_names is None
    parts_of, header = checkpoint.read("w.safetensors")
    assert "class_names" not in header
    for names in (["a", "a"], "ab", [1.5], [""]):
        checkpoint.write("bad.safetensors", parts_of, {**header, "class_names": names})
        with pytest.raises(FileError, match=r"bad.safetensors' is not a whole checkpoint .*class_"):
            bignn.load_model("bad.safetensors")


def test_names_travel_with_a_data_and_a_model_of_pyg(named: Graph) -> None:
    data = bignn.to_pyg(named)
    data.node_names = list(data.node_names)
    model = pyg.GCN(named.num_features, 8, 2, 2)
    bignn.binarize_(model)
    bignn.fit(model, data, bignn.Settings(epochs=3), progress=False)
    packed = bignn.pack(model)
    assert packed.class_names == CLASSES
    every = packed.predict(data)
    wanted = ["paper_5", "paper_0"]
    places = [data.node_names.index(name) for name in wanted]
    assert packed.predict(data, wanted).tolist() == every[places].tolist()
    assert packed.predict(data, np.array(wanted, dtype=object)).tolist() == every[places].tolist()
    # A changed name is noticed.
    data.node_names[places[0]] = "renamed"
    assert packed.predict(data, ["renamed"]).tolist() == [every[places[0]]]
    with pytest.raises(InputError, match="'nodes' must be names of nodes, got 'paper_5'"):
        packed.predict(data, ["paper_5"])


def test_a_live_graph_keeps_names(tmp_path: Path) -> None:
    model = make_packed_model([30, 9, 3])
    model.class_names = ("a", "b", "c")
    names = [f"n{number}" for number in range(12)]
    graph = replace(make_graph(12, 30), node_names=names, class_names=["a", "b", "c"])
    for order in (None, "locality"):
        live = model.live(bignn.pack_graph(graph, like=model, order=order))
        before = model.predict(graph)
        assert live.predict(["n7", "n2"]).tolist() == before[[7, 2]].tolist()
        live.update(add_nodes=np.ones((1, 30)), add_edges=[[12], [0]])
        live.save(tmp_path / "l.biglive")
        live.close()
        opened = bignn.LiveGraph.open(tmp_path / "l.biglive")
        assert opened.model.class_names == ("a", "b", "c")
        assert opened.predict(["n0"]).tolist() == opened.predict([0]).tolist()
        packed = opened.packed_graph()
        assert packed.node_names is not None and len(packed.node_names) == 12
        assert packed.num_nodes == 13
        # New nodes have no names, and go by their numbers.
        packed.save(tmp_path / "l.bigraph")
        model.save(tmp_path / "m.bignn")
        out = str(tmp_path / "p.csv")
        files = [str(tmp_path / name) for name in ("m.bignn", "l.bigraph")]
        assert main(["predict", *files, "--out", out]) == 0
        assert [row[0] for row in rows_of(out)] == ["node", *names, "12"]
        opened.close()
        new = np.ones((2, 30), dtype=np.float32)
        assert len(model.predict_new(graph, new, [[12, 13], [0, 1]])) == 2


def test_packed_graphs_keep_names_on_disk(tmp_path: Path) -> None:
    model = make_packed_model([30, 9, 3])
    names = [f"é{number}" for number in range(12)]
    y = np.arange(12) % 2
    graph = replace(make_graph(12, 30), y=y, node_names=names, class_names=["a", "b", "c"])
    bignn.pack_graph(graph, like=model).save(tmp_path / "g.bigraph")
    opened = PackedGraph.open(tmp_path / "g.bigraph", verify=True)
    assert opened.node_names is not None and list(opened.node_names) == names
    assert opened.class_names == ("a", "b", "c")
    assert model.predict(opened, ["é3"]).tolist() == model.predict(graph, [3]).tolist()


def test_scores_are_probabilities() -> None:
    logits = np.array([[1, 3, 2], [1e30, 0, 0], [-5, -5, -5]], dtype=np.float32)
    expected = torch.from_numpy(logits).double().softmax(dim=1).max(dim=1).values.float()
    assert scores_of(logits).tolist() == expected.tolist()
    assert scores_of(np.array([[7]], dtype=np.float32)).tolist() == [1]


def test_parts_say_that_they_have_no_names(
    named: Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    assert named.node_names is not None
    assert run("partition g.npz -k 2 -o parts") == 0
    assert "note: parts have no names of nodes" in capsys.readouterr().err
    np.savez("unnamed.npz", **make_arrays())  # type: ignore[arg-type]
    assert run("partition unnamed.npz -k 2 -o parts") == 0
    assert "note:" not in capsys.readouterr().err


@pytest.mark.parametrize("output", ["labels", "values"])
def test_labels_and_values_are_a_column_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = from_arrays(make_arrays())
    rng, masks = np.random.default_rng(0), torch.arange(graph.num_nodes) % 3
    y = rng.random((graph.num_nodes, 3)).astype(np.float32)
    data = Data(
        x=torch.from_numpy(graph.dense_x()),
        edge_index=torch.from_numpy(graph.edge_index),
        y=torch.from_numpy(y if output == "values" else (y > 0.5).astype(np.float32)),
        train_mask=masks == 0,
        val_mask=masks == 1,
        test_mask=masks == 2,
    )
    model = bignn.nn.GCN(graph.num_features, 8, 2, 3, binarize="both")
    bignn.fit(model, data, {"epochs": 2}, progress=False)
    packed = bignn.pack(model)
    packed.save("m.bignn")
    # Classes that such a model does not predict: no accuracy is of them.
    bignn.pack_graph(graph, like=packed).save("g.bigraph")
    expected = packed.predict(graph)
    assert run("predict m.bignn g.bigraph --out p.csv") == 0
    head, *rows = rows_of("p.csv")
    assert head == ["node", *(f"{output[:-1]}_{number}" for number in range(3))]
    assert np.array_equal(np.array([row[1:] for row in rows], np.float32), expected)
    assert run("predict m.bignn g.bigraph --out p.npy") == 0
    assert np.array_equal(np.load("p.npy"), expected)
    capsys.readouterr()
    assert run("predict m.bignn g.bigraph --nodes 0,5 --json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["predictions"] == expected[[0, 5]].tolist()
    assert (report["output"], report["test_acc"]) == (output, None)
    assert run("predict m.bignn g.bigraph --nodes 5") == 0
    shown = [f"{cell:.3f}" if output == "values" else str(int(cell)) for cell in expected[5]]
    assert f"node 5: {' '.join(shown)}" in capsys.readouterr().out
    assert run("predict m.bignn g.bigraph --output label_probabilities --out q.csv") == 0
    expected = packed.predict(graph, output="label_probabilities")
    assert np.array_equal(np.array([row[1:] for row in rows_of("q.csv")[1:]], np.float32), expected)

"""Graphs from tables, by order and by id; faults in tables get one clear line."""

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import bignn
from bignn.cli import main
from bignn.errors import FileError, InputError
from bignn.graph.readers.convert import TableColumns, convert

ALL = ("edges", "features", "labels")


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    (tmp_path / "edges.csv").write_text("from,to,weight\nann,bob,2\nbob,cid,0.5\n")
    (tmp_path / "x.csv").write_text("who,age,height\nann,1,2.5\nbob,3,4\ncid,5,6\ndan,7,8\n")
    (tmp_path / "y.csv").write_text("who,job\ncid,smith\nann,baker\nbob,smith\n")
    return tmp_path


def test_names_become_numbers(tables: Path) -> None:
    paths = tables / "edges.csv", tables / "x.csv", tables / "y.csv"
    graph, notes = convert(*paths, columns=TableColumns(id="who", weight="weight"))
    assert graph.dense_x().tolist() == [[1, 2.5], [3, 4], [5, 6], [7, 8]]
    assert graph.edge_index.tolist() == [[0, 1], [1, 2]]
    assert graph.edge_weight is not None and graph.edge_weight.tolist() == [2, 0.5]
    assert graph.y is not None and graph.y.tolist() == [0, 1, 1, -1]
    assert graph.class_names == ("baker", "smith")
    assert graph.node_names is not None and list(graph.node_names) == ["ann", "bob", "cid", "dan"]
    assert not notes


def test_numbers_without_header_from_blanks_with_comments(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("# a SNAP file\n0 1\n1\t2\n2 0\n")
    (tmp_path / "x.csv").write_text("1,0\n0,1\n1,1\n")
    (tmp_path / "y.tsv").write_text("10\n9\n\n")
    unknown, _ = convert(
        tmp_path / "edges.txt", tmp_path / "x.csv", tmp_path / "y.tsv", no_header_in=ALL
    )
    assert unknown.y is not None and unknown.y.tolist() == [1, 0, -1]
    (tmp_path / "y.tsv").write_text("10\n9\n")
    with pytest.raises(InputError, match="has 2 labels for 3 nodes"):
        convert(tmp_path / "edges.txt", tmp_path / "x.csv", tmp_path / "y.tsv", no_header_in=ALL)
    (tmp_path / "y.tsv").write_text("10\n9\n10\n")
    graph, _ = convert(
        tmp_path / "edges.txt",
        tmp_path / "x.csv",
        tmp_path / "y.tsv",
        no_header_in=ALL,
        undirected=True,
    )
    assert sorted(graph.edge_index.T.tolist()) == [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1]]
    assert graph.class_names == ("9", "10")  # numeric order
    assert graph.node_names is None
    assert graph.y is not None and graph.y.tolist() == [1, 0, 1]


def test_parquet_equals_csv(tables: Path) -> None:
    for name, columns in {
        "edges": {"a": ["ann", "bob"], "b": ["bob", "cid"], "w": [2, 0.5]},
        "x": {"who": ["ann", "bob", "cid", "dan"], "age": [1, 3, 5, 7], "height": [2.5, 4.0, 6, 8]},
        "y": {"who": ["ann", "bob", "cid", "dan"], "job": ["baker", "smith", "smith", None]},
    }.items():
        parquet.write_table(pa.table(columns), tables / f"{name}.parquet")
    by_name, names = TableColumns(id="who"), ("edges", "x", "y")
    ours, _ = convert(*(tables / f"{name}.parquet" for name in names), columns=by_name)
    theirs, _ = convert(*(tables / f"{name}.csv" for name in names), columns=by_name)
    assert np.array_equal(ours.dense_x(), theirs.dense_x())
    assert np.array_equal(ours.edge_index, theirs.edge_index)
    assert ours.y is not None and theirs.y is not None and np.array_equal(ours.y, theirs.y)


def test_split_is_random_disjoint_and_seeded(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("a,b\n0,1\n")
    (tmp_path / "x.csv").write_text("f\n" + "1\n" * 50)
    (tmp_path / "y.csv").write_text("c\n" + "u\nv\n" * 25)

    def split(seed: int) -> list[list[int]]:
        graph, _ = convert(
            tmp_path / "e.csv",
            tmp_path / "x.csv",
            tmp_path / "y.csv",
            split=(60, 20, 20),
            seed=seed,
        )
        parts = [graph.train_idx, graph.val_idx, graph.test_idx]
        return [part.tolist() for part in parts if part is not None]

    assert [len(part) for part in split(0)] == [30, 10, 10]
    assert sorted(node for part in split(0) for node in part) == list(range(50))
    assert split(0) == split(0) != split(1)


def test_undirected_merges_and_adds_weights(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("a,b,w\n0,1,1\n1,0,2\n2,3,1\n2,3,5\n1,1,4\n")
    (tmp_path / "x.csv").write_text("f\n" + "1\n" * 4)
    columns = TableColumns(weight="w")
    graph, _ = convert(tmp_path / "e.csv", tmp_path / "x.csv", undirected=True, columns=columns)
    assert graph.edge_weight is not None
    edges = [
        (*pair, weight)
        for pair, weight in zip(graph.edge_index.T.tolist(), graph.edge_weight, strict=True)
    ]
    assert edges == [(0, 1, 3), (1, 0, 3), (1, 1, 4), (2, 3, 6), (3, 2, 6)]


def test_bad_splits_are_refused(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("a,b\n0,1\n")
    (tmp_path / "x.csv").write_text("f\n" + "1\n" * 20)
    for split, line in (
        ((0.6, 0.2, 0.2), r"percentages such as 60,20,20, got .*; multiply fractions by 100"),
        ((98, 1, 1), r"at least one node per part, got none for val_idx \(1 %\)"),
        ((0, 50, 50), "percentages with a share for training and for validation, got 0,50,50"),
        ((60, 40), "three percentages adding up to at most 100"),
        ((90, 20, 10), "three percentages adding up to at most 100"),
        ((-1, 50, 50), "three percentages adding up to at most 100"),
    ):
        with pytest.raises(InputError, match=f"'split' must be {line}"):
            convert(tmp_path / "e.csv", tmp_path / "x.csv", tmp_path / "x.csv", split=split)


def test_command_writes_a_graph_that_loads(
    tables: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tables / "graph.npz"
    arguments = ["convert", str(out), "--edges", str(tables / "edges.csv"), "--features"]
    arguments += [str(tables / "x.csv"), "--labels", str(tables / "y.csv"), "--id", "who"]
    assert main([*arguments, "--undirected"]) == 0
    shown = capsys.readouterr().out
    assert "4 nodes with names, 4 directed edges, 2 features, 2 classes" in shown
    assert "edges go from 'from' to 'to'; 'weight' is not used (for weights: --weight-" in shown
    graph = bignn.load(out)
    assert graph.num_edges == 4 and graph.edge_weight is None
    assert graph.class_names == ("baker", "smith")
    assert main([*arguments, "--weight-column", "weight", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["classes"], report["notes"]) == (["baker", "smith"], [])
    weighted = bignn.load(out)
    assert weighted.edge_weight is not None and weighted.edge_weight.tolist() == [2, 0.5]
    assert weighted.node_names is not None and weighted.node_names[3] == "dan"


def test_bad_tables_get_one_clear_line(tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = {name: (tables / name).read_text() for name in ("edges.csv", "x.csv", "y.csv")}
    out = tables / "graph.npz"
    arguments = ["convert", str(out), "--edges", str(tables / "edges.csv"), "--features"]
    arguments += [str(tables / "x.csv"), "--labels", str(tables / "y.csv"), "--id", "who"]
    for change, message in (
        ({"edges.csv": "from,to\nann,eve\n"}, "node 'eve' has no row in the features"),
        ({"edges.csv": "from\nann\n"}, "has 1 column, expected one of sources and one of targets"),
        ({"edges.csv": "from,to\nann,\n"}, "column 'to' is empty in row 1"),
        ({"x.csv": "who,age\nann,1\nann,2\n"}, "node 'ann' has two rows"),
        ({"x.csv": "who,age\nann,old\n"}, "column 'age' is not numeric ('old' in row 1)"),
        ({"x.csv": "who,age\nann,1\nbob,\n"}, "column 'age' is empty in row 2 (1 missing cell)"),
        ({"x.csv": "who,age\nann,1\n,2\n"}, "column 'who' is empty in row 2"),
        ({"x.csv": "name,age\nann,1\n", "y.csv": "job\na\n"}, "--id must be a column of"),
        ({"x.csv": "name,age\nann,1\n"}, "'name', seems to name the nodes; pass --id name"),
        ({"x.csv": "who,age\nann,1,2\n"}, "row 1 has 3 cells, expected 2"),
        ({"x.csv": "1,2\n3,4\n"}, "seems to have no header"),
        ({"x.csv": ""}, "x.csv' is empty; give a table"),
        ({"edges.csv": ""}, "edges.csv' is empty; give a table"),
        ({"x.csv": "who,age\n"}, "has no rows of features"),
        ({"x.csv": "who,age\nann,1\nbob,nan\n"}, "column 'age' is 'nan' in row 2"),
        ({"x.csv": "who,age\nann,1\nbob,inf\n"}, "column 'age' must hold finite numbers"),
        ({"x.csv": "who,age\nann,1\nbob,1e99\n"}, "range, got '1e99' in row 2"),
        ({"x.csv": "who;age\nann;1\nbob;2\n"}, "seems to have semicolons between its columns"),
        ({"y.csv": "job\nbaker\n"}, "has no column 'who'"),
        (
            {"y.csv": "who,job\nbob,x\nann,baker\nann,smith\n"},
            "labels node 'ann' twice, in rows 2 and 3; leave one of them",
        ),
        ({"y.csv": "who\nann\n"}, "has 1 column, expected one label per node beside 'who'"),
        ({"y.csv": "who,job,pay\nann,a,1\n"}, "beside 'who'; choose it: --label-column pay"),
    ):
        for name, text in (good | change).items():
            (tables / name).write_text(text)
        code = main(arguments)
        error = capsys.readouterr().err
        assert code == (2 if "error: --" in error else 1)
        assert message in error
        assert error.count("\n") == 1
        assert not out.exists()


def test_features_that_begin_with_ids_are_refused(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("a,b\n0,1\n")
    for text, column in (("ID,f\n7,1\n8,1\n", "ID"), ("k,f\n0,1\n1,1\n2,1\n", "k")):
        (tmp_path / "x.csv").write_text(text)
        with pytest.raises(FileError, match=f"the first column, '{column}', seems to name .*--id"):
            convert(tmp_path / "e.csv", tmp_path / "x.csv")
    for text in ("id,f\n7,1\n7,1\n", "f,id\n7,1\n8,2\n", "k\n0\n1\n2\n"):
        (tmp_path / "x.csv").write_text(text)
        convert(tmp_path / "e.csv", tmp_path / "x.csv")


def test_the_command_says_what_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "e.csv").write_text("a,b\n")
    (tmp_path / "x.csv").write_text("f\n" + "1\n" * 10)
    (tmp_path / "y.csv").write_text("c\n" + "0.5\n1.5\n" * 5)
    tables = [f"--edges={tmp_path / 'e.csv'}"]
    tables += [f"--features={tmp_path / 'x.csv'}", f"--labels={tmp_path / 'y.csv'}"]
    assert main(["convert", str(tmp_path / "g.npz"), *tables, "--split", "60,20,20"]) == 0
    shown = capsys.readouterr()
    assert "10 nodes, 0 directed edges, 1 feature, 2 classes, split 6/2/2" in shown.out
    assert "the edge table has no rows" in shown.out
    assert "note: labels are classes, and numbers such as 0.5 became 2 of them" in shown.out


def test_what_is_no_node_number_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("f\n1\n1\n")
    for name in ("99999999999999999999999", "²", "bob"):
        (tmp_path / "e.csv").write_text(f"a,b\n0,{name}\n")
        with pytest.raises(InputError, match=f"'{name}' is not a node number"):
            convert(tmp_path / "e.csv", tmp_path / "x.csv")


def test_labels_with_ids_never_go_by_position(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An id column beside the labels is refused until --id names it, and then it counts."""
    edges, x, y = tmp_path / "e.csv", tmp_path / "x.csv", tmp_path / "y.csv"
    edges.write_text("a,b\n0,1\n")
    x.write_text("f\n1\n2\n3\n")
    y.write_text("node,job\n2,smith\n0,baker\n1,cook\n")
    old, out = tmp_path / "old.npz", str(tmp_path / "out.npz")
    bignn.save(convert(edges, x)[0], old)
    line = (
        f"bignn convert: error: '{y}' has two columns; pass --id node if 'node' names the nodes, "
        "or --label-column job if rows are in the order of the features\n"
    )
    for given in (["--edges", str(edges), "--features", str(x)], ["--graph", str(old)]):
        command = ["convert", out, *given, "--labels", str(y)]
        assert main(command) == 1
        assert capsys.readouterr().err == line
        assert main([*command, "--id", "node"]) == 0
        found = bignn.load(out).y
        assert found is not None and found.tolist() == [0, 1, 2]  # baker, cook, smith
        capsys.readouterr()


def test_only_text_tables_have_comments(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("a,b\n#1,#2\n")
    (tmp_path / "x.csv").write_text("id,f\n#1,1\n#2,2\n")
    graph, _ = convert(tmp_path / "e.csv", tmp_path / "x.csv", columns=TableColumns(id="id"))
    assert graph.edge_index.tolist() == [[0], [1]]


def test_a_graph_is_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.npz", tmp_path / "new.npz"
    y = np.array([0, 1, -1, 0, 1, 0])
    edges = np.array([[0, 1], [1, 2]])
    np.savez(old, x=np.eye(6, dtype=np.float32), edge_index=edges, y=y, test_idx=[0])
    assert main(["convert", str(new), "--graph", str(old), "--split", "60,40,0"]) == 0
    found = bignn.load(new)
    assert found.test_idx is None  # the old one is gone
    assert found.train_idx is not None and found.val_idx is not None
    assert (len(found.train_idx), len(found.val_idx)) == (3, 2)
    assert sorted([*found.train_idx, *found.val_idx]) == [0, 1, 3, 4, 5]  # labelled ones
    assert (found.edge_index == edges).all()
    capsys.readouterr()
    for more, line in (
        (["--graph", str(old)], "--graph needs --labels FILE, or --split"),
        (["--graph", str(old), "--split", "60,20,20", "--id", "node"], "--id with --graph is for"),
        (
            ["--graph", str(old), "--split", "60,20,20", "--edges", "e.csv"],
            "--graph has its tables already; leave out --edges",
        ),
        (["--edges", "e.csv"], "--features is missing"),
        (["--graph", str(old), "--labels", "y", "--missing", "zero"], "leave out --missing"),
    ):
        assert main(["convert", str(new), *more]) == 2
        assert line in capsys.readouterr().err


def test_a_graph_gets_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new, table = tmp_path / "old.npz", tmp_path / "new.npz", tmp_path / "y.csv"
    np.savez(old, x=np.eye(4, dtype=np.float32), edge_index=np.array([[0, 1], [1, 2]]))
    command = ["convert", str(new), "--graph", str(old), "--labels", str(table)]
    table.write_text("job\nsmith\n\nbaker\nsmith\n")
    assert main(command) == 0
    assert "class 0: baker\n  class 1: smith" in capsys.readouterr().out
    found = bignn.load(new)
    assert found.y is not None and found.y.tolist() == [1, -1, 0, 1]
    assert found.train_idx is None
    table.write_text("node,job\n3,smith\n1,baker\n")
    assert main([*command, "--id", "node", "--split", "50,50,0"]) == 0
    found = bignn.load(new)
    assert found.y is not None and found.y.tolist() == [-1, 0, -1, 1]
    assert found.train_idx is not None and found.val_idx is not None
    assert sorted([*found.train_idx, *found.val_idx]) == [1, 3]
    capsys.readouterr()
    new.unlink()
    table.write_text("node,job\n7,smith\n")
    assert main([*command, "--id", "node"]) == 1
    assert "'7' is not a node number in 0..3" in capsys.readouterr().err
    np.savez(
        old, x=np.eye(2), edge_index=np.zeros((2, 0), np.int64), y=np.array([0, 1]), train_idx=[0]
    )
    table.write_text("node,job\n1,smith\n")
    assert main([*command, "--id", "node"]) == 1  # a training node loses its label
    assert "train_idx" in capsys.readouterr().err
    assert not new.exists()


def test_a_mask_is_refused_with_advice(tmp_path: Path) -> None:
    file = tmp_path / "masks.npz"
    mask = np.array([True, False])
    np.savez(file, x=np.eye(2), edge_index=np.zeros((2, 0), np.int64), train_mask=mask)
    with pytest.raises(FileError, match=r"train_idx=train_mask.nonzero\(\)\[0\]"):
        bignn.load(file)


def test_a_missing_pyarrow_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"x\.parquet' needs pyarrow, .*'\.\[parquet\]'"):
        convert(tmp_path / "x.parquet", tmp_path / "x.parquet")

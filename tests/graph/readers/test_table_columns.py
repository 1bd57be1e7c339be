"""Which columns of tables are read, and what becomes of cells that are no numbers."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import bignn
from bignn.cli import main
from bignn.errors import FileError
from bignn.graph.readers.convert import TableColumns, convert, with_labels

TABLE = (
    "paper,kind,age,open,label\np1,book,1,true,ML\np2,talk,,False,DB\np3,book,NA,true,ML\np4,,7,,\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("e.csv").write_text("id,source,target,year\n1,p1,p2,1.5\n2,p2,p3,2\n")
    Path("x.csv").write_text(TABLE)
    return tmp_path


def features(columns: TableColumns, **rules: Any) -> list[list[float]]:
    x = convert("e.csv", "x.csv", columns=columns, **rules).graph.dense_x()
    return [[round(float(cell), 4) for cell in row] for row in x]


@pytest.mark.usefixtures("folder")
def test_missing_cells_by_rule() -> None:
    age = TableColumns(id="paper", features=["age"])
    assert features(age, missing="zero") == [[1], [0], [0], [7]]
    assert features(age, missing="mean") == [[1], [4], [4], [7]]
    assert features(age, missing="median") == [[1], [4], [4], [7]]
    assert features(age, missing="flag") == [[1, 0], [0, 1], [0, 1], [7, 0]]
    Path("x.csv").write_text("paper,age\np1,1\np2,2\np3,9\np4,n/a\n")
    assert features(age, missing="mean")[3] == [4]
    assert features(age, missing="median")[3] == [2]
    Path("x.csv").write_text("paper,age,b\np1,,1\np2,,2\np3,null,3\n")
    both = TableColumns(id="paper")
    assert features(both, missing="mean") == [[0, 1], [0, 2], [0, 3]]  # nothing to take a mean of


@pytest.mark.usefixtures("folder")
def test_texts_by_rule() -> None:
    kind = TableColumns(id="paper", features=["kind", "open"])
    one_hot = [[1, 0, 1], [0, 1, 0], [1, 0, 1], [0, 0, 0]]
    for missing in ("zero", "mean", "median"):
        found = features(kind, categorical="one-hot", missing=missing)
        assert [row[:2] for row in found] == [row[:2] for row in one_hot]
    assert features(kind, categorical="one-hot", missing="zero") == one_hot
    codes = [[1, 0, 1, 0], [2, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]]
    assert features(kind, categorical="codes", missing="flag") == codes
    assert features(kind, categorical="ignore", missing="zero") == [[1], [0], [1], [0]]
    rows = "".join(f"p{number},v{number % 1025}\n" for number in range(2050))
    Path("x.csv").write_text(f"paper,kind\n{rows}")
    with pytest.raises(FileError, match=r"1025 different values, too many for one-hot .*--ignore"):
        features(TableColumns(id="paper"), categorical="one-hot")


@pytest.mark.usefixtures("folder")
def test_chosen_columns() -> None:
    usual = TableColumns(id="paper", label="label", ignored=["kind", "open"])
    graph, notes = convert("e.csv", "x.csv", columns=usual, missing="zero")
    assert graph.edge_index.tolist() == [[0, 1], [1, 2]]  # by 'source' and 'target'
    assert graph.edge_weight is None
    assert notes == [
        "edges go from 'source' to 'target'; 'id', 'year' are not used (for weights: "
        "--weight-column COLUMN)"
    ]
    assert graph.class_names == ("DB", "ML")
    assert graph.y is not None and graph.y.tolist() == [1, 0, 1, -1]
    assert graph.num_features == 1
    back = TableColumns(
        id="paper", features=["age"], source="target", target="source", weight="year"
    )
    graph, notes = convert("e.csv", "x.csv", columns=back, missing="zero")
    assert graph.edge_index.tolist() == [[1, 2], [0, 1]]
    assert graph.edge_weight is not None and graph.edge_weight.tolist() == [1.5, 2]
    assert notes == ["edges go from 'target' to 'source'; 'id' is not used"]
    Path("y.csv").write_text("who,note,topic\np3,x,b\np1,y,a\n")
    there = TableColumns(id="paper", label_id="who", label="topic", features=["age"])
    graph, _ = convert("e.csv", "x.csv", "y.csv", columns=there, missing="zero")
    assert graph.y is not None and graph.y.tolist() == [0, -1, 1, -1]
    # By names where the graph has names.
    other, _ = with_labels(graph, "y.csv", columns=TableColumns(id="who", label="note"))
    assert other.class_names == ("x", "y")
    assert other.y is not None and other.y.tolist() == [1, -1, 0, -1]


@pytest.mark.usefixtures("folder")
def test_features_that_may_be_labels_are_told_of() -> None:
    rules: dict[str, Any] = {"categorical": "one-hot", "missing": "zero"}
    _, notes = convert("e.csv", "x.csv", columns=TableColumns(id="paper"), **rules)
    line = "'label' is taken as a feature; if it holds the labels, pass"
    assert notes[1:] == [f"{line} --label-column label"]
    Path("y.csv").write_text("paper,topic\np1,-1\np2,NA\np3,1\n")
    _, notes = convert("e.csv", "x.csv", "y.csv", columns=TableColumns(id="paper"), **rules)
    assert notes[1:] == [
        f"{line} --ignore-columns label",
        "'-1' is a class of its own; leave a cell empty where the label is not known",
    ]


@pytest.mark.usefixtures("folder")
def test_nodes_without_features() -> None:
    graph, _ = convert("e.csv", make_features="degree")
    assert graph.node_names is not None and list(graph.node_names) == ["p1", "p2", "p3"]
    assert graph.dense_x().tolist() == [[0], [1], [1]]
    Path("y.csv").write_text("paper,topic\np9,b\np1,a\n")
    columns = TableColumns(id="paper")
    graph, _ = convert("e.csv", None, "y.csv", columns=columns, make_features="constant")
    assert graph.node_names is not None and list(graph.node_names) == ["p1", "p2", "p3", "p9"]
    assert graph.y is not None and graph.y.tolist() == [0, -1, -1, 1]
    Path("n.csv").write_text("a,b\n10,2\n2,0\n0,1\n")  # numbers in numeric order
    graph, _ = convert("n.csv", make_features="random:3")
    assert graph.node_names is not None and list(graph.node_names) == ["0", "1", "2", "10"]
    assert graph.edge_index.tolist() == [[3, 2, 0], [2, 0, 1]]
    Path("n.csv").write_text("a,b\n1,2\n2,0\n")
    assert convert("n.csv", make_features="constant").graph.node_names is None
    Path("y.csv").write_text("topic\na\nb\na\nb\n")
    assert convert("n.csv", None, "y.csv", make_features="constant").graph.num_nodes == 4
    Path("x.csv").write_text("paper\np1\np2\np3\np7\n")
    graph, _ = convert("e.csv", "x.csv", columns=columns, make_features="degree")
    assert graph.num_nodes == 4 and graph.num_features == 1


def test_lists_of_parquet_are_features(folder: Path) -> None:
    kinds = (pa.list_(pa.float32()), pa.list_(pa.float64(), 2), pa.large_list(pa.int8()))
    for kind in kinds:
        cells = pa.array([[1, 2], [3, 4], [5, 6]], kind)
        table = pa.table({"name": ["p1", "p2", "p3"], "more": [7, 8, 9], "embedding": cells})
        parquet.write_table(table, "x.parquet", row_group_size=2)
        graph, _ = convert("e.csv", "x.parquet", columns=TableColumns(id="name"))
        assert graph.dense_x().tolist() == [[7, 1, 2], [8, 3, 4], [9, 5, 6]]
    missing = pa.array([[1.0, 2.0], None, [4.0, None]])
    parquet.write_table(pa.table({"name": ["p1", "p2", "p3"], "e": missing}), "x.parquet")
    columns = TableColumns(id="name")
    with pytest.raises(FileError, match=r"column 'e' is empty in row 2 \(2 missing cells\)"):
        convert("e.csv", "x.parquet", columns=columns)
    graph, _ = convert("e.csv", "x.parquet", columns=columns, missing="mean")
    assert graph.dense_x().tolist() == [[1, 2], [2.5, 2], [4, 2]]
    graph, _ = convert("e.csv", "x.parquet", columns=columns, missing="flag")
    assert graph.dense_x().tolist() == [[1, 2, 0], [0, 0, 1], [4, 0, 1]]


def test_columns_of_parquet_that_are_no_numbers(folder: Path) -> None:
    names = pa.array(["p1", "p2", "p3"])
    columns = {
        "ragged": pa.array([[1.0], [1.0, 2.0], [3.0]]),
        "texts": pa.array([["a"], ["b"], ["c"]]),
        "struct": pa.array([{"k": 1}] * 3),
        "date": pa.array([datetime.date(2020, 1, 2)] * 3),
        "kind": pa.array(["u", "v", "u"]).dictionary_encode(),
    }
    for name, line in (
        ("ragged", "column 'ragged' must hold lists of one length, got 1, 2 items"),
        ("texts", "column 'texts' holds lists of string, not of numbers"),
        ("struct", "column 'struct' holds struct<k: int64>, expected numbers, text or lists"),
        ("date", r"column 'date' is not numeric \('2020-01-02' in row 1\); .*--ignore-columns"),
        ("kind", r"column 'kind' is not numeric \('u' in row 1\); make features of its 2 values"),
    ):
        parquet.write_table(
            pa.table({"n": names, "f": [1, 2, 3], name: columns[name]}), "x.parquet"
        )
        with pytest.raises(FileError, match=line):
            convert("e.csv", "x.parquet", columns=TableColumns(id="n"))
        without = TableColumns(id="n", ignored=[name])
        assert convert("e.csv", "x.parquet", columns=without).graph.num_features == 1
    # A column of edges that cannot be read is not asked for; nor is one without rows.
    Path("x.csv").write_text("p,f\np1,1\n")
    for cells, rows in ((pa.array([["a"]]), 1), (pa.array([1]), 0)):
        edges = pa.table({"s": ["p1"], "t": ["p1"], "w": cells}).slice(0, rows)
        parquet.write_table(edges, "f.parquet")
        _, notes = convert("f.parquet", "x.csv", columns=TableColumns(id="p"))
        assert notes[0].endswith("'w' is not used")
    with pytest.raises(FileError, match="column 'e' holds lists, which are features; name another"):
        parquet.write_table(pa.table({"e": [[1], [2]]}), "x.parquet")
        convert("e.csv", "x.parquet", columns=TableColumns(id="e"))
    # Whole numbers beside missing ones are no floats: node 7, not 7.0.
    parquet.write_table(pa.table({"n": [7, 8], "f": [1, 2]}), "x.parquet")
    parquet.write_table(pa.table({"n": [8, 7], "y": pa.array([None, 3])}), "y.parquet")
    Path("e.csv").write_text("a,b\n7,8\n")
    graph, _ = convert("e.csv", "x.parquet", "y.parquet", columns=TableColumns(id="n"))
    assert graph.y is not None and graph.y.tolist() == [0, -1]
    assert graph.class_names == ("3",)
    # Nor are they rounded; and whole floats, as pandas has them, are the same classes.
    for cells, name in (
        (pa.array([2**53 + 1, None]), str(2**53 + 1)),
        (pa.array([4.0, None]), "4"),
    ):
        parquet.write_table(pa.table({"n": [8, 7], "y": cells}), "y.parquet")
        graph, _ = convert("e.csv", "x.parquet", "y.parquet", columns=TableColumns(id="n"))
        assert graph.class_names == (name,)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("tables", "flags", "line"),
    [
        (
            {},
            "",
            "column 'paper' is not numeric ('p1' in row 1); if it names the nodes, pass --id "
            "paper, otherwise leave it out: --ignore-columns paper",
        ),
        (
            {},
            "--id paper",
            "column 'kind' is not numeric ('book' in row 1); make features of its 2 "
            "values: --categorical one-hot, or leave it out: --ignore-columns kind",
        ),
        (
            {},
            "--id paper --ignore-columns kind --missing zero",
            "column 'label' is not numeric ('ML'"
            " in row 1); if it holds the labels, pass --label-column label",
        ),
        (
            {},
            "--id paper --ignore-columns kind",
            "column 'age' is empty in row 2 (2 missing cells); "
            "choose what stands for it: --missing zero, mean, median or flag",
        ),
        (
            {},
            "--id kind",
            "node 'book' has two rows by column 'kind'; pass --id paper if 'paper' names the nodes",
        ),
        ({}, "--id label", "node 'ML' has two rows by column 'label'; pass --id paper if"),
        (
            {"x.csv": ",f\np1,1\np2,2\n"},
            "",
            "pass --id '', otherwise leave it out: --ignore-columns ''",
        ),
        (
            {"x.csv": "my name,f\np1,1\np2,2\n"},
            "",
            "if it names the nodes, pass --id 'my name', other",
        ),
        ({}, "--id nope", "--id must be a column of 'x.csv' (paper, kind, age, open, label), got"),
        (
            {"x.csv": "f\n1\nx\n3\n4\n"},
            "",
            "column 'f' is not numeric ('x' in row 2); mend that cell",
        ),
        (
            {"x.csv": "pid,f\n30,1\n40,2\n", "e.csv": "a,b\n30,40\n"},
            "",
            "'30' is not a node number "
            "in 0..1; if column 'pid' of the features names the nodes, pass --id pid",
        ),
        (
            {"x.csv": "f\n1\n2\n", "e.csv": "a,b\n1,2\n"},
            "",
            "'2' is not a node number in 0..1; these "
            "seem to count from 1, nodes are counted from 0",
        ),
        (
            {"x.csv": "f\n1\n2\n", "e.csv": "0,1\n1,0\n"},
            "",
            "'e.csv' seems to have no header: its "
            "first row is ['0', '1']; pass --no-header-in edges",
        ),
        (
            {"x.csv": "f\n1\n2\n"},
            "--no-header-in nodes",
            "--no-header-in must be some of edges, feat",
        ),
        (
            {"x.csv": "f\n1\n2\n", "e.csv": "source,target,how\n0,1,3\n1,0,cites\n"},
            "--weight-column how",
            "'e.csv': column 'how' must hold weights, got 'cites' in row 2; leave --weight-column "
            "out for edges without weights",
        ),
        (
            {"x.csv": "f\n1\n2\n", "e.csv": "source,target,how,w\n0,1,3,1\n1,0,cites,2\n"},
            "--weight-column how",
            "in row 2; name a column of numbers (w), or leave --weight-column out",
        ),
        (
            {"x.csv": "f\n1\n2\n", "e.csv": "source,target,how\n0,1,3\n1,0,\n"},
            "--weight-column how",
            "'how' must hold a finite weight for every edge, got '' in row 2; give it one, or",
        ),
        (
            {},
            "--id paper --weight-column w",
            "--weight-column must be a column of 'e.csv' (id, sou",
        ),
        (
            {},
            "--id paper --source-column target",
            "'target' would be source and target; name the other one with --target-column",
        ),
        (
            {"x.csv": "paper,age,topic\na,1,red\nb,2,red\n"},
            "--id paper --label-column topik",
            "--label-column must be a column of 'x.csv' (paper, age, topic), got 'topik'",
        ),
        ({}, "--id paper --feature-columns age,z", "--feature-columns must be a column of 'x.csv'"),
        ({}, "--id paper --label-id who", "--label-id is for a table of labels; give --labels, or"),
        (
            {},
            "--id paper --feature-columns age --missing zero --make-features degree",
            "--make-features is for nodes without features, and 'x.csv' has some; leave it out",
        ),
        (
            {},
            "--id paper --categorical ignore --ignore-columns age,open",
            "'x.csv' has no columns of features; make some: --make-features degree, constant or",
        ),
        (
            {},
            "--id paper --make-features big",
            "--make-features must be 'degree', 'constant', 'ran",
        ),
        (
            {"y.csv": "topic,node\na,1\na,2\n", "x.csv": "f\n1\n2\n3\n", "e.csv": "a,b\n1,2\n"},
            "--labels y.csv",
            "'y.csv' has two columns; pass --id node if 'node' names the nodes, or "
            "--label-column topic if rows are in the order of the features",
        ),
        (
            {"y.csv": "who,topic\np1,a\n"},
            "--id paper --feature-columns age --missing zero --labels y.csv",
            "'y.csv' has no column 'paper' to name its nodes (it has 'who', 'topic'); name it "
            "with --label-id COLUMN",
        ),
    ],
)
def test_advice_leads_somewhere(
    tables: dict[str, str], flags: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in tables.items():
        Path(name).write_text(text)
    command = ["convert", "o.npz", "--edges", "e.csv", "--features", "x.csv", *flags.split()]
    assert main(command) in (1, 2)
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1
    assert not Path("o.npz").exists()


@pytest.mark.usefixtures("folder")
def test_tables_with_and_without_headers(capsys: pytest.CaptureFixture[str]) -> None:
    Path("e.txt").write_text("0 1\n1 2\n")
    Path("x.csv").write_text("f\n1\n2\n3\n")
    command = ["convert", "o.npz", "--edges", "e.txt", "--features", "x.csv"]
    assert main([*command, "--no-header-in", "edges", "--undirected"]) == 0
    assert "3 nodes, 4 directed edges, 1 feature" in capsys.readouterr().out
    assert bignn.load("o.npz").dense_x().tolist() == [[1], [2], [3]]


@pytest.mark.usefixtures("folder")
def test_the_index_that_pandas_writes_is_no_column() -> None:
    Path("e.csv").write_text(",a,b\n0,p2,p1\n1,p1,p3\n")
    Path("x.csv").write_text(",paper,f\n0,p1,5\n1,p2,6\n2,p3,7\n")
    graph, notes = convert("e.csv", "x.csv", columns=TableColumns(id="paper"))
    assert graph.edge_index.tolist() == [[1, 0], [0, 2]]
    assert graph.dense_x().tolist() == [[5], [6], [7]]
    assert not notes
    Path("x.csv").write_text(",f\np1,5\np2,6\np3,7\n")  # an index of names
    graph, _ = convert("e.csv", "x.csv", columns=TableColumns(id=""))
    assert graph.node_names is not None and list(graph.node_names) == ["p1", "p2", "p3"]


def test_numbers_beyond_float32_are_refused(folder: Path) -> None:
    Path("x.csv").write_text("paper,f\np1,1\np2,1e39\np3,3\n")
    with pytest.raises(FileError, match=r"finite numbers of float32's range, got '1e39' in row 2"):
        convert("e.csv", "x.csv", columns=TableColumns(id="paper"))
    parquet.write_table(
        pa.table({"p": ["p1", "p2"], "e": [[1.0, 2.0], [3.0, np.inf]]}), "x.parquet"
    )
    with pytest.raises(FileError, match=r"column 'e' must hold finite numbers .* in row 2"):
        convert("e.csv", "x.parquet", columns=TableColumns(id="p"))

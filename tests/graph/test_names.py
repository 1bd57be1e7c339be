"""Names of nodes and classes: kept by graphs, files and PyG's ``Data``; wrong ones are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data

import bignn
from bignn import FileError, Graph, InputError
from bignn.graph import Names, from_arrays, from_pyg, join, to_arrays, to_pyg

NAMES = ["p1", "bé", "漢字", "a, b"]
EDGES = np.array([[0, 1], [1, 2]])


def graph_of(**parts: Any) -> Graph:
    return Graph(np.eye(4, dtype=np.float32), EDGES, **parts)


def test_names_are_a_sequence() -> None:
    names = Names.of(NAMES)
    assert len(names) == 4
    assert list(names) == NAMES
    assert [names[number] for number in (0, 2, -1)] == ["p1", "漢字", "a, b"]
    assert names[1:3] == ["bé", "漢字"]
    assert names.numbers(["a, b", "p1", "a, b"]).tolist() == [3, 0, 3]
    assert "bé" in names and "b" not in names
    assert names == Names.of(tuple(NAMES)) != Names.of(NAMES[::-1])
    assert Names.of(names) is names
    assert names.data.nbytes == len("".join(NAMES).encode())
    with pytest.raises(IndexError):
        names[4]
    match = r"^'nodes' must be names of nodes, got 'p2'; names are such as 'p1', 'bé', '漢字'$"
    with pytest.raises(InputError, match=match):
        names.numbers(["p1", "p2"])


@pytest.mark.parametrize(
    "given", [[7, 3, 20], np.array([7, 3, 20]), torch.tensor([7, 3, 20]), ("7", 3, np.int8(20))]
)
def test_whole_numbers_are_names_too(given: Any) -> None:
    assert list(Names.of(given)) == ["7", "3", "20"]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (["a", "b", "a"], "different names, got 'a' more than once"),
        (["a", ""], "names that are not empty, got an empty one at 1"),
        (["a", "b\nc"], "names without line breaks and control characters, got one at 1"),
        (["a", "\x7f"], "names without line breaks and control characters, got one at 1"),
        (["a", 1.5], "a list of texts or whole numbers, got one of float"),
        (["a", None], "a list of texts or whole numbers, got one of NoneType"),
        ([True, False], "a list of texts or whole numbers, got one of bool"),
        ("abcd", "a list of texts or whole numbers, got str"),
        ({"a": 1}, "a list of texts or whole numbers, got dict"),
        (7, "a list of texts or whole numbers, got int"),
        (["\ud800"], r"text that UTF-8 can hold, got '\\ud800'"),
    ],
)
def test_wrong_names_are_refused(given: Any, line: str) -> None:
    with pytest.raises(InputError, match=f"^graph: 'node_names' must be {line}$"):
        graph_of(node_names=given)
    with pytest.raises(InputError, match=f"^graph: 'class_names' must be {line}$"):
        graph_of(class_names=given)


def test_names_must_be_as_many_as_what_they_name() -> None:
    with pytest.raises(InputError, match=r"'node_names' must be one name per node \(4 rows of x\)"):
        graph_of(node_names=NAMES[:3])
    y = np.array([0, 2, -1, 1])
    with pytest.raises(InputError, match=r"'class_names' must be a name for every class \(3 by"):
        graph_of(y=y, class_names=["a", "b"])
    named = graph_of(y=y, class_names=["a", "b", "c", "d"])
    assert named.num_classes == 4  # one of them has no node here
    assert graph_of(y=y).num_classes == 3


def test_files_keep_names(tmp_path: Path) -> None:
    y = np.array([0, 1, -1, 1])
    named = graph_of(y=y, node_names=NAMES, class_names=["é", "x y"])
    bignn.save(named, tmp_path / "named.npz")
    found = bignn.load(tmp_path / "named.npz")
    assert found.node_names == Names.of(NAMES)
    assert found.class_names == ("é", "x y")
    # Training does not read names, so a run can go on after they were added.
    assert found.digest() == graph_of(y=y).digest()
    assert "node_names" not in to_arrays(graph_of(y=y))
    # As NumPy's users write them.
    arrays: dict[str, Any] = {"x": np.eye(4), "edge_index": EDGES, "y": y}
    np.savez(tmp_path / "text.npz", node_names=np.array(NAMES), class_names=["u", "v"], **arrays)
    text = bignn.load(tmp_path / "text.npz")
    assert text.node_names == found.node_names
    assert text.class_names == ("u", "v")


def test_wrong_names_in_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    arrays: dict[str, Any] = {"x": np.eye(4), "edge_index": EDGES}
    good = Names.of(NAMES)
    for names, line in (
        ({"node_names": np.array(NAMES, dtype=object)}, "holds Python objects, expected plain"),
        ({"node_names": np.array([1.5, 2, 3, 4])}, "'node_names' must be text, or UTF-8 with"),
        ({"node_names": np.array(["a", "b", "a", "c"])}, "must be different names, got 'a'"),
        ({"node_names": np.array(NAMES[:3])}, "'node_names' must be one name per node"),
        ({"node_names": good.data}, "'node_names' must be text, or UTF-8 with"),
        ({"node_names_offsets": good.offsets}, "is there without 'node_names'"),
        ({"node_names": good.data, "node_names_offsets": good.offsets[::-1]}, "do not rise"),
        ({"y": np.array(["a", "b", "c", "d"])}, "array 'y' holds values of type <U1"),
        ({"class_names": np.array(["", ""])}, "'class_names' .*expected plain|not empty"),
    ):
        np.savez(path, **arrays, **names)
        with pytest.raises(FileError, match=line) as error:
            bignn.load(path)
        assert "\n" not in str(error.value)
    twice = Names(*_two_alike())
    with pytest.raises(InputError, match="different names, got 'ab' more than once"):
        from_arrays({**arrays, "node_names": twice.data, "node_names_offsets": twice.offsets})


def _two_alike() -> tuple[Any, Any]:
    return np.frombuffer(b"ababcd", dtype=np.uint8), np.array([0, 2, 4, 5, 6])


@pytest.mark.parametrize("attribute", ["class_names", "label_names"])
def test_a_data_has_names(attribute: str) -> None:
    data = Data(x=torch.eye(4), edge_index=torch.from_numpy(EDGES), y=torch.tensor([0, 1, 1, 0]))
    data.node_names = NAMES
    data[attribute] = ["u", "v"]
    graph = from_pyg(data)
    assert graph.node_names == Names.of(NAMES)
    assert graph.class_names == ("u", "v")
    again = to_pyg(graph)
    assert list(again.node_names) == NAMES
    assert list(again.class_names) == ["u", "v"]
    # What PyG cuts out of a graph has not the names of all of it.
    moved = again.to("cpu").clone()
    assert list(from_pyg(moved).node_names or ()) == NAMES
    part = moved.subgraph(torch.tensor([0, 2]))
    with pytest.warns(UserWarning, match="'node_names' are those of 4 nodes, not of 2, and are l"):
        assert from_pyg(part).node_names is None
    data.node_names = NAMES[:2]
    with pytest.raises(InputError, match="'node_names' must be one name per node"):
        from_pyg(data)
    # Of many graphs, PyG makes lists of lists.
    data.node_names = NAMES
    joined, _ = join(Batch.from_data_list([data, data]))
    assert joined.num_nodes == 8
    assert joined.node_names is None and joined.class_names is None

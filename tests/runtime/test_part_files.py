"""Parts of graphs: who owns what, what is exchanged, and files that are whole or refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import make_arrays, make_graph
from hypothesis import given
from hypothesis import strategies as st

from bignn import FileError, Graph, InputError
from bignn.cli import main
from bignn.graph import SPLITS, from_arrays
from bignn.runtime import tensors
from bignn.runtime.parts import assignment
from bignn.runtime.parts.graph_part import GraphPart, cut
from bignn.runtime.parts.part_files import is_partition, open_part, part_path, write_parts


def assert_parts_of(graph: Graph, parts: list[GraphPart]) -> None:
    """Nodes, edges and features are there once, and halos are what others send."""
    assert_connected(graph, parts)
    for part in parts:
        assert np.array_equal(part.features_graph().dense_x(), graph.dense_x()[part.nodes])


def assert_connected(graph: Graph, parts: list[GraphPart]) -> None:
    """Every node and edge is there once, and halos are what others send."""
    assert sorted(np.concatenate([part.nodes for part in parts]).tolist()) == list(
        range(graph.num_nodes)
    )
    found = []
    for part in parts:
        names = np.concatenate([part.nodes, part.halo])
        source, target, _ = part.edges
        found += list(zip(names[source].tolist(), names[target].tolist(), strict=True))
        assert not set(part.nodes.tolist()) & set(part.halo.tolist())
        assert set(part.halo.tolist()) <= set(names[source].tolist())
        for other in parts:
            asked = part.halo[part.halo_offsets[other.number] : part.halo_offsets[other.number + 1]]
            begin, end = other.sent_offsets[part.number : part.number + 2]
            assert np.array_equal(asked, other.nodes[other.sent[begin:end]])
    assert sorted(found) == sorted(map(tuple, graph.edge_index.T.tolist()))
    assert len({part.partition.digest for part in parts}) == 1


@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 99))
def test_ranges_cover_any_graph(num_nodes: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, num_nodes, (2, int(rng.integers(0, 4 * num_nodes))))
    graph = Graph(rng.random((num_nodes, 3)).astype(np.float32), edges)
    count = min(count, num_nodes)
    parts = list(cut(graph, count, "ranges"))
    assert len(parts) == count
    assert_parts_of(graph, parts)
    assert all((np.diff(part.nodes) > 0).all() for part in parts)


def test_metis_cuts_fewer_edges_than_ranges(graph: Graph) -> None:
    pytest.importorskip("pymetis")
    for count in (1, 2, 4, 60):
        parts = list(cut(graph, count, "metis"))
        assert_parts_of(graph, parts)
        assert parts[0].partition.by == "metis"
        assert parts[0].partition.digest == next(cut(graph, count, "metis")).partition.digest
    cuts = [next(cut(graph, 2, by)).partition.num_cut for by in ("metis", "ranges")]
    assert cuts[0] < cuts[1]  # two communities, whose nodes are numbered in turn


def test_auto_takes_ranges_where_metis_is_missing_or_too_slow(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignment, "MOST_EDGES_OF_METIS", graph.num_edges - 1)
    assert assignment.assign(graph, 2)[1] == "ranges"
    monkeypatch.undo()
    monkeypatch.setattr(assignment, "find_spec", lambda _name: None)
    assert assignment.assign(graph, 2)[1] == "ranges"


def test_wrong_arguments_are_one_line(graph: Graph, tmp_path: Path) -> None:
    for count in (0, 61, True, 1.5):
        with pytest.raises(InputError, match="'num_parts' must be a number of parts from 1 to 60"):
            list(cut(graph, count))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'by' must be one of"):
        list(cut(graph, 2, "chance"))  # type: ignore[arg-type]
    typed = replace(graph, edge_type=np.zeros(graph.num_edges, dtype=np.int64))
    with pytest.raises(InputError, match="'edge_type' cannot be cut"):
        list(cut(typed, 2))
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="'out' must be a folder"):
        write_parts(graph, 2, tmp_path / "file")


def test_files_hold_all_of_a_part(tmp_path: Path) -> None:
    arrays = make_arrays()
    count = int(arrays["edge_index"].shape[1])
    weight = np.random.default_rng(0).random((count,)).astype(np.float32)
    named = {**arrays, "edge_weight": weight, "class_names": np.array(["a", "b"])}
    for graph in (from_arrays(arrays), from_arrays(named), make_graph(30, 8)):
        write_parts(graph, 3, tmp_path / "parts")
        assert is_partition(tmp_path / "parts")
        for part in cut(graph, 3):
            opened = open_part(tmp_path / "parts", part.number, 3)
            assert opened.partition == part.partition
            for key in ("nodes", "halo", "sent", "offsets", "ids", "weights", "x", "y", *SPLITS):
                mine, theirs = getattr(part, key), getattr(opened, key)
                assert (mine is None) == (theirs is None), key
                assert mine is None or np.array_equal(mine, theirs), key


def test_fewer_parts_leave_none_of_the_old_ones(graph: Graph, tmp_path: Path) -> None:
    write_parts(graph, 4, tmp_path)
    (tmp_path / "other.txt").write_text("mine")
    write_parts(graph, 2, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "other.txt",
        "part-0.bigpart",
        "part-1.bigpart",
    ]


def test_missing_and_exchanged_files_are_one_line(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"has no parts of a graph .*bignn partition GRAPH -k 2"):
        open_part(tmp_path, 0, 2)
    write_parts(graph, 4, tmp_path)
    for number in (0, 3):
        with pytest.raises(InputError, match=r"has 4 parts, .* and 2 run; start 'torchrun"):
            open_part(tmp_path, number, 2)
    shutil.copy(part_path(tmp_path, 0), part_path(tmp_path, 1))
    with pytest.raises(FileError, match=r"part-1.bigpart' is part 0 of its graph"):
        open_part(tmp_path, 1, 4)
    part_path(tmp_path, 2).unlink()
    with pytest.raises(FileError, match=r"part-2.bigpart' does not exist"):
        open_part(tmp_path, 2, 4)
    write_parts(graph, 3, tmp_path / "three")
    shutil.copy(part_path(tmp_path / "three", 1), part_path(tmp_path, 1))
    with pytest.raises(FileError, match=r"1.bigpart' and 'part-0.bigpart' are parts of different"):
        open_part(tmp_path, 1, 4)
    write_parts(graph, 1, tmp_path)
    with pytest.raises(InputError, match="has one part, for one process, and 2 run"):
        open_part(tmp_path, 0, 2)


def test_a_flipped_byte_is_refused(graph: Graph, tmp_path: Path) -> None:
    write_parts(graph, 2, tmp_path)
    path = part_path(tmp_path, 0)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 150).tolist():
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(FileError) as caught:
            open_part(tmp_path, 0, 2)
        assert "\n" not in str(caught.value)


def test_every_wrong_array_is_refused(tmp_path: Path) -> None:
    """With digests that are right, as a program that writes such files could make them."""
    graph = from_arrays(make_arrays())
    write_parts(graph, 2, tmp_path)
    path = part_path(tmp_path, 0)
    arrays, header = tensors.read(path)
    arrays = {name: np.array(array) for name, array in arrays.items()}

    def without(key: str) -> dict[str, np.ndarray]:
        return {name: array for name, array in arrays.items() if name != key}

    last = arrays["ids"].copy()
    last[0] = len(arrays["nodes"]) + len(arrays["halo"])
    reversed_nodes = arrays["nodes"][::-1]
    offsets = arrays["offsets"].copy()
    offsets[1] = -1
    wrong = [
        (without("halo"), "'halo' is missing"),
        ({**arrays, "more": arrays["y"]}, "unknown array 'more'"),
        ({**arrays, "ids": last}, "array 'ids' has numbers"),
        ({**arrays, "nodes": reversed_nodes}, "'nodes' does not rise"),
        ({**arrays, "nodes": arrays["nodes"] + 60}, "'nodes' has numbers that are not nodes"),
        ({**arrays, "offsets": offsets}, "'offsets' does not rise"),
        ({**arrays, "halo": arrays["nodes"][: len(arrays["halo"])]}, "'halo' has nodes twice"),
        ({**arrays, "sent": arrays["sent"] + 60}, "'sent' has numbers"),
        ({**arrays, "halo_offsets": arrays["sent_offsets"][:2]}, "'halo_offsets' must be"),
        ({**arrays, "y": arrays["y"] + 2}, "'y' has numbers that are not classes"),
        ({**arrays, "train_idx": arrays["train_idx"] + 60}, "'train_idx' has numbers"),
        ({**without("y")}, "comes without 'y'"),
        ({**arrays, "x": arrays["x"][:, 1:]}, "'x' must be"),
        ({**arrays, "x": arrays["x"] * np.float32("nan")}, "not finite"),
        ({**arrays, "weights": -np.ones(len(arrays["ids"]), np.float32)}, "negative"),
        ({**arrays, "sent_offsets": np.array([0, len(arrays["sent"])] * 2)[:3]}, "sent_offsets"),
    ]
    with np.errstate(all="ignore"):
        for some, line in wrong:
            tensors.write(path, some, header)
            with pytest.raises(FileError, match=line):
                open_part(tmp_path, 0, 2)
    facts = header["partition"]
    for changed, line in (
        ({"version": 2}, "version 2 is not known"),
        ({"number": 2}, "number is not in 0..1"),
        ({"other": 1}, "unknown part 'other'"),
        ({"partition": {}}, "not complete"),
        ({"partition": facts | {"num_parts": 5000}}, "out of range"),
        ({"partition": facts | {"num_nodes": "many"}}, "'num_nodes' is 'many'"),
        ({"partition": facts | {"class_names": ["a", "a"]}}, "a"),
        ({"format": "bignn-graph"}, "holds a packed graph"),
    ):
        tensors.write(path, arrays, header | changed)
        with pytest.raises(FileError, match=line):
            open_part(tmp_path, 0, 2)


def test_the_command_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "toy.npz", **make_arrays())  # type: ignore[arg-type]
    arguments = ["partition", str(tmp_path / "toy.npz"), "-k", "3", "-o", str(tmp_path / "out")]
    assert main([*arguments, "--by", "ranges", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [sum(part[key] for part in report["parts"]) for key in ("nodes", "edges", "halo")] == [
        report["num_nodes"],
        report["num_edges"],
        report["halo_rows"],
    ]
    assert main([*arguments, "--by", "ranges"]) == 0
    assert "60 nodes in 3 parts by ranges" in capsys.readouterr().out
    assert main([*arguments[:3], "99", *arguments[4:]]) == 2
    assert "--num-parts must be a number of parts from 1 to 60, got 99" in capsys.readouterr().err

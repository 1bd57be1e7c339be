"""Graphs and their files: what is right works, what is wrong gets one clear line."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Arrays, make_arrays

import bignn
from bignn.cli import main
from bignn.errors import FileError, InputError
from bignn.graph import EMBEDDED, SparseRows, from_arrays, to_arrays
from bignn.graph.graph import ARRAYS
from bignn.graph.readers.npz import read_npz, write_npz


def test_embedded_graphs_are_the_published_ones() -> None:
    for name, nodes, edges, features, classes, train in (
        ("cora", 2708, 10556, 1433, 7, 140),
        ("citeseer", 3327, 9104, 3703, 6, 120),
        ("pubmed", 19717, 88648, 500, 3, 60),
    ):
        graph = bignn.load(name)
        assert repr(graph) == (
            f"Graph('{name}', nodes={nodes}, edges={edges}, features={features}, "
            f"classes={classes}, split={train}/500/1000)"
        )
        pairs = set(map(tuple, graph.edge_index.T.tolist()))
        assert len(pairs) == edges
        assert all((target, source) in pairs for source, target in pairs)


def test_a_graph_survives_the_round_trip_through_a_file(tmp_path: Path, arrays: Arrays) -> None:
    arrays["edge_weight"] = np.linspace(0, 1, arrays["edge_index"].shape[1])
    sparse = to_arrays(bignn.load("cora"))
    for number, given in enumerate((arrays, sparse)):
        graph = from_arrays(given)
        path = tmp_path / f"{number}.npz"
        bignn.save(graph, path)
        again = bignn.load(path)
        assert np.array_equal(graph.dense_x(), again.dense_x())
        for key in ("edge_index", "edge_weight", "y", "train_idx", "val_idx", "test_idx"):
            before, after = getattr(graph, key), getattr(again, key)
            assert (before is None) == (after is None)
            assert before is None or (np.array_equal(before, after) and before.dtype == after.dtype)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.npz", "1.npz"]


def test_a_name_is_looked_up_in_the_data_folder(
    tmp_path: Path, arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_npz(tmp_path / "mine.npz", arrays)
    with pytest.raises(InputError, match=r"unknown dataset 'mine'.*\$BIGNN_DATA \(not set\)"):
        bignn.load("mine")
    monkeypatch.setenv("BIGNN_DATA", str(tmp_path))
    assert bignn.load("mine").num_nodes == 60


def test_sparse_and_dense_features_are_the_same_graph() -> None:
    graph = bignn.load("citeseer")
    assert isinstance(graph.x, SparseRows)
    dense = graph.dense_x()
    assert dense.sum() == graph.x.indices.size
    row = graph.x.indices[graph.x.indptr[7] : graph.x.indptr[8]]
    assert np.flatnonzero(dense[7]).tolist() == sorted(row.tolist())


def changed(**changes: Any) -> Arrays:
    arrays = make_arrays()
    for key, value in changes.items():
        if value is None:
            del arrays[key]
        else:
            arrays[key] = np.asarray(value)
    return arrays


def with_entry(key: str, index: Any, value: Any) -> Arrays:
    arrays = make_arrays()
    arrays[key] = arrays[key].copy()
    arrays[key][index] = value
    return arrays


BAD = {
    "stray array": (changed(labels=[1]), r"unknown arrays \['labels'\]"),
    "edge id too large": (
        with_entry("edge_index", (0, 3), 60),
        r"'edge_index' must be a node id in 0\.\.59, got 60",
    ),
    "edge id negative": (
        with_entry("edge_index", (1, 0), -1),
        r"'edge_index' must be a node id .* got -1",
    ),
    "edge ids float": (
        changed(edge_index=np.zeros((2, 3))),
        "'edge_index' must be integers, got dtype float64",
    ),
    "edge shape": (
        changed(edge_index=np.zeros((3, 2), int)),
        r"'edge_index' must be of shape \[2, E\]",
    ),
    "no edges given": (changed(edge_index=None), "'edge_index' is missing"),
    "nan": (
        with_entry("x", (4, 2), np.nan),
        r"'x' must be finite, got nan at \[4, 2\] \(1 in all\)",
    ),
    "inf": (with_entry("x", (0, 0), np.inf), "'x' must be finite, got inf"),
    "no features": (changed(x=None), "features are missing"),
    "zero features": (changed(x=np.zeros((60, 0))), "'x' must be at least one feature per node"),
    "zero nodes": (changed(x=np.zeros((0, 3))), "'x' must be at least one node"),
    "flat features": (changed(x=np.zeros(60)), "'x' must be a matrix"),
    "text features": (changed(x=np.array([["a"]])), "'x' must be real numbers"),
    "short y": (
        changed(y=np.zeros(59, int)),
        r"'y' must be one class per node \(60 rows of x\), got 59",
    ),
    "multi-label y": (changed(y=np.zeros((60, 4), int)), "multi-label"),
    "float y": (changed(y=np.zeros(60)), "'y' must be integers"),
    "y below -1": (with_entry("y", 3, -2), "'y' must be class ids from 0 below 65536, or -1"),
    "overlap": (changed(val_idx=make_arrays()["train_idx"]), "'val_idx' must be disjoint"),
    "empty split": (changed(test_idx=np.zeros(0, int)), "'test_idx' must be at least one node"),
    "split out of range": (changed(test_idx=[60]), "'test_idx' must be a node id"),
    "split twice": (changed(test_idx=[make_arrays()["test_idx"][0]] * 2), "free of repetitions"),
    "unlabelled split": (with_entry("y", make_arrays()["train_idx"][0], -1), "whose y is -1"),
    "split without y": (changed(y=None), "'train_idx' must be given together with 'y'"),
    "weights": (changed(edge_weight=[1.0]), "'edge_weight' must be one number per edge"),
    "negative weight": (
        changed(edge_weight=-np.ones(make_arrays()["edge_index"].shape[1])),
        "non-negative",
    ),
    "huge weight": (
        changed(edge_weight=np.full(make_arrays()["edge_index"].shape[1], 1e38)),
        r"'edge_weight' must be 1e\+30 at most in all",
    ),
}


def test_bad_graphs_get_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.npz"
    for case, (arrays, message) in BAD.items():
        with pytest.raises(InputError, match=message) as caught:
            from_arrays(arrays, name=str(path))
        line = str(caught.value)
        assert "\n" not in line, case
        assert line.startswith(f"{path}: "), case
        if case in ("text features", "stray array"):  # their files are refused in other words
            continue
        np.savez(path, **arrays)  # type: ignore[arg-type]
        with pytest.raises(InputError) as caught:
            bignn.load(path)
        assert str(caught.value) == line
    assert main(["train", str(path), "--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == f"bignn train: error: {line}\n"
    assert [file.name for file in tmp_path.iterdir()] == ["bad.npz"]
    np.savez(path, **BAD["stray array"][0])  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"bad\.npz': unknown arrays \['labels'\]"):
        bignn.load(path)


def test_bad_sparse_features() -> None:
    arrays = to_arrays(bignn.load("cora"))
    for key, value, message in (
        ("x_indptr", [0, 5], "'x_indptr' must be of length nodes"),
        ("x_indices", [1433] * 49216, "'x_indices' must be a feature id"),
        ("x_shape", [-1, 4], "'x_shape' must be two sizes"),
        ("x_data", [1.0], "'x_data' must be one value per index"),
        ("x_data", [np.nan] * 49216, "'x_data' must be finite"),
    ):
        with pytest.raises(InputError, match=message):
            from_arrays(arrays | {key: np.asarray(value)})


def test_odd_but_right_graphs_work() -> None:
    arrays = make_arrays()
    isolated_and_looped = np.array([[0, 0, 1, 1], [0, 1, 0, 0]])
    graph = from_arrays(arrays | {"edge_index": isolated_and_looped})
    assert graph.num_edges == 4
    assert from_arrays({"x": np.ones((1, 1)), "edge_index": np.zeros((2, 0), int)}).num_nodes == 1
    lonely_class = arrays["y"].copy()
    lonely_class[5] = 9
    assert from_arrays(arrays | {"y": lonely_class}).num_classes == 10


def test_damaged_files_get_one_clear_line(tmp_path: Path) -> None:
    whole = tmp_path / "whole.npz"
    write_npz(whole, make_arrays())
    data = whole.read_bytes()
    bad = tmp_path / "bad.npz"
    for size in [0, 1, 10, len(data) // 2, len(data) - 1]:
        bad.write_bytes(data[:size])
        with pytest.raises(FileError, match=r"bad\.npz"):
            bignn.load(bad)
    bad.write_bytes(np.random.default_rng(0).bytes(1000))
    with pytest.raises(FileError, match=r"not a readable \.npz"):
        bignn.load(bad)
    with pytest.raises(FileError, match="does not exist"):
        bignn.load(tmp_path / "none.npz")
    with pytest.raises(FileError, match="is a folder"):
        read_npz(tmp_path, ARRAYS)


def test_flipped_bytes_never_crash(tmp_path: Path) -> None:
    whole = tmp_path / "whole.npz"
    write_npz(whole, make_arrays())
    data = whole.read_bytes()
    rng = np.random.default_rng(0)
    bad = tmp_path / "bad.npz"
    for _ in range(300):
        broken = bytearray(data)
        for position in rng.integers(0, len(data), rng.integers(1, 5)):
            broken[position] = rng.integers(0, 256)
        bad.write_bytes(broken)
        try:
            bignn.load(bad)
        except InputError as error:
            assert "\n" not in str(error)


def test_a_damaged_directory_loses_no_array(tmp_path: Path) -> None:
    whole, bad = tmp_path / "whole.npz", tmp_path / "bad.npz"
    write_npz(whole, make_arrays())
    data = whole.read_bytes()
    digest = bignn.load(whole).digest()
    refused = 0
    for position in range(data.index(b"PK\1\2"), len(data)):
        for bit in (0, 4, 7):
            broken = bytearray(data)
            broken[position] ^= 1 << bit
            bad.write_bytes(broken)
            try:
                assert bignn.load(bad).digest() == digest, (position, bit)
            except FileError:
                refused += 1
    assert refused > 100
    with zipfile.ZipFile(bad, "w") as archive:  # written as to a pipe, sizes behind the data
        archive.fp.seekable = lambda: False  # type: ignore[union-attr,method-assign]
        archive._seekable = False  # type: ignore[attr-defined]
        for name, array in make_arrays().items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.asarray(array))
    assert bignn.load(bad).digest() == digest


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "objects.npz"
    np.savez(path, x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(FileError, match="holds Python objects, expected plain numbers"):
        bignn.load(path)


def test_a_zip_bomb_is_refused_before_it_expands(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    header = io.BytesIO()
    shape = (1 << 20, 1 << 10)
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": shape}
    )
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as member,
    ):
        member.write(header.getvalue())
        for _ in range(130):
            member.write(bytes(1 << 21))  # a quarter GiB of zeros, and the header claims four
    assert path.stat().st_size < 1 << 20
    with pytest.raises(FileError, match="would expand"):
        bignn.load(path)


def test_many_small_bombs_and_unknown_arrays_are_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "bombs.npz"
    zeros = np.zeros((60, 1 << 18), dtype=np.float32)  # 60 MiB each
    np.savez_compressed(path, x=zeros, y=zeros, x_data=zeros, edge_index=zeros, edge_weight=zeros)
    with pytest.raises(FileError, match="would expand"):
        bignn.load(path)
    np.savez_compressed(path, junk=zeros)
    with pytest.raises(FileError, match=r"unknown arrays \['junk'\]"):
        bignn.load(path)


def test_sizes_no_graph_has_are_refused() -> None:
    arrays = to_arrays(bignn.load("cora"))
    with pytest.raises(InputError, match=r"'x_shape' must be .* below 2\*\*31"):
        from_arrays(arrays | {"x_shape": np.array([2708, 1 << 40])})
    with pytest.raises(InputError, match="below 65536"):
        from_arrays(arrays | {"y": np.full(2708, 1 << 40)})


def test_a_graph_made_by_hand_is_checked_and_converted_too(arrays: Arrays) -> None:
    graph = bignn.Graph(
        x=arrays["x"].astype(np.float64), edge_index=arrays["edge_index"].astype(np.int32)
    )
    assert graph.dense_x().dtype == np.float32
    assert graph.edge_index.dtype == np.int64
    with pytest.raises(InputError, match="'x' must be finite"):
        bignn.Graph(
            x=np.full((2, 2), np.nan, dtype=np.float32), edge_index=np.zeros((2, 0), dtype=np.int64)
        )


def test_the_digest_tells_graphs_apart(arrays: Arrays) -> None:
    digest = from_arrays(arrays).digest()
    assert digest == from_arrays(make_arrays(), name="other").digest()
    for key in ("x", "y", "edge_index", "train_idx"):
        changed = arrays | {key: arrays[key][..., ::-1]}
        assert from_arrays(changed).digest() != digest, key


def test_a_header_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "liar.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)}
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(100))
    with pytest.raises(FileError, match="claims 4,398,046,511,104 bytes but holds 100"):
        bignn.load(path)


def test_fortran_order_and_big_endian_arrays_are_read(tmp_path: Path, arrays: Arrays) -> None:
    path = tmp_path / "odd.npz"
    x = arrays["x"]
    np.savez(path, **(arrays | {"x": np.asfortranarray(x.astype(">f8"))}))  # type: ignore[arg-type]
    assert np.array_equal(bignn.load(path).dense_x(), x)


def test_to_and_from_pyg(arrays: Arrays) -> None:
    arrays["edge_weight"] = np.ones(arrays["edge_index"].shape[1], dtype=np.float32)
    graph = from_arrays(arrays)
    data = bignn.to_pyg(graph)
    data.validate()
    assert data.num_nodes == 60
    assert int(data.train_mask.sum()) == len(arrays["train_idx"])
    again = bignn.from_pyg(data)
    assert np.array_equal(again.edge_index, graph.edge_index)
    assert again.train_idx is not None
    assert np.array_equal(again.train_idx, np.sort(arrays["train_idx"]))
    data.edge_index.fill_(0)
    assert graph.edge_index.max() > 0  # no memory is shared
    data.y = data.y.unsqueeze(1)
    flat = bignn.from_pyg(data).y
    assert flat is not None
    assert flat.tolist() == arrays["y"].tolist()
    data.train_mask = torch.stack([data.train_mask] * 10, dim=1)
    with pytest.raises(InputError, match="'train_mask' must be one boolean per row of 'x'"):
        bignn.from_pyg(data)
    data.x = None
    with pytest.raises(InputError, match="node features x"):
        bignn.from_pyg(data)


def test_pyg_extras(graph: bignn.Graph) -> None:
    data = bignn.to_pyg(graph)
    data.edge_attr = torch.full((graph.num_edges, 1), 2.0)
    data.test_mask[:] = False
    with pytest.warns(UserWarning, match="'edge_attr' is not used"):
        again = bignn.from_pyg(data)
    assert again.edge_weight is None
    assert again.test_idx is None
    data.edge_weight = data.edge_attr.view(-1)
    weighted = bignn.from_pyg(data).edge_weight
    assert weighted is not None and weighted.tolist() == [2.0] * graph.num_edges
    with pytest.raises(InputError, match=r"'data' must be a PyG Data, got str"):
        bignn.from_pyg("cora")  # type: ignore[arg-type]


def test_saving_checks_what_and_where(tmp_path: Path, graph: bignn.Graph) -> None:
    with pytest.raises(InputError, match=r"'graph' must be a bignn\.Graph or a PyG Data, got list"):
        bignn.save([graph], tmp_path / "a.npz")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"'path' must be a file name ending in \.npz"):
        bignn.save(graph, tmp_path / "a")
    data = bignn.to_pyg(graph)
    data.val_mask = data.val_mask[:10]
    with pytest.raises(InputError, match=r"'val_mask' must be one boolean per row of 'x' \[60\]"):
        bignn.from_pyg(data)


def test_embedded_names_are_documented() -> None:
    with pytest.raises(InputError, match=r"cora.*citeseer.*pubmed"):
        bignn.load("karate")
    assert EMBEDDED == ("cora", "citeseer", "pubmed")

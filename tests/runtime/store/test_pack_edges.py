"""Edges of any number become the compressed rows that memory gives; faults are named."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from small_stores import file_bytes

from bignn.errors import FileError, InputError
from bignn.graph.readers.edge_lists import edge_files
from bignn.kernels import edge_buckets, native
from bignn.kernels.compressed_rows import compress_edges
from bignn.runtime.store import pack_edges as packing
from bignn.runtime.store import unfinished
from bignn.runtime.store.pack_edges import pack_edges
from bignn.runtime.store.store import EDGES, StorePart

NODES = 1000


def some_edges(count: int = 20_000) -> NDArray[np.int64]:
    edges = np.random.default_rng(0).integers(0, NODES, (2, count))
    edges[1] = edges[1] ** 2 // NODES  # skewed
    return edges


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_FEWEST_AT_ONCE", 512)
    monkeypatch.setattr(packing, "_MOST_AT_ONCE", 512)


def packed(path: Path, out: Path, **options: Any) -> StorePart:
    pack_edges(path, out, num_nodes=NODES, progress=False, **options)
    part = StorePart.open(out, EDGES)
    part.verify()
    assert not (out / "edges.buckets").exists()
    return part


def check(part: StorePart, edges: NDArray[np.int64]) -> None:
    offsets, ids, _ = compress_edges(edges[0], edges[1], None, NODES)
    assert (part.map("offsets") == offsets).all()
    assert (part.map("ids") == ids).all()


def write_files(folder: Path, edges: NDArray[np.int64]) -> Path:
    """The same edges in all formats, one after the other."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir()
    np.save(folder / "0.npy", edges[:, :3000])
    np.save(folder / "1.npy", edges[:, 3000:7000].T.astype(np.int32, order="C"))
    table = pa.table({"source": edges[0, 7000:9000], "target": edges[1, 7000:9000]})
    parquet.write_table(table, folder / "2.parquet")
    np.savetxt(folder / "3.csv", edges[:, 9000:15000].T, "%d", ",", header="a,b", comments="")
    np.savetxt(folder / "4.txt", edges[:, 15000:].T, "%d")
    return folder


def test_all_formats_give_what_memory_gives(tmp_path: Path) -> None:
    edges = some_edges()
    check(packed(write_files(tmp_path / "files", edges), tmp_path / "s"), edges)
    np.save(tmp_path / "edges.npy", edges)
    check(packed(tmp_path / "edges.npy", tmp_path / "t"), edges)


@pytest.mark.parametrize("buckets", [2, 4, 14, 512])
def test_any_number_of_buckets(
    tmp_path: Path, buckets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_MOST_BUCKETS", buckets)
    monkeypatch.setattr(packing, "memory_bytes", lambda *_, **__: 1)
    edges = some_edges()
    np.save(tmp_path / "edges.npy", edges)
    check(packed(tmp_path / "edges.npy", tmp_path / "s"), edges)


@pytest.mark.parametrize("budget", [3000, 60_000])
def test_a_bucket_beyond_the_budget_is_sorted_in_ranges(
    tmp_path: Path, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_MOST_BUCKETS", 8)
    monkeypatch.setattr(packing, "memory_bytes", lambda *_, **__: budget)
    edges, most = some_edges(), 0
    edges[1, :9000] = 17  # a node that nearly half of all edges reach
    edges[1, 9000:9500] = NODES - 1

    def sort_bucket(some: Any, num_rows: int, *, merges: bool) -> Any:
        nonlocal most
        if num_rows > 1:  # the edges of one node are sorted at once
            most = max(most, len(some))
        return edge_buckets.sort_bucket(some, num_rows, merges=merges)

    monkeypatch.setattr(packing, "sort_bucket", sort_bucket)
    np.save(tmp_path / "edges.npy", edges)
    check(packed(tmp_path / "edges.npy", tmp_path / "s"), edges)
    assert most <= max(1, budget // 24)


def test_undirected_edges_are_kept_once(tmp_path: Path) -> None:
    edges = some_edges()
    np.save(tmp_path / "edges.npy", edges)
    part = packed(tmp_path / "edges.npy", tmp_path / "s", undirected=True)
    check(part, np.unique(np.concatenate([edges, edges[::-1]], axis=1), axis=1))


def test_without_the_native_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edges = some_edges(3000)
    np.save(tmp_path / "edges.npy", edges)
    whole = packed(tmp_path / "edges.npy", tmp_path / "whole", undirected=True)
    monkeypatch.setattr(native, "is_available", lambda: False)
    monkeypatch.setattr(packing, "_MOST_BUCKETS", 16)
    again = packed(tmp_path / "edges.npy", tmp_path / "again", undirected=True)
    assert (again.map("ids") == whole.map("ids")).all()
    assert edge_buckets.to_buckets(np.array([0, 5]), np.array([1, 0]), 5, 1) == 1


def test_a_run_that_stops_anywhere_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "memory_bytes", lambda *_, **__: 20_000)
    monkeypatch.setattr(unfinished, "_RECORD_EVERY", 0.0)
    folder = write_files(tmp_path / "files", some_edges())
    packed(folder, tmp_path / "whole")
    left, runs = 0, 0

    def stopping(make: Any) -> Any:
        def run(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return make(*args, **options)

        return run

    monkeypatch.setattr(packing, "to_buckets", stopping(edge_buckets.to_buckets))
    monkeypatch.setattr(packing, "sort_bucket", stopping(edge_buckets.sort_bucket))
    out = tmp_path / "parts"
    while not (out / "edges.json").exists():
        left, runs = 9, runs + 1
        with suppress(KeyboardInterrupt):
            pack_edges(folder, out, num_nodes=NODES, progress=False)
    assert runs > 4
    assert file_bytes(out) == file_bytes(tmp_path / "whole")


def test_faults_are_named_with_file_and_row(tmp_path: Path) -> None:
    edges = some_edges(2000)
    edges[0, 1234] = NODES
    np.save(tmp_path / "edges.npy", edges)
    line = r"edges.npy': row 1234 has edge 1000 -> \d+, expected node ids in 0..999"
    with pytest.raises(FileError, match=line):
        packed(tmp_path / "edges.npy", tmp_path / "s")
    assert not (tmp_path / "s").exists()
    (tmp_path / "e.csv").write_text("source,target\n1,2\n3,-4\n")
    with pytest.raises(FileError, match=r"e.csv': row 2 has edge 3 -> -4, expected"):
        packed(tmp_path / "e.csv", tmp_path / "s")
    (tmp_path / "e.csv").write_text("# mine\n\nsource,target\n1,2\n# more\n3,4 # good\n5,1000\n")
    with pytest.raises(FileError, match=r"e.csv': row 6 has edge 5 -> 1000, expected"):
        packed(tmp_path / "e.csv", tmp_path / "s")
    (tmp_path / "e.csv").write_text("1,2\n3,x\n")
    with pytest.raises(FileError, match=r"e.csv': row 1 must begin with two node ids, got '3,x'"):
        packed(tmp_path / "e.csv", tmp_path / "s")
    (tmp_path / "edges.npy").write_bytes((tmp_path / "edges.npy").read_bytes()[:-8])
    with pytest.raises(FileError, match=r"claims 32,000 bytes but holds 31,992: it is cut off"):
        packed(tmp_path / "edges.npy", tmp_path / "s")
    with pytest.raises(InputError, match="'nodes' must be 1 to"):
        pack_edges(tmp_path / "e.csv", tmp_path / "s", num_nodes=0)


def test_parquet_and_text_faults_are_named_with_file_and_row(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    edges = some_edges(5000)
    targets: list[int | None] = edges[1].tolist()
    targets[777] = None
    path = tmp_path / "empty.parquet"
    parquet.write_table(pa.table({"s": edges[0], "t": targets}), path)
    with pytest.raises(FileError, match=r"empty.parquet': column 't' is empty in row 777"):
        packed(path, tmp_path / "store")
    path = tmp_path / "damaged.parquet"
    parquet.write_table(pa.table({"s": edges[0], "t": edges[1]}), path, row_group_size=1000)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 2000] = b"\xff" * 2000
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"damaged.parquet' is damaged: rows from \d+ on cannot"):
        packed(path, tmp_path / "store")
    path = tmp_path / "huge.csv"
    path.write_text("1,2\n3,99999999999999999999\n")
    with pytest.raises(FileError, match=r"huge.csv': row 1 must begin with two node ids, got '3,9"):
        packed(path, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_file_that_cannot_be_read_is_not_called_unwritable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "e.npy", some_edges())

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("bignn.graph.readers.edge_lists.np.fromfile", fail)
    with pytest.raises(FileError, match=r"cannot read '.*e.npy': Input/output error"):
        packed(tmp_path / "e.npy", tmp_path / "store")


def test_files_are_read_in_natural_order(tmp_path: Path) -> None:
    names = ["a-1.npy", "a-2.npy", "a-10.npy", "a1.txt", "b_7.csv", "b_007.npy", "b_10.npy"]
    for name in reversed(names):
        np.save(tmp_path / name, some_edges(5))
        if not name.endswith(".npy"):
            (tmp_path / f"{name}.npy").rename(tmp_path / name)
            (tmp_path / name).write_text("1 2\n" if name.endswith(".txt") else "1,2\n")
    assert [file.path.name for file in edge_files(tmp_path)] == names

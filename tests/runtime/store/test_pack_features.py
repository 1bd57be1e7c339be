"""Features of any size are packed as in memory, byte for byte, and faults are named."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_stores import dense_features, file_bytes, make_store, packed_model

import bignn
from bignn.errors import FileError, InputError
from bignn.graph.readers.feature_shards import feature_shards
from bignn.nn import InputStage
from bignn.runtime.features import read_features
from bignn.runtime.store import pack_features as packing
from bignn.runtime.store import unfinished
from bignn.runtime.store.array_file import map_array
from bignn.runtime.store.pack_features import pack_features
from bignn.runtime.store.store import FEATURES, Store, StorePart

ROWS, COLUMNS = 9000, 33


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_BLOCK_BYTES", 1)


def packed(path: Path, out: Path, **options: Any) -> StorePart:
    pack_features(path, out, progress=False, **options)
    part = StorePart.open(out, FEATURES)
    part.verify()
    return part


def write_shards(folder: Path, x: NDArray[np.float32]) -> Path:
    """The same rows in all formats, one after the other."""
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir()
    np.save(folder / "0.npy", x[:5000])
    np.save(folder / "1.npy", x[5000:6000].astype(np.float64))
    some = x[6000:7000]
    row, column = some.nonzero()
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(some)))])
    shape, data = np.array(some.shape), some[row, column]
    np.savez(folder / "2.npz", x_indptr=indptr, x_indices=column, x_data=data, x_shape=shape)
    lists = pa.array(list(x[7000:8000, 1:]), pa.list_(pa.float32()))
    first = pa.array(x[7000:8000, 0])
    parquet.write_table(pa.table({"a": first, "b": lists}), folder / "3.parquet", row_group_size=70)
    np.savez(folder / "4.npz", x=x[8000:])
    return folder


@pytest.mark.parametrize("options", [{}, {"normalize_rows": True}, {"input_bits": "rotate:2"}])
def test_all_formats_give_what_memory_gives(tmp_path: Path, options: dict[str, Any]) -> None:
    x = dense_features(ROWS, COLUMNS)
    np.save(tmp_path / "x.npy", x)
    whole = packed(tmp_path / "x.npy", tmp_path / "whole", **options)
    stage = Store.stage.func(_Features(whole))  # type: ignore[attr-defined]
    graph = bignn.Graph(x, np.zeros((2, 0), dtype=np.int64))
    features, beta = read_features(stage, graph)
    assert (whole.map("bits") == features.words).all()  # type: ignore[union-attr]
    assert whole.map("beta").tobytes() == beta.tobytes()  # type: ignore[union-attr]
    shards = packed(write_shards(tmp_path / "shards", x), tmp_path / "s", **options)
    assert (shards.map("beta") == whole.map("beta")).all()
    assert (shards.map("bits") == whole.map("bits")).all()


class _Features:
    """What the input stage of a store is read from."""

    def __init__(self, part: StorePart) -> None:
        self.features = part
        self.num_features = part.number("num_features")


def test_statistics_are_those_of_training(tmp_path: Path) -> None:
    x = dense_features(ROWS, COLUMNS)
    x[:, 3] = 7.25  # constant
    x[:, 4] += 1e6  # far from 0
    np.save(tmp_path / "x.npy", x)
    part = packed(tmp_path / "x.npy", tmp_path / "s")
    stage = InputStage(COLUMNS, normalize_rows=False, standardize=True, binarize=True)
    stage.fit(torch.from_numpy(x))
    np.testing.assert_array_equal(part.map("mean"), stage.mean.numpy())
    np.testing.assert_allclose(part.map("scale"), stage.scale.numpy(), rtol=1e-6)


def test_like_a_model(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    packed_model(store, "sage").save(tmp_path / "m.bignn")
    x = dense_features(500, store.num_features)
    np.save(tmp_path / "x.npy", x)
    part = packed(tmp_path / "x.npy", tmp_path / "s", like=tmp_path / "m.bignn")
    assert part.header["input_digest"] == store.stage.digest()
    with pytest.raises(InputError, match="'like' comes with the model's input bits"):
        pack_features(tmp_path / "x.npy", tmp_path / "t", like=tmp_path / "m.bignn",
                      normalize_rows=True)  # fmt: skip
    np.save(tmp_path / "wide.npy", np.ones((5, 9)))
    with pytest.raises(InputError, match="'like' must be a model of 9 features, got one of 70"):
        pack_features(tmp_path / "wide.npy", tmp_path / "t", like=tmp_path / "m.bignn")


def test_a_run_that_stops_anywhere_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_shards(tmp_path / "shards", dense_features(ROWS, COLUMNS))
    packed(folder, tmp_path / "whole")
    monkeypatch.setattr(unfinished, "_RECORD_EVERY", 0.0)
    check, left, runs = packing._check_finite, 0, 0

    def stopping(block: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        check(block)

    monkeypatch.setattr(packing, "_check_finite", stopping)
    out = tmp_path / "parts"
    while not (out / "features.json").exists():
        left, runs = 2, runs + 1
        try:
            pack_features(folder, out, progress=False)
        except KeyboardInterrupt:
            with pytest.raises(FileError, match="its features are not finished; run the command"):
                StorePart.open(out, FEATURES)
    assert runs >= 4
    assert file_bytes(out) == file_bytes(tmp_path / "whole")


def test_faults_are_named_with_file_and_row(tmp_path: Path) -> None:
    x = dense_features(ROWS, COLUMNS)
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in range(40):
        np.save(folder / f"{number:02d}.npy", x[200 * number : 200 * (number + 1)])
    bad = x[:200].copy()
    bad[123, 5] = np.nan
    np.save(folder / "37.npy", bad)
    with pytest.raises(FileError, match=r"37.npy': row 123 holds NaN or an infinite number"):
        pack_features(folder, tmp_path / "s", progress=False)
    assert not (tmp_path / "s").exists()
    np.save(folder / "37.npy", x[:200])
    (folder / "38.npy").write_bytes((folder / "38.npy").read_bytes()[:-500])
    with pytest.raises(FileError, match=r"38.npy' claims 200 rows but ends in row 196; it is cut"):
        pack_features(folder, tmp_path / "s", progress=False)
    np.save(folder / "38.npy", x[:200, :32])
    with pytest.raises(FileError, match=r"38.npy' has 32 columns, '.*00.npy' has 33"):
        pack_features(folder, tmp_path / "s", progress=False)
    np.savez(folder / "38.npz", indptr=[0, 1, 2], indices=[0, 33], data=[1, 1], shape=[2, 33])
    (folder / "38.npy").unlink()
    with pytest.raises(FileError, match=r"38.npz': row 1 names column 33, expected 0..32"):
        pack_features(folder, tmp_path / "s", progress=False)
    with pytest.raises(FileError, match=r"holds no \.npy, \.npz, \.parquet file"):
        pack_features(tmp_path, tmp_path / "s", progress=False)


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    from bignn.runtime.store.array_file import ArrayWriter

    np.save(tmp_path / "x.npy", dense_features(500, 7))

    class Full:
        def write(self, content: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    append = ArrayWriter.append

    def failing(self: ArrayWriter, rows: Any) -> None:
        file, self._file = self._file, Full()  # type: ignore[assignment]
        try:
            append(self, rows)
        finally:
            self._file = file

    monkeypatch.setattr(ArrayWriter, "append", failing)
    line = r"cannot write '.*bits.npy': No space left on device; free some space and run the"
    with pytest.raises(FileError, match=line):
        pack_features(tmp_path / "x.npy", tmp_path / "s", progress=False)
    monkeypatch.setattr(ArrayWriter, "append", append)
    packed(tmp_path / "x.npy", tmp_path / "s")


def test_damage_is_found(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", dense_features(ROWS, 7))
    part = packed(tmp_path / "x.npy", tmp_path / "s")
    path = part.path("bits")
    content = bytearray(path.read_bytes())
    content[128 + 8 * 5000] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"bits.npy' is damaged in rows 4096 to 8191"):
        part.verify()
    path.write_bytes(content[:-8])
    with pytest.raises(FileError, match=r"bits.npy' has 72,120 bytes, expected 72,128; it is cut"):
        map_array(path, part.arrays["bits"])
    (tmp_path / "s" / "features.json").write_text("{}")
    with pytest.raises(FileError, match="is no manifest of a store"):
        StorePart.open(tmp_path / "s", FEATURES)


def test_arrays_are_plain_npy_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", dense_features(300, 7))
    part = packed(tmp_path / "x.npy", tmp_path / "s")
    for name in part.arrays:
        assert (np.load(part.path(name)) == part.map(name)).all()
    assert not part.map("bits").flags.writeable


def test_bad_archives_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w"):
        pass
    with pytest.raises(FileError, match="holds no CSR matrix: it lacks 'indptr'"):
        pack_features(tmp_path / "x.npz", tmp_path / "s")
    np.save(tmp_path / "y.npy", np.ones(5))
    with pytest.raises(FileError, match=r"must hold numbers \[nodes, features\], got float64 \[5"):
        pack_features(tmp_path / "y.npy", tmp_path / "s")
    with pytest.raises(InputError, match="'input_bits' must be 'sign' or 'rotate:K' for a store"):
        np.save(tmp_path / "x.npy", dense_features(300, 7))
        pack_features(tmp_path / "x.npy", tmp_path / "s", input_bits="threshold:2")


def test_labels_of_another_number_are_refused_before_any_work(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((5, 3), dtype=np.float32))
    np.savez(tmp_path / "labels.npz", y=np.zeros(4, dtype=np.int64))
    with pytest.raises(FileError, match=r"'y' must be a class per node \(5\), got 4"):
        pack_features(tmp_path / "x.npy", tmp_path / "store", labels=tmp_path / "labels.npz")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("ending", [".npy", ".parquet"])
def test_a_run_in_another_order_is_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    x = dense_features(1200, 7)
    folder, out = tmp_path / "shards", tmp_path / "s"
    folder.mkdir()
    for number, rows in enumerate(np.split(x, 12)):
        if ending == ".npy":
            np.save(folder / f"part-{number}.npy", rows)
        else:
            table = pa.table({str(column): rows[:, column] for column in range(7)})
            parquet.write_table(table, folder / f"part-{number}.parquet")
    np.save(tmp_path / "x.npy", x)
    whole = packed(tmp_path / "x.npy", tmp_path / "whole")
    monkeypatch.setattr(unfinished, "_RECORD_EVERY", 0.0)

    def by_text(path: Path) -> Any:
        return sorted(feature_shards(path), key=lambda shard: shard.path.name)

    def stopping(block: Any) -> None:
        if block.shard.path.stem == "part-2":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(packing, "feature_shards", by_text)
        patched.setattr(packing, "_check_finite", stopping)
        with pytest.raises(KeyboardInterrupt):
            pack_features(folder, out, progress=False)
    assert (out / "features.journal.json").is_file()
    part = packed(folder, out)
    assert "other features were begun here; beginning anew" in capsys.readouterr().err
    assert (part.map("bits") == whole.map("bits")).all()
    assert (part.map("beta") == whole.map("beta")).all()

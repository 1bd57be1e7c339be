"""Predictions of a store equal those of the same graph in memory, whatever was interrupted."""

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_stores import in_memory, make_store, packed_model

import bignn
from bignn.errors import FileError, InputError, WriteError
from bignn.kernels.layer import Edges
from bignn.runtime.layer_ranges import LayerOverRows
from bignn.runtime.store import Store
from bignn.runtime.store import predict_store as predicting
from bignn.runtime.store.array_file import ArrayWriter, write_error
from bignn.runtime.store.predict_store import predict_store


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicting, "_BLOCK_ROWS", 64)
    monkeypatch.setattr(predicting, "_LEAST_MEMORY", 0)


def predicted(model: Any, store: Store, out: Path, **options: Any) -> Any:
    predict_store(model, store, out, progress=False, **options)
    assert not list(out.parent.glob("*.work"))
    return np.load(out)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("conv", ["gcn", "mean-gcn", "sage", "gat"])
def test_classes_equal_those_in_memory(tmp_path: Path, conv: str) -> None:
    store = make_store(tmp_path / "store")
    model, graph = packed_model(store, conv), in_memory(store)
    expected = model.predict(graph)
    assert len(np.unique(expected)) > 1
    found = predicted(model, store, tmp_path / "all.npy")
    assert found.dtype == np.int64
    assert (found == expected).all()
    # Sources that do not fit the budget are mapped.
    sources = int(1.3 * store.num_nodes * (4 + 4 + (32 if conv == "gat" else 0)) / 0.8)
    assert (predicted(model, store, tmp_path / "m.npy", memory=sources) == expected).all()
    values = predicted(model, store, tmp_path / "v.npy", output="logits")
    assert (values == model.predict(graph, output="logits")).all()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("conv", ["gcn", "gat"])
def test_self_loops_count_once(tmp_path: Path, conv: str) -> None:
    from bignn.runtime.store.pack_edges import pack_edges

    store = make_store(tmp_path / "store")
    graph = in_memory(store)
    loops = np.arange(0, store.num_nodes, 3)
    edges = np.concatenate([graph.edge_index, [loops, loops], [loops, loops]], axis=1)
    np.save(tmp_path / "edges.npy", edges)
    pack_edges(tmp_path / "edges.npy", store.path, num_nodes=store.num_nodes, progress=False)
    store = Store(store.path)
    assert store.num_edges == edges.shape[1]
    model = packed_model(store, conv)
    with_loops = bignn.Graph(graph.x, edges)
    assert (predicted(model, store, tmp_path / "p.npy") == model.predict(with_loops)).all()


@pytest.mark.usefixtures("small_blocks")
def test_a_run_that_stops_anywhere_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bignn.runtime.store import unfinished

    monkeypatch.setattr(unfinished, "_RECORD_EVERY", 0.0)
    store = make_store(tmp_path / "store")
    model = packed_model(store, "sage")
    whole = predicted(model, store, tmp_path / "whole.npy")
    bits, classes = LayerOverRows.bits, LayerOverRows.classes
    left = 0

    def stopping(make: Any) -> Any:
        def run(self: LayerOverRows, edges: Edges) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return make(self, edges)

        return run

    monkeypatch.setattr(LayerOverRows, "bits", stopping(bits))
    monkeypatch.setattr(LayerOverRows, "classes", stopping(classes))
    out, runs = tmp_path / "p.npy", 0
    while not out.exists():
        left, runs = 4, runs + 1
        try:
            predict_store(model, store, out, progress=False)
        except KeyboardInterrupt:
            assert not out.exists()
    assert runs >= 8  # 33 blocks, four at a time
    assert (np.load(out) == whole).all()


@pytest.mark.usefixtures("small_blocks")
def test_a_run_that_stops_before_the_file_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path / "store")
    model = packed_model(store, "sage")
    whole = predicted(model, store, tmp_path / "whole.npy")
    remove = predicting._LayerwiseRun._remove

    def stop(self: Any, number: int) -> None:
        remove(self, number)
        if number == 1:  # what the last layer read
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(predicting._LayerwiseRun, "_remove", stop)
        predict_store(model, store, tmp_path / "p.npy", progress=False)
    assert (predicted(model, store, tmp_path / "p.npy") == whole).all()


def test_what_a_store_cannot_run_is_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    model = packed_model(store, "sage")
    with pytest.raises(InputError, match=r"'out' must be a file name ending in \.npy"):
        predict_store(model, store, tmp_path / "p.csv")
    with pytest.raises(InputError, match="'memory' must be 256M or more"):
        predict_store(model, store, tmp_path / "p.npy", memory="1M")
    with pytest.raises(InputError, match="'memory' must be an amount such as 8G"):
        predict_store(model, store, tmp_path / "p.npy", memory="much")
    jumping = packed_model(store, "sage", jk="cat")
    with pytest.raises(InputError, match="made of packed layers alone"):
        predict_store(jumping, store, tmp_path / "p.npy")
    other = make_store(tmp_path / "other", seed=1)
    other.stage.mean[0] = 1  # type: ignore[index]
    with pytest.raises(InputError, match="packed with this model's input statistics"):
        predict_store(packed_model(other, "sage"), store, tmp_path / "p.npy")


def test_damaged_offsets_are_found(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    path = store.edges.path("offsets")
    content = bytearray(path.read_bytes())
    content[128 + 8 * 65 : 128 + 8 * 66] = (1 << 40).to_bytes(8, "little")
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"offsets.npy' is damaged in rows 64 to 127"):
        predict_store(packed_model(store, "sage"), store, tmp_path / "p.npy", progress=False)
    with pytest.raises(FileError, match=r"offsets.npy' is damaged in rows 65 to 128"):
        Store(store.path, verify=True)


def test_an_id_beyond_the_nodes_is_named_with_file_and_row(tmp_path: Path) -> None:
    from bignn.loaders.store import MappedEdges

    store = make_store(tmp_path / "store")
    row = int(np.flatnonzero(np.diff(store.offsets))[5])
    path, place = store.edges.path("ids"), 128 + 4 * int(store.offsets[row])
    content = bytearray(path.read_bytes())
    content[place : place + 4] = store.num_nodes.to_bytes(4, "little")
    path.write_bytes(content)
    line = rf"ids.npy': row {row} has neighbour {store.num_nodes}, expected node ids in 0\.\."
    with pytest.raises(FileError, match=line):
        predict_store(packed_model(store, "sage"), store, tmp_path / "p.npy", progress=False)
    with pytest.raises(FileError, match=line):
        MappedEdges(Store(store.path)).compressed()


def test_cut_off_bits_are_named_with_their_row(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    model, path = packed_model(store, "sage"), store.features.path("bits")
    last = store.num_nodes - 1
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(FileError, match=rf"bits.npy' ends in row {last} of {last + 1}"):
        predict_store(model, store, tmp_path / "p.npy", progress=False)


def test_a_full_disk_ends_a_prediction_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path / "store")
    model = packed_model(store, "sage")
    whole = predicted(model, store, tmp_path / "whole.npy")
    append, count = ArrayWriter.append, 0

    def full(self: ArrayWriter, rows: Any) -> None:
        nonlocal count
        count += 1
        if count == 8:
            raise write_error(self.path, OSError(errno.ENOSPC, "No space left on device"))
        append(self, rows)

    monkeypatch.setattr(ArrayWriter, "append", full)
    with pytest.raises(WriteError, match="No space left on device; free some space"):
        predict_store(model, store, tmp_path / "p.npy", progress=False)
    assert (predicted(model, store, tmp_path / "p.npy") == whole).all()

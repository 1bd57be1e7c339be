"""Parts of a store: streamed, the same graph, and the predictions of one process."""

import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from parts_in_threads import run_parts
from small_stores import in_memory, make_store, packed_model
from test_part_files import assert_connected

from bignn import FileError, InputError
from bignn.cli import main
from bignn.runtime import tensors
from bignn.runtime.parts import store_parts
from bignn.runtime.parts.assignment import by_ranges
from bignn.runtime.parts.graph_part import GraphPart, PartSizes, StoredBits
from bignn.runtime.parts.part_files import _to_file, open_part, part_path
from bignn.runtime.parts.part_run import PartRun
from bignn.runtime.parts.store_parts import write_store_parts
from bignn.runtime.store import Store
from bignn.runtime.store.predict_store import predict_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return make_store(tmp_path_factory.mktemp("stores") / "store")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_parts, "_BLOCK_BYTES", 1000)


def opened(folder: Path, count: int) -> list[GraphPart]:
    return [open_part(folder, number, count) for number in range(count)]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_parts_hold_the_store(tmp_path: Path, store: Store, count: int) -> None:
    sizes: list[PartSizes] = []
    partition = write_store_parts(store.path, count, tmp_path, report=sizes.append)
    parts = opened(tmp_path, count)
    assert sum(some.edges for some in sizes) == store.num_edges
    assert sizes == [part.sizes for part in parts]
    graph = in_memory(store)
    assert_connected(graph, parts)
    owner = np.concatenate([np.full(part.num_nodes, part.number) for part in parts])
    assert np.array_equal(owner, by_ranges(graph, count))
    source, target = graph.edge_index
    assert partition.num_cut == (owner[source] != owner[target]).sum()
    assert partition.num_halo == sum(part.num_halo for part in parts)
    for part in parts:
        assert isinstance(part.x, StoredBits)
        assert np.array_equal(part.x.words, store.words[part.nodes])
        assert np.array_equal(part.x.beta, store.beta[part.nodes])
        assert part.x.stage.digest() == store.stage.digest()
        assert part.y is not None and graph.y is not None
        assert np.array_equal(part.y, graph.y[part.nodes])
    for key in ("train_idx", "val_idx", "test_idx"):
        mine = np.concatenate([part.nodes[getattr(part, key)] for part in parts])
        assert sorted(mine) == sorted(getattr(graph, key))


def test_many_parts_take_few_open_files(tmp_path: Path, store: Store) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 40, limits[1]))
    try:
        write_store_parts(store.path, 60, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(list(tmp_path.iterdir())) == 60


def test_every_part_has_a_node(store: Store) -> None:
    for offsets in (store.offsets, np.array([0, 9, 9, 9, 9]), np.array([0, 0, 0, 0, 9])):
        count = len(offsets) - 1
        for parts in (1, 2, 3, count - 1, count):
            bounds = store_parts._bounds(offsets, parts)
            assert bounds[0] == 0 and bounds[-1] == count and len(bounds) == parts + 1
            assert (np.diff(bounds) > 0).all()


@pytest.mark.parametrize("conv", ["gcn", "sage", "gat"])
def test_predictions_are_those_of_one_process(tmp_path: Path, store: Store, conv: str) -> None:
    model = packed_model(store, conv)
    predict_store(model, store, tmp_path / "one.npy", output="logits", progress=False)
    expected = np.load(tmp_path / "one.npy")
    for count in (1, 3):
        write_store_parts(store.path, count, tmp_path / "parts")
        parts = opened(tmp_path / "parts", count)
        found = run_parts(parts, lambda part, link: PartRun(model.network, part, link).logits())
        assert np.array_equal(np.concatenate(found), expected), count


def test_a_streamed_file_is_the_one_that_is_written_at_once(tmp_path: Path, store: Store) -> None:
    write_store_parts(store.path, 3, tmp_path)
    for part in opened(tmp_path, 3):
        written = tmp_path / "again.bigpart"
        tensors.write(written, *_to_file(part))
        (mine, header), (other, of_other) = (
            tensors.read(path, verify=True) for path in (part_path(tmp_path, part.number), written)
        )
        assert header == of_other
        assert mine.keys() == other.keys()
        assert all(np.array_equal(mine[name], other[name]) for name in mine)


def test_what_cannot_be_cut_is_refused_in_a_line(
    tmp_path: Path, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    def line(*arguments: str) -> str:
        assert main(["partition", *arguments]) in (1, 2)
        return capsys.readouterr().err.splitlines()[-1]

    where, out = str(store.path), str(tmp_path / "parts")
    assert "--num-parts must be a number of parts from 1 to 700, got 0" in line(
        where, "-k", "0", "-o", out
    )
    assert "got 701" in line(where, "-k", "701", "-o", out)
    assert "--by must be 'ranges' or 'auto' for a store" in line(
        where, "-k", "2", "-o", out, "--by", "metis"
    )
    assert "--out must be a folder of its own for the parts" in line(where, "-k", "2", "-o", where)
    assert not Path(out).exists()
    other = make_store(tmp_path / "damaged")
    ids = other.edges.path("ids")
    ids.write_bytes(ids.read_bytes()[:-1] + b"\x7f")
    assert "is damaged in rows" in line(str(other.path), "-k", "2", "-o", out)
    assert not Path(out).exists()


def test_models_with_other_statistics_are_refused(tmp_path: Path, store: Store) -> None:
    write_store_parts(store.path, 1, tmp_path / "parts")
    (part,) = opened(tmp_path / "parts", 1)
    network, x = packed_model(store, "gcn").network, part.x
    assert isinstance(x, StoredBits) and x.stage.mean is not None
    run_parts([part], lambda some, link: PartRun(network, some, link))
    part = replace(part, x=replace(x, stage=replace(x.stage, mean=x.stage.mean + 1)))
    with pytest.raises(InputError, match="parts of a store with this model's input statistics"):
        run_parts([part], lambda some, link: PartRun(network, some, link))


def test_damaged_stages_are_refused(tmp_path: Path, store: Store) -> None:
    write_store_parts(store.path, 1, tmp_path)
    (part,) = opened(tmp_path, 1)
    arrays, header = _to_file(part)
    path = part_path(tmp_path, 0)
    words = arrays["x_words"].copy()
    words[0, -1] |= np.uint64(1) << np.uint64(63)
    for changed, of_header, expected in (
        ({"x_words": words}, {}, "padding bits of the features are not 0"),
        ({"input_mean": arrays["input_mean"][:-1]}, {}, "array 'input_mean' must be float32"),
        ({"x_beta": -arrays["x_beta"]}, {}, "array 'beta' has negative values"),
        ({}, {"input": {}}, "what it says of its input stage is not complete"),
    ):
        tensors.write(path, {**arrays, **changed}, {**header, **of_header})
        with pytest.raises(FileError, match=expected):
            open_part(tmp_path, 0, 1)

"""Datasets by name: published files in every layout, their faults, caches and the listing."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import published
import pytest
from conftest import Arrays, make_arrays

import bignn
from bignn.cli import main
from bignn.errors import FileError, InputError
from bignn.graph import SPLITS, datasets
from bignn.graph.edges import both_directions
from bignn.graph.graph import ARRAYS
from bignn.graph.published_sizes import PUBLISHED_SIZES
from bignn.graph.readers import ogb
from bignn.graph.readers.npz import read_npz, write_npz
from bignn.graph.sources import SOURCES
from bignn.graph.split import FIXED

#: Name, where its files are, and who writes them there.
LAYOUTS: list[tuple[str, str, Callable[[Path, Arrays], None]]] = [
    ("flickr", "flickr", published.write_flickr),
    ("flickr", "Flickr/raw", published.write_flickr),
    ("reddit", "reddit", published.write_reddit),
    ("reddit", "Reddit/raw", published.write_reddit),
    ("ogbn-arxiv", "ogbn-arxiv", published.write_arxiv),
    ("ogbn-arxiv", "ogbn_arxiv", published.write_arxiv),
    ("ogbn-products", "ogbn_products", published.write_products),
    (
        "amazon-computers",
        "amazon-computers/amazon_electronics_computers.npz",
        published.write_shchur,
    ),
    ("amazon-photo", "Amazon/Photo/raw/amazon_electronics_photo.npz", published.write_shchur),
    ("coauthor-cs", "CS/raw/ms_academic_cs.npz", published.write_shchur),
    ("coauthor-physics", "ms_academic_phy.npz", published.write_shchur),
    ("musae-github", "musae-github", published.write_musae),
    ("musae-github", "GitHub/raw/github.npz", published.write_github),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder; the network is out of reach."""

    def no_network(url: str) -> Any:
        raise AssertionError(f"a test asked for {url}")

    monkeypatch.setenv("BIGNN_DATA", str(tmp_path))
    monkeypatch.setattr("bignn.graph.download.open_url", no_network)
    return tmp_path


def whole_arrays() -> Arrays:
    """A graph whose raw files keep all of it: every feature is 0 or 1, the last one present."""
    arrays = make_arrays()
    arrays["x"] = np.minimum(arrays["x"], 1)
    arrays["x"][7, -1] = 1
    return arrays


def test_published_files_make_the_graph(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = whole_arrays()
    for number, (name, place, write) in enumerate(LAYOUTS):
        data = folder / str(number)
        monkeypatch.setenv("BIGNN_DATA", str(data))
        write(data / place, arrays)
        assert datasets.find(name) == data / place
        graph = bignn.load(name)
        assert np.array_equal(graph.dense_x(), arrays["x"]), place
        assert graph.dense_x().dtype == np.float32
        assert np.array_equal(graph.edge_index, arrays["edge_index"]), place
        assert np.array_equal(graph.y, arrays["y"]), place  # type: ignore[arg-type]
        if name in FIXED:
            sizes = [getattr(graph, key).size for key in SPLITS]
            assert sizes == [60 * percent // 100 for percent in FIXED[name]]
            continue
        for key in SPLITS:
            assert np.array_equal(getattr(graph, key), np.sort(arrays[key])), (place, key)


def test_the_fixed_split_is_the_documented_permutation(folder: Path) -> None:
    published.write_shchur(folder / "ms_academic_cs.npz", make_arrays(num_nodes=67))
    graph = bignn.load("coauthor-cs")
    order = np.random.default_rng(0).permutation(67)
    for key, part in zip(SPLITS, np.split(order, [40, 53]), strict=True):
        assert np.array_equal(getattr(graph, key), np.sort(part))


def test_our_own_format_comes_first(folder: Path, arrays: Arrays) -> None:
    published.write_flickr(folder / "flickr", arrays)
    write_npz(folder / "flickr.npz", make_arrays(num_nodes=12))
    assert bignn.load("flickr").num_nodes == 12


def test_features_of_coauthor_keep_their_counts(folder: Path, arrays: Arrays) -> None:
    arrays["x"] = arrays["x"] * 3
    published.write_shchur(folder / "ms_academic_cs.npz", arrays)
    assert np.array_equal(bignn.load("coauthor-cs").dense_x(), arrays["x"])


def test_classes_may_be_lists_with_a_single_one(folder: Path, arrays: Arrays) -> None:
    published.write_flickr(folder / "flickr", arrays)
    classes = {
        str(node): [int(label == 0), int(label == 1)] for node, label in enumerate(arrays["y"])
    }
    (folder / "flickr" / "class_map.json").write_text(json.dumps(classes))
    assert np.array_equal(bignn.load("flickr").y, arrays["y"])  # type: ignore[arg-type]


def test_edges_in_both_directions() -> None:
    source, target = np.array([3, 0, 1, 3, 2]), np.array([1, 2, 3, 3, 0])
    pairs, weight = both_directions(source, target)
    assert weight is None
    assert pairs.tolist() == [[0, 1, 2, 3, 3], [2, 3, 0, 1, 3]]
    pairs, weight = both_directions(source, target, np.array([1, 2, 4, 8, 16], dtype=np.float32))
    assert pairs.tolist() == [[0, 1, 2, 3, 3], [2, 3, 0, 1, 3]]
    assert weight is not None and weight.tolist() == [18, 5, 18, 5, 8]
    assert both_directions(source[:0], target[:0])[0].shape == (2, 0)


def replace(file: str, **changes: Any) -> Callable[[Path], None]:
    """Damages arrays of a .npz file; None removes one."""

    def damage(folder: Path) -> None:
        with np.load(folder / file, allow_pickle=True) as opened:
            arrays = {**opened, **changes}
        published.savez(folder / file, **{k: v for k, v in arrays.items() if v is not None})

    return damage


def text(file: str, content: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / file).write_text(content)

    return damage


def rows(file: str, table: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        published.write_csv_gz(folder / file, np.array(table))

    return damage


def cut(file: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        data = (folder / file).read_bytes()
        (folder / file).write_bytes(data[: len(data) // 2])

    return damage


def in_class_map(value: Any) -> Callable[[Path], None]:
    classes = {str(node): 0 for node in range(60)} | {"4": value}
    return text("class_map.json", json.dumps(classes))


def save_feats(array: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        np.save(folder / "feats.npy", array)

    return damage


def unlink(file: str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).unlink()


def no_csv(file: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        published.write_csv_gz(folder / file, np.array([["a", "b"]]))

    return damage


def falling_indptr(folder: Path) -> None:
    with np.load(folder / "adj_full.npz") as opened:
        indptr = opened["indptr"]
    indptr[[3, 40]] = indptr[[40, 3]]  # the ends stay right
    replace("adj_full.npz", indptr=indptr)(folder)


OBJECTS = np.array([{"a": 1}], dtype=object)
FAULTS: list[tuple[str, Callable[[Path], None], str]] = [
    ("flickr", unlink("role.json"), r"lacks role\.json; get what is missing from https://"),
    ("flickr", cut("adj_full.npz"), r"adj_full\.npz' is not a readable \.npz"),
    ("flickr", replace("adj_full.npz", indptr=None), "holds no sparse matrix"),
    ("flickr", replace("adj_full.npz", shape=None), r"but \['shape'\] are missing"),
    ("flickr", replace("adj_full.npz", shape=np.array([61, 61])), r"'shape' must be \[60, 60\]"),
    ("flickr", replace("adj_full.npz", indptr=np.arange(61)), "'indptr' must rise from 0 to"),
    ("flickr", falling_indptr, "'indptr' must rise from 0 to"),
    ("flickr", replace("adj_full.npz", indptr=np.array(3)), "must be an array, got a single"),
    ("flickr", replace("adj_full.npz", indices=OBJECTS), "holds Python objects"),
    ("flickr", cut("feats.npy"), r"claims 9,600 bytes but holds"),
    ("flickr", text("feats.npy", "hello"), r"'feats\.npy' is not a NumPy array"),
    ("flickr", save_feats(OBJECTS), "holds Python objects"),
    ("flickr", save_feats(np.ones(60)), r"must be a matrix \[nodes, features\]"),
    ("flickr", save_feats(np.ones((59, 3))), r"'shape' must be \[59, 59\]"),
    ("flickr", save_feats(np.full((60, 3), np.nan)), "'x' must be finite"),
    ("flickr", cut("role.json"), "is not readable JSON"),
    ("flickr", text("role.json", "[1, 2]"), "must hold a JSON object, got list"),
    ("flickr", text("role.json", "[" * 100_000), "is not readable JSON"),
    ("flickr", text("role.json", '{"tr": [1]}'), "must hold 'tr', 'va' and 'te'"),
    (
        "flickr",
        text("role.json", '{"tr": ["1"], "va": [2], "te": [3]}'),
        "'tr' must be a list of integers",
    ),
    (
        "flickr",
        text("role.json", '{"tr": [1], "va": [2], "te": [60]}'),
        r"'test_idx' must be a node id in 0\.\.59, got 60",
    ),
    ("flickr", text("class_map.json", '{"60": 1}'), r"keys must be node ids in 0\.\.59, got '60'"),
    ("flickr", text("class_map.json", '{"x": 1}'), r"keys must be node ids in 0\.\.59, got 'x'"),
    ("flickr", in_class_map([1, 0, 1]), "node 4 has 2 classes; multi-label .* not supported"),
    ("flickr", in_class_map([[1], 0]), "node 4 must have a class id"),
    ("flickr", in_class_map(1.5), "node 4 must have a class id, got '1.5'"),
    ("reddit", unlink("reddit_graph.npz"), r"lacks reddit_graph\.npz"),
    ("reddit", replace("reddit_data.npz", label=None), r"\['label'\] are missing"),
    ("reddit", replace("reddit_data.npz", feature=OBJECTS), "holds Python objects"),
    ("reddit", replace("reddit_data.npz", feature=np.ones(60)), "'feature' must be"),
    ("reddit", replace("reddit_data.npz", node_types=np.full(60, 4)), "'node_types' must be 1, 2"),
    ("reddit", replace("reddit_data.npz", node_types=np.ones(59)), r"got shape \[59\]"),
    ("reddit", replace("reddit_data.npz", label=np.zeros((60, 3), int)), "multi-label"),
    ("reddit", replace("reddit_graph.npz", row=np.zeros(3, int)), "must be pairs of node ids"),
    (
        "reddit",
        replace("reddit_graph.npz", row=np.array([60]), col=np.array([0])),
        r"must join node ids in 0\.\.59, got 60",
    ),
    (
        "reddit",
        replace("reddit_graph.npz", row=np.array([0.5]), col=np.array([0])),
        "node ids must be integers, got dtype float64",
    ),
    ("ogbn-arxiv", cut("raw/node-feat.csv.gz"), r"node-feat\.csv\.gz' is not readable"),
    ("ogbn-arxiv", text("raw/edge.csv.gz", "0,1\n"), r"edge\.csv\.gz' is not readable"),
    ("ogbn-arxiv", unlink("raw/edge.csv.gz"), r"lacks raw/edge\.csv\.gz"),
    ("ogbn-arxiv", unlink("split/time/valid.csv.gz"), r"lacks split/time/valid\.csv\.gz"),
    ("ogbn-arxiv", no_csv("raw/edge.csv.gz"), "is not a table of numbers"),
    ("ogbn-arxiv", rows("raw/edge.csv.gz", [[0.5, 1.0]]), "is not a table of numbers"),
    ("ogbn-arxiv", rows("raw/edge.csv.gz", [[0, 1]]), r"rows of 2 numbers, got 1 of 2"),
    ("ogbn-arxiv", rows("raw/num-edge-list.csv.gz", [[1, 2]]), "must have 1 rows of 1 numbers"),
    ("ogbn-arxiv", rows("raw/node-feat.csv.gz", [[0.5]] * 59), "must have 60 rows"),
    ("ogbn-arxiv", rows("raw/node-feat.csv.gz", [[np.nan]] * 60), "'x' must be finite"),
    ("ogbn-arxiv", rows("raw/node-label.csv.gz", [[0, 1]] * 60), "2 labels per node; multi-label"),
    ("ogbn-arxiv", rows("raw/node-label.csv.gz", [[0]] * 59), "'y' must be one class per node"),
    ("ogbn-arxiv", rows("split/time/train.csv.gz", [[60]]), "'train_idx' must be a node id"),
    ("musae-github", text("musae_git_target.csv", "id,name\n0,a\n"), "columns id and ml_target"),
    ("musae-github", text("musae_git_target.csv", "id,ml_target\n1,0\n"), "must have ids 0 to 0"),
    ("musae-github", text("musae_git_features.json", "{}"), "has no features"),
    ("musae-github", text("musae_git_features.json", '{"0": 3}'), "node 0 must be a list of"),
    ("musae-github", text("musae_git_edges.csv", "id_1,id_2\n0,60\n"), r"in 0\.\.59, got 60"),
    ("musae-github", text("musae_git_edges.csv", "id_1,id_2\n"), "is not a table of numbers"),
    ("amazon-photo", replace("", labels=None), r"\['labels'\] are missing"),
    ("amazon-photo", replace("", attr_data=OBJECTS), "holds Python objects"),
    ("amazon-photo", replace("", attr_indptr=np.arange(4)), "'attr_indptr' must rise"),
    ("amazon-photo", replace("", adj_shape=np.array([1, 1])), r"'adj_shape' must be \[60, 60\]"),
    ("amazon-photo", replace("", attr_shape=np.array([60, 2])), "'x_indices' must be a feature"),
]


@pytest.mark.parametrize("dataset", sorted({name for name, _, _ in FAULTS}))
def test_faults_get_one_clear_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, dataset: str
) -> None:
    _, place, write = next(layout for layout in LAYOUTS if layout[0] == dataset)
    for number, (name, damage, message) in enumerate(FAULTS):
        if name != dataset:
            continue
        data = folder / str(number)
        monkeypatch.setenv("BIGNN_DATA", str(data))
        write(data / place, make_arrays())
        damage(data / place)
        with pytest.raises(InputError, match=message) as caught:
            bignn.load(name)
        assert str(data) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_an_irregular_table_is_refused(folder: Path, arrays: Arrays) -> None:
    published.write_arxiv(folder / "ogbn-arxiv", arrays)
    file = folder / "ogbn-arxiv" / "raw" / "node-feat.csv.gz"
    file.write_bytes(gzip.compress(b"1,2\n3\n4,5,6\n"))
    with pytest.raises(
        FileError, match=r"node-feat.*is not a table of numbers .*columns"
    ) as caught:
        bignn.load("ogbn-arxiv")
    assert "\n" not in str(caught.value)
    file.write_bytes(gzip.compress(b""))
    with pytest.raises(FileError, match=r"node-feat.*is not a table of numbers .*no data"):
        bignn.load("ogbn-arxiv")


@pytest.fixture
def arxiv(folder: Path, arrays: Arrays) -> Path:
    """Raw files an hour old, read once."""
    place = folder / "ogbn_arxiv"
    published.write_arxiv(place, arrays)
    for file in ogb.ARXIV:
        age(place / file, 3600)
    bignn.load("ogbn-arxiv")
    return place


def age(file: Path, seconds: int) -> None:
    then = file.stat().st_mtime_ns - seconds * 10**9
    os.utime(file, ns=(then, then))


def test_what_was_parsed_is_kept(arxiv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = bignn.load("ogbn-arxiv").digest()
    (cache,) = [path for path in arxiv.iterdir() if path.is_file()]
    assert cache.name == "bignn-cache-1.npz"
    monkeypatch.setattr(ogb, "read_numbers", None)  # nobody parses text again
    assert bignn.load("ogbn-arxiv").digest() == digest


def test_a_cache_older_than_its_files_is_made_again(arxiv: Path) -> None:
    changed = make_arrays(seed=1)
    write_before = (arxiv / "bignn-cache-1.npz").stat().st_mtime_ns
    published.write_csv_gz(arxiv / "raw" / "node-feat.csv.gz", changed["x"])
    age(arxiv / "bignn-cache-1.npz", 60)
    assert np.array_equal(bignn.load("ogbn-arxiv").dense_x(), changed["x"])
    assert (arxiv / "bignn-cache-1.npz").stat().st_mtime_ns >= write_before
    assert np.array_equal(bignn.load("ogbn-arxiv").dense_x(), changed["x"])


def test_a_damaged_cache_is_made_again(arxiv: Path, arrays: Arrays) -> None:
    cache = arxiv / "bignn-cache-1.npz"
    cache.write_bytes(cache.read_bytes()[:1000])
    assert np.array_equal(bignn.load("ogbn-arxiv").dense_x(), arrays["x"])
    assert "x" in read_npz(cache, ARRAYS)


def test_a_cache_that_cannot_be_written_is_done_without(
    folder: Path, arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(datasets, "write_npz", full)
    published.write_arxiv(folder / "ogbn_arxiv", arrays)
    assert bignn.load("ogbn-arxiv").num_nodes == 60


def test_find_downloads_nothing(folder: Path) -> None:
    with pytest.raises(
        FileError, match=r"'reddit' is not in .*reddit\.zip .* put reddit_data\.npz"
    ):
        datasets.find("reddit")


def test_an_unknown_name_lists_all_known_ones(folder: Path) -> None:
    with pytest.raises(InputError, match="unknown dataset 'reddit2'") as caught:
        bignn.load("reddit2")
    assert all(name in str(caught.value) for name in PUBLISHED_SIZES)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BIGNN_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert datasets.data_folder() == tmp_path / ".cache" / "bignn"
    published.write_flickr(tmp_path / ".cache" / "bignn" / "flickr", make_arrays())
    assert bignn.load("flickr").num_nodes == 60


def test_published_sizes_fit_each_other() -> None:
    assert set(PUBLISHED_SIZES) == set(datasets.EMBEDDED) | set(SOURCES)
    assert set(FIXED) < set(SOURCES)
    for name, sizes in PUBLISHED_SIZES.items():
        assert sizes.train + sizes.val + sizes.test <= sizes.nodes, name
        if name in FIXED:
            ends = np.cumsum(FIXED[name]) * sizes.nodes // 100
            assert [sizes.train, sizes.val, sizes.test] == np.diff(ends, prepend=0).tolist(), name
    for name in datasets.EMBEDDED:
        sizes, graph = PUBLISHED_SIZES[name], bignn.load(name)
        assert (graph.num_nodes, graph.num_features) == (sizes.nodes, sizes.features)
        assert graph.num_classes == sizes.classes
        assert graph.num_edges <= 2 * sizes.edges


def test_the_listing(folder: Path, arrays: Arrays, capsys: pytest.CaptureFixture[str]) -> None:
    published.write_flickr(folder / "Flickr" / "raw", arrays)
    published.write_reddit(folder / "reddit", arrays)
    (folder / "reddit" / "reddit_data.npz").unlink()
    assert main(["train", "reddit"]) == 1
    line = f"bignn train: error: '{folder / 'reddit'}' lacks reddit_data.npz; "
    assert capsys.readouterr().err.startswith(line)
    assert main(["datasets", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["folder"] == str(folder)
    rows = {row["name"]: row for row in report["datasets"]}
    assert list(rows) == list(PUBLISHED_SIZES)
    assert rows["flickr"]["found"] == str(folder / "Flickr" / "raw")
    assert rows["flickr"]["get"] is None
    assert rows["cora"]["embedded"] and rows["cora"]["get"] is None
    assert rows["pubmed"]["nodes"] == 19_717 and rows["pubmed"]["paper_nodes"] == 19_711
    assert "lacks reddit_data.npz" in rows["reddit"]["get"]
    assert rows["ogbn-arxiv"]["url"].startswith("https://")
    assert main(["datasets"]) == 0
    table = capsys.readouterr().out
    assert "196,615/39,323/2,213,091" in table
    assert str(folder / "Flickr" / "raw") in table

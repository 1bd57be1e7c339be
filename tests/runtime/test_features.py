"""Features as bits: signs of the normalised input, in the smaller form, read dense or sparse."""

import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from conftest import make_graph, make_packed_model
from numpy.typing import NDArray

import bignn
from bignn import Graph, PackedModel, bits, pack_graph
from bignn.graph import SparseRows
from bignn.kernels.layer import DenseBits, PackedFeatures, SparseBits, dense_words
from bignn.runtime import features as features_module
from bignn.runtime.features import read_features
from bignn.runtime.input_stage import InputSpec

Floats = NDArray[np.float32]
NO_EDGES = np.zeros((2, 0), dtype=np.int64)


@pytest.fixture(scope="module")
def model() -> PackedModel:
    return make_packed_model([300, 16, 3])


def packed(graph: Graph, model: PackedModel) -> tuple[PackedFeatures, Floats]:
    some = pack_graph(graph, like=model)
    assert isinstance(some.features, DenseBits | SparseBits)
    assert some.beta is not None
    return some.features, some.beta


def test_features_are_the_signs_of_the_normalised_input(model: PackedModel) -> None:
    for like_words in (False, True):
        graph = make_graph(50, 300, like_words=like_words)
        features, beta = packed(graph, model)
        raw = graph.dense_x()
        total = np.abs(raw).sum(axis=1, keepdims=True)
        x = raw / np.where(total == 0, np.float32(1), total)
        x = (x - model.arrays["input.mean"]) * model.arrays["input.scale"]
        assert np.array_equal(dense_words(features), bits.pack(x)), like_words
        np.testing.assert_allclose(beta, np.abs(x).mean(axis=1), rtol=1e-5)
        assert features.num_rows == 50


def test_rows_whose_sum_is_no_float_are_read_as_0(model: PackedModel) -> None:
    """A warning would fail this test."""
    graph = make_graph(9, model.num_features)
    x = graph.dense_x()
    x[3] = 1e38
    huge = model.network.input.normalized(x)
    x[3] = 0
    assert np.array_equal(huge, model.network.input.normalized(x))


def test_the_smaller_form_is_taken(model: PackedModel) -> None:
    for as_sparse_rows in (False, True):
        seen = []
        for ones in range(0, 30, 2):
            x = np.zeros((64, 300), dtype=np.float32)
            # Each row has other ones; a row costs 5 words of 8 bytes, or 8 bytes and 4 per flip.
            for row in range(64):
                x[row, (np.arange(ones) * 7 + 4 * row) % 300] = 1
            graph = Graph(sparse_rows(x) if as_sparse_rows else x, NO_EDGES)
            some = pack_graph(graph, like=model)
            if isinstance(some.features, SparseBits):
                assert some.feature_bytes < 64 * (5 * 8) + 64 * 4 + 6 * 8
            seen.append(type(some.features))
        assert seen[0] is SparseBits
        assert seen[-1] is DenseBits
        assert sorted(seen, key=lambda kind: kind is DenseBits) == seen


def test_dense_features_are_read_in_blocks(
    model: PackedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for like_words in (False, True):
        graph = make_graph(50, 300, like_words=like_words)
        monkeypatch.undo()
        whole, whole_beta = packed(graph, model)
        for size in (1, 300 * 7, 300 * 49, 300 * 50):
            monkeypatch.setattr(features_module, "_BLOCK_VALUES", size)
            some, beta = packed(graph, model)
            assert_same(some, beta, whole, whole_beta, size)
            assert type(some) is type(whole)
            if isinstance(some, SparseBits):
                assert isinstance(whole, SparseBits)
                assert np.array_equal(some.inputs, whole.inputs)


# --- Sparse input ------------------------------------------------------------------------------


def sparse_rows(x: Floats) -> SparseRows:
    rows, columns = np.nonzero(x)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(x)))])
    return SparseRows(indptr.astype(np.int64), columns, x[rows, columns], x.shape)


def assert_same(
    features: PackedFeatures, beta: Floats, other: PackedFeatures, other_beta: Floats, case: object
) -> None:
    assert np.array_equal(dense_words(features), dense_words(other)), case
    assert beta.tobytes() == other_beta.tobytes(), case


def stages(x: Floats) -> list[InputSpec]:
    """Every input stage that gives bits, with the statistics that training would take of x."""
    found = []
    for normalize_rows, standardize in product([False, True], [False, True]):
        stage = InputSpec(x.shape[1], normalize_rows, None, None, binarize=True)
        if standardize:
            normalized = stage.normalized(x).astype(np.float64)
            mean, deviation = normalized.mean(axis=0), normalized.std(axis=0)
            scale = 1 / np.where(deviation == 0, 1, deviation)
            stage = InputSpec(
                x.shape[1],
                normalize_rows,
                mean.astype(np.float32),
                scale.astype(np.float32),
                binarize=True,
            )
        found.append(stage)
    return found


def check_both_routes(x: SparseRows, case: str) -> None:
    """Entry by entry, sparse features give the bits and β that they give as a dense matrix."""
    assert 2 * x.indices.size <= np.prod(x.shape), "too many entries to be read one by one"
    dense = x.toarray()
    for stage in stages(dense):
        features, beta = read_features(stage, Graph(x, NO_EDGES))
        expected, expected_beta = read_features(stage, Graph(dense, NO_EDGES))
        assert isinstance(features, DenseBits | SparseBits)
        assert isinstance(expected, DenseBits | SparseBits)
        assert beta is not None
        assert expected_beta is not None
        what = case, stage.normalize_rows, stage.mean is not None
        assert_same(features, beta, expected, expected_beta, what)
        if isinstance(features, SparseBits):  # a packed graph's check of its flips
            rises = np.diff(features.inputs) > 0
            starts = features.offsets[1:-1]
            rises[starts[(starts > 0) & (starts < len(features.inputs))] - 1] = True
            assert rises.all(), what


def test_sparse_features_are_read_as_dense_ones() -> None:
    rng = np.random.default_rng(0)
    usual = (rng.random((60, 150)) < 0.05) * rng.standard_normal((60, 150)).astype(np.float32)
    constant, common, empty, negative = (usual.astype(np.float32) for _ in range(4))
    constant[:, 7] = 0.5  # where all rows have the same, the deviation is 0
    constant[:, 149] = -2
    common[:, 3] = rng.standard_normal(60)  # most rows flip these columns
    common[:50, 64] = 1
    common[:31, 65] = 1
    common[:30, 66] = 1
    empty[::3] = 0
    negative = -np.abs(negative)
    huge, vast = constant.copy(), constant.copy()  # as times in seconds since 1970
    huge[:, 9] = 1.7e9
    vast[:, 9] = 1.7e12 * (1 + np.arange(60) % 2)
    cases = {
        **{"huge constant": huge, "vast values": vast},
        **{"usual": usual, "constant columns": constant, "common columns": common},
        **{"empty rows": empty, "negative": negative},
        "nothing at all": np.zeros((60, 150), dtype=np.float32),
        "one row": usual[:1],
        "one column": np.array([[0], [3], [0], [0]], dtype=np.float32),
    }
    for name, x in cases.items():
        check_both_routes(sparse_rows(x.astype(np.float32)), name)


def test_sparse_features_are_not_made_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = bignn.load("cora")
    assert isinstance(graph.x, SparseRows)
    model = make_packed_model([graph.num_features, 8, 7])
    expected = model.predict(graph)

    def never(_: SparseRows) -> None:
        raise AssertionError("sparse features were made dense")

    monkeypatch.setattr(SparseRows, "toarray", never)
    assert np.array_equal(model.predict(pack_graph(graph, like=model)), expected)


def test_a_column_that_most_rows_flip_changes_the_base() -> None:
    x = np.zeros((60, 150), dtype=np.float32)
    x[:, 0] = -1
    x[:40, 1] = -1
    x[:20, 2] = -1
    stage = InputSpec(150, False, None, None, binarize=True)
    features, _ = read_features(stage, Graph(sparse_rows(x), NO_EDGES))
    assert isinstance(features, SparseBits)
    assert bits.unpack(features.base[None], 150)[0, :4].tolist() == [-1, -1, 1, 1]
    assert np.array_equal(np.bincount(features.inputs, minlength=3), [0, 20, 20])


def test_repeated_entries_add_up_as_in_a_dense_matrix() -> None:
    """In the order in which they were given, since sums of floats round."""
    rng = np.random.default_rng(0)
    for repeats in (2, 3, 9, 20):
        entries = 6 * repeats
        columns = np.repeat(rng.integers(0, 300, (80, 6)), repeats, axis=1)
        columns = rng.permuted(columns, axis=1).ravel()
        values = rng.standard_normal(len(columns)).astype(np.float32)
        values[::7] = 0
        x = SparseRows(np.arange(81) * entries, columns, values, (80, 300))
        check_both_routes(x, f"{repeats} times")


@pytest.mark.parametrize(
    "name",
    [
        *["cora", "citeseer", "pubmed", "amazon-computers", "amazon-photo"],
        *["coauthor-cs", "coauthor-physics", "musae-github"],
    ],
)
def test_sparse_features_of_real_graphs(name: str) -> None:
    if name not in ("cora", "citeseer", "pubmed"):
        folder = os.environ.get("BIGNN_DATA", "")
        if not (Path(folder) / f"{name}.npz").is_file():
            pytest.skip(f"$BIGNN_DATA has no {name}.npz")
    graph = bignn.load(name)
    x = graph.x if isinstance(graph.x, SparseRows) else sparse_rows(graph.x)
    if 2 * x.indices.size > np.prod(x.shape):
        pytest.skip(f"the features of {name} are not sparse")
    # A part of the largest: dense, coauthor-physics alone takes a gigabyte and more.
    rows = min(len(x.indptr) - 1, 100_000_000 // x.shape[1])
    last = x.indptr[rows]
    part = SparseRows(x.indptr[: rows + 1], x.indices[:last], x.values[:last], (rows, x.shape[1]))
    check_both_routes(part, name)

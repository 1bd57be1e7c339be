"""Native code takes arrays at their word: nothing wrong gets to it, whoever made it."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_graph, make_packed_model

import bignn
from bignn import FileError, InputError, PackedGraph, PackedModel, pack_graph
from bignn.kernels.layer import BinaryLayer, DenseBits, Edges, SparseBits
from bignn.kernels.packed_layers import PackedLayers
from bignn.runtime import tensors


@pytest.fixture
def model() -> PackedModel:
    return make_packed_model([100, 9, 3])


@pytest.fixture
def graph(model: PackedModel) -> PackedGraph:
    return pack_graph(make_graph(40, 100), like=model)


def test_a_file_that_lies_about_its_features_is_refused(
    model: PackedModel, graph: PackedGraph, tmp_path: Path
) -> None:
    """Right fingerprint, other features: it would be read past the end of tables."""
    wide = pack_graph(make_graph(40, 128), like=make_packed_model([128, 9, 3]))
    wide = replace(wide, input_digest=graph.input_digest)
    wide.save(tmp_path / "wide.bigraph")
    opened = bignn.open(tmp_path / "wide.bigraph")
    assert isinstance(opened, PackedGraph)
    with pytest.raises(InputError, match="'graph' must be one with 100 features as bits"):
        model.predict(opened)
    floats = replace(graph, features=np.zeros((40, 100), dtype=np.float32), beta=None)
    with pytest.raises(InputError, match="got 100 as floats"):
        model.predict(floats)


def test_what_overflows_gives_the_same_classes_everywhere() -> None:
    for alpha in (3e38, 1e30, 1e-38):
        check_the_same_everywhere(alpha)


def check_the_same_everywhere(alpha: float) -> None:
    model = make_packed_model([100, 33, 7, 7])
    arrays = dict(model.arrays)
    arrays["layers.0.alpha"] = np.full(33, alpha, dtype=np.float32)
    arrays["layers.1.alpha"] = np.full(7, alpha, dtype=np.float32)
    absurd = PackedModel(model.operations, arrays, 100)
    graph = pack_graph(make_graph(50, 100), like=absurd)
    expected = absurd.predict(graph, backend="reference")
    assert expected.min() >= 0
    assert expected.max() < 7
    logits = absurd.predict(graph, output="logits", backend="reference")
    for backend in bignn.kernels.available_backends():
        for plan in ("T", "G"):
            assert np.array_equal(absurd.predict(graph, backend=backend, plan=plan), expected)
            got = absurd.predict(graph, backend=backend, plan=plan, output="logits")
            assert np.array_equal(got, logits, equal_nan=True)


def test_scales_that_fold_out_of_range_are_refused() -> None:
    model = make_packed_model([10, 4, 3], batch_norm=True)
    arrays = dict(model.arrays)
    arrays["layers.0.alpha"] = np.full(4, 3e38, dtype=np.float32)
    arrays["norms.0.scale"] = np.full(4, 3e38, dtype=np.float32)
    with pytest.raises(FileError, match="out of range"):
        PackedModel(model.operations, arrays, 10)


def test_threads_that_overflow_at_once_widen_once() -> None:
    """Rows equal to a column of B have products of K, too much for a byte."""
    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], (64, 700))
    words = bignn.bits.pack(signs)
    ones = np.ones(64, dtype=np.float32)
    size = 3000
    rows = bignn.bits.pack(np.concatenate([signs, -signs] * 24)[:size])
    edges = Edges(
        np.arange(size + 1), np.arange(size, dtype=np.int32), None,
        np.ones(size, dtype=np.float32), size,
    )  # fmt: skip
    for backend in bignn.kernels.available_backends()[1:]:
        layer = BinaryLayer(words, 700, ones, 0 * ones)
        results: list[Any] = [None] * 8
        barrier = threading.Barrier(8)

        def predict(
            number: int,
            layer: BinaryLayer = layer,
            backend: str = backend,
            results: list[Any] = results,
            barrier: threading.Barrier = barrier,
        ) -> None:
            factor = np.ones(size, dtype=np.float32)
            layers = PackedLayers([layer], [edges], "T", DenseBits(rows), factor, backend)
            barrier.wait()
            results[number] = layers.run_to_values()

        threads = [threading.Thread(target=predict, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert layer.native.bytes_per_column == 2
        expected = bignn.bits.unpack(rows, 700).astype(np.float32) @ signs.T.astype(np.float32)
        for result in results:
            np.testing.assert_allclose(result, expected, rtol=1e-4)


def test_one_node_reuses_what_all_nodes_prepared() -> None:
    model = make_packed_model([300, 9, 3])
    graph = pack_graph(make_graph(500, 300, like_words=True), like=model)
    assert isinstance(graph.features, SparseBits)
    model.predict(graph, plan="S")
    prepared = [layer.native for layer in model.network.layers]
    model.predict(graph, [3], plan="S")
    assert all(
        layer.native is before for layer, before in zip(model.network.layers, prepared, strict=True)
    )


def test_names_in_messages_stay_one_printable_line(model: PackedModel, tmp_path: Path) -> None:
    steps = [dict(step) for step in model.operations]
    for step in steps:
        if step["op"] == "bias":
            step["bias"] = "a\nb \x1b[31m"
    header = {"format": "bignn-model", "version": 2, "num_features": 100, "operations": steps}
    tensors.write(tmp_path / "bad.bignn", model.arrays, header)
    with pytest.raises(FileError) as raised:
        bignn.open(tmp_path / "bad.bignn")
    assert str(raised.value).isprintable()


def test_a_plan_is_a_text(model: PackedModel, graph: PackedGraph) -> None:
    with pytest.raises(InputError, match="'plan' must be letters"):
        model.predict(graph, plan=3)  # type: ignore[arg-type]

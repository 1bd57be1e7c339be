"""Native code takes arrays at their word: nothing wrong gets to it, whoever made it."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bignn.kernels.packed_layers import PackedLayers
from conftest import make_graph, make_packed_model

import bignn
from bignn import FileError, InputError, PackedGraph, PackedModel, pack_graph
from bignn.kernels.layer import BinaryLayer, DenseBits, Edges, SparseBits
from bignn.runtime import tensors


@pytest.fixture
def model() -> PackedModel:
    return make_packed_model([100, 9, 3])


@pytest.fixture
def graph(model: PackedModel) -> PackedGraph:
    return pack_graph(make_graph(40, 100), like=model)


@pytest.mark.parametrize(
    "change",
    [
        lambda g: {"ids": g.ids + 10**8},
        lambda g: {"ids": g.ids.astype(np.float32)},
        lambda g: {"offsets": g.offsets[:-1]},
        lambda g: {"offsets": g.offsets[::-1]},
        lambda g: {"degree_scale": g.degree_scale.astype(np.float64)},
        lambda g: {"degree_scale": np.repeat(g.degree_scale, 2)[::2]},
        lambda g: {"degree_scale": np.full_like(g.degree_scale, np.nan)},
        lambda g: {"beta": -g.beta},
        lambda g: {"beta": None},
        lambda g: {"weights": np.ones(3, dtype=np.float32)},
        lambda g: {"num_features": 0},
        lambda g: {"num_features": 300},
        lambda g: {"features": DenseBits(g.features.words[:-1])},
        lambda g: {"features": DenseBits(~g.features.words)},
        lambda g: {"labels": {"y": np.zeros(3, dtype=np.int64)}},
    ],
)
def test_a_graph_checks_itself(
    graph: PackedGraph, change: Callable[[PackedGraph], dict[str, Any]]
) -> None:
    with pytest.raises(InputError) as raised:
        replace(graph, **change(graph))
    assert "\n" not in str(raised.value)


def test_bits_flipped_twice_are_refused(model: PackedModel) -> None:
    graph = pack_graph(make_graph(60, 100), like=model)
    twice = SparseBits(
        np.arange(0, 122, 2), np.full(120, 7, dtype=np.int32), np.zeros(2, dtype=np.uint64)
    )
    with pytest.raises(FileError, match="does not rise within each row"):
        replace(graph, features=twice)
    once = replace(twice, inputs=np.tile(np.array([7, 9], dtype=np.int32), 60))
    assert replace(graph, features=once).num_nodes == 60


def test_a_file_that_lies_about_its_features_is_refused(
    model: PackedModel, graph: PackedGraph, tmp_path: Path
) -> None:
    """Right fingerprint, other features: it would be read past the end of tables."""
    wide = pack_graph(make_graph(40, 128), like=make_packed_model([128, 9, 3]))
    wide = replace(wide, input_digest=graph.input_digest)
    wide.save(tmp_path / "wide.graph")
    opened = bignn.open(tmp_path / "wide.graph")
    assert isinstance(opened, PackedGraph)
    with pytest.raises(InputError, match="'graph' must be one with 100 features as bits"):
        model.predict(opened)
    floats = replace(graph, features=np.zeros((40, 100), dtype=np.float32), beta=None)
    with pytest.raises(InputError, match="got 100 as floats"):
        model.predict(floats)


@pytest.mark.parametrize(
    "operations", [5, None, True, "abc", {"a": 1}, [1], ["ab"], [{"op": [1]}], [{}], []]
)
def test_operations_of_any_type_are_refused_in_one_line(operations: Any, tmp_path: Path) -> None:
    header = {"format": "bignn-model", "version": 1, "num_features": 4, "operations": operations}
    for arrays in ({}, {"w": np.zeros(3, dtype=np.float32)}):
        tensors.write(tmp_path / "bad.bignn", arrays, header)
        with pytest.raises(FileError) as raised:
            bignn.open(tmp_path / "bad.bignn")
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("alpha", [3e38, 1e30, 1e-38])
def test_what_overflows_gives_the_same_classes_everywhere(alpha: float) -> None:
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
        weights = Weights(words, 700, ones, 0 * ones)
        results: list[Any] = [None] * 8
        barrier = threading.Barrier(8)

        def predict(
            number: int,
            weights: Weights = weights,
            backend: str = backend,
            results: list[Any] = results,
            barrier: threading.Barrier = barrier,
        ) -> None:
            factor = np.ones(size, dtype=np.float32)
            chain = Chain([Layer(weights, edges, "T")], DenseBits(rows), factor, "values", backend)
            barrier.wait()
            results[number] = chain.run()

        threads = [threading.Thread(target=predict, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert weights.bytes_per_column == 2
        expected = bignn.bits.unpack(rows, 700).astype(np.float32) @ signs.T.astype(np.float32)
        for result in results:
            np.testing.assert_allclose(result, expected, rtol=1e-4)


def test_one_node_reuses_what_all_nodes_prepared() -> None:
    model = make_packed_model([300, 9, 3])
    graph = pack_graph(make_graph(500, 300, like_words=True), like=model)
    assert isinstance(graph.features, SparseBits)
    model.predict(graph, plan="S")
    kept = dict(model.network.layers[0]._prepared)
    model.predict(graph, [3], plan="S")
    assert model.network.layers[0]._prepared.keys() == kept.keys()


@pytest.mark.parametrize("layer", [0, 1])
def test_a_relu_after_a_binary_layer_is_not_forgotten(layer: int) -> None:
    model = make_packed_model([100, 9, 3])
    steps = [dict(step) for step in model.operations]
    at = [number for number, step in enumerate(steps) if step["op"] == "bias"][layer] + 1
    steps.insert(at, {"op": "relu", "in": [], "out": ""})
    for number, step in enumerate(steps):
        step["in"], step["out"] = [f"v{number - 1}" if number else "x"], f"v{number}"
    with_relu = PackedModel(steps, model.arrays, 100)
    assert with_relu.network.is_binary == (layer == 1)  # a sum of floats, or none
    graph = pack_graph(make_graph(40, 100), like=with_relu)
    logits = with_relu.predict(graph, output="logits")
    if layer == 1:
        plain = np.maximum(model.predict(graph, output="logits"), 0)
        np.testing.assert_allclose(logits, plain, rtol=1e-3, atol=1e-4)
        assert (logits == 0).any()
    else:  # behind a ReLU every sign is +1, so that all columns of a row are alike
        assert not np.allclose(logits, model.predict(graph, output="logits"), atol=1e-2)


def test_names_in_messages_stay_one_printable_line(model: PackedModel, tmp_path: Path) -> None:
    steps = [dict(step) for step in model.operations]
    for step in steps:
        if step["op"] == "bias":
            step["bias"] = "a\nb \x1b[31m"
    header = {"format": "bignn-model", "version": 1, "num_features": 100, "operations": steps}
    tensors.write(tmp_path / "bad.bignn", model.arrays, header)
    with pytest.raises(FileError) as raised:
        bignn.open(tmp_path / "bad.bignn")
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("key", ["version", "num_features"])
def test_booleans_are_no_numbers(key: str, tmp_path: Path) -> None:
    model = make_packed_model([1, 3])
    header = {
        "format": "bignn-model", "version": 1, "num_features": 1, "operations": model.operations,
    }  # fmt: skip
    tensors.write(tmp_path / "fine.bignn", model.arrays, header)
    assert isinstance(bignn.open(tmp_path / "fine.bignn"), PackedModel)
    tensors.write(tmp_path / "bad.bignn", model.arrays, {**header, key: True})
    with pytest.raises(FileError):
        bignn.open(tmp_path / "bad.bignn")


def test_a_plan_is_a_text(model: PackedModel, graph: PackedGraph) -> None:
    with pytest.raises(InputError, match="'plan' must be letters"):
        model.predict(graph, plan=3)  # type: ignore[arg-type]

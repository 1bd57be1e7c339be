"""Input encoders without torch: rotations, thresholds, the choice by features, and their files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_arrays

from bignn import Graph, InputError, PackedGraph, PackedModel, bits, load, pack_graph
from bignn.config.input_bits import MOST_ROTATED, num_input_bits, parse_input_bits
from bignn.errors import FileError
from bignn.graph import SparseRows
from bignn.kernels.layer import DenseBits
from bignn.runtime.encoders import encoder_of
from bignn.runtime.features import read_features
from bignn.runtime.input_bits import choose_input_bits, rotation_scales
from bignn.runtime.input_stage import InputSpec, absolute_sums, row_scales


def random_diagonals(blocks: int, size: int, seed: int = 0) -> Any:
    return 1 - 2 * np.random.default_rng(seed).integers(0, 2, (blocks, 3, size)).astype(np.int8)


def rotations(diagonals: Any, num_features: int) -> Any:
    return encoder_of("rotate", num_features, {"diagonals": diagonals})


def test_a_rotation_of_a_power_of_two_is_orthogonal() -> None:
    diagonals = random_diagonals(3, 16)
    matrix = rotations(diagonals, 16).matrix
    assert matrix.shape == (16, 48)
    for block in np.split(matrix, 3, axis=1):
        assert np.array_equal(block.T @ block, 16**3 * np.eye(16))  # whole numbers, exactly


def test_a_rotation_is_what_the_format_says() -> None:
    """Of three features: the first rows and columns of H D3 H D2 H D1, multiplied out by hand."""
    hadamard = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]])
    diagonals = random_diagonals(2, 4, seed=1)
    expected = []
    for first, second, third in diagonals.astype(int):
        whole = hadamard @ np.diag(third) @ hadamard @ np.diag(second) @ hadamard @ np.diag(first)
        expected.append(whole[:3, :3])
    assert np.array_equal(rotations(diagonals, 3).matrix, np.concatenate(expected).T)
    z = np.array([[0.25, -1.0, 3.00003], [200, -1e30, 0.00001]], dtype=np.float32)
    whole = np.array([[1024, -4096, 12288], [524287, -524287, 0]])
    y = rotations(diagonals, 3).encode(z)
    sums = whole @ np.concatenate(expected).T
    assert np.array_equal(y, (sums / (4096 * 4 * np.sqrt(3))).astype(np.float32))


def test_learned_directions_are_what_the_format_says() -> None:
    arrays: dict[str, Any] = {
        "directions": np.array([[3, -127], [0, 1]], dtype=np.int8),
        "direction_steps": np.array([0.25, 2], dtype=np.float32),
        "direction_offsets": np.array([-5, 1 << 24], dtype=np.int32),
    }
    z = np.array([[0.25, -1.00003], [1e9, 0.00001]], dtype=np.float32)
    sums = np.array([[3 * 1024 + 127 * 4096 - 5, -4096 + (1 << 24)], [3 * 524287 - 5, 1 << 24]])
    encoder = encoder_of("learned", 2, arrays)
    assert encoder.input_bits == "learned:1"
    assert np.array_equal(encoder.encode(z), (sums * [0.25 / 4096, 2 / 4096]).astype(np.float32))


def test_rotated_columns_keep_their_proportions() -> None:
    assert rotation_scales(np.array([1.0, 7.0, 0.0])).tolist() == [0.06**0.5] * 3
    assert rotation_scales(np.array([2.0, 4.0, 500.0, 0.0])).tolist() == [0.5, 0.25, 0.002, 1]
    assert rotation_scales(np.zeros(2)).tolist() == [1, 1]


def test_thresholds_are_compared_column_by_column() -> None:
    thresholds = np.array([[-1, 0.5], [0, 2]], dtype=np.float32)
    encoder = encoder_of("threshold", 2, {"thresholds": thresholds})
    spec = InputSpec(2, False, np.zeros(2, np.float32), np.ones(2, np.float32), True, encoder)
    x = np.array([[0.5, -1], [-2, 3]], dtype=np.float32)
    assert spec.num_columns == 4
    y = spec.normalized(x)
    assert y.tolist() == [[1.5, 0, -1, -3], [-1, -2.5, 3, 1]]
    features, beta = read_features(spec, Graph(x, np.zeros((2, 0), dtype=np.int64)))
    assert isinstance(features, DenseBits)
    assert bits.unpack(features.words, 4).tolist() == [[1, 1, -1, -1], [-1, -1, 1, 1]]
    assert beta is not None
    assert np.array_equal(beta, row_scales(y, absolute_sums)[:, 0])


def test_dense_features_with_few_columns_are_rotated() -> None:
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((50, 20)).astype(np.float32)
    assert choose_input_bits(dense).startswith("learned:")
    assert choose_input_bits(np.abs(dense)).startswith("learned:")
    per_feature = {1: 32, 8: 32, 20: 16, 100: 4, 128: 4, 129: 4, 512: 4}
    for columns, expected in per_feature.items():
        x = rng.standard_normal((9, columns)).astype(np.float32)
        assert choose_input_bits(x) == f"learned:{expected}"
    two_values = (dense > 0).astype(np.float32)
    words = np.where(rng.random((50, 20)) < 0.2, np.abs(dense), 0)
    wide = rng.standard_normal((5, 3000)).astype(np.float32)
    for other in (two_values, 7 - two_values, words, wide, dense[:1], 0 * dense):
        assert choose_input_bits(other) == "sign"
    rows = SparseRows(np.arange(0, 1001, 20), np.tile(np.arange(20), 50), dense.ravel(), (50, 20))
    assert choose_input_bits(rows) == choose_input_bits(dense)
    few = SparseRows(np.arange(51), np.zeros(50, np.int64), dense[:, 0].copy(), (50, 20))
    assert choose_input_bits(few) == "sign"
    for name in ("cora", "citeseer", "pubmed"):
        assert choose_input_bits(load(name).x) == "sign"


@pytest.mark.parametrize("text", ["", "rotate", "rotate:0", "rotate:65", "threshold:-1", "x:4", 4])
def test_other_choices_are_refused(text: object) -> None:
    with pytest.raises(InputError, match=r"'input_bits' must be 'auto', 'sign', 'learned:K', 'rot"):
        parse_input_bits(text)


def test_rotations_have_a_largest_size() -> None:
    assert num_input_bits("rotate:2", MOST_ROTATED) == 2 * MOST_ROTATED
    with pytest.raises(InputError, match=r"no rotation of over 1024 features, got 'rotate:2' for"):
        num_input_bits("rotate:2", MOST_ROTATED + 1)
    assert num_input_bits("threshold:2", 5000) == 10_000
    assert num_input_bits("auto", 5000) == num_input_bits("sign", 5000) == 5000


def encoded_model(encoder: str, num_features: int = 20, per_feature: int = 3) -> PackedModel:
    """One binary layer on encoded features, as data."""
    rng = np.random.default_rng(0)
    width = num_features * per_feature
    if encoder == "rotate":
        numbers: Any = bits.pack(random_diagonals(per_feature, 32))
        name = "diagonals"
    elif encoder == "threshold":
        numbers = np.sort(rng.standard_normal((num_features, per_feature)).astype(np.float32))
        name = "thresholds"
    else:
        numbers = rng.integers(-127, 128, (width, num_features)).astype(np.int8)
        name = "directions"
    more = {}
    if encoder == "learned":
        more["direction_steps"] = 2.0 ** rng.integers(-9, 1, width).astype(np.float32)
        more["direction_offsets"] = rng.integers(-9999, 9999, width).astype(np.int32)
    return PackedModel(
        [
            {"op": "standardize", "in": ["x"], "out": "z", "mean": "input.mean",
             "scale": "input.scale"},
            {"op": encoder, "in": ["z"], "out": "y", name: f"input.{name}",
             **{key: f"input.{key}" for key in more}},
            {"op": "binarize", "in": ["y"], "out": "f"},
            {"op": "binary_linear", "in": ["f"], "out": "h", "words": "0.words",
             "alpha": "0.alpha"},
            {"op": "aggregate", "in": ["h"], "out": "logits", "aggr": "gcn", "edge_bits": 7},
        ],
        {
            "input.mean": np.full(num_features, 0.1, dtype=np.float32),
            "input.scale": np.full(num_features, 1.5, dtype=np.float32),
            f"input.{name}": numbers,
            **{f"input.{key}": values for key, values in more.items()},
            "0.words": bits.pack(rng.standard_normal((5, width))),
            "0.alpha": np.ones(5, dtype=np.float32),
        },
        num_features,
    )  # fmt: skip


def dense_graph(num_features: int = 20) -> Graph:
    arrays = make_arrays()
    x = np.random.default_rng(2).standard_normal((len(arrays["y"]), num_features))
    return Graph(x.astype(np.float32), arrays["edge_index"])


@pytest.mark.parametrize("encoder", ["learned", "rotate", "threshold"])
def test_models_with_an_encoder_are_files_and_predict_some_nodes(
    encoder: str, tmp_path: Path
) -> None:
    model, graph = encoded_model(encoder), dense_graph()
    assert model.network.layers[0].num_inputs == 60
    assert not model.network.rest
    model.save(tmp_path / "model.bignn")
    opened = PackedModel.open(tmp_path / "model.bignn")
    assert opened.input_digest == model.input_digest
    packed = pack_graph(graph, like=opened)
    assert packed.num_features == 60
    assert packed.feature_bytes == graph.num_nodes * (8 + 4)  # 60 bits are a word, and β
    packed.save(tmp_path / "graph.bigraph")
    again = PackedGraph.open(tmp_path / "graph.bigraph", verify=True)
    expected = model.predict(graph, output="logits")
    for of in (graph, packed, again):
        assert np.array_equal(opened.predict(of, output="logits"), expected)
        assert np.array_equal(opened.predict(of, [7, 3], output="logits"), expected[[7, 3]])
    # The same operations one by one, the encoder among them.
    read_twice = [*model.operations[:2], {"op": "scale", "in": ["y"], "out": "s", "factor": 1.0}]
    read_twice += [{"op": "binarize", "in": ["s"], "out": "f"}, *model.operations[3:]]
    other = PackedModel(read_twice, model.arrays, model.num_features)
    assert other.network.input.encoder is None
    np.testing.assert_allclose(other.predict(graph, output="logits"), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("encoder", "name"),
    [
        ("rotate", "diagonals"),
        ("threshold", "thresholds"),
        ("learned", "directions"),
        ("learned", "direction_steps"),
        ("learned", "direction_offsets"),
    ],
)
def test_graphs_packed_with_another_encoder_are_refused(encoder: str, name: str) -> None:
    model = encoded_model(encoder)
    arrays = dict(model.arrays)
    one = np.zeros_like(arrays[f"input.{name}"])
    one.flat[0] = 1
    arrays[f"input.{name}"] = arrays[f"input.{name}"] + one
    if name == "diagonals":
        arrays["input.diagonals"] = model.arrays["input.diagonals"] ^ one
    changed = PackedModel(model.operations, arrays, model.num_features)
    packed = pack_graph(dense_graph(), like=model)
    model.predict(packed)
    others = {"rotate", "threshold", "learned"} - {encoder}
    for other in (changed, *map(encoded_model, sorted(others))):
        with pytest.raises(InputError, match="packed with this model's input statistics"):
            other.predict(packed)


@pytest.mark.parametrize("num_columns", [0, 15])
def test_an_encoder_has_as_many_bits_of_each_feature(num_columns: int) -> None:
    arrays: dict[str, Any] = {
        "directions": np.ones((num_columns, 7), np.int8),
        "direction_steps": np.ones(num_columns, np.float32),
        "direction_offsets": np.ones(num_columns, np.int32),
    }
    with pytest.raises(FileError, match=f"{num_columns} 'learned' bits are no multiple of 7"):
        encoder_of("learned", 7, arrays)


@pytest.mark.parametrize(
    ("encoder", "numbers", "match"),
    [
        ("rotate", np.zeros((3, 2, 1), np.uint64), "must be uint64"),
        ("rotate", np.zeros((3, 3, 2), np.uint64), "must be uint64"),
        ("rotate", np.full((3, 3, 1), 1 << 32, np.uint64), "padding bits of a rotation are not 0"),
        ("rotate", np.zeros((4000, 3, 1), np.uint64), "makes 80000 columns, over 65536"),
        ("threshold", np.zeros((19, 3), np.float32), "must be float32"),
        ("threshold", np.full((20, 3), np.nan, np.float32), "not finite"),
        ("threshold", np.zeros((20, 0), np.float32), "a layer has no outputs"),
        ("learned", np.zeros((60, 19), np.int8), "must be int8"),
        ("learned", np.zeros((60, 20), np.int32), "must be int8"),
        ("learned", np.zeros((40, 20), np.int8), "'input.direction_steps' must be float32"),
        ("learned", np.zeros((61, 20), np.int8), "'input.direction_steps' must be float32"),
    ],
)
def test_encoders_that_make_no_sense_are_refused(encoder: str, numbers: Any, match: str) -> None:
    model = encoded_model(encoder)
    names = {"rotate": "diagonals", "threshold": "thresholds", "learned": "directions"}
    name = f"input.{names[encoder]}"
    with pytest.raises(FileError, match=match):
        PackedModel(model.operations, {**model.arrays, name: numbers}, model.num_features)


def test_a_file_rotates_no_more_columns_than_training_does() -> None:
    arrays = {"d": np.zeros((1, 3, 32), np.uint64)}
    learned = {"directions": "d", "direction_steps": "d", "direction_offsets": "d"}
    for op, names in (("rotate", {"diagonals": "d"}), ("learned", learned)):
        with pytest.raises(FileError, match=f"'{op}' takes 1025 columns, over 1024"):
            PackedModel([{"op": op, "in": ["x"], "out": "y", **names}], arrays, 1025)

"""The NumPy reference itself, and the forms that layers take their input in."""

import math
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from layer_problems import (
    make_edges,
    make_problem,
    one_layer,
    same,
)

from bignn import bits
from bignn.kernels import reference
from bignn.kernels.layer import Keep, SparseBits


@pytest.mark.parametrize("weighted", [False, True])
def test_the_reference_equals_the_written_formula(weighted: bool) -> None:
    """In Python's integers from signs, and within 1e-4 of the formula without integers."""
    problem = make_problem(7, [37, 6], [[4, 0, 1, 9, 20]], 8, weighted=weighted)
    weights, edges = problem.layers[0], problem.edges[0]
    features = cast(SparseBits, problem.features)
    signs = np.tile(bits.unpack(features.base, 37), (8, 1))
    for row in range(8):
        flipped = features.inputs[features.offsets[row] : features.offsets[row + 1]]
        signs[row, flipped] *= -1
    columns = bits.unpack(weights.words, 37)
    values = problem.expected()
    for i in range(edges.num_rows):
        entries = range(edges.offsets[i], edges.offsets[i + 1])
        x = {
            e: np.float32(1 if edges.weights is None else edges.weights[e])
            * problem.beta[edges.ids[e]]
            for e in entries
        }
        largest = max(x.values(), default=np.float32(0))
        exponent = 19 - math.floor(math.log2(largest)) if largest else 0
        # round() takes halves to even; the products by a power of two are exact.
        q = {e: min(round(float(x[e]) * 2.0**exponent), 2**20 - 1) for e in entries}
        for c in range(6):
            dots = {
                e: sum(
                    int(a) * int(b) for a, b in zip(signs[edges.ids[e]], columns[c], strict=True)
                )
                for e in entries
            }
            total = np.float32(sum(q[e] * dots[e] for e in entries))
            row_scale = edges.target_factor[i] * np.float32(2.0**-exponent)
            h = total * row_scale * weights.scale[c] + weights.shift[c]
            assert h.dtype == np.float32
            assert values[i, c].tobytes() == h.tobytes()
            terms = [float(x[e]) * dots[e] for e in entries]
            factor = float(edges.target_factor[i]) * float(weights.scale[c])
            exact = factor * sum(terms) + float(weights.shift[c])
            size = abs(factor) * sum(map(abs, terms)) + abs(float(weights.shift[c]))
            assert abs(float(values[i, c]) - exact) <= 1e-4 * size


def test_beta_adds_in_sixteen_lanes() -> None:
    for columns in (1, 7, 15, 16, 17, 40, 64, 65, 257):
        h = np.random.default_rng(columns).standard_normal((5, columns)).astype(np.float32)
        words, beta = reference.binarize(h)
        assert np.array_equal(words, bits.pack(h))
        for row, got in zip(h, beta, strict=True):
            lanes = [np.float32(0)] * 16
            for column, value in enumerate(row):
                lanes[column % 16] = lanes[column % 16] + abs(value)
            for half in (8, 4, 2, 1):
                lanes = [lanes[lane] + lanes[lane + half] for lane in range(half)]
            assert got.tobytes() == (lanes[0] / np.float32(columns)).tobytes(), columns


def test_beta_of_the_kernels_is_the_references(instruction_set: str) -> None:
    """Seen directly: the bits and β that a layer keeps."""
    keep: frozenset[Keep] = frozenset(["bits"])
    order_matters = False
    for outputs in (1, 17, 40, 64, 65, 257):
        problem = make_problem(outputs, [65, outputs, 3], [[3] * 11, [1]], 5)
        hidden = replace(problem.layers[0], keep=keep)
        problem = replace(problem, layers=[hidden, problem.layers[1]])
        bound = problem.bind("TG", instruction_set)
        bound.run_to_values()
        h = one_layer(hidden, problem.edges[0], problem.features, problem.beta).expected()
        words, beta = reference.binarize(h)
        kept_words, kept_beta = bound.kept(0, "bits")
        assert same(kept_beta, beta)
        assert same(kept_words, words)
        in_a_row = np.add.accumulate(np.abs(h), axis=1)[:, -1] / np.float32(outputs)
        order_matters = order_matters or not same(in_a_row, beta)
    assert order_matters


def test_sparse_bits_are_the_base_row_with_flips() -> None:
    sparse = SparseBits(
        np.array([0, 2, 2, 3], dtype=np.int64),
        np.array([64, 0, 69], dtype=np.int32),
        bits.pack(np.ones(70)),
    )
    expected = np.ones((3, 70), dtype=np.int8)
    expected[0, [0, 64]] = expected[2, 69] = -1
    assert np.array_equal(bits.unpack(sparse.dense().words, 70), expected)
    assert sparse.num_rows == sparse.dense().num_rows == 3


def test_some_rows_of_edges() -> None:
    edges = make_edges(np.random.default_rng(0), [2, 0, 3, 1], 5, weighted=True)
    assert edges.weights is not None
    some = edges.rows(1, 3)
    assert some.weights is not None
    assert some.offsets.tolist() == [0, 0, 3]
    assert np.array_equal(some.ids, edges.ids[2:5])
    assert np.array_equal(some.weights, edges.weights[2:5])
    assert np.array_equal(some.target_factor, edges.target_factor[1:3])
    assert (some.num_rows, some.num_sources) == (2, 5)

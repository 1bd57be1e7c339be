"""Records whose values do not fit their bytes."""

from dataclasses import replace

import numpy as np
import pytest
from layer_problems import (
    KINDS,
    Problem,
    make_edges,
    make_problem,
    make_weights,
    one_layer,
    ones,
    opposites,
    same,
)

from bignn import bits
from bignn.kernels import native
from bignn.kernels.chain import Chain
from bignn.kernels.operands import DenseBits, Layer, SparseBits


@pytest.mark.parametrize(("num_bits", "bytes_per_column"), [(255, 1), (600, 2), (70_000, 4)])
@pytest.mark.parametrize("outputs", [7, 17, 65])
def test_products_too_large_for_a_record_widen_it(
    instruction_set: str, num_bits: int, bytes_per_column: int, outputs: int
) -> None:
    weights, features = opposites(num_bits, outputs)
    edges = make_edges(np.random.default_rng(1), [2, 5, 0, 1, 30, 2], 4)
    problem = one_layer(weights, edges, features, ones(4))
    expected = problem.expected()
    assert abs(expected - weights.shift).max() > 0
    for _ in range(2):  # the second time the size is known from the start
        assert same(problem.run("T", instruction_set), expected)
        assert (
            weights._prepared["bytes_per_column" if bytes_per_column > 1 else ("panels", 1)]
            is not None
        )
        assert weights._prepared.get("bytes_per_column", 1) == bytes_per_column
    if num_bits < 2**16:
        assert same(problem.run("G", instruction_set), expected)
    assert same(problem.run("T", instruction_set, "classes"), problem.expected("classes"))


@pytest.mark.parametrize(
    ("sign", "count", "bytes_per_column"),
    [
        *[(1, 127, 1), (1, 128, 2), (-1, 128, 1), (-1, 129, 2), (1, 300, 2), (-1, 300, 2)],
        *[(1, 32766, 2), (1, 32767, 2), (1, 32768, 4), (-1, 32768, 2), (-1, 32769, 4)],
    ],
)
@pytest.mark.parametrize("outputs", [7, 65])
def test_sparse_records_at_the_ends_of_their_range(
    instruction_set: str, sign: int, count: int, bytes_per_column: int, outputs: int
) -> None:
    """``count`` flips of the base row that all move the product the same way."""
    rng = np.random.default_rng(count)
    num_bits = count + 5
    weights = make_weights(rng, num_bits, outputs)
    weights.words[0] = bits.pack(np.full(num_bits, -sign))
    inputs = np.concatenate([[3], rng.permutation(num_bits)[:count]]).astype(np.int32)
    features = SparseBits(
        np.array([0, 1, 1 + count], dtype=np.int64), inputs, bits.pack(np.ones(num_bits))
    )
    problem = one_layer(weights, make_edges(rng, [1, 2, 3], 2), features, ones(2))
    assert same(problem.run("S", instruction_set), problem.expected())
    assert weights._prepared.get("bytes_per_column", 1) == bytes_per_column


@pytest.mark.parametrize(
    ("differing", "bytes_per_column"),
    [(173, 1), (172, 2), (428, 1), (429, 2), (0, 2), (600, 2), (300, 1)],
)
@pytest.mark.parametrize("first", ["T", "G", "S"])
def test_hidden_records_at_the_ends_of_their_range(
    instruction_set: str, first: str, differing: int, bytes_per_column: int
) -> None:
    """Hidden products count from K / 2 = 300: a byte holds 173 to 428 differing bits."""
    problem = make_problem(differing, [33, 600, 17], [[2] * 6, [1, 3, 2, 5]], 5)
    hidden, last = problem.weights
    signs = np.random.default_rng(0).permutation(np.where(np.arange(600) < differing, -1, 1))
    # Without scale, every row's hidden values are the shift.
    hidden = replace(hidden, scale=0 * hidden.scale, shift=signs.astype(np.float32))
    last = replace(last, words=bits.pack(np.ones((17, 600))))
    problem = replace(problem, weights=[hidden, last])
    for output in KINDS:
        assert same(problem.run(first + "T", instruction_set, output), problem.expected(output))
    assert last._prepared.get("bytes_per_column", 1) == bytes_per_column
    assert hidden._prepared.get("bytes_per_column", 1) == 1


def test_chains_that_overflow_at_the_same_time(instruction_set: str) -> None:
    """As when several threads were about to run when the first of them met the value."""
    weights, features = opposites(600, 7)
    edges = make_edges(np.random.default_rng(1), [2, 5, 0, 1, 30, 2], 4)
    expected = one_layer(weights, edges, features, ones(4)).expected()
    chains = [
        Chain([Layer(weights, edges, "T")], features, ones(4), "values", instruction_set)
        for _ in range(5)
    ]
    for chain in chains:
        chain._program = native.program(chain._steps(), instruction_set)
    assert all(same(chain.run(), expected) for chain in chains)
    assert weights._prepared["bytes_per_column"] == 2
    assert [chain.bytes_per_column(0) for chain in chains] == [2] * 5


@pytest.mark.parametrize("row", [0, 3, 4, 10])
@pytest.mark.parametrize("outputs", [7, 65])
def test_one_row_that_does_not_fit_is_enough(instruction_set: str, outputs: int, row: int) -> None:
    rng = np.random.default_rng(row)
    alike = rng.standard_normal(600)
    x = rng.standard_normal((11, 600))
    x[row] = alike
    words = bits.pack(np.tile(alike, (outputs, 1)))
    weights = replace(make_weights(rng, 600, outputs), words=words)
    edges = make_edges(rng, [2] * 11, 11)
    dense = one_layer(weights, edges, DenseBits(bits.pack(x)), ones(11))
    assert same(dense.run("T", instruction_set), dense.expected())
    assert weights._prepared["bytes_per_column"] == 2

    offsets = np.where(np.arange(12) > row, 300, 0).astype(np.int64)
    inputs = np.flatnonzero(alike < 0)[:300].astype(np.int32)
    offsets[offsets > 0] = len(inputs)
    weights = replace(weights)
    features = SparseBits(offsets, inputs, bits.pack(np.ones(600)))
    sparse = one_layer(weights, edges, features, ones(11))
    assert same(sparse.run("S", instruction_set), sparse.expected())
    assert weights._prepared["bytes_per_column"] == 2

    # Hidden: without neighbours a row is the shift, half of it negative; with one it is all +1.
    first = replace(
        make_weights(rng, 600, 600),
        words=bits.pack(np.tile(alike, (600, 1))),
        scale=ones(600),
        shift=np.resize([1, -1], 600).astype(np.float32),
    )
    one_edge = make_edges(rng, [int(number == row) for number in range(11)], 1)
    one_edge.target_factor[:] = 1
    last = replace(make_weights(rng, 600, outputs), words=bits.pack(np.ones((outputs, 600))))
    hidden = Problem(
        [first, last], [one_edge, edges], [None, None], DenseBits(bits.pack(alike[None])), ones(1)
    )
    for way in "TG":
        last._prepared.clear()
        assert same(hidden.run(way + "T", instruction_set), hidden.expected()), way
        assert last._prepared["bytes_per_column"] == 2

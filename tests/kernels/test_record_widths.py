"""Records whose values do not fit their bytes."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

import numpy as np
from layer_problems import (
    KINDS,
    Problem,
    make_edges,
    make_layer,
    make_problem,
    one_layer,
    ones,
    opposites,
    same,
)

from bignn import bits
from bignn.kernels.layer import DenseBits, SparseBits


def test_products_too_large_for_a_record_widen_it(instruction_set: str) -> None:
    for sizes, outputs in product([(255, 1), (600, 2), (70_000, 4)], [7, 17, 65]):
        check_products_too_large(instruction_set, *sizes, outputs)


def check_products_too_large(
    instruction_set: str, num_bits: int, bytes_per_column: int, outputs: int
) -> None:
    weights, features = opposites(num_bits, outputs)
    edges = make_edges(np.random.default_rng(1), [2, 5, 0, 1, 30, 2], 4)
    problem = one_layer(weights, edges, features, ones(4))
    expected = problem.expected()
    assert abs(expected - weights.shift).max() > 0
    for _ in range(2):  # the second time the size is known from the start
        assert same(problem.run("T", instruction_set), expected)
        assert weights.native.bytes_per_column == bytes_per_column
    if num_bits < 2**16:
        assert same(problem.run("G", instruction_set), expected)
    assert same(problem.run("T", instruction_set, "classes"), problem.expected("classes"))


def test_sparse_records_at_the_ends_of_their_range(instruction_set: str) -> None:
    """Flips of the base row that all move the product the same way."""
    ends = [
        *[(1, 127, 1), (1, 128, 2), (-1, 128, 1), (-1, 129, 2), (1, 300, 2), (-1, 300, 2)],
        *[(1, 32766, 2), (1, 32767, 2), (1, 32768, 4), (-1, 32768, 2), (-1, 32769, 4)],
    ]
    for (sign, count, bytes_per_column), outputs in product(ends, [7, 65]):
        check_sparse_records(instruction_set, sign, count, bytes_per_column, outputs)


def check_sparse_records(
    instruction_set: str, sign: int, count: int, bytes_per_column: int, outputs: int
) -> None:
    rng = np.random.default_rng(count)
    num_bits = count + 5
    weights = make_layer(rng, num_bits, outputs)
    weights.words[0] = bits.pack(np.full(num_bits, -sign))
    inputs = np.concatenate([[3], rng.permutation(num_bits)[:count]]).astype(np.int32)
    features = SparseBits(
        np.array([0, 1, 1 + count], dtype=np.int64), inputs, bits.pack(np.ones(num_bits))
    )
    problem = one_layer(weights, make_edges(rng, [1, 2, 3], 2), features, ones(2))
    assert same(problem.run("S", instruction_set), problem.expected())
    assert weights.native.bytes_per_column == bytes_per_column


def test_hidden_records_at_the_ends_of_their_range(instruction_set: str) -> None:
    """Hidden products count from K / 2 = 300: a byte holds 173 to 428 differing bits."""
    ends = [(173, 1), (172, 2), (428, 1), (429, 2), (0, 2), (600, 2), (300, 1)]
    for first, (differing, bytes_per_column) in product("TGS", ends):
        check_hidden_records(instruction_set, first, differing, bytes_per_column)


def check_hidden_records(
    instruction_set: str, first: str, differing: int, bytes_per_column: int
) -> None:
    problem = make_problem(differing, [33, 600, 17], [[2] * 6, [1, 3, 2, 5]], 5)
    hidden, last = problem.layers
    signs = np.random.default_rng(0).permutation(np.where(np.arange(600) < differing, -1, 1))
    # Without scale, every row's hidden values are the shift.
    hidden = replace(hidden, scale=0 * hidden.scale, shift=signs.astype(np.float32))
    last = replace(last, words=bits.pack(np.ones((17, 600))))
    problem = replace(problem, layers=[hidden, last])
    for output in KINDS:
        assert same(problem.run(first + "T", instruction_set, output), problem.expected(output))
    assert last.native.bytes_per_column == bytes_per_column
    assert hidden.native.bytes_per_column == 1


def test_layers_that_overflow_at_the_same_time(instruction_set: str) -> None:
    """As when several threads were about to run when the first of them met the value."""
    weights, features = opposites(600, 7)
    edges = make_edges(np.random.default_rng(1), [2, 5, 0, 1, 30, 2], 4)
    expected = one_layer(weights, edges, features, ones(4)).expected()
    problem = one_layer(weights, edges, features, ones(4))
    several = [problem.bind("T", instruction_set) for _ in range(5)]
    with ThreadPoolExecutor(5) as pool:
        results = list(pool.map(lambda bound: bound.run_to_values(), several))
    assert all(same(result, expected) for result in results)
    assert weights.native.bytes_per_column == 2
    assert [bound.bytes_per_column(0) for bound in several] == [2] * 5


def test_one_row_that_does_not_fit_is_enough(instruction_set: str) -> None:
    for row, outputs in product([0, 3, 4, 10], [7, 65]):
        check_one_row_that_does_not_fit(instruction_set, outputs, row)


def check_one_row_that_does_not_fit(instruction_set: str, outputs: int, row: int) -> None:
    rng = np.random.default_rng(row)
    alike = rng.standard_normal(600)
    x = rng.standard_normal((11, 600))
    x[row] = alike
    words = bits.pack(np.tile(alike, (outputs, 1)))
    weights = replace(make_layer(rng, 600, outputs), words=words)
    edges = make_edges(rng, [2] * 11, 11)
    dense = one_layer(weights, edges, DenseBits(bits.pack(x)), ones(11))
    assert same(dense.run("T", instruction_set), dense.expected())
    assert weights.native.bytes_per_column == 2

    offsets = np.where(np.arange(12) > row, 300, 0).astype(np.int64)
    inputs = np.flatnonzero(alike < 0)[:300].astype(np.int32)
    offsets[offsets > 0] = len(inputs)
    weights = replace(weights)
    features = SparseBits(offsets, inputs, bits.pack(np.ones(600)))
    sparse = one_layer(weights, edges, features, ones(11))
    assert same(sparse.run("S", instruction_set), sparse.expected())
    assert weights.native.bytes_per_column == 2

    # Hidden: without neighbours a row is the shift, half of it negative; with one it is all +1.
    first = replace(
        make_layer(rng, 600, 600),
        words=bits.pack(np.tile(alike, (600, 1))),
        scale=ones(600),
        shift=np.resize([1, -1], 600).astype(np.float32),
    )
    one_edge = make_edges(rng, [int(number == row) for number in range(11)], 1)
    one_edge.target_factor[:] = 1
    last = replace(make_layer(rng, 600, outputs), words=bits.pack(np.ones((outputs, 600))))
    hidden = Problem([first, last], [one_edge, edges], DenseBits(bits.pack(alike[None])), ones(1))
    for way in "TG":
        fresh = replace(hidden, layers=[first, replace(last)])
        assert same(fresh.run(way + "T", instruction_set), hidden.expected()), way
        assert fresh.layers[1].native.bytes_per_column == 2

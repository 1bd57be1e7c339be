"""Degrees and weights of all kinds: integer weights and sums are the reference's everywhere."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from layer_problems import (
    make_edges,
    make_layer,
    make_problem,
    make_sparse,
    one_layer,
    ones,
    opposites,
    same,
)

from bignn import bits
from bignn.kernels import edge_rounding
from bignn.kernels.layer import DenseBits, Edges

DEGREES = [0, 1, 15, 16, 17, 511, 512, 513, 0, 1023, 1024, 1025, 1, 2, 3, 4, 2049, 5000, 63, 64, 65]


def test_degrees_around_tiles_chunks_and_batches(instruction_set: str) -> None:
    for outputs, bytes_per_column in product([16, 17, 65], [1, 2, 4]):
        check_degrees_around_tiles_chunks_and_batches(instruction_set, outputs, bytes_per_column)


def check_degrees_around_tiles_chunks_and_batches(
    instruction_set: str, outputs: int, bytes_per_column: int
) -> None:
    for weighted in (False, True):
        problem = make_problem(
            outputs, [129, outputs], [DEGREES], 50, weighted=weighted, long_ids=weighted
        )
        expected = problem.expected()
        for way in "TS":
            problem.layers[0].native.widen(bytes_per_column // 2)
            assert same(problem.run(way, instruction_set), expected), (way, outputs, weighted)
            assert problem.layers[0].native.bytes_per_column == bytes_per_column
        assert same(problem.run("G", instruction_set), expected), (outputs, weighted)


@pytest.mark.parametrize(
    ("edge_bits", "degrees", "expected_bits"),
    [
        (17, [16383, 16384, 16385, 3, 32767, 32768], [17, 16, 16, 17, 16, 15]),
        (20, [2047, 2048, 2049, 3, 4095, 4096, 32767], [20, 19, 19, 20, 19, 18, 16]),
    ],
)
def test_the_rule_of_edge_bits_keeps_totals_below_2_to_31(
    instruction_set: str, edge_bits: int, degrees: list[int], expected_bits: list[int]
) -> None:
    problem = make_problem(0, [70, 17], [degrees], 9)
    factor = np.full(9, 1.99, dtype=np.float32)
    weights = [replace(problem.layers[0], edge_bits=edge_bits)]
    problem = replace(problem, beta=factor, layers=weights)
    edges = problem.edges[0]
    q, _ = edge_rounding.round_edge_weights(
        edges.offsets, edges.ids, None, factor, edges.target_factor, edge_bits
    )
    largest = np.maximum.reduceat(q, edges.offsets[:-1])
    assert [math.frexp(value)[1] for value in largest] == expected_bits
    totals = np.add.reduceat(q, edges.offsets[:-1])
    assert totals.max() < 2**31
    assert totals.max() > 0.98 * 2**31
    expected = problem.expected()
    for way in "TGS":
        assert same(problem.run(way, instruction_set), expected), way


@pytest.mark.parametrize("edge_bits", [8, 13, 14, 15, 16, 17])
def test_totals_on_both_sides_of_what_16_bits_hold(instruction_set: str, edge_bits: int) -> None:
    problem = make_problem(edge_bits, [130, 17], [[2, 5, 20, 31, 32, 33, 40, 80, 300]], 9)
    factor = np.full(9, 1e-5, dtype=np.float32)
    factor[0] = 1.99
    layers = [replace(problem.layers[0], edge_bits=edge_bits)]
    edges = problem.edges[0]
    # One heavy neighbour in some rows, several in others.
    edges.ids[:] = np.where(np.arange(len(edges.ids)) % 13 == 0, 0, edges.ids)
    problem = replace(problem, beta=factor, layers=layers)
    q, _ = edge_rounding.round_edge_weights(
        edges.offsets, edges.ids, None, factor, edges.target_factor, edge_bits
    )
    totals = np.add.reduceat(q, edges.offsets[:-1])
    if edge_bits == 17:
        assert ((totals >= 1 << 16) & (totals < 1 << 18)).any()
    if edge_bits == 15:
        assert totals[:4].max() >= 1 << 15  # of rows that are added one by one
    assert same(problem.run("G", instruction_set), problem.expected())


def test_like_minded_neighbours_need_more_than_four_bytes(instruction_set: str) -> None:
    for outputs, degree in product([7, 40], [300, 3293, 3294, 5000, 16383]):
        check_like_minded_neighbours_need_more_than_four_bytes(instruction_set, degree, outputs)


def check_like_minded_neighbours_need_more_than_four_bytes(
    instruction_set: str, degree: int, outputs: int
) -> None:
    """Sums of bits near 2^31: the lookup product must take them apart."""
    rng = np.random.default_rng(degree)
    weights = make_layer(rng, 512, outputs)
    alike = rng.standard_normal(512)
    features = DenseBits(bits.pack(np.stack([alike, rng.standard_normal(512), -alike])))
    # Among ordinary rows, in a full tile and in a part of one.
    degrees = [2, degree, 5, degree, degree, 1]
    edges = make_edges(rng, degrees, 3)
    for row, like in ((1, 0), (3, 2), (4, 0)):
        edges.ids[edges.offsets[row] : edges.offsets[row + 1]] = like
    edges.ids[edges.offsets[4]] = 1
    factor = np.full(3, 1.99, dtype=np.float32)
    problem = one_layer(weights, edges, features, factor)
    q, _ = edge_rounding.round_edge_weights(
        edges.offsets, edges.ids, None, factor, edges.target_factor, 17
    )
    total = int(q[edges.offsets[1] : edges.offsets[2]].sum())
    # A group of five sums needs 33 bits from a degree of 3294 on.
    assert (10 * total >= 2**32) == (degree > 3293)
    for way in "GT":
        got = problem.run(way, instruction_set)
        assert same(got, problem.expected()), (way, degree, outputs)


def test_like_minded_neighbours_at_every_width(instruction_set: str) -> None:
    for num_bits, width in ((255, 1), (256, 2), (512, 2), (65_000, 2), (65_536, 4)):
        check_like_minded_neighbours_at_every_width(instruction_set, num_bits, width)


def check_like_minded_neighbours_at_every_width(
    instruction_set: str, num_bits: int, bytes_per_column: int
) -> None:
    """All products are K or -K and all weights the largest: sums beyond 32 bits everywhere."""
    weights, features = opposites(num_bits, 17)
    degrees = [3, 16, 2, 1, 63, 64, 65, 511, 512, 513, 1025]
    edges = make_edges(np.random.default_rng(0), degrees, 4)
    for row, degree in enumerate(degrees):
        edges.ids[edges.offsets[row] : edges.offsets[row] + degree] = row % 2
    largest = np.full(4, np.nextafter(np.float32(2), np.float32(0)))
    problem = one_layer(weights, edges, features, largest)
    expected = problem.expected()
    for way in "TG":
        assert same(problem.run(way, instruction_set), expected), way
    assert weights.native.bytes_per_column == bytes_per_column


def test_sums_of_bits_at_the_ends_of_their_bytes(instruction_set: str) -> None:
    """AVX-512's product takes two to four bytes by ten times the largest sum."""
    for bits_of_range in (16, 24, 32):
        end = 2**bits_of_range // 10
        check_sums_of_bits(instruction_set, [end, end + 1, 2 * end])


def test_sums_of_bits_at_the_ends_of_their_digits(instruction_set: str) -> None:
    """AVX2's product takes digits of 14 bits, from -2^13 to 2^13 - 1."""
    for end in (2**13, 2**14, 2**27 - 2**13, 2**27, 2**28):
        check_sums_of_bits(instruction_set, [end - 1, end, end + 1])


def check_sums_of_bits(instruction_set: str, sums: list[int]) -> None:
    rng = np.random.default_rng(sums[0])
    weights, features = opposites(65, 17)
    weights.words[1::2] = bits.pack(rng.standard_normal((8, 65)))
    top = 2**17 - 1
    for largest in sums:
        # So many neighbours of the largest weight, less one of the opposite sign: exactly that.
        count = -(-largest // top)
        less = count * top - largest
        edges = Edges(
            np.array([0, count + 1], dtype=np.int64),
            np.array([0] * count + [1], dtype=np.int32),
            None,
            ones(1),
            4,
        )
        factor = np.array([top, less, 0, 0], dtype=np.float32)
        q, _ = edge_rounding.round_edge_weights(edges.offsets, edges.ids, None, factor, ones(1), 17)
        assert int(q[:-1].sum() - q[-1]) == largest
        problem = one_layer(weights, edges, features, factor)
        assert same(problem.run("G", instruction_set), problem.expected()), largest


@pytest.mark.parametrize("edge_bits", [1, 6, 7, 8, 9, 10, 11, 14, 16])
def test_weights_of_one_digit_or_several(instruction_set: str, edge_bits: int) -> None:
    """Instruction sets take weights apart in digits of 7, 8 or 10 bits."""
    degrees = [0, 1, 3, 4, 5, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 66, 129, 511, 513, 1, 2]
    for num_bits, outputs in ((65, 7), (129, 17), (192, 16), (257, 65), (320, 40), (513, 130)):
        problem = make_problem(edge_bits, [num_bits, outputs], [degrees], 40, weighted=True)
        layer = replace(problem.layers[0], edge_bits=edge_bits)
        problem = replace(problem, layers=[layer])
        expected = problem.expected()
        assert same(problem.run("G", instruction_set), expected), num_bits
        for bytes_per_column in (1, 2, 4):
            layer.native.widen(bytes_per_column // 2)
            for way in "TS":
                got = problem.run(way, instruction_set)
                assert same(got, expected), (num_bits, way, bytes_per_column)


@pytest.mark.parametrize("edge_bits", [7, 8, 10, 17, 20])
def test_the_largest_weights_times_the_largest_products(
    instruction_set: str, edge_bits: int
) -> None:
    """Products at both ends of a byte, or of two, and all weights at their largest."""
    for num_bits, outputs in ((255, 17), (255, 130), (600, 16), (600, 65)):
        layer, features = opposites(num_bits, outputs)
        layer = replace(layer, edge_bits=edge_bits)
        degrees = [1, 2, 3, 4, 16, 17, 64, 65, 512, 513]
        edges = make_edges(np.random.default_rng(0), degrees, 4)
        largest = np.full(4, np.nextafter(np.float32(2), np.float32(0)))
        for like in (0, 1):
            edges.ids[:] = like
            problem = one_layer(layer, edges, features, largest)
            for way in "TG":
                assert same(problem.run(way, instruction_set), problem.expected()), (like, way)


def test_many_rows_of_many_neighbours(instruction_set: str) -> None:
    for bytes_per_column in (1, 2, 4):
        check_many_rows_of_many_neighbours(instruction_set, bytes_per_column)


def check_many_rows_of_many_neighbours(instruction_set: str, bytes_per_column: int) -> None:
    """More rows than are done together, most of them of over 64 neighbours."""
    rng = np.random.default_rng(0)
    degrees = rng.integers(60, 70, 2100)
    degrees[rng.integers(0, 2100, 50)] = 0
    degrees[[7, 1900]] = [513, 1025]
    problem = make_problem(1, [65, 70, 70], [degrees.tolist(), [80] * 5], 300)
    expected = problem.expected()
    problem.layers[0].native.widen(bytes_per_column // 2)
    for ways in ("TT", "TG", "ST"):
        assert same(problem.run(ways, instruction_set), expected), ways


def test_a_row_of_over_a_million_neighbours(instruction_set: str) -> None:
    problem = make_problem(1, [9, 17], [[3, 100, 0, 2**20 + 5, 70, 1, 1, 1]], 300)
    expected = problem.expected()
    for bytes_per_column in (1, 4):
        problem.layers[0].native.widen(bytes_per_column // 2)
        assert same(problem.run("T", instruction_set), expected), bytes_per_column
    assert same(problem.run("G", instruction_set), expected)


@pytest.mark.parametrize("edge_bits", [17, 20])
def test_weights_round_to_even_and_never_past_their_bits(
    instruction_set: str, edge_bits: int
) -> None:
    just_below_2 = np.nextafter(np.float32(2), np.float32(0))
    # With a largest of 1.x the unit is 2^-16 (2^-19): halves of it are ties.
    unit = 2.0 ** (1 - edge_bits)
    x = np.array([just_below_2, 0.5, 2.5 * unit, 3.5 * unit, 0.5 * unit, 0], dtype=np.float32)
    rng = np.random.default_rng(0)
    weights = replace(make_layer(rng, 65, 17), edge_bits=edge_bits)
    for repeated in (1, 4, 100):  # rows of few neighbours and of many
        edges = Edges(
            np.arange(5, dtype=np.int64) * 6 * repeated,
            np.tile(np.arange(6, dtype=np.int32), 4 * repeated),
            None,
            ones(4),
            6,
        )
        q, scale = edge_rounding.round_edge_weights(
            edges.offsets, edges.ids, None, x, ones(4), edge_bits
        )
        assert q[:6].tolist() == [2**edge_bits - 1, 2 ** (edge_bits - 2), 2, 4, 0, 0]
        assert scale.tolist() == [unit] * 4
        problem = one_layer(weights, edges, make_sparse(rng, 6, 65), x)
        for way in "TGS":
            assert same(problem.run(way, instruction_set), problem.expected()), (repeated, way)


def test_tiny_and_huge_factors(instruction_set: str) -> None:
    border = 2.0**-60
    for factor in (0.0, 1e-45, 1e-30, 2.0**-61, border * (1 - 2.0**-24), border, 1e-9, 1e30, 1e35):
        check_tiny_and_huge_factors(instruction_set, factor)


def check_tiny_and_huge_factors(instruction_set: str, factor: float) -> None:
    """Below 2^-60 a row counts as 0; anything above is as exact as ordinary numbers."""
    problem = make_problem(4, [65, 40, 7], [[3, 0, 5, 2, 30, 1], [2, 3, 1, 4, 0]], 9)
    problem = replace(problem, beta=np.full(9, factor, dtype=np.float32))
    weights = problem.layers[0]
    small = replace(weights, scale=weights.scale / np.float32(1e9), shift=0 * weights.shift)
    problem = replace(problem, layers=[small, problem.layers[1]])
    first = one_layer(small, problem.edges[0], problem.features, problem.beta)
    assert (first.expected() == 0).all() == (np.float32(factor) < np.float32(2.0**-60))
    assert np.isfinite(problem.expected()).all()
    for way in "STG":
        assert same(first.run(way, instruction_set), first.expected()), way
    for ways in product("STG", "TG"):
        got = problem.run("".join(ways), instruction_set)
        assert same(got, problem.expected()), (ways, factor)


def test_what_overflows_is_alike_everywhere(instruction_set: str) -> None:
    """Weights are bounded by 1e30; what is not a number has no sign bit and is never the class."""
    problem = make_problem(8, [65, 40, 17], [[3, 0, 5, 2, 30, 1, 2, 2], [2] * 9], 9, weighted=True)
    first, last = problem.layers
    for edges in problem.edges:
        assert edges.weights is not None
        edges.weights[::3] = 3e38
    absurd = [
        replace(first, scale=np.resize([3e38, 0, 1, -3e38], 40).astype(np.float32)),
        replace(last, scale=np.resize([0, 3e38, -3e38, 1e-45], 17).astype(np.float32)),
    ]
    for factor in (1.0, 3e38, np.inf):
        overflowing = replace(problem, layers=absurd, beta=np.full(9, factor, dtype=np.float32))
        classes = overflowing.expected("classes")
        values = overflowing.expected()
        assert not np.isfinite(values).all()
        assert (classes < 17).all()
        for ways in map("".join, product("STG", "TG")):
            assert same(overflowing.run(ways, instruction_set, "classes"), classes), ways
            got = overflowing.run(ways, instruction_set)
            assert np.array_equal(got, values, equal_nan=True), ways


def test_what_is_not_a_number_is_never_the_class(instruction_set: str) -> None:
    for outputs in (1, 7, 16, 17, 33, 65):
        check_what_is_not_a_number_is_never_the_class(instruction_set, outputs)


def check_what_is_not_a_number_is_never_the_class(instruction_set: str, outputs: int) -> None:
    rng = np.random.default_rng(outputs)
    for rows in (1, 4, 7):
        problem = make_problem(rows, [65, outputs], [[2] * rows], 9)
        # Sums times the row's factor overflow; times 0 they are not a number.
        problem.edges[0].target_factor[:] = 3e38
        for share in (0.1, 0.5, 0.9, 1.0):
            scale = np.where(rng.random(outputs) < share, 0, rng.choice([-1, 1], outputs))
            weights = replace(problem.layers[0], scale=scale.astype(np.float32))
            absurd = replace(problem, layers=[weights], beta=1e30 * ones(9))
            with np.errstate(over="ignore"):
                values = absurd.expected()
                assert np.isnan(values).any() or (scale != 0).all()
                numbers = np.where(np.isnan(values), -np.inf, values)
                expected = numbers.argmax(axis=1)
                assert np.array_equal(absurd.expected("classes"), expected)
            # A row of -inf and what is not a number has no class that is right.
            clear = numbers.max(axis=1) > -np.inf
            for way in "TGS":
                got = absurd.run(way, instruction_set, "classes")
                assert (got < outputs).all()
                assert np.array_equal(got[clear], expected[clear]), (rows, share, way)


def test_rows_of_zero_weights_are_the_shift(instruction_set: str) -> None:
    for degree in (3, 16, 17, 600):
        problem = make_problem(degree, [65, 17], [[degree] * 5], 9, weighted=True)
        edges = problem.edges[0]
        assert edges.weights is not None
        edges.weights[: 2 * degree] = 0
        for way in "TGS":
            got = problem.run(way, instruction_set)
            assert same(got[:2], np.tile(problem.layers[0].shift, (2, 1)))
            assert same(got, problem.expected())


def test_equal_values_give_the_first_class(instruction_set: str) -> None:
    for outputs in (7, 16, 17, 65):
        for rows in (1, 4, 6):
            problem = make_problem(outputs, [33, outputs], [[2] * rows], 5)
            weights = problem.layers[0]
            flat = replace(weights, scale=0 * weights.scale, shift=ones(outputs))
            flat.shift[0] = 0
            problem = replace(problem, layers=[flat])
            for way in "TGS":
                got = problem.run(way, instruction_set, "classes")
                assert got.tolist() == [1] * rows

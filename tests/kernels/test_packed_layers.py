"""Chains of packed layers: every backend, way and output gives the reference's bytes.

(Not test_layers.py: tests/nn has a module of that name.)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bignn import bits, kernels
from bignn.kernels import native, reference
from bignn.kernels.layers import (
    Chain,
    DenseBits,
    Edges,
    Features,
    Floats,
    Layer,
    Output,
    SparseBits,
    Way,
    Weights,
)

WIDTHS = [1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1433]
OUTPUTS = [1, 7, 16, 17, 40, 64, 65, 256]
KINDS: tuple[Output, ...] = ("classes", "values", "blocks")


@dataclass(frozen=True)
class Problem:
    """Layers without their ways, and what they begin with."""

    weights: list[Weights]
    edges: list[Edges]
    norms: list[Floats | None]
    features: Features
    source_factor: Floats

    def run(self, ways: str, backend: str, output: Output = "values") -> NDArray[Any]:
        layers = [
            Layer(weights, edges, cast(Way, way), norm)
            for weights, edges, way, norm in zip(
                self.weights, self.edges, ways, self.norms, strict=True
            )
        ]
        chain = Chain(layers, self.features, self.source_factor, output, backend)
        if output != "blocks":
            return chain.run()
        blocks = dict(chain.run_in_blocks(5))
        assert list(blocks) == list(range(0, self.edges[-1].num_rows, 5))
        none = np.empty((0, self.weights[-1].num_outputs), dtype=np.float32)
        return np.concatenate([none, *blocks.values()])

    def expected(self, output: Output = "values") -> NDArray[Any]:
        return self.run("T" * len(self.weights), "reference", output)


def make_weights(rng: np.random.Generator, inputs: int, outputs: int) -> Weights:
    return Weights(
        bits.pack(rng.standard_normal((outputs, inputs))),
        inputs,
        (rng.standard_normal(outputs) / inputs).astype(np.float32),
        (0.1 * rng.standard_normal(outputs)).astype(np.float32),
    )


def make_edges(
    rng: np.random.Generator,
    degrees: Sequence[int],
    num_sources: int,
    *,
    weighted: bool = False,
    long_ids: bool = False,
) -> Edges:
    offsets = np.concatenate([[0], np.cumsum(degrees, dtype=np.int64)]).astype(np.int64)
    ids = rng.integers(0, num_sources, int(offsets[-1]))
    weights = rng.random(len(ids), dtype=np.float32)
    weights[::7] = 0
    return Edges(
        offsets,
        ids.astype(np.int64 if long_ids else np.int32),
        weights if weighted else None,
        rng.random(len(degrees), dtype=np.float32),
        num_sources,
    )


def make_sparse(rng: np.random.Generator, num_rows: int, num_bits: int) -> SparseBits:
    """Rows of zero to many deviations, in no particular order."""
    counts = rng.integers(0, num_bits + 1, num_rows) // rng.integers(1, 9, num_rows)
    rows = [rng.permutation(num_bits)[:count] for count in counts]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    inputs = np.concatenate([np.empty(0), *rows]).astype(np.int32)
    return SparseBits(offsets, inputs, bits.pack(rng.standard_normal(num_bits)))


def make_problem(
    seed: int,
    sizes: Sequence[int],
    degrees: Sequence[Sequence[int]],
    num_sources: int,
    *,
    weighted: bool = False,
    long_ids: bool = False,
) -> Problem:
    """``degrees[l]`` are layer l's; its rows are the sources of layer l + 1."""
    rng = np.random.default_rng(seed)
    sources = [num_sources, *map(len, degrees[:-1])]
    return Problem(
        [make_weights(rng, *size) for size in pairwise(sizes)],
        [
            make_edges(rng, rows, count, weighted=weighted, long_ids=long_ids)
            for rows, count in zip(degrees, sources, strict=True)
        ],
        [
            rng.random(len(rows), dtype=np.float32) if number % 2 == 0 else None
            for number, rows in enumerate(degrees)
        ],
        make_sparse(rng, num_sources, sizes[0]),
        rng.random(num_sources, dtype=np.float32),
    )


def one_layer(weights: Weights, edges: Edges, features: Features, factor: Floats) -> Problem:
    return Problem([weights], [edges], [None], features, factor)


def same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def ones(count: int) -> Floats:
    return np.ones(count, dtype=np.float32)


# --- Every backend, way and size ---------------------------------------------------------------


@pytest.mark.parametrize("num_bits", WIDTHS)
def test_every_size_and_way_equals_the_reference(instruction_set: str, num_bits: int) -> None:
    for number, outputs in enumerate(OUTPUTS):
        for rows in ([], [3], [2, 0, 1, 9, 16, 4, 0]):
            problem = make_problem(
                number, [num_bits, outputs], [rows], 6, weighted=bool(number % 2)
            )
            dense = replace(problem, features=cast(SparseBits, problem.features).dense())
            for kind in ("classes", "values"):
                expected = problem.expected(kind)
                assert expected.dtype == (np.int64 if kind == "classes" else np.float32)
                for way in "TGS":
                    case = (outputs, len(rows), way, kind)
                    got = (problem if way == "S" else dense).run(way, instruction_set, kind)
                    assert same(got, expected), case


@pytest.mark.parametrize("num_bits", [1, 64, 65, 257])
def test_hidden_layers_of_every_size_equal_the_reference(
    instruction_set: str, num_bits: int
) -> None:
    for number, outputs in enumerate([*OUTPUTS, 257]):
        problem = make_problem(
            number, [num_bits, outputs, 7], [[1, 0, 5, 20, 3, 2, 2], [7, 0, 1]], 6
        )
        expected = problem.expected()
        for ways in ("TT", "TG", "GT", "GG"):
            assert same(problem.run(ways, instruction_set), expected), (outputs, ways)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("long_ids", [False, True])
def test_every_plan_and_output_of_three_layers(
    instruction_set: str, weighted: bool, long_ids: bool
) -> None:
    rng = np.random.default_rng(5)
    # Tiles of four rows of few neighbours, and tiles that are not.
    degrees = [0, 1, 15, 16, 17, 0, 0, 0, 0, 16, 16, 16, 16, 3, 40, 2, 1, 1, 1]
    rows = [rng.permutation(degrees).tolist() for _ in range(3)]
    problem = make_problem(1, [65, 40, 17, 7], rows, 23, weighted=weighted, long_ids=long_ids)
    assert problem.edges[0].ids.dtype == (np.int64 if long_ids else np.int32)
    for kind in KINDS:
        expected = problem.expected(kind)
        for ways in product("STG", "TG", "TG"):
            assert same(problem.run("".join(ways), instruction_set, kind), expected), (kind, ways)


def test_two_layers_in_blocks(instruction_set: str) -> None:
    problem = make_problem(2, [33, 16, 65], [[2] * 30, [3, 0, 4, 1, 2, 2, 70, 1, 1, 5, 6]], 9)
    for ways in product("STG", "TG"):
        got = problem.run("".join(ways), instruction_set, "blocks")
        assert same(got, problem.expected()), ways


@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_single_layer_in_blocks(instruction_set: str, width: int) -> None:
    problem = make_problem(2, [33, 65], [[3, 0, 4, 1, 2, 2, 70, 1, 1, 5, 6]], 9)
    for way in "STG":
        problem.weights[0]._prepared["width"] = width
        assert same(problem.run(way, instruction_set, "blocks"), problem.expected()), way
    weights, features = opposites(600, 7)  # whose records overflow
    problem = one_layer(
        weights, make_edges(np.random.default_rng(0), [1] * 7, 4), features, ones(4)
    )
    assert same(problem.run("T", instruction_set, "blocks"), problem.expected())


def test_a_chain_runs_twice_and_its_results_are_new_arrays(instruction_set: str) -> None:
    problem = make_problem(3, [65, 40, 7], [[2] * 9, [3] * 9], 9)
    layers = [
        Layer(weights, edges, "T", norm)
        for weights, edges, norm in zip(problem.weights, problem.edges, problem.norms, strict=True)
    ]
    chain = Chain(layers, problem.features, problem.source_factor, "values", instruction_set)
    first = chain.run()
    kept = first.copy()
    second = chain.run()
    second[:] = np.nan
    assert same(first, kept)
    assert same(chain.run(), kept)
    assert len(chain.seconds) == 2
    assert all(seconds > 0 for seconds in chain.seconds)


@settings(max_examples=80)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 300), min_size=2, max_size=4),
    st.lists(st.lists(st.integers(0, 40), max_size=9), min_size=3, max_size=3),
    st.integers(1, 9),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_all_backends_and_plans_agree(
    seed: int,
    sizes: list[int],
    degrees: list[list[int]],
    num_sources: int,
    weighted: bool,
    long_ids: bool,
    data: st.DataObject,
) -> None:
    layers = len(sizes) - 1
    # A row can only have neighbours where the layer before has rows.
    rows = [degrees[0]]
    for some in degrees[1:layers]:
        rows.append(some if rows[-1] else [0] * len(some))
    problem = make_problem(seed, sizes, rows, num_sources, weighted=weighted, long_ids=long_ids)
    ways = data.draw(st.sampled_from("STG")) + "".join(
        data.draw(st.sampled_from("TG")) for _ in range(layers - 1)
    )
    kind = data.draw(st.sampled_from(KINDS))
    expected = problem.expected(kind)
    for backend in native.supported():
        assert same(problem.run(ways, backend, kind), expected), (ways, backend, kind)


# --- Degrees and weights -----------------------------------------------------------------------

DEGREES = [0, 1, 15, 16, 17, 511, 512, 513, 0, 1023, 1024, 1025, 1, 2, 3, 4, 2049, 5000, 63, 64, 65]


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("outputs", [16, 17, 65])
def test_degrees_around_tiles_chunks_and_batches(
    instruction_set: str, outputs: int, width: int
) -> None:
    for weighted in (False, True):
        problem = make_problem(
            outputs, [129, outputs], [DEGREES], 50, weighted=weighted, long_ids=weighted
        )
        expected = problem.expected()
        for way in "TS":
            problem.weights[0]._prepared["width"] = width
            assert same(problem.run(way, instruction_set), expected), way
            assert problem.weights[0]._prepared["width"] == width
        assert same(problem.run("G", instruction_set), expected)


def test_the_rule_of_weight_bits_keeps_totals_below_2_to_31(instruction_set: str) -> None:
    degrees = [16383, 16384, 16385, 3, 32767, 32768]
    problem = make_problem(0, [70, 17], [degrees], 9)
    factor = np.full(9, 1.99, dtype=np.float32)
    problem = replace(problem, source_factor=factor)
    edges = problem.edges[0]
    q, _ = reference.quantize(edges.offsets, edges.ids, None, factor, edges.target_factor)
    largest = np.maximum.reduceat(q, edges.offsets[:-1])
    assert [math.frexp(value)[1] for value in largest] == [17, 16, 16, 17, 16, 15]
    totals = np.add.reduceat(q, edges.offsets[:-1])
    assert totals.max() < 2**31
    assert totals.max() > 0.98 * 2**31
    expected = problem.expected()
    for way in "TGS":
        assert same(problem.run(way, instruction_set), expected), way


@pytest.mark.parametrize("degree", [300, 3293, 3294, 5000, 16383])
@pytest.mark.parametrize("outputs", [7, 40])
def test_like_minded_neighbours_need_more_than_four_bytes(
    instruction_set: str, degree: int, outputs: int
) -> None:
    """Sums of bits near 2^31: the lookup product must take them apart."""
    rng = np.random.default_rng(degree)
    weights = make_weights(rng, 512, outputs)
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
    q, _ = reference.quantize(edges.offsets, edges.ids, None, factor, edges.target_factor)
    total = int(q[edges.offsets[1] : edges.offsets[2]].sum())
    # A group of five sums needs 33 bits from a degree of 3294 on.
    assert (10 * total >= 2**32) == (degree > 3293)
    for way in "GT":
        assert same(problem.run(way, instruction_set), problem.expected()), way


@pytest.mark.parametrize(
    ("num_bits", "width"), [(255, 1), (256, 2), (512, 2), (65_000, 2), (65_536, 4)]
)
def test_like_minded_neighbours_at_every_width(
    instruction_set: str, num_bits: int, width: int
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
    assert weights._prepared.get("width", 1) == width


@pytest.mark.parametrize("bits_of_range", [16, 24, 32])
def test_sums_of_bits_at_the_ends_of_their_bytes(instruction_set: str, bits_of_range: int) -> None:
    """The lookup product chooses two, three or four bytes by ten times the largest sum."""
    rng = np.random.default_rng(bits_of_range)
    weights, features = opposites(65, 17)
    weights.words[1::2] = bits.pack(rng.standard_normal((8, 65)))
    top = 2**17 - 1
    for largest in (2**bits_of_range // 10, 2**bits_of_range // 10 + 1, 2**bits_of_range // 5):
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
        q, _ = reference.quantize(edges.offsets, edges.ids, None, factor, ones(1))
        assert int(q[:-1].sum() - q[-1]) == largest
        problem = one_layer(weights, edges, features, factor)
        assert same(problem.run("G", instruction_set), problem.expected()), largest


@pytest.mark.parametrize("width", [1, 2, 4])
def test_many_rows_of_many_neighbours(instruction_set: str, width: int) -> None:
    """More rows than are done together, most of them of over 64 neighbours."""
    rng = np.random.default_rng(0)
    degrees = rng.integers(60, 70, 2100)
    degrees[rng.integers(0, 2100, 50)] = 0
    degrees[[7, 1900]] = [513, 1025]
    problem = make_problem(1, [65, 70, 70], [degrees.tolist(), [80] * 5], 300)
    expected = problem.expected()
    problem.weights[0]._prepared["width"] = width
    for ways in ("TT", "TG", "ST"):
        assert same(problem.run(ways, instruction_set), expected), ways


def test_a_row_of_over_a_million_neighbours(instruction_set: str) -> None:
    problem = make_problem(1, [9, 17], [[3, 100, 0, 2**20 + 5, 70, 1, 1, 1]], 300)
    expected = problem.expected()
    for width in (1, 4):
        problem.weights[0]._prepared["width"] = width
        assert same(problem.run("T", instruction_set), expected), width
    assert same(problem.run("G", instruction_set), expected)


def test_weights_round_to_even_and_never_past_their_bits(instruction_set: str) -> None:
    just_below_2 = np.nextafter(np.float32(2), np.float32(0))
    # With a largest of 1.x the unit is 2^-16: halves of it are ties.
    x = np.array([just_below_2, 0.5, 2.5 / 2**16, 3.5 / 2**16, 0.5 / 2**16, 0], dtype=np.float32)
    rng = np.random.default_rng(0)
    weights = make_weights(rng, 65, 17)
    for repeated in (1, 4, 100):  # rows of few neighbours and of many
        edges = Edges(
            np.arange(5, dtype=np.int64) * 6 * repeated,
            np.tile(np.arange(6, dtype=np.int32), 4 * repeated),
            None,
            ones(4),
            6,
        )
        q, scale = reference.quantize(edges.offsets, edges.ids, None, x, ones(4))
        assert q[:6].tolist() == [2**17 - 1, 2**15, 2, 4, 0, 0]
        assert scale.tolist() == [2.0**-16] * 4
        problem = one_layer(weights, edges, make_sparse(rng, 6, 65), x)
        for way in "TGS":
            assert same(problem.run(way, instruction_set), problem.expected()), (repeated, way)


@pytest.mark.parametrize(
    "factor",
    [0.0, 1e-45, 1e-30, 2.0**-61, 2.0**-60 * (1 - 2.0**-24), 2.0**-60, 1e-9, 1e30, 1e35],
)
def test_tiny_and_huge_factors(instruction_set: str, factor: float) -> None:
    """Below 2^-60 a row counts as 0; anything above is as exact as ordinary numbers."""
    problem = make_problem(4, [65, 40, 7], [[3, 0, 5, 2, 30, 1], [2, 3, 1, 4, 0]], 9)
    problem = replace(problem, source_factor=np.full(9, factor, dtype=np.float32))
    weights = problem.weights[0]
    small = replace(weights, scale=weights.scale / np.float32(1e9), shift=0 * weights.shift)
    problem = replace(problem, weights=[small, problem.weights[1]])
    first = one_layer(small, problem.edges[0], problem.features, problem.source_factor)
    assert (first.expected() == 0).all() == (np.float32(factor) < np.float32(2.0**-60))
    assert np.isfinite(problem.expected()).all()
    for way in "STG":
        assert same(first.run(way, instruction_set), first.expected()), way
    for ways in product("STG", "TG"):
        got = problem.run("".join(ways), instruction_set)
        assert same(got, problem.expected()), ways


def test_what_overflows_is_alike_everywhere(instruction_set: str) -> None:
    """Weights are bounded by 1e30; what is not a number has no sign bit and is never the class."""
    problem = make_problem(8, [65, 40, 17], [[3, 0, 5, 2, 30, 1, 2, 2], [2] * 9], 9, weighted=True)
    first, last = problem.weights
    for edges in problem.edges:
        assert edges.weights is not None
        edges.weights[::3] = 3e38
    absurd = [
        replace(first, scale=np.resize([3e38, 0, 1, -3e38], 40).astype(np.float32)),
        replace(last, scale=np.resize([0, 3e38, -3e38, 1e-45], 17).astype(np.float32)),
    ]
    for factor in (1.0, 3e38, np.inf):
        overflowing = replace(
            problem, weights=absurd, source_factor=np.full(9, factor, dtype=np.float32)
        )
        classes = overflowing.expected("classes")
        values = overflowing.expected()
        assert not np.isfinite(values).all()
        assert (classes < 17).all()
        for ways in map("".join, product("STG", "TG")):
            assert same(overflowing.run(ways, instruction_set, "classes"), classes), ways
            got = overflowing.run(ways, instruction_set)
            assert np.array_equal(got, values, equal_nan=True), ways


@pytest.mark.parametrize("outputs", [1, 7, 16, 17, 33, 65])
def test_what_is_not_a_number_is_never_the_class(instruction_set: str, outputs: int) -> None:
    rng = np.random.default_rng(outputs)
    for rows in (1, 4, 7):
        problem = make_problem(rows, [65, outputs], [[2] * rows], 9)
        # Sums times the row's factor overflow; times 0 they are not a number.
        problem.edges[0].target_factor[:] = 3e38
        for share in (0.1, 0.5, 0.9, 1.0):
            scale = np.where(rng.random(outputs) < share, 0, rng.choice([-1, 1], outputs))
            weights = replace(problem.weights[0], scale=scale.astype(np.float32))
            absurd = replace(problem, weights=[weights], source_factor=1e30 * ones(9))
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
            assert same(got[:2], np.tile(problem.weights[0].shift, (2, 1)))
            assert same(got, problem.expected())


def test_equal_values_give_the_first_class(instruction_set: str) -> None:
    for outputs in (7, 16, 17, 65):
        for rows in (1, 4, 6):
            problem = make_problem(outputs, [33, outputs], [[2] * rows], 5)
            weights = problem.weights[0]
            flat = replace(weights, scale=0 * weights.scale, shift=ones(outputs))
            flat.shift[0] = 0
            problem = replace(problem, weights=[flat])
            for way in "TGS":
                got = problem.run(way, instruction_set, "classes")
                assert got.tolist() == [1] * rows


# --- Records that do not fit their width -------------------------------------------------------


def opposites(num_bits: int, outputs: int) -> tuple[Weights, DenseBits]:
    """Columns all alike, and features that equal or oppose them: F · B is K or -K."""
    rng = np.random.default_rng(num_bits)
    alike = rng.standard_normal(num_bits)
    weights = replace(
        make_weights(rng, num_bits, outputs), words=bits.pack(np.tile(alike, (outputs, 1)))
    )
    return weights, DenseBits(bits.pack(np.stack([alike, -alike, alike, -alike])))


@pytest.mark.parametrize(("num_bits", "width"), [(255, 1), (600, 2), (70_000, 4)])
@pytest.mark.parametrize("outputs", [7, 17, 65])
def test_products_too_large_for_a_record_widen_it(
    instruction_set: str, num_bits: int, width: int, outputs: int
) -> None:
    weights, features = opposites(num_bits, outputs)
    edges = make_edges(np.random.default_rng(1), [2, 5, 0, 1, 30, 2], 4)
    problem = one_layer(weights, edges, features, ones(4))
    expected = problem.expected()
    assert abs(expected - weights.shift).max() > 0
    for _ in range(2):  # the second time the width is known from the start
        assert same(problem.run("T", instruction_set), expected)
        assert weights._prepared["width" if width > 1 else ("panels", 1)] is not None
        assert weights._prepared.get("width", 1) == width
    if num_bits < 2**16:
        assert same(problem.run("G", instruction_set), expected)
    assert same(problem.run("T", instruction_set, "classes"), problem.expected("classes"))


@pytest.mark.parametrize(
    ("sign", "count", "width"),
    [
        *[(1, 127, 1), (1, 128, 2), (-1, 128, 1), (-1, 129, 2), (1, 300, 2), (-1, 300, 2)],
        *[(1, 32766, 2), (1, 32767, 2), (1, 32768, 4), (-1, 32768, 2), (-1, 32769, 4)],
    ],
)
@pytest.mark.parametrize("outputs", [7, 65])
def test_sparse_records_at_the_ends_of_their_range(
    instruction_set: str, sign: int, count: int, width: int, outputs: int
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
    assert weights._prepared.get("width", 1) == width


@pytest.mark.parametrize(
    ("differing", "width"), [(173, 1), (172, 2), (428, 1), (429, 2), (0, 2), (600, 2), (300, 1)]
)
@pytest.mark.parametrize("first", ["T", "G", "S"])
def test_hidden_records_at_the_ends_of_their_range(
    instruction_set: str, first: str, differing: int, width: int
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
    assert last._prepared.get("width", 1) == width
    assert hidden._prepared.get("width", 1) == 1


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
    assert weights._prepared["width"] == 2
    assert [chain.record_bytes(0) for chain in chains] == [2] * 5


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
    assert weights._prepared["width"] == 2

    offsets = np.where(np.arange(12) > row, 300, 0).astype(np.int64)
    inputs = np.flatnonzero(alike < 0)[:300].astype(np.int32)
    offsets[offsets > 0] = len(inputs)
    weights = replace(weights, _prepared={})
    features = SparseBits(offsets, inputs, bits.pack(np.ones(600)))
    sparse = one_layer(weights, edges, features, ones(11))
    assert same(sparse.run("S", instruction_set), sparse.expected())
    assert weights._prepared["width"] == 2

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
        assert last._prepared["width"] == 2


# --- The reference itself ----------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_the_reference_equals_the_written_formula(weighted: bool) -> None:
    """In Python's integers from signs, and within 1e-4 of the formula without integers."""
    problem = make_problem(7, [37, 6], [[4, 0, 1, 9, 20]], 8, weighted=weighted)
    weights, edges = problem.weights[0], problem.edges[0]
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
            * problem.source_factor[edges.ids[e]]
            for e in entries
        }
        largest = max(x.values(), default=np.float32(0))
        exponent = 16 - math.floor(math.log2(largest)) if largest else 0
        # round() takes halves to even; the products by a power of two are exact.
        q = {e: min(round(float(x[e]) * 2.0**exponent), 2**17 - 1) for e in entries}
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


@pytest.mark.parametrize("columns", [1, 7, 15, 16, 17, 40, 64, 65, 257])
def test_beta_adds_in_sixteen_lanes(columns: int) -> None:
    h = np.random.default_rng(columns).standard_normal((5, columns)).astype(np.float32)
    words, beta = reference.binarize(h)
    assert np.array_equal(words, bits.pack(h))
    for row, got in zip(h, beta, strict=True):
        lanes = [np.float32(0)] * 16
        for column, value in enumerate(row):
            lanes[column % 16] = lanes[column % 16] + abs(value)
        for half in (8, 4, 2, 1):
            lanes = [lanes[lane] + lanes[lane + half] for lane in range(half)]
        assert got.tobytes() == (lanes[0] / np.float32(columns)).tobytes()


def test_beta_of_the_kernels_is_the_references(instruction_set: str) -> None:
    """Seen directly: the factor that a layer leaves for the next."""
    order_matters = False
    for outputs in (1, 17, 40, 64, 65, 257):
        problem = make_problem(outputs, [65, outputs, 3], [[3] * 11, [1]], 5)
        layers = [
            Layer(problem.weights[0], problem.edges[0], "T", problem.norms[0]),
            Layer(problem.weights[1], problem.edges[1], "G"),
        ]
        chain = Chain(layers, problem.features, problem.source_factor, "values", instruction_set)
        steps = chain._steps()
        native.program(steps, instruction_set).run(1, None)
        first = one_layer(
            problem.weights[0], problem.edges[0], problem.features, problem.source_factor
        )
        h = first.expected()
        words, beta = reference.binarize(h)
        assert problem.norms[0] is not None
        assert same(steps[0]["out_factor"], problem.norms[0] * beta)
        assert same(steps[0]["out_words"].reshape(words.shape), words)
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


def test_arrays_that_do_not_fit_are_refused_before_they_are_read(instruction_set: str) -> None:
    problem = make_problem(3, [65, 40, 7], [[2] * 9, [3] * 9], 9)

    def steps(ways: str) -> list[dict[str, Any]]:
        layers = [
            Layer(weights, edges, cast(Way, way), norm)
            for weights, edges, way, norm in zip(
                problem.weights, problem.edges, ways, problem.norms, strict=True
            )
        ]
        features, factor = problem.features, problem.source_factor
        return Chain(layers, features, factor, "values", instruction_set)._steps()

    tried = set()
    for ways in ("TT", "GG", "ST"):
        for number, step in enumerate(steps(ways)):
            for name, values in step.items():
                if not isinstance(values, np.ndarray):
                    continue
                tried.add(name)
                # Nor is a copy made of what is not as it must be: it would be gone when it is read.
                strided = np.repeat(values.reshape(-1), 2)[::2]
                for broken in (values.reshape(-1)[:-1], values.astype(np.float64), strided):
                    if broken is strided and strided.size == 1:
                        continue  # one item has no stride
                    changed = steps(ways)
                    changed[number][name] = broken
                    with pytest.raises(ValueError, match=f"field '{name}' has the wrong type or"):
                        native.program(changed, instruction_set)
    assert {"ids", "offsets", "panels", "records", "signs", "product", "out_words"} <= tried
    changed = steps("TT")
    del changed[0]["scale"]
    with pytest.raises(ValueError, match="field 'scale' is missing"):
        native.program(changed, instruction_set)
    for width in (0, 3, 8):
        changed = steps("TT")
        changed[1]["width"] = width
        with pytest.raises(ValueError, match="'width' must be 1, 2 or 4"):
            native.program(changed, instruction_set)
    for bad in (65, -1, 2**31 - 1):
        changed = steps("ST")
        changed[0]["feature_inputs"] = changed[0]["feature_inputs"].copy()
        changed[0]["feature_inputs"][-1] = bad
        with pytest.raises(ValueError, match="'feature_inputs' names inputs that do not exist"):
            native.program(changed, instruction_set)
    program = native.program(steps("TT"), instruction_set)
    with pytest.raises(ValueError, match="no such step"):
        program.run(3, None)
    for out in (
        None,
        np.empty(9, dtype=np.int32),
        np.empty(8, dtype=np.int64),
        np.empty((9, 6), dtype=np.float32),
        np.empty((9, 7), dtype=np.float64),
        np.empty((9, 14), dtype=np.float32)[:, ::2],
    ):
        with pytest.raises(ValueError, match="'out' does not take the last step's rows"):
            program.run(2, out)
    for begin, end, rows in ((0, 10, 10), (3, 2, 0), (0, 2, 1)):
        with pytest.raises(ValueError, match="no such rows"):
            program.run_rows(begin, end, np.empty((rows, 7), dtype=np.float32))
    with pytest.raises(ValueError, match="no 'mmx' kernels"):
        native.program(steps("TT"), "mmx")


def test_the_backends_are_the_ones_tested() -> None:
    assert set(kernels.available_backends()) <= {"reference", *native.INSTRUCTION_SETS}

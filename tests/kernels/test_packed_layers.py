"""Packed layers: every backend, way, size and output gives the reference's bytes.

(Not test_layers.py: tests/nn has a module of that name.)
"""

from dataclasses import replace
from itertools import product
from typing import cast

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_problems import (
    KINDS,
    OUTPUTS,
    WIDTHS,
    make_edges,
    make_problem,
    one_layer,
    ones,
    opposites,
    same,
)

from bignn.kernels import native
from bignn.kernels.layer import SparseBits


def test_every_size_and_way_equals_the_reference(instruction_set: str) -> None:
    for num_bits, (number, outputs) in product(WIDTHS, enumerate(OUTPUTS)):
        for rows in ([], [3], [2, 0, 1, 9, 16, 4, 0]):
            problem = make_problem(
                number, [num_bits, outputs], [rows], 6, weighted=bool(number % 2)
            )
            dense = replace(problem, features=cast(SparseBits, problem.features).dense())
            for kind in ("classes", "values"):
                expected = problem.expected(kind)
                assert expected.dtype == (np.int64 if kind == "classes" else np.float32)
                for way in "TGS":
                    case = (num_bits, outputs, len(rows), way, kind)
                    got = (problem if way == "S" else dense).run(way, instruction_set, kind)
                    assert same(got, expected), case


def test_many_neighbours_equal_the_reference(instruction_set: str) -> None:
    # Around units of sixteen, blocks of 128 and chunks of 512 neighbours, then a row of a few.
    degrees = [31, 32, 33, 47, 48, 49, 127, 128, 129, 160, 511, 512, 513, 700, 1040, 3]
    widths = [1, 64, 65, 128, 129, 192, 512, 513, 577, 1433]
    for num_bits, weighted in product(widths, (False, True)):
        problem = make_problem(num_bits, [num_bits, 17], [degrees], 50, weighted=weighted)
        expected = problem.expected()
        for way in "TGS":
            assert same(problem.run(way, instruction_set), expected), (num_bits, way, weighted)


def test_weights_of_few_bits_equal_the_reference(instruction_set: str) -> None:
    """One digit of 7 or 8 bits has kernels of its own; 9 bits are the first with more."""
    degrees = [0, 1, 3, 4, 5, 16, 17, 33, 128, 513, 1040]
    for edge_bits, outputs in product([1, 2, 7, 8, 9], [7, 16, 17, 64, 200]):
        problem = make_problem(outputs, [130, outputs, 40], [degrees, [3, 0, 9] * 4], 50)
        few = [replace(layer, edge_bits=edge_bits) for layer in problem.layers]
        problem = replace(problem, layers=few)
        expected = problem.expected()
        for ways in product("STG", "TG"):
            got = problem.run("".join(ways), instruction_set)
            assert same(got, expected), (edge_bits, outputs, ways)


def test_hidden_layers_of_every_size_equal_the_reference(instruction_set: str) -> None:
    for num_bits, (number, outputs) in product([1, 64, 65, 257], enumerate([*OUTPUTS, 257])):
        problem = make_problem(
            number, [num_bits, outputs, 7], [[1, 0, 5, 20, 3, 2, 2], [7, 0, 1]], 6
        )
        expected = problem.expected()
        for ways in ("TT", "TG", "GT", "GG"):
            assert same(problem.run(ways, instruction_set), expected), (num_bits, outputs, ways)


def test_every_plan_and_output_of_three_layers(instruction_set: str) -> None:
    rng = np.random.default_rng(5)
    # Tiles of four rows of few neighbours, and tiles that are not.
    degrees = [0, 1, 15, 16, 17, 0, 0, 0, 0, 16, 16, 16, 16, 3, 40, 2, 1, 1, 1]
    rows = [rng.permutation(degrees).tolist() for _ in range(3)]
    for weighted, long_ids in product((False, True), repeat=2):
        problem = make_problem(1, [65, 40, 17, 7], rows, 23, weighted=weighted, long_ids=long_ids)
        assert problem.edges[0].ids.dtype == (np.int64 if long_ids else np.int32)
        for kind in KINDS:
            expected = problem.expected(kind)
            for ways in product("STG", "TG", "TG"):
                got = problem.run("".join(ways), instruction_set, kind)
                assert same(got, expected), (weighted, long_ids, kind, ways)


def test_two_layers_in_blocks(instruction_set: str) -> None:
    problem = make_problem(2, [33, 16, 65], [[2] * 30, [3, 0, 4, 1, 2, 2, 70, 1, 1, 5, 6]], 9)
    for ways in product("STG", "TG"):
        got = problem.run("".join(ways), instruction_set, "blocks")
        assert same(got, problem.expected()), ways


def test_a_single_layer_in_blocks(instruction_set: str) -> None:
    problem = make_problem(2, [33, 65], [[3, 0, 4, 1, 2, 2, 70, 1, 1, 5, 6]], 9)
    for bytes_per_column, way in product((1, 2, 4), "STG"):
        problem.layers[0].native.widen(bytes_per_column // 2)
        assert same(problem.run(way, instruction_set, "blocks"), problem.expected()), way
    weights, features = opposites(600, 7)  # whose records overflow
    problem = one_layer(
        weights, make_edges(np.random.default_rng(0), [1] * 7, 4), features, ones(4)
    )
    assert same(problem.run("T", instruction_set, "blocks"), problem.expected())


def test_layers_run_twice_and_its_results_are_new_arrays(instruction_set: str) -> None:
    problem = make_problem(3, [65, 40, 7], [[2] * 9, [3] * 9], 9)
    bound = problem.bind("TT", instruction_set)
    first = bound.run_to_values()
    kept = first.copy()
    second = bound.run_to_values()
    second[:] = np.nan
    assert same(first, kept)
    assert same(bound.run_to_values(), kept)
    assert all(bound.seconds(number) > 0 for number in (0, 1))


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

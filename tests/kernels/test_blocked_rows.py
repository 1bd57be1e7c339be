"""Way T in blocks of sources: the sums of neighbour by neighbour, and where it is chosen."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from layer_problems import Problem, in_order, make_problem, same, with_own

from bignn.kernels import native
from bignn.kernels.layer import SparseBits


@contextmanager
def threads_set_to(count: int) -> Iterator[None]:
    before = native.num_threads()
    native.set_num_threads(count)
    try:
        yield
    finally:
        native.set_num_threads(before)


def few_bits(problem: Problem, edge_bits: int = 7) -> Problem:
    """The problem on dense features, with weights that blocks take."""
    assert isinstance(problem.features, SparseBits)
    layers = [replace(layer, edge_bits=edge_bits) for layer in problem.layers]
    return replace(problem, layers=layers, features=problem.features.dense())


@pytest.mark.parametrize("shift", [1, 2, 4])
def test_blocks_of_every_size_equal_the_reference(instruction_set: str, shift: int) -> None:
    degrees = [0, 1, 3, 4, 5, 16, 17, 33, 130, 0, 0, 2, 511, 7, 1, 60, 60, 60, 60]
    for outputs, weighted, long_ids in product([17, 64, 65, 200], (False, True), (False, True)):
        rows = [degrees, [3, 0, 90] * 4]
        made = make_problem(
            outputs, [130, outputs, 40], rows, 37, weighted=weighted, long_ids=long_ids
        )
        unordered = few_bits(made)
        expected = unordered.expected()
        for problem in (unordered, in_order(unordered)):
            bound = problem.bind("TT", instruction_set, shift)
            assert same(bound.run_to_values(), expected), (outputs, weighted, long_ids)
            assert bound._native.in_blocks(0) and bound._native.in_blocks(1)
            assert same(bound.run_to_values(), expected)
            blocks = np.concatenate([values for _, values in bound.run_in_blocks(5)])
            assert same(blocks, expected)


@pytest.mark.parametrize(("shift", "num_sources"), [(8, 600), (16, 70_000)])
def test_tiles_of_many_rows(instruction_set: str, shift: int, num_sources: int) -> None:
    """Rows past the fourth of a tile, and sources past the first few of a block."""
    rng = np.random.default_rng(shift)
    degrees = rng.integers(0, 12 * num_sources // 150, 150).tolist()
    problem = in_order(few_bits(make_problem(shift, [40, 70], [degrees], num_sources)))
    bound = problem.bind("T", instruction_set, shift)
    assert sum(degrees) >= 2 * num_sources  # a tile of fewer than N is summed row by row
    for threads in (1, 2):
        with threads_set_to(threads):
            assert same(bound.run_to_values(), problem.expected()), threads
    assert bound._native.in_blocks(0)


def test_tiles_do_not_leave_their_weights_to_rows_without_one(instruction_set: str) -> None:
    degrees = [65_537, 40, 65_537]
    problem = in_order(few_bits(make_problem(9, [65, 100], [degrees], 37, weighted=True)))
    edges = problem.edges[0]
    assert edges.weights is not None
    edges.weights[65_577:65_582] = 50  # the largest of the last row, just after the tile's
    bound = problem.bind("T", instruction_set, 4)
    with threads_set_to(1):  # all rows share one batch of neighbours
        assert same(bound.run_to_values(), problem.expected())


def test_own_parts_are_added_to_blocks(instruction_set: str) -> None:
    rng = np.random.default_rng(0)
    problem = few_bits(make_problem(3, [70, 100, 33], [[40] * 30, [9] * 30], 30))
    problem = replace(problem, layers=[with_own(layer, rng) for layer in problem.layers])
    bound = problem.bind("TT", instruction_set, 3)
    assert same(bound.run_to_values(), problem.expected())
    assert bound._native.in_blocks(0)


def test_rows_of_too_many_neighbours_for_a_tile(instruction_set: str) -> None:
    degrees = [70, 65_537, 65_536, 3, 70]
    problem = in_order(few_bits(make_problem(4, [65, 100], [degrees], 40)))
    bound = problem.bind("T", instruction_set, 3)
    assert same(bound.run_to_values(), problem.expected())
    assert bound._native.in_blocks(0)


def test_weights_of_too_many_bits_are_not_taken(instruction_set: str) -> None:
    for edge_bits in (8, 9):
        problem = few_bits(make_problem(5, [65, 100], [[70] * 9], 9), edge_bits)
        bound = problem.bind("T", instruction_set, 3)
        assert same(bound.run_to_values(), problem.expected())
        if edge_bits == 9:
            assert not bound._native.in_blocks(0)


def test_blocks_are_chosen_for_long_rows_in_order(instruction_set: str) -> None:
    sources = 33_000  # whose lines are past a second cache
    many = few_bits(make_problem(6, [65, 200], [[70] * 3], sources))
    expected = many.expected()
    sizes = (3, sources, 210)
    pays = native.blocks_pay(instruction_set, 7, 200, sizes)
    assert pays == (instruction_set == "avx512")
    for problem, is_blocked in ((in_order(many), pays), (many, False)):
        bound = problem.bind("T", instruction_set)
        assert same(bound.run_to_values(), expected)
        assert bound._native.in_blocks(0) == is_blocked
    # Records of one line, where there are so many that they are far.
    assert native.blocks_pay(instruction_set, 7, 41, (3, 140_000, 900)) == pays
    for other in (
        (7, 41, (3, 130_000, 900)),
        (7, 16, (3, 140_000, 900)),
        (9, 200, sizes),  # bits of a weight
        (7, 192, sizes),  # columns
        (7, 200, (3, sources, 190)),  # neighbours
        (7, 200, (3, 32_000, 210)),  # sources
        (7, 200, (0, sources, 0)),  # rows, as where they are given later
    ):
        assert not native.blocks_pay(instruction_set, *other)

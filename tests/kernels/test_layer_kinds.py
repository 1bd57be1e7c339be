"""Layers with a part of their own (SAGE) and with attention (GAT): every backend, way, size and
output gives the reference's bytes, and the reference what the formulas say in float64.
"""

from dataclasses import replace
from itertools import product
from typing import Any, cast

import numpy as np
import pytest
from layer_problems import (
    KINDS,
    OUTPUTS,
    attentive,
    kinds,
    make_problem,
    own_rows,
    same,
    with_own,
)
from numpy.typing import NDArray

from bignn import bits
from bignn.kernels.attention import Attention, exp_of_negative, whole_scores
from bignn.kernels.layer import Edges, Floats, Keep, SparseBits

Doubles = NDArray[np.float64]


def test_every_size_and_way_equals_the_reference(instruction_set: str) -> None:
    sizes = product([1, 64, 65, 256, 300], enumerate([*OUTPUTS, 6, 66, 96, 258]))
    for num_bits, (number, outputs) in sizes:
        rows = [[3], [2, 0, 1, 9, 16, 4, 0, 30]][number % 2]
        plain = make_problem(number, [num_bits, outputs], [rows], 9)
        for name, problem in kinds(number, plain):
            dense = replace(problem, features=cast(SparseBits, problem.features).dense())
            for kind in ("classes", "values"):
                expected = problem.expected(kind)
                for way in "TGS":
                    got = (problem if way == "S" else dense).run(way, instruction_set, kind)
                    case = (name, num_bits, outputs, len(rows), way, kind)
                    assert same(got, expected), case


def test_many_neighbours_equal_the_reference(instruction_set: str) -> None:
    degrees = [31, 32, 33, 48, 127, 129, 511, 512, 513, 700, 1040, 3]
    for long_ids in (False, True):
        plain = make_problem(3, [130, 18], [degrees], 50, long_ids=long_ids)
        for name, problem in kinds(1, plain):
            expected = problem.expected()
            for way in "TGS":
                assert same(problem.run(way, instruction_set), expected), (name, way, long_ids)


def test_every_width_of_records(instruction_set: str) -> None:
    for name, problem in kinds(1, make_problem(3, [130, 36], [[5, 0, 70, 16, 600]], 50)):
        for bytes_per_column in (1, 2, 4):
            problem.layers[0].native.widen(bytes_per_column // 2)
            assert problem.layers[0].native.bytes_per_column == bytes_per_column
            assert same(problem.run("T", instruction_set), problem.expected()), name


def test_every_plan_and_output_of_three_layers(instruction_set: str) -> None:
    rng = np.random.default_rng(5)
    degrees = [0, 1, 15, 16, 17, 0, 0, 0, 0, 16, 16, 16, 16, 3, 40, 2, 1, 1, 1]
    rows = [rng.permutation(degrees).tolist() for _ in range(3)]
    for name, problem in kinds(2, make_problem(1, [65, 42, 18, 6], rows, 23)):
        for kind in KINDS:
            expected = problem.expected(kind)
            for ways in product("STG", "TG", "TG"):
                got = problem.run("".join(ways), instruction_set, kind)
                assert same(got, expected), (name, kind, ways)


def test_kinds_follow_each_other(instruction_set: str) -> None:
    plain = make_problem(4, [70, 40, 36, 18, 7], [[3, 0, 5, 9]] * 4, 4)
    rng = np.random.default_rng(3)
    first, second, third, last = plain.layers
    mixed = replace(
        own_rows(plain),
        layers=[with_own(first, rng), attentive(second, rng, 2, averages=False), third, last],
    )
    for ways in ("TTTT", "GGGG", "TGTG", "GTGT", "STTG"):
        assert same(mixed.run(ways, instruction_set), mixed.expected()), ways


def test_what_is_kept(instruction_set: str) -> None:
    problem = make_problem(3, [65, 40, 7], [[2, 1, 0] * 3, [3, 2] * 4], 9)
    keep: frozenset[Keep] = frozenset(("values", "bits"))
    keeping = replace(problem, layers=[replace(layer, keep=keep) for layer in problem.layers])
    first = replace(problem, layers=problem.layers[:1], edges=problem.edges[:1])
    for backend, ways in product(("reference", instruction_set), ("TT", "GG", "TG", "GT")):
        bound = keeping.bind(ways, backend)
        for _ in range(2):
            bound.run_kept()
            assert same(bound.kept(1, "values"), problem.expected())
            assert same(bound.kept(0, "values"), first.expected())
            for number in (0, 1):
                words, beta = bound.kept(number, "bits")
                values = bound.kept(number, "values")
                assert same(words, bits.pack(values))
                np.testing.assert_allclose(beta, np.abs(values).mean(axis=1), rtol=1e-6)


def test_scores_that_overflow_are_the_same_everywhere(instruction_set: str) -> None:
    plain = own_rows(make_problem(7, [90, 8], [[4, 0, 20, 3, 1]], 6))
    rng = np.random.default_rng(0)
    for spread in (1e-30, 1e-4, 30, 1e4, 1e12):
        weights = attentive(plain.layers[0], rng, 2, averages=False, spread=spread)
        for factor in (1, 1e-30, 1e25, np.inf):
            with np.errstate(over="ignore"):
                scaled = (plain.beta * np.float32(factor)).astype(np.float32)
            problem = replace(plain, layers=[weights], beta=scaled)
            expected = problem.expected()
            for way in "TG":
                assert same(problem.run(way, instruction_set), expected), (spread, factor, way)


# --- What the reference computes ---------------------------------------------------------------


def signs(words: NDArray[np.uint64], num_bits: int) -> Doubles:
    return bits.unpack(words, num_bits).astype(np.float64)


def neighbours(edges: Edges, row: int) -> NDArray[Any]:
    return edges.ids[edges.offsets[row] : edges.offsets[row + 1]]


def test_a_part_of_its_own_is_what_the_formula_says() -> None:
    problem = own_rows(make_problem(1, [70, 9], [[3, 0, 20, 5]], 8))
    weights = with_own(problem.layers[0], np.random.default_rng(0))
    edges = problem.edges[0]
    assert weights.own is not None
    assert edges.own_ids is not None
    x = signs(cast(SparseBits, problem.features).dense().words, 70) * problem.beta[:, None]
    z = x @ signs(weights.words, 70).T * weights.scale
    own = x @ signs(weights.own.words, 70).T * weights.own.scale
    expected = np.stack(
        [
            edges.target_factor[i] * z[neighbours(edges, i)].sum(axis=0) + own[edges.own_ids[i]]
            for i in range(4)
        ]
    )
    got = replace(problem, layers=[weights]).expected()
    np.testing.assert_allclose(got, expected + weights.shift, rtol=1e-4, atol=1e-4)


def softmax(scores: Doubles) -> Doubles:
    shares = np.exp(scores - scores.max(axis=0))
    return np.asarray(shares / shares.sum(axis=0))


@pytest.mark.parametrize("averages", [False, True])
def test_attention_is_what_the_formula_says(averages: bool) -> None:
    rng = np.random.default_rng(0)
    heads, channels, inputs = 3, 5, 70
    problem = own_rows(make_problem(1, [inputs, heads * channels], [[3, 1, 20, 5]], 8))
    plain, edges = problem.layers[0], problem.edges[0]
    vectors = rng.standard_normal((2, heads, channels)).astype(np.float32)
    made = [whole_scores(plain.words, inputs, plain.scale, part) for part in vectors]
    assert made[0] is not None
    assert made[1] is not None
    end_scale = np.full(channels, 1 / heads, dtype=np.float32) if averages else plain.scale
    attention = Attention(
        heads,
        averages,
        0.2,
        np.concatenate([made[0][0], made[1][0]]),
        np.concatenate([made[0][1], made[1][1]]),
        end_scale,
    )
    shift = plain.shift[:channels] if averages else plain.shift
    weights = replace(plain, attention=attention, shift=shift, edge_bits=20)
    x = signs(cast(SparseBits, problem.features).dense().words, inputs)
    z = (x * problem.beta[:, None]) @ signs(plain.words, inputs).T * plain.scale
    parts = z.reshape(-1, heads, channels)
    source, target = ((parts * part).sum(axis=2) for part in vectors)
    expected = []
    assert edges.own_ids is not None
    for i in range(4):
        ids = neighbours(edges, i)
        score = target[edges.own_ids[i]] + source[ids]
        share = softmax(np.where(score >= 0, score, 0.2 * score))
        h = (share[:, :, None] * parts[ids]).sum(axis=0)
        expected.append(h.mean(axis=0) if averages else h.ravel())
    got = replace(problem, layers=[weights]).expected()
    np.testing.assert_allclose(got, np.stack(expected) + shift, rtol=1e-4, atol=1e-4)


def test_the_exponential() -> None:
    t = -np.concatenate([[0], np.geomspace(1e-12, 64, 100_000)]).astype(np.float32)
    exact = np.exp(t.astype(np.float64))
    assert exp_of_negative(t)[0] == 1
    assert np.abs(exp_of_negative(t) / exact - 1).max() < 3e-7
    assert exp_of_negative(t).max() == 1
    beyond: Floats = np.array([-64.1, -1e5, -2e30], dtype=np.float32)
    assert exp_of_negative(beyond).tolist() == [0, 0, 0]


def test_whole_scores_are_near_the_real_ones() -> None:
    rng = np.random.default_rng(1)
    for inputs, channels in ((1, 1), (70, 3), (1433, 64)):
        words = bits.pack(rng.standard_normal((2 * channels, inputs)))
        alpha = rng.random(2 * channels).astype(np.float32)
        vectors = rng.standard_normal((2, channels)).astype(np.float32)
        made = whole_scores(words, inputs, alpha, vectors)
        assert made is not None
        values, sigma = made
        assert np.abs(values.astype(np.int64)).sum(axis=1).max() < 2**31
        b = signs(words, inputs).reshape(2, channels, inputs)
        scaled = alpha.reshape(2, channels) * vectors.astype(np.float64)
        exact = np.einsum("hc,hci->hi", scaled, b)
        np.testing.assert_allclose(values * sigma[:, None], exact, atol=1e-8 * np.abs(exact).sum())
    zero = np.zeros((1, 2), dtype=np.float32)
    made = whole_scores(words[:2], inputs, alpha[:2], zero)
    assert made is not None
    assert not made[0].any()
    huge = np.full((1, 2), 1e38, dtype=np.float32)
    assert whole_scores(words[:2], inputs, huge[0], huge) is None

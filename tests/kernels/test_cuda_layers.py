"""The GPU's kernels on emulated blocks: the reference's bytes, at odd sizes and for all kinds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulated_device import EmulatedDevice
from layer_problems import (
    Problem,
    kinds,
    make_edges,
    make_problem,
    one_layer,
    ones,
    opposites,
    same,
)

from bignn import InputError
from bignn.kernels.cuda import compiled
from bignn.kernels.cuda.layers import CudaLayers, ways_of
from bignn.kernels.cuda.long_rows import LONG_ROW, long_rows
from bignn.kernels.layer import Keep
from bignn.kernels.packed_layers import PackedLayers

# Few and many neighbours, none, and numbers around whole quads and halves of a run.
MANY = [3, 0, 5, 40, 70, 1, 33, 64, 130, 2, 32, 65, 128, 0, 0, 4, 63]


def with_bits(problem: Problem, edge_bits: int) -> Problem:
    return replace(problem, layers=[replace(w, edge_bits=edge_bits) for w in problem.layers])


def bind(gpu: EmulatedDevice, problem: Problem, ways: str) -> CudaLayers:
    return CudaLayers(gpu, problem.layers, problem.edges, ways, problem.features, problem.beta)


def check(gpu: EmulatedDevice, problem: Problem, ways: str) -> None:
    bound = bind(gpu, problem, ways)
    assert same(bound.run_to_values(), problem.expected("values"))
    assert same(bound.run_to_classes(), problem.expected("classes"))


@pytest.mark.parametrize("num_inputs", [1, 33, 127, 128, 129, 256, 400, 513, 700])
def test_sizes(gpu: EmulatedDevice, num_inputs: int) -> None:
    outputs = {1: 1, 33: 7, 127: 31, 128: 32, 129: 33, 256: 65, 400: 2, 513: 40, 700: 16}
    sizes = [num_inputs, outputs[num_inputs], 5]
    problem = make_problem(num_inputs, sizes, [MANY, [4, 0, 9, 1, 17]], 40, weighted=True)
    for ways, edge_bits in (("GT", 7), ("GG", 8), ("TG", 3)):
        check(gpu, with_bits(problem, edge_bits), ways)
    check(gpu, problem, "TT")


def test_long_rows(gpu: EmulatedDevice) -> None:
    # Totals of more than two digits, in tiles with and without long rows.
    degrees = [LONG_ROW + 900, 0, 5, 2 * LONG_ROW + 1, LONG_ROW, LONG_ROW + 1, *[2] * 14, 900]
    problem = make_problem(2, [100, 33, 7], [degrees, [4, 0, 9, 1, 1]], 21, weighted=True)
    for ways in ("TT", "GG"):
        check(gpu, with_bits(problem, 8), ways)
    check(gpu, problem, "TT")


def test_medium_rows_are_weighed_by_warps(gpu: EmulatedDevice) -> None:
    problem = with_bits(make_problem(4, [40, 9], [[600, 0, 511, 513, 3]], 30, weighted=True), 7)
    check(gpu, problem, "G")
    assert "weigh_medium_rows" in gpu.launched


@pytest.mark.parametrize("degrees", [[0], [1], [0] * 20])
def test_hardly_any_neighbours(gpu: EmulatedDevice, degrees: list[int]) -> None:
    problem = with_bits(make_problem(3, [65, 33, 7], [degrees, [1]], 1), 7)
    for ways in ("TT", "GG"):
        check(gpu, problem, ways)


def test_kinds(gpu: EmulatedDevice) -> None:
    plain = make_problem(3, [133, 60, 12], [[3, 0, 5, 40, 70, 1, 33, 64], [4, 0, 9]], 12)
    for name, problem in kinds(1, plain):
        check(gpu, problem, "TT")
        check(gpu, with_bits(problem, 7), "GG" if name == "own" else "TT")
    (_, wide), *_ = kinds(1, make_problem(4, [520, 12], [[3, 0, 20]], 12))
    check(gpu, with_bits(wide, 7), "G")


def test_records_that_do_not_fit_a_byte_are_made_wider(gpu: EmulatedDevice) -> None:
    layer, features = opposites(700, 20)
    edges = make_edges(np.random.default_rng(0), [3, 4, 0, 9], 4)
    problem = one_layer(replace(layer, edge_bits=7), edges, features, ones(4))
    bound = bind(gpu, problem, "T")
    assert bound.bytes_per_column(0) == 1
    assert same(bound.run_to_values(), problem.expected())
    assert bound.bytes_per_column(0) == 2
    assert "make_records_16" in gpu.launched
    check(gpu, problem, "G")


def test_bits_and_values_are_kept(gpu: EmulatedDevice) -> None:
    problem = make_problem(5, [70, 40, 9], [[3, 0, 5, 1], [2, 1, 3]], 9)
    keep: frozenset[Keep] = frozenset(["values", "bits"])
    kept = replace(problem, layers=[replace(w, edge_bits=7, keep=keep) for w in problem.layers])
    for ways in ("TT", "GG"):
        bound = bind(gpu, kept, ways)
        bound.run_kept()
        expected = PackedLayers(
            kept.layers, kept.edges, "TT", kept.features, kept.beta, "reference"
        )
        expected.run_kept()
        for number in range(2):
            assert same(bound.kept(number, "values"), expected.kept(number, "values"))
            for ours, theirs in zip(
                bound.kept(number, "bits"), expected.kept(number, "bits"), strict=True
            ):
                assert same(ours, theirs)


def test_the_first_layers_weights_are_made_once(gpu: EmulatedDevice) -> None:
    problem = with_bits(make_problem(6, [70, 40, 9], [[3, 0, 5, 1], [2, 1, 3]], 9), 7)
    bound = bind(gpu, problem, "GG")
    bound.run_to_classes()
    gpu.launched.clear()
    bound.run_to_classes()
    weighed = [name for name in gpu.launched if name.startswith("weigh")]
    assert weighed == ["weigh_short_rows"]


def test_what_does_not_fit_is_refused_in_one_line(gpu_library: Path) -> None:
    problem = with_bits(make_problem(6, [70, 40], [[3, 0, 5, 1]], 9), 7)
    small = EmulatedDevice(gpu_library, free_bytes=1000)
    with pytest.raises(InputError, match=r"needs 0\.00 GB on the GPU, of which 0\.00 GB are free"):
        bind(small, problem, "G")


def test_ways_depend_on_the_layer_and_on_shared_memory(gpu_library: Path) -> None:
    gpu = EmulatedDevice(gpu_library)
    layer = make_problem(1, [513, 40], [[1]], 1).layers[0]
    few = replace(layer, edge_bits=8)
    assert ways_of(gpu, few) == "TG"
    assert ways_of(gpu, replace(layer, edge_bits=9)) == "T"
    little = EmulatedDevice(gpu_library, most_shared_bytes=16 << 10)
    assert ways_of(little, few) == "T"
    # With more shared memory than any GPU has, what sums of 32 bits hold is the bound.
    large = EmulatedDevice(gpu_library, most_shared_bytes=1 << 20)
    for num_inputs, ways in ((8224, "TG"), (8225, "T")):
        wide = make_problem(1, [num_inputs, 40], [[1]], 1).layers[0]
        assert ways_of(large, replace(wide, edge_bits=8)) == ways


def test_long_rows_are_cut_into_pieces() -> None:
    found = long_rows(np.cumsum([0, 2048, 2049, 0, 5000]))
    assert found.rows.tolist() == [1, 3]
    assert found.piece_rows.tolist() == [1, 1, 3, 3, 3]
    assert found.piece_begins.tolist() == [2048, 4096, 4097, 6145, 8193]
    assert found.piece_slots.tolist() == [0, 0, 1, 1, 1]


def test_all_sources_are_found() -> None:
    files = compiled.sources()
    included = {
        line.split('"')[1]
        for text in files.values()
        for line in text.decode().splitlines()
        if line.startswith('#include "')
    }
    assert included | {"packed_layers.cu"} == set(files)

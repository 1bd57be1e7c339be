"""Kernels of another architecture, cross-compiled and run by qemu: the reference's bytes."""

import shutil
import subprocess
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from case_file import CaseFile
from layer_problems import (
    WIDTHS,
    Problem,
    attentive,
    kinds,
    make_edges,
    make_layer,
    make_problem,
    one_layer,
    ones,
    opposites,
    own_rows,
)

from bignn import bits
from bignn.kernels.layer import DenseBits, SparseBits

SOURCES = Path(__file__).parent / "emulated"
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
LIBRARIES = "/usr/aarch64-linux-gnu"
# A CPU of qemu's, and the instruction sets that it runs; a53 has no dot product.
CPUS = {
    "max": ["portable: ran", "neon: ran", "neon_dot: ran", "best: neon_dot"],
    "cortex-a53": ["portable: ran", "neon: ran", "neon_dot: lacks asimddp", "best: neon"],
}
MANY = [31, 32, 33, 48, 127, 129, 511, 512, 513, 700, 1040, 3, 0, 16]


def with_bits(problem: Problem, edge_bits: int) -> Problem:
    return replace(problem, layers=[replace(w, edge_bits=edge_bits) for w in problem.layers])


def dense(problem: Problem) -> Problem:
    """The problem with the same features as packed rows."""
    features = problem.features
    return replace(problem, features=getattr(features, "dense", lambda: features)())


def add_sizes(cases: CaseFile) -> None:
    """Add one layer of every odd size, with few and many bits per weight."""
    outputs = [1, 7, 16, 17, 40, 64, 65, 130]
    for number, (num_bits, edge_bits) in enumerate(product(WIDTHS, (2, 5, 6, 7, 8, 14, 17, 20))):
        width = outputs[number % len(outputs)]
        rows = [[3], [2, 0, 1, 9, 16, 4, 0, 30], [5, 1, 40]][number % 3]
        sizes = {"weighted": number % 2 == 1, "long_ids": number % 5 == 0}
        problem = with_bits(make_problem(number, [num_bits, width], [rows], 9, **sizes), edge_bits)
        name = f"{num_bits} inputs, {width} outputs, {edge_bits} bits"
        cases.add_layers(name, problem, "TGS")


def add_degrees(cases: CaseFile) -> None:
    for edge_bits in (*range(2, 9), 13, 14, 15, 16, 17, 20):
        problem = make_problem(edge_bits, [130, 66], [MANY], 50, weighted=edge_bits % 2 == 0)
        cases.add_layers(f"degrees, {edge_bits} bits", with_bits(problem, edge_bits), "TGS")


def add_kinds(cases: CaseFile) -> None:
    """Add own parts and attention, on rows of few neighbours, of many, and of both."""
    shapes = [([130, 18], [MANY], "TGS"), ([65, 42], [[3, 0, 16, 16, 1, 2, 4, 8, 9]], "TGS")]
    for (sizes, degrees, ways), edge_bits in product(shapes, (4, 7, 8, 17)):
        plain = with_bits(make_problem(3, sizes, degrees, 50), edge_bits)
        for name, problem in kinds(1, plain):
            cases.add_layers(f"{name}, {sizes}, {edge_bits} bits", problem, ways)
    degrees = [[0, 1, 15, 16, 17, 0, 0, 0, 0, 16, 16, 16, 16, 3, 40, 2, 1, 1, 1]] * 3
    for name, problem in kinds(2, make_problem(1, [65, 42, 18, 6], degrees, 19)):
        cases.add_layers(f"{name}, three layers", problem, ["TTT", "GGG", "STG", "TGT"])
    plain = own_rows(make_problem(7, [90, 8], [[4, 0, 20, 3, 1]], 6))
    for spread in (1e-30, 1e-4, 30, 1e4, 1e12):
        rng = np.random.default_rng(0)
        layers = [attentive(w, rng, 2, averages=False, spread=spread) for w in plain.layers]
        cases.add_layers(f"scores of {spread}", replace(plain, layers=layers), "TGS")


def add_extremes(cases: CaseFile) -> None:
    """Add records of two and four bytes, products too large for tables, and infinite weights."""
    rng = np.random.default_rng(1)
    for num_bits, outputs in (*product((255, 600), (7, 17, 65)), (70_000, 17)):
        weights, features = opposites(num_bits, outputs)
        edges = make_edges(rng, [2, 5, 0, 1, 30, 2], 4)
        problem = one_layer(weights, edges, features, ones(4))
        cases.add_layers(f"opposites of {num_bits}", problem, "T" if num_bits > 2**16 else "TG")
    for edge_bits in range(2, 9):  # bytes of 127 and -128, and weights that are all the largest
        weights, features = opposites(255, 70)
        edges = make_edges(rng, [1, 2, 5, 0, 16, 40, 600], 4)
        problem = with_bits(one_layer(weights, edges, features, ones(4)), edge_bits)
        cases.add_layers(f"opposites, {edge_bits} bits", problem, "TG")
    for edge_bits, widen in product((7, 12, 17), (2, 4)):
        plain = with_bits(make_problem(3, [130, 36], [[5, 0, 70, 16, 600]], 50), edge_bits)
        for name, problem in [("plain", plain), *kinds(1, plain)]:
            name = f"{name}, {edge_bits} bits, records of {widen} bytes"
            cases.add_layers(name, problem, "TS", widen)
    weights, features = opposites(60_000, 5)  # two bytes at their ends
    edges = replace(make_edges(rng, [512, 3], 4), ids=np.zeros(515, dtype=np.int32))
    for edge_bits in (7, 20):
        problem = one_layer(weights, edges, features, np.float32(1.999) * ones(4))
        cases.add_layers(f"large opposites, {edge_bits} bits", with_bits(problem, edge_bits), "TG")
    for degree, edge_bits, num_bits in product((500, 1500), (7, 12, 20), (64, 1100)):
        weights, features = opposites(num_bits, 5)
        edges = replace(make_edges(rng, [degree, 1], 4), ids=np.zeros(degree + 1, dtype=np.int32))
        for others in (1, 0):  # rows that oppose each other, and rows that are all the same
            alike = DenseBits(features.words[[0, others, 0, others]])
            problem = one_layer(weights, edges, alike, np.float32(1.999) * ones(4))
            name = f"{degree} like neighbours, {edge_bits} bits, {others}"
            cases.add_layers(name, with_bits(problem, edge_bits), "TG")
    for sign, count in ((1, 127), (1, 128), (-1, 128), (-1, 129), (1, 300)):
        weights = make_layer(rng, count, 20)
        weights.words[3] = bits.pack(np.full(count, -sign))
        offsets = np.array([0, 1, 1 + count], dtype=np.int64)
        inputs = np.concatenate([[0], np.arange(count)]).astype(np.int32)
        flipped = SparseBits(offsets, inputs, bits.pack(np.ones(count)))
        problem = one_layer(weights, make_edges(rng, [1, 2, 3], 2), flipped, ones(2))
        cases.add_layers(f"{count} flips to {sign}", problem, "TGS")
    nowhere = make_problem(6, [30, 9], [[1, 5, 0, 2, 2]], 5)
    shifts = [[0, np.nan, 3, 3], [np.nan] * 9, [np.nan, -np.inf, -np.inf], [7, 1, np.nan, 7]]
    for some in shifts:
        shift = np.resize(np.array(some, dtype=np.float32), 9)
        layers = [replace(layer, shift=shift) for layer in nowhere.layers]
        cases.add_layers(f"shift by {some}", replace(nowhere, layers=layers), "TGS")
    huge = make_problem(5, [70, 20, 9], [[2, 20, 1, 0]] * 2, 4, weighted=True)
    for factor in (1e-38, 1e30, 3e38):
        scaled = replace(huge, beta=huge.beta * np.float32(factor))
        cases.add_layers(f"β about {factor}", scaled, ["TT", "GG", "SG"])


def add_training(cases: CaseFile) -> None:
    for num_bits, num_rows in product(WIDTHS, (1, 4, 7)):
        cases.add_products(f"{num_rows} rows of {num_bits}", num_rows, num_bits, num_bits % 37 + 1)
    sizes = [(1, 1, 1), (3, 63, 2), (5, 65, 17), (130, 128, 5), (33, 200, 33), (70, 2100, 3)]
    for size, keep in product(sizes, (1, 1024, 2458, 4096)):
        cases.add_masks(f"masks of {size}, {keep} kept", keep, size)


def write_cases(path: Path) -> None:
    cases = CaseFile()
    for add in (add_sizes, add_degrees, add_kinds, add_extremes, add_training):
        add(cases)
    cases.save(path)


def test_neon_kernels_equal_the_reference(tmp_path: Path) -> None:
    for program in (COMPILER, EMULATOR, "cmake"):
        if shutil.which(program) is None:
            pytest.skip(f"NEON kernels need {program} to be tested here (.ci/run installs it)")
    folder, cases = str(tmp_path), str(tmp_path / "cases")
    target = ["SYSTEM_NAME=Linux", "SYSTEM_PROCESSOR=aarch64", f"CXX_COMPILER={COMPILER}"]
    options = [f"-DCMAKE_{part}" for part in target]
    for command in (
        ["cmake", "-S", str(SOURCES), "-B", folder, *options],
        ["cmake", "--build", folder, "--parallel", "2"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    write_cases(Path(cases))
    for cpu, expected in CPUS.items():
        command = [EMULATOR, "-cpu", cpu, "-L", LIBRARIES, f"{folder}/run_cases", cases]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr
        assert done.stdout.splitlines()[: len(expected)] == expected

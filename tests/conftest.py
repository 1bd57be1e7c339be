"""Small graphs and models every test may use."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import emulated_device
import numpy as np
import pytest
from browser import Browser, find
from emulated_device import EmulatedDevice
from hypothesis import settings
from numpy.typing import NDArray

from bignn import bits, kernels
from bignn.graph import Graph, from_arrays
from bignn.kernels import native
from bignn.kernels.layer import edge_bits_of
from bignn.runtime import PackedGraph, PackedModel, pack_graph

# Examples share two busy cores; how long one takes says nothing.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

Arrays = dict[str, NDArray[Any]]


def make_arrays(num_nodes: int = 60, num_features: int = 20, seed: int = 0) -> Arrays:
    """Two communities whose features and edges give their class away, in the .npz format."""
    rng = np.random.default_rng(seed)
    y = np.arange(num_nodes) % 2
    x = (rng.random((num_nodes, num_features)) < 0.15).astype(np.float32)
    half = num_features // 2
    x[y == 0, :half] += rng.random((int((y == 0).sum()), half)) < 0.3
    x[y == 1, half:] += rng.random((int((y == 1).sum()), num_features - half)) < 0.3
    pairs = rng.integers(0, num_nodes, (2, 4 * num_nodes))
    kept = (y[pairs[0]] == y[pairs[1]]) | (rng.random(pairs.shape[1]) < 0.2)
    pairs = pairs[:, kept & (pairs[0] != pairs[1])]
    nodes = rng.permutation(num_nodes)
    third = num_nodes // 3
    return {
        "x": x,
        "edge_index": np.unique(np.concatenate([pairs, pairs[::-1]], axis=1), axis=1),
        "y": y,
        "train_idx": nodes[:third],
        "val_idx": nodes[third : 2 * third],
        "test_idx": nodes[2 * third :],
    }


def runnable(backend: str) -> str:
    """The backend, if the CPU has what it needs; the test is skipped otherwise."""
    if backend not in kernels.available_backends():
        # Never for a missing build: `make test` requires the extension.
        assert native.is_available()
        pytest.skip(native.why_not(backend))
    return backend


@pytest.fixture(scope="session")
def gpu_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The GPU's kernels, compiled for emulated blocks."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    return emulated_device.build(tmp_path_factory.mktemp("gpu"))


@pytest.fixture
def gpu(gpu_library: Path) -> EmulatedDevice:
    """A GPU that the CPU emulates."""
    return EmulatedDevice(gpu_library)


@pytest.fixture(params=native.INSTRUCTION_SETS)
def instruction_set(request: pytest.FixtureRequest) -> str:
    """Each native backend."""
    return runnable(request.param)


@pytest.fixture
def arrays() -> Arrays:
    return make_arrays()


@pytest.fixture
def graph() -> Graph:
    return from_arrays(make_arrays(), name="toy")


def make_packed_model(sizes: list[int], seed: int = 0, *, batch_norm: bool = False) -> PackedModel:
    """A binary model of the given widths with random weights, made without torch."""
    rng = np.random.default_rng(seed)
    operations: list[dict[str, Any]] = []
    arrays: Arrays = {}

    def floats(size: int) -> NDArray[np.float32]:
        return rng.standard_normal(size).astype(np.float32)

    def add(op: str, prefix: str = "", **parameters: NDArray[Any] | str | int) -> None:
        number = len(operations)
        before = f"v{number - 1}" if number else "x"
        step: dict[str, Any] = {"op": op, "in": [before], "out": f"v{number}"}
        for key, value in parameters.items():
            if isinstance(value, np.ndarray):
                step[key] = f"{prefix}.{key}"
                arrays[f"{prefix}.{key}"] = value
            else:
                step[key] = value
        operations.append(step)

    add("normalize_rows")
    # Rows are normalised to absolute sum 1, so their numbers are about 1 / d. Scales keep every
    # layer's values near 1, so that no bias decides all signs.
    mean, scale = floats(sizes[0]) / (9 * sizes[0]), sizes[0] * (0.5 + floats(sizes[0]) ** 2)
    add("standardize", "input", mean=mean, scale=scale)
    for number, (inputs, outputs) in enumerate(pairwise(sizes)):
        words = bits.pack(rng.standard_normal((outputs, inputs)))
        add("binarize")
        alpha = (0.5 + floats(outputs) ** 2) / np.float32(inputs**0.5)
        add("binary_linear", f"layers.{number}", words=words, alpha=alpha)
        add("aggregate", aggr="gcn", edge_bits=edge_bits_of(is_last=number == len(sizes) - 2))
        add("bias", f"layers.{number}", bias=floats(outputs) / 9)
        if batch_norm and number < len(sizes) - 2:
            mean, scale = floats(outputs) / 9, 1 + floats(outputs) ** 2
            add("batch_norm", f"norms.{number}", mean=mean, scale=scale)
    return PackedModel(operations, arrays, sizes[0], {"seed": seed})


def make_graph(
    num_nodes: int, num_features: int, seed: int = 0, *, like_words: bool = False
) -> Graph:
    """A random directed graph: skewed degrees, isolated nodes, self-loops, repeated edges.

    Features are normal numbers, or with ``like_words`` mostly 0: packed, 300 of them or more become
    sparse bits.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num_nodes, num_features)).astype(np.float32)
    if like_words:
        x = (x > 2.5).astype(np.float32)
    edges = (num_nodes * rng.random((2, 5 * num_nodes)) ** 2).astype(np.int64)
    edges = edges[:, (edges % 11 != 3).all(axis=0)]
    loops = np.array([[0, num_nodes - 1], [0, num_nodes - 1]])
    return Graph(x, np.concatenate([edges, edges[:, :9], loops], axis=1))


@pytest.fixture(scope="module")
def binary() -> PackedModel:
    """A packed model of two layers."""
    return make_packed_model([300, 20, 5])


@pytest.fixture(scope="module")
def binary_graph(binary: PackedModel) -> PackedGraph:
    """A graph of 60 nodes, packed for :func:`binary`."""
    return pack_graph(make_graph(60, 300, like_words=True), like=binary)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser; a module that uses it is skipped where there is none."""
    program = find()
    assert program is not None
    browser = Browser(program, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()

"""Peak memory is what features, weights and activations take, however the graph came."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_arrays

import bignn
from bignn.graph import Graph, SparseRows
from bignn.kernels.threads import set_num_threads
from bignn.lab.bench.compared_problem import ComparedProblem
from bignn.lab.bench.peak_memory import _measure, peak_mib_of_trained
from bignn.nn import GNN

MIB = 2**20
NODES, FEATURES, HIDDEN, CLASSES = 4000, 640, 64, 5


def can_measure() -> bool:
    """Whether the system tells a process its peak, and lets it start anew."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return "VmHWM:" in Path("/proc/self/status").read_text()
    except OSError:
        return False


needs_peaks = pytest.mark.skipif(
    not can_measure(), reason="this system does not tell a process its peak memory"
)


@cache
def graph_of(*, compressed: bool, density: float = 0.05, num_nodes: int = NODES) -> Graph:
    rng = np.random.default_rng(0)
    x = rng.random((num_nodes, FEATURES), dtype=np.float32)
    x[rng.random(x.shape, dtype=np.float32) >= density] = 0
    edges = rng.integers(0, num_nodes, (2, 3 * num_nodes))
    if not compressed:
        return Graph(x, edges)
    rows, columns = np.nonzero(x)
    offsets = np.searchsorted(rows, np.arange(num_nodes + 1))
    return Graph(SparseRows(offsets, columns, x[rows, columns], x.shape), edges)


def problem_of(graph: Graph, *, normalize_rows: bool = True, **options: Any) -> ComparedProblem:
    torch.manual_seed(0)
    sizes = (FEATURES, HIDDEN, 2, CLASSES)
    plain, binary = (
        GNN(*sizes, **{"normalize_rows": normalize_rows, **options, "binarize": binarize}).eval()
        for binarize in ("none", "both")
    )
    binary.fit_input(torch.from_numpy(graph.dense_x()))
    return ComparedProblem(graph, plain, binary)


@pytest.fixture(scope="module")
def apart() -> Iterator[ProcessPoolExecutor]:
    """A process that does nothing else: where tests have run before, the heap has holes."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        1, mp_context=context, initializer=set_num_threads, initargs=(1,)
    ) as pool:
        yield pool


def measured(problem: ComparedProblem, contender: str) -> float:
    return _measure(problem, problem.few_nodes(), contender)


def peak_of(apart: ProcessPoolExecutor, problem: ComparedProblem, contender: str) -> float:
    return apart.submit(measured, problem, contender).result()


#: Of the float model.
WEIGHTS = 4 * (FEATURES * HIDDEN + HIDDEN * CLASSES)
#: One matrix of activations.
WIDE = 4 * NODES * HIDDEN


def expected(contender: str, entries: int) -> tuple[float, float]:
    """MiB at least, by hand, and at most."""
    if contender == "torch_sparse":  # ids and values; two buffers
        least = 8 * entries + 4 * NODES + WEIGHTS + 2 * WIDE
        return least / MIB, 1.1 * least / MIB
    if contender == "pyg_sparse":  # dense; products and their sums, and what its layers copy
        least = 4 * NODES * FEATURES + WEIGHTS + 2 * WIDE
        return least / MIB, (1.05 * least + 4 * WIDE) / MIB
    # 10 words and a scale per node; weights as bits; integers of one layer, bits and β of it.
    least = NODES * (10 * 8 + 4)
    return least / MIB, (least + WIDE + MIB) / MIB


@needs_peaks
@pytest.mark.parametrize(
    ("contender", "normalize_rows"),
    [("torch_sparse", True), ("torch_sparse", False), ("pyg_sparse", True), ("packed", True)],
)
def test_a_peak_is_that_of_the_form_it_runs_with(
    apart: ProcessPoolExecutor, contender: str, normalize_rows: bool
) -> None:
    found = {}
    for compressed in (False, True):
        graph = graph_of(compressed=compressed)
        problem = problem_of(graph, normalize_rows=normalize_rows)
        found[compressed] = peak_of(apart, problem, contender)
        least, most = expected(contender, int(np.count_nonzero(graph.dense_x())))
        assert least <= found[compressed] <= most
    # PyG's layers make what they need anew: whether the system has had its pages back shows.
    near = 2 * WIDE / MIB if contender == "pyg_sparse" else 0.05 * found[False]
    assert found[True] == pytest.approx(found[False], abs=near)


@needs_peaks
def test_the_form_of_the_graph_does_not_count(apart: ProcessPoolExecutor) -> None:
    for contender, conv in product(("torch_sparse", "packed"), ("sage", "gat")):
        dense, compressed = (
            peak_of(apart, problem_of(graph_of(compressed=form), conv=conv), contender)
            for form in (False, True)
        )
        assert dense == pytest.approx(compressed, rel=0.15), (contender, conv)


@needs_peaks
def test_features_are_kept_sparse_by_all_their_rows(apart: ProcessPoolExecutor) -> None:
    """The first rows are dense, the rest empty: an entry in eight in all."""
    dense = graph_of(compressed=False, density=1.0)
    x = np.array(dense.x)
    x[NODES // 8 :] = 0
    rows, columns = np.nonzero(x)
    offsets = np.searchsorted(rows, np.arange(NODES + 1))
    compressed = SparseRows(offsets, columns, x[rows, columns], x.shape)
    peaks = [
        peak_of(apart, problem_of(Graph(form, dense.edge_index)), "torch_sparse")
        for form in (x, compressed)
    ]
    least, most = expected("torch_sparse", len(rows))
    for peak in peaks:
        assert least <= peak <= most


@needs_peaks
def test_weights_count(apart: ProcessPoolExecutor) -> None:
    """On a graph of few nodes hardly anything else does."""
    choices: tuple[tuple[str, dict[str, Any]], ...] = (
        ("torch_sparse", {}),
        ("pyg", {}),
        ("torch", {"jk": "cat"}),
        ("torch_sparse", {"conv": "sage"}),
        ("torch_sparse", {"conv": "gat"}),
    )
    for contender, options in choices:
        torch.manual_seed(0)
        model = GNN(FEATURES, 2000, 2, CLASSES, **options).eval()
        weights = sum(weight.numel() for weight in model.parameters()) * 4 / MIB
        assert weights > 4
        problem = ComparedProblem(graph_of(compressed=True, num_nodes=30), model)
        # Products of dense matrices may copy a factor on the way.
        assert weights <= peak_of(apart, problem, contender) < 2 * weights + 1, contender


@needs_peaks
def test_the_contender_is_left_as_it_came() -> None:
    problem = problem_of(graph_of(compressed=True, num_nodes=300))
    before = [weight.data_ptr() for weight in problem.float_model.parameters()]
    measured(problem, "torch_sparse")
    assert [weight.data_ptr() for weight in problem.float_model.parameters()] == before


def test_a_process_of_its_own_tells_the_peak_of_a_trained_model(tmp_path: Path) -> None:
    file, checkpoint = tmp_path / "mine.npz", tmp_path / "gcn.safetensors"
    np.savez(file, **make_arrays(num_nodes=3000, num_features=1000))  # type: ignore[arg-type]
    model = bignn.nn.GCN(1000, 16, 2, 2)
    settings = bignn.Settings(epochs=1)
    bignn.fit(model, bignn.load(file), settings, checkpoint_path=checkpoint, progress=False)
    found = peak_mib_of_trained(str(file), checkpoint, None, "pyg_sparse", threads=1)
    if not can_measure():
        assert found is None
        return
    assert found is not None
    features = 3000 * 1000 * 4 / MIB
    assert features < found < 1.2 * features


def test_a_process_that_fails_says_why(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = peak_mib_of_trained("cora", tmp_path / "none", None, "pyg", threads=1)
    assert found is None
    assert "peak memory of pyg on cora" in capsys.readouterr().err


def test_this_is_tested_where_peaks_can_be_measured() -> None:
    """A Linux that tells no peak would skip all of the above without a word."""
    if sys.platform == "linux" and Path("/proc/self/clear_refs").exists():
        assert can_measure()

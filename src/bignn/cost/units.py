"""Measures what units of work cost on this machine, on small layers, in a few seconds.

Predicted time is operations times unit costs. :mod:`bignn.runtime.planner` counts what the packed
engine does, with costs of one machine; here its units are scaled, in groups, to what random layers
of a few shapes take now, with the threads that are set. The paper's cycle operations have one unit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bignn import bits
from bignn.cost.architecture import Architecture
from bignn.cost.counting import estimate
from bignn.cost.sizes import Sizes
from bignn.errors import input_error
from bignn.kernels import checked_backend
from bignn.kernels.layer import DenseBits, PackedFeatures, SparseBits
from bignn.runtime import PackedGraph, PackedModel
from bignn.runtime.planner import Plan
from bignn.runtime.unit_costs import BUILT_IN, FEW_BITS

# Units that differ from machine to machine by about the same factor.
_GROUPS = (
    ("xnor", "panel"),
    ("table",),
    ("lookup",),
    ("sparse", "sign near line", "sign shared line", "sign wide line", "sign far line"),
    ("narrow sparse row",),
    ("row", "column", "attention row"),
    ("neighbour",),
    ("record",),
    ("few-bit record",),
    ("bit", "attention", "score"),
    ("few-bit bit",),
    ("bit of many", "few-bit bit of many"),
    ("row of G", "neighbour of G", "few-bit row of G", "few-bit neighbour of G"),
    ("near line", "next near line", "near line ahead"),
    ("shared line",),
    ("wide line",),
    ("far line",),
    ("next shared line", "next wide line"),
    ("next far line",),
    ("shared line ahead", "wide line ahead", "far line ahead"),
    ("listed neighbour", "block line"),
)

# Doubling a group's cost must explain as much as an error of this in one layer's time: what the
# layers say little about stays near the factor of all.
_STIFFNESS = 0.1


@dataclass(frozen=True)
class _Shape:
    """A random graph with a given mean degree, a model on it, and the ways to measure."""

    nodes: int
    degree: int
    sizes: tuple[int, int, int]
    plans: tuple[str, ...]
    ones: int | None = None  # bits of a row that deviate, for way S
    edge_bits: int = FEW_BITS

    @property
    def architecture(self) -> Architecture:
        inputs, hidden, classes = self.sizes
        return Architecture(inputs, hidden, 2, classes, binarize="both")

    @property
    def graph_sizes(self) -> Sizes:
        """Sizes that count both directions of every edge and the node itself as neighbours."""
        edges = self.nodes * (self.degree - 1) // 2
        return Sizes(self.nodes, edges, self.sizes[0], self.sizes[-1])


# Narrow and wide, few and many neighbours, tables within a core's cache, the shared one, and none.
_SHAPES = (
    _Shape(2_000, 5, (1500, 64, 8), ("TT", "ST"), ones=20),
    _Shape(20_000, 5, (500, 64, 8), ("TT",)),
    _Shape(20_000, 12, (128, 256, 40), ("TT", "GT")),
    _Shape(10_000, 12, (128, 256, 40), ("TT", "GT"), edge_bits=17),
    _Shape(20_000, 64, (256, 128, 8), ("TT", "GG")),
    _Shape(10_000, 64, (600, 64, 8), ("GT",), edge_bits=17),
    _Shape(120_000, 8, (128, 256, 40), ("TT", "GT")),
)


@dataclass(frozen=True)
class Calibration:
    """Measured unit costs.

    Attributes:
        units: seconds per unit of :mod:`bignn.runtime.unit_costs`, of one thread's work; with
            several threads what it takes all of them, times their number, so that it divides by
            the threads as the planner has it.
        cycle: seconds per cycle operation of :func:`bignn.cost.estimate`, all threads together.

    """

    units: dict[str, float]
    cycle: float


def calibrate(backend: str | None = None) -> Calibration:
    """Measure small layers on an instruction set, and fit unit costs to their times."""
    backend = checked_backend(backend)
    if backend == "reference":
        fix = "'bignn doctor' says why it is missing"
        raise input_error(
            "backend", "a native one, to measure unit costs", "the NumPy reference", fix
        )
    shares: list[list[float]] = []
    cycles: list[float] = []
    built_in = BUILT_IN[backend]
    for shape, plan in _measured_plans(backend):
        total = 0.0
        for layer in plan.layers:
            assert layer.measured is not None
            work, taken = layer.work[layer.way], layer.measured * plan.threads
            predicted = (
                sum(work.get(unit, 0) * built_in[unit] for unit in group) for group in _GROUPS
            )
            shares.append([seconds / taken for seconds in predicted])
            total += layer.measured
        cycles.append(total / estimate(shape.architecture, shape.graph_sizes).cycle_ops)
    factors = _fitted(np.array(shares))
    units = {
        unit: built_in[unit] * float(factor)
        for group, factor in zip(_GROUPS, factors, strict=True)
        for unit in group
    }
    return Calibration(units, float(np.exp(np.log(cycles).mean())))


def _fitted(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fit factors f of the groups so that ``shares @ f`` is near 1 in every row.

    A row holds the predicted parts of a measured time. One factor is fitted for all groups first,
    then each group's own, as far as it differs.
    """
    of_all = float(np.exp(-np.log(shares.sum(axis=1)).mean()))
    scaled = shares * of_all
    pull = _STIFFNESS * np.eye(shares.shape[1])
    equations = np.concatenate([scaled, pull])
    wanted = np.concatenate([1 - scaled.sum(axis=1), np.zeros(len(pull))])
    change = np.linalg.lstsq(equations, wanted, rcond=None)[0]
    return np.asarray(of_all * np.clip(1 + change, 0.25, 4), dtype=np.float64)


def _measured_plans(backend: str) -> Iterator[tuple[_Shape, Plan]]:
    """Yield the plan of every calibration model, with the least of several times per layer."""
    rng = np.random.default_rng(0)
    for shape in _SHAPES:
        model, graph = _problem(shape, rng)
        for ways in shape.plans:
            plan = model.explain(graph, plan=ways, backend=backend)
            begin, count = time.perf_counter(), 0
            while count < 5 or (time.perf_counter() - begin < 0.05 and count < 100):
                again = model.explain(graph, plan=ways, backend=backend)
                for layer, other in zip(plan.layers, again.layers, strict=True):
                    assert layer.measured is not None
                    assert other.measured is not None
                    layer.measured = min(layer.measured, other.measured)
                count += 1
            yield shape, plan


def _problem(shape: _Shape, rng: np.random.Generator) -> tuple[PackedModel, PackedGraph]:
    operations: list[dict[str, object]] = [{"op": "binarize", "in": ["x"], "out": "bits 0"}]
    arrays: dict[str, NDArray[np.generic]] = {}
    last = len(shape.sizes) - 2
    for number, (inputs, outputs) in enumerate(zip(shape.sizes, shape.sizes[1:], strict=False)):
        words, alpha = f"{number}.words", f"{number}.alpha"
        arrays[words] = random_bits(outputs, inputs, rng)
        arrays[alpha] = np.full(outputs, 0.1, dtype=np.float32)
        operations += [
            {"op": "binary_linear", "in": [f"bits {number}"], "out": f"product {number}",
             "words": words, "alpha": alpha},
            {"op": "aggregate", "in": [f"product {number}"], "out": f"sum {number}",
             "aggr": "gcn", "edge_bits": shape.edge_bits},
        ]  # fmt: skip
        if number != last:
            out = f"bits {number + 1}"
            operations.append({"op": "binarize", "in": [f"sum {number}"], "out": out})
    model = PackedModel(operations, arrays, shape.sizes[0])
    offsets, ids = _neighbours(shape, rng)
    graph = PackedGraph(
        _features(shape, rng),
        shape.sizes[0],
        rng.random(shape.nodes, dtype=np.float32) + np.float32(0.5),
        offsets,
        ids,
        None,
        np.full(shape.nodes, shape.degree**-0.5, dtype=np.float32),
        model.input_digest,
    )
    return model, graph


def _neighbours(
    shape: _Shape, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Draw rows of all lengths, half of their neighbours uniformly, half mostly from a few nodes.

    Branch predictors and caches would do better on anything more even than real graphs.
    """
    offsets = np.zeros(shape.nodes + 1, dtype=np.int64)
    # Where there are many, enough for all rows to be added sixteen neighbours at a time.
    least = shape.degree // 2 if shape.degree >= 64 else 0
    lengths = least + rng.geometric(1 / (shape.degree - least), shape.nodes)
    np.cumsum(lengths, out=offsets[1:])
    ids = rng.integers(0, shape.nodes, offsets[-1], dtype=np.int32)
    names = rng.permutation(shape.nodes).astype(np.int32)
    ids[::2] = names[(rng.random(len(ids[::2])) ** 1.8 * shape.nodes).astype(np.int32)]
    return offsets, ids


def _features(shape: _Shape, rng: np.random.Generator) -> PackedFeatures:
    inputs = shape.sizes[0]
    if shape.ones is None:
        return DenseBits(random_bits(shape.nodes, inputs, rng))
    step = inputs // shape.ones
    places = np.arange(shape.ones) * step + rng.integers(0, step, (shape.nodes, shape.ones))
    offsets = np.arange(shape.nodes + 1, dtype=np.int64) * shape.ones
    base = np.zeros(bits.words_per_row(inputs), dtype=np.uint64)
    return SparseBits(offsets, places.astype(np.int32).ravel(), base)


def random_bits(rows: int, columns: int, rng: np.random.Generator) -> bits.Words:
    """Draw packed rows of random signs."""
    words = rng.integers(0, 2**64, (rows, bits.words_per_row(columns)), dtype=np.uint64)
    spare = np.uint64(-columns % bits.WORD_BITS)
    words[:, -1] >>= spare
    return words

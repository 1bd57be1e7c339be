"""Layers to try packed kernels on, and what the reference makes of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from bignn import bits
from bignn.kernels.attention import Attention, whole_scores
from bignn.kernels.layer import (
    BinaryLayer,
    DenseBits,
    Edges,
    Floats,
    OwnPart,
    PackedFeatures,
    SparseBits,
)
from bignn.kernels.packed_layers import PackedLayers

Output = Literal["classes", "values", "blocks"]

WIDTHS = [1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1433]
OUTPUTS = [1, 7, 16, 17, 40, 64, 65, 256]
KINDS: tuple[Output, ...] = ("classes", "values", "blocks")


@dataclass(frozen=True)
class Problem:
    """Layers without their ways, and what they begin with."""

    layers: list[BinaryLayer]
    edges: list[Edges]
    features: PackedFeatures
    beta: Floats

    def bind(self, ways: str, backend: str, block_shift: int | None = None) -> PackedLayers:
        return PackedLayers(
            self.layers, self.edges, ways, self.features, self.beta, backend, block_shift
        )

    def run(self, ways: str, backend: str, output: Output = "values") -> NDArray[Any]:
        bound = self.bind(ways, backend)
        if output == "classes":
            return bound.run_to_classes()
        if output == "values":
            return bound.run_to_values()
        blocks = dict(bound.run_in_blocks(5))
        assert list(blocks) == list(range(0, self.edges[-1].num_rows, 5))
        none = np.empty((0, self.layers[-1].num_outputs), dtype=np.float32)
        return np.concatenate([none, *blocks.values()])

    def expected(self, output: Output = "values") -> NDArray[Any]:
        return self.run("T" * len(self.layers), "reference", output)


def misaligned(values: NDArray[Any]) -> NDArray[Any]:
    """A copy that begins one byte after where its type may."""
    raw = np.empty(values.nbytes + 1, dtype=np.uint8)
    copy = raw[1:].view(values.dtype).reshape(values.shape)
    copy[...] = values
    assert not copy.flags.aligned
    return copy


def make_layer(rng: np.random.Generator, inputs: int, outputs: int) -> BinaryLayer:
    return BinaryLayer(
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
    """``degrees[l]`` are layer l's; its rows are the sources of layer l + 1.

    As in real models, the last layer's neighbours are weighed with 20 bits, the others' with 17.
    """
    rng = np.random.default_rng(seed)
    sources = [num_sources, *map(len, degrees[:-1])]
    layers = [make_layer(rng, *size) for size in pairwise(sizes)]
    edges = [
        make_edges(rng, rows, count, weighted=weighted, long_ids=long_ids)
        for rows, count in zip(degrees, sources, strict=True)
    ]
    for number in range(1, len(edges), 2):  # every other layer scales its sources
        scale = rng.random(edges[number].num_sources, dtype=np.float32)
        edges[number] = replace(edges[number], source_scale=scale)
    return Problem(
        [*layers[:-1], replace(layers[-1], edge_bits=20)],
        edges,
        make_sparse(rng, num_sources, sizes[0]),
        rng.random(num_sources, dtype=np.float32),
    )


def in_order(problem: Problem) -> Problem:
    """The same rows with their neighbours in order."""
    edges = []
    for some in problem.edges:
        target = np.repeat(np.arange(some.num_rows), np.diff(some.offsets))
        order = np.lexsort((some.ids, target))
        weights = None if some.weights is None else some.weights[order]
        edges.append(replace(some, ids=some.ids[order], weights=weights))
    return replace(problem, edges=edges)


def with_own(layer: BinaryLayer, rng: np.random.Generator) -> BinaryLayer:
    own = make_layer(rng, layer.num_inputs, layer.num_outputs)
    return replace(layer, own=OwnPart(own.words, own.scale))


def attentive(
    weights: BinaryLayer, rng: np.random.Generator, heads: int, *, averages: bool, spread: float = 1
) -> BinaryLayer:
    """The same columns in heads; scores of about ``spread`` times a normal number."""
    channels = weights.num_columns // heads
    vectors = rng.standard_normal((2, heads, channels)).astype(np.float32)
    vectors *= spread / (weights.num_inputs * np.abs(weights.scale).mean() * channels) ** 0.5
    parts = [
        whole_scores(weights.words, weights.num_inputs, weights.scale, part) for part in vectors
    ]
    assert all(part is not None for part in parts)
    values, sigma = zip(*cast(Any, parts), strict=True)
    end_scale = np.full(channels, 1 / heads, dtype=np.float32) if averages else weights.scale
    attention = Attention(
        heads, averages, 0.2, np.concatenate(values), np.concatenate(sigma), end_scale
    )
    shift = weights.shift[:channels] if averages else weights.shift
    return replace(weights, shift=shift, attention=attention)


def own_rows(problem: Problem, seed: int = 0) -> Problem:
    """Rows that are sources by other numbers."""
    rng = np.random.default_rng(seed)
    edges = [
        replace(some, own_ids=rng.integers(0, some.num_sources, some.num_rows).astype(np.int32))
        for some in problem.edges
    ]
    return replace(problem, edges=edges)


def kinds(seed: int, problem: Problem) -> list[tuple[str, Problem]]:
    """The problem with other kinds of layers."""
    rng = np.random.default_rng(seed)
    problem = own_rows(problem, seed)
    result = [("own", replace(problem, layers=[with_own(w, rng) for w in problem.layers]))]
    for heads in (1, 2, 3):
        if all(w.num_columns % heads == 0 for w in problem.layers):
            beside = [attentive(w, rng, heads, averages=False) for w in problem.layers]
            result.append((f"{heads} heads", replace(problem, layers=beside)))
    last = problem.layers[-1]
    wide = make_layer(rng, last.num_inputs, 3 * last.num_outputs)
    averaged = [*problem.layers[:-1], attentive(wide, rng, 3, averages=True)]
    result.append(("averaged", replace(problem, layers=averaged)))
    return result


def one_layer(layer: BinaryLayer, edges: Edges, features: PackedFeatures, beta: Floats) -> Problem:
    return Problem([layer], [edges], features, beta)


def same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def ones(count: int) -> Floats:
    return np.ones(count, dtype=np.float32)


def opposites(num_bits: int, outputs: int) -> tuple[BinaryLayer, DenseBits]:
    """Columns all alike, and features that equal or oppose them: F · B is K or -K."""
    rng = np.random.default_rng(num_bits)
    alike = rng.standard_normal(num_bits)
    layer = replace(
        make_layer(rng, num_bits, outputs), words=bits.pack(np.tile(alike, (outputs, 1)))
    )
    return layer, DenseBits(bits.pack(np.stack([alike, -alike, alike, -alike])))

"""Writes cases for ``run_cases``: what kernels are given, and what the reference makes of it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from layer_problems import Problem
from numpy.typing import NDArray

from bignn import bits
from bignn.kernels import edge_rounding, masked, reference
from bignn.kernels.layer import BinaryLayer, Edges, PackedFeatures, SparseBits


class CaseFile:
    """A sequence of cases; run_cases.cpp reads them in the order of these methods."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._count = 0

    def save(self, path: Path) -> None:
        path.write_bytes(np.int64(self._count).tobytes() + self._bytes)

    def add_layers(self, name: str, problem: Problem, ways: Iterable[str], widen: int = 1) -> None:
        """Add layers, to be run in each of the ways, with records of ``widen`` bytes or more."""
        self._begin("layers", name)
        self._number(len(problem.layers))
        out_scales = [*(edges.source_scale for edges in problem.edges[1:]), None]
        for layer, edges, out_scale in zip(problem.layers, problem.edges, out_scales, strict=True):
            self._layer(layer)
            self._number(widen)
            self._edges(edges)
            self._array(out_scale, np.float32)
        self._features(problem.features)
        assert problem.edges[0].source_scale is None
        self._array(edge_rounding.bounded(problem.beta), np.float32)
        chosen = list(ways)
        self._number(len(chosen))
        for way in chosen:
            self._text(way)
        values = problem.expected()
        self._array(values, np.float32)
        self._array(reference.first_largest(values), np.int64)

    def add_products(self, name: str, num_rows: int, num_bits: int, num_columns: int) -> None:
        rng = np.random.default_rng(num_bits)
        x = rng.standard_normal((num_rows, num_bits)).astype(np.float32)
        x[x < -1] = 0
        x[x > 1] = -0.0
        b = bits.pack(rng.standard_normal((num_columns, num_bits)))
        packed = reference.pack_rows(x)
        self._begin("products", name)
        self._number(num_bits)
        self._array(x, np.float32)
        self._array(b, np.uint64)
        self._array(packed, np.uint64)
        self._array(reference.xnor_matmul(packed, b, num_bits), np.int32)

    def add_masks(self, name: str, keep: int, sizes: tuple[int, int, int]) -> None:
        """Add a product under a mask; gradients are whole numbers, exact in every order."""
        num_rows, num_bits, num_columns = sizes
        rng = np.random.default_rng(num_bits)
        among, rows, b = (
            bits.pack(rng.standard_normal((count, num_bits)))
            for count in (num_rows, num_rows, num_columns)
        )
        g = rng.integers(-1000, 1000, (num_rows, num_columns)).astype(np.float32)
        x = rng.standard_normal((num_rows, num_bits)).astype(np.float32)
        masks = masked.draw_masks(7, keep, among, backend="reference")
        self._begin("masks", name)
        for number in (num_bits, 7, keep):
            self._number(number)
        for words in (among, rows, b):
            self._array(words, np.uint64)
        self._array(g, np.float32)
        self._array(x, np.float32)
        self._array(masks, np.uint64)
        for expected in (
            masked.masked_matmul(rows, masks, b, num_bits, backend="reference"),
            masked.masked_gradient(rows, masks, num_bits, g, backend="reference"),
            masked.keep_masked(x, masks, backend="reference"),
        ):
            self._array(expected, np.float32)

    def _layer(self, layer: BinaryLayer) -> None:
        own, scored = layer.own, layer.attention
        none = np.empty(0)
        self._number(layer.num_inputs)
        self._number(layer.edge_bits)
        self._array(layer.words, np.uint64)
        self._array(layer.scale, np.float32)
        self._array(layer.shift, np.float32)
        self._array(none if own is None else own.words, np.uint64)
        self._array(none if own is None else own.scale, np.float32)
        self._number(0 if scored is None else scored.heads)
        self._number(0 if scored is None else int(scored.averages))
        self._array(np.array([0 if scored is None else scored.slope]), np.float32)
        padding = (0, 0), (0, -layer.num_inputs % bits.WORD_BITS)
        self._array(none if scored is None else np.pad(scored.values, padding), np.int32)
        self._array(none if scored is None else scored.sigma, np.float32)
        after_own = none if own is None else np.ones(layer.num_outputs)
        self._array(after_own if scored is None else scored.end_scale, np.float32)

    def _features(self, features: PackedFeatures) -> None:
        if isinstance(features, SparseBits):
            self._array(None, np.uint64)
            self._array(features.offsets, np.int64)
            self._array(features.inputs, np.int32)
            self._number(features.num_rows)
            self._array(features.base, np.uint64)
        else:
            self._array(features.words, np.uint64)
            self._array(None, np.int64)
            self._array(None, np.int32)
            self._number(features.num_rows)

    def _edges(self, edges: Edges) -> None:
        is_long = edges.ids.dtype == np.int64
        self._array(edges.offsets, np.int64)
        self._array(None if is_long else edges.ids, np.int32)
        self._array(edges.ids if is_long else None, np.int64)
        self._array(edges.weights, np.float32)
        self._array(edges.target_factor, np.float32)
        self._number(edges.num_sources)
        self._array(edges.own_ids, np.int32)

    def _begin(self, kind: str, name: str) -> None:
        self._count += 1
        self._text(kind)
        self._text(name)

    def _number(self, value: int) -> None:
        self._bytes += np.int64(value).tobytes()

    def _text(self, text: str) -> None:
        self._array(np.frombuffer(text.encode(), dtype=np.uint8), np.uint8)

    def _array(self, values: NDArray[Any] | None, dtype: Any) -> None:
        self._number(-1 if values is None else values.size)
        if values is not None:
            self._bytes += np.ascontiguousarray(values, dtype=dtype).tobytes()

"""Binary layers bound to a graph, run one after the other: natively, or by the NumPy reference.

A layer can be computed in three ways, with the same result to the last bit:

- ``"T"``, transform then gather: ``F · B`` by XNOR and popcount, then sums of small integers;
- ``"G"``, gather then transform: weighted sums of bits, then their product with B;
- ``"S"``, sparse bits (first layers only): as T, with ``F · B`` from the few bits that deviate
  from a base row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.bits import Words, words_per_row
from bignn.kernels import native, reference
from bignn.kernels.edge_rounding import bounded
from bignn.kernels.layer import (
    BinaryLayer,
    DenseBits,
    Edges,
    Floats,
    Keep,
    PackedFeatures,
    dense_words,
)
from bignn.kernels.layer_reference import layer_values


class PackedLayers:
    """Layers, their edges and the features they begin with; owns the buffers between layers.

    One thread at a time may run it. Results are new arrays.

    Args:
        layers: the layers, first to last.
        edges: the edges of each layer.
        ways: a letter per layer.
        features: bits of the first layer's sources.
        beta: scales of the first layer's sources, float32.
        backend: an instruction set, or ``"reference"``.
        block_shift: log2 of the sources that way T takes at a time where it can; 0 for none, and
            None, the usual, to do so where rows have many neighbours. For measurements and tests.

    """

    def __init__(
        self,
        layers: Sequence[BinaryLayer],
        edges: Sequence[Edges],
        ways: str,
        features: PackedFeatures,
        beta: Floats,
        backend: str,
        block_shift: int | None = None,
    ) -> None:
        self.layers = list(layers)
        self.edges = list(edges)
        self.features = features
        self._source_factor = _scaled(beta, edges[0].source_scale)
        #: Factors of each layer's β as sources of the next layer.
        self._out_scales = [block.source_scale for block in self.edges[1:]] + [None]
        self._kept: dict[tuple[int, Keep], Any] = {}
        self._native: Any = None
        if backend != "reference":
            num_bits = self.layers[0].num_inputs
            self._native = native.packed_layers(
                backend, native.features(features, num_bits), self._source_factor
            )
            for layer, block, way, out_scale in zip(
                self.layers, self.edges, ways, self._out_scales, strict=True
            ):
                keeps = "values" in layer.keep, "bits" in layer.keep
                self._native.add(layer.native, block.native, way, out_scale, *keeps, block_shift)

    def replace_features(self, words: Words, beta: Floats) -> None:
        """Copy other bits and scales into the (dense) features that the layers begin with."""
        assert isinstance(self.features, DenseBits)
        self.features.words[:] = words
        self._source_factor[:] = _scaled(beta, self.edges[0].source_scale)

    def run_to_classes(self) -> NDArray[np.int64]:
        """Compute the class of every row, int64 [rows]."""
        if self._native is None:
            return reference.first_largest(self._last_values())
        out = np.empty(self.edges[-1].num_rows, dtype=np.int64)
        self._native.run_to_classes(out)
        return out

    def run_to_values(self) -> Floats:
        """Compute the last layer's values, float32 [rows, outputs]."""
        if self._native is None:
            return self._last_values()
        shape = (self.edges[-1].num_rows, self.layers[-1].num_outputs)
        out = np.empty(shape, dtype=np.float32)
        self._native.run_to_values(out)
        return out

    def run_kept(self) -> None:
        """Compute what layers keep, and nothing else."""
        if self._native is None:
            self._run_reference(len(self.layers))
        else:
            self._native.run_kept()

    def run_in_blocks(self, block_rows: int) -> Iterator[tuple[int, Floats]]:
        """Yield values by blocks of rows, ``(first row, values)``; one block exists at a time."""
        layer, edges = self.layers[-1], self.edges[-1]
        hidden = None
        if self._native is None:
            hidden = self._run_reference(len(self.layers) - 1)
        else:
            self._native.run_hidden()
        for begin in range(0, edges.num_rows, block_rows):
            end = min(begin + block_rows, edges.num_rows)
            if hidden is not None:
                yield begin, layer_values(layer, edges.rows(begin, end), *hidden)
            else:
                values = np.empty((end - begin, layer.num_outputs), dtype=np.float32)
                self._native.run_rows(begin, end, values)
                yield begin, values

    def prepare_blocks(self) -> None:
        """Run all layers but the last, and make what that one reads of its sources; native only."""
        self._native.run_hidden()

    def block_to_classes(self, edges: Edges) -> NDArray[np.int64]:
        """Compute the classes of other rows of the last layer, those that the edges list."""
        out = np.empty(edges.num_rows, dtype=np.int64)
        self._native.block_to_classes(edges.native, out)
        return out

    def block_to_values(self, edges: Edges) -> Floats:
        """Compute the values of other rows of the last layer, those that the edges list."""
        out = np.empty((edges.num_rows, self.layers[-1].num_outputs), dtype=np.float32)
        self._native.block_to_values(edges.native, out)
        return out

    def block_to_bits(self, edges: Edges) -> tuple[Words, Floats]:
        """Compute bits and β of other rows of the last layer, those that the edges list."""
        width = words_per_row(self.layers[-1].num_outputs)
        words = np.empty((edges.num_rows, width), dtype=np.uint64)
        beta = np.empty(edges.num_rows, dtype=np.float32)
        self._native.block_to_bits(edges.native, words, beta)
        return words, beta

    def kept(self, number: int, form: Keep) -> Any:
        """Return a layer's kept values, or its bits and their β; the next run overwrites them."""
        if self._native is None:
            return self._kept[number, form]
        if form == "values":
            return self._native.kept_values(number)
        return self._native.kept_words(number), self._native.kept_beta(number)

    def seconds(self, number: int) -> float:
        """Return seconds that a layer took in the last run; 0 for the reference."""
        return 0.0 if self._native is None else float(self._native.seconds(number))

    def bytes_per_column(self, number: int) -> int | None:
        """Return bytes per column of a layer's records in the last run; None for way G."""
        found = 0 if self._native is None else int(self._native.bytes_per_column(number))
        return found or None

    def _last_values(self) -> Floats:
        hidden = self._run_reference(len(self.layers) - 1)
        return layer_values(self.layers[-1], self.edges[-1], *hidden)

    def _run_reference(self, count: int) -> tuple[Words, Floats]:
        """Run ``count`` layers in NumPy; return the bits and factors of the next one's sources."""
        words, factor = dense_words(self.features), self._source_factor
        for number in range(count):
            layer = self.layers[number]
            h = layer_values(layer, self.edges[number], words, factor)
            words, beta = reference.binarize(h)
            beta = bounded(beta)
            if "values" in layer.keep:
                self._kept[number, "values"] = h
            if "bits" in layer.keep:
                self._kept[number, "bits"] = words, beta
            factor = _scaled(beta, self._out_scales[number])
        return words, factor


def _scaled(beta: Floats, scale: Floats | None) -> Floats:
    with np.errstate(over="ignore"):
        return bounded(beta if scale is None else scale * beta)

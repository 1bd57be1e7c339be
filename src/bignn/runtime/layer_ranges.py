"""One packed layer over ranges of its rows, from the bits and scales of its sources.

Graphs that no memory holds are run this way, layer by layer (:mod:`bignn.runtime.store`): the
sources' bits are in memory or mapped from a file, a range of rows with its edges is read, and its
bits are written before the next range. A row's result depends on its own sources alone, so it is
the same to the last bit whatever the ranges are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bignn import kernels
from bignn.bits import Words, words_per_row
from bignn.errors import InputError, input_error
from bignn.kernels import reference
from bignn.kernels.edge_rounding import bounded
from bignn.kernels.layer import MOST_INPUTS_OF_G, BinaryLayer, DenseBits, Edges, Floats, Way
from bignn.kernels.layer_reference import layer_values
from bignn.kernels.packed_layers import PackedLayers


@dataclass(frozen=True, eq=False)
class LayerSources:
    """What a layer reads of every source: bits, and β times the factor of the layer's sum.

    Attributes:
        words: packed rows [sources, ceil(K / 64)]; in memory, or mapped from a file.
        factor: float32 [sources]; layers limit it to 1e30.

    """

    words: Words
    factor: Floats

    @classmethod
    def of(cls, words: Words, beta: Floats, scale: Floats | None = None) -> LayerSources:
        """Take bits and scales β of sources, and the sum's factors of them (None: all ones)."""
        with np.errstate(over="ignore"):
            return cls(words, bounded(beta if scale is None else scale * beta))

    @property
    def num_sources(self) -> int:
        """Number of sources."""
        return len(self.words)


class LayerOverRows:
    """A layer bound to its sources; computes any rows, given their edges.

    Way ``"G"`` needs no memory beyond the sources' bits, but for attention, which scores all
    sources first (8 bytes per source and head). Way ``"T"`` keeps a record of every source: a byte
    or more per column. One thread at a time may run it; it uses all of bignn's threads.

    Args:
        layer: the layer.
        sources: what it reads; native code relies on these arrays, which must not change while
            rows are computed. With attention or way ``"T"`` they are read at once.
        way: ``"T"`` or ``"G"``; None for G wherever it can be.
        backend: as in :mod:`bignn.kernels`; None for the fastest.

    """

    def __init__(
        self,
        layer: BinaryLayer,
        sources: LayerSources,
        *,
        way: Way | None = None,
        backend: str | None = None,
    ) -> None:
        if way is None:
            way = "G" if layer.num_inputs <= MOST_INPUTS_OF_G else "T"
        width = words_per_row(layer.num_inputs)
        if sources.words.shape != (sources.num_sources, width):
            expected = f"[sources, {width}] for a layer of {layer.num_inputs} inputs"
            raise input_error("words", expected, f"shape {list(sources.words.shape)}")
        if sources.factor.shape != (sources.num_sources,):
            expected = f"one per source ({sources.num_sources})"
            raise input_error("factor", expected, f"shape {list(sources.factor.shape)}")
        self.layer, self.sources = layer, sources
        chosen = kernels.checked_backend(backend)
        self._bound = None
        if chosen == "reference":
            self.sources = LayerSources.of(sources.words, sources.factor)
        else:
            empty = _edges_of_no_rows(sources.num_sources)
            features = DenseBits(sources.words)
            self._bound = PackedLayers([layer], [empty], way, features, sources.factor, chosen)
            self._bound.prepare_blocks()

    def classes(self, edges: Edges) -> NDArray[np.int64]:
        """Compute the class of each row that the edges list, int64 [rows]."""
        self._check(edges)
        if self._bound is None:
            return reference.first_largest(self._reference(edges))
        return self._bound.block_to_classes(edges)

    def values(self, edges: Edges) -> Floats:
        """Compute the values of each row that the edges list, float32 [rows, outputs]."""
        self._check(edges)
        if self._bound is None:
            return self._reference(edges)
        return self._bound.block_to_values(edges)

    def bits(self, edges: Edges) -> tuple[Words, Floats]:
        """Compute the bits of each row that the edges list, and their scales β."""
        self._check(edges)
        if self._bound is None:
            words, beta = reference.binarize(self._reference(edges))
            return words, bounded(beta)
        return self._bound.block_to_bits(edges)

    def _reference(self, edges: Edges) -> Floats:
        return layer_values(self.layer, edges, self.sources.words, self.sources.factor)

    def _check(self, edges: Edges) -> None:
        """Refuse edges that would read past the sources."""
        count = self.sources.num_sources
        if edges.num_sources != count:
            raise input_error("edges", f"of {count} sources", edges.num_sources)
        for name, ids in (("ids", edges.ids), ("own_ids", edges.own_ids)):
            if ids is not None and len(ids) and not 0 <= ids.min() <= ids.max() < count:
                raise input_error(name, f"in 0..{count - 1}", f"{ids.min()}..{ids.max()}")
        if edges.own_ids is None and edges.num_rows > count:
            raise InputError(f"'edges' have {edges.num_rows} rows, more than {count} sources")


def _edges_of_no_rows(num_sources: int) -> Edges:
    none = np.empty(0, dtype=np.int32)
    return Edges(
        np.zeros(1, dtype=np.int64), none, None, np.empty(0, dtype=np.float32), num_sources, none
    )

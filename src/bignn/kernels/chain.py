"""Binary layers bound to a graph, and the chain of them that one native call runs.

A layer, for node i with neighbours j, in ±1: ``h_i = scale ⊙ s_i Σ_j w_ij t_j (F_j · B) + shift``,
the sum taken exactly, in integers (csrc/kernels.h says how). A node may have a part of its own
(SAGE), and neighbours' weights may come from attention (GAT, :mod:`bignn.kernels.attention`). It
can go three ways, with the same result to the last bit:

- ``"T"``, transform then gather: ``F · B`` by XNOR and popcount, then sums of small integers;
- ``"G"``, gather then transform: weighted sums of bits, then their product with B;
- ``"S"``, sparse bits (first layers only): as T, with ``F · B`` from the few bits that deviate
  from a base row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from bignn import bits
from bignn.bits import Words, words_per_row
from bignn.kernels import native, reference
from bignn.kernels.attention import Attention
from bignn.kernels.layer_reference import layer_values
from bignn.kernels.operands import (
    DenseBits,
    Features,
    Floats,
    Keep,
    Layer,
    Own,
    SparseBits,
    Weights,
    dense_words,
)

Output = Literal["classes", "values", "blocks", "kept"]


class Chain:
    """Layers in a row, their buffers, and the features they begin with.

    Not for two threads at once: it owns its buffers. Results are new arrays.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        features: Features,
        source_factor: Floats,
        output: Output,
        backend: str,
    ) -> None:
        self.layers = list(layers)
        self.features = features
        self.source_factor = reference.bounded(source_factor)
        self.output = output
        self.backend = backend
        #: Seconds that each layer took in the last run.
        self.seconds: list[float] = [0.0] * len(self.layers)
        #: Of the layers that keep something: values, or bits and their β. The next run overwrites.
        self.kept: dict[tuple[int, Keep], Any] = {}
        self._program: Any = None
        self._bytes_per_column: dict[int, int] = {}

    def run_kept(self) -> None:
        """Makes what layers keep; of the output ``"kept"`` there is nothing else."""
        if self.backend == "reference":
            self._run_hidden(len(self.layers))
        else:
            self._run_steps(len(self.layers), None)

    def run(self) -> NDArray[Any]:
        """Classes int64 [rows], or values float32 [rows, outputs]."""
        last = self.layers[-1]
        if self.backend == "reference":
            values = layer_values(last.weights, last.edges, *self._run_hidden(len(self.layers) - 1))
            return reference.first_largest(values) if self.output == "classes" else values
        out: NDArray[Any] = (
            np.empty(last.edges.num_rows, dtype=np.int64)
            if self.output == "classes"
            else np.empty((last.edges.num_rows, last.weights.num_outputs), dtype=np.float32)
        )
        self._run_steps(len(self.layers), out)
        return out

    def run_in_blocks(self, block_rows: int) -> Iterator[tuple[int, Floats]]:
        """Values by blocks of rows: (first row, values). Only one block exists at a time."""
        last = self.layers[-1]
        hidden = None
        if self.backend == "reference":
            hidden = self._run_hidden(len(self.layers) - 1)
        else:
            self._run_steps(len(self.layers) - 1, None)
        for begin in range(0, last.edges.num_rows, block_rows):
            end = min(begin + block_rows, last.edges.num_rows)
            if hidden is not None:
                yield begin, layer_values(last.weights, last.edges.rows(begin, end), *hidden)
            else:
                values = np.empty((end - begin, last.weights.num_outputs), dtype=np.float32)
                self._program.run_rows(begin, end, values)
                yield begin, values

    def bytes_per_column(self, number: int) -> int | None:
        """Bytes per column of a layer's records in the last run; None for way G."""
        return self._bytes_per_column.get(number)

    def _run_steps(self, count: int, out: NDArray[Any] | None) -> None:
        while True:
            if self._program is None:
                self._program = native.program(self._steps(), self.backend)
            overflowed, self.seconds = self._program.run(count, out)
            if overflowed < 0:
                return
            # A product did not fit its bytes: take twice as many, and remember it.
            self._program = None
            self.layers[overflowed].weights.widen(self._bytes_per_column[overflowed])

    def _run_hidden(self, count: int) -> tuple[Words, Floats]:
        """The sources of layer number ``count``, by the reference."""
        words, factor = dense_words(self.features), self.source_factor
        for number, layer in enumerate(self.layers[:count]):
            h = layer_values(layer.weights, layer.edges, words, factor)
            words, beta = reference.binarize(h)
            beta = reference.bounded(beta)
            if "values" in layer.keep:
                self.kept[number, "values"] = h
            if "bits" in layer.keep:
                self.kept[number, "bits"] = words, beta
            with np.errstate(over="ignore"):
                factor = beta if layer.out_norm is None else layer.out_norm * beta
            factor = reference.bounded(factor)
        return words, factor

    def _steps(self) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = []
        factor = self.source_factor
        for number, layer in enumerate(self.layers):
            weights, edges = layer.weights, layer.edges
            step: dict[str, Any] = {
                "num_inputs": weights.num_inputs,
                "num_columns": weights.num_columns,
                "num_outputs": weights.num_outputs,
                "num_rows": edges.num_rows,
                "num_sources": edges.num_sources,
                "edge_bits": weights.edge_bits,
                "offsets": edges.offsets,
                "long_ids" if edges.ids.dtype == np.int64 else "ids": edges.ids,
                "source_factor": factor,
                "target_factor": edges.target_factor,
                "scale": weights.scale,
                "shift": weights.shift,
            }
            if edges.weights is not None:
                step["weights"] = edges.weights
            first = number == 0
            if layer.way == "G" or weights.reads_bits:
                step["words"] = dense_words(self.features) if first else steps[-1]["out_words"]
            if weights.reads_bits and edges.own is not None:
                step["own_ids"] = edges.own
            if weights.own is not None:
                step |= _own_step(weights, weights.own)
            if weights.attention is not None:
                step |= _attention_step(weights, weights.attention, edges.num_sources)
            if layer.way == "G":
                step |= self._product_step(weights)
            else:
                step |= self._records_step(layer, first)
                self._bytes_per_column[number] = step["bytes_per_column"]
            following = self.layers[number + 1] if number + 1 < len(self.layers) else None
            step |= self._sink_step(number, layer, following)
            factor = step.get("out_factor", factor)
            steps.append(step)
        return steps

    def _sink_step(self, number: int, layer: Layer, following: Layer | None) -> dict[str, Any]:
        """Where a layer's rows go, to the next one or to the caller."""
        rows, outputs = layer.edges.num_rows, layer.weights.num_outputs
        step: dict[str, Any] = {}
        if "values" in layer.keep:
            step["out_values"] = np.empty((rows, outputs), dtype=np.float32)
            self.kept[number, "values"] = step["out_values"]
        if following is None and "bits" not in layer.keep:
            return step
        step["out_factor"] = np.empty(rows, dtype=np.float32)
        if layer.out_norm is not None:
            step["out_norm"] = layer.out_norm
        is_read = following is not None and (following.way == "G" or following.weights.reads_bits)
        if is_read or "bits" in layer.keep:
            num_words = words_per_row(outputs)
            words = native.aligned(rows * num_words, np.uint64).reshape(rows, num_words)
            step["out_words"] = words
        if "bits" in layer.keep:
            step["out_beta"] = np.empty(rows, dtype=np.float32)
            self.kept[number, "bits"] = step["out_words"], step["out_beta"]
        return step

    def _product_step(self, weights: Weights) -> dict[str, Any]:
        def make() -> NDArray[np.uint8]:
            parts = weights.words.reshape(weights.heads, -1, weights.words.shape[1])
            made = [native.product(part, weights.num_inputs, self.backend) for part in parts]
            if len(made) == 1:
                return made[0]
            # Heads' products begin on cache lines.
            stride = -(-len(made[0]) // 64) * 64
            together = native.aligned(stride * len(made), np.uint8)
            for part, values in zip(together.reshape(len(made), -1), made, strict=True):
                part[: len(values)] = values
            return together

        product = weights.prepared(("product", self.backend), make)
        stride = len(product) // weights.heads
        return {"product": product, "product_bytes": len(product), "product_stride": stride}

    def _records_step(self, layer: Layer, first: bool) -> dict[str, Any]:
        weights = layer.weights
        bytes_per_column = weights.bytes_per_column
        stride, order = _record_layout(weights, bytes_per_column)
        step: dict[str, Any] = {
            "bytes_per_column": bytes_per_column,
            "records": native.aligned(layer.edges.num_sources * stride, np.uint8),
        }
        if first and layer.way == "S":
            features = cast(SparseBits, self.features)
            step |= {
                "source_rows": features.num_rows,
                "feature_offsets": features.offsets,
                "feature_inputs": features.inputs,
                "signs": weights.prepared(
                    ("signs", bytes_per_column, features.base.tobytes()),
                    lambda: _sign_table(weights, features.base, order),
                ),
            }
            # The base row's own products; deviations count from there.
            base_row = features.base[None]
            center = reference.xnor_matmul(base_row, weights.words, weights.num_inputs)[0]
        else:
            base = _middle(weights, self.features if first else None)
            center = (weights.num_inputs - 2 * base).astype(np.int32)
            step |= weights.prepared(
                ("panels", bytes_per_column), lambda: _panels(weights.words, order)
            ) | {"base": _in_order(base, order)}
            if first:
                words = dense_words(self.features)
                step |= {"source_rows": len(words), "feature_words": words}
        channels = weights.num_columns // weights.heads
        padded = np.zeros((weights.heads, -(-channels // 64) * 64), dtype=np.int32)
        padded[:, :channels] = center.reshape(weights.heads, channels)
        return step | {"center": padded, "max_center": int(np.abs(padded).max(initial=0))}


def _own_step(weights: Weights, own: Own) -> dict[str, Any]:
    order = np.arange(weights.num_outputs)
    return {
        "own_panels": weights.prepared("own", lambda: native.panels(own.words, order)),
        "own_scale": own.scale,
        "end_scale": np.ones(weights.num_outputs, dtype=np.float32),
    }


def _attention_step(weights: Weights, scored: Attention, num_sources: int) -> dict[str, Any]:
    padded = np.zeros(
        (len(scored.values), words_per_row(weights.num_inputs) * bits.WORD_BITS), dtype=np.int32
    )
    padded[:, : weights.num_inputs] = scored.values
    return {
        "heads": scored.heads,
        "averages": int(scored.averages),
        "slope": np.array([scored.slope], dtype=np.float32),
        "score_values": padded,
        "score_sigma": scored.sigma,
        "scores": np.empty((len(scored.values), num_sources), dtype=np.float32),
        "end_scale": scored.end_scale,
    }


def _record_layout(weights: Weights, bytes_per_column: int) -> tuple[int, NDArray[np.int64]]:
    """Bytes per record, and which column each position holds (past the last: none)."""
    channels = weights.num_columns // weights.heads
    stride, order = native.record_layout(channels, bytes_per_column)
    starts = channels * np.arange(weights.heads)[:, None]
    places = np.where(order < channels, starts + order, weights.num_columns)
    return stride * weights.heads, places.ravel()


def _middle(weights: Weights, features: Features | None) -> NDArray[np.int32]:
    """Per column a number of differing bits from which the others are likely to be near.

    Up to 255 inputs any number fits a byte from 127. Beyond, the features' own mean is tried
    first, and hidden layers' half. A bad guess costs a wider record, never a wrong result.
    """
    size = weights.num_columns
    if weights.num_inputs <= 255:
        return np.full(size, 127, dtype=np.int32)
    if not isinstance(features, DenseBits) or features.num_rows == 0:
        return np.full(size, weights.num_inputs // 2, dtype=np.int32)
    some = features.words[:: max(1, features.num_rows // 64)]
    dots = reference.xnor_matmul(some, weights.words, weights.num_inputs)
    middle: NDArray[np.int32] = np.rint((weights.num_inputs - dots.mean(axis=0)) / 2).astype(
        np.int32
    )
    return middle


def _in_order(values: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    """``values`` by position of a record; 0 where a position holds no column."""
    return np.append(values, values.dtype.type(0))[np.minimum(order, len(values))]


def _panels(words: Words, order: NDArray[np.int64]) -> dict[str, Any]:
    valid = np.packbits(order < len(words), bitorder="little").view(np.dtype("<u2"))
    return {"panels": native.panels(words, order), "valid": valid.astype(np.uint16)}


def _sign_table(weights: Weights, base: Words, order: NDArray[np.int64]) -> NDArray[np.int8]:
    """What flipping input k adds to v, for each position: ``-base_k B_k``."""
    signs = bits.unpack(weights.words, weights.num_inputs).T
    flips = -bits.unpack(base, weights.num_inputs)
    table = native.aligned(weights.num_inputs * len(order), np.int8).reshape(-1, len(order))
    table[:] = 0
    holds = order < weights.num_columns
    table[:, holds] = flips[:, None] * signs[:, order[holds]]
    return table

"""Which way each layer goes, from a model of what it costs; and the words to explain it.

Every way gives the same result to the last bit, so a wrong guess costs time only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from bignn.bits import words_per_row
from bignn.errors import wrong
from bignn.kernels.layers import MOST_INPUTS_OF_G, Edges, Features, SparseBits, Way, Weights

WAYS: tuple[Way, ...] = ("T", "G", "S")

_MEANING = {
    "T": "transform, then gather",
    "G": "gather bits, then transform",
    "S": "sparse bits, then gather",
}


@dataclass
class LayerPlan:
    """One layer: the way chosen, and predicted seconds on one thread and bytes touched by way."""

    num_inputs: int
    num_columns: int
    way: Way
    seconds: dict[Way, float]
    bytes_touched: dict[Way, int]
    measured: float | None = None
    #: Bytes per column that were gathered (ways T and S), once measured: 1 unless it did not fit.
    record_bytes: int | None = None


@dataclass
class Plan:
    """The layers' plans; prints as a table."""

    layers: list[LayerPlan] = field(default_factory=list)
    threads: int = 1

    @property
    def ways(self) -> str:
        """One letter per layer, as ``--plan`` takes them."""
        return "".join(layer.way for layer in self.layers)

    def __str__(self) -> str:
        lines = [
            f"{'layer':<6}{'size':>12}  {'way':<30}{'predicted ms':>14}{'MiB touched':>13}"
            f"{'measured ms':>13}{'record bytes':>14}  other ways, predicted ms"
        ]
        for number, layer in enumerate(self.layers):
            measured = "" if layer.measured is None else f"{1e3 * layer.measured:.3f}"
            others = ", ".join(
                f"{way} {1e3 * seconds / self.threads:.3f}"
                for way, seconds in layer.seconds.items()
                if way != layer.way
            )
            lines.append(
                f"{number:<6}{f'{layer.num_inputs}x{layer.num_columns}':>12}  "
                f"{f'{layer.way} ({_MEANING[layer.way]})':<30}"
                f"{1e3 * layer.seconds[layer.way] / self.threads:>14.3f}"
                f"{layer.bytes_touched[layer.way] / 2**20:>13.1f}{measured:>13}"
                f"{layer.record_bytes or '':>14}  {others}"
            )
        return "\n".join(lines)


# Costs on one core of an Ice Lake server with AVX-512 (`bignn bench shapes` measures the sums of
# them). Other machines differ in all of them by about the same factor, which leaves the choice as
# it is; without AVX-512 the product after a gather is slower by more.
_XNOR = 1 / 800e9  # seconds per product of signs
_LOOKUP = {True: 1 / 150e9, False: 1 / 3e9}  # per product after a gather, with AVX-512 or not
_SPARSE = 0.02e-9  # per addition of a sparse bit's row, per column
_ROW = 45e-9  # a row's weights and its end
_COLUMN = 0.12e-9  # a column of a row's end
_ADD_RECORD = 0.015e-9  # per column of a neighbour
_ADD_BIT = {True: 0.018e-9, False: 0.03e-9}  # per bit of a neighbour; of many or not
_ATTENTION_ROW = 50e-9  # a row's largest score and sum of shares, per head
_ATTENTION = 2e-9  # an exponential and its weight, per neighbour and head
_SCORE = 0.03e-9  # per bit of a score
_MANY = 32  # from here on sixteen neighbours are added at once: `many` of csrc/avx512_bits.h
# A cache line, by table size. The last cache is shared, and lines out of it cost up to four times
# as much when others use it too: these are what a machine with neighbours shows.
_LINE = ((1 << 20, 0.6e-9), (24 << 20, 7e-9), (1 << 62, 11e-9))


def plan_layers(
    weights: Sequence[Weights],
    edges: Sequence[Edges],
    features: Features,
    *,
    has_lookup: bool,
    forced: str | None = None,
    threads: int = 1,
) -> Plan:
    """Chooses a way for each layer.

    Args:
        weights: of each layer.
        edges: of each layer.
        features: the form in which the first layer's bits are stored.
        has_lookup: whether the kernels have the fast product after a gather.
        forced: ``"T"`` for all layers, or one letter per layer; None to choose.
        threads: for the explanation.

    """
    ways = _forced(forced, len(weights), features)
    plan = Plan(threads=threads)
    for number, (layer, block) in enumerate(zip(weights, edges, strict=True)):
        inputs, columns, heads = layer.num_inputs, layer.num_columns, layer.heads
        num_rows, num_sources, num_entries = block.num_rows, block.num_sources, len(block.ids)
        is_dense = has_lookup and num_entries >= _MANY * num_rows
        seconds: dict[Way, float] = {}
        touched: dict[Way, int] = {}
        row = num_rows * (_ROW + columns * _COLUMN)
        if layer.own is not None:
            row += num_rows * columns * (inputs * _XNOR + _COLUMN)
        if layer.attention is not None:
            row += heads * (num_rows * _ATTENTION_ROW + num_entries * _ATTENTION)
            row += 2 * heads * num_sources * inputs * _SCORE
        channels = columns // heads
        record = heads * (16 if channels <= 16 else -(-channels // 64) * 64)
        gather = num_entries * (columns * _ADD_RECORD + _lines(record, num_sources)) + row
        bits = 8 * words_per_row(inputs)
        seconds["T"] = num_sources * inputs * columns * _XNOR + gather
        touched["T"] = num_sources * (bits + record) + num_entries * record
        seconds["G"] = (
            num_entries * (heads * inputs * _ADD_BIT[is_dense] + _lines(bits, num_sources))
            + num_rows * inputs * columns * _LOOKUP[has_lookup]
            + row
        )
        touched["G"] = num_entries * bits
        if inputs > MOST_INPUTS_OF_G:
            seconds["G"] = math.inf
        if number == 0 and isinstance(features, SparseBits):
            ones = len(features.inputs)
            seconds["S"] = ones * max(columns, 64) * _SPARSE + gather
            touched["S"] = ones * record + num_sources * record + num_entries * record
        if ways is not None and math.isinf(seconds[ways[number]]):
            raise wrong("plan", f"'T' for a layer of over {MOST_INPUTS_OF_G} inputs", repr(forced))
        choice = min(seconds, key=lambda way: seconds[way]) if ways is None else ways[number]
        plan.layers.append(LayerPlan(inputs, columns, choice, seconds, touched))
    return plan


def _lines(record: int, num_nodes: int) -> float:
    """Seconds to fetch a neighbour's record from a table of all of them."""
    cost = next(cost for size, cost in _LINE if record * num_nodes <= size)
    return -(-record // 64) * cost


def _forced(forced: str | None, num_layers: int, features: Features) -> list[Way] | None:
    if forced is None:
        return None
    if not isinstance(forced, str):
        raise wrong("plan", "letters such as 'T' or 'GT'", repr(forced))
    letters = forced.upper().replace(",", "")
    if len(letters) == 1:
        # "S" can only be meant for the first layer.
        letters = letters + ("T" if letters == "S" else letters) * (num_layers - 1)
    ways = [way for letter in letters for way in WAYS if way == letter]
    if len(ways) != len(letters) or len(ways) != num_layers:
        expected = f"one of T, G, S, or {num_layers} of them (a letter per layer)"
        raise wrong("plan", expected, repr(forced))
    if "S" in ways[1:]:
        raise wrong("plan", "'S' for the first layer only", repr(forced))
    if ways[0] == "S" and not isinstance(features, SparseBits):
        raise wrong("plan", "'T' or 'G' for features that are stored as dense bits", repr(forced))
    return ways

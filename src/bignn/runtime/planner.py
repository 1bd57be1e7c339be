"""Chooses how each layer is computed, from a model of what each way costs, and explains it.

Every way gives the same result to the last bit, so a wrong guess costs time only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bignn.bits import words_per_row
from bignn.errors import input_error
from bignn.kernels.layer import (
    MOST_INPUTS_OF_G,
    BinaryLayer,
    Edges,
    PackedFeatures,
    SparseBits,
    Way,
)

WAYS: tuple[Way, ...] = ("T", "G", "S")

_MEANING = {
    "T": "transform, then gather",
    "G": "gather bits, then transform",
    "S": "sparse bits, then gather",
}


#: How often each of :data:`UNITS` is done.
Work = dict[str, float]


@dataclass
class LayerPlan:
    """The way chosen for one layer; for every way its work, seconds on one thread and bytes."""

    num_inputs: int
    num_columns: int
    way: Way
    work: dict[Way, Work]
    seconds: dict[Way, float]
    bytes_touched: dict[Way, int]
    measured: float | None = None
    #: Bytes per column that were gathered (ways T and S), once measured: 1 unless it did not fit.
    record_bytes: int | None = None


@dataclass
class Plan:
    """The plans of all layers; prints as a table."""

    layers: list[LayerPlan] = field(default_factory=list)
    threads: int = 1

    @property
    def ways(self) -> str:
        """The ways as one letter per layer, as ``--plan`` takes them."""
        return "".join(layer.way for layer in self.layers)

    def predicted(self, units: Mapping[str, float] | None = None) -> float:
        """Predict the seconds of all layers, at the given unit costs or the planner's own."""
        units = UNITS if units is None else units
        chosen = (seconds_of(layer.work[layer.way], units) for layer in self.layers)
        return sum(chosen) / self.threads

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


#: Seconds on one core of an Ice Lake server with AVX-512 (`bignn bench shapes` measures the sums of
#: them). Other machines differ in all of them by about the same factor, which leaves the choice as
#: it is; where the product after a gather is a plain loop, it is slower by more.
UNITS: dict[str, float] = {
    "xnor": 1 / 800e9,  # a product of signs
    "table": 0.4e-9,  # an input of a row's lookup tables, per head
    "lookup": 1 / 200e9,  # a product after a gather, by lookup
    "plain lookup": 1 / 3e9,  # the same, by a plain loop
    "sparse": 0.02e-9,  # an addition of a sparse bit's row, per column
    "row": 45e-9,  # a row's weights and its end
    "column": 0.12e-9,  # a column of a row's end
    "neighbour": 1e-9,  # its number and weight
    "record": 0.015e-9,  # a column of a neighbour
    "bit": 0.03e-9,  # a bit of a neighbour
    "bit of many": 0.018e-9,  # the same where sixteen neighbours are added at once
    "attention row": 50e-9,  # a row's largest score and sum of shares, per head
    "attention": 2e-9,  # an exponential and its weight, per neighbour and head
    "score": 0.03e-9,  # a bit of a score
    # The first cache line of a record, each further one, and lines that are fetched well ahead
    # (where sixteen neighbours are added at once), by the table's size. The last cache is shared,
    # and lines out of it cost up to four times as much when others use it too: these are what a
    # machine with neighbours shows.
    **{"near line": 0.6e-9, "next near line": 0.6e-9, "near line ahead": 0.6e-9},
    **{"shared line": 7e-9, "next shared line": 7e-9, "shared line ahead": 7e-9},
    **{"wide line": 7e-9, "next wide line": 7e-9, "wide line ahead": 7e-9},
    **{"far line": 11e-9, "next far line": 11e-9, "far line ahead": 11e-9},
}
_TABLES = (
    (1 << 20, "near line"),
    (8 << 20, "shared line"),
    (16 << 20, "wide line"),
    (1 << 62, "far line"),
)
_MANY = 32  # from here on sixteen neighbours are added at once: `many` of csrc/avx512_bits.h


def seconds_of(work: Work, units: Mapping[str, float] = UNITS) -> float:
    """Multiply operations by unit costs and add them up."""
    return sum(count * units[unit] for unit, count in work.items())


def plan_layers(
    layers: Sequence[BinaryLayer],
    edges: Sequence[Edges],
    features: PackedFeatures,
    *,
    has_lookup: bool,
    forced: str | None = None,
    threads: int = 1,
) -> Plan:
    """Choose a way for each layer.

    Args:
        layers: the layers, first to last.
        edges: the edges of each layer.
        features: the form in which the first layer's bits are stored.
        has_lookup: whether the kernels have the fast product after a gather.
        forced: ``"T"`` for all layers, or one letter per layer; None to choose.
        threads: for the explanation.

    """
    ways = _forced(forced, len(layers), features)
    plan = Plan(threads=threads)
    for number, (layer, block) in enumerate(zip(layers, edges, strict=True)):
        inputs, columns, heads = layer.num_inputs, layer.num_columns, layer.heads
        num_rows, num_sources, num_entries = block.num_rows, block.num_sources, len(block.ids)
        work: dict[Way, Work] = {}
        touched: dict[Way, int] = {}
        row: Work = {"row": num_rows, "column": num_rows * columns, "neighbour": num_entries}
        own = 0
        if layer.own is not None:
            own = num_rows * inputs * columns
            row["column"] *= 2
        if layer.attention is not None:
            row["attention row"] = heads * num_rows
            row["attention"] = heads * num_entries
            row["score"] = 2 * heads * num_sources * inputs
        channels = columns // heads
        record = heads * (16 if channels <= 16 else -(-channels // 64) * 64)
        gather = row | _lines(record, num_sources, num_entries) | {"record": num_entries * columns}
        bits = 8 * words_per_row(inputs)
        work["T"] = gather | {"xnor": own + num_sources * inputs * columns}
        touched["T"] = num_sources * (bits + record) + num_entries * record
        if inputs <= MOST_INPUTS_OF_G:
            many = has_lookup and num_entries >= _MANY * num_rows
            adding = "bit of many" if many else "bit"
            product = "lookup" if has_lookup else "plain lookup"
            work["G"] = (
                row
                | _lines(bits, num_sources, num_entries, ahead=many)
                | {
                    adding: num_entries * heads * inputs,
                    "table": num_rows * heads * inputs,
                    product: num_rows * inputs * columns,
                    "xnor": own,
                }
            )
        touched["G"] = num_entries * bits
        if number == 0 and isinstance(features, SparseBits):
            ones = len(features.inputs)
            work["S"] = gather | {"sparse": ones * max(columns, 64), "xnor": own}
            touched["S"] = ones * record + num_sources * record + num_entries * record
        seconds: dict[Way, float] = {way: seconds_of(done) for way, done in work.items()}
        seconds.setdefault("G", math.inf)
        if ways is not None and math.isinf(seconds[ways[number]]):
            raise input_error(
                "plan", f"'T' for a layer of over {MOST_INPUTS_OF_G} inputs", repr(forced)
            )
        choice = min(seconds, key=lambda way: seconds[way]) if ways is None else ways[number]
        plan.layers.append(LayerPlan(inputs, columns, choice, work, seconds, touched))
    return plan


def _lines(record: int, num_nodes: int, num_entries: int, *, ahead: bool = False) -> Work:
    """Count the cache lines that fetching neighbours' records takes."""
    unit = next(unit for size, unit in _TABLES if record * num_nodes <= size)
    lines = -(-record // 64)
    if ahead:
        return {f"{unit} ahead": num_entries * lines}
    return {unit: num_entries, f"next {unit}": num_entries * (lines - 1)}


def _forced(forced: str | None, num_layers: int, features: PackedFeatures) -> list[Way] | None:
    if forced is None:
        return None
    if not isinstance(forced, str):
        raise input_error("plan", "letters such as 'T' or 'GT'", repr(forced))
    letters = forced.upper().replace(",", "")
    if len(letters) == 1:
        # "S" can only be meant for the first layer.
        letters = letters + ("T" if letters == "S" else letters) * (num_layers - 1)
    ways = [way for letter in letters for way in WAYS if way == letter]
    if len(ways) != len(letters) or len(ways) != num_layers:
        expected = f"one of T, G, S, or {num_layers} of them (a letter per layer)"
        raise input_error("plan", expected, repr(forced))
    if "S" in ways[1:]:
        raise input_error("plan", "'S' for the first layer only", repr(forced))
    if ways[0] == "S" and not isinstance(features, SparseBits):
        raise input_error(
            "plan", "'T' or 'G' for features that are stored as dense bits", repr(forced)
        )
    return ways

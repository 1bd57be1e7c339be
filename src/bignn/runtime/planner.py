"""Chooses how each layer is computed, from a model of what each way costs, and explains it.

Every way gives the same result to the last bit, so a wrong guess costs time only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bignn.bits import words_per_row
from bignn.errors import input_error
from bignn.kernels import native
from bignn.kernels.layer import (
    MOST_INPUTS_OF_G,
    BinaryLayer,
    Edges,
    PackedFeatures,
    SparseBits,
    Way,
)
from bignn.runtime.unit_costs import FEW_BITS, FEW_BITS_OF, units_of

WAYS: tuple[Way, ...] = ("T", "G", "S")

_MEANING = {
    "T": "transform, then gather",
    "G": "gather bits, then transform",
    "S": "sparse bits, then gather",
}


#: How often each unit of :mod:`bignn.runtime.unit_costs` is done.
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
    #: The unit costs by which ways were chosen.
    units: Mapping[str, float] = field(default_factory=dict)

    @property
    def ways(self) -> str:
        """The ways as one letter per layer, as ``--plan`` takes them."""
        return "".join(layer.way for layer in self.layers)

    def predicted(self, units: Mapping[str, float] | None = None) -> float:
        """Predict the seconds of all layers, at the given unit costs or the planner's own."""
        units = self.units if units is None else units
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


_TABLES = (
    (1 << 20, "near line"),
    (8 << 20, "shared line"),
    (16 << 20, "wide line"),
    (1 << 62, "far line"),
)
_PANEL = 16  # columns of B that are multiplied at once: panel_width of csrc/kernels.h
_MANY = 32  # from here on sixteen neighbours are added at once: `many` of csrc/avx512_bits.h


def seconds_of(work: Work, units: Mapping[str, float]) -> float:
    """Multiply operations by unit costs and add them up."""
    return sum(count * units[unit] for unit, count in work.items())


def plan_layers(
    layers: Sequence[BinaryLayer],
    edges: Sequence[Edges],
    features: PackedFeatures,
    *,
    backend: str,
    forced: str | None = None,
    threads: int = 1,
) -> Plan:
    """Choose a way for each layer.

    Args:
        layers: the layers, first to last.
        edges: the edges of each layer.
        features: the form in which the first layer's bits are stored.
        backend: the instruction set, whose unit costs count.
        forced: ``"T"`` for all layers, or one letter per layer; None to choose.
        threads: the number of threads that will run them.

    """
    ways = forced_ways(forced, len(layers), features)
    units = units_of(backend, threads)
    plan = Plan(threads=threads, units=units)
    for number, (layer, block) in enumerate(zip(layers, edges, strict=True)):
        inputs, columns, heads = layer.num_inputs, layer.num_columns, layer.heads
        num_rows, num_sources, num_entries = block.num_rows, block.num_sources, len(block.ids)
        work: dict[Way, Work] = {}
        touched: dict[Way, int] = {}
        row: Work = {"row": num_rows, "column": num_rows * columns, "neighbour": num_entries}
        bits = 8 * words_per_row(inputs)
        own: Work = {}
        if layer.own is not None:
            own = _products(num_rows, 8 * bits, columns)
            row["column"] *= 2
        if layer.attention is not None:
            row["attention row"] = heads * num_rows
            row["attention"] = heads * num_entries
            row["score"] = 2 * heads * num_sources * inputs
        channels = columns // heads
        record = heads * (16 if channels <= 16 else -(-channels // 64) * 64)
        few = "few-bit " if layer.edge_bits <= FEW_BITS_OF.get(backend, FEW_BITS) else ""
        # In long rows, lines are fetched well ahead.
        many = backend == "avx512" and num_entries >= _MANY * num_rows
        gather = row | _lines(record, num_sources, num_entries, ahead=many)
        gather[f"{few}record"] = num_entries * columns
        sums = gather
        if _is_blocked(layer, block, backend):
            sums = row | {
                "listed neighbour": num_entries,
                "block line": num_entries * -(-record // 64),
            }
        work["T"] = sums | _sum_of(own, _products(num_sources, 8 * bits, record))
        touched["T"] = num_sources * (bits + record) + num_entries * record
        if inputs <= MOST_INPUTS_OF_G:
            adding = f"{few}bit of many" if many else f"{few}bit"
            # Whole words of inputs and whole registers of columns, however few there are.
            whole = 8 * bits, heads * (-(-channels // 32) * 32)
            work["G"] = (
                row
                | own
                | _lines(bits, num_sources, num_entries, ahead=many)
                | {
                    f"{few}row of G": num_rows * heads,
                    f"{few}neighbour of G": num_entries * heads,
                    adding: num_entries * heads * whole[0],
                    "table": num_rows * heads * whole[0],
                    "lookup": num_rows * whole[0] * whole[1],
                }
            )
        touched["G"] = num_entries * bits
        if number == 0 and isinstance(features, SparseBits):
            ones = len(features.inputs)
            work["S"] = gather | own | _lines(record, inputs, ones, of="sign ")
            work["S"]["sparse"] = ones * max(record, 64)
            if record < 64:
                work["S"]["narrow sparse row"] = num_sources
            touched["S"] = ones * record + num_sources * record + num_entries * record
        seconds: dict[Way, float] = {way: seconds_of(done, units) for way, done in work.items()}
        seconds.setdefault("G", math.inf)
        if ways is not None and math.isinf(seconds[ways[number]]):
            raise input_error(
                "plan", f"'T' for a layer of over {MOST_INPUTS_OF_G} inputs", repr(forced)
            )
        choice = min(seconds, key=lambda way: seconds[way]) if ways is None else ways[number]
        plan.layers.append(LayerPlan(inputs, columns, choice, work, seconds, touched))
    return plan


def _is_blocked(layer: BinaryLayer, edges: Edges, backend: str) -> bool:
    """Whether way T takes the neighbours by blocks of sources."""
    if backend == "reference" or layer.attention is not None:
        return False
    sizes = edges.num_rows, edges.num_sources, len(edges.ids)
    return native.blocks_pay(backend, layer.edge_bits, layer.num_columns, sizes)


def _products(num_rows: int, num_bits: int, columns: int) -> Work:
    """Count the products of rows with whole panels of columns, however few there are."""
    panels = -(-columns // _PANEL)
    return {"xnor": num_rows * num_bits * panels * _PANEL, "panel": num_rows * panels}


def _sum_of(first: Work, second: Work) -> Work:
    return second | {unit: count + second.get(unit, 0) for unit, count in first.items()}


def _lines(
    record: int, num_nodes: int, num_entries: int, *, ahead: bool = False, of: str = ""
) -> Work:
    """Count the cache lines that fetching neighbours' records (or inputs' signs) takes."""
    unit = next(unit for size, unit in _TABLES if record * num_nodes <= size)
    lines = -(-record // 64)
    if of:
        return {f"{of}{unit}": num_entries * lines}
    first = f"{unit} ahead" if ahead else unit
    return {first: num_entries, f"next {unit}": num_entries * (lines - 1)}


def forced_ways(
    forced: str | None, num_layers: int, features: PackedFeatures | None
) -> list[Way] | None:
    """Read the letters that force ways; None where the planner chooses."""
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

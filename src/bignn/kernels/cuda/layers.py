"""Binary layers bound to a graph on a GPU: buffers, the kernels to launch, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bignn.errors import InputError
from bignn.kernels.cuda.long_rows import LongRows, long_rows
from bignn.kernels.cuda.memory import Device, Memory, Slot
from bignn.kernels.cuda.prepared import (
    device_words,
    from_device_words,
    padded_inputs,
    prepare,
    word_stride,
)
from bignn.kernels.edge_rounding import bounded
from bignn.kernels.layer import BinaryLayer, Edges, Floats, Keep, PackedFeatures, dense_words

#: What a run makes: classes or values of the last layer, or what layers keep.
Result = Literal["classes", "values", "kept"]

#: Most bits of weights that way G and the fast form of way T take.
FEW_EDGE_BITS = 8
#: Products of more inputs may not fit the wider records.
MOST_INPUTS_OF_RECORDS = (1 << 15) - 1
#: The sums of so many inputs, added up, fit 32 bits: rows of up to 2,048 entries (longer ones are
#: summed in pieces) with weights of 8 bits.
_MOST_INPUTS_OF_BITS = ((1 << 32) - 1) // (2048 * 255)

# The constants of the kernels.
_SHORT_LANES, _LONG_LANES, _WARP = 16, 512, 32
_THREADS = 256
_TILE_ROWS, _TILE_DIGITS, _PAIR_PADDING, _SLICE = 16, 2, 64, 256
_RECORD_ROWS, _ROWS_OF_WARP = 8, 2
# Entries per row from which a row has a warp's lanes to weigh it.
_MEDIUM_DEGREE = 96
# Entries that can be read past the last one.
_ENTRY_PADDING = 256
# Shared memory that a block has without asking for more.
_USUAL_SHARED = 48 << 10


@dataclass(frozen=True, eq=False)
class Launch:
    """A kernel to launch, or (without a kernel) a slot to fill with zeros."""

    layer: int
    kernel: str
    blocks: tuple[int, int]
    threads: int
    shared_bytes: int
    #: Numbers, slots, or a slot and an offset in bytes.
    arguments: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class _Source:
    """Bits and factors of a layer's sources, on the device."""

    words: Slot
    factor: Slot


class CudaLayers:
    """Layers, their edges and the features they begin with, on a device; owns its memory.

    Results are those of :class:`bignn.kernels.packed_layers.PackedLayers`, to the last bit. One
    thread at a time may run it.

    Args:
        device: where to run.
        layers: the layers, first to last.
        edges: the edges of each layer.
        ways: a letter per layer, T or G.
        features: bits of the first layer's sources.
        beta: scales of the first layer's sources, float32.

    """

    def __init__(
        self,
        device: Device,
        layers: Sequence[BinaryLayer],
        edges: Sequence[Edges],
        ways: str,
        features: PackedFeatures,
        beta: Floats,
    ) -> None:
        self.device, self.layers, self.edges = device, list(layers), list(edges)
        self.ways = ways
        words = dense_words(features)
        scale = self.edges[0].source_scale
        with np.errstate(over="ignore"):
            self._factor = bounded(beta if scale is None else scale * beta)
        self._prepared = [
            prepare(layer, words if number == 0 else None)
            for number, layer in enumerate(self.layers)
        ]
        self._words = device_words(words, self.layers[0].num_inputs)
        self._record_bytes = [1] * len(self.layers)
        self._lists: dict[int, LongRows] = {}
        self._ids: dict[int, NDArray[np.int32]] = {}
        self._bind()

    # --- Running -----------------------------------------------------------------------------

    def run_to_classes(self) -> NDArray[np.int64]:
        """Compute the class of every row, int64 [rows]."""
        out = np.empty(self.edges[-1].num_rows, dtype=np.int32)
        self._run_and_read("classes", out)
        return out.astype(np.int64)

    def run_to_values(self) -> Floats:
        """Compute the last layer's values, float32 [rows, outputs]."""
        shape = (self.edges[-1].num_rows, self.layers[-1].num_outputs)
        out = np.empty(shape, dtype=np.float32)
        self._run_and_read("values", out)
        return out

    def run_kept(self) -> None:
        """Compute what layers keep, and nothing else."""
        self._run_and_read("kept", None)

    def launch(self, result: Result) -> None:
        """Launch everything, and leave the result on the device."""
        if result not in self._programs:
            self._programs[result] = self._program(result)
        steps, recorded = self._programs[result]
        if recorded is not None:
            recorded()
        else:
            self._launch(steps)

    def kept(self, number: int, form: Keep) -> Any:
        """Return a layer's kept values, or its bits and their β."""
        layer, rows = self.layers[number], self.edges[number].num_rows
        if form == "values":
            values = np.empty((rows, layer.num_outputs), dtype=np.float32)
            self._download(self._out_values[number], values)
            return values
        words = np.empty((rows, word_stride(layer.num_outputs)), dtype=np.uint32)
        beta = np.empty(rows, dtype=np.float32)
        self._download(self._out_words[number], words)
        self._download(self._out_beta[number], beta)
        return from_device_words(words, layer.num_outputs), beta

    @property
    def num_bytes(self) -> int:
        """Bytes of the device's memory that are taken."""
        return self._memory.num_bytes + sum(some.num_bytes for some in self._more.values())

    def steps(self, result: Result) -> list[Launch]:
        """Return what a run launches, in order."""
        self.launch(result)
        return self._programs[result][0]

    def launch_step(self, step: Launch) -> None:
        """Launch one step by itself, as to time it."""
        self._launch([step])

    def seconds(self, number: int) -> float:
        """Measure the seconds that a layer takes, launched by itself."""
        steps = [step for step in self.steps("classes") if step.layer == number]
        return self.device.milliseconds(lambda: self._launch(steps)) / 1e3

    def bytes_per_column(self, number: int) -> int | None:
        """Return the bytes of a column in a layer's records; None for way G, which has none."""
        return self._record_bytes[number] if self.ways[number] == "T" else None

    # --- Binding -----------------------------------------------------------------------------

    def _bind(self) -> None:
        """Ask for all memory, allocate it and make the steps of all layers."""
        self._memory = Memory()
        self._more: dict[str, Memory] = {}
        self._programs: dict[Result, tuple[list[Launch], Any]] = {}
        self._out_values: dict[int, Slot] = {}
        self._out_words: dict[int, Slot] = {}
        self._out_beta: dict[int, Slot] = {}
        self._overflowed = self._memory.take(4 * len(self.layers))
        last = len(self.layers) - 1
        self._classes = self._memory.take(4 * self.edges[-1].num_rows)
        hold = self._memory.hold
        words, factor = hold(self._words), hold(self._factor)
        assert words is not None and factor is not None
        source = _Source(words, factor)
        self._sources = []
        self._steps: list[list[Launch]] = []
        for number, (layer, edges) in enumerate(zip(self.layers, self.edges, strict=True)):
            self._sources.append(source)
            rows = edges.num_rows
            if "values" in layer.keep:
                self._out_values[number] = self._memory.take(4 * rows * layer.num_outputs)
            if number < last or "bits" in layer.keep:
                size = 4 * rows * word_stride(layer.num_outputs)
                # Bits beyond the last output stay zero, so rows of another width have a buffer of
                # their own.
                role = f"words {number % 2} of {layer.num_outputs}"
                is_kept = "bits" in layer.keep
                out = self._memory.take(size) if is_kept else self._memory.share(role, size)
                self._out_words[number] = out
                if is_kept:
                    self._out_beta[number] = self._memory.take(4 * rows)
                source = _Source(out, self._memory.share(f"factor {number % 2}", 4 * rows))
            self._steps.append(self._layer_steps(number, self._finish(number, None, source)))
        self._last_source = source
        once = self._weighing(0)
        self._allocate(self._memory)
        self._launch(once)

    def _allocate(self, memory: Memory) -> None:
        needed, free = memory.num_bytes, self.device.free_bytes()
        if needed > free:
            raise InputError(
                f"the graph needs {needed / 1e9:.2f} GB on the GPU, of which {free / 1e9:.2f} GB "
                "are free; predict it on the CPU (device='cpu'), or a part of it"
            )
        memory.allocate(self.device)

    def _program(self, result: Result) -> tuple[list[Launch], Any]:
        """Make the steps of a result; of them, record those that can be replayed."""
        last = len(self.layers) - 1
        steps = [step for some in self._steps[:last] for step in some]
        if result == "values" and last not in self._out_values:
            values = self._more["values"] = Memory()
            rows, outputs = self.edges[-1].num_rows, self.layers[-1].num_outputs
            self._out_values[last] = values.take(4 * rows * outputs)
            self._allocate(values)
        steps += self._layer_steps(last, self._finish(last, result, self._last_source))
        if result == "kept" and not self.layers[last].keep:
            steps = [step for some in self._steps[:last] for step in some]
        self._launch(steps)  # everything is compiled and loaded before it is recorded
        return steps, self.device.replay(lambda: self._launch(steps))

    def _run_and_read(self, result: Result, out: NDArray[Any] | None) -> None:
        while True:
            self.launch(result)
            flags = np.zeros(len(self.layers), dtype=np.int32)
            self._download(self._overflowed, flags)
            if not flags.any():
                break
            for number in np.flatnonzero(flags):
                assert self._record_bytes[number] == 1, "records of 16 bits hold every product"
                self._record_bytes[number] = 2
            self._bind()
        if out is not None:
            slot = self._classes if result == "classes" else self._out_values[len(self.layers) - 1]
            self._download(slot, out)

    def _download(self, slot: Slot, out: NDArray[Any]) -> None:
        if out.size:
            self.device.download(slot.address, out)

    def _launch(self, steps: Sequence[Launch]) -> None:
        for step in steps:
            if not step.kernel:
                slot = step.arguments[0]
                self.device.zero(slot.address, slot.num_bytes)
                continue
            numbers = np.array([_resolved(value) for value in step.arguments], dtype=np.int64)
            self.device.launch(step.kernel, step.blocks, step.threads, step.shared_bytes, numbers)

    # --- Steps of a layer --------------------------------------------------------------------

    def _layer_steps(self, number: int, finish: list[Any]) -> list[Launch]:
        if self.edges[number].num_rows == 0:
            return []
        steps = [] if number == 0 else self._weighing(number)
        if self.ways[number] == "G":
            return steps + self._sum_bits(number, finish)
        return steps + self._sum_records(number, finish)

    def _weighing(self, number: int) -> list[Launch]:
        """Make the steps that give a layer's entries their integer weights.

        Those of the first layer come from the features alone, so they are made once.
        """
        if self.edges[number].num_rows == 0:
            return []
        weigh = self._weigh if self.layers[number].attention is None else self._attend
        return weigh(number)

    def _long_rows(self, edges: Edges) -> LongRows:
        key = id(edges.offsets)
        if key not in self._lists:
            self._lists[key] = long_rows(edges.offsets)
        return self._lists[key]

    def _ids_of(self, edges: Edges) -> Slot:
        key = id(edges.ids)
        if key not in self._ids:
            self._ids[key] = edges.ids.astype(np.int32, copy=False)
        slot = self._memory.hold(self._ids[key], 4 * _ENTRY_PADDING)
        assert slot is not None
        return slot

    def _weight_slots(self, number: int) -> tuple[Slot | None, Slot | None, Slot, Slot]:
        """Return q of 8 bits, q of 32 bits (one is None), row scales and totals."""
        layer, edges = self.layers[number], self.edges[number]
        entries = layer.heads * len(edges.ids)
        per_row = 4 * layer.heads * edges.num_rows
        whose = "first layer" if number == 0 else "other layers"

        def share(role: str, num_bytes: int) -> Slot:
            return self._memory.share(f"{role} of the {whose}", num_bytes)

        q8 = q32 = None
        if layer.edge_bits <= FEW_EDGE_BITS:
            q8 = share("q8", entries + _ENTRY_PADDING)
        else:
            q32 = share("q32", 4 * entries)
        return q8, q32, share("row scale", per_row), share("totals", per_row)

    def _weigh(self, number: int) -> list[Launch]:
        layer, edges, source = self.layers[number], self.edges[number], self._sources[number]
        hold, long = self._memory.hold, self._long_rows(edges)
        q8, q32, row_scale, totals = self._weight_slots(number)

        def step(kernel: str, lanes: int, threads: int, rows: int) -> Launch:
            return Launch(number, kernel, (_blocks(rows * lanes, threads), 1), threads, 0, (
                hold(edges.offsets), self._ids_of(edges), hold(edges.weights), source.factor,
                hold(edges.target_factor), hold(long.rows), rows, layer.edge_bits,
                q8, q32, row_scale, totals,
            ))  # fmt: skip

        if len(edges.ids) > _MEDIUM_DEGREE * edges.num_rows:
            steps = [step("weigh_medium_rows", _WARP, _THREADS, edges.num_rows)]
        else:
            steps = [step("weigh_short_rows", _SHORT_LANES, _THREADS, edges.num_rows)]
        if len(long.rows):
            steps.append(step("weigh_long_rows", _LONG_LANES, _LONG_LANES, len(long.rows)))
        return steps

    def _attend(self, number: int) -> list[Launch]:
        layer, edges, source = self.layers[number], self.edges[number], self._sources[number]
        attention, prepared = layer.attention, self._prepared[number]
        assert attention is not None and prepared.score_values is not None
        hold, long = self._memory.hold, self._long_rows(edges)
        q8, q32, row_scale, totals = self._weight_slots(number)
        count = 2 * layer.heads
        scores = self._memory.share("scores", 4 * count * edges.num_sources)
        num_words = prepared.score_values.shape[1] // 32
        blocks = _blocks(edges.num_sources * _WARP, _THREADS)
        steps = [Launch(number, "score_sources", (blocks, 1), _THREADS, 0, (
            source.words, word_stride(layer.num_inputs), num_words, edges.num_sources, count,
            hold(prepared.score_values), hold(attention.sigma), source.factor, scores,
        ))]  # fmt: skip
        slope = hold(prepared.slope)

        def step(kernel: str, lanes: int, threads: int, rows: int) -> Launch:
            grid = _blocks(rows * lanes, threads), layer.heads
            return Launch(number, kernel, grid, threads, 0, (
                hold(edges.offsets), self._ids_of(edges), source.factor, hold(edges.own_ids),
                scores, hold(long.rows), rows, edges.num_rows, edges.num_sources,
                len(edges.ids), layer.heads, layer.edge_bits, slope, q8, q32, row_scale, totals,
            ))  # fmt: skip

        steps.append(step("attend_short_rows", _SHORT_LANES, _THREADS, edges.num_rows))
        if len(long.rows):
            steps.append(step("attend_long_rows", _LONG_LANES, _LONG_LANES, len(long.rows)))
        return steps

    def _finish(self, number: int, result: Result | None, out: _Source) -> list[Any]:
        """Return the fields of a layer's ``Finish``; ``result`` is None for hidden layers."""
        layer, edges, source = self.layers[number], self.edges[number], self._sources[number]
        prepared, attention, own = self._prepared[number], layer.attention, layer.own
        hold = self._memory.hold
        is_last = number == len(self.layers) - 1
        averages = attention is not None and attention.averages
        scale = layer.scale if attention is None or averages else attention.end_scale
        end_scale = attention.end_scale if attention is not None and averages else None
        makes_values = (is_last and result == "values") or "values" in layer.keep
        makes_bits = number in self._out_words
        next_scale = None if is_last else self.edges[number + 1].source_scale
        _, _, row_scale, _ = self._weight_slots(number)
        return [
            edges.num_rows, layer.num_outputs, layer.num_columns, prepared.channels, int(averages),
            hold(scale), hold(end_scale), hold(layer.shift), row_scale,
            hold(prepared.own_columns), hold(None if own is None else own.scale),
            source.words, word_stride(layer.num_inputs), 2 * layer.words.shape[1], layer.num_inputs,
            source.factor, hold(edges.own_ids),
            self._out_values.get(number) if makes_values else None,
            self._classes if is_last and result == "classes" else None,
            out.words if makes_bits else None, word_stride(layer.num_outputs),
            self._out_beta.get(number), out.factor if makes_bits else None, hold(next_scale),
        ]  # fmt: skip

    def _sum_records(self, number: int, finish: list[Any]) -> list[Launch]:
        layer, edges, source = self.layers[number], self.edges[number], self._sources[number]
        prepared, long = self._prepared[number], self._long_rows(edges)
        hold, width = self._memory.hold, self._record_bytes[number]
        positions, stride = prepared.num_positions, prepared.record_stride
        records = self._memory.share("records", width * edges.num_sources * stride)
        rows = _blocks(edges.num_sources, _RECORD_ROWS)
        steps = [Launch(
            number, f"make_records_{8 * width}", (_blocks(rows * _WARP, _THREADS), 1), _THREADS, 0,
            (source.words, word_stride(layer.num_inputs), 2 * layer.words.shape[1],
             edges.num_sources, hold(prepared.record_columns), hold(prepared.record_base),
             hold(prepared.record_is_used), positions, stride, records,
             (self._overflowed, 4 * number)),
        )]  # fmt: skip
        if edges.num_sources == 0:
            steps = []
        q8, q32, _, totals = self._weight_slots(number)
        num_long, num_pieces = len(long.rows), len(long.piece_rows)
        sums = self._memory.share("long sums of records", 8 * num_long * positions)
        arguments = (
            hold(edges.offsets), self._ids_of(edges), q8 or q32, len(edges.ids), totals, records,
            positions, stride, prepared.padded_channels, hold(prepared.record_center),
            hold(long.piece_rows), hold(long.piece_begins), hold(long.piece_slots), num_pieces,
            sums, hold(long.rows), num_long, *finish,
        )  # fmt: skip
        kind = f"q{8 if q8 else 32}_v{8 * width}"
        per_warp = 4 * _ROWS_OF_WARP * layer.num_columns
        warps = max(1, min(_THREADS // _WARP, _USUAL_SHARED // per_warp))

        def step(kernel: str, num_warps: int, *, is_end: bool) -> Launch:
            threads = warps * _WARP
            shared = warps * per_warp if is_end else 0
            grid = _blocks(num_warps, warps), 1
            return Launch(number, kernel, grid, threads, shared, arguments)

        whole = _blocks(edges.num_rows, _ROWS_OF_WARP)
        steps.append(step(f"sum_records_{kind}", whole, is_end=True))
        if num_long:
            steps.append(Launch(number, "", (0, 0), 0, 0, (sums,)))
            steps.append(step(f"sum_pieces_{kind}", num_pieces, is_end=False))
            ends = _blocks(num_long, _ROWS_OF_WARP)
            steps.append(step("finish_long_rows", ends, is_end=True))
        return steps

    def _sum_bits(self, number: int, finish: list[Any]) -> list[Launch]:
        layer, edges, source = self.layers[number], self.edges[number], self._sources[number]
        prepared, long = self._prepared[number], self._long_rows(edges)
        hold, inputs = self._memory.hold, padded_inputs(layer.num_inputs)
        q8, _, _, totals = self._weight_slots(number)
        num_long = len(long.rows)
        sums = self._memory.share("long sums of bits", 4 * inputs * num_long)
        summed = (
            hold(edges.offsets), self._ids_of(edges), q8, source.words, inputs, edges.num_rows,
            hold(long.rows), num_long, sums,
        )  # fmt: skip
        steps = []
        if num_long:
            steps.append(Launch(number, "", (0, 0), 0, 0, (sums,)))
            grid = len(long.piece_rows), _blocks(inputs, _SLICE)
            steps.append(Launch(number, "sum_bits_of_pieces", grid, _WARP, 0, (
                *summed, hold(long.piece_rows), hold(long.piece_begins), hold(long.piece_slots),
            )))  # fmt: skip
        grid = _blocks(edges.num_rows, _TILE_ROWS), 1
        width = 2 * _SLICE if inputs >= 2 * _SLICE else _SLICE
        kernel = f"sum_and_multiply_{width}" + ("" if layer.own is None else "_own")
        steps.append(Launch(number, kernel, grid, _WARP, _tile_bytes(inputs), (
            *summed, totals, hold(prepared.product_columns), hold(prepared.product_rest),
            hold(prepared.product_scale), hold(prepared.product_shift), *finish,
        )))  # fmt: skip
        return steps


def ways_of(device: Device, layer: BinaryLayer) -> str:
    """Return the ways in which a device can compute a layer, T, G, both or none."""
    ways = ""
    sums = 4 * _ROWS_OF_WARP * layer.num_columns
    if layer.num_inputs <= MOST_INPUTS_OF_RECORDS and sums <= device.most_shared_bytes:
        ways += "T"
    is_plain = layer.attention is None and layer.edge_bits <= FEW_EDGE_BITS
    is_plain = is_plain and layer.num_inputs <= _MOST_INPUTS_OF_BITS
    digits = _tile_bytes(padded_inputs(layer.num_inputs))
    if is_plain and digits <= device.most_shared_bytes - 1024:
        ways += "G"
    return ways


def _tile_bytes(inputs: int) -> int:
    return _TILE_DIGITS * _TILE_ROWS // 2 * (2 * inputs + _PAIR_PADDING)


def _blocks(count: int, per_block: int) -> int:
    return -(-count // per_block)


def _resolved(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, Slot):
        return value.address
    if isinstance(value, tuple):
        slot, offset = value
        return int(slot.address + offset) if slot is not None else 0
    return int(value)

"""Predicts all nodes of a store with a packed model, layer by layer over ranges of rows.

A layer's sources, bits and scales of all nodes, are read into memory if they fit the budget and
mapped otherwise; edges are read and results written block by block. Hidden bits go to files beside
the result, so that a run that was killed is continued in the middle of a layer.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.bits import Words, words_per_row
from bignn.errors import FileError, InputError, counted, input_error
from bignn.files import check_writable, checked_path
from bignn.kernels.layer import BinaryLayer
from bignn.kernels.reference import first_largest
from bignn.runtime.layer_ranges import LayerOverRows, LayerSources
from bignn.runtime.packed_model import PackedModel
from bignn.runtime.predicted_values import Output, chosen_output, finished
from bignn.runtime.store.ahead import read_ahead, write_behind
from bignn.runtime.store.array_file import HEADER_BYTES
from bignn.runtime.store.memory import memory_bytes, resident_memory
from bignn.runtime.store.progress import ProgressLines, duration
from bignn.runtime.store.row_edges import RowEdges, check_kind, row_blocks
from bignn.runtime.store.store import Store, StorePart
from bignn.runtime.store.unfinished import UnfinishedPart

#: Bytes of edges that a block has, about, and its most rows.
_BLOCK_BYTES = 1 << 24
_BLOCK_ROWS = 1 << 18
#: Blocks of a graph at least: some are in memory at a time, a small part of a small graph too.
_FEWEST_BLOCKS = 128
#: The part of a budget that sources in memory may take; the rest is for blocks and the program.
_SOURCES_SHARE = 0.8
_LEAST_MEMORY = 256 << 20


def predict_store(
    model: PackedModel,
    store: Store,
    out: str | os.PathLike[str],
    *,
    output: Output | None = None,
    memory: str | int = "4G",
    backend: str | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Predict all nodes into a ``.npy`` file; a killed run is continued by the next one.

    The values are those of :meth:`PackedModel.predict` on the graph in memory, to the last bit.

    Args:
        model: a packed model whose layers are all packed, with the store's input statistics.
        store: the graph.
        out: the file to write.
        output: as in :meth:`PackedModel.predict`.
        memory: bytes that may be resident, as ``"8G"``.
        backend: as in :mod:`bignn.kernels`.
        progress: write lines about it on stderr.

    """
    output = chosen_output(output, model.output)
    target = checked_path(out)
    if target.suffix != ".npy":
        raise input_error("out", "a file name ending in .npy for a store", repr(os.fspath(out)))
    check_writable(target)
    budget = memory_bytes(memory, least=_LEAST_MEMORY)
    _check_model(model, store)
    run = _LayerwiseRun(model, store, target, output, budget, backend, is_shown=progress)
    return run.run()


def _check_model(model: PackedModel, store: Store) -> None:
    network = model.network
    if not network.layers or network.rest:
        raise InputError(
            "'model' must be made of packed layers alone to predict a store, this one has other "
            "operations; predict the graph in memory"
        )
    if model.input_digest != store.stage.digest():
        raise input_error(
            "store", "packed with this model's input statistics", f"'{store.path}'",
            "pack its features again with --like MODEL.bignn",
        )  # fmt: skip
    for layer in network.layers:
        check_kind(layer.aggr)


class _LayerwiseRun:
    """A prediction under way."""

    def __init__(
        self,
        model: PackedModel,
        store: Store,
        out: Path,
        output: Output,
        budget: int,
        backend: str | None,
        *,
        is_shown: bool,
    ) -> None:
        self.model, self.store, self.out, self.output = model, store, out, output
        self.budget, self.backend = budget, backend
        self.layers = model.network.layers
        self.work = out.with_name(f"{out.name}.work")
        degree = max(1.0, store.num_edges / max(1, store.num_nodes))
        bound = min(_BLOCK_BYTES, budget // 32)
        rows = min(bound / (4 * degree), store.num_nodes / _FEWEST_BLOCKS)
        self.block_rows = int(np.clip(rows, 64, _BLOCK_ROWS))
        self.rows = RowEdges(store, self.block_rows, is_shown=is_shown)
        weights = hashlib.blake2b(digest_size=16)
        for name, array in sorted(model.arrays.items()):
            weights.update(name.encode() + np.ascontiguousarray(array).tobytes())
        weights.update(repr(model.operations).encode())
        self.identity = {
            "model": weights.hexdigest(),
            "store": store.digest(),
            "output": output,
        }
        self.is_shown = is_shown
        self.peak = {"anonymous": 0, "file": 0}

    def run(self) -> dict[str, Any]:
        start = time.perf_counter()
        last = len(self.layers) - 1
        first = self._first_layer()
        lines = ProgressLines("layers", len(self.layers) * self.store.num_nodes,
                              first * self.store.num_nodes, is_shown=self.is_shown)  # fmt: skip
        stages = []
        for number in range(first, last + 1):
            begun, work = time.perf_counter(), time.process_time()
            self._remove(number - 2)  # a run that was killed may have left them
            resumed = self._run_layer(number, lines)
            self._remove(number - 1)
            stages.append(
                {
                    "layer": number,
                    "seconds": time.perf_counter() - begun,
                    "processor_seconds": time.process_time() - work,
                    "resumed_at_row": resumed,
                }
            )
        self._files(last)[0].replace(self.out)
        shutil.rmtree(self.work, ignore_errors=True)
        return {
            "num_nodes": self.store.num_nodes,
            "num_edges": self.store.num_edges,
            "seconds": time.perf_counter() - start,
            "layers": stages,
            "memory": self.budget,
            "peak_anonymous_bytes": self.peak["anonymous"],
            "peak_file_bytes": self.peak["file"],
            "out": str(self.out),
        }

    def _first_layer(self) -> int:
        """Return the layer to go on with: the one after the last whose rows are all there."""
        for number in reversed(range(len(self.layers))):
            with self._part(number) as part:
                # Files are gone where a run was killed while it removed what it no longer needed.
                if part.is_finished() and all(file.exists() for file in self._files(number)):
                    return number + 1
        return 0

    def _part(self, number: int) -> UnfinishedPart:
        return UnfinishedPart(self.work, f"layer{number}", {**self.identity, "layer": number})

    def _run_layer(self, number: int, lines: ProgressLines) -> int:
        """Run one layer; return the row at which it was taken up."""
        layer, is_last = self.layers[number], number == len(self.layers) - 1
        with self._part(number) as part:
            names = self._array_names(number)
            writers = [
                part.writer(name, dtype, shape)
                for name, (dtype, shape) in zip(names, self._rows_of(layer, is_last), strict=True)
            ]
            begun = writers[0].part.num_rows
            lines.add(begun)
            sources, drop = self._sources(number)
            bound = LayerOverRows(layer, sources, backend=self.backend)
            make: Callable[..., tuple[NDArray[Any], ...]]
            make = self._finisher(bound) if is_last else bound.bits
            blocks = row_blocks(self.store.num_nodes, self.block_rows, begun)

            def keep(made: tuple[NDArray[Any], ...]) -> None:
                for writer, rows in zip(writers, made, strict=True):
                    writer.append(rows)
                part.record()

            with write_behind(keep) as write:
                for begin, end, edges in read_ahead(self.rows.ahead(layer.aggr, blocks)):
                    try:
                        made = make(edges)
                    except InputError:
                        self.rows.check_ids(begin, end)  # which names the file and the row
                        raise
                    write(made)
                    del made  # the writer alone holds it while the next is computed
                    self._watch_memory(drop)
                    lines.add(end - begin)
            part.finish({"num_nodes": self.store.num_nodes})
        return begun

    def _finisher(self, bound: LayerOverRows) -> Callable[..., tuple[NDArray[Any]]]:
        if self.output == "classes":
            return lambda edges: (bound.classes(edges),)

        def finish(edges: Any) -> tuple[NDArray[Any]]:
            values = bound.values(edges)
            return (finished(values, self.output),)

        return finish

    def _rows_of(self, layer: BinaryLayer, is_last: bool) -> list[tuple[str, list[int]]]:
        """Return types and row shapes of what a layer writes."""
        if not is_last:
            return [("<u8", [words_per_row(layer.num_outputs)]), ("<f4", [])]
        if self.output == "classes":
            return [("<i8", [])]
        sample = finished(np.zeros((1, layer.num_outputs), dtype=np.float32), self.output)
        return [(sample.dtype.str, list(sample.shape[1:]))]

    def _sources(self, number: int) -> tuple[LayerSources, Callable[[], None] | None]:
        """Return a layer's sources, and what gives mapped pages back, if they are mapped."""
        if number == 0:
            words_path, beta = self.store.features.path("bits"), self.store.beta
        else:
            before, names = self._before(number), self._array_names(number - 1)
            words_path, beta = before.path(names[0]), before.map(names[1])
        layer, num_nodes = self.layers[number], self.store.num_nodes
        width = words_per_row(layer.num_inputs)
        scores = 8 * layer.heads * num_nodes if layer.attention is not None else 0
        always = 4 * num_nodes + scores + (4 * num_nodes if layer.aggr == "gcn" else 0)
        if always > _SOURCES_SHARE * self.budget:
            needed = always / _SOURCES_SHARE / 2**30
            raise input_error("memory", f"{needed:.1f}G or more for this model and graph",
                              f"{self.budget / 2**30:.1f}G")  # fmt: skip
        fits = always + 8 * width * num_nodes <= _SOURCES_SHARE * self.budget
        words, drop = _words_of(words_path, num_nodes, width, in_memory=fits)
        if (scale := self.rows.source_scale(layer.aggr)) is None:
            return LayerSources(words, beta), drop  # the layer copies what is mapped
        return LayerSources.of(words, beta, scale), drop

    def _before(self, number: int) -> StorePart:
        kind = f"layer{number - 1}"
        with self._part(number - 1) as part:
            if not part.is_finished():
                raise FileError(f"'{part.manifest}' was changed; remove '{self.work}' and predict")
        return StorePart.open(self.work, kind, needed=self._array_names(number - 1))

    def _array_names(self, number: int) -> tuple[str, ...]:
        """Return the names of the arrays that a layer writes."""
        if number == len(self.layers) - 1:
            return (f"layer{number}.predictions",)
        return f"layer{number}.bits", f"layer{number}.beta"

    def _files(self, number: int) -> list[Path]:
        """Return the files of the arrays that a layer writes."""
        return [self.work / f"{name}.npy" for name in self._array_names(number)]

    def _remove(self, number: int) -> None:
        """Remove the files of a layer that nothing reads any more; its manifest stays."""
        for file in self._files(number) if number >= 0 else ():
            file.unlink(missing_ok=True)

    def _watch_memory(self, drop: Callable[[], None] | None) -> None:
        """Note what is resident, and give mapped pages back where they are over the budget."""
        now = resident_memory()
        if drop is not None and sum(now.values()) > _SOURCES_SHARE * self.budget:
            drop()
        for kind, size in now.items():
            self.peak[kind] = max(self.peak[kind], size)


def _words_of(
    path: Path, num_rows: int, width: int, *, in_memory: bool
) -> tuple[Words, Callable[[], None] | None]:
    """Read packed rows into memory, or map them."""
    if in_memory:
        words: Words = np.fromfile(path, np.uint64, num_rows * width, offset=HEADER_BYTES)
        if len(words) != num_rows * width:
            row = len(words) // width
            raise FileError(
                f"'{path}' ends in row {row} of {num_rows}: it is cut off; pack it again"
            )
        return words.reshape(num_rows, width), None
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_RANDOM)
    words = np.frombuffer(mapped, np.uint64, num_rows * width, HEADER_BYTES)

    def drop() -> None:
        if hasattr(mapped, "madvise"):
            mapped.madvise(mmap.MADV_DONTNEED)

    return words.reshape(num_rows, width), drop


def accuracy_of(store: Store, path: str | os.PathLike[str]) -> float | None:
    """Return percent of the store's test nodes that were predicted right; None without any."""
    nodes = store.split("test_idx")
    if nodes is None or not len(nodes) or store.labels is None:
        return None
    predicted = np.load(path, mmap_mode="r")[nodes]
    classes = predicted if predicted.ndim == 1 else first_largest(np.asarray(predicted))
    return 100 * float((classes == store.y[nodes]).mean())


def describe(report: dict[str, Any]) -> str:
    """Format the report of :func:`predict_store`, with what the command adds to it."""
    accuracy = report.get("test_acc")
    by_layer = ", ".join(duration(stage["seconds"]) for stage in report["layers"])
    return (
        f"{counted(report['num_nodes'], 'node')} and {counted(report['num_edges'], 'edge')} in "
        f"{duration(report['seconds'])} (layers: {by_layer})"
        + ("" if accuracy is None else f", test accuracy {accuracy:.1f} %")
        + f"\nmost memory: {report['peak_anonymous_bytes'] / 2**20:,.0f} MiB of the process's own, "
        f"{report['peak_file_bytes'] / 2**20:,.0f} MiB of mapped files\nwrote {report['out']}"
    )

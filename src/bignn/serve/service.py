"""Answers to questions about a served graph, for many who ask at once.

Runs in one event loop. The classes of all nodes are an array that only the loop touches, so that
reading them waits for nobody; an update is made in a thread and put into the array in one step of
the loop, so that a reader has the classes before it or after it. Logits and new nodes are computed
in a second thread, whatever is waiting for it in one call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bignn.errors import InputError, WriteError
from bignn.kernels.reference import first_largest
from bignn.runtime.live.new_answers import NewQuestion
from bignn.runtime.predicted_values import (
    OF_CLASSES,
    Output,
    checked_rows,
    chosen_output,
    finished,
)
from bignn.serve.batcher import Batcher
from bignn.serve.limits import Limits, RequestError, check_count
from bignn.serve.metrics import Metrics, resident_bytes
from bignn.serve.served_graph import MadeUpdate, ServedGraph

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

logger = logging.getLogger("bignn.serve")


class Predictions(NamedTuple):
    """Answers for some nodes.

    Attributes:
        output: what was asked for, or else the model's usual output.
        nodes: the nodes.
        classes: their classes, -1 of removed ones; None where outputs are not of classes.
        values: further outputs [n, num_classes], NaN or False of removed ones; None if only classes
            were asked for.

    """

    output: Output
    nodes: Ints
    classes: Ints | None
    values: NDArray[Any] | None


class Service:
    """A served graph with its threads, limits and counts.

    Attributes:
        graph: the graph; only the service's threads call it.
        limits: bounds on requests.
        metrics: counts and times of requests.
        failed: one line about an update that ended half way; empty while all is well.

    """

    def __init__(self, graph: ServedGraph, limits: Limits) -> None:
        self.graph, self.limits = graph, limits
        self.metrics = Metrics()
        self.failed = ""
        self._classes = graph.classes().copy()
        self.num_nodes = len(self._classes)
        self.num_removed = int((self._classes == -1).sum())
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="reader")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._updates: set[asyncio.Task[MadeUpdate]] = set()
        self._num_updates = self._num_changed = 0
        self._logits = Batcher(self._answer_logits, self._reader, limits.waiting)
        self._new = Batcher(graph.logits_of_new, self._reader, limits.waiting)

    async def predict(self, nodes: Any, output: Output | None = None) -> Predictions:
        """Answer for nodes of the graph; by None, with the model's usual output."""
        output = chosen_output(output, self.graph.model.output)
        names = self.graph.node_names
        ids = checked_rows("nodes", nodes, self.num_nodes, "node ids", names, by_name=True)
        check_count("nodes", len(ids), self.limits.nodes)
        if output == "classes":
            return Predictions(output, ids, self._classes[ids], None)
        return _predictions(ids, await self._logits.ask(ids), output)

    async def predict_new(self, question: NewQuestion, output: Output | None = None) -> Predictions:
        """Answer for new nodes, which are numbered -1, -2, ... in questions and answers."""
        output = chosen_output(output, self.graph.model.output)
        logits = await self._new.ask(question)
        return _predictions(-1 - np.arange(len(logits)), logits, output)

    async def update(self, changes: Mapping[str, Any]) -> MadeUpdate:
        """Make changes; they are on disk, and seen by every later question, when this returns."""
        if len(self._updates) >= self.limits.waiting:
            raise RequestError(
                503, f"{self.limits.waiting} updates are waiting already; try again later"
            )
        if self.failed:
            raise RequestError(503, self.failed)
        # A task of its own: a client that hangs up does not stop what was begun.
        task = asyncio.create_task(self._update(changes))
        self._updates.add(task)
        task.add_done_callback(self._updates.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End all that was begun, and close the graph."""
        if self._updates:
            await asyncio.wait(self._updates)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._writer, self.graph.close)
        except WriteError as error:
            logger.error("%s; the journal has all updates", error)
        self._reader.shutdown()
        self._writer.shutdown()

    def state(self) -> dict[str, Any]:
        """Describe the service in plain types."""
        model = self.graph.model
        return {
            "status": "failed" if self.failed else "ok",
            **({"error": self.failed} if self.failed else {}),
            "num_nodes": self.num_nodes,
            "num_removed": self.num_removed,
            "num_features": model.num_features,
            "num_classes": model.num_classes,
            "output": model.output,
            "updates": self._num_updates,
            "is_live": not self.graph.why_fixed,
            "is_kept": self.graph.path is not None,
            "seconds": round(self.metrics.seconds(), 1),
            "latency": self.metrics.latency(),
        }

    def metrics_text(self) -> str:
        """Format all numbers for Prometheus."""
        gauges: dict[str, tuple[str, float]] = {
            "bignn_up": ("Whether updates can be made.", int(not self.failed)),
            "bignn_nodes": ("Nodes of the graph, removed ones included.", self.num_nodes),
            "bignn_removed_nodes": ("Nodes that were removed.", self.num_removed),
            "bignn_waiting_updates": ("Updates accepted and not made yet.", len(self._updates)),
            "bignn_live_bytes": ("Bytes of the live graph.", self.graph.live_bytes),
            "bignn_journal_bytes": ("Bytes of the journal.", self.graph.journal_bytes()),
            "bignn_resident_bytes": ("Memory of the process.", resident_bytes()),
            "bignn_start_time_seconds": ("Unix time of the start.", self.metrics.started),
        }
        counters = {
            "bignn_updates_total": self._num_updates,
            "bignn_changed_classes_total": self._num_changed,
            "bignn_logits_calls_total": self._logits.calls,
            "bignn_logits_questions_total": self._logits.questions,
            "bignn_new_node_calls_total": self._new.calls,
            "bignn_new_node_questions_total": self._new.questions,
        }
        return self.metrics.text(gauges, counters)

    async def _update(self, changes: Mapping[str, Any]) -> MadeUpdate:
        loop = asyncio.get_running_loop()
        try:
            made = await loop.run_in_executor(self._writer, self.graph.update, changes)
            self._publish(made)
        except InputError:  # nothing was changed
            raise
        except Exception:
            # No further update is taken, so that whoever sends this one again cannot make it twice.
            self.failed = "an update ended half way; restart the service to make it whole"
            logger.exception("%s", self.failed)
            line = f"{self.failed}, and look whether it was made before you send it again"
            raise RequestError(500, line) from None
        return made

    def _publish(self, made: MadeUpdate) -> None:
        """Put the classes of an update in their place, in one step of the loop."""
        if made.num_nodes > len(self._classes):
            room = np.full(made.num_nodes + made.num_nodes // 8, -1, dtype=np.int64)
            room[: self.num_nodes] = self._classes[: self.num_nodes]
            self._classes = room
        before, now = self._classes[made.nodes], made.classes
        is_old = made.nodes < self.num_nodes
        self.num_removed += int(((now == -1) & (before != -1) & is_old).sum())
        self._classes[made.nodes] = now
        self.num_nodes = made.num_nodes
        self._num_updates += 1
        self._num_changed += len(made.nodes)

    def _answer_logits(self, questions: Sequence[Ints]) -> Sequence[Floats]:
        logits = self.graph.logits(np.concatenate(questions))
        return np.split(logits, np.cumsum([len(ids) for ids in questions])[:-1])


def _predictions(nodes: Ints, logits: Floats, output: Output) -> Predictions:
    """Make of logits what was asked for."""
    classes = None
    if output in OF_CLASSES:
        is_removed = np.isnan(logits).all(axis=1)
        classes = np.where(is_removed, -1, first_largest(logits))
    values = None if output == "classes" else finished(logits, output)
    return Predictions(output, nodes, classes, values)

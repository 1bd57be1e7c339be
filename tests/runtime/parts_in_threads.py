"""Parts that run beside each other in threads, instead of processes: the same code, no sockets."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn import Graph
from bignn.runtime.parts.assignment import By
from bignn.runtime.parts.graph_part import GraphPart, cut
from bignn.runtime.parts.part_run import PartRun

Bytes = NDArray[np.uint8]


class Board:
    """Where threads leave rows for each other."""

    def __init__(self, parts: list[GraphPart]) -> None:
        self.parts = parts
        self.rows: list[Bytes | bool] = [False] * len(parts)
        self.barrier = threading.Barrier(len(parts), timeout=60)


class BoardExchange:
    """An exchange of one part over a board; counts bytes."""

    def __init__(self, board: Board, number: int) -> None:
        self.board, self.number = board, number
        self.sent_bytes = 0

    def start(self, rows: Bytes) -> BoardExchange:
        self.sent_bytes += rows.nbytes
        self.board.rows[self.number] = rows
        self.width = rows.shape[1]
        return self

    def wait(self) -> Bytes:
        self.board.barrier.wait()
        mine = []
        for part, rows in zip(self.board.parts, self.board.rows, strict=True):
            begin, end = part.sent_offsets[self.number : self.number + 2]
            assert isinstance(rows, np.ndarray)
            mine.append(rows[begin:end])
        arrived = np.concatenate(mine)
        self.board.barrier.wait()  # before the next rows are put up
        return arrived

    def all_agree(self, *, flag: bool) -> bool:
        self.board.rows[self.number] = flag
        self.board.barrier.wait()
        agree = all(self.board.rows)
        self.board.barrier.wait()
        return agree


def run_parts(parts: list[GraphPart], run: Callable[[GraphPart, BoardExchange], Any]) -> list[Any]:
    """Runs a function for every part at once, and returns the results by part."""
    board = Board(parts)
    found: list[Any] = [None] * len(parts)
    failed: list[BaseException] = []

    def one(part: GraphPart) -> None:
        try:
            found[part.number] = run(part, BoardExchange(board, part.number))
        except BaseException as error:
            failed.append(error)
            board.barrier.abort()

    threads = [threading.Thread(target=one, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise next(
            (e for e in failed if not isinstance(e, threading.BrokenBarrierError)), failed[0]
        )
    return found


def predict_in_parts(
    model: Any, graph: Graph, count: int, by: By = "ranges", **options: Any
) -> tuple[NDArray[Any], int]:
    """Logits of all nodes, computed in parts, and the bytes that were sent."""
    parts = list(cut(graph, count, by))

    def run(part: GraphPart, exchange: BoardExchange) -> tuple[Any, int]:
        made = PartRun(model.network, part, exchange, **options)
        logits = made.logits()
        if not model.network.rest:
            assert np.array_equal(made.classes(), logits.argmax(axis=1))
            exchange.sent_bytes //= 2
        return logits, exchange.sent_bytes

    found = run_parts(parts, run)
    whole = np.empty((graph.num_nodes, model.num_classes), dtype=np.float32)
    for part, (logits, _) in zip(parts, found, strict=True):
        whole[part.nodes] = logits
    return whole, sum(sent for _, sent in found)

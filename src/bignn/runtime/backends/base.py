"""What a backend is to a packed model: it plans, binds layers to a graph, and lends the binding."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bignn.kernels.layer import Keep
from bignn.runtime.packed_graph import PackedGraph
from bignn.runtime.planner import Plan


class Bound(Protocol):
    """Layers bound to a graph, with their buffers; one thread at a time may run them."""

    def run_to_classes(self) -> NDArray[np.int64]:
        """Compute the class of every row."""

    def run_to_values(self) -> NDArray[np.float32]:
        """Compute the last layer's values."""

    def run_kept(self) -> None:
        """Compute what layers keep, and nothing else."""

    def kept(self, number: int, form: Keep) -> Any:
        """Return a layer's kept values, or its bits and their β."""

    def seconds(self, number: int) -> float:
        """Return the seconds that a layer took in the last run, or takes."""

    def bytes_per_column(self, number: int) -> int | None:
        """Return the bytes of a column in a layer's records (ways T and S)."""


class Backend(Protocol):
    """Plans and bindings of a model's packed layers, kept for as long as each graph lives.

    ``kind`` says what runs: an instruction set of the CPU, or a GPU.
    """

    def plan(self, graph: PackedGraph, forced: str | None, kind: str) -> Plan:
        """Plan how all nodes of a graph are predicted; a graph is planned for once."""

    def lent(self, graph: PackedGraph, plan: Plan, kind: str) -> AbstractContextManager[Bound]:
        """Lend the layers bound to all nodes of a graph; one that failed is not lent again."""

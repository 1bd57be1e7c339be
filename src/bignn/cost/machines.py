r"""What a graph costs on several machines: memory of each, rows that cross between them, and time.

With k parts of N nodes and 2 \|E\| directed edges, of mean degree g = 2 \|E\| / N:

- halo rows, all parts together: ``N (k - 1) (1 - (1 - 1/k)^g)`` where nodes are assigned at random
  and have the mean degree; skewed degrees and good partitions have fewer, a bad one may have more.
  A partition that is at hand counts its own (``bignn partition``: ``halo_rows``);
- a message: ``ceil(d_in / 8) + 4`` bytes of a row in bits, ``4 d_in`` in floats, before each layer;
- memory of a machine: its share of the features, of two layers' rows, of the edges (4 bytes each,
  8 from 2^31 local rows on, and 8 per node), and the widest halo.
"""

from __future__ import annotations

from dataclasses import dataclass

from bignn.cost.counting import Cost
from bignn.errors import input_error
from bignn.runtime.parts.assignment import MOST_PARTS

_INT32_ROWS = 1 << 31


@dataclass(frozen=True)
class MachineCost:
    """Costs of one of several machines that hold a graph together.

    Attributes:
        machines: k.
        halo_rows: rows that one machine reads of the others.
        memory_bytes: what it holds: features, edges, rows of two layers and the halo.
        sent_bytes: what it sends in one forward pass.
        seconds: how long that takes on its link alone.

    """

    machines: int
    halo_rows: float
    memory_bytes: float
    sent_bytes: float
    seconds: float


def random_halo(nodes: int, edges: int, machines: int) -> float:
    """Return the rows that parts of a random assignment read of each other, all together."""
    degree = 2 * edges / nodes
    kept: float = (1 - 1 / machines) ** degree
    return nodes * (machines - 1) * (1 - kept)


def on_machines(
    cost: Cost, machines: int, *, halo_rows: float | None = None, gigabits: float = 10.0
) -> MachineCost:
    """Spread a model's cost on a graph over machines.

    Args:
        cost: the model and the graph.
        machines: k.
        halo_rows: rows that parts read of each other, all together, as a partition at hand counts
            them; None for those of a random assignment.
        gigabits: rate of each machine's link, Gbit/s.

    """
    is_count = isinstance(machines, int) and not isinstance(machines, bool)
    if not is_count or not 1 <= machines <= MOST_PARTS:
        raise input_error("machines", f"a number from 1 to {MOST_PARTS}", repr(machines))
    if not gigabits > 0:
        raise input_error("link", "Gbit/s, more than 0", gigabits)
    sizes = cost.sizes
    if halo_rows is None:
        halo_rows = random_halo(sizes.nodes, sizes.edges, machines)
    elif not 0 <= halo_rows <= sizes.nodes * (machines - 1):
        most = sizes.nodes * (machines - 1)
        raise input_error("halo-rows", f"a number from 0 to {most}", halo_rows)
    of_one = halo_rows / machines
    is_binary = cost.architecture.binarize in ("features", "both")
    rows = [row_bytes(layer.layer.inputs, is_binary=is_binary) for layer in cost.layers]
    sent = of_one * sum(rows)
    nodes = sizes.nodes / machines
    id_bytes = 4 if nodes + of_one < _INT32_ROWS else 8
    edges = 2 * sizes.edges / machines * id_bytes + 8 * nodes
    memory = edges + nodes * (rows[0] + 2 * max(rows)) + of_one * max(rows)
    return MachineCost(machines, of_one, memory, sent, 8 * sent / (gigabits * 1e9))


def row_bytes(columns: int, *, is_binary: bool) -> int:
    """Return the bytes of a row: bits and a scale, or floats."""
    return -(-columns // 8) + 4 if is_binary else 4 * columns

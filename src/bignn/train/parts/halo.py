"""The exchange of halos between processes, by torch.distributed's all-to-all; bytes are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bignn.runtime.parts.graph_part import GraphPart
from bignn.runtime.parts.messages import Bytes
from bignn.train.distributed import World


@dataclass
class SentBytes:
    """Bytes that were sent in one direction, and those of the same rows as float32."""

    sent: int = 0
    as_float32: int = 0


class HaloExchange:
    """What connects one process's part with those of the others.

    All processes must ask for the same exchanges in the same order.

    Attributes:
        world: the processes.
        forward: bytes of rows that this process sent to those that read them, so far.
        backward: bytes of gradients that it sent to the rows' owners, so far.

    """

    def __init__(self, world: World, part: GraphPart) -> None:
        self.world = world
        self._sent_counts = np.diff(part.sent_offsets).tolist()
        self._halo_counts = np.diff(part.halo_offsets).tolist()
        self.forward, self.backward = SentBytes(), SentBytes()

    def start(self, rows: Bytes) -> PendingRows:
        """Send rows [s, width], each to the process that has it in its halo."""
        return self.start_tensor(torch.from_numpy(np.ascontiguousarray(rows)))

    def start_tensor(
        self, rows: Tensor, *, back: bool = False, columns: int | None = None
    ) -> PendingRows:
        """Send the rows of a tensor [s, width].

        Args:
            rows: the rows.
            back: send the halo's rows to their owners.
            columns: numbers that a row stands for, to count its bytes as float32; None for as many
                as it has of them.

        """
        counts = self._sent_counts, self._halo_counts
        given, asked = counts[::-1] if back else counts
        width = rows.shape[1]
        out = rows.new_empty((sum(asked), width))
        counted = self.backward if back else self.forward
        num_bytes = rows.numel() * rows.element_size()
        counted.sent += num_bytes
        counted.as_float32 += num_bytes if columns is None else 4 * len(rows) * columns
        if not self.world.is_connected:
            return PendingRows(self.world, out, None, rows)
        with self.world.communicating():
            work = torch.distributed.all_to_all_single(
                out.view(-1),
                rows.contiguous().view(-1),
                [count * width for count in asked],
                [count * width for count in given],
                async_op=True,
            )
        return PendingRows(self.world, out, work, rows)

    def all_agree(self, *, flag: bool) -> bool:
        """Return whether the flag is true in every process."""
        return self.world.totals(flag) == [self.world.size]


@dataclass
class PendingRows:
    """Rows that are on their way.

    Attributes:
        world: the processes.
        rows: where they arrive.
        work: torch's handle; None in a world of one.
        sent: what was sent, which must stay until it has gone.

    """

    world: World
    rows: Tensor
    work: Any
    sent: Tensor

    def wait_tensor(self) -> Tensor:
        """Wait for the rows."""
        if self.work is not None:
            with self.world.communicating():
                self.work.wait()
        return self.rows

    def wait(self) -> Bytes:
        """Wait for the rows, as an array of bytes."""
        arrived: Bytes = self.wait_tensor().cpu().numpy()
        return arrived

"""Epochs that are recorded once and replayed: small graphs on a GPU wait for nothing but launches.

A step on Cora is a few hundred kernels of some microseconds each, and launching them one by one
takes ten times as long. A CUDA graph is launched as a whole. Runs of several seeds have a
:class:`Lane` each, so that their epochs are on the GPU at the same time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch import Tensor

#: Epochs before the one that is recorded: what is made once is made in them.
EPOCHS_BEFORE = 3
#: Larger graphs keep a GPU busy for longer than launching takes, and a recording has memory of its
#: own.
MOST_NODES = 1 << 18
#: Larger graphs keep it busy alone.
MOST_NODES_TOGETHER = 1 << 16
#: Types of devices whose work can be recorded.
DEVICES = ("cuda",)
# What torch says of work that waits, and, once per process, of looking for such work.
_WAITED, _NOTICE = "called a synchronizing CUDA operation", "debug mode is a prototype"


#: A number on the host or on the device.
Number = float | Tensor


class Lane:
    """A stream, and a state of the random generator, of one run's own.

    The state begins as that of torch's generator; recorded draws belong to it too.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        number = torch.cuda.current_device() if device.index is None else device.index
        self._generator = torch.cuda.default_generators[number]
        self._state = self._generator.clone_state()
        self._stream = torch.cuda.Stream(device)
        self._stream.wait_stream(torch.cuda.current_stream(device))

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Launch and draw in this lane for the block."""
        before = self._generator.graphsafe_get_state()
        self._generator.graphsafe_set_state(self._state)
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:
            # Another object, if a recording broke in here.
            self._state = self._generator.graphsafe_get_state()
            self._generator.graphsafe_set_state(before)


class RecordedEpoch:
    """The work of an epoch as a CUDA graph, recorded on the current stream.

    Args:
        work: an epoch without anything that waits for the GPU; it returns numbers, on the GPU or
            not.

    """

    def __init__(self, work: Callable[[], Sequence[Number]]) -> None:
        torch.cuda.current_stream().synchronize()
        self._graph = torch.cuda.CUDAGraph()
        # Not by torch.cuda.graph, which collects garbage for longer than a seed's epochs take.
        self._graph.capture_begin(capture_error_mode="thread_local")
        try:
            self._numbers = work()
            on_gpu = [number for number in self._numbers if isinstance(number, Tensor)]
            self._found = torch.stack([number.detach().double() for number in on_gpu])
        except BaseException:
            with suppress(RuntimeError):  # the recording is broken, which is known
                self._graph.capture_end()
            _renew_generator()
            raise
        self._graph.capture_end()

    def launch(self) -> None:
        """Begin an epoch."""
        self._graph.replay()

    def read(self) -> list[float]:
        """Wait for the epoch and return its numbers."""
        found = iter(self._found.tolist())
        return [next(found) if isinstance(n, Tensor) else float(n) for n in self._numbers]


def _renew_generator() -> None:
    """Copy the state of this GPU's generator, without its part in a recording that broke.

    The state itself would go on to expect a recording, and refuse to draw.
    """
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    generator.graphsafe_set_state(generator.clone_state())


class Recorder:
    """Records a run's epochs once its first ones are done, where that can be and pays.

    Args:
        is_able: whether an epoch of the run is always the same work.
        device: where it is done.
        num_nodes: nodes of the graph.
        epoch: number of epochs trained so far.

    """

    def __init__(self, is_able: bool, device: torch.device, num_nodes: int, epoch: int) -> None:
        self._waits = is_able and device.type in DEVICES and num_nodes <= MOST_NODES
        self._after = epoch + EPOCHS_BEFORE
        self._recorded: RecordedEpoch | None = None
        #: Why work was not recorded, where that was tried.
        self.why_not: str | None = None

    def begin(
        self, epoch: int, work: Callable[[], Sequence[Number]]
    ) -> Callable[[], Sequence[float]] | None:
        """Launch an epoch and return what reads its numbers; None where there is no recording.

        Work that cannot be recorded is tried once.
        """
        if self._waits and epoch >= self._after:
            self._waits = False
            try:
                self._recorded = RecordedEpoch(work)
            except RuntimeError as error:
                self.why_not = (str(error).splitlines() or [type(error).__name__])[0]
        if self._recorded is None:
            return None
        self._recorded.launch()
        return self._recorded.read

    @contextmanager
    def watched(self, epoch: int) -> Iterator[None]:
        """Watch the last epoch before the one that is recorded: work that waits cannot be.

        A recording that breaks leaves memory behind, so one that would break is not begun.
        """
        if not self._waits or epoch + 1 != self._after:
            yield
            return
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as waiting:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield
            finally:
                torch.cuda.set_sync_debug_mode(before)
        for warning in waiting:
            if _WAITED in str(warning.message):
                place = f"{Path(warning.filename).name}, line {warning.lineno}"
                self._waits, self.why_not = False, f"an epoch waits for the GPU: {place}"
            elif _NOTICE not in str(warning.message):
                warnings.warn_explicit(
                    warning.message, warning.category, warning.filename, warning.lineno
                )

    def forget(self) -> None:
        """Give the memory of the recording back."""
        self._recorded = None

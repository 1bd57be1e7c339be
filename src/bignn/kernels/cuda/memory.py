"""Memory of a device in one piece: slots are asked for first, then allocated together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

_ALIGNMENT = 256


class Device(Protocol):
    """What packed layers take of a device; addresses are whole numbers, work is done in order."""

    @property
    def most_shared_bytes(self) -> int:
        """Bytes of shared memory that a block may have."""

    def free_bytes(self) -> int:
        """Return the bytes that can still be allocated."""

    def allocate(self, num_bytes: int) -> Any:
        """Allocate bytes; the result has an ``address``, and frees them when it is let go."""

    def upload(self, address: int, values: NDArray[Any]) -> None:
        """Copy an array to the device."""

    def download(self, address: int, out: NDArray[Any]) -> None:
        """Copy from the device, after all work that was launched."""

    def zero(self, address: int, num_bytes: int) -> None:
        """Fill memory with zeros."""

    def launch(
        self,
        kernel: str,
        blocks: tuple[int, int],
        threads: int,
        shared_bytes: int,
        arguments: NDArray[np.int64],
        stream: int | None = None,
    ) -> None:
        """Launch a kernel whose one argument is a struct of these numbers.

        The stream is the device's own unless one is given, by its address.
        """

    def replay(self, work: Any) -> Any:
        """Record what calling ``work`` launches, as one thing to launch; None where it cannot."""

    def synchronize(self) -> None:
        """Wait for all work that was launched."""

    def milliseconds(self, work: Any) -> float:
        """Measure how long what calling ``work`` launches takes."""


@dataclass(eq=False)
class Slot:
    """Some bytes of a device's memory, whose address is known once it is allocated."""

    num_bytes: int
    values: NDArray[Any] | None = None
    address: int = 0


@dataclass(eq=False)
class Memory:
    """Slots that are allocated together, in one piece."""

    slots: list[Slot] = field(default_factory=list)
    _roles: dict[str, Slot] = field(default_factory=dict)
    # By the number of an array, which is kept so that no other has its number.
    _uploads: dict[int, tuple[Slot, NDArray[Any]]] = field(default_factory=dict)
    _piece: Any = None

    def take(self, num_bytes: int) -> Slot:
        """Ask for bytes, zero at first."""
        assert self._piece is None, "the memory is allocated already"
        self.slots.append(Slot(num_bytes))
        return self.slots[-1]

    def share(self, role: str, num_bytes: int) -> Slot:
        """Ask for bytes that all who name this role share, as scratch."""
        if role not in self._roles:
            self._roles[role] = self.take(0)
        slot = self._roles[role]
        slot.num_bytes = max(slot.num_bytes, num_bytes)
        return slot

    def hold(self, values: NDArray[Any] | None, padding: int = 0) -> Slot | None:
        """Ask for a copy of an array and bytes after it; the same array has one copy."""
        if values is None:
            return None
        if id(values) not in self._uploads:
            slot = self.take(values.nbytes + padding)
            slot.values = np.ascontiguousarray(values)
            self._uploads[id(values)] = slot, values
        return self._uploads[id(values)][0]

    @property
    def num_bytes(self) -> int:
        """Bytes of all slots."""
        return sum(_padded(slot.num_bytes) for slot in self.slots)

    def allocate(self, device: Device) -> None:
        """Allocate all slots and copy what they hold."""
        self._piece = device.allocate(max(1, self.num_bytes))
        address = self._piece.address
        device.zero(address, max(1, self.num_bytes))
        for slot in self.slots:
            slot.address = address
            address += _padded(slot.num_bytes)
            if slot.values is not None and slot.values.size:
                device.upload(slot.address, slot.values)
            slot.values = None


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT

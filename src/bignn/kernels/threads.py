"""The number of threads: one setting for the packed engine and torch."""

from __future__ import annotations

import sys

import numpy as np

from bignn.errors import input_error
from bignn.kernels import native


def set_num_threads(threads: int) -> None:
    """Set how many threads packed models run on, and torch's number if torch is loaded.

    Without this call it is ``OMP_NUM_THREADS``, or all cores. Results do not depend on it.
    """
    is_number = isinstance(threads, int | np.integer) and not isinstance(threads, bool)
    if not is_number or not 1 <= threads <= 1024:
        raise input_error("threads", "a number from 1 to 1024", repr(threads))
    native.set_num_threads(int(threads))
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(int(threads))


def get_num_threads() -> int:
    """Return the number of threads packed models run on."""
    return native.num_threads()

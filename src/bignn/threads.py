"""How many threads work: one setting for ours and torch's. May import ``kernels``."""

from __future__ import annotations

import sys

from bignn.errors import wrong
from bignn.kernels import native


def set_num_threads(count: int) -> None:
    """Sets how many threads packed models run on, and torch's number if torch is loaded.

    Without this call it is ``OMP_NUM_THREADS``, or all cores. Results do not depend on it.
    """
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 1024:
        raise wrong("count", "a number of threads from 1 to 1024", repr(count))
    native.set_num_threads(count)
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(count)


def get_num_threads() -> int:
    """The number of threads packed models run on."""
    return native.num_threads()

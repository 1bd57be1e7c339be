"""A device whose memory is the host's and whose kernels run on emulated blocks."""

import ctypes
import subprocess
import time
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bignn

HERE = Path(__file__).parent / "kernels" / "emulated_gpu"
KERNELS = Path(bignn.__file__).parent / "kernels" / "cuda"
FLAGS = ["-std=c++20", "-O1", "-ffp-contract=off", "-U_FORTIFY_SOURCE", "-fPIC", "-shared"]
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]


def build(folder: Path) -> Path:
    """Compile the kernels for the CPU."""
    library = folder / "emulated_gpu.so"
    command = ["g++", *FLAGS, *WARNINGS, f"-I{HERE}", f"-I{KERNELS}"]
    subprocess.run([*command, str(HERE / "launch.cpp"), "-o", str(library)], check=True)
    return library


@cache
def loaded(library: Path) -> Any:
    return ctypes.CDLL(str(library))


class EmulatedDevice:
    """See :class:`bignn.kernels.cuda.memory.Device`."""

    name = "an emulated GPU"

    def __init__(
        self, library: Path, free_bytes: int = 1 << 33, most_shared_bytes: int = 227 << 10
    ) -> None:
        self._launch = loaded(library).launch
        self._free_bytes = free_bytes
        self.most_shared_bytes = most_shared_bytes
        self.launched: list[str] = []

    def free_bytes(self) -> int:
        return self._free_bytes

    def allocate(self, num_bytes: int) -> Any:
        # What is not asked for to be zero is not.
        data = np.full(num_bytes + 256, 0xAB, dtype=np.uint8)
        return SimpleNamespace(address=-(-data.ctypes.data // 256) * 256, data=data)

    def upload(self, address: int, values: NDArray[Any]) -> None:
        ctypes.memmove(address, values.ctypes.data, values.nbytes)

    def download(self, address: int, out: NDArray[Any]) -> None:
        ctypes.memmove(out.ctypes.data, address, out.nbytes)

    def zero(self, address: int, num_bytes: int) -> None:
        ctypes.memset(address, 0, num_bytes)

    def launch(
        self,
        kernel: str,
        blocks: tuple[int, int],
        threads: int,
        shared_bytes: int,
        arguments: NDArray[np.int64],
        stream: int | None = None,
    ) -> None:
        self.launched.append(kernel)
        self._launch(
            kernel.encode(),
            ctypes.c_void_p(arguments.ctypes.data),
            ctypes.c_uint(blocks[0]),
            ctypes.c_uint(blocks[1]),
            ctypes.c_uint(threads),
            ctypes.c_size_t(shared_bytes),
        )

    def replay(self, work: Any) -> Any:
        return work

    def synchronize(self) -> None:
        pass

    def milliseconds(self, work: Any) -> float:
        begin = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - begin)

"""A GPU through CUDA's driver: memory, launches and recorded launches, without torch."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import InputError, how_to_install, input_error
from bignn.kernels.cuda.compiled import CudaError, checked, machine_code

#: The oldest compute capability whose tensor cores count bits of 128 and multiply bytes.
OLDEST_CAPABILITY = (8, 0)
_USUAL_SHARED = 48 << 10
#: Results up to this size come back through memory that the GPU writes by itself.
_MOST_STAGED = 64 << 20


@dataclass(eq=False)
class Piece:
    """Memory of the GPU, given back when nothing refers to it."""

    address: int


class CudaDevice:
    """A GPU, by its number; see :class:`bignn.kernels.cuda.memory.Device`.

    It works in the context that torch has too, on a stream of its own.
    """

    def __init__(self, number: int) -> None:
        from cuda.bindings import driver

        self._driver = driver
        checked(driver.cuInit(0), "CUDA's driver")
        count = checked(driver.cuDeviceGetCount(), "CUDA's driver")
        if number >= count:
            raise CudaError(f"there are {count} GPUs here" if count else "there is no GPU here")
        self._device = checked(driver.cuDeviceGet(number), "CUDA's driver")
        attribute = driver.CUdevice_attribute
        self.capability = (
            self._attribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            self._attribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        )
        name = checked(driver.cuDeviceGetName(128, self._device), "CUDA's driver")
        self.name = name.split(b"\0")[0].decode(errors="replace")
        if self.capability < OLDEST_CAPABILITY:
            found, oldest = (".".join(map(str, c)) for c in (self.capability, OLDEST_CAPABILITY))
            raise CudaError(f"{self.name} has compute capability {found}, {oldest} is needed")
        shared = attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        self.most_shared_bytes = self._attribute(shared)
        code = machine_code(self.capability)
        self._context = checked(driver.cuDevicePrimaryCtxRetain(self._device), "CUDA's driver")
        self._enter()
        self._stream = checked(
            driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING), "a stream"
        )
        self._module = checked(driver.cuModuleLoadData(code), "loading the kernels")
        self._kernels: dict[str, Any] = {}
        self._staging: Any = None
        self._lock = threading.Lock()

    def _attribute(self, attribute: Any) -> int:
        return int(checked(self._driver.cuDeviceGetAttribute(attribute, self._device), "CUDA"))

    def _enter(self) -> None:
        """Make the GPU's context that of the calling thread."""
        checked(self._driver.cuCtxSetCurrent(self._context), "CUDA's context")

    def free_bytes(self) -> int:
        """See the protocol."""
        self._enter()
        return int(checked(self._driver.cuMemGetInfo(), "CUDA's memory")[0])

    def allocate(self, num_bytes: int) -> Any:
        """See the protocol."""
        self._enter()
        driver = self._driver
        called = driver.cuMemAlloc(num_bytes)
        if called[0] == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise InputError(
                f"the GPU has no {num_bytes / 1e9:.2f} GB in one piece; predict on the CPU "
                "(device='cpu'), or a part of the graph"
            )
        pointer = checked(called, "allocating memory")
        piece = Piece(int(pointer))
        weakref.finalize(piece, _free, driver, self._context, pointer)
        return piece

    def upload(self, address: int, values: NDArray[Any]) -> None:
        """See the protocol."""
        self._enter()
        called = self._driver.cuMemcpyHtoDAsync(
            address, values.ctypes.data, values.nbytes, self._stream
        )
        checked(called, "copying to the GPU")
        self.synchronize()  # the array may go

    def download(self, address: int, out: NDArray[Any]) -> None:
        """See the protocol."""
        self._enter()
        copy = self._driver.cuMemcpyDtoHAsync
        if out.nbytes > _MOST_STAGED:
            checked(copy(out.ctypes.data, address, out.nbytes, self._stream), "copying")
            self.synchronize()
            return
        with self._lock:
            staging = self._staged(out.nbytes)
            checked(copy(staging, address, out.nbytes, self._stream), "copying")
            self.synchronize()
            ctypes.memmove(out.ctypes.data, staging, out.nbytes)

    def _staged(self, num_bytes: int) -> int:
        """Return host memory that the GPU can write to, of at least so many bytes."""
        if self._staging is None or self._staging[1] < num_bytes:
            if self._staging is not None:
                checked(self._driver.cuMemFreeHost(self._staging[0]), "host memory")
            size = 1 << max(12, (num_bytes - 1).bit_length())
            self._staging = checked(self._driver.cuMemAllocHost(size), "host memory"), size
        return int(self._staging[0])

    def zero(self, address: int, num_bytes: int) -> None:
        """See the protocol."""
        self._enter()
        checked(self._driver.cuMemsetD8Async(address, 0, num_bytes, self._stream), "filling")

    def launch(
        self,
        kernel: str,
        blocks: tuple[int, int],
        threads: int,
        shared_bytes: int,
        arguments: NDArray[np.int64],
        stream: int | None = None,
    ) -> None:
        """See the protocol."""
        self._enter()
        pointers = np.array([arguments.ctypes.data], dtype=np.uint64)
        called = self._driver.cuLaunchKernel(
            self._kernel(kernel, shared_bytes),
            *(*blocks, 1),
            *(threads, 1, 1),
            shared_bytes,
            self._stream if stream is None else self._driver.CUstream(stream),
            pointers.ctypes.data,
            0,
        )
        checked(called, f"the kernel {kernel}")

    def _kernel(self, name: str, shared_bytes: int) -> Any:
        driver = self._driver
        if name not in self._kernels:
            found = checked(
                driver.cuModuleGetFunction(self._module, name.encode()), f"the kernel {name}"
            )
            self._kernels[name] = [found, _USUAL_SHARED]
        kernel = self._kernels[name]
        if shared_bytes > kernel[1]:
            most = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            checked(driver.cuFuncSetAttribute(kernel[0], most, shared_bytes), "shared memory")
            kernel[1] = shared_bytes
        return kernel[0]

    def replay(self, work: Callable[[], None]) -> Callable[[], None] | None:
        """See the protocol; the recording is a CUDA graph."""
        self._enter()
        driver, stream = self._driver, self._stream
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        checked(driver.cuStreamBeginCapture(stream, mode), "recording")
        try:
            work()
        finally:
            ended = driver.cuStreamEndCapture(stream)
        try:
            graph = checked(ended, "recording")
            recorded = checked(driver.cuGraphInstantiate(graph, 0), "recording")
        except CudaError:
            return None  # launched one by one
        driver.cuGraphDestroy(graph)

        def launch() -> None:
            self._enter()
            checked(driver.cuGraphLaunch(recorded, stream), "a recorded launch")

        weakref.finalize(launch, driver.cuGraphExecDestroy, recorded)
        return launch

    def synchronize(self) -> None:
        """See the protocol."""
        self._enter()
        checked(self._driver.cuStreamSynchronize(self._stream), "work on the GPU")

    def milliseconds(self, work: Callable[[], None]) -> float:
        """See the protocol."""
        self._enter()
        driver, stream = self._driver, self._stream
        begin, end = (checked(driver.cuEventCreate(0), "an event") for _ in range(2))
        checked(driver.cuEventRecord(begin, stream), "an event")
        work()
        checked(driver.cuEventRecord(end, stream), "an event")
        checked(driver.cuEventSynchronize(end), "work on the GPU")
        taken = float(checked(driver.cuEventElapsedTime(begin, end), "an event"))
        for event in (begin, end):
            driver.cuEventDestroy(event)
        return taken


def _free(driver: Any, context: Any, pointer: Any) -> None:
    driver.cuCtxSetCurrent(context)
    driver.cuMemFree(pointer)


@cache
def _opened(number: int) -> CudaDevice | str:
    """Open a GPU, or return the line that says why it cannot be used."""
    try:
        return CudaDevice(number)
    except ImportError:
        return f"cuda-bindings is not installed ({how_to_install('cuda-bindings')})"
    except CudaError as error:
        return str(error)
    except Exception as error:  # libraries that are missing or broken, in the bindings' own words
        line = (str(error).splitlines() or [type(error).__name__])[0]
        return f"CUDA does not work here: {line}"


def why_not(number: int = 0) -> str | None:
    """Return why a GPU cannot be used; None if it can."""
    found = _opened(number)
    return found if isinstance(found, str) else None


def examine_gpu() -> str:
    """Return ``"ok"`` with the first GPU's name and memory, or the line that says why not."""
    found = _opened(0)
    if isinstance(found, str):
        return found
    capability = ".".join(map(str, found.capability))
    return (
        f"ok: {found.name}, compute capability {capability}, {found.free_bytes() / 1e9:.0f} GB free"
    )


def cuda_device(number: int = 0) -> CudaDevice:
    """Return a GPU; an error that names 'device' where it cannot be used."""
    found = _opened(number)
    if isinstance(found, str):
        name = "cuda" if number == 0 else f"cuda:{number}"
        raise input_error("device", "'cpu' here", repr(name), found)
    return found

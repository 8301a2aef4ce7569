"""The GPU, by CuPy: its memory, and the kernels of this folder compiled for a table."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bisimetric._optional import import_optional
from bisimetric._progress import announce_compilation
from bisimetric.errors import InputError

KERNEL_SOURCE = Path(__file__).with_name("kernels.cu")
TRANSFER_BYTES, TRANSFER_THREADS = 2**26, 8
"""Bytes that are fetched at a time, and how many threads do so."""
MIN_COMPUTE_CAPABILITY = 80
"""The compute capability, times ten, of the first GPUs that copy into shared memory by the way."""
KERNEL_NAMES = (
    "sweep",
    "mirror",
    "chosen",
    "jumped",
    "settled",
    "level",
    "doubled",
    "placed",
    "prove",
)


class KernelModule(Protocol):
    """The kernels, compiled for one kind of table."""

    def launch(
        self, name: str, grid: tuple[int, ...], threads: int, *given: Any, shared: int = 0
    ) -> None:
        """Starts a kernel on a grid of blocks; numbers are given as NumPy's, of the right type."""


class GpuDevice(Protocol):
    """What the solvers ask of a GPU.

    Attributes:
        arrays: the module of its arrays, with NumPy's functions.
        name: what it calls itself.
        processors: how many blocks it works on side by side, at least.
        threads: the most threads of a block, a power of 2, at least 32.
        shared: bytes of shared memory that a block may have.
    """

    arrays: Any
    name: str
    processors: int
    threads: int
    shared: int

    @property
    def free(self) -> float:
        """Bytes of its memory that are free."""

    def fetch(self, array: Any, to: NDArray[Any]) -> None:
        """Copies an array into one of NumPy's, whose rows may be shorter."""

    def program(self, **defined: int | str) -> KernelModule:
        """The kernels with such macros."""


class CudaKernelModule:
    """The kernels, compiled by NVRTC; CuPy keeps what it has compiled on the disk."""

    def __init__(self, cupy: Any, defined: dict[str, int | str]) -> None:
        options = ("-std=c++17", *(f"-D{name}={value}" for name, value in defined.items()))
        module = cupy.RawModule(code=KERNEL_SOURCE.read_text(), options=options)
        self._kernels = {name: module.get_function(name) for name in KERNEL_NAMES}

    def launch(
        self, name: str, grid: tuple[int, ...], threads: int, *given: Any, shared: int = 0
    ) -> None:
        kernel = self._kernels[name]
        if shared > kernel.max_dynamic_shared_size_bytes:
            kernel.max_dynamic_shared_size_bytes = shared
        kernel(grid, (threads,), given, shared_mem=shared)


class CudaDevice:
    """The current GPU of CuPy."""

    def __init__(self, cupy: Any) -> None:
        self.arrays = cupy
        found = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        self.name = found["name"].decode()
        self.processors = int(found["multiProcessorCount"])
        self.threads = int(found["maxThreadsPerBlock"])
        self.shared = int(found["sharedMemPerBlockOptin"])
        self._programs: dict[Any, CudaKernelModule] = {}

    @property
    def free(self) -> float:
        pool = self.arrays.get_default_memory_pool()
        return float(self.arrays.cuda.runtime.memGetInfo()[0] + pool.free_bytes())

    def fetch(self, array: Any, to: NDArray[Any]) -> None:
        if to.nbytes <= TRANSFER_BYTES:
            to[...] = array[..., : to.shape[-1]].get()
            return
        self.arrays.cuda.Device().synchronize()
        rows = max(1, TRANSFER_BYTES // to[0].nbytes)
        # Several at a time: the memory of a new array is slow to come by.
        with ThreadPoolExecutor(TRANSFER_THREADS) as carriers:
            pieces = range(0, len(to), rows)
            for done in [carriers.submit(self._copy_rows, array, to, at, rows) for at in pieces]:
                done.result()

    def _copy_rows(self, array: Any, to: NDArray[Any], low: int, rows: int) -> None:
        """Copies some rows, by way of memory that the GPU reaches directly."""
        import cupyx

        there = to[low : low + rows]
        between = cupyx.empty_pinned(there.shape, there.dtype)
        with self.arrays.cuda.Stream(non_blocking=True):
            some = array[low : low + rows, : to.shape[1]]
            self.arrays.ascontiguousarray(some).get(out=between)
        there[...] = between

    def program(self, **defined: int | str) -> CudaKernelModule:
        key = tuple(sorted(defined.items()))
        if key not in self._programs:
            with announce_compilation("the kernels"):
                self._programs[key] = CudaKernelModule(self.arrays, defined)
        return self._programs[key]


@functools.cache
def find_device() -> GpuDevice:
    """The GPU of this machine, or one sentence that says what is missing."""
    cupy = import_optional("cupy", "exact, device='gpu'", "gpu")
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise InputError(
            f"exact: device='gpu' finds no GPU here ({error}); leave device out."
        ) from None
    if count == 0:
        raise InputError("exact: device='gpu' finds no GPU here; leave device out.")
    device = CudaDevice(cupy)
    if int(cupy.cuda.Device().compute_capability) < MIN_COMPUTE_CAPABILITY:
        raise InputError(
            f"exact: device='gpu' is for GPUs from NVIDIA's Ampere on, and {device.name} is older; "
            "leave device out."
        )
    return device


def format_c_type(dtype: np.dtype[Any]) -> str:
    """What C calls the numbers of a table.

    >>> number(np.dtype("float32")), number(np.dtype("float64"))
    ('float', 'double')
    """
    return "float" if dtype == np.float32 else "double"

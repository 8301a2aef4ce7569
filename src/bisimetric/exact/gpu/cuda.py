"""The GPU through CuPy: its memory, and the kernels of this package compiled for a problem."""

from __future__ import annotations

import dataclasses
import functools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bisimetric._optional import import_optional
from bisimetric._progress import announce_compilation
from bisimetric.errors import InputError

TRANSFER_BYTES, TRANSFER_THREADS = 2**26, 8
"""Bytes per transfer to the host, and the number of threads that transfer."""
MIN_COMPUTE_CAPABILITY = 80
"""Times ten: the first compute capability with asynchronous copies into shared memory."""


@dataclasses.dataclass(frozen=True)
class KernelSource:
    """A CUDA source file, and the names of its kernels, which are `extern "C"`.

    Attributes:
        path: of the file.
        names: of the kernels.
        preamble: files with device code that precede it.
    """

    path: Path
    names: tuple[str, ...]
    preamble: tuple[Path, ...] = ()

    def read(self) -> str:
        """Return the whole source."""
        return "\n".join(path.read_text() for path in (*self.preamble, self.path))


FOLDER = Path(__file__).parent
ROWS = (FOLDER / "rows.cu",)
MATRIX_KERNELS = KernelSource(
    FOLDER / "kernels.cu",
    (
        "sweep",
        "mirror",
        "select_actions",
        "compose_steps",
        "apply_policy_value",
        "fill_level",
        "double_horizon",
        "reorder",
        "compute_residual",
    ),
    ROWS,
)
"""The kernels on distance matrices of deterministic MDPs."""
LAX_KERNELS = KernelSource(
    FOLDER / "lax.cu",
    ("sweep_lax", "combine_directions", "select_choices", "compute_lax_residual"),
    ROWS,
)
"""Those of d_lax."""
COUPLING_KERNELS = KernelSource(
    FOLDER / "couplings.cu",
    (
        "sweep_pairs",
        "apply_couplings",
        "start_evaluation",
        "update_direction",
        "update_residual",
        "update_solution",
        "add_change",
        "mirror_vectors",
        "mirror_doubles",
        "write_floats",
        "write_doubles",
    ),
    (FOLDER / "transport.cu",),
)
"""The kernels on pairs of stochastic MDPs."""


class KernelModule(Protocol):
    """The kernels of one source, compiled for one problem."""

    def launch(
        self, name: str, grid: tuple[int, ...], threads: int, *arguments: Any, shared_bytes: int = 0
    ) -> None:
        """Launch a kernel on a grid of blocks; numbers are NumPy scalars of the right type."""


class GpuDevice(Protocol):
    """What the solvers need of a GPU.

    Attributes:
        arrays: the module of its arrays, with NumPy's functions.
        name: of the device.
        num_multiprocessors: the number of blocks that run in parallel, at least.
        max_threads: the largest number of threads per block, a power of 2, at least 32.
        shared_bytes: the shared memory available to a block.
    """

    arrays: Any
    name: str
    num_multiprocessors: int
    max_threads: int
    shared_bytes: int

    @property
    def free_bytes(self) -> float:
        """The free memory of the device."""

    def fetch(self, array: Any, out: NDArray[Any]) -> NDArray[Any]:
        """Copy an array to a NumPy array, whose rows may be shorter, and return that."""

    def compile(self, source: KernelSource, **macros: int | str) -> KernelModule:
        """Compile the kernels of a source with these macros."""


class CudaKernelModule:
    """The kernels, compiled by NVRTC; CuPy caches them on the disk."""

    def __init__(self, cupy: Any, source: KernelSource, macros: dict[str, int | str]) -> None:
        options = ("-std=c++17", *(f"-D{name}={value}" for name, value in macros.items()))
        module = cupy.RawModule(code=source.read(), options=options)
        self._kernels = {name: module.get_function(name) for name in source.names}

    def launch(
        self, name: str, grid: tuple[int, ...], threads: int, *arguments: Any, shared_bytes: int = 0
    ) -> None:
        kernel = self._kernels[name]
        if shared_bytes > kernel.max_dynamic_shared_size_bytes:
            kernel.max_dynamic_shared_size_bytes = shared_bytes
        kernel(grid, (threads,), arguments, shared_mem=shared_bytes)


class CudaDevice:
    """The current GPU of CuPy."""

    def __init__(self, cupy: Any) -> None:
        self.arrays = cupy
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        self.name = properties["name"].decode()
        self.num_multiprocessors = int(properties["multiProcessorCount"])
        self.max_threads = int(properties["maxThreadsPerBlock"])
        self.shared_bytes = int(properties["sharedMemPerBlockOptin"])
        self._compiled: dict[Any, CudaKernelModule] = {}

    @property
    def free_bytes(self) -> float:
        pool = self.arrays.get_default_memory_pool()
        return float(self.arrays.cuda.runtime.memGetInfo()[0] + pool.free_bytes())

    def fetch(self, array: Any, out: NDArray[Any]) -> NDArray[Any]:
        if out.nbytes <= TRANSFER_BYTES:
            out[...] = array[..., : out.shape[-1]].get()
            return out
        self.arrays.cuda.Device().synchronize()
        rows = max(1, TRANSFER_BYTES // out[0].nbytes)
        # In parallel, because the page faults of a new array are slow.
        with ThreadPoolExecutor(TRANSFER_THREADS) as pool:
            starts = range(0, len(out), rows)
            for transfer in [pool.submit(self._copy_rows, array, out, low, rows) for low in starts]:
                transfer.result()
        return out

    def _copy_rows(self, array: Any, out: NDArray[Any], low: int, rows: int) -> None:
        """Copy some rows through pinned memory."""
        import cupyx

        target = out[low : low + rows]
        pinned = cupyx.empty_pinned(target.shape, target.dtype)
        with self.arrays.cuda.Stream(non_blocking=True):
            source = array[low : low + rows, : out.shape[1]]
            self.arrays.ascontiguousarray(source).get(out=pinned)
        target[...] = pinned

    def compile(self, source: KernelSource, **macros: int | str) -> CudaKernelModule:
        key = source, *sorted(macros.items())
        if key not in self._compiled:
            with announce_compilation("the kernels"):
                self._compiled[key] = CudaKernelModule(self.arrays, source, macros)
        return self._compiled[key]


@functools.cache
def find_device() -> GpuDevice:
    """Return the GPU of this machine, or raise InputError with what is missing."""
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
    """Return the name of a float dtype in C.

    >>> format_c_type(np.dtype("float32")), format_c_type(np.dtype("float64"))
    ('float', 'double')
    """
    return "float" if dtype == np.float32 else "double"

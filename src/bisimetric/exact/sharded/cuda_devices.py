"""The CUDA devices of a sharded matrix through CuPy, and views of JAX's arrays on them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import jax
import numpy as np
from numpy.typing import NDArray

from bisimetric._progress import announce_compilation
from bisimetric.exact.gpu.cuda import (
    MIN_COMPUTE_CAPABILITY,
    CudaKernelModule,
    KernelModule,
    KernelSource,
)
from bisimetric.exact.sharded.process_group import ProcessGroup


class ShardDevice(Protocol):
    """A CUDA device of this process.

    Attributes:
        name: of the device.
        num_multiprocessors: the number of blocks that run in parallel, at least.
        max_threads: the largest number of threads per block, a power of 2, at least 32.
        shared_bytes: the shared memory available to a block.
        reads_peers: whether kernels may read the memory of the process's other devices.
    """

    name: str
    num_multiprocessors: int
    max_threads: int
    shared_bytes: int
    reads_peers: bool

    def activate(self) -> AbstractContextManager[Any]:
        """Return the context in which arrays are created and kernels launched."""

    def compile(self, source: KernelSource, **macros: int | str) -> KernelModule:
        """Compile the kernels of a source with these macros."""

    def upload(self, array: NDArray[Any]) -> Any:
        """Copy an array to the device."""

    def view(self, part: jax.Array, dtype: Any) -> Any:
        """Return the buffer of JAX's array on this device as a writable array (n,)."""

    def fetch(self, array: Any) -> NDArray[Any]:
        """Copy an array to the host, after the kernels before it."""

    def synchronize(self) -> None:
        """Wait for the kernels."""


class CudaShardDevice:
    """A device of CuPy."""

    def __init__(self, cupy: Any, index: int) -> None:
        self._cupy, self._index = cupy, index
        properties = cupy.cuda.runtime.getDeviceProperties(index)
        self.name = properties["name"].decode()
        self.num_multiprocessors = int(properties["multiProcessorCount"])
        self.max_threads = int(properties["maxThreadsPerBlock"])
        self.shared_bytes = int(properties["sharedMemPerBlockOptin"])
        self.compute_capability = 10 * int(properties["major"]) + int(properties["minor"])
        self.reads_peers = True

    def enable_peers(self, indices: list[int]) -> None:
        """Allow kernels to read the memory of other devices, where the hardware can."""
        runtime = self._cupy.cuda.runtime
        with self.activate():
            for peer in indices:
                if peer == self._index:
                    continue
                if not runtime.deviceCanAccessPeer(self._index, peer):
                    self.reads_peers = False
                    continue
                try:
                    runtime.deviceEnablePeerAccess(peer)
                except runtime.CUDARuntimeError as error:
                    if "AlreadyEnabled" not in str(error):
                        self.reads_peers = False

    def activate(self) -> AbstractContextManager[Any]:
        device: AbstractContextManager[Any] = self._cupy.cuda.Device(self._index)
        return device

    def compile(self, source: KernelSource, **macros: int | str) -> KernelModule:
        with announce_compilation("the kernels"):
            return CudaKernelModule(self._cupy, source, macros)

    def upload(self, array: NDArray[Any]) -> Any:
        return self._cupy.asarray(array)

    def view(self, part: jax.Array, dtype: Any) -> Any:
        if part.nbytes == 0:
            return self._cupy.zeros(1, dtype)
        memory = self._cupy.cuda.UnownedMemory(
            part.unsafe_buffer_pointer(), part.nbytes, part, self._index
        )
        pointer = self._cupy.cuda.MemoryPointer(memory, 0)
        return self._cupy.ndarray((part.nbytes // np.dtype(dtype).itemsize,), dtype, pointer)

    def fetch(self, array: Any) -> NDArray[Any]:
        return np.asarray(array.get())

    def synchronize(self) -> None:
        self._cupy.cuda.get_current_stream().synchronize()


def find_shard_devices(group: ProcessGroup) -> list[ShardDevice]:
    """Return the devices of this process that run the CUDA kernels, or none if one of them cannot.

    That needs CuPy, and GPUs of NVIDIA's from Ampere on.
    """
    client = group.mesh.devices.flat[0].client
    if group.platform != "gpu" or "cuda" not in client.platform_version.lower():
        return []
    try:
        import cupy

        indices = [
            group.mesh.devices.flat[device].local_hardware_id for device in group.local_devices
        ]
        devices = [CudaShardDevice(cupy, index) for index in indices]
    except Exception:
        # CuPy raises many errors where it or a library of CUDA is missing or too old.
        return []
    for device in devices:
        if device.compute_capability < MIN_COMPUTE_CAPABILITY:
            return []
        device.enable_peers(indices)
    return list(devices)

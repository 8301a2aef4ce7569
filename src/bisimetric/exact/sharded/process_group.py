"""The processes and devices that share a matrix: collectives, and errors of lost processes."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bisimetric._progress import jit
from bisimetric.errors import InputError, InsufficientMemory, NotConverged
from bisimetric.exact.sharded.cluster import join, suppress_stdout

ROW_AXIS = "rows"
"""The mesh axis along which the rows of a matrix are split."""
MAX_MESSAGE_BYTES = 4096
"""Bytes of a message of `all_gather`, at most."""
CONNECTION_WORDS = ("gloo", "nccl", "connection", "heartbeat", "coordination", "peer", "socket")
"""Words in the errors of collectives that indicate a lost process."""
OUT_OF_MEMORY = "resource_exhausted"
"""The word in errors of a device without free memory."""

COLLECTIVE_ERRORS: dict[str, type[Exception]] = {
    "input": InputError,
    "memory": InsufficientMemory,
    "disk": OSError,
}
"""Errors of one process that are raised in all."""

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class ProcessGroup:
    """The processes that run this program together, and all their devices.

    Attributes:
        rank: the index of this process.
        num_processes: the number of processes.
        mesh: the devices of all processes, in one dimension.
        hosts: the host of each process.
    """

    rank: int
    num_processes: int
    mesh: Mesh
    hosts: tuple[str, ...]

    @property
    def num_devices(self) -> int:
        return int(self.mesh.devices.size)

    @property
    def local_devices(self) -> list[int]:
        """The indices of this process's devices in the mesh."""
        devices = enumerate(self.mesh.devices.flat)
        return [index for index, device in devices if device.process_index == self.rank]

    @property
    def num_host_processes(self) -> int:
        """The number of processes on this host, including this one."""
        return self.hosts.count(self.hosts[self.rank])

    @property
    def platform(self) -> str:
        return str(self.mesh.devices.flat[0].platform)

    def row_sharding(self) -> NamedSharding:
        """Return the sharding of arrays whose first axis is split over the devices."""
        return NamedSharding(self.mesh, PartitionSpec(ROW_AXIS))

    def replica_sharding(self) -> NamedSharding:
        """Return the sharding of arrays that every device holds completely."""
        return NamedSharding(self.mesh, PartitionSpec())

    def jit(self, function: Any, **options: Any) -> Any:
        """Compile like `jax.jit`; in a single process, interrupts wait for the compiler.

        With several, a call may wait for a lost process, and an interrupt must end it; see
        `translate_errors` for how such a process exits.
        """
        return (jit if self.num_processes == 1 else jax.jit)(function, **options)

    def connect(self) -> None:
        """Connect all devices by an unused sum; a collective."""
        ones = jax.make_array_from_callback(
            (self.num_devices,), self.row_sharding(), lambda _: np.ones(1)
        )
        jax.block_until_ready(self.jit(jnp.sum, out_shardings=self.replica_sharding())(ones))

    def all_gather(self, message: Any) -> list[Any]:
        """Return the messages of all processes, by rank; a collective."""
        if self.num_processes == 1:
            return [message]
        text = json.dumps(message, ensure_ascii=False).encode()
        padded = np.zeros(MAX_MESSAGE_BYTES, np.uint8)
        padded[: len(text)] = np.frombuffer(text, np.uint8)
        messages = np.asarray(multihost_utils.process_allgather(padded)).reshape(
            self.num_processes, MAX_MESSAGE_BYTES
        )
        return [json.loads(bytes(each).rstrip(b"\0")) for each in messages]

    def run_collectively(self, work: Callable[[], T]) -> T:
        """Return what `work` returns; if it fails in one process, raise its error in all.

        So a disk that is full for one of them stops them all, with the same message.
        """
        result, failure = None, None
        try:
            result = work()
        except tuple(COLLECTIVE_ERRORS.values()) as error:
            kind = next(name for name, each in COLLECTIVE_ERRORS.items() if isinstance(error, each))
            failure = [kind, _format_error(error)[:500]]
        failures = self.all_gather(failure)
        for rank, failed in enumerate(failures):
            if failed is not None:
                everywhere = failures.count(failed) == self.num_processes
                process = "" if everywhere else f" (process {rank} of {self.num_processes})"
                kind, message = failed
                raise mark_collective(COLLECTIVE_ERRORS[kind](f"{message.rstrip('.')}{process}."))
        return result  # type: ignore[return-value]

    def require_agreement(self, facts: dict[str, str], caller: str) -> None:
        """Raise InputError in all processes unless all have the same facts."""
        gathered = self.all_gather(facts)
        for rank, others in enumerate(gathered):
            for name, value in gathered[0].items():
                if others[name] != value:
                    raise mark_collective(
                        InputError(
                            f"{caller}: process {rank} of {self.num_processes} has another {name} "
                            f"than process 0 ({others[name]} and {value}); start all of them with "
                            "the same."
                        )
                    )


def mark_collective(error: Exception) -> Exception:
    """Mark an error that all processes raise."""
    error.collective = True  # type: ignore[attr-defined]
    return error


def create_process_group(device: str | None = None) -> ProcessGroup:
    """Join the other processes; return the group, with the devices of a platform or the default."""
    join()
    try:
        devices = jax.devices(device)
    except RuntimeError:
        found = ", ".join(sorted({each.platform for each in jax.devices()}))
        raise InputError(
            f"exact.sharded: device is {device!r} and must be one that JAX finds: {found}."
        ) from None
    mesh = Mesh(np.array(devices), (ROW_AXIS,))
    group = ProcessGroup(jax.process_index(), jax.process_count(), mesh, ())
    if group.num_processes == 1:
        return dataclasses.replace(group, hosts=(socket.gethostname(),))
    with suppress_stdout():
        hosts = group.all_gather(socket.gethostname())
        group.connect()
    return dataclasses.replace(group, hosts=tuple(hosts))


@contextlib.contextmanager
def translate_errors(group: ProcessGroup, remedy: str) -> Iterator[None]:
    """Translate the error of a collective whose process was lost into one message.

    An error in this process alone ends it at once, so that the others notice.
    """
    try:
        yield
    except NotConverged:
        raise
    except BaseException as error:
        if group.num_processes > 1 and not hasattr(error, "collective"):
            interrupted = isinstance(error, KeyboardInterrupt)
            atexit.register(_exit_process, group.rank, 130 if interrupted else 2)
        foreign = isinstance(error, (ValueError, RuntimeError)) and not isinstance(
            error, InputError
        )
        message = str(error).lower()
        process = f"process {group.rank} of {group.num_processes}"
        if foreign and OUT_OF_MEMORY in message:
            raise InsufficientMemory(
                f"exact.sharded: the memory of a device of {process} is full; use more devices, or "
                "a smaller block_bytes."
            ) from None
        if (
            group.num_processes == 1
            or not foreign
            or not any(word in message for word in CONNECTION_WORDS)
        ):
            raise
        raise ConnectionAbortedError(
            f"exact.sharded: {process} lost another one, which was killed or failed, and stops; "
            f"{remedy}."
        ) from None


def _exit_process(rank: int, code: int) -> None:
    """Exit without the shutdown barrier, which not all processes will reach."""
    sys.stdout.flush()
    sys.stderr.flush()
    if rank == 0:
        # The coordinator's exit would end the others before they print their message.
        time.sleep(2.0)
    os._exit(code)


def _format_error(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__

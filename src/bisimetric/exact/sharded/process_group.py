"""The processes and devices that share a table: what they tell each other, and when one is lost."""

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
"""The axis of the devices, along which the rows of a table are split."""
MAX_MESSAGE_BYTES = 4096
"""Bytes that a process may say at once."""
CONNECTION_WORDS = ("gloo", "nccl", "connection", "heartbeat", "coordination", "peer", "socket")
"""Words in the errors of collectives that mean that a process has gone."""
OUT_OF_MEMORY = "resource_exhausted"
"""What they say when a device has no memory left."""

COLLECTIVE_ERRORS: dict[str, type[Exception]] = {
    "input": InputError,
    "room": InsufficientMemory,
    "disk": OSError,
}
"""What may go wrong in one process, and must be raised in all."""

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class ProcessGroup:
    """The processes that run this program together, and all their devices.

    Attributes:
        index: which process this is, from 0.
        count: how many there are.
        mesh: the devices of all processes, in one row.
        hosts: the machine that each process runs on.
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
        """The places of this process's devices in the mesh."""
        places = enumerate(self.mesh.devices.flat)
        return [place for place, device in places if device.process_index == self.rank]

    @property
    def num_host_processes(self) -> int:
        """How many of the processes share this one's machine, itself among them."""
        return self.hosts.count(self.hosts[self.rank])

    @property
    def platform(self) -> str:
        return str(self.mesh.devices.flat[0].platform)

    def row_sharding(self) -> NamedSharding:
        """How arrays lie whose first axis is split over the devices."""
        return NamedSharding(self.mesh, PartitionSpec(ROW_AXIS))

    def replicated_sharding(self) -> NamedSharding:
        """How arrays lie that every device holds whole."""
        return NamedSharding(self.mesh, PartitionSpec())

    def jit(self, function: Any, **options: Any) -> Any:
        """`jax.jit`; of a single process, an interrupt does not abandon the compiler.

        With several, a call may wait for a process that has gone, and an interrupt must end that;
        see `watched` for how such a process exits.
        """
        return (jit if self.num_processes == 1 else jax.jit)(function, **options)

    def connect(self) -> None:
        """Lets all devices find each other, once, by a sum that is not used; a collective."""
        one = jax.make_array_from_callback(
            (self.num_devices,), self.row_sharding(), lambda _: np.ones(1)
        )
        jax.block_until_ready(self.jit(jnp.sum, out_shardings=self.replicated_sharding())(one))

    def all_gather(self, message: Any) -> list[Any]:
        """What every process says, in their order; a collective."""
        if self.num_processes == 1:
            return [message]
        words = json.dumps(message, ensure_ascii=False).encode()
        page = np.zeros(MAX_MESSAGE_BYTES, np.uint8)
        page[: len(words)] = np.frombuffer(words, np.uint8)
        heard = np.asarray(multihost_utils.process_allgather(page)).reshape(
            self.num_processes, MAX_MESSAGE_BYTES
        )
        return [json.loads(bytes(each).rstrip(b"\0")) for each in heard]

    def run_collectively(self, work: Callable[[], T]) -> T:
        """What `work` returns; where it fails in one process, all raise its error.

        So a disk that is full for one of them stops them all, with the same sentence.
        """
        result, failed = None, None
        try:
            result = work()
        except tuple(COLLECTIVE_ERRORS.values()) as error:
            kind = next(name for name, each in COLLECTIVE_ERRORS.items() if isinstance(error, each))
            failed = [kind, _format_error(error)[:500]]
        heard = self.all_gather(failed)
        for index, theirs in enumerate(heard):
            if theirs is not None:
                who = (
                    f" (process {index} of {self.num_processes})"
                    if heard.count(theirs) < self.num_processes
                    else ""
                )
                raise mark_collective(
                    COLLECTIVE_ERRORS[theirs[0]](f"{theirs[1].rstrip('.')}{who}.")
                )
        return result  # type: ignore[return-value]

    def require_agreement(self, facts: dict[str, str], caller: str) -> None:
        """Refuses processes that do not agree on what they compute, and with what."""
        heard = self.all_gather(facts)
        for index, theirs in enumerate(heard):
            for name, value in heard[0].items():
                if theirs[name] != value:
                    raise mark_collective(
                        InputError(
                            f"{caller}: process {index} of {self.num_processes} has another {name} than "
                            f"process 0 ({theirs[name]} and {value}); start all of them with the "
                            "same."
                        )
                    )


def mark_collective(error: Exception) -> Exception:
    """An error that all processes raise."""
    error.agreed = True  # type: ignore[attr-defined]
    return error


def create_process_group(device: str | None = None) -> ProcessGroup:
    """The group that this process belongs to, with the devices of a platform or all there are."""
    join()
    try:
        devices = jax.devices(device)
    except RuntimeError:
        found = ", ".join(sorted({each.platform for each in jax.devices()}))
        raise InputError(
            f"exact.sharded: there is no device {device!r} here; found: {found}."
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
    """Makes one sentence of the error that a collective raises when another process has gone.

    What goes wrong in this process alone ends it at once, so that the others notice.
    """
    try:
        yield
    except NotConverged:
        raise
    except BaseException as error:
        if group.num_processes > 1 and not hasattr(error, "agreed"):
            interrupted = isinstance(error, KeyboardInterrupt)
            atexit.register(_exit_process, group.rank, 130 if interrupted else 2)
        foreign = isinstance(error, (ValueError, RuntimeError)) and not isinstance(
            error, InputError
        )
        said = str(error).lower()
        if foreign and OUT_OF_MEMORY in said:
            raise InsufficientMemory(
                f"exact.sharded: the memory of a device of process {group.rank} of {group.num_processes} "
                "is full; take more devices, or a smaller block."
            ) from None
        if (
            group.num_processes == 1
            or not foreign
            or not any(word in said for word in CONNECTION_WORDS)
        ):
            raise
        raise ConnectionAbortedError(
            f"exact.sharded: process {group.rank} of {group.num_processes} lost another one, which was "
            f"killed or failed, and stops; {remedy}."
        ) from None


def _exit_process(rank: int, code: int) -> None:
    """Ends this process without the farewell of all, for which not all will come."""
    sys.stdout.flush()
    sys.stderr.flush()
    if rank == 0:
        # The others listen to the first process, and would be ended before their own sentence.
        time.sleep(2.0)
    os._exit(code)


def _format_error(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__

"""Joining the other processes, started by `bisimetric launch` or by a cluster's scheduler."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from bisimetric._optional import import_optional
from bisimetric.errors import InputError

COORDINATOR_ADDRESS = "JAX_COORDINATOR_ADDRESS"
NUM_PROCESSES, PROCESS_INDEX = "BISIMETRIC_PROCESSES", "BISIMETRIC_PROCESS"
PROCESS_VARIABLES = (
    (NUM_PROCESSES, PROCESS_INDEX),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    # Not SLURM_NTASKS: a batch script has that too, before srun starts anything.
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("PMI_SIZE", "PMI_RANK"),
)
"""Environment variables with the number of processes and the rank of this one."""
HEARTBEAT_SECONDS = 30
"""Seconds without a heartbeat after which a process counts as lost."""
INITIALIZATION_SECONDS = 300
"""Seconds that the first process waits for the last one to start."""


def join() -> None:
    """Join the processes that were started together with this one; alone, do nothing.

    The functions of `exact.sharded` call it. A program that uses JAX earlier must call it first.

    Raises:
        InputError: if JAX is not installed, was used before, or finds no coordinator.

    >>> join()
    """
    jax = require_jax()
    if jax.distributed.is_initialized():
        return
    arguments = detect_cluster(os.environ)
    if arguments is None:
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    timeouts = {
        "heartbeat_timeout_seconds": HEARTBEAT_SECONDS,
        "shutdown_timeout_seconds": HEARTBEAT_SECONDS,
        "initialization_timeout": INITIALIZATION_SECONDS,
    }
    try:
        jax.distributed.initialize(**arguments, **timeouts)
    except (RuntimeError, ValueError) as error:
        message = str(error).partition("\n")[0].rstrip(".")
        remedy = (
            "call bisimetric.exact.sharded.join() before anything else uses JAX"
            if "before" in message
            else f"start every process with {COORDINATOR_ADDRESS}=host:port of the first one"
        )
        raise InputError(
            f"exact.sharded: cannot join the other processes ({message}); {remedy}."
        ) from None


def detect_cluster(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the arguments of `jax.distributed.initialize`; None for a single process.

    They are empty where JAX detects SLURM, Open MPI or Kubernetes itself.

    >>> detect_cluster({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}) is None
    True
    >>> detect_cluster({"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "3"})
    {}
    >>> detect_cluster({"PMI_SIZE": "4", "PMI_RANK": "1", "JAX_COORDINATOR_ADDRESS": "n1:1234"})
    {'coordinator_address': 'n1:1234', 'num_processes': 4, 'process_id': 1}
    """
    for size, rank in PROCESS_VARIABLES:
        if not (size in environment and rank in environment):
            continue
        num_processes = int(environment[size])
        if num_processes < 2:
            return None
        if COORDINATOR_ADDRESS not in environment:
            return {}
        arguments: dict[str, Any] = {
            "coordinator_address": environment[COORDINATOR_ADDRESS],
            "num_processes": num_processes,
            "process_id": int(environment[rank]),
        }
        if size == NUM_PROCESSES:
            # All are on one host, where each uses the accelerator of its rank.
            arguments["local_device_ids"] = [arguments["process_id"]]
        return arguments
    kubernetes = "JOB_COMPLETION_INDEX" in environment and "KUBERNETES_SERVICE_HOST" in environment
    return {} if kubernetes else None


def require_jax() -> Any:
    """Import JAX, or raise an error that says how to install it."""
    return import_optional("jax", "exact.sharded", "scale")


@contextlib.contextmanager
def suppress_stdout() -> Iterator[None]:
    """Suppress what the collectives print to the standard output at their first use."""
    stdout, devnull = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, 1)
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
        os.close(devnull)

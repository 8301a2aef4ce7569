"""How a process finds the others: by `bisimetric spread`, or by what started them on a cluster."""

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
"""Variables that say how many processes there are, and which one this is."""
HEARTBEAT_SECONDS = 30
"""Seconds without a sign of life after which a process counts as lost."""
INITIALIZATION_SECONDS = 300
"""Seconds that the first process waits for the last one to start."""


def join() -> None:
    """Joins the group of processes that this one was started in; alone, it does nothing.

    The functions of `exact.sharded` call it. A program that uses JAX before them calls it first.
    """
    jax = require_jax()
    if jax.distributed.is_initialized():
        return
    found = detect_cluster(os.environ)
    if found is None:
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    more = {
        "heartbeat_timeout_seconds": HEARTBEAT_SECONDS,
        "shutdown_timeout_seconds": HEARTBEAT_SECONDS,
        "initialization_timeout": INITIALIZATION_SECONDS,
    }
    try:
        jax.distributed.initialize(**found, **more)
    except (RuntimeError, ValueError) as error:
        said = str(error).partition("\n")[0].rstrip(".")
        hint = (
            "call bisimetric.exact.sharded.join() before anything else uses JAX"
            if "before" in said
            else f"start every process with {COORDINATOR_ADDRESS}=host:port of the first one"
        )
        raise InputError(
            f"exact.sharded: cannot join the other processes ({said}); {hint}."
        ) from None


def detect_cluster(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """What tells JAX of the group, by the variables that started this process; None if alone.

    Nothing is told where JAX finds SLURM, Open MPI or Kubernetes by itself.

    >>> group_of({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}) is None
    True
    >>> group_of({"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "3"})
    {}
    >>> group_of({"PMI_SIZE": "4", "PMI_RANK": "1", "JAX_COORDINATOR_ADDRESS": "n1:1234"})
    {'coordinator_address': 'n1:1234', 'num_processes': 4, 'process_id': 1}
    """
    for count, index in PROCESS_VARIABLES:
        if not (count in environment and index in environment):
            continue
        processes = int(environment[count])
        if processes < 2:
            return None
        if COORDINATOR_ADDRESS not in environment:
            return {}
        told: dict[str, Any] = {
            "coordinator_address": environment[COORDINATOR_ADDRESS],
            "num_processes": processes,
            "process_id": int(environment[index]),
        }
        if count == NUM_PROCESSES:
            # All on one machine, where each takes the accelerator of its own number.
            told["local_device_ids"] = [told["process_id"]]
        return told
    in_a_job = "JOB_COMPLETION_INDEX" in environment and "KUBERNETES_SERVICE_HOST" in environment
    return {} if in_a_job else None


def require_jax() -> Any:
    """Import JAX, or raise an error that says how to install it."""
    return import_optional("jax", "exact.sharded", "scale")


@contextlib.contextmanager
def suppress_stdout() -> Iterator[None]:
    """Keeps what the collectives print at their first use off the standard output."""
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)

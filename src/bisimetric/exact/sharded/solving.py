"""From a request to an answer: the group, what it agrees on, its room, and the run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

import bisimetric
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.exact.sharded.checkpoints import Checkpoint
from bisimetric.exact.sharded.group import ProcessGroup, create_process_group, translate_errors
from bisimetric.exact.sharded.keeping import (
    ARCHIVE_SUFFIX,
    OutputRequest,
    resolve_folder,
    write_result,
)
from bisimetric.exact.sharded.layout import (
    ACCELERATOR_BLOCK_BYTES,
    CPU_BLOCK_BYTES,
    Layout,
    build_layout,
    choose_batch_rows,
    require_device_memory,
)
from bisimetric.exact.sharded.problem import ShardedProblem, build_problem
from bisimetric.exact.sharded.rising import ShardedRun, solve
from bisimetric.exact.sharded.rows import require_disk_space
from bisimetric.exact.table import Request, require_matrix_memory
from bisimetric.files import require_writable
from bisimetric.mdp import MDP
from bisimetric.memory import available_memory


@dataclasses.dataclass(frozen=True)
class ShardedOptions:
    """Where a sharded table is computed and kept; see `exact.sharded.bisimulation`."""

    output: str | os.PathLike[str] | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: float
    device: str | None
    block_bytes: int | None
    memory_limit: float | None
    metadata: Mapping[str, str]

    @property
    def path(self) -> Path | None:
        return None if self.output is None else Path(self.output)


def compute_distance(
    request: Request,
    mdp: MDP,
    dynamics: MDP,
    policy: NDArray[Any] | None,
    options: ShardedOptions,
    *,
    rounding: float = 0.0,
) -> Distance:
    """The distance that was asked for, of the dynamics `chain`, whose rewards are rounded."""
    where = f"exact.sharded.{request.kind}"
    _validate_options(where, options)
    group = create_process_group(options.device)
    remedy = "start it again" + (
        "" if options.checkpoint is None else f" to go on from {options.checkpoint}"
    )
    with translate_errors(group, remedy), jax.enable_x64(True):
        group.run_collectively(lambda: _validate_output(where, options))
        problem = group.run_collectively(lambda: build_problem(request, dynamics, rounding))
        _require_agreement(where, group, request, problem, options)
        layout = choose_layout(group, problem.num_states, request.dtype, options.block_bytes)
        checkpoint = _build_checkpoint(options, request, problem)
        free, told = _find_available_bytes(group, options)
        group.run_collectively(lambda: require_device_memory(where, layout, free, told))
        group.run_collectively(lambda: _require_output_space(where, group, layout, mdp, options))
        if checkpoint is not None:
            group.run_collectively(lambda: checkpoint.require_disk_space(layout))
        solved = solve(ShardedRun(group, layout, problem, checkpoint))
        asked = OutputRequest(request, mdp, policy, options.path, dict(options.metadata))
        distance = write_result(asked, group, layout, problem, solved)
        if checkpoint is not None and options.output is not None:
            checkpoint.remove(group)
    return distance


def _validate_options(caller: str, options: ShardedOptions) -> None:
    for name in ("every", "block", "limit"):
        number = getattr(options, name)
        if number is not None and not number > 0:
            raise InputError(f"{caller}: {name} is {number} and must be above 0.")


def _validate_output(caller: str, options: ShardedOptions) -> None:
    path = options.path
    if path is None:
        return
    try:
        (require_writable if path.suffix == ARCHIVE_SUFFIX else resolve_folder)(path)
    except InputError as error:
        raise InputError(f"{caller}: {error}") from None


def choose_layout(
    group: ProcessGroup, num_states: int, dtype: np.dtype[Any], block_bytes: int | None = None
) -> Layout:
    """How a table is split over the devices of a group, as suits their kind."""
    processor = group.platform == "cpu"
    return build_layout(
        num_states,
        group.num_devices,
        dtype,
        block_bytes=block_bytes or (CPU_BLOCK_BYTES if processor else ACCELERATOR_BLOCK_BYTES),
        batch_rows=1 if processor else choose_batch_rows(num_states, group.num_devices),
    )


def _require_agreement(
    caller: str,
    group: ProcessGroup,
    request: Request,
    problem: ShardedProblem,
    options: ShardedOptions,
) -> None:
    """Refuses processes that would compute different tables, or put them elsewhere."""
    group.require_agreement(
        {
            "version of bisimetric": bisimetric.__version__,
            "version of JAX": jax.__version__,
            "distance": f"{request.kind} to {request.tol:g} in {request.dtype}",
            "MDP": problem.fingerprint,
            "output": str(options.output)[-200:],
            "checkpoint": str(options.checkpoint)[-200:],
            "block": str(options.block_bytes),
        },
        caller,
    )


def _require_output_space(
    caller: str, group: ProcessGroup, layout: Layout, mdp: MDP, options: ShardedOptions
) -> None:
    """Refuses what the memory, or the disk where that was asked for, cannot take in the end."""
    if options.path is None or options.path.suffix == ARCHIVE_SUFFIX:
        # Every process of a machine gets a whole table, beside the rows of its devices.
        size = mdp.num_states**2 * layout.dtype.itemsize
        rows = layout.device_bytes * len(group.local_devices) if group.platform == "cpu" else 0
        needed = (size + rows) * group.num_host_processes
        require_matrix_memory(caller.removeprefix("exact."), mdp.num_states, needed)
    else:
        require_disk_space(caller, options.path.parent, layout.num_states * layout.row_bytes)


def _find_available_bytes(group: ProcessGroup, options: ShardedOptions) -> tuple[float, str]:
    """Bytes that each device may hold, and how they came to be known."""
    if options.memory_limit is not None:
        return float(options.memory_limit), "allowed"
    if group.platform != "cpu":
        here = [
            group.mesh.devices.flat[place].memory_stats() or {} for place in group.local_devices
        ]
        least = min(
            (each.get("bytes_limit", np.inf) - each.get("bytes_in_use", 0) for each in here),
            default=np.inf,
        )
        return float(min(group.all_gather(least if np.isfinite(least) else 1e30))), "free"
    # The processes of a machine share its memory.
    share = available_memory() / (group.num_host_processes * len(group.local_devices))
    return float(min(group.all_gather(share))), "free"


def _build_checkpoint(
    options: ShardedOptions, request: Request, problem: ShardedProblem
) -> Checkpoint | None:
    if options.checkpoint is None:
        return None
    run = {
        "distance": str(request.kind),
        "dtype": str(request.dtype),
        "version of bisimetric": bisimetric.__version__,
        "MDP": problem.fingerprint,
    }
    return Checkpoint(Path(options.checkpoint), options.checkpoint_every, run)

"""Where a sharded table goes in the end: into memory, an archive, or a folder of rows.

From a request to an answer: the group, what it agrees on, its room, and the run.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

import bisimetric
from bisimetric._io import name_write_errors, require_writable, resolve_target
from bisimetric._memory import available_memory
from bisimetric.distance import Distance, files, zarr_matrix
from bisimetric.errors import InputError
from bisimetric.exact._request import Request, bound_error, require_matrix_memory
from bisimetric.exact.sharded.checkpoints import Checkpoint
from bisimetric.exact.sharded.layout import (
    ACCELERATOR_BLOCK_BYTES,
    CPU_BLOCK_BYTES,
    Layout,
    ShardedProblem,
    build_layout,
    build_problem,
    choose_batch_rows,
    require_device_memory,
)
from bisimetric.exact.sharded.process_group import (
    ProcessGroup,
    create_process_group,
    translate_errors,
)
from bisimetric.exact.sharded.solver import ShardedRun, ShardedSolution, solve
from bisimetric.exact.sharded.store import gather_matrix, require_disk_space, write_rows
from bisimetric.mdp import MDP

ARCHIVE_SUFFIX = ".npz"
"""The ending of a table in one file; with any other one a table is a folder."""


@dataclasses.dataclass(frozen=True)
class OutputRequest:
    """Whose distance was asked for, and where its table is to go; None is into memory."""

    request: Request
    mdp: MDP
    policy: NDArray[Any] | None
    path: Path | None
    metadata: dict[str, str]


def write_result(
    output: OutputRequest,
    group: ProcessGroup,
    layout: Layout,
    problem: ShardedProblem,
    solution: ShardedSolution,
) -> Distance:
    """The answer, with its table where that was to go."""
    request, path = output.request, output.path
    error = bound_error(solution.residual, solution.max_value, problem.discount)
    how = {
        **solution.details,
        "classes": layout.num_states,
        "processes": group.num_processes,
        "devices": layout.num_devices,
        "jax": jax.__version__,
        **output.metadata,
    }
    if path is not None and path.suffix != ARCHIVE_SUFFIX:
        made = request.build_metadata({**how, "dtype": str(request.dtype)})
        _write_folder(output, path, group, layout, problem, solution, error, made)
        answer = group.run_collectively(lambda: Distance.load(path))
        request.require_tolerance(error, answer)
        return answer
    values = gather_matrix(group, layout, solution.values, problem.row_index)
    answer = request.build_distance(values, error, output.mdp, output.policy, how)
    if path is not None:
        group.run_collectively(lambda: answer.save(path) if group.rank == 0 else None)
    return answer


def _write_folder(
    output: OutputRequest, path: Path, group: ProcessGroup, layout: Layout, problem: ShardedProblem, solution: ShardedSolution,
    error: float, metadata: dict[str, Any],
) -> None:  # fmt: skip
    """Writes the folder of a table beside its place, each process its rows; then puts it there."""
    path = resolve_folder(path)
    beside = path.with_name(f".{path.name}.part")

    def create_folder() -> None:
        if group.rank == 0:
            shutil.rmtree(beside, ignore_errors=True)
            with name_write_errors(path, path.parent):
                beside.mkdir()

    def finish_folder() -> None:
        if group.rank == 0:
            s, t = (int(problem.representatives[place]) for place in solution.argmax)
            rows: Any = zarr_matrix.open_matrix(beside / zarr_matrix.VALUES, "r")
            values: Any = zarr_matrix.ZarrMatrix(rows, problem.row_index, (s, t))
            answer = Distance(
                values, error, output.request.kind, output.mdp, output.policy, metadata
            )
            with name_write_errors(path, path.parent):
                files.write_matrix_metadata(answer, beside, problem.row_index, (s, t))
                _replace_folder(beside, path)

    try:
        group.run_collectively(create_folder)
        write_rows(group, layout, solution.values, beside / zarr_matrix.VALUES, path)
        group.run_collectively(finish_folder)
    except BaseException:
        if group.rank == 0:
            shutil.rmtree(beside, ignore_errors=True)
        raise


def resolve_folder(path: Path) -> Path:
    """The folder that a stored table at `path` replaces: where its symbolic links lead.

    A stored table and a regular file are replaced, and anything else is refused.
    """
    if not path.is_dir():
        return resolve_target(path)
    if not zarr_matrix.is_matrix_folder(path):
        raise InputError(f"{path} is a folder, and no stored table; name another place.")
    return path.resolve()


def _replace_folder(beside: Path, path: Path) -> None:
    """Puts a finished folder in its place, and takes away what it replaces."""
    resolve_folder(path)
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.is_file():
        path.unlink()
    elif path.exists():
        path.rename(old)
    beside.rename(path)
    shutil.rmtree(old, ignore_errors=True)


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

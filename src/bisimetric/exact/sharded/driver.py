"""From a request to a distance: validation, agreement, memory, the run, and its output.

The matrix is gathered into memory, written to an archive, or to a folder of rows.
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
from numpy.typing import ArrayLike, NDArray

import bisimetric
from bisimetric._io import name_write_errors, require_writable, resolve_target
from bisimetric._memory import available_memory
from bisimetric.distance import Distance, files, zarr_matrix
from bisimetric.errors import InputError
from bisimetric.exact._gap_solver import describe_gap, evaluate_gap
from bisimetric.exact._request import Request, bound_error, require_matrix_memory
from bisimetric.exact.gaps import GapFunction
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
"""The suffix of a distance in one file; with any other one it is a folder."""


@dataclasses.dataclass(frozen=True)
class OutputRequest:
    """The requested distance and the path of its output; None keeps the matrix in memory."""

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
    """Write or gather the distance matrix and return it as a `Distance`."""
    request, path = output.request, output.path
    error = bound_error(solution.residual, solution.max_value, problem.discount)
    details = {
        **solution.details,
        "classes": layout.num_states,
        "processes": group.num_processes,
        "devices": layout.num_devices,
        "jax": jax.__version__,
        **output.metadata,
    }
    if path is not None and path.suffix != ARCHIVE_SUFFIX:
        metadata = request.build_metadata({**details, "dtype": str(request.dtype)}, output.mdp)
        _write_folder(output, path, group, layout, problem, solution, error, metadata)
        distance = group.run_collectively(lambda: Distance.load(path))
        request.require_tolerance(error, distance)
        return distance
    values = gather_matrix(group, layout, solution.values, problem.row_index)
    distance = request.build_distance(values, error, output.mdp, output.policy, details)
    if path is not None:
        group.run_collectively(lambda: distance.save(path) if group.rank == 0 else None)
    return distance


def _write_folder(
    output: OutputRequest,
    path: Path,
    group: ProcessGroup,
    layout: Layout,
    problem: ShardedProblem,
    solution: ShardedSolution,
    error: float,
    metadata: dict[str, Any],
) -> None:
    """Write a temporary folder, each process its rows, and then rename it to `path`."""
    path = resolve_folder(path)
    temporary = path.with_name(f".{path.name}.part")

    def create_folder() -> None:
        if group.rank == 0:
            shutil.rmtree(temporary, ignore_errors=True)
            with name_write_errors(path, path.parent):
                temporary.mkdir()

    def finish_folder() -> None:
        if group.rank == 0:
            s, t = (int(problem.representatives[row]) for row in solution.argmax)
            rows: Any = zarr_matrix.open_matrix(temporary / zarr_matrix.VALUES, "r")
            values: Any = zarr_matrix.ZarrMatrix(rows, problem.row_index, (s, t))
            distance = Distance(
                values, error, output.request.kind, output.mdp, output.policy, metadata
            )
            with name_write_errors(path, path.parent):
                files.write_matrix_metadata(distance, temporary, problem.row_index, (s, t))
                _replace_folder(temporary, path)

    try:
        group.run_collectively(create_folder)
        write_rows(group, layout, solution.values, temporary / zarr_matrix.VALUES, path)
        group.run_collectively(finish_folder)
    except BaseException:
        if group.rank == 0:
            shutil.rmtree(temporary, ignore_errors=True)
        raise


def resolve_folder(path: Path) -> Path:
    """Return the folder to write, with symbolic links resolved.

    Raises InputError if `path` is a folder that does not hold a sharded distance.
    """
    if not path.is_dir():
        return resolve_target(path)
    if not zarr_matrix.is_matrix_folder(path):
        raise InputError(f"{path} is a folder without a sharded distance; use another path.")
    return path.resolve()


def _replace_folder(temporary: Path, path: Path) -> None:
    """Rename a finished folder to `path`, and remove what it replaces."""
    resolve_folder(path)
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.is_file():
        path.unlink()
    elif path.exists():
        path.rename(old)
    temporary.rename(path)
    shutil.rmtree(old, ignore_errors=True)


@dataclasses.dataclass(frozen=True)
class ShardedConfig:
    """Where a sharded distance is computed and written; see `exact.sharded.bisimulation`."""

    output: str | os.PathLike[str] | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: float
    resume: str | os.PathLike[str] | None
    device: str | None
    block_bytes: int | None
    memory_limit: float | None
    metadata: Mapping[str, str]

    @property
    def path(self) -> Path | None:
        return None if self.output is None else Path(self.output)

    @property
    def resumes_in_place(self) -> bool:
        """Whether the run continues to write checkpoints to the folder that it resumes from."""
        return (
            self.checkpoint is not None
            and self.resume is not None
            and Path(self.checkpoint).resolve() == Path(self.resume).resolve()
        )


def compute_distance(
    request: Request,
    mdp: MDP,
    dynamics: MDP,
    policy: NDArray[Any] | None,
    config: ShardedConfig,
    *,
    rounding: float = 0.0,
    gap: ArrayLike | GapFunction | None = None,
) -> Distance:
    """Compute the requested distance; `dynamics` is the MDP or the chain of the policy.

    `rounding` bounds the error of its reward gaps; a `gap` takes their place.
    """
    caller = f"exact.sharded.{request.kind}"
    _validate_options(caller, config)
    group = create_process_group(config.device)
    remedy = "start it again" + (
        "" if config.checkpoint is None else f" and resume from {config.checkpoint}"
    )
    with translate_errors(group, remedy), jax.enable_x64(True):
        group.run_collectively(lambda: _validate_output(caller, config))
        problem = group.run_collectively(
            lambda: build_problem(
                request,
                dynamics,
                rounding,
                None
                if gap is None
                else evaluate_gap(caller, request.kind, mdp, gap, policy, check_triangles=False),
            )
        )
        _require_agreement(caller, group, request, problem, config)
        layout = choose_layout(
            group,
            problem.num_states,
            request.dtype,
            config.block_bytes,
            has_cost=problem.cost is not None,
        )
        identity = _build_identity(request, problem)
        checkpoint, resume = (
            None if folder is None else Checkpoint(Path(folder), config.checkpoint_every, identity)
            for folder in (config.checkpoint, config.resume)
        )
        available, origin = _find_available_bytes(group, config)
        group.run_collectively(lambda: require_device_memory(caller, layout, available, origin))
        group.run_collectively(lambda: _require_output_space(caller, group, layout, mdp, config))
        if checkpoint is not None:
            if not config.resumes_in_place:
                group.run_collectively(checkpoint.require_unused)
            group.run_collectively(lambda: checkpoint.require_disk_space(layout))
        spare = available - layout.device_bytes
        run = ShardedRun(group, layout, problem, checkpoint, resume, spare_bytes=spare)
        solution = solve(run)
        metadata = dict(config.metadata)
        if gap is not None:
            metadata["gap"] = describe_gap(gap)
        output = OutputRequest(request, mdp, policy, config.path, metadata)
        distance = write_result(output, group, layout, problem, solution)
        if checkpoint is not None and config.output is not None:
            checkpoint.remove(group)
    return distance


def _validate_options(caller: str, config: ShardedConfig) -> None:
    for name in ("checkpoint_every", "block_bytes", "memory_limit"):
        number = getattr(config, name)
        if number is not None and not number > 0:
            raise InputError(f"is {number} and must be above 0", caller=caller, argument=name)


def _validate_output(caller: str, config: ShardedConfig) -> None:
    path = config.path
    if path is None:
        return
    try:
        (require_writable if path.suffix == ARCHIVE_SUFFIX else resolve_folder)(path)
    except InputError as error:
        raise InputError(f"{caller}: {error}") from None


def choose_layout(
    group: ProcessGroup,
    num_states: int,
    dtype: np.dtype[Any],
    block_bytes: int | None = None,
    *,
    has_cost: bool = False,
) -> Layout:
    """Choose the layout of a matrix on the devices of a group."""
    cpu = group.platform == "cpu"
    return build_layout(
        num_states,
        group.num_devices,
        dtype,
        block_bytes=block_bytes or (CPU_BLOCK_BYTES if cpu else ACCELERATOR_BLOCK_BYTES),
        batch_rows=1 if cpu else choose_batch_rows(num_states, group.num_devices),
        has_cost=has_cost,
    )


def _require_agreement(
    caller: str,
    group: ProcessGroup,
    request: Request,
    problem: ShardedProblem,
    config: ShardedConfig,
) -> None:
    """Raise InputError if processes would compute different distances or outputs."""
    group.require_agreement(
        {
            "version of bisimetric": bisimetric.__version__,
            "version of JAX": jax.__version__,
            "distance": f"{request.kind} to {request.tol:g} in {request.dtype}",
            "MDP": problem.fingerprint,
            "output": str(config.output)[-200:],
            "checkpoint": str(config.checkpoint)[-200:],
            "resume": str(config.resume)[-200:],
            "block_bytes": str(config.block_bytes),
        },
        caller,
    )


def _require_output_space(
    caller: str, group: ProcessGroup, layout: Layout, mdp: MDP, config: ShardedConfig
) -> None:
    """Raise an error if the memory or the disk cannot hold the output."""
    if config.path is None or config.path.suffix == ARCHIVE_SUFFIX:
        # Every process of a host gets the whole matrix, besides the rows of its devices.
        matrix = mdp.num_states**2 * layout.dtype.itemsize
        rows = layout.device_bytes * len(group.local_devices) if group.platform == "cpu" else 0
        required = (matrix + rows) * group.num_host_processes
        require_matrix_memory(caller.removeprefix("exact."), mdp.num_states, required)
    else:
        require_disk_space(caller, config.path.parent, layout.num_states * layout.row_bytes)


def _find_available_bytes(group: ProcessGroup, config: ShardedConfig) -> tuple[float, str]:
    """Return the bytes that each device may use, and whether they are "allowed" or "free"."""
    if config.memory_limit is not None:
        return float(config.memory_limit), "allowed"
    if group.platform != "cpu":
        statistics = [
            group.mesh.devices.flat[index].memory_stats() or {} for index in group.local_devices
        ]
        smallest = min(
            (each.get("bytes_limit", np.inf) - each.get("bytes_in_use", 0) for each in statistics),
            default=np.inf,
        )
        return float(min(group.all_gather(smallest if np.isfinite(smallest) else 1e30))), "free"
    # The processes of a host share its memory.
    per_device = available_memory() / (group.num_host_processes * len(group.local_devices))
    return float(min(group.all_gather(per_device))), "free"


def _build_identity(request: Request, problem: ShardedProblem) -> dict[str, str]:
    """Return what must be equal for a run to be resumed."""
    return {
        "distance": str(request.kind),
        "dtype": str(request.dtype),
        "version of bisimetric": bisimetric.__version__,
        "MDP": problem.fingerprint,
    }

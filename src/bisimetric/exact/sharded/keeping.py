"""Where a sharded table goes in the end: into memory, an archive, or a folder of rows."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import jax
from numpy.typing import NDArray

from bisimetric.distance import Distance, files, stored
from bisimetric.errors import InputError
from bisimetric.exact.sharded.group import ProcessGroup
from bisimetric.exact.sharded.layout import Layout
from bisimetric.exact.sharded.problem import ShardedProblem
from bisimetric.exact.sharded.rising import ShardedSolution
from bisimetric.exact.sharded.rows import gather_matrix, write_rows
from bisimetric.exact.table import Request, bound_error
from bisimetric.files import name_write_errors, resolve_target
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
            rows: Any = stored.open_matrix(beside / stored.VALUES, "r")
            values: Any = stored.ZarrMatrix(rows, problem.row_index, (s, t))
            answer = Distance(
                values, error, output.request.kind, output.mdp, output.policy, metadata
            )
            with name_write_errors(path, path.parent):
                files.write_matrix_metadata(answer, beside, problem.row_index, (s, t))
                _replace_folder(beside, path)

    try:
        group.run_collectively(create_folder)
        write_rows(group, layout, solution.values, beside / stored.VALUES, path)
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
    if not stored.is_matrix_folder(path):
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

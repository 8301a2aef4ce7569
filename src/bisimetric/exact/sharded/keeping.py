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
from bisimetric.exact.sharded.group import Group
from bisimetric.exact.sharded.layout import Layout
from bisimetric.exact.sharded.problem import Problem
from bisimetric.exact.sharded.rising import Solved
from bisimetric.exact.sharded.rows import gathered, write_rows
from bisimetric.exact.table import Request, proven_error
from bisimetric.files import name_write_errors, resolve_target
from bisimetric.mdp import MDP

ARCHIVE = ".npz"
"""The ending of a table in one file; with any other one a table is a folder."""


@dataclasses.dataclass(frozen=True)
class Asked:
    """Whose distance was asked for, and where its table is to go; None is into memory."""

    request: Request
    mdp: MDP
    policy: NDArray[Any] | None
    path: Path | None
    about: dict[str, str]


def kept(asked: Asked, group: Group, layout: Layout, problem: Problem, solved: Solved) -> Distance:
    """The answer, with its table where that was to go."""
    request, path = asked.request, asked.path
    error = proven_error(solved.residual, solved.largest, problem.discount)
    how = {
        **solved.how,
        "classes": layout.states,
        "processes": group.count,
        "devices": layout.devices,
        "jax": jax.__version__,
        **asked.about,
    }
    if path is not None and path.suffix != ARCHIVE:
        made = request.made({**how, "dtype": str(request.dtype)})
        _write(asked, path, group, layout, problem, solved, error, made)
        answer = group.together(lambda: Distance.load(path))
        request.refuse_larger(error, answer)
        return answer
    values = gathered(group, layout, solved.table, problem.place)
    answer = request.answer(values, error, asked.mdp, asked.policy, how)
    if path is not None:
        group.together(lambda: answer.save(path) if group.index == 0 else None)
    return answer


def _write(
    asked: Asked, path: Path, group: Group, layout: Layout, problem: Problem, solved: Solved,
    error: float, made: dict[str, Any],
) -> None:  # fmt: skip
    """Writes the folder of a table beside its place, each process its rows; then puts it there."""
    path = store_target(path)
    beside = path.with_name(f".{path.name}.part")

    def emptied() -> None:
        if group.index == 0:
            shutil.rmtree(beside, ignore_errors=True)
            with name_write_errors(path, path.parent):
                beside.mkdir()

    def finished() -> None:
        if group.index == 0:
            s, t = (int(problem.states[place]) for place in solved.farthest)
            rows: Any = stored.opened(beside / stored.VALUES, "r")
            values: Any = stored.StoredTable(rows, problem.place, (s, t))
            answer = Distance(values, error, asked.request.kind, asked.mdp, asked.policy, made)
            with name_write_errors(path, path.parent):
                files.write_beside_rows(answer, beside, problem.place, (s, t))
                _put(beside, path)

    try:
        group.together(emptied)
        write_rows(group, layout, solved.table, beside / stored.VALUES, path)
        group.together(finished)
    except BaseException:
        if group.index == 0:
            shutil.rmtree(beside, ignore_errors=True)
        raise


def store_target(path: Path) -> Path:
    """The folder that a stored table at `path` replaces: where its symbolic links lead.

    A stored table and a regular file are replaced, and anything else is refused.
    """
    if not path.is_dir():
        return resolve_target(path)
    if not stored.is_store(path):
        raise InputError(f"{path} is a folder, and no stored table; name another place.")
    return path.resolve()


def _put(beside: Path, path: Path) -> None:
    """Puts a finished folder in its place, and takes away what it replaces."""
    store_target(path)
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.is_file():
        path.unlink()
    elif path.exists():
        path.rename(old)
    beside.rename(path)
    shutil.rmtree(old, ignore_errors=True)

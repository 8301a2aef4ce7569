"""From a request to an answer: the group, its room, the run, and where the table goes."""

from __future__ import annotations

import dataclasses
import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import psutil
from numpy.typing import NDArray

import bisimetric
from bisimetric.distance import Distance, files, stored
from bisimetric.errors import InputError
from bisimetric.exact.sharded.checkpoints import Checkpoint
from bisimetric.exact.sharded.group import Group, joined, watched
from bisimetric.exact.sharded.layout import Layout, laid_out, require_room
from bisimetric.exact.sharded.problem import Problem, stated
from bisimetric.exact.sharded.rising import Run, Solved, solve
from bisimetric.exact.sharded.rows import gathered, require_disk, write_rows
from bisimetric.exact.table import Request, proven_error, require_memory
from bisimetric.files import check_writable
from bisimetric.mdp import MDP

ON_ACCELERATORS = 32
"""Rows that an accelerator works on together; a processor takes them one by one."""


@dataclasses.dataclass(frozen=True)
class Options:
    """Where a sharded table is computed and kept; see `exact.sharded.bisimulation`."""

    output: str | os.PathLike[str] | None
    checkpoint: str | os.PathLike[str] | None
    every: float
    device: str | None
    block: int
    limit: float | None
    about: Mapping[str, str]


def answered(
    request: Request,
    mdp: MDP,
    chain: MDP,
    policy: NDArray[Any] | None,
    options: Options,
) -> Distance:
    """The distance that was asked for, of the dynamics `chain`."""
    where = f"exact.sharded.{request.kind}"
    _check(where, options)
    group = joined(options.device)
    remedy = "start it again" + (
        "" if options.checkpoint is None else f" to go on from {options.checkpoint}"
    )
    with watched(group, remedy), jax.enable_x64(True):
        problem = group.together(lambda: stated(request, chain))
        _agree(where, group, request, problem)
        layout = laid_out(
            problem.num_states,
            group.devices,
            request.dtype,
            block=options.block,
            batch=1 if group.platform == "cpu" else ON_ACCELERATORS,
        )
        checkpoint = _checkpoint(options, request, problem)
        group.together(lambda: _require(where, group, layout, mdp, options))
        if checkpoint is not None:
            group.together(lambda: checkpoint.require_disk(layout))
        solved = solve(Run(group, layout, problem, checkpoint))
        distance = _kept(group, layout, problem, solved, request, mdp, policy, options)
        if checkpoint is not None and options.output is not None:
            checkpoint.removed(group)
    return distance


def _check(where: str, options: Options) -> None:
    if not (options.every > 0 and options.block >= 1):
        raise InputError(
            f"{where}: every is {options.every} and block is {options.block}; both must be above 0."
        )
    if options.limit is not None and not options.limit > 0:
        raise InputError(f"{where}: limit is {options.limit} and must be above 0.")
    if options.output is None:
        return
    path = Path(options.output)
    if not path.is_dir():
        check_writable(path)
    elif not stored.is_store(path):
        raise InputError(f"{where}: {path} is a folder, and no stored table; name another place.")


def _agree(where: str, group: Group, request: Request, problem: Problem) -> None:
    """Refuses processes that would compute different tables."""
    group.same(
        {
            "version of bisimetric": bisimetric.__version__,
            "version of JAX": jax.__version__,
            "distance": f"{request.kind} to {request.tol:g} in {request.dtype}",
            "MDP": problem.fingerprint,
        },
        where,
    )


def _require(where: str, group: Group, layout: Layout, mdp: MDP, options: Options) -> None:
    """Refuses what neither the devices nor the disk can hold, before anything is allocated."""
    free, told = _free(group, options)
    require_room(where, layout, free, told)
    if options.output is None or Path(options.output).suffix == ".npz":
        size = mdp.num_states**2 * layout.dtype.itemsize
        require_memory(where.removeprefix("exact."), mdp.num_states, size)
    else:
        require_disk(where, Path(options.output).parent, layout.states * layout.row_bytes)


def _free(group: Group, options: Options) -> tuple[float, str]:
    """Bytes that each device may hold, and how they came to be known."""
    if options.limit is not None:
        return float(options.limit), "allowed"
    if group.platform != "cpu":
        here = [group.mesh.devices.flat[place].memory_stats() or {} for place in group.own]
        least = min(
            (each.get("bytes_limit", np.inf) - each.get("bytes_in_use", 0) for each in here),
            default=np.inf,
        )
        return float(min(group.hear(least if np.isfinite(least) else 1e30))), "free"
    # The processes of a machine share its memory.
    heard = group.hear([socket.gethostname(), len(group.own), psutil.virtual_memory().available])
    free = []
    for host in {name for name, _, _ in heard}:
        there = [(devices, memory) for name, devices, memory in heard if name == host]
        free.append(min(memory for _, memory in there) / sum(devices for devices, _ in there))
    return float(min(free)), "free"


def _checkpoint(options: Options, request: Request, problem: Problem) -> Checkpoint | None:
    if options.checkpoint is None:
        return None
    run = {
        "distance": str(request.kind),
        "dtype": str(request.dtype),
        "version of bisimetric": bisimetric.__version__,
        "MDP": problem.fingerprint,
    }
    return Checkpoint(Path(options.checkpoint), options.every, run)


def _kept(
    group: Group, layout: Layout, problem: Problem, solved: Solved, request: Request, mdp: MDP,
    policy: NDArray[Any] | None, options: Options,
) -> Distance:  # fmt: skip
    """The answer, on the disk where that was asked for, else in memory."""
    error = proven_error(solved.residual, solved.largest, problem.discount)
    how = {
        **solved.how,
        "classes": layout.states,
        "processes": group.count,
        "devices": layout.devices,
        "jax": jax.__version__,
        **options.about,
    }
    path = None if options.output is None else Path(options.output)
    if path is None or path.suffix == ".npz":
        table = gathered(group, layout, solved.table)
        values = table if np.array_equal(problem.place, np.arange(len(table))) else None
        if values is None:
            values = table[np.ix_(problem.place, problem.place)]
        answer = request.answer(values, error, mdp, policy, how)
        if path is not None:
            group.together(lambda: answer.save(path) if group.index == 0 else None)
        return answer
    beside = path.with_name(f".{path.name}.part")
    try:
        group.together(lambda: _emptied(group, beside))
        write_rows(group, layout, solved.table, beside / stored.VALUES)
        made = request.made({**how, "dtype": str(request.dtype)})
        s, t = (int(problem.states[place]) for place in solved.farthest)

        def finish() -> None:
            if group.index == 0:
                rows: Any = stored.opened(beside / stored.VALUES, "r")
                values: Any = stored.StoredTable(rows, problem.place, (s, t))
                answer = Distance(values, error, request.kind, mdp, policy, made)
                files.write_beside_rows(answer, beside, problem.place, (s, t))
                _put(beside, path)

        group.together(finish)
    except OSError:
        if group.index == 0:
            shutil.rmtree(beside, ignore_errors=True)
        raise
    answer = Distance.load(path)
    request.refuse_larger(error, answer)
    return answer


def _emptied(group: Group, folder: Path) -> None:
    if group.index == 0:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()


def _put(beside: Path, path: Path) -> None:
    """Puts a finished folder in its place, and takes away the one that it replaces."""
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    beside.rename(path)
    shutil.rmtree(old, ignore_errors=True)

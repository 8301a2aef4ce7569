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
from bisimetric.exact.sharded.group import Group, joined, watched
from bisimetric.exact.sharded.keeping import ARCHIVE, Asked, kept, store_target
from bisimetric.exact.sharded.layout import (
    BLOCK,
    LARGE_BLOCK,
    Layout,
    batch_of,
    laid_out,
    require_room,
)
from bisimetric.exact.sharded.problem import Problem, stated
from bisimetric.exact.sharded.rising import Run, solve
from bisimetric.exact.sharded.rows import require_disk
from bisimetric.exact.table import Request, require_memory
from bisimetric.files import check_writable
from bisimetric.mdp import MDP
from bisimetric.memory import available_memory


@dataclasses.dataclass(frozen=True)
class Options:
    """Where a sharded table is computed and kept; see `exact.sharded.bisimulation`."""

    output: str | os.PathLike[str] | None
    checkpoint: str | os.PathLike[str] | None
    every: float
    device: str | None
    block: int | None
    limit: float | None
    about: Mapping[str, str]

    @property
    def path(self) -> Path | None:
        return None if self.output is None else Path(self.output)


def answered(
    request: Request,
    mdp: MDP,
    chain: MDP,
    policy: NDArray[Any] | None,
    options: Options,
    *,
    rounding: float = 0.0,
) -> Distance:
    """The distance that was asked for, of the dynamics `chain`, whose rewards are rounded."""
    where = f"exact.sharded.{request.kind}"
    _check_numbers(where, options)
    group = joined(options.device)
    remedy = "start it again" + (
        "" if options.checkpoint is None else f" to go on from {options.checkpoint}"
    )
    with watched(group, remedy), jax.enable_x64(True):
        group.together(lambda: _check_output(where, options))
        problem = group.together(lambda: stated(request, chain, rounding))
        _agree(where, group, request, problem, options)
        layout = layout_of(group, problem.num_states, request.dtype, options.block)
        checkpoint = _checkpoint(options, request, problem)
        free, told = _free(group, options)
        group.together(lambda: require_room(where, layout, free, told))
        group.together(lambda: _require_place(where, group, layout, mdp, options))
        if checkpoint is not None:
            group.together(lambda: checkpoint.require_disk(layout))
        solved = solve(Run(group, layout, problem, checkpoint))
        asked = Asked(request, mdp, policy, options.path, dict(options.about))
        distance = kept(asked, group, layout, problem, solved)
        if checkpoint is not None and options.output is not None:
            checkpoint.removed(group)
    return distance


def _check_numbers(where: str, options: Options) -> None:
    for name in ("every", "block", "limit"):
        number = getattr(options, name)
        if number is not None and not number > 0:
            raise InputError(f"{where}: {name} is {number} and must be above 0.")


def _check_output(where: str, options: Options) -> None:
    path = options.path
    if path is None:
        return
    try:
        (check_writable if path.suffix == ARCHIVE else store_target)(path)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def layout_of(group: Group, states: int, dtype: np.dtype[Any], block: int | None = None) -> Layout:
    """How a table is split over the devices of a group, as suits their kind."""
    processor = group.platform == "cpu"
    return laid_out(
        states,
        group.devices,
        dtype,
        block=block or (BLOCK if processor else LARGE_BLOCK),
        batch=1 if processor else batch_of(states, group.devices),
    )


def _agree(where: str, group: Group, request: Request, problem: Problem, options: Options) -> None:
    """Refuses processes that would compute different tables, or put them elsewhere."""
    group.same(
        {
            "version of bisimetric": bisimetric.__version__,
            "version of JAX": jax.__version__,
            "distance": f"{request.kind} to {request.tol:g} in {request.dtype}",
            "MDP": problem.fingerprint,
            "output": str(options.output)[-200:],
            "checkpoint": str(options.checkpoint)[-200:],
            "block": str(options.block),
        },
        where,
    )


def _require_place(where: str, group: Group, layout: Layout, mdp: MDP, options: Options) -> None:
    """Refuses what the memory, or the disk where that was asked for, cannot take in the end."""
    if options.path is None or options.path.suffix == ARCHIVE:
        # Every process of a machine gets a whole table, beside the rows of its devices.
        size = mdp.num_states**2 * layout.dtype.itemsize
        rows = layout.needed * len(group.own) if group.platform == "cpu" else 0
        needed = (size + rows) * group.neighbours
        require_memory(where.removeprefix("exact."), mdp.num_states, needed)
    else:
        require_disk(where, options.path.parent, layout.states * layout.row_bytes)


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
    share = available_memory() / (group.neighbours * len(group.own))
    return float(min(group.hear(share))), "free"


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

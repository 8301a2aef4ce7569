"""Dopamine's replay memories: frames in a ring, put together to the stacks that agents saw."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric.archives import read_gzip_array
from bisimetric.datasets.checks import told
from bisimetric.errors import InputError, whole
from bisimetric.files import UNREADABLE, name_input_errors
from bisimetric.mdp.checks import frozen
from bisimetric.memory import require_memory
from bisimetric.transitions import Transitions

ENTRIES = ("observation", "action", "reward", "terminal", "add_count")
"""The arrays of a memory; the last says how many entries were ever added."""


class Memory(NamedTuple):
    """A ring of entries; `frames(count)` are its first frames, at least so many."""

    where: str
    action: NDArray[Any]
    reward: NDArray[Any]
    terminal: NDArray[Any]
    added: int
    frames: Callable[[int], NDArray[Any]]


def from_dopamine(
    source: str | os.PathLike[str] | Mapping[str, Any],
    *,
    checkpoint: int | None = None,
    stack: int = 4,
    limit: int | None = None,
    num_actions: int | None = None,
) -> Transitions:
    """The transitions of a replay memory that Dopamine saved, as the DQN Replay Dataset has them.

    `source` is the folder of `$store$_observation_ckpt.N.gz` and its fellows, N the `checkpoint`,
    by default the newest; or a mapping of arrays: observation (capacity, ...), action, reward,
    terminal, and add_count, which says where the ring is written next (without it, the arrays
    are in the order of time).

    A memory holds single frames, and `stack` - 1 blank ones before each episode. An observation
    is the last `stack` frames, stacked along a last axis: (n, 84, 84, 4) uint8 for Atari, 28 KB,
    and as much for the next observation; `limit` takes the oldest transitions only. Left
    out are those whose stack, or next frame, lies beyond the place where the ring is written.
    The frame after an end was never stored: it is blank.

    Terminal steps are ends. Where blank frames follow without one, the episode was cut; its
    last step has no next frame and is left out. Nothing shows such a cut where `stack` is 1.

    >>> memory = {"observation": np.arange(6).reshape(6, 1), "action": [0, 1, 0, 1, 1, 0],
    ...           "reward": np.ones(6), "terminal": [0, 0, 0, 0, 0, 1]}
    >>> from_dopamine(memory, stack=2).observations.tolist()
    [[[0, 1]], [[1, 2]], [[2, 3]], [[3, 4]], [[4, 5]]]
    """
    stack = whole("from_dopamine", "stack", stack, 1)
    if limit is not None:
        limit = whole("from_dopamine", "limit", limit, 1)
    memory = _given(source) if isinstance(source, Mapping) else _opened(Path(source), checkpoint)
    with name_input_errors(memory.where):
        return _transitions(memory, stack, limit, num_actions)


def _transitions(
    memory: Memory, stack: int, limit: int | None, num_actions: int | None
) -> Transitions:
    order = _order(memory)
    ends = memory.terminal[order] > 0
    places, frames = _chosen(memory, order, ends, stack, limit)
    if not len(places):
        raise InputError(
            f"{memory.where}: none of its {len(order)} entries has {stack} frames and a next one."
        )
    needed = 2.0 * len(places) * stack * frames[:1].nbytes
    require_memory(f"{memory.where}: {len(places):,} transitions need", needed, "give a limit")
    rows = order[places]
    observations, following = (
        np.empty((len(places), *frames.shape[1:], stack), dtype=frames.dtype) for _ in range(2)
    )
    for layer in range(stack):
        back = stack - 1 - layer
        observations[..., layer] = frames[order[places - back]]
        if back:
            following[..., layer] = frames[order[places - back + 1]]
    over = ends[places]
    following[..., -1] = 0
    following[~over, ..., -1] = frames[order[places[~over] + 1]]
    return Transitions(
        frozen(observations),
        frozen(memory.action[rows].astype(np.int64)),
        frozen(memory.reward[rows].astype(np.float64)),
        frozen(following),
        frozen(over),
        frozen(~over & (np.diff(places, append=-1) != 1)),
        num_actions=num_actions,
        made=told({"memory": memory.where, "added": memory.added, "stack": stack, "limit": limit}),
    )


def _order(memory: Memory) -> NDArray[np.int64]:
    """The rows of a ring, oldest first; once it is full, that is where it is written next."""
    size = len(memory.terminal)
    rows = np.arange(min(memory.added, size))
    return (rows + memory.added % size) % size if memory.added > size else rows


def _chosen(
    memory: Memory,
    order: NDArray[np.int64],
    ends: NDArray[np.bool_],
    stack: int,
    limit: int | None,
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The places in time of the first whole transitions, and the frames that they need."""
    whole = np.flatnonzero(_whole(ends, stack))
    if not len(whole):
        return whole, np.empty(0)
    count = len(whole) if limit is None else min(limit, len(whole))
    while True:
        reach = order[: whole[count - 1] + 1 + stack]
        frames = memory.frames(int(reach.max()) + 1)
        if frames.dtype.kind not in "biuf" or not (frames.ndim and frames.size):
            raise InputError(
                f"{memory.where}: its frames are {frames.dtype} of shape {frames.shape} and must "
                "be numbers."
            )
        if len(frames) <= reach.max():
            raise InputError(f"{memory.where}: it has {len(frames)} frames, fewer than actions.")
        blank = ~np.asarray(frames.reshape(len(frames), -1).any(axis=1))[reach]
        blank &= (memory.action[reach] == 0) & (memory.reward[reach] == 0)
        places = whole[:count][~_cut(blank, ends[: len(reach)], stack)[whole[:count]]]
        if count == len(whole) or len(places) >= (limit or 0):
            return places[:limit], frames
        # Some were cut, which only the frames tell: look further.
        count = min(2 * count, len(whole))


def _whole(ends: NDArray[np.bool_], stack: int) -> NDArray[np.bool_]:
    """Where a stack lies within one episode, and a next frame is known or not needed."""
    whole = np.arange(len(ends)) >= stack - 1
    for back in range(1, stack):
        whole[back:] &= ~ends[:-back]
    whole[-1:] &= ends[-1:]
    return whole


def _cut(blank: NDArray[np.bool_], ends: NDArray[np.bool_], stack: int) -> NDArray[np.bool_]:
    """The blank frames before an episode that follows one without an end, and the step before."""
    cut = np.zeros_like(blank)
    if stack == 1 or len(blank) < stack:
        return cut
    runs = np.asarray(np.lib.stride_tricks.sliding_window_view(blank, stack - 1).all(axis=1))
    begins = runs[1:] & ~blank[: len(runs) - 1] & ~ends[: len(runs) - 1]
    for last in np.flatnonzero(begins):
        cut[last : last + stack] = True
    return cut


def _given(source: Mapping[str, Any]) -> Memory:
    where = "from_dopamine"
    lacking = [name for name in ENTRIES[:-1] if name not in source]
    if lacking:
        needs = ", ".join(ENTRIES[:-1])
        raise InputError(f"{where}: the mapping has no {lacking[0]!r}; it needs {needs}.")
    arrays = {name: np.asarray(source[name]) for name in ENTRIES[:-1]}
    added = source.get("add_count", len(arrays["observation"]))
    return _checked(where, arrays, added, lambda count: arrays["observation"])


def _opened(folder: Path, checkpoint: int | None) -> Memory:
    """The memory in a folder; its frames are read when they are asked for."""
    numbers = [
        int(found[1])
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (found := re.fullmatch(r"\$store\$_observation_ckpt\.(\d+)\.gz", path.name))
    ]
    if not numbers or (checkpoint is not None and checkpoint not in numbers):
        wanted = "N" if checkpoint is None else checkpoint
        there = f"; there are checkpoints {sorted(numbers)}" if numbers else ""
        raise InputError(f"{folder}: holds no file $store$_observation_ckpt.{wanted}.gz{there}.")
    number = max(numbers) if checkpoint is None else checkpoint

    def path(name: str) -> Path:
        return folder / f"{'' if name == 'add_count' else '$store$_'}{name}_ckpt.{number}.gz"

    arrays = {name: _read(path(name), None) for name in ENTRIES[1:]}
    added = arrays.pop("add_count")
    frames = path("observation")
    return _checked(f"{folder}, checkpoint {number}", arrays, added, lambda n: _read(frames, n))


def _checked(
    where: str, arrays: dict[str, NDArray[Any]], added: Any, frames: Callable[[int], NDArray[Any]]
) -> Memory:
    sizes = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise InputError(f"{where}: its arrays have different lengths, {sizes}.")
    counted = np.asarray(added)
    if counted.ndim or counted.dtype.kind not in "iu":
        raise InputError(
            f"{where}: add_count is {counted.dtype} of shape {counted.shape} and must be one whole "
            "number."
        )
    if not sizes["terminal"] or whole(where, "add_count", added) == 0:
        raise InputError(f"{where}: the memory is empty.")
    for name, kinds in {"action": "biu", "reward": "biuf", "terminal": "biuf"}.items():
        found = arrays[name]
        if found.ndim != 1 or found.dtype.kind not in kinds:
            wanted = "numbers" if "f" in kinds else "whole numbers"
            raise InputError(
                f"{where}: {name} is {found.dtype} of shape {found.shape} and must be {wanted}, "
                "one per entry."
            )
    action, reward, terminal = (arrays[name] for name in ENTRIES[1:4])
    return Memory(where, action, reward, terminal, int(added), frames)


def _read(path: Path, count: int | None) -> NDArray[Any]:
    """A compressed .npy file, or its first `count` rows: frames are most of what there is."""
    try:
        return read_gzip_array(path, count)
    except (*UNREADABLE, OSError) as error:
        raise InputError(f"{path}: cannot be read ({error}).") from None

"""Read the replay buffers of Dopamine and Stable-Baselines3."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric._io import ARCHIVE_ERRORS, name_input_errors, read_gzip_array
from bisimetric._memory import require_memory
from bisimetric.datasets.actions import ActionEncoder
from bisimetric.datasets.observations import ObservationEncoder, StateOf, unstack_values
from bisimetric.errors import InputError, require_integer
from bisimetric.mdp._validation import freeze
from bisimetric.transitions import Transitions
from bisimetric.transitions._validation import collect_metadata

DOPAMINE_ARRAYS = ("observation", "action", "reward", "terminal", "add_count")
"""The arrays of a replay memory; the last counts all entries ever added."""


class DopamineMemory(NamedTuple):
    """A ring buffer of entries; `read_frames(n)` returns at least its first n frames."""

    source: str
    action: NDArray[Any]
    reward: NDArray[Any]
    terminal: NDArray[Any]
    add_count: int
    read_frames: Callable[[int], NDArray[Any]]


def from_dopamine(
    source: str | os.PathLike[str] | Mapping[str, Any],
    *,
    checkpoint: int | None = None,
    stack_size: int = 4,
    max_transitions: int | None = None,
    num_actions: int | None = None,
) -> Transitions:
    """Read a replay memory in the format of Dopamine and the DQN Replay Dataset.

    The memory stores single frames, with `stack_size` - 1 blank ones before each episode. An
    observation stacks the last `stack_size` frames along a last axis: (n, 84, 84, 4) uint8 for
    Atari, 28 KB, and as much for the next observation. Transitions whose stack or next frame
    crosses the write position are omitted. The frame after termination was never stored and is
    blank.

    Blank frames that follow without termination mean truncation; the last step before them has no
    next frame and is omitted. With `stack_size` 1 truncation cannot be detected.

    Args:
        source: a folder with `$store$_observation_ckpt.N.gz` and the other arrays of checkpoint N;
            or a mapping with the arrays observation (capacity, ...), action, reward, terminal,
            and optionally add_count, which determines the write position; without it the arrays
            are in chronological order.
        checkpoint: the number N; None is the newest.
        stack_size: frames per observation.
        max_transitions: reads only the oldest transitions; None reads all.
        num_actions: the number of actions; None is the largest action + 1.

    Returns:
        The transitions in chronological order.

    Raises:
        InputError: there is no such checkpoint, or an array is damaged or of a wrong shape.
        InsufficientMemory: the observations would not fit into memory.

    >>> memory = {"observation": np.arange(6).reshape(6, 1), "action": [0, 1, 0, 1, 1, 0],
    ...           "reward": np.ones(6), "terminal": [0, 0, 0, 0, 0, 1]}
    >>> from_dopamine(memory, stack_size=2).observations.tolist()
    [[[0, 1]], [[1, 2]], [[2, 3]], [[3, 4]], [[4, 5]]]
    """
    stack_size = require_integer("from_dopamine", "stack_size", stack_size, 1)
    if max_transitions is not None:
        max_transitions = require_integer("from_dopamine", "max_transitions", max_transitions, 1)
    memory = (
        _memory_from_arrays(source)
        if isinstance(source, Mapping)
        else _open_memory(Path(source), checkpoint)
    )
    with name_input_errors(memory.source):
        return _build_transitions(memory, stack_size, max_transitions, num_actions)


def _build_transitions(
    memory: DopamineMemory, stack_size: int, max_transitions: int | None, num_actions: int | None
) -> Transitions:
    """Stack the frames of the selected transitions."""
    order = _chronological_order(memory)
    terminal = memory.terminal[order] > 0
    times, frames = _select_transitions(memory, order, terminal, stack_size, max_transitions)
    if not len(times):
        raise InputError(
            f"{memory.source}: none of its {len(order)} entries has {stack_size} frames and a "
            "next one."
        )
    needed = 2.0 * len(times) * stack_size * frames[:1].nbytes
    require_memory(
        f"{memory.source}: {len(times):,} transitions need", needed, "pass max_transitions"
    )
    rows = order[times]
    observations, next_observations = (
        np.empty((len(times), *frames.shape[1:], stack_size), dtype=frames.dtype) for _ in range(2)
    )
    for layer in range(stack_size):
        age = stack_size - 1 - layer
        observations[..., layer] = frames[order[times - age]]
        if age:
            next_observations[..., layer] = frames[order[times - age + 1]]
    terminated = terminal[times]
    next_observations[..., -1] = 0
    next_observations[~terminated, ..., -1] = frames[order[times[~terminated] + 1]]
    return Transitions(
        freeze(observations),
        freeze(memory.action[rows].astype(np.int64)),
        freeze(memory.reward[rows].astype(np.float64)),
        freeze(next_observations),
        freeze(terminated),
        freeze(~terminated & (np.diff(times, append=-1) != 1)),
        num_actions=num_actions,
        metadata=collect_metadata(
            {
                "memory": memory.source,
                "add_count": memory.add_count,
                "stack_size": stack_size,
                "max_transitions": max_transitions,
            }
        ),
    )


def _chronological_order(memory: DopamineMemory) -> NDArray[np.int64]:
    """Return the rows of the ring buffer, oldest first."""
    size = len(memory.terminal)
    rows = np.arange(min(memory.add_count, size))
    return (rows + memory.add_count % size) % size if memory.add_count > size else rows


def _select_transitions(
    memory: DopamineMemory,
    order: NDArray[np.int64],
    terminal: NDArray[np.bool_],
    stack_size: int,
    max_transitions: int | None,
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return the times of the first complete transitions, and the frames that they need."""
    complete = np.flatnonzero(_find_complete_stacks(terminal, stack_size))
    if not len(complete):
        return complete, np.empty(0)
    count = len(complete) if max_transitions is None else min(max_transitions, len(complete))
    while True:
        rows = order[: complete[count - 1] + 1 + stack_size]
        frames = memory.read_frames(int(rows.max()) + 1)
        if frames.dtype.kind not in "biuf" or not (frames.ndim and frames.size):
            raise InputError(
                f"{memory.source}: its frames are {frames.dtype} of shape {frames.shape} and must "
                "be numbers."
            )
        if len(frames) <= rows.max():
            raise InputError(f"{memory.source}: it has {len(frames)} frames, fewer than actions.")
        blank = ~np.asarray(frames.reshape(len(frames), -1).any(axis=1))[rows]
        blank &= (memory.action[rows] == 0) & (memory.reward[rows] == 0)
        times = complete[:count][
            ~_find_truncations(blank, terminal[: len(rows)], stack_size)[complete[:count]]
        ]
        if count == len(complete) or len(times) >= (max_transitions or 0):
            return times[:max_transitions], frames
        # Some were truncated, which only the frames show: read more.
        count = min(2 * count, len(complete))


def _find_complete_stacks(terminal: NDArray[np.bool_], stack_size: int) -> NDArray[np.bool_]:
    """Whether a stack lies within one episode, and its next frame exists or is not needed."""
    complete = np.arange(len(terminal)) >= stack_size - 1
    for age in range(1, stack_size):
        complete[age:] &= ~terminal[:-age]
    complete[-1:] &= terminal[-1:]
    return complete


def _find_truncations(
    blank: NDArray[np.bool_], terminal: NDArray[np.bool_], stack_size: int
) -> NDArray[np.bool_]:
    """Mark the blank frames after a truncated episode, and its last step."""
    truncated = np.zeros_like(blank)
    if stack_size == 1 or len(blank) < stack_size:
        return truncated
    runs = np.asarray(np.lib.stride_tricks.sliding_window_view(blank, stack_size - 1).all(axis=1))
    starts = runs[1:] & ~blank[: len(runs) - 1] & ~terminal[: len(runs) - 1]
    for last in np.flatnonzero(starts):
        truncated[last : last + stack_size] = True
    return truncated


def _memory_from_arrays(source: Mapping[str, Any]) -> DopamineMemory:
    """Validate the arrays of a mapping."""
    caller = "from_dopamine"
    missing = [name for name in DOPAMINE_ARRAYS[:-1] if name not in source]
    if missing:
        needs = ", ".join(DOPAMINE_ARRAYS[:-1])
        raise InputError(f"{caller}: the mapping has no {missing[0]!r}; it needs {needs}.")
    arrays = {name: np.asarray(source[name]) for name in DOPAMINE_ARRAYS[:-1]}
    added = source.get("add_count", len(arrays["observation"]))
    return _validate_memory(caller, arrays, added, lambda count: arrays["observation"])


def _open_memory(folder: Path, checkpoint: int | None) -> DopamineMemory:
    """Open the memory in a folder; its frames are read on demand."""
    numbers = [
        int(found[1])
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (found := re.fullmatch(r"\$store\$_observation_ckpt\.(\d+)\.gz", path.name))
    ]
    if not numbers or (checkpoint is not None and checkpoint not in numbers):
        expected = "N" if checkpoint is None else checkpoint
        there = f"; there are checkpoints {sorted(numbers)}" if numbers else ""
        raise InputError(f"{folder}: holds no file $store$_observation_ckpt.{expected}.gz{there}.")
    number = max(numbers) if checkpoint is None else checkpoint

    def path(name: str) -> Path:
        return folder / f"{'' if name == 'add_count' else '$store$_'}{name}_ckpt.{number}.gz"

    arrays = {name: _read_array(path(name), None) for name in DOPAMINE_ARRAYS[1:]}
    added = arrays.pop("add_count")
    frames = path("observation")
    return _validate_memory(
        f"{folder}, checkpoint {number}", arrays, added, lambda n: _read_array(frames, n)
    )


def _validate_memory(
    source: str,
    arrays: dict[str, NDArray[Any]],
    add_count: Any,
    read_frames: Callable[[int], NDArray[Any]],
) -> DopamineMemory:
    """Raise InputError unless the arrays have one length and the right types."""
    sizes = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise InputError(f"{source}: its arrays have different lengths, {sizes}.")
    counted = np.asarray(add_count)
    if counted.ndim or counted.dtype.kind not in "iu":
        raise InputError(
            f"{source}: add_count is {counted.dtype} of shape {counted.shape} and must be one "
            "whole number."
        )
    if not sizes["terminal"] or require_integer(source, "add_count", add_count) == 0:
        raise InputError(f"{source}: the memory is empty.")
    for name, kinds in {"action": "biu", "reward": "biuf", "terminal": "biuf"}.items():
        found = arrays[name]
        if found.ndim != 1 or found.dtype.kind not in kinds:
            expected = "numbers" if "f" in kinds else "whole numbers"
            raise InputError(
                f"{source}: {name} is {found.dtype} of shape {found.shape} and must be {expected}, "
                "one per entry."
            )
    action, reward, terminal = (arrays[name] for name in DOPAMINE_ARRAYS[1:4])
    return DopamineMemory(source, action, reward, terminal, int(add_count), read_frames)


def _read_array(path: Path, num_rows: int | None) -> NDArray[Any]:
    """Read a compressed .npy file, or its first rows only."""
    try:
        return read_gzip_array(path, num_rows)
    except (*ARCHIVE_ERRORS, OSError) as error:
        raise InputError(f"{path}: cannot be read ({error}).") from None


STABLE_BASELINES_ARRAYS = ("observations", "actions", "rewards", "dones", "timeouts")
STABLE_BASELINES_FIELDS = (
    *STABLE_BASELINES_ARRAYS,
    "pos",
    "full",
    "n_envs",
    "observation_space",
    "action_space",
)
"""The attributes of a buffer that are read."""


def from_stable_baselines(buffer: Any, *, state_of: StateOf | None = None) -> Transitions:
    """Read a replay buffer of Stable-Baselines3, such as `model.replay_buffer`.

    Steps are stored environment by environment, oldest first. A step that is done terminates the
    episode, unless it timed out: then it is truncated, and so is the newest step of each
    environment. Ids of states are assigned as in `rollout`.

    Limits of the format: buffers that do not handle timeouts, such as those with
    `optimize_memory_usage`, record truncation as termination; the latter also replace the final
    observation by the first one of the next episode. Rewards are rounded to float32, and continuous
    actions scaled to [-1, 1].

    Args:
        buffer: the replay buffer.
        state_of: state_of(None, observation) returns anything hashable that identifies the state,
            or None.

    Returns:
        The transitions.

    Raises:
        InputError: the argument is no such buffer, or it is empty.

    >>> from_stable_baselines(model.replay_buffer)  # doctest: +SKIP
    Transitions(10,000 steps, ...)
    """
    caller = f"datasets: {type(buffer).__name__}"
    missing = [name for name in STABLE_BASELINES_FIELDS if not hasattr(buffer, name)]
    if missing:
        raise InputError(
            f"{caller} has no {missing[0]}, so it is no replay buffer of Stable-Baselines3; give "
            "model.replay_buffer."
        )
    times = _chronological_rows(buffer)
    if not len(times):
        raise InputError(f"{caller} is empty; train the model first.")
    next_times = times
    field = "next_observations"
    if getattr(buffer, "optimize_memory_usage", False):
        next_times, field = (times + 1) % len(buffer.rewards), "observations"
    observer = ObservationEncoder(buffer.observation_space, caller, state_of)
    actions = ActionEncoder(buffer.action_space, caller)
    observations, states = _encode_observations(buffer, "observations", times, observer)
    next_observations, next_states = _encode_observations(buffer, field, next_times, observer)
    done = _order_by_environment(buffer.dones, times) > 0
    timed_out = _order_by_environment(buffer.timeouts, times) > 0
    newest = np.arange(len(done)) % len(times) == len(times) - 1
    terminated = done & ~timed_out
    return Transitions(
        freeze(observations),
        freeze(actions.encode_batch(_order_by_environment(buffer.actions, times))),
        freeze(_order_by_environment(buffer.rewards, times).astype(np.float64)),
        freeze(next_observations),
        freeze(terminated),
        freeze((done | newest) & ~terminated),
        states=states,
        next_states=next_states,
        num_actions=actions.num_actions,
        metadata=collect_metadata(
            {"buffer": type(buffer).__name__, "environments": int(buffer.n_envs)}
        ),
        **observer.describe_states(),
    )


def _chronological_rows(buffer: Any) -> NDArray[np.int64]:
    """Return the complete rows of a buffer, oldest first."""
    if not buffer.full:
        return np.arange(buffer.pos)
    times: NDArray[np.int64] = np.roll(np.arange(len(buffer.rewards)), -buffer.pos)
    # Where observations are stored once, the newest overwrote the oldest.
    return times[1:] if getattr(buffer, "optimize_memory_usage", False) else times


def _order_by_environment(array: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Reorder rows (time, environment, ...) to (n, ...), environment by environment."""
    chosen = np.swapaxes(np.asarray(array)[rows], 0, 1)
    return chosen.reshape(-1, *chosen.shape[2:])


def _encode_observations(
    buffer: Any, name: str, rows: NDArray[np.int64], encoder: ObservationEncoder
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Encode the observations of a buffer: arrays (n, ...) and ids (n,) or None."""
    stored = getattr(buffer, name)
    if isinstance(stored, dict):
        stored = {part: _order_by_environment(array, rows) for part, array in stored.items()}
        return encoder.encode_batch(unstack_values(stored, len(rows) * buffer.n_envs))
    return encoder.encode_batch(_order_by_environment(stored, rows))

"""Dopamine's replay memories: frames in a ring, put together to the stacks that agents saw.

Replay buffers of Stable-Baselines3: their arrays, in the order of time.
"""

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
"""The arrays of a memory; the last says how many entries were ever added."""


class DopamineMemory(NamedTuple):
    """A ring of entries; `frames(count)` are its first frames, at least so many."""

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
    stack_size = require_integer("from_dopamine", "stack", stack_size, 1)
    if max_transitions is not None:
        max_transitions = require_integer("from_dopamine", "limit", max_transitions, 1)
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
    order = _chronological_order(memory)
    ends = memory.terminal[order] > 0
    places, frames = _select_transitions(memory, order, ends, stack_size, max_transitions)
    if not len(places):
        raise InputError(
            f"{memory.source}: none of its {len(order)} entries has {stack_size} frames and a next one."
        )
    needed = 2.0 * len(places) * stack_size * frames[:1].nbytes
    require_memory(f"{memory.source}: {len(places):,} transitions need", needed, "give a limit")
    rows = order[places]
    observations, following = (
        np.empty((len(places), *frames.shape[1:], stack_size), dtype=frames.dtype) for _ in range(2)
    )
    for layer in range(stack_size):
        back = stack_size - 1 - layer
        observations[..., layer] = frames[order[places - back]]
        if back:
            following[..., layer] = frames[order[places - back + 1]]
    over = ends[places]
    following[..., -1] = 0
    following[~over, ..., -1] = frames[order[places[~over] + 1]]
    return Transitions(
        freeze(observations),
        freeze(memory.action[rows].astype(np.int64)),
        freeze(memory.reward[rows].astype(np.float64)),
        freeze(following),
        freeze(over),
        freeze(~over & (np.diff(places, append=-1) != 1)),
        num_actions=num_actions,
        metadata=collect_metadata(
            {
                "memory": memory.source,
                "added": memory.add_count,
                "stack": stack_size,
                "limit": max_transitions,
            }
        ),
    )


def _chronological_order(memory: DopamineMemory) -> NDArray[np.int64]:
    """The rows of a ring, oldest first; once it is full, that is where it is written next."""
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
    """The places in time of the first whole transitions, and the frames that they need."""
    whole = np.flatnonzero(_find_complete_stacks(terminal, stack_size))
    if not len(whole):
        return whole, np.empty(0)
    count = len(whole) if max_transitions is None else min(max_transitions, len(whole))
    while True:
        reach = order[: whole[count - 1] + 1 + stack_size]
        frames = memory.read_frames(int(reach.max()) + 1)
        if frames.dtype.kind not in "biuf" or not (frames.ndim and frames.size):
            raise InputError(
                f"{memory.source}: its frames are {frames.dtype} of shape {frames.shape} and must "
                "be numbers."
            )
        if len(frames) <= reach.max():
            raise InputError(f"{memory.source}: it has {len(frames)} frames, fewer than actions.")
        blank = ~np.asarray(frames.reshape(len(frames), -1).any(axis=1))[reach]
        blank &= (memory.action[reach] == 0) & (memory.reward[reach] == 0)
        places = whole[:count][
            ~_find_truncations(blank, terminal[: len(reach)], stack_size)[whole[:count]]
        ]
        if count == len(whole) or len(places) >= (max_transitions or 0):
            return places[:max_transitions], frames
        # Some were cut, which only the frames tell: look further.
        count = min(2 * count, len(whole))


def _find_complete_stacks(terminal: NDArray[np.bool_], stack_size: int) -> NDArray[np.bool_]:
    """Where a stack lies within one episode, and a next frame is known or not needed."""
    whole = np.arange(len(terminal)) >= stack_size - 1
    for back in range(1, stack_size):
        whole[back:] &= ~terminal[:-back]
    whole[-1:] &= terminal[-1:]
    return whole


def _find_truncations(
    blank: NDArray[np.bool_], terminal: NDArray[np.bool_], stack_size: int
) -> NDArray[np.bool_]:
    """The blank frames before an episode that follows one without an end, and the step before."""
    cut = np.zeros_like(blank)
    if stack_size == 1 or len(blank) < stack_size:
        return cut
    runs = np.asarray(np.lib.stride_tricks.sliding_window_view(blank, stack_size - 1).all(axis=1))
    begins = runs[1:] & ~blank[: len(runs) - 1] & ~terminal[: len(runs) - 1]
    for last in np.flatnonzero(begins):
        cut[last : last + stack_size] = True
    return cut


def _memory_from_arrays(source: Mapping[str, Any]) -> DopamineMemory:
    where = "from_dopamine"
    lacking = [name for name in DOPAMINE_ARRAYS[:-1] if name not in source]
    if lacking:
        needs = ", ".join(DOPAMINE_ARRAYS[:-1])
        raise InputError(f"{where}: the mapping has no {lacking[0]!r}; it needs {needs}.")
    arrays = {name: np.asarray(source[name]) for name in DOPAMINE_ARRAYS[:-1]}
    added = source.get("add_count", len(arrays["observation"]))
    return _validate_memory(where, arrays, added, lambda count: arrays["observation"])


def _open_memory(folder: Path, checkpoint: int | None) -> DopamineMemory:
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
    sizes = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise InputError(f"{source}: its arrays have different lengths, {sizes}.")
    counted = np.asarray(add_count)
    if counted.ndim or counted.dtype.kind not in "iu":
        raise InputError(
            f"{source}: add_count is {counted.dtype} of shape {counted.shape} and must be one whole "
            "number."
        )
    if not sizes["terminal"] or require_integer(source, "add_count", add_count) == 0:
        raise InputError(f"{source}: the memory is empty.")
    for name, kinds in {"action": "biu", "reward": "biuf", "terminal": "biuf"}.items():
        found = arrays[name]
        if found.ndim != 1 or found.dtype.kind not in kinds:
            wanted = "numbers" if "f" in kinds else "whole numbers"
            raise InputError(
                f"{source}: {name} is {found.dtype} of shape {found.shape} and must be {wanted}, "
                "one per entry."
            )
    action, reward, terminal = (arrays[name] for name in DOPAMINE_ARRAYS[1:4])
    return DopamineMemory(source, action, reward, terminal, int(add_count), read_frames)


def _read_array(path: Path, num_rows: int | None) -> NDArray[Any]:
    """A compressed .npy file, or its first `count` rows: frames are most of what there is."""
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
"""What is read of a buffer."""


def from_stable_baselines(buffer: Any, *, state_of: StateOf | None = None) -> Transitions:
    """The transitions of a replay buffer of Stable-Baselines3, such as `model.replay_buffer`.

    They are stored environment by environment, oldest first. A step that is done is an end,
    unless it timed out: that is a cut, and so is the newest step of each environment. Ids of states
    are given as in `rollout`; `state_of(None, observation)` may tell states apart.

    What the buffer does not hold, nobody can read from it. One that does not handle timeouts,
    such as one with `optimize_memory_usage`, calls every cut an end; with the latter, what was
    observed at an end is also lost, and the next episode's first observation stands there.
    Rewards are rounded to float32, and continuous actions scaled to [-1, 1].

        model = stable_baselines3.DQN("MlpPolicy", "CartPole-v1").learn(10_000)
        from_stable_baselines(model.replay_buffer)
    """
    where = f"datasets: {type(buffer).__name__}"
    lacking = [name for name in STABLE_BASELINES_FIELDS if not hasattr(buffer, name)]
    if lacking:
        raise InputError(
            f"{where} has no {lacking[0]}, so it is no replay buffer of Stable-Baselines3; give "
            "model.replay_buffer."
        )
    times = _chronological_rows(buffer)
    if not len(times):
        raise InputError(f"{where} is empty; let the model learn first.")
    following = times
    source = "next_observations"
    if getattr(buffer, "optimize_memory_usage", False):
        following, source = (times + 1) % len(buffer.rewards), "observations"
    observer = ObservationEncoder(buffer.observation_space, where, state_of)
    actions = ActionEncoder(buffer.action_space, where)
    observed, states = _encode_observations(buffer, "observations", times, observer)
    after, next_states = _encode_observations(buffer, source, following, observer)
    done = _order_by_environment(buffer.dones, times) > 0
    late = _order_by_environment(buffer.timeouts, times) > 0
    newest = np.arange(len(done)) % len(times) == len(times) - 1
    terminated = done & ~late
    return Transitions(
        freeze(observed),
        freeze(actions.encode_batch(_order_by_environment(buffer.actions, times))),
        freeze(_order_by_environment(buffer.rewards, times).astype(np.float64)),
        freeze(after),
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
    """The rows of a buffer, oldest first, those that are whole."""
    if not buffer.full:
        return np.arange(buffer.pos)
    times: NDArray[np.int64] = np.roll(np.arange(len(buffer.rewards)), -buffer.pos)
    # Where observations are stored once, the newest one took the place of the oldest.
    return times[1:] if getattr(buffer, "optimize_memory_usage", False) else times


def _order_by_environment(array: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Rows (time, environment, ...) as (n, ...), environment by environment."""
    chosen = np.swapaxes(np.asarray(array)[rows], 0, 1)
    return chosen.reshape(-1, *chosen.shape[2:])


def _encode_observations(
    buffer: Any, name: str, rows: NDArray[np.int64], encoder: ObservationEncoder
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    stored = getattr(buffer, name)
    if isinstance(stored, dict):
        stored = {part: _order_by_environment(array, rows) for part, array in stored.items()}
        return encoder.encode_batch(unstack_values(stored, len(rows) * buffer.n_envs))
    return encoder.encode_batch(_order_by_environment(stored, rows))

"""Rollouts: a policy acts in an environment, and every step is kept."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bisimetric._memory import require_memory
from bisimetric._progress import show_progress
from bisimetric.datasets.observations import StateOf
from bisimetric.datasets.recorder import EnvironmentStep, Recorder, RolloutLimits, build_recorder
from bisimetric.errors import InputError, require_integer
from bisimetric.transitions import Transitions

Policy = Callable[[Any], Any] | ArrayLike | None
PROGRESS_INTERVAL = 256
"""Steps between two movements of the bar."""
STEP_BYTES, OBSERVATION_COPIES = 400, 3
"""Bytes of a step in memory besides its observation, and how often that is held."""


def rollout(
    environment: Any,
    policy: Policy = None,
    *,
    steps: int | None = None,
    episodes: int | None = None,
    seed: int = 0,
    environment_seed: int | None = None,
    same_start: bool | None = None,
    state_of: StateOf | None = None,
    max_episode_steps: int | None = None,
    **make_options: Any,
) -> Transitions:
    """What happens in an environment: so many `steps`, or `episodes`, whichever are fewer.

    `environment` is one of Gymnasium's, a vector environment, or an id, which `make_options` go
    with; its limit of time stays, and truncates. The last step is truncated too, unless the
    episode ended there. An environment whose episodes may last for ever needs `steps` or
    `max_episode_steps`.

    | `policy` | what it does |
    |---|---|
    | None | any action, at random |
    | a function | of an observation, as the environment gives it, to an action |
    | an array (S,) or (S, A) | actions or probabilities, by id; observations must be Discrete |

    The same `key` gives the same steps, another key others. The environment is reset with
    `seed`, or `key` where there is none, once; then its chance goes on. `same_start` resets it
    with that seed before every episode: all of them start alike, in one room.

    Discrete observations are the ids of states, as in `worlds.from_gymnasium`, with its names,
    positions and actions; so are the ids of actions. MultiDiscrete, MultiBinary and Text ones,
    and Tuples and Dicts of them, get ids in the order of first appearance. Others have none,
    unless `state_of(environment, observation)` tells states apart: by anything hashable; texts,
    numbers and tuples of them are also the names. Observations that are Tuples or Dicts are kept
    as one vector, actions that are not Discrete as floats, without ids.

    For MiniGrid, states and names are those of `worlds.enumerate_environment` with the same
    seed, and `same_start` is the default; without it, rooms differ from episode to episode and
    there are no ids. Its rewards shrink with the clock, which is held at 0 here: reaching the goal
    pays 1 at any time. Episodes are cut after `max_episode_steps`, by default as many as the
    environment allows. The image of an observation is kept.

    Vector environments may reset in the same step, in the next one, or when told to. The limits
    are shared among their environments, which are reset with seed, seed + 1, and so on; a
    function gets a batch of observations and returns a batch of actions. Steps are
    stored environment by environment. `state_of` gets None as its environment.

    >>> rollout("FrozenLake-v1", steps=1000, is_slippery=False)
    Transitions(1,000 steps, ... episodes, 16 states, 4 actions)
    >>> rollout("CartPole-v1", lambda observed: int(observed[2] > 0), episodes=10)
    Transitions(... steps, 10 episodes, observations (4,) float32, 2 actions)
    """
    recording = build_recorder(
        environment,
        policy,
        RolloutLimits(steps, episodes),
        seed=seed,
        environment_seed=environment_seed,
        same_start=same_start,
        state_of=state_of,
        max_episode_steps=max_episode_steps,
        make_options=make_options,
    )
    if steps is None and episodes is None:
        raise InputError(
            f"{recording.environment_name}: give steps or episodes, so that the rollout ends."
        )
    kept: list[EnvironmentStep] = []
    with show_progress(1.0, f"steps in {recording.environment_name}") as progress:
        ended = 0
        for step in recording.steps:
            if not kept:
                _require_rollout_memory(recording.environment_name, step, steps, episodes)
            kept.append(step)
            ended += step.terminated or step.truncated
            if len(kept) % PROGRESS_INTERVAL == 0:
                done = max(len(kept) / (steps or np.inf), ended / (episodes or np.inf))
                progress.set_position(done, f"{len(kept):,} taken")
    return recording.build_transitions(kept)


def _require_rollout_memory(
    environment_name: str, first_step: EnvironmentStep, steps: int | None, episodes: int | None
) -> None:
    """Refuses more steps than the memory holds; an episode has at least one."""
    fewest = min(each for each in (steps, episodes) if each is not None)
    observed = np.asarray(first_step.observation.array).nbytes
    require_memory(
        f"{environment_name}: {fewest:,} steps need",
        fewest * (STEP_BYTES + OBSERVATION_COPIES * observed),
        "take fewer, or use datasets.stream",
    )


def stream(
    environment: Any,
    policy: Policy = None,
    *,
    chunk_size: int = 1024,
    steps: int | None = None,
    episodes: int | None = None,
    seed: int = 0,
    environment_seed: int | None = None,
    same_start: bool | None = None,
    state_of: StateOf | None = None,
    max_episode_steps: int | None = None,
    **make_options: Any,
) -> Iterator[Transitions]:
    """The steps of `rollout` with the same arguments as they are taken, `chunk` by `chunk`.

    Endless without `steps` and `episodes`. Where states are numbered as they appear,
    `num_states` grows from chunk to chunk. An episode may go on in the next chunk; but chunks of
    a vector environment are stored environment by environment, and cut episodes at their ends.

    >>> for part in stream("FrozenLake-v1", chunk=400, steps=1000):
    ...     print(len(part))
    400
    400
    200
    """
    recording = build_recorder(
        environment,
        policy,
        RolloutLimits(steps, episodes),
        seed=seed,
        environment_seed=environment_seed,
        same_start=same_start,
        state_of=state_of,
        max_episode_steps=max_episode_steps,
        make_options=make_options,
    )
    return _iterate_chunks(
        recording, require_integer(recording.environment_name, "chunk", chunk_size, 1)
    )


def _iterate_chunks(recorder: Recorder, chunk_size: int) -> Iterator[Transitions]:
    while part := list(itertools.islice(recorder.steps, chunk_size)):
        yield recorder.build_transitions(part)

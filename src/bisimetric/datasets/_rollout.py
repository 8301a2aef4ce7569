"""Record a policy in an environment: all steps at once, or as a stream of chunks."""

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
"""Steps between two updates of the progress bar."""
STEP_BYTES, OBSERVATION_COPIES = 400, 3
"""Memory per step besides its observations, and the copies of an observation in memory."""


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
    """Record a policy in an environment until `steps` or `episodes` are reached.

    The last step is truncated unless the episode terminated with it. Rewards of MiniGrid shrink
    with the step count, which is reset to 0 before every step: reaching the goal pays 1 at any
    time.

    Discrete observations are the ids of states, with the names, positions and actions of
    `worlds.from_gymnasium`. MultiDiscrete, MultiBinary and Text observations, and Tuples and Dicts
    of them, get ids in the order of first occurrence. MiniGrid's states and names are those of
    `worlds.enumerate_environment` with the same seed; without `same_start` they have no ids. Other
    observations have none, unless `state_of` identifies states. Tuple and Dict observations are
    flattened into one vector, MiniGrid's reduced to the image; actions that are not Discrete become
    floats. The steps of a vector environment are stored environment by environment, and limits are
    split evenly among them.

    Args:
        environment: a Gymnasium environment, a vector environment, or an id. Its time limit
            truncates episodes.
        policy: None takes uniformly random actions; a function maps an observation, as the
            environment returns it, to an action (for a vector environment a batch to a batch); an
            array holds (S,) actions or (S, A) probabilities by state id, for Discrete
            observations.
        steps: the number of environment steps; None is no limit.
        episodes: the number of episodes; None is no limit.
        seed: of the policy's random choices, and of the environment unless it has its own. The same
            seed gives the same steps.
        environment_seed: seeds the first reset; None is `seed`. A vector environment seeds its
            environments with environment_seed, environment_seed + 1, and so on.
        same_start: whether every episode is reset with that seed, so that all start alike; None
            is True for MiniGrid and False for others.
        state_of: state_of(environment, observation) returns anything hashable that identifies the
            state; strings, numbers and tuples of them also name it. Vector environments pass None
            as the environment. None uses the observation where its space is countable.
        max_episode_steps: truncates episodes after so many steps; None is the environment's own
            limit.
        make_options: arguments of `gymnasium.make` for an environment given by id.

    Returns:
        The recorded transitions.

    Raises:
        InputError: neither `steps` nor `episodes` is given, the environment is unknown, or the
            policy returns something that is no action.
        InsufficientMemory: the steps would not fit into memory.

    >>> rollout("FrozenLake-v1", steps=1000, is_slippery=False)
    Transitions(1,000 steps, ... episodes, 16 states, 4 actions)
    >>> rollout("CartPole-v1", lambda observation: int(observation[2] > 0), episodes=10)
    Transitions(... steps, 10 episodes, observations (4,) float32, 2 actions)
    """
    recorder = build_recorder(
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
            f"{recorder.environment_name}: give steps or episodes, so that the rollout ends."
        )
    recorded: list[EnvironmentStep] = []
    with show_progress(1.0, f"steps in {recorder.environment_name}") as progress:
        finished = 0
        for step in recorder.steps:
            if not recorded:
                _require_rollout_memory(recorder.environment_name, step, steps, episodes)
            recorded.append(step)
            finished += step.terminated or step.truncated
            if len(recorded) % PROGRESS_INTERVAL == 0:
                fraction = max(len(recorded) / (steps or np.inf), finished / (episodes or np.inf))
                progress.set_position(fraction, f"{len(recorded):,} steps")
    return recorder.build_transitions(recorded)


def _require_rollout_memory(
    environment_name: str, first_step: EnvironmentStep, steps: int | None, episodes: int | None
) -> None:
    """Raise InsufficientMemory if the steps cannot fit; an episode has at least one."""
    min_steps = min(each for each in (steps, episodes) if each is not None)
    observed = np.asarray(first_step.observation.array).nbytes
    require_memory(
        f"{environment_name}: {min_steps:,} steps need",
        min_steps * (STEP_BYTES + OBSERVATION_COPIES * observed),
        "record fewer, or use datasets.stream",
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
    """Yield the steps of a policy in an environment in chunks, while they are taken.

    Ids, names and stored arrays are those of `rollout`. Where states are numbered in the order of
    first occurrence, `num_states` grows from chunk to chunk. An episode may continue in the next
    chunk, except for vector environments, whose chunks are stored environment by environment and
    truncated at their ends.

    Args:
        environment: a Gymnasium environment, a vector environment, or an id. Its time limit
            truncates episodes.
        policy: None takes uniformly random actions; a function maps an observation, as the
            environment returns it, to an action (for a vector environment a batch to a batch); an
            array holds (S,) actions or (S, A) probabilities by state id, for Discrete
            observations.
        chunk_size: steps per chunk.
        steps: the number of environment steps; None is no limit.
        episodes: the number of episodes; None is no limit.
        seed: of the policy's random choices, and of the environment unless it has its own. The same
            seed gives the same steps.
        environment_seed: seeds the first reset; None is `seed`. A vector environment seeds its
            environments with environment_seed, environment_seed + 1, and so on.
        same_start: whether every episode is reset with that seed, so that all start alike; None
            is True for MiniGrid and False for others.
        state_of: state_of(environment, observation) returns anything hashable that identifies the
            state; strings, numbers and tuples of them also name it. Vector environments pass None
            as the environment. None uses the observation where its space is countable.
        max_episode_steps: truncates episodes after so many steps; None is the environment's own
            limit.
        make_options: arguments of `gymnasium.make` for an environment given by id.

    Returns:
        An iterator over chunks; infinite without `steps` and `episodes`.

    Raises:
        InputError: the environment is unknown, or the policy returns something that is no action.

    >>> for part in stream("FrozenLake-v1", chunk_size=400, steps=1000):
    ...     print(len(part))
    400
    400
    200
    """
    recorder = build_recorder(
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
        recorder, require_integer(recorder.environment_name, "chunk_size", chunk_size, 1)
    )


def _iterate_chunks(recorder: Recorder, chunk_size: int) -> Iterator[Transitions]:
    """Yield the remaining steps in chunks."""
    while part := list(itertools.islice(recorder.steps, chunk_size)):
        yield recorder.build_transitions(part)

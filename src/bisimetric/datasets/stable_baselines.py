"""Replay buffers of Stable-Baselines3: their arrays, in the order of time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.datasets.actions import ActionEncoder
from bisimetric.datasets.checks import collect_metadata
from bisimetric.datasets.observations import ObservationEncoder, StateOf, unstack_values
from bisimetric.errors import InputError
from bisimetric.mdp.checks import freeze
from bisimetric.transitions import Transitions

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

"""Replay buffers: a stand-in with the arrays of Stable-Baselines3, against what was put in.

The stand-in has the arrays, the ring and the overlapping observations of version 2.9 of
`stable_baselines3.common.buffers.ReplayBuffer`, which needs PyTorch and is no dependency.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from bisimetric import datasets
from bisimetric.errors import InputError
from tests.property_testing import scaled


class ReplayBuffer:
    """Rows (time, environment, ...), written round and round."""

    def __init__(
        self, size: int, space: Any, actions: Any, n_envs: int, optimize_memory_usage: bool = False
    ) -> None:
        self.observation_space, self.action_space, self.n_envs = space, actions, n_envs
        self.optimize_memory_usage = optimize_memory_usage
        self.pos, self.full = 0, False
        shape = space.shape or (1,)
        self.observations = np.zeros((size, n_envs, *shape), space.dtype)
        if not optimize_memory_usage:
            self.next_observations = np.zeros_like(self.observations)
        self.actions = np.zeros((size, n_envs, *(actions.shape or (1,))), actions.dtype)
        self.rewards, self.dones, self.timeouts = (
            np.zeros((size, n_envs), np.float32) for _ in range(3)
        )

    def add(self, seen: Any, after: Any, action: Any, reward: Any, done: Any, late: Any) -> None:
        size = len(self.rewards)
        self.observations[self.pos] = np.reshape(seen, self.observations.shape[1:])
        if self.optimize_memory_usage:
            following = np.reshape(after, self.observations.shape[1:])
            self.observations[(self.pos + 1) % size] = following
        else:
            self.next_observations[self.pos] = np.reshape(after, self.observations.shape[1:])
            self.timeouts[self.pos] = late
        self.actions[self.pos] = np.reshape(action, self.actions.shape[1:])
        self.rewards[self.pos] = reward
        self.dones[self.pos] = done
        self.pos += 1
        if self.pos == size:
            self.pos, self.full = 0, True


class Recorded(NamedTuple):
    """One step of all environments: (environments, ...)."""

    seen: Any
    action: Any
    reward: Any
    after: Any
    terminated: Any
    truncated: Any


def simulate(random: np.random.Generator, envs: int, steps: int, numbers: bool) -> list[Recorded]:
    """Walks of several environments that end and are cut at random; every observation differs."""
    recorded = []
    clock = 0

    def fresh() -> Any:
        nonlocal clock
        clock += 1
        return clock if numbers else [clock, -clock]

    seen = [fresh() for _ in range(envs)]
    for _ in range(steps):
        after = [fresh() for _ in range(envs)]
        terminated = random.random(envs) < 0.2
        truncated = (random.random(envs) < 0.2) & ~terminated
        recorded.append(
            Recorded(
                seen,
                random.integers(3, size=envs),
                random.random(envs),
                after,
                terminated,
                truncated,
            )
        )
        over = terminated | truncated
        seen = [fresh() if over[env] else after[env] for env in range(envs)]
    return recorded


@settings(deadline=None, max_examples=scaled(60))
@given(st.integers(1, 3), st.integers(2, 12), st.integers(1, 40), st.booleans(), st.integers(0, 99))
def test_stored_transitions_are_read_back(
    envs: int, size: int, steps: int, numbers: bool, seed: int
) -> None:
    recorded = simulate(np.random.default_rng(seed), envs, steps, numbers)
    space: Any = spaces.Discrete(1000) if numbers else spaces.Box(-1e3, 1e3, (2,))
    buffer = ReplayBuffer(size, space, spaces.Discrete(3), envs)
    for each in recorded:
        over = each.terminated | each.truncated
        buffer.add(each.seen, each.after, each.action, each.reward, over, each.truncated)
    found = datasets.from_stable_baselines(buffer)
    kept = recorded[-size:]
    assert len(found) == envs * len(kept)
    for env in range(envs):
        part = found[env * len(kept) : (env + 1) * len(kept)]
        for name, field in (
            ("observations", "seen"),
            ("next_observations", "after"),
            ("actions", "action"),
            ("terminated", "terminated"),
        ):
            expected = np.array([getattr(each, field)[env] for each in kept])
            np.testing.assert_array_equal(getattr(part, name), expected, err_msg=name)
        rewards = np.array([each.reward[env] for each in kept], np.float32)
        np.testing.assert_array_equal(part.rewards, rewards)
        cuts = [bool(each.truncated[env]) for each in kept]
        cuts[-1] = not kept[-1].terminated[env]
        assert part.truncated.tolist() == cuts
    assert found.num_actions == 3
    assert found.num_states == (1000 if numbers else None)


@settings(deadline=None, max_examples=scaled(60))
@given(st.integers(1, 3), st.integers(2, 12), st.integers(1, 40), st.integers(0, 99))
def test_observations_that_are_stored_once(envs: int, size: int, steps: int, seed: int) -> None:
    recorded = simulate(np.random.default_rng(seed), envs, steps, numbers=False)
    space = spaces.Box(-1e3, 1e3, (2,))
    buffer = ReplayBuffer(size, space, spaces.Discrete(3), envs, optimize_memory_usage=True)
    for each in recorded:
        over = each.terminated | each.truncated
        buffer.add(each.seen, each.after, each.action, each.reward, over, over)
    found = datasets.from_stable_baselines(buffer)
    # The oldest of a full ring lost its observation to the newest.
    kept = recorded[-(size - 1) :] if steps >= size else recorded
    for env in range(envs):
        part = found[env * len(kept) : (env + 1) * len(kept)]
        seen = np.array([each.seen[env] for each in kept])
        np.testing.assert_array_equal(part.observations, seen)
        over = np.array([each.terminated[env] or each.truncated[env] for each in kept])
        np.testing.assert_array_equal(part.terminated, over)
        after = np.array([each.after[env] for each in kept])
        np.testing.assert_array_equal(part.next_observations[~over], after[~over])
        assert part.truncated[-1] == (not over[-1])
        assert not part.truncated[:-1].any()


def test_continuous_actions_and_dicts() -> None:
    parts: dict[str, Any] = {"place": spaces.Box(0, 9, (2,)), "wind": spaces.Box(0, 9, (1,))}
    buffer = ReplayBuffer(4, spaces.Box(0, 9, (3,)), spaces.Box(-1, 1, (2,)), 1)
    for number in range(3):
        one, other = [[number] * 3], [[number + 1] * 3]
        buffer.add(one, other, [[0.5, -0.5]], [1.0], [False], [False])
    whole = datasets.from_stable_baselines(buffer)
    assert whole.actions.tolist() == [[0.5, -0.5]] * 3
    assert whole.num_actions is None
    split: Any = buffer
    split.observation_space = spaces.Dict(parts)
    for name in ("observations", "next_observations"):
        array = getattr(buffer, name)
        setattr(split, name, {"place": array[..., :2], "wind": array[..., 2:]})
    found = datasets.from_stable_baselines(split)
    np.testing.assert_array_equal(found.observations, whole.observations)
    np.testing.assert_array_equal(found.next_observations, whole.next_observations)


def test_ids_by_first_appearance_and_by_state_of() -> None:
    buffer = ReplayBuffer(9, spaces.MultiDiscrete([4, 4]), spaces.Discrete(2), 1)
    for number in range(3):
        buffer.add([[number, 0]], [[number + 1, 0]], [0], [1.0], [False], [False])
    assert datasets.from_stable_baselines(buffer).names == ("0,0", "1,0", "2,0", "3,0")
    found = datasets.from_stable_baselines(buffer, state_of=lambda _, seen: int(seen[0]) % 2)
    assert found.names == ("0", "1")


def test_an_empty_buffer_raises() -> None:
    buffer = ReplayBuffer(4, spaces.Discrete(3), spaces.Discrete(2), 1)
    with pytest.raises(InputError, match="ReplayBuffer is empty; train the model first"):
        datasets.from_stable_baselines(buffer)


def test_anything_but_a_buffer_raises() -> None:
    with pytest.raises(InputError, match="dict has no observations, so it is no replay buffer of"):
        datasets.from_stable_baselines({})

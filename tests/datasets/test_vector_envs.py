"""Vector environments: in every way to reset, they are what single environments are."""

from __future__ import annotations

from typing import Any

import gymnasium
import minigrid  # registers its environments
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from bisimetric import datasets
from bisimetric.errors import InputError
from bisimetric.transitions import Transitions

assert minigrid

MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)
COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminated", "truncated")


class Dice(gymnasium.Env[Any, Any]):
    """A throw observed; an episode ends with a 5, is cut at a 4, and its throws are a Dict."""

    observation_space = spaces.Dict(throw=spaces.Discrete(6), last=spaces.Discrete(6))
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.last = 0
        return {"throw": 0, "last": 0}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        throw = int(self.np_random.integers(6))
        seen = {"throw": throw, "last": self.last}
        self.last = throw
        return seen, float(action[0]), throw == 5, throw == 4, {}


def frozen_lake() -> Any:
    return gymnasium.make("FrozenLake-v1", disable_env_checker=True, max_episode_steps=9)


def cart_pole() -> Any:
    return gymnasium.make("CartPole-v1", disable_env_checker=True, max_episode_steps=20)


def lake_policy(states: Any) -> Any:
    return np.asarray(states) * 3 % 4


def pole_policy(seen: Any) -> Any:
    """As good as random: the parity of a late digit of the speed."""
    return (np.abs(np.asarray(seen)[..., 1]) * 1000).astype(np.int64) % 2


def shares(total: int, count: int) -> list[int]:
    return [total // count + (place < total % count) for place in range(count)]


def assert_same(one: Transitions, other: Transitions) -> None:
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("limit", ["steps", "episodes"])
@pytest.mark.parametrize(("make", "policy"), [(frozen_lake, lake_policy), (cart_pole, pole_policy)])
def test_each_is_the_single_environment(make: Any, policy: Any, limit: str, mode: Any) -> None:
    total = {"steps": 200, "episodes": 17}[limit]
    part: list[dict[str, Any]] = [{limit: share} for share in shares(total, 3)]
    whole: dict[str, Any] = {limit: total}
    vector = SyncVectorEnv([make] * 3, autoreset_mode=mode)
    steps = datasets.rollout(vector, policy, seed=5, **whole)
    singles = [
        datasets.rollout(make(), policy, seed=5 + place, **share)
        for place, share in enumerate(part)
    ]
    assert_same(steps, Transitions.concatenate(singles))
    assert steps.terminated.any()
    assert steps.truncated.sum() > 3
    assert steps.names == singles[0].names


@pytest.mark.parametrize(
    "mode", [MODES[0], *(pytest.param(mode, marks=pytest.mark.slow) for mode in MODES[1:])]
)
def test_environments_may_be_in_other_processes(mode: Any) -> None:
    here = SyncVectorEnv([cart_pole] * 2, autoreset_mode=mode)
    there = AsyncVectorEnv([cart_pole] * 2, autoreset_mode=mode, context="spawn")
    try:
        one, other = (datasets.rollout(each, steps=90, seed=2) for each in (here, there))
    finally:
        there.close()
    assert_same(one, other)
    assert one.terminated.any()


@pytest.mark.parametrize("make", [frozen_lake, cart_pole, Dice])
def test_random_actions_are_the_same_in_every_mode(make: Any) -> None:
    first, *others = (
        datasets.rollout(SyncVectorEnv([make] * 3, autoreset_mode=mode), steps=100, seed=1)
        for mode in MODES
    )
    for other in others:
        assert_same(first, other)
    one, two, three = np.split(first.actions, np.cumsum(shares(100, 3))[:-1])
    assert not np.array_equal(one[:33], two)
    assert not np.array_equal(two, three)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [frozen_lake, cart_pole, Dice])
def test_a_vector_of_one_is_the_environment(make: Any, mode: Any) -> None:
    vector = SyncVectorEnv([make], autoreset_mode=mode)
    assert_same(
        datasets.rollout(vector, steps=80, seed=3), datasets.rollout(make(), steps=80, seed=3)
    )
    parts = datasets.stream(vector, steps=80, seed=3, chunk_size=30)
    assert_same(Transitions.concatenate(parts), datasets.rollout(make(), steps=80, seed=3))


def test_ids_of_a_dict_cover_all_environments() -> None:
    steps = datasets.rollout(SyncVectorEnv([Dice] * 2), steps=600)
    assert steps.names is not None
    assert steps.states is not None
    assert "2,3" in steps.names
    told = {tuple(row) for row in steps.observations.tolist()}
    assert len(told) == len(set(steps.states.tolist()))


@pytest.mark.parametrize("mode", MODES)
def test_fewer_steps_than_environments(mode: Any) -> None:
    vector = SyncVectorEnv([frozen_lake] * 4, autoreset_mode=mode)
    assert len(datasets.rollout(vector, steps=2)) == 2
    assert sum(1 for _ in datasets.rollout(vector, episodes=3).episodes()) == 3


@pytest.mark.parametrize("mode", MODES)
def test_a_stream_holds_the_steps_of_the_rollout(mode: Any) -> None:
    vector = SyncVectorEnv([frozen_lake] * 3, autoreset_mode=mode)
    whole = datasets.rollout(vector, steps=300, seed=4)
    parts = list(datasets.stream(vector, steps=300, seed=4, chunk_size=70))
    for part in parts:
        assert part.terminated[-1] or part.truncated[-1]
        for episode in part.episodes():
            np.testing.assert_array_equal(episode.observations[1:], episode.next_observations[:-1])

    def count_steps(steps: Transitions) -> list[tuple[Any, ...]]:
        names = ("states", "actions", "rewards", "next_states", "terminated")
        return sorted(zip(*(getattr(steps, name).tolist() for name in names), strict=True))

    assert count_steps(Transitions.concatenate(parts)) == count_steps(whole)
    assert sum(len(part) for part in parts) == 300


def test_a_table_is_followed() -> None:
    table = np.arange(16) % 4
    steps = datasets.rollout(SyncVectorEnv([frozen_lake] * 2), table, steps=100)
    np.testing.assert_array_equal(steps.actions, table[steps.observations])


def test_environments_of_gymnasium_make_vec() -> None:
    vector = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point")
    steps = datasets.rollout(vector, steps=200)
    for episode in steps.episodes():
        np.testing.assert_array_equal(episode.observations[1:], episode.next_observations[:-1])
    assert not (np.abs(steps.next_observations[steps.terminated, 2]) < 0.2).any()


def test_rooms_side_by_side_keep_their_images() -> None:
    vector = SyncVectorEnv([lambda: gymnasium.make("MiniGrid-Empty-5x5-v0")] * 2)
    steps = datasets.rollout(vector, steps=20)
    assert steps.observations.shape == (20, 7, 7, 3)
    assert steps.states is None


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (lambda _: 0, {}, "the policy returned 0, which is no batch of 2 actions"),
        (lambda _: [0, 1, 2], {}, r"the policy returned \[0, 1, 2\], which is no batch of 2"),
        (
            lambda _: np.array([0, 9]),
            {},
            r"returned .*9.* at step 0 of environment 1, which is not",
        ),
        (None, {"same_start": True}, "same_start is for a single one"),
        (None, {"max_episode_steps": 9}, "pass max_episode_steps to gymnasium.make_vec"),
    ],
)
def test_bad_input_raises_in_one_sentence(policy: Any, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        datasets.rollout(SyncVectorEnv([frozen_lake] * 2), policy, steps=9, **options)
    assert "\n" not in str(refused.value)


def test_an_unknown_autoreset_mode_raises() -> None:
    vector = SyncVectorEnv([frozen_lake] * 2)
    vector.metadata["autoreset_mode"] = "Never"
    with pytest.raises(InputError, match="autoreset_mode is 'Never' and must be NextStep"):
        datasets.rollout(vector, steps=9)
    vector.metadata["autoreset_mode"] = "SameStep"
    with pytest.raises(InputError, match="resets in the same step, and its infos have no final_"):
        datasets.rollout(vector, steps=99)

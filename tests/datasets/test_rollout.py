"""Rollouts: against a plain loop over the environment, and the worlds that know its states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from bisimetric import datasets, worlds
from bisimetric.errors import InputError
from bisimetric.transitions import Transitions


class Corridor(gymnasium.Env[Any, Any]):
    """Cells 0 to 3; action 2 goes right, 1 left; the last pays 1 and ends. Faults on request."""

    def __init__(self, fault: str = "", space: Any = None, seen: Any = None) -> None:
        self.fault = fault
        self.action_space: Any = spaces.Discrete(2, start=1)
        self.observation_space = spaces.Discrete(4, start=5) if space is None else space
        self.seen: Callable[[int], Any] = seen or (lambda cell: cell + 5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = 0
        return self.seen(0), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.cell = min(self.cell + 1, 3) if action == 2 else max(self.cell - 1, 0)
        ended = self.cell == 3
        return self.seen(self.cell), float(ended), ended, self.fault == "both" and ended, {}


class Echo(gymnasium.Env[Any, Any]):
    """Observes what its own generator draws, of as many numbers as there are actions."""

    action_space = spaces.Discrete(4)
    observation_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return int(self.np_random.integers(4)), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return int(self.np_random.integers(4)), 0.0, False, False, {}


def right(_: Any) -> int:
    return 2


def by_hand(
    environment: Any, policy: Callable[[Any], Any], steps: int, key: int
) -> list[tuple[Any, ...]]:
    """Observation, action, reward, next one, terminated, truncated: a loop, step by step."""
    told = []
    observation, _ = environment.reset(seed=key)
    for number in range(steps):
        action = policy(observation)
        following, reward, ended, cut, _ = environment.step(action)
        cut = cut or number == steps - 1
        told.append((observation, action, reward, following, ended, cut and not ended))
        observation = environment.reset()[0] if ended or cut else following
    return told


def agrees(steps: Transitions, told: list[tuple[Any, ...]]) -> None:
    columns = [np.array(column) for column in zip(*told, strict=True)]
    names = ("observations", "actions", "rewards", "next_observations", "terminated", "truncated")
    for name, column in zip(names, columns, strict=True):
        np.testing.assert_array_equal(getattr(steps, name), column, err_msg=name)


def same(one: Transitions, other: Transitions) -> bool:
    names = ("observations", "actions", "rewards", "next_observations", "terminated", "truncated")
    return len(one) == len(other) and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in names
    )


def test_frozen_lake_step_by_step() -> None:
    def policy(state: int) -> int:
        return (state * 7 + 1) % 4

    steps = datasets.rollout("FrozenLake-v1", policy, steps=700, seed=3)
    agrees(steps, by_hand(gymnasium.make("FrozenLake-v1"), policy, 700, 3))
    assert steps.terminated.sum() > 10
    assert steps.states is not None
    np.testing.assert_array_equal(steps.states, steps.observations)


def test_cart_pole_step_by_step_and_its_limit_of_time() -> None:
    def policy(seen: Any) -> int:
        return int(seen[2] + 0.3 * seen[3] > 0)

    environment = gymnasium.make("CartPole-v1", max_episode_steps=60)
    steps = datasets.rollout(environment, policy, steps=500, seed=1)
    agrees(steps, by_hand(environment, policy, 500, 1))
    assert steps.truncated.sum() > 1
    assert steps.observations.dtype == np.float32
    assert steps.num_states is None
    assert steps.num_actions == 2


def test_continuous_actions_become_floats() -> None:
    def policy(seen: Any) -> Any:
        return [2 * float(seen[0])]

    steps = datasets.rollout("Pendulum-v1", policy, steps=30)
    assert steps.actions.shape == (30, 1)
    assert steps.actions.dtype == np.float32
    np.testing.assert_array_equal(steps.actions[:, 0], 2 * steps.observations[:, 0])
    assert steps.num_actions is None


@pytest.mark.parametrize("name", ["FrozenLake-v1", "Pendulum-v1", "Blackjack-v1"])
def test_the_key_decides(name: str) -> None:
    one, again, other = (datasets.rollout(name, steps=250, seed=key) for key in (4, 4, 5))
    assert same(one, again)
    assert not same(one, other)


def test_actions_use_another_random_stream_than_the_environment() -> None:
    steps = datasets.rollout(Echo(), steps=400)
    for shift in (0, 1):
        agreeing = steps.observations[shift:] == steps.actions[: 400 - shift]
        assert 0.15 < agreeing.mean() < 0.35


@pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"])
def test_ids_and_names_are_those_of_the_tables(name: str) -> None:
    options: dict[str, Any] = {"is_slippery": False} if name == "FrozenLake-v1" else {}
    steps = datasets.rollout(name, steps=4000, max_episode_steps=50, **options)
    world = worlds.from_gymnasium(name, **options)
    assert steps.names is not None
    assert world.names is not None
    assert steps.positions is not None
    assert world.positions is not None
    assert steps.states is not None
    count = steps.num_states
    assert steps.names == world.names[:count]
    assert steps.action_names == world.actions
    np.testing.assert_array_equal(steps.positions, world.positions[:count])
    absorbing = (world.next_state == np.arange(world.num_states)[:, None]).all(axis=1)
    for s, a, r, n, ended in zip(
        steps.states, steps.actions, steps.rewards, steps.successors, steps.terminated, strict=True
    ):
        assert r == world.R[s, a]
        assert absorbing[world.next_state[s, a]] if ended else n == world.next_state[s, a]


def test_numbers_that_start_elsewhere() -> None:
    steps = datasets.rollout(Corridor(), right, episodes=2)
    assert steps.observations.tolist() == [0, 1, 2] * 2
    assert steps.next_observations.tolist() == [1, 2, 3] * 2
    assert steps.actions.tolist() == [1] * 6
    assert (steps.num_states, steps.num_actions) == (4, 2)


def test_the_last_step_is_truncated_unless_the_episode_terminates() -> None:
    assert datasets.rollout(Corridor(), right, steps=4).truncated.tolist() == [False] * 3 + [True]
    whole = datasets.rollout(Corridor(), right, steps=3)
    assert whole.truncated.tolist() == [False] * 3
    assert whole.terminated.tolist() == [False, False, True]


def test_termination_has_precedence_over_truncation() -> None:
    steps = datasets.rollout(Corridor("both"), right, episodes=1)
    assert steps.terminated.tolist() == [False, False, True]
    assert not steps.truncated.any()


def test_limits_in_steps_and_in_episodes() -> None:
    assert len(datasets.rollout(Corridor(), right, episodes=5)) == 15
    assert len(datasets.rollout(Corridor(), right, episodes=5, steps=7)) == 7
    assert len(datasets.rollout(Corridor(), right, episodes=1, steps=7)) == 3


@pytest.mark.parametrize("longest", [10, 150])
def test_the_limit_of_time_can_be_set(longest: int) -> None:
    steps = datasets.rollout(
        "FrozenLake-v1", lambda _: 0, steps=400, max_episode_steps=longest, is_slippery=False
    )
    assert np.flatnonzero(steps.truncated).tolist() == [*range(longest - 1, 399, longest), 399]
    given = gymnasium.make("FrozenLake-v1", is_slippery=False)
    steps = datasets.rollout(given, lambda _: 0, steps=300, max_episode_steps=longest)
    assert np.flatnonzero(steps.truncated)[0] == min(longest, 100) - 1


def test_a_table_of_actions_is_the_policy() -> None:
    table = np.arange(16) % 4
    steps = datasets.rollout("FrozenLake-v1", table, steps=300)
    np.testing.assert_array_equal(steps.actions, table[steps.observations])
    steps = datasets.rollout(Corridor(), [1, 1, 1, 0], episodes=1, steps=9)
    assert steps.observations.tolist() == [0, 1, 2]


def test_a_table_of_probabilities_is_sampled() -> None:
    table = np.tile([0.0, 0.25, 0.75, 0.0], (16, 1))
    steps = datasets.rollout("FrozenLake-v1", table, steps=4000)
    shares = np.bincount(steps.actions, minlength=4) / len(steps)
    assert shares[0] == shares[3] == 0
    # Five standard deviations of 4,000 draws.
    assert abs(shares[2] - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 4000)


@pytest.mark.parametrize(
    ("space", "seen", "name"),
    [
        (spaces.MultiDiscrete([4, 2]), lambda cell: np.array([cell, 1]), "2,1"),
        (spaces.MultiBinary(2), lambda cell: np.array([cell & 1, cell >> 1], np.int8), "0,1"),
        (spaces.Tuple((spaces.Discrete(4), spaces.Discrete(2))), lambda cell: (cell, 0), "2,0"),
        (
            spaces.Dict(a=spaces.Discrete(4), b=spaces.MultiDiscrete([9])),
            lambda cell: {"b": np.array([8]), "a": np.int64(cell)},
            "2,8",
        ),
        (spaces.Text(5), lambda cell: "abcd"[cell], "c"),
    ],
)
def test_countable_observations_get_ids_by_first_appearance(
    space: Any, seen: Callable[[int], Any], name: str
) -> None:
    steps = datasets.rollout(Corridor("", space, seen), right, steps=4)
    assert steps.states is not None
    assert steps.next_states is not None
    assert steps.states.tolist() == [0, 1, 2, 0]
    assert steps.next_states.tolist() == [1, 2, 3, 1]
    assert steps.names is not None
    assert steps.names[2] == name
    if isinstance(space, spaces.Tuple | spaces.Dict | spaces.Text):
        expected: list[Any] = [spaces.flatten(space, seen(cell)) for cell in (0, 1, 2, 0)]
        np.testing.assert_array_equal(steps.observations, np.stack(expected))
    else:
        np.testing.assert_array_equal(steps.observations[2], seen(2))


def test_a_state_of_gives_ids_and_keeps_the_observations() -> None:
    def side(environment: Any, seen: Any) -> str:
        assert environment.unwrapped.spec.id == "CartPole-v1"
        return "left" if seen[0] < 0 else "right"

    with_ids = datasets.rollout("CartPole-v1", steps=200, state_of=side)
    without = datasets.rollout("CartPole-v1", steps=200)
    assert same(with_ids, without)
    assert with_ids.names is not None
    assert with_ids.states is not None
    assert set(with_ids.names) == {"left", "right"}
    left = with_ids.names.index("left")
    np.testing.assert_array_equal(with_ids.states == left, without.observations[:, 0] < 0)


def test_observations_that_are_no_arrays_are_their_ids() -> None:
    space = spaces.Sequence(spaces.Discrete(9))
    corridor = Corridor("", space, lambda cell: (0,) * cell)
    steps = datasets.rollout(corridor, right, steps=3, state_of=lambda _, seen: len(seen))
    assert steps.observations.tolist() == [0, 1, 2]
    assert steps.names == ("0", "1", "2", "3")


def test_an_observation_that_is_overwritten_in_place_is_copied() -> None:
    cells = np.zeros(2)

    def observe(cell: int) -> Any:
        cells[:] = cell
        return cells

    steps = datasets.rollout(Corridor("", spaces.Box(0, 9, (2,)), observe), right, steps=3)
    assert steps.observations[:, 0].tolist() == [0, 1, 2]


def test_the_random_stream_continues_with_the_same_start() -> None:
    steps = datasets.rollout(Echo(), steps=90, same_start=True, max_episode_steps=30)
    first, second, third = (episode.next_observations.tolist() for episode in steps.episodes())
    assert len({int(episode.observations[0]) for episode in steps.episodes()}) == 1
    assert first != second
    assert second != third


def test_metadata_describe_the_rollout() -> None:
    metadata = datasets.rollout("FrozenLake-v1", right, steps=3, seed=8, desc=["SF", "FG"]).metadata
    assert metadata["environment"] == "FrozenLake-v1"
    assert metadata["options"] == {"desc": ["SF", "FG"]}
    assert (metadata["policy"], metadata["seed"], metadata["environment_seed"]) == ("right", 8, 8)
    assert metadata["gymnasium"] == gymnasium.__version__
    assert datasets.rollout(Corridor(), steps=1).metadata["policy"] == "random"


@pytest.mark.parametrize(
    ("environment", "policy", "options", "message"),
    [
        (3, None, {}, "int is no Gymnasium environment; give one, or its id"),
        ("FrozenLake-v9", None, {}, "there is no environment 'FrozenLake-v9'; there is"),
        ("FrozenLake-v1", None, {"steps": None}, "FrozenLake-v1: give steps or episodes, so that"),
        ("FrozenLake-v1", None, {"steps": 0}, "steps is 0 and must be a whole number, at least 1"),
        ("FrozenLake-v1", None, {"episodes": -2}, "episodes is -2 and must be a whole number, at"),
        ("FrozenLake-v1", None, {"steps": 1.5}, "steps is 1.5 and must be a whole number"),
        ("FrozenLake-v1", None, {"seed": -1}, "seed is -1 and must be a whole number, at least 0"),
        (
            "FrozenLake-v1",
            None,
            {"environment_seed": "a"},
            "environment_seed is 'a' and must be a whole number, at least",
        ),
        ("FrozenLake-v1", None, {"max_episode_steps": 0}, "max_episode_steps is 0 and must be"),
        ("FrozenLake-v1", None, {"state_of": 3}, "state_of is 3 and must be a function"),
        ("FrozenLake-v1", None, {"state_of": lambda *_: [1]}, "state_of returned list, which can"),
        ("FrozenLake-v1", [0, 1], {}, r"policy has shape \(2,\) and must be \(16,\) actions or"),
        ("FrozenLake-v1", [9] * 16, {}, r"policy\[0\] is 9 and must be an action from 0 to 3"),
        ("CartPole-v1", [0, 1], {}, "a policy given as a table needs observations that are Disc"),
        ("FrozenLake-v1", lambda _: 4, {}, "policy returned 4 at step 0, which is not in Discrete"),
        ("FrozenLake-v1", lambda _: 0.5, {}, "the policy returned 0.5 at step 0"),
        ("FrozenLake-v1", lambda _: None, {}, "the policy returned None at step 0"),
        ("FrozenLake-v1", lambda _: "a", {}, "the policy returned 'a' at step 0"),
        (
            "Pendulum-v1",
            lambda _: [9.0],
            {},
            r"the policy returned \[9.0\] at step 0, which is not",
        ),
        (Corridor(), None, {"desc": 1}, "option 'desc' is for environments given by id"),
        (
            Corridor("", spaces.Sequence(spaces.Discrete(2)), lambda cell: ()),
            None,
            {},
            "cannot become arrays; give a state_of that identifies states",
        ),
        (
            Corridor("", spaces.Box(0, 9, (2,)), lambda cell: np.zeros(2 + cell // 2)),
            right,
            {},
            r"an observation has shape \(3,\) and the first one \(2,\); all must have",
        ),
        (Corridor("", None, lambda cell: 9 + cell), None, {}, "an observation is 9, outside of"),
        (
            Corridor("", spaces.Tuple((spaces.Discrete(2),)), lambda cell: 1),
            None,
            {"state_of": lambda *_: 0},
            "an observation does not fit its space",
        ),
        (Corridor("", "none"), None, {}, "its space is 'none' and must be one of Gymnasium's"),
    ],
)
def test_bad_input_raises_in_one_sentence(
    environment: Any, policy: Any, options: dict[str, Any], message: str
) -> None:
    given = {"steps": 10, **options}
    with pytest.raises(InputError, match=message) as refused:
        datasets.rollout(environment, policy, **given)
    assert "\n" not in str(refused.value)


def test_the_step_of_an_impossible_action_is_named() -> None:
    actions = iter([2, 2, 7])
    with pytest.raises(InputError, match="policy returned 7 at step 2, which is not in Discrete"):
        datasets.rollout(Corridor(), lambda _: next(actions), steps=5)

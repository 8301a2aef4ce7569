"""Collected experience: the steps of single games one after the other, each frame seen once."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric.errors import InputError, InsufficientMemory
from bisimetric.games import AgentOutput, AtariGames, collect
from bisimetric.games.agent import EpsilonGreedyPolicy
from bisimetric.transitions import COLUMNS, Transitions
from tests.gamers import Gamer

NAME = "Asterix"


def one_by_one(agent: Gamer, quotas: list[int], *, epsilon: float, key: int) -> dict[str, Any]:
    """The slow twin of `collect`: one game after the other, in lists."""
    rows: list[dict[str, Any]] = []
    for place, quota in enumerate(quotas):
        games = AtariGames(NAME, 1, seed=key, first_index=place)
        player = EpsilonGreedyPolicy(
            agent, games.game, 1, epsilon=epsilon, seed=key, first_index=place
        )
        moves = games.reset()
        seen, chosen = player.act(moves.observations, moves.is_first)
        taken = 0
        while taken < quota:
            before, action = seen, chosen
            was_over = bool(moves.terminated[0] or moves.truncated[0])
            moves = games.step(action)
            seen, chosen = player.act(moves.observations, moves.is_first)
            assert moves.is_first[0] == was_over
            if was_over:
                continue
            taken += 1
            rows.append(
                {
                    "observations": before.features[0].astype(np.float16),
                    "actions": action[0],
                    "rewards": moves.rewards[0],
                    "next_observations": seen.features[0].astype(np.float16),
                    "terminated": moves.terminated[0],
                    "truncated": taken == quota and not moves.terminated[0],
                }
            )
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def same(one: Transitions, other: Transitions) -> bool:
    pairs = [(getattr(one, each), getattr(other, each)) for each in COLUMNS[:6]]
    return all(np.array_equal(a, b) for a, b in pairs) and one.metadata == other.metadata


@pytest.mark.parametrize("patience", [1, 5])
def test_games_side_by_side_are_the_games_one_by_one(patience: int) -> None:
    agent = Gamer(NAME, patience)
    found = collect(NAME, agent, steps=1000, num_games=3, epsilon=0.05, seed=4, clip_rewards=False)
    twin = one_by_one(agent, [333, 333, 334], epsilon=0.05, key=4)
    assert found.terminated.sum() >= 2
    assert found.truncated.sum() >= 1
    for name, column in twin.items():
        assert np.array_equal(getattr(found, name), column), name


def test_a_key_gives_the_same_steps_with_any_number_of_threads() -> None:
    options: dict[str, Any] = {"steps": 400, "count": 5, "key": 2, "epsilon": 0.1}
    one = collect(NAME, Gamer(NAME), num_threads=1, **options)
    assert same(one, collect(NAME, Gamer(NAME), num_threads=4, **options))
    assert not same(one, collect(NAME, Gamer(NAME), **{**options, "key": 3}))


def test_each_frame_is_seen_once() -> None:
    agent = Gamer(NAME)
    found = collect(NAME, agent, steps=600, num_games=2, max_episode_steps=50)
    ends = int((found.terminated | found.truncated).sum())
    # Each step starts at a frame, and the last frame of each game is one more.
    assert sum(map(len, agent.shown)) == 600 + ends
    assert sum(int(each.sum()) for each in agent.fresh) == ends


def test_steps_follow_one_another_and_games_are_cut_where_they_are() -> None:
    found = collect(
        "SpaceInvaders", Gamer("SpaceInvaders"), steps=300, num_games=2, max_episode_steps=60
    )
    goes_on = ~(found.terminated | found.truncated)[:-1]
    assert np.array_equal(found.next_observations[:-1][goes_on], found.observations[1:][goes_on])
    assert np.flatnonzero(found.truncated).tolist() == [59, 119, 149, 209, 269, 299]
    assert [len(each) for each in found.episodes()] == [60, 60, 30, 60, 60, 30]
    # The memory of the agent, its last feature, starts anew with each game.
    assert np.array_equal(found.observations[:, -1], [*range(60), *range(60), *range(30)] * 2)
    assert found.next_observations[59, -1] == 60


def test_rewards_are_clipped_unless_told_not_to() -> None:
    options: dict[str, Any] = {"steps": 600, "count": 2}
    clipped = collect(NAME, Gamer(NAME), **options)
    whole = collect(NAME, Gamer(NAME), clip_rewards=False, **options)
    assert set(whole.rewards) == {0.0, 50.0}
    assert np.array_equal(clipped.rewards, np.clip(whole.rewards, -1, 1))
    assert (clipped.metadata["clip"], whole.metadata["clip"]) == (True, False)


def test_an_agent_slips_as_often_as_epsilon_says() -> None:
    agent = Gamer("Pong")
    options: dict[str, Any] = {"steps": 700, "count": 1}
    assert np.array_equal(
        collect("Pong", agent, epsilon=0, **options).actions, np.concatenate(agent.chose)[:700]
    )
    agent = Gamer("Pong")
    often = collect("Pong", agent, epsilon=0.3, **options)
    slips = often.actions != np.concatenate(agent.chose)[:700]
    # One slip of six is what the agent wanted; four standard deviations are 0.066.
    assert abs(slips.mean() - 0.3 * 5 / 6) < 0.066
    assert np.bincount(often.actions[slips], minlength=6).min() > 10


def test_how_it_was_made_is_kept(tmp_path: Path) -> None:
    found = collect("pong", Gamer("Pong"), steps=3, num_games=50, max_noops=3, seed=5)
    assert found.metadata["game"] == "Pong"
    assert found.metadata["agent"] == "gamer"
    assert (found.metadata["key"], found.metadata["count"], found.metadata["noops"]) == (5, 3, 3)
    assert {"ale_py", "numpy", "bisimetric", "epsilon", "clip"} <= set(found.metadata)
    assert "threads" not in found.metadata
    assert found.action_names is not None
    assert found.action_names[2] == "RIGHT"
    assert found.observations.dtype == np.float16
    found.save(tmp_path / "steps.npz")
    assert same(Transitions.load(tmp_path / "steps.npz"), found)


def test_no_space_is_said_before() -> None:
    agent = Gamer("Pong")
    said = "Pong: 17 features of 10,000,000,000,000 steps need .* of memory and .* take fewer steps"
    with pytest.raises(InsufficientMemory, match=said):
        collect("Pong", agent, steps=10**13)
    assert not agent.shown


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_actions": 9}, "gamer: chooses among 9 actions and Pong has 6, NOOP, FIRE"),
        (
            {"shape": (84, 84, 4)},
            r"sees observations of shape \(84, 84, 4\) and Pong shows \(4, 84",
        ),
        ({"num_features": 5}, r"shapes \(\(2,\), \(2, 17\), \(2,\)\) and must be .* \(2, 5\)"),
    ],
)
def test_an_agent_of_another_game_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        collect("Pong", dataclasses.replace(Gamer("Pong"), **changes), steps=10, num_games=4)


@dataclasses.dataclass
class Odd(Gamer):
    """An agent with a fault, from its sixth look on."""

    fault: str = "action"

    def act(
        self, observations: NDArray[np.uint8], state: Any, is_first: NDArray[np.bool_]
    ) -> tuple[AgentOutput, Any]:
        seen, state = super().act(observations, state, is_first)
        if len(self.shown) < 6:
            return seen, state
        faults = {
            "action": seen._replace(action=np.full(len(is_first), 6)),
            "kind": seen._replace(action=seen.action.astype(np.float64)),
            "nan": seen._replace(features=seen.features * np.float32(np.nan)),
            "large": seen._replace(features=seen.features + np.float32(1e5)),
        }
        return faults[self.fault], state


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("action", "gamer: chose action 6 and must choose from 0 to 5, among NOOP, FIRE"),
        ("kind", "action, features and value are float64"),
        ("nan", "gamer: a feature is NaN or infinite"),
        ("large", r"a feature is 1e\+05 and the largest that float16 holds is 65504"),
    ],
)
def test_an_agent_that_goes_wrong_is_named(fault: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        collect("Pong", Odd("Pong", fault=fault), steps=100, num_games=4)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"steps": 0}, "Pong: steps is 0"),
        ({"count": 0}, "Pong: count is 0"),
        ({"epsilon": 1.5}, "Pong: epsilon is 1.5 and must be a number from 0 to 1"),
        ({"epsilon": float("nan")}, "epsilon is nan"),
        ({"epsilon": "often"}, "epsilon is 'often'"),
        ({"key": -3}, "key is -3"),
    ],
)
def test_numbers_are_checked(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        collect("Pong", Gamer("Pong"), **{"steps": 10, **options})

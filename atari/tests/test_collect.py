"""Collected transitions: equal to one game after the other, one agent call per frame."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bisimetric.errors import InputError, InsufficientMemory
from bisimetric.transitions import COLUMNS, Transitions
from bisimetric_atari.games import AgentOutput, AtariGames, collect
from bisimetric_atari.games.agent import EpsilonGreedyPolicy
from simple_agents import ChecksumAgent

NAME = "Asterix"


def collect_sequentially(
    agent: ChecksumAgent, quotas: list[int], *, epsilon: float, seed: int
) -> dict[str, Any]:
    """Collect one game after the other, in lists: the oracle of `collect`."""
    rows: list[dict[str, Any]] = []
    for index, quota in enumerate(quotas):
        games = AtariGames(NAME, 1, seed=seed, first_index=index)
        policy = EpsilonGreedyPolicy(
            agent, games.game, 1, epsilon=epsilon, seed=seed, first_index=index
        )
        step = games.reset()
        output, chosen = policy.act(step.observations, step.is_first)
        taken = 0
        while taken < quota:
            before, action = output, chosen
            was_last = bool(step.terminated[0] or step.truncated[0])
            step = games.step(action)
            output, chosen = policy.act(step.observations, step.is_first)
            assert step.is_first[0] == was_last
            if was_last:
                continue
            taken += 1
            rows.append(
                {
                    "observations": before.features[0].astype(np.float16),
                    "actions": action[0],
                    "rewards": step.rewards[0],
                    "next_observations": output.features[0].astype(np.float16),
                    "terminated": step.terminated[0],
                    "truncated": taken == quota and not step.terminated[0],
                }
            )
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def are_equal(one: Transitions, other: Transitions) -> bool:
    pairs = [(getattr(one, each), getattr(other, each)) for each in COLUMNS[:6]]
    return all(np.array_equal(a, b) for a, b in pairs) and one.metadata == other.metadata


@pytest.mark.parametrize("repeat", [1, 5])
def test_parallel_games_equal_sequential_games(repeat: int) -> None:
    agent = ChecksumAgent(NAME, repeat)
    found = collect(NAME, agent, steps=1000, num_envs=3, epsilon=0.05, seed=4, clip_rewards=False)
    expected = collect_sequentially(agent, [333, 333, 334], epsilon=0.05, seed=4)
    assert found.terminated.sum() >= 2
    assert found.truncated.sum() >= 1
    for name, column in expected.items():
        assert np.array_equal(getattr(found, name), column), name


def test_transitions_depend_on_the_seed_and_not_on_the_threads() -> None:
    options: dict[str, Any] = {"steps": 400, "num_envs": 5, "seed": 2, "epsilon": 0.1}
    one = collect(NAME, ChecksumAgent(NAME), num_threads=1, **options)
    assert are_equal(one, collect(NAME, ChecksumAgent(NAME), num_threads=4, **options))
    assert not are_equal(one, collect(NAME, ChecksumAgent(NAME), **{**options, "seed": 3}))


def test_the_agent_is_called_once_per_frame() -> None:
    agent = ChecksumAgent(NAME)
    found = collect(NAME, agent, steps=600, num_envs=2, max_episode_steps=50)
    ends = int((found.terminated | found.truncated).sum())
    # One frame per step, and the final frame of each episode.
    assert sum(map(len, agent.observations)) == 600 + ends
    assert sum(int(each.sum()) for each in agent.is_first) == ends


def test_rows_are_consecutive_and_truncated_at_the_limit() -> None:
    found = collect(
        "SpaceInvaders",
        ChecksumAgent("SpaceInvaders"),
        steps=300,
        num_envs=2,
        max_episode_steps=60,
    )
    inside = ~(found.terminated | found.truncated)[:-1]
    assert np.array_equal(found.next_observations[:-1][inside], found.observations[1:][inside])
    assert np.flatnonzero(found.truncated).tolist() == [59, 119, 149, 209, 269, 299]
    assert [len(each) for each in found.episodes()] == [60, 60, 30, 60, 60, 30]
    # The age, the last feature, restarts with each episode.
    assert np.array_equal(found.observations[:, -1], [*range(60), *range(60), *range(30)] * 2)
    assert found.next_observations[59, -1] == 60


def test_rewards_are_clipped_on_request() -> None:
    options: dict[str, Any] = {"steps": 600, "num_envs": 2}
    clipped = collect(NAME, ChecksumAgent(NAME), **options)
    whole = collect(NAME, ChecksumAgent(NAME), clip_rewards=False, **options)
    assert set(whole.rewards) == {0.0, 50.0}
    assert np.array_equal(clipped.rewards, np.clip(whole.rewards, -1, 1))
    assert (clipped.metadata["clip_rewards"], whole.metadata["clip_rewards"]) == (True, False)


def test_random_actions_occur_with_probability_epsilon() -> None:
    agent = ChecksumAgent("Pong")
    options: dict[str, Any] = {"steps": 700, "num_envs": 1}
    assert np.array_equal(
        collect("Pong", agent, epsilon=0, **options).actions, np.concatenate(agent.actions)[:700]
    )
    agent = ChecksumAgent("Pong")
    often = collect("Pong", agent, epsilon=0.3, **options)
    random = often.actions != np.concatenate(agent.actions)[:700]
    # One random action of six is the greedy one; four standard deviations are 0.066.
    assert abs(random.mean() - 0.3 * 5 / 6) < 0.066
    assert np.bincount(often.actions[random], minlength=6).min() > 10


def test_metadata_are_saved(tmp_path: Path) -> None:
    found = collect("pong", ChecksumAgent("Pong"), steps=3, num_envs=50, max_noops=3, seed=5)
    assert found.metadata["game"] == "Pong"
    assert found.metadata["agent"] == "checksum"
    assert [found.metadata[name] for name in ("seed", "num_envs", "max_noops")] == [5, 3, 3]
    assert {"ale_py", "numpy", "bisimetric", "epsilon", "clip_rewards"} <= set(found.metadata)
    assert "num_threads" not in found.metadata
    assert found.action_names is not None
    assert found.action_names[2] == "RIGHT"
    assert found.observations.dtype == np.float16
    found.save(tmp_path / "steps.npz")
    assert are_equal(Transitions.load(tmp_path / "steps.npz"), found)


def test_insufficient_memory_is_raised_before_playing() -> None:
    agent = ChecksumAgent("Pong")
    said = "Pong: 17 features of 10,000,000,000,000 steps need .* of memory and .* take fewer steps"
    with pytest.raises(InsufficientMemory, match=said):
        collect("Pong", agent, steps=10**13)
    assert not agent.observations


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_actions": 9}, "checksum: chooses among 9 actions and Pong has 6, NOOP, FIRE"),
        (
            {"observation_shape": (84, 84, 4)},
            r"expects observations of shape \(84, 84, 4\) and Pong has \(4, 84",
        ),
        ({"num_features": 5}, r"shapes \(\(2,\), \(2, 17\), \(2,\)\) and must be .* \(2, 5\)"),
    ],
)
def test_an_agent_of_another_game_raises(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        collect("Pong", dataclasses.replace(ChecksumAgent("Pong"), **changes), steps=10, num_envs=4)


@dataclasses.dataclass
class FaultyAgent(ChecksumAgent):
    """An agent with faulty outputs from its sixth call on."""

    fault: str = "action"

    def act(
        self, observations: NDArray[np.uint8], state: Any, is_first: NDArray[np.bool_]
    ) -> tuple[AgentOutput, Any]:
        output, state = super().act(observations, state, is_first)
        if len(self.observations) < 6:
            return output, state
        faults = {
            "action": output._replace(action=np.full(len(is_first), 6)),
            "kind": output._replace(action=output.action.astype(np.float64)),
            "nan": output._replace(features=output.features * np.float32(np.nan)),
            "large": output._replace(features=output.features + np.float32(1e5)),
        }
        return faults[self.fault], state


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("action", "checksum: chose action 6 and must choose from 0 to 5, among NOOP, FIRE"),
        ("kind", "action, features and value are float64"),
        ("nan", "checksum: a feature is NaN or infinite"),
        ("large", r"a feature is 1e\+05 and the largest that float16 holds is 65504"),
    ],
)
def test_errors_of_an_agent_name_it(fault: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        collect("Pong", FaultyAgent("Pong", fault=fault), steps=100, num_envs=4)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"steps": 0}, "Pong: steps is 0"),
        ({"num_envs": 0}, "Pong: num_envs is 0"),
        ({"epsilon": 1.5}, "Pong: epsilon is 1.5 and must be a number from 0 to 1"),
        ({"epsilon": float("nan")}, "epsilon is nan"),
        ({"epsilon": "often"}, "epsilon is 'often'"),
        ({"seed": -3}, "seed is -3"),
    ],
)
def test_arguments_are_validated(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        collect("Pong", ChecksumAgent("Pong"), **{"steps": 10, **options})

"""Games by name, and the standard preprocessing, exactly and independent of other games."""

from __future__ import annotations

import sys
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from bisimetric.errors import InputError
from bisimetric_atari.games import AtariGames, VectorStep, find_game
from bisimetric_atari.games.environments import (
    MULTIPLAYER_ROMS,
    OBSERVATION_SHAPE,
    derive_seeds,
    list_games,
)

gymnasium.register_envs(ale_py)
PAPER = ("Pong", "SpaceInvaders", "Asterix")


def make_reference(name: str) -> Any:
    """Make the same deterministic game with Gymnasium's own wrappers."""
    bare = gymnasium.make(f"ALE/{name}-v5", frameskip=1, repeat_action_probability=0.0)
    return FrameStackObservation(AtariPreprocessing(bare, noop_max=0), 4, padding_type="zero")


@pytest.mark.parametrize("name", PAPER)
def test_frames_and_rewards_are_those_of_the_standard_preprocessing(name: str) -> None:
    reference, games = make_reference(name), AtariGames(name, 1, max_noops=0)
    random = np.random.default_rng(1)
    step = games.reset()
    expected, _ = reference.reset(seed=3)
    assert step.is_first.tolist() == [True]
    assert (step.observations[0] == expected).all()
    assert reference.unwrapped.get_action_meanings() == list(games.game.actions)
    episodes, rewards = 0, 0.0
    for _ in range(500):
        action = int(random.integers(len(games.game.actions)))
        if step.terminated[0]:
            episodes += 1
            step = games.step([action])
            expected, _ = reference.reset()
            assert step.is_first.tolist() == [True]
            assert (step.observations[0] == expected).all()
            continue
        step = games.step([action])
        expected, reward, terminated, truncated, info = reference.step(action)
        assert (step.observations[0] == expected).all()
        assert step.rewards[0] == reward
        assert (step.terminated[0], step.truncated[0]) == (terminated, truncated)
        assert step.lives[0] == info["lives"]
        assert not step.is_first[0]
        rewards += abs(float(reward))
    assert rewards > 0
    assert episodes > 0 or name == "Pong"


def run_games(num_envs: int, steps: int = 150, **options: Any) -> list[VectorStep]:
    """Run games with fixed actions per index."""
    games = AtariGames("Asterix", num_envs, **options)
    found = [games.reset()]
    actions = np.random.default_rng(0).integers(0, 9, (steps, 8))
    first = options.get("first_index", 0)
    return found + [games.step(each[first : first + num_envs]) for each in actions]


def are_equal(one: list[VectorStep], other: list[VectorStep], part: slice) -> bool:
    pairs = zip(one, other, strict=True)
    return all(
        (np.asarray(a)[part] == b).all() for x, y in pairs for a, b in zip(x, y, strict=True)
    )


@pytest.mark.slow
def test_games_depend_on_seed_and_index_alone() -> None:
    everything = run_games(4, seed=7, num_threads=1, max_episode_steps=100)
    assert any(each.is_first.any() for each in everything[1:])
    for threads in (2, 3, 0):
        assert are_equal(
            everything,
            run_games(4, seed=7, num_threads=threads, max_episode_steps=100),
            slice(None),
        )
    assert are_equal(
        everything, run_games(2, seed=7, first_index=1, max_episode_steps=100), slice(1, 3)
    )


def test_another_seed_or_index_is_another_game() -> None:
    step = run_games(4, seed=7, steps=0)[0]
    other = run_games(4, seed=8, steps=0)[0]
    assert len(set(step.frames.tolist() + other.frames.tolist())) > 4
    assert len({*derive_seeds(7, 50).tolist(), *derive_seeds(8, 50).tolist()}) == 100
    assert derive_seeds(7, 2, first_index=3).tolist() == derive_seeds(7, 5).tolist()[3:]


def test_reset_restarts_the_same_games() -> None:
    games = AtariGames("Pong", 2, seed=1)
    one = games.reset()
    games.step([2, 3])
    assert (games.reset().observations == one.observations).all()


def test_observations_are_not_overwritten() -> None:
    games = AtariGames("Pong", 2)
    one = games.reset()
    before = one.observations.copy()
    for _ in range(5):
        games.step([2, 2])
    assert (one.observations == before).all()


def test_a_truncated_episode_is_followed_by_another() -> None:
    games = AtariGames("Pong", 2, max_episode_steps=3, max_noops=0)
    first = games.reset()
    for count in range(1, 4):
        step = games.step([0, 0])
        assert step.truncated.tolist() == [count == 3] * 2
        assert not step.is_first.any()
    assert not step.terminated.any()
    again = games.step([3, 3])
    assert again.is_first.all()
    assert (again.observations == first.observations).all()
    assert not again.rewards.any()


@pytest.mark.parametrize(
    "name", ["SpaceInvaders", "space_invaders", "spaceinvaders", "SPACE INVADERS"]
)
def test_names_ignore_case_and_separators(name: str) -> None:
    assert find_game(name).name == "SpaceInvaders"
    assert find_game(find_game(name)) == find_game(name)
    assert find_game(name).rom == "space_invaders"


def test_all_single_player_games_are_known() -> None:
    assert len(list_games()) == len(set(list_games())) > 90
    assert set(PAPER) <= set(list_games())
    for each in MULTIPLAYER_ROMS:
        with pytest.raises(InputError, match=f"there is no game '{each}'"):
            find_game(each)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Pnog", "there is no game 'Pnog'; did you mean 'Pong'"),
        ("SpaceInvader", "did you mean 'SpaceInvaders'"),
        ("ALE/Pong-v5", "did you mean 'Pong'"),
        ("", "there is no game ''; name one such as Pong"),
    ],
)
def test_an_unknown_game_suggests_similar_names(name: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        AtariGames(name, 1)


def test_a_missing_package_names_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py.vector_env", None)
    with pytest.raises(InputError, match=r"is not installed; pip install bisimetric-atari\."):
        AtariGames("Pong", 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_envs": 0}, "Pong: num_envs is 0 and must be a whole number, at least 1"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 0.5}, "seed is 0.5"),
        ({"max_noops": -1}, "max_noops is -1"),
        ({"num_threads": "two"}, "num_threads is 'two'"),
        ({"max_episode_steps": 0}, "max_episode_steps is 0"),
    ],
)
def test_arguments_are_validated(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        AtariGames("Pong", **{"num_envs": 1, **options})


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        ([0], r"int64 of shape \(1,\) and must be whole numbers of shape \(2,\)"),
        ([0.0, 1.0], "actions are float64"),
        ([0, 6], "there is no action 6; there are 6, NOOP, FIRE"),
        ([-1, 0], "there is no action -1"),
    ],
)
def test_actions_are_validated(actions: list[Any], said: str) -> None:
    games = AtariGames("Pong", 2)
    assert games.reset().observations.shape == (2, *OBSERVATION_SHAPE)
    with pytest.raises(InputError, match=said):
        games.send(actions)

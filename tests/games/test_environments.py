"""Games by name, and what they show: the standard preprocessing, exactly, in any company."""

from __future__ import annotations

import sys
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from bisimetric.errors import InputError
from bisimetric.games import AtariGames, VectorStep, find_game
from bisimetric.games.environments import (
    MULTIPLAYER_ROMS,
    OBSERVATION_SHAPE,
    derive_seeds,
    list_games,
)

gymnasium.register_envs(ale_py)
PAPER = ("Pong", "SpaceInvaders", "Asterix")


def standard(name: str) -> Any:
    """The same game by Gymnasium's own wrappers, without chance."""
    bare = gymnasium.make(f"ALE/{name}-v5", frameskip=1, repeat_action_probability=0.0)
    return FrameStackObservation(AtariPreprocessing(bare, noop_max=0), 4, padding_type="zero")


@pytest.mark.parametrize("name", PAPER)
def test_frames_and_rewards_are_those_of_the_standard_preprocessing(name: str) -> None:
    theirs, ours = standard(name), AtariGames(name, 1, max_noops=0)
    random = np.random.default_rng(1)
    moves = ours.reset()
    expected, _ = theirs.reset(seed=3)
    assert moves.is_first.tolist() == [True]
    assert (moves.observations[0] == expected).all()
    assert theirs.unwrapped.get_action_meanings() == list(ours.game.actions)
    overs, paid = 0, 0.0
    for _ in range(500):
        action = int(random.integers(len(ours.game.actions)))
        if moves.terminated[0]:
            overs += 1
            moves = ours.step([action])
            expected, _ = theirs.reset()
            assert moves.is_first.tolist() == [True]
            assert (moves.observations[0] == expected).all()
            continue
        moves = ours.step([action])
        expected, reward, terminated, truncated, info = theirs.step(action)
        assert (moves.observations[0] == expected).all()
        assert moves.rewards[0] == reward
        assert (moves.terminated[0], moves.truncated[0]) == (terminated, truncated)
        assert moves.lives[0] == info["lives"]
        assert not moves.is_first[0]
        paid += abs(float(reward))
    assert paid > 0
    assert overs > 0 or name == "Pong"


def run(count: int, steps: int = 150, **options: Any) -> list[VectorStep]:
    """A walk that takes the same actions in the same places."""
    games = AtariGames("Asterix", count, **options)
    found = [games.reset()]
    actions = np.random.default_rng(0).integers(0, 9, (steps, 8))
    first = options.get("first", 0)
    return found + [games.step(each[first : first + count]) for each in actions]


def alike(one: list[VectorStep], other: list[VectorStep], part: slice) -> bool:
    pairs = zip(one, other, strict=True)
    return all(
        (np.asarray(a)[part] == b).all() for x, y in pairs for a, b in zip(x, y, strict=True)
    )


@pytest.mark.slow
def test_a_key_gives_the_same_games_with_any_threads_and_in_any_company() -> None:
    all_of_them = run(4, key=7, threads=1, longest=100)
    assert any(each.is_first.any() for each in all_of_them[1:])
    for threads in (2, 3, 0):
        assert alike(all_of_them, run(4, key=7, threads=threads, longest=100), slice(None))
    assert alike(all_of_them, run(2, key=7, first=1, longest=100), slice(1, 3))


def test_another_key_and_another_place_are_another_game() -> None:
    moves = run(4, key=7, steps=0)[0]
    other = run(4, key=8, steps=0)[0]
    assert len(set(moves.frames.tolist() + other.frames.tolist())) > 4
    assert len({*derive_seeds(7, 50).tolist(), *derive_seeds(8, 50).tolist()}) == 100
    assert derive_seeds(7, 2, first_index=3).tolist() == derive_seeds(7, 5).tolist()[3:]


def test_a_reset_gives_the_same_games_again() -> None:
    games = AtariGames("Pong", 2, seed=1)
    one = games.reset()
    games.step([2, 3])
    assert (games.reset().observations == one.observations).all()


def test_what_was_shown_is_not_overwritten() -> None:
    games = AtariGames("Pong", 2)
    one = games.reset()
    before = one.observations.copy()
    for _ in range(5):
        games.step([2, 2])
    assert (one.observations == before).all()


def test_a_cut_game_is_followed_by_a_fresh_one() -> None:
    games = AtariGames("Pong", 2, max_episode_steps=3, max_noops=0)
    first = games.reset()
    for step in range(1, 4):
        moves = games.step([0, 0])
        assert moves.truncated.tolist() == [step == 3] * 2
        assert not moves.is_first.any()
    assert not moves.terminated.any()
    again = games.step([3, 3])
    assert again.is_first.all()
    assert (again.observations == first.observations).all()
    assert not again.rewards.any()


@pytest.mark.parametrize(
    "name", ["SpaceInvaders", "space_invaders", "spaceinvaders", "SPACE INVADERS"]
)
def test_games_go_by_their_names(name: str) -> None:
    assert find_game(name).name == "SpaceInvaders"
    assert find_game(find_game(name)) == find_game(name)
    assert find_game(name).rom == "space_invaders"


def test_all_games_for_one_player_are_known() -> None:
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
def test_an_unknown_game_is_refused_with_the_near_names(name: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        AtariGames(name, 1)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py.vector_env", None)
    with pytest.raises(InputError, match=r"is not installed; pip install 'bisimetric\[atari\]'\."):
        AtariGames("Pong", 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"count": 0}, "Pong: count is 0 and must be a whole number, at least 1"),
        ({"key": -1}, "key is -1"),
        ({"key": 0.5}, "key is 0.5"),
        ({"noops": -1}, "noops is -1"),
        ({"threads": "two"}, "threads is 'two'"),
        ({"longest": 0}, "longest is 0"),
    ],
)
def test_numbers_are_checked(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        AtariGames("Pong", **{"count": 1, **options})


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        ([0], r"int64 of shape \(1,\) and must be whole numbers of shape \(2,\)"),
        ([0.0, 1.0], "actions are float64"),
        ([0, 6], "there is no action 6; there are 6, NOOP, FIRE"),
        ([-1, 0], "there is no action -1"),
    ],
)
def test_actions_are_checked(actions: list[Any], said: str) -> None:
    games = AtariGames("Pong", 2)
    assert games.reset().observations.shape == (2, *OBSERVATION_SHAPE)
    with pytest.raises(InputError, match=said):
        games.send(actions)

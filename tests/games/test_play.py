"""Episodes to look at: the same game as elsewhere, and screens that show what the agent saw."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from bisimetric.errors import InputError, InsufficientMemory
from bisimetric.games import AtariGames, Episode, collect, find_game, play
from bisimetric.games._play import ENEMY_COUNT_ADDRESS, ScreenRecorder
from bisimetric.games.environments import create_emulator
from bisimetric.games.episode import FRAME_FIELDS
from tests.gamers import Gamer

NAME = "Asterix"


@pytest.fixture(scope="module")
def watched() -> tuple[Gamer, Episode]:
    """Two games, with starts that are late, and what the agent was shown."""
    agent = Gamer(NAME)
    return agent, play(NAME, agent, episodes=2, epsilon=0.1, max_noops=30, seed=6)


def test_an_episode_is_what_is_collected_with_the_same_key(watched: tuple[Gamer, Episode]) -> None:
    episode = watched[1]
    steps = collect(
        NAME, Gamer(NAME), steps=len(episode), num_games=1, epsilon=0.1, seed=6, clip_rewards=False
    )
    assert np.array_equal(episode.actions, steps.actions)
    assert np.array_equal(episode.rewards, steps.rewards)
    assert np.array_equal(episode.terminated, steps.terminated)
    assert np.array_equal(episode.features.astype(np.float16), steps.observations)
    assert np.array_equal(episode.starts[1:], np.flatnonzero(steps.terminated)[:-1] + 1)


def test_the_agent_is_shown_what_the_vector_environment_shows(
    watched: tuple[Gamer, Episode],
) -> None:
    agent, episode = watched
    games = AtariGames(NAME, 3, seed=6)
    moves = games.reset()
    shown = iter(agent.shown)
    assert np.array_equal(next(shown)[0], moves.observations[0])
    actions = iter(episode.actions.tolist())
    for each in shown:
        over = moves.terminated[0]
        moves = games.step([0 if over else next(actions), 1, 2])
        assert np.array_equal(each[0], moves.observations[0])


@pytest.mark.parametrize("name", ["Asterix", "SpaceInvaders", "Pong"])
def test_the_screens_are_those_that_the_agent_saw(name: str) -> None:
    agent = Gamer(name)
    episode = play(
        name, agent, episodes=2, max_steps=240, max_noops=30, seed=6, max_episode_steps=110
    )
    console = create_emulator(find_game(name).rom, 0)
    actions, grey = console.getMinimalActionSet(), np.zeros(256, np.uint8)
    console.reset_game()
    for action in np.repeat(episode.actions, 4):
        console.act(actions[action])
        grey[console.getScreen()] = console.getScreenGrayscale()
    acted = [each[0, -1] for each, age in zip(agent.shown, ages(agent), strict=True) if age < 110]
    assert len(acted) == len(episode)
    for screen, frame in zip(episode.screens, acted, strict=True):
        seen = cv2.resize(grey[screen], (84, 84), interpolation=cv2.INTER_AREA)
        assert np.array_equal(seen, frame)


def ages(agent: Gamer) -> list[int]:
    """How many observations of its game the agent had seen before each."""
    found = [0]
    for fresh in agent.fresh[1:]:
        found.append(0 if fresh[0] else found[-1] + 1)
    return found


def test_colours_are_those_of_the_console() -> None:
    episode = play("SpaceInvaders", Gamer("SpaceInvaders"), max_steps=30, epsilon=0)
    console = create_emulator("space_invaders", 0)
    console.reset_game()
    assert np.array_equal(episode.render(0), console.getScreenRGB())
    actions = console.getMinimalActionSet()
    for action in episode.actions[:-1]:
        for _ in range(4):
            console.act(actions[action])
    last = console.getScreenRGB()
    # The frame before it may have been brighter where things move, and nowhere else.
    assert (episode.render(-1) == last).mean() > 0.98


def test_what_happens_is_told(watched: tuple[Gamer, Episode]) -> None:
    episode = watched[1]
    events = episode.list_events()
    assert set(events) == {"starts", "points", "losses"}
    assert episode.level_starts is None
    assert len(episode.starts) == len(episode.scores) == episode.episode[-1] + 1 == 2
    assert episode.scores.sum() == episode.rewards.sum() > 0
    assert len(episode.life_losses) == 6
    assert episode.terminated[episode.life_losses].sum() == 2
    for each in episode.life_losses:
        fewer = not episode.terminated[each] and episode.lives[each + 1] < episode.lives[each]
        assert fewer or episode.terminated[each]
    assert np.array_equal(episode.scoring_frames, np.flatnonzero(episode.rewards))
    assert not episode.truncated.any()
    assert episode.metadata["game"] == NAME


def test_games_without_late_starts_start_alike() -> None:
    episode = play("Pong", Gamer("Pong"), episodes=3, max_episode_steps=20, epsilon=0)
    assert episode.starts.tolist() == [0, 20, 40]
    assert np.array_equal(episode.features[:20], episode.features[20:40])
    assert np.array_equal(episode.screens[0], episode.screens[40])
    assert np.flatnonzero(episode.truncated).tolist() == [19, 39, 59]


def test_a_recording_is_cut_after_the_most_steps() -> None:
    short, long = (play("Pong", Gamer("Pong"), max_steps=most, seed=1) for most in (15, 40))
    assert (len(short), len(long)) == (15, 40)
    assert np.flatnonzero(short.truncated).tolist() == [14]
    assert np.array_equal(short.screens, long.screens[:15])
    assert np.array_equal(short.values, long.values[:15])


def test_a_level_starts_where_the_foes_are_back() -> None:
    space = find_game("SpaceInvaders")
    screens = ScreenRecorder(space, 0)
    screens.reset(0)
    for _ in range(5):
        screens.step(0)
    assert screens.num_enemies == 36
    # With one foe left, hitting any of them wins the level.
    screens._console.setRAM(ENEMY_COUNT_ADDRESS["SpaceInvaders"], 1)
    counts = []
    for _ in range(300):
        screens.step(1)
        counts.append(screens.num_enemies)
    assert 0 in counts
    assert 36 in counts[counts.index(0) :]
    assert ScreenRecorder(find_game("Pong"), 0).num_enemies is None


def test_levels_are_those_within_a_game() -> None:
    episode = play("SpaceInvaders", Gamer("SpaceInvaders"), episodes=2, max_episode_steps=10)
    assert episode.level_starts is not None
    assert episode.level_starts.tolist() == []
    assert set(episode.list_events()) == {"starts", "points", "losses", "levels"}


def test_an_episode_can_be_kept(tmp_path: Path, watched: tuple[Gamer, Episode]) -> None:
    for name in ("Pong", "SpaceInvaders"):
        episode = play(name, Gamer(name), max_steps=20)
        path = tmp_path / f"{name}.npz"
        episode.save(path)
        assert path.stat().st_size < 100_000
        again = Episode.load(path)
        for each in dataclasses.fields(Episode):
            assert np.array_equal(getattr(again, each.name), getattr(episode, each.name))
        assert (again.level_starts is None) == (name == "Pong")
        assert not again.screens.flags.writeable
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="is cut short or holds no episode of a game"):
        Episode.load(path)
    steps = collect("Pong", Gamer("Pong"), steps=4)
    steps.save(path)
    with pytest.raises(InputError, match=r"holds no episode of a game \(its format is another one"):
        Episode.load(path)
    with pytest.raises(FileNotFoundError, match="make the folder"):
        episode.save(tmp_path / "nowhere" / "episode.npz")


@pytest.mark.parametrize("field", [*FRAME_FIELDS, "palette"])
def test_an_episode_has_one_row_a_frame(field: str, watched: tuple[Gamer, Episode]) -> None:
    wrong: Any = {field: getattr(watched[1], field)[:-1]}
    with pytest.raises(InputError, match=r"Episode: .* must"):
        dataclasses.replace(watched[1], **wrong)


def test_an_episode_that_ends_at_once_is_refused() -> None:
    with pytest.raises(InputError, match="Pong: the game of key 3 ends after 1 step, which leaves"):
        play("Pong", Gamer("Pong"), seed=3, max_episode_steps=1)


def test_no_space_is_said_before() -> None:
    with pytest.raises(
        InsufficientMemory, match=r"Pong: the screens of 1,000,000,000 steps need .* TiB"
    ):
        play("Pong", Gamer("Pong"), max_steps=10**9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"most": 1}, "Pong: most is 1 and must be a whole number, at least 2"),
        ({"episodes": 0}, "Pong: episodes is 0"),
        ({"epsilon": -0.1}, "Pong: epsilon is -0.1"),
        ({"noops": -1}, "Pong: noops is -1"),
    ],
)
def test_numbers_are_checked(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        play("Pong", Gamer("Pong"), **options)


def test_an_agent_of_another_game_is_refused(watched: tuple[Gamer, Episode]) -> None:
    with pytest.raises(InputError, match="gamer: chooses among 9 actions and Pong has 6"):
        play("Pong", watched[0])
    with pytest.raises(InputError, match=r"Asterix: there is no frame 10000; there are \d+"):
        watched[1].render(10_000)

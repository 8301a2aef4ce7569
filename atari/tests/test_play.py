"""Recorded episodes: the games of `collect`, with screens that match the observations."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from bisimetric.errors import InputError, InsufficientMemory
from bisimetric_atari.games import AtariGames, Episode, collect, find_game, play
from bisimetric_atari.games._play import ENEMY_COUNT_ADDRESS, ScreenRecorder
from bisimetric_atari.games.environments import create_emulator
from bisimetric_atari.games.episode import FRAME_FIELDS
from simple_agents import ChecksumAgent

NAME = "Asterix"


@pytest.fixture(scope="module")
def recording() -> tuple[ChecksumAgent, Episode]:
    """Two episodes with no-op starts, and the agent with its inputs."""
    agent = ChecksumAgent(NAME)
    return agent, play(NAME, agent, episodes=2, epsilon=0.1, max_noops=30, seed=6)


def test_an_episode_equals_transitions_of_the_same_seed(
    recording: tuple[ChecksumAgent, Episode],
) -> None:
    episode = recording[1]
    steps = collect(
        NAME,
        ChecksumAgent(NAME),
        steps=len(episode),
        num_envs=1,
        epsilon=0.1,
        seed=6,
        clip_rewards=False,
    )
    assert np.array_equal(episode.actions, steps.actions)
    assert np.array_equal(episode.rewards, steps.rewards)
    assert np.array_equal(episode.terminated, steps.terminated)
    assert np.array_equal(episode.features.astype(np.float16), steps.observations)
    assert np.array_equal(episode.starts[1:], np.flatnonzero(steps.terminated)[:-1] + 1)


def test_observations_equal_those_of_the_vector_environment(
    recording: tuple[ChecksumAgent, Episode],
) -> None:
    agent, episode = recording
    games = AtariGames(NAME, 3, seed=6)
    step = games.reset()
    observations = iter(agent.observations)
    assert np.array_equal(next(observations)[0], step.observations[0])
    actions = iter(episode.actions.tolist())
    for each in observations:
        over = step.terminated[0]
        step = games.step([0 if over else next(actions), 1, 2])
        assert np.array_equal(each[0], step.observations[0])


@pytest.mark.parametrize("name", ["Asterix", "SpaceInvaders", "Pong"])
def test_screens_match_the_observations(name: str) -> None:
    agent = ChecksumAgent(name)
    episode = play(
        name, agent, episodes=2, max_steps=240, max_noops=30, seed=6, max_episode_steps=110
    )
    console = create_emulator(find_game(name).rom, 0)
    actions, grey = console.getMinimalActionSet(), np.zeros(256, np.uint8)
    console.reset_game()
    for action in np.repeat(episode.actions, 4):
        console.act(actions[action])
        grey[console.getScreen()] = console.getScreenGrayscale()
    frames = [
        each[0, -1]
        for each, age in zip(agent.observations, compute_ages(agent), strict=True)
        if age < 110
    ]
    assert len(frames) == len(episode)
    for screen, frame in zip(episode.screens, frames, strict=True):
        seen = cv2.resize(grey[screen], (84, 84), interpolation=cv2.INTER_AREA)
        assert np.array_equal(seen, frame)


def compute_ages(agent: ChecksumAgent) -> list[int]:
    """Return the number of earlier observations of the same episode."""
    found = [0]
    for is_first in agent.is_first[1:]:
        found.append(0 if is_first[0] else found[-1] + 1)
    return found


def test_colours_are_those_of_the_emulator() -> None:
    episode = play("SpaceInvaders", ChecksumAgent("SpaceInvaders"), max_steps=30, epsilon=0)
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


def test_events_are_listed(recording: tuple[ChecksumAgent, Episode]) -> None:
    episode = recording[1]
    events = episode.list_events()
    assert set(events) == {"starts", "scores", "life losses"}
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


def test_episodes_without_noops_start_equal() -> None:
    episode = play("Pong", ChecksumAgent("Pong"), episodes=3, max_episode_steps=20, epsilon=0)
    assert episode.starts.tolist() == [0, 20, 40]
    assert np.array_equal(episode.features[:20], episode.features[20:40])
    assert np.array_equal(episode.screens[0], episode.screens[40])
    assert np.flatnonzero(episode.truncated).tolist() == [19, 39, 59]


def test_a_recording_is_truncated_at_max_steps() -> None:
    short, long = (
        play("Pong", ChecksumAgent("Pong"), max_steps=max_steps, seed=1) for max_steps in (15, 40)
    )
    assert (len(short), len(long)) == (15, 40)
    assert np.flatnonzero(short.truncated).tolist() == [14]
    assert np.array_equal(short.screens, long.screens[:15])
    assert np.array_equal(short.values, long.values[:15])


def test_a_level_starts_where_enemies_reappear() -> None:
    space = find_game("SpaceInvaders")
    recorder = ScreenRecorder(space, 0)
    recorder.reset(0)
    for _ in range(5):
        recorder.step(0)
    assert recorder.num_enemies == 36
    # With one enemy left, hitting any of them wins the level.
    recorder._console.setRAM(ENEMY_COUNT_ADDRESS["SpaceInvaders"], 1)
    counts = []
    for _ in range(300):
        recorder.step(1)
        counts.append(recorder.num_enemies)
    assert 0 in counts
    assert 36 in counts[counts.index(0) :]
    assert ScreenRecorder(find_game("Pong"), 0).num_enemies is None


def test_level_starts_are_within_an_episode() -> None:
    episode = play(
        "SpaceInvaders", ChecksumAgent("SpaceInvaders"), episodes=2, max_episode_steps=10
    )
    assert episode.level_starts is not None
    assert episode.level_starts.tolist() == []
    assert set(episode.list_events()) == {"starts", "scores", "life losses", "level starts"}


def test_an_episode_can_be_saved(tmp_path: Path, recording: tuple[ChecksumAgent, Episode]) -> None:
    for name in ("Pong", "SpaceInvaders"):
        episode = play(name, ChecksumAgent(name), max_steps=20)
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
    steps = collect("Pong", ChecksumAgent("Pong"), steps=4)
    steps.save(path)
    with pytest.raises(InputError, match=r"holds no episode of a game \(its format is another one"):
        Episode.load(path)
    with pytest.raises(FileNotFoundError, match="make the folder"):
        episode.save(tmp_path / "nowhere" / "episode.npz")


@pytest.mark.parametrize("field", [*FRAME_FIELDS, "palette"])
def test_an_episode_has_one_row_per_frame(
    field: str, recording: tuple[ChecksumAgent, Episode]
) -> None:
    wrong: Any = {field: getattr(recording[1], field)[:-1]}
    with pytest.raises(InputError, match=r"Episode: .* must"):
        dataclasses.replace(recording[1], **wrong)


def test_an_episode_of_one_step_raises() -> None:
    with pytest.raises(InputError, match="Pong: the episode of seed 3 ends after 1 step"):
        play("Pong", ChecksumAgent("Pong"), seed=3, max_episode_steps=1)


def test_insufficient_memory_is_raised_before_playing() -> None:
    with pytest.raises(
        InsufficientMemory, match=r"Pong: the screens of 1,000,000,000 steps need .* TiB"
    ):
        play("Pong", ChecksumAgent("Pong"), max_steps=10**9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_steps": 1}, "Pong: max_steps is 1 and must be a whole number, at least 2"),
        ({"episodes": 0}, "Pong: episodes is 0"),
        ({"epsilon": -0.1}, "Pong: epsilon is -0.1"),
        ({"max_noops": -1}, "Pong: max_noops is -1"),
    ],
)
def test_arguments_are_validated(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        play("Pong", ChecksumAgent("Pong"), **options)


def test_an_agent_of_another_game_raises(recording: tuple[ChecksumAgent, Episode]) -> None:
    with pytest.raises(InputError, match="checksum: chooses among 9 actions and Pong has 6"):
        play("Pong", recording[0])
    with pytest.raises(InputError, match=r"Asterix: there is no frame 10000; there are \d+"):
        recording[1].render(10_000)

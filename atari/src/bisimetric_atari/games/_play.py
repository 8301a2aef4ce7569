"""Record episodes of an agent with full-colour screens from a second, synchronised emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._memory import require_memory
from bisimetric._progress import show_progress
from bisimetric.errors import InputError, require_integer
from bisimetric.mdp._validation import freeze
from bisimetric.transitions._validation import collect_metadata
from bisimetric_atari.games.agent import EPSILON, Agent, EpsilonGreedyPolicy, get_observes
from bisimetric_atari.games.environments import (
    FRAME_SKIP,
    MAX_EPISODE_STEPS,
    REPEAT_ACTION_PROBABILITY,
    AtariGames,
    Game,
    create_emulator,
    import_game_package,
)
from bisimetric_atari.games.episode import Episode

ENEMY_COUNT_ADDRESS = {"SpaceInvaders": 17}
"""RAM address of the number of enemies, where known; it increases when a level starts."""


class ScreenRecorder:
    """A second emulator that replays the starts and actions of a game and records its screen.

    As in the agent's observation, the last two frames of a step are combined by their pixelwise
    maximum (here: the colour of larger brightness), since sprites flicker.

    >>> from bisimetric_atari.games import find_game
    >>> recorder = ScreenRecorder(find_game("Pong"), seed=1)
    >>> recorder.reset(num_frames=10)
    >>> recorder.step(3), recorder.screen.shape
    (0.0, (210, 160))
    """

    def __init__(
        self,
        game: Game,
        seed: int,
        frame_skip: int = FRAME_SKIP,
        repeat_action_probability: float = REPEAT_ACTION_PROBABILITY,
    ) -> None:
        self._console = create_emulator(game.rom, seed, repeat_action_probability)
        self._frame_skip = frame_skip
        self._actions = self._console.getMinimalActionSet()
        self._enemy_address = ENEMY_COUNT_ADDRESS.get(game.name)
        self._known_colours = np.zeros(256, np.bool_)
        self.palette = np.zeros((256, 3), np.uint8)
        self.screen: NDArray[np.uint8] = np.zeros(self._console.getScreenDims(), np.uint8)

    def reset(self, num_frames: int) -> None:
        """Start an episode with this many no-op frames."""
        self._console.reset_game()
        for _ in range(num_frames):
            self._console.act(0)
        self.screen, _ = self._read_screen()

    def step(self, action: int) -> float:
        """Repeat an action for the frames of a step; return the sum of its rewards."""
        reward, frames = 0.0, []
        for frame in range(self._frame_skip):
            reward += self._console.act(self._actions[action])
            if self._console.game_over():
                break
            if frame >= self._frame_skip - 2:
                frames.append(self._read_screen())
        if len(frames) == 2:
            (first, first_grey), (second, second_grey) = frames
            self.screen = np.where(first_grey > second_grey, first, second)
        elif frames and self._frame_skip == 1:
            self.screen = frames[0][0]
        return reward

    @property
    def lives(self) -> int:
        return int(self._console.lives())

    @property
    def num_enemies(self) -> int | None:
        """Number of enemies left in this level; None where unknown."""
        address = self._enemy_address
        return None if address is None else int(self._console.getRAM()[address])

    def _read_screen(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return the screen as colour indices and in grey; complete the palette."""
        indices = self._console.getScreen()
        if not self._known_colours[indices].all():
            self.palette[indices] = self._console.getScreenRGB()
            self._known_colours[indices] = True
        return indices, self._console.getScreenGrayscale()


MAX_STEPS = 10_000
"""Default length of a recording: 336 MB of screens."""

MIN_STEPS = 2
"""Frames per episode, at least, so that there are two to compare."""


def play(
    game: str | Game,
    agent: Agent,
    *,
    episodes: int = 1,
    max_steps: int = MAX_STEPS,
    epsilon: float = EPSILON,
    max_noops: int = 0,
    seed: int = 0,
    max_episode_steps: int = MAX_EPISODE_STEPS,
    frame_skip: int = FRAME_SKIP,
    repeat_action_probability: float = REPEAT_ACTION_PROBABILITY,
) -> Episode:
    """Record episodes of an agent with their screens.

    The observations are those of `AtariGames` with one game and the same seed.

    Args:
        game: the game or its name.
        agent: the agent that plays it.
        episodes: number of successive episodes.
        max_steps: length at which the recording is cut.
        epsilon: probability of a uniformly random action.
        max_noops: no-op frames at the start of an episode, fewer than this; 0 makes the first
            frames of all episodes equal.
        seed: of the starts and the random actions.
        max_episode_steps: steps after which an episode is truncated.
        frame_skip: emulator frames per step.
        repeat_action_probability: sticky actions: the probability, per frame, that the emulator
            repeats the last action.

    Returns:
        The recording: one row per step.

    Raises:
        InputError: if the agent does not fit the game, an argument is out of range, or an episode
            has fewer than two steps.
        InsufficientMemory: if the screens do not fit into memory.

    >>> from bisimetric_atari.games import IdleAgent
    >>> episode = play("Pong", IdleAgent("Pong"), max_steps=20)
    >>> len(episode), episode.render(0).shape, episode.starts.tolist()
    (20, (210, 160, 3), [0])
    """
    games = AtariGames(
        game,
        1,
        seed=seed,
        max_noops=max_noops,
        max_episode_steps=max_episode_steps,
        frame_skip=frame_skip,
        repeat_action_probability=repeat_action_probability,
        observes=get_observes(agent),
    )
    game = games.game
    policy = EpsilonGreedyPolicy(agent, game, 1, epsilon=epsilon, seed=seed)
    recorder = ScreenRecorder(game, int(games.seeds[0]), frame_skip, repeat_action_probability)
    episodes = require_integer(game.name, "episodes", episodes, 1)
    max_steps = require_integer(game.name, "max_steps", max_steps, MIN_STEPS)
    row_bytes = recorder.screen.nbytes + 4 * agent.num_features
    require_memory(
        f"{game.name}: the screens of {max_steps:,} steps need",
        max_steps * row_bytes,
        "lower max_steps",
    )

    screens = np.empty((max_steps, *recorder.screen.shape), np.uint8)
    rows: list[dict[str, Any]] = []
    num_enemies: list[int | None] = []
    episode = 0
    step = games.reset()
    recorder.reset(int(step.frames[0]))
    with show_progress(max_steps, f"steps in {game.name}") as progress:
        while len(rows) < max_steps:
            output, action = policy.act(step.observations, step.is_first)
            if step.terminated[0] or step.truncated[0]:
                _require_min_steps(game, sum(row["episode"] == episode for row in rows), seed)
                episode += 1
                if episode == episodes:
                    break
                step = games.step(action)
                recorder.reset(int(step.frames[0]))
                continue
            screens[len(rows)] = recorder.screen
            num_enemies.append(recorder.num_enemies)
            lives = int(step.lives[0])
            step = games.step(action)
            reward = recorder.step(int(action[0]))
            if reward != step.rewards[0] or recorder.lives != step.lives[0]:
                raise RuntimeError(
                    f"{game.name}: the screens are out of sync with the game after {len(rows)} "
                    "steps; report this with the version of ale_py, "
                    f"{import_game_package('ale_py').__version__}."
                )
            rows.append(
                {
                    "features": output.features[0],
                    "values": output.value[0],
                    "actions": action[0],
                    "rewards": step.rewards[0],
                    "lives": lives,
                    "terminated": step.terminated[0],
                    "truncated": step.truncated[0],
                    "episode": episode,
                }
            )
            progress.set_position(len(rows), f"{len(rows):,} steps")
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    columns["truncated"][-1] |= not columns["terminated"][-1]
    details = {
        "game": game.name,
        "agent": agent.name,
        "episodes": episodes,
        "max_steps": max_steps,
        "epsilon": epsilon,
        "max_noops": max_noops,
        "seed": seed,
        "max_episode_steps": max_episode_steps,
        "frame_skip": frame_skip,
        "repeat_action_probability": repeat_action_probability,
        "observes": get_observes(agent),
        "sampled_actions": policy.has_sampled,
        "ale_py": import_game_package("ale_py").__version__,
    }
    return Episode(
        game=game.name,
        screens=freeze(screens[: len(rows)]),
        palette=freeze(recorder.palette),
        level_starts=_find_level_starts(num_enemies, columns["episode"]),
        metadata=collect_metadata(details),
        **columns,
    )


def _find_level_starts(num_enemies: list[int | None], episode: np.ndarray[Any, Any]) -> Any:
    """Find the frames with more enemies than the frame before, within one episode."""
    if None in num_enemies:
        return None
    more = np.diff(np.array(num_enemies), prepend=0) > 0
    return freeze(np.flatnonzero(more & (np.diff(episode, prepend=-1) == 0)))


def _require_min_steps(game: Game, steps: int, seed: int) -> None:
    """Raise InputError for an episode of fewer than two steps."""
    if steps < MIN_STEPS:
        raise InputError(
            f"{game.name}: the episode of seed {seed} ends after {steps} step, which leaves no two "
            "frames to compare; give another seed, or a larger max_episode_steps."
        )

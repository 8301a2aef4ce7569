"""The screen of a game that is being played: what the agent sees, in colour and in full.

Episodes to look at: an agent plays, and the screens are kept with what it finds in them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._memory import require_memory
from bisimetric._progress import show_progress
from bisimetric.errors import InputError, require_integer
from bisimetric.games.agent import EPSILON, Agent, EpsilonGreedyPolicy
from bisimetric.games.environments import (
    FRAME_SKIP,
    MAX_EPISODE_STEPS,
    AtariGames,
    Game,
    create_emulator,
    import_game_package,
)
from bisimetric.games.episode import Episode
from bisimetric.mdp._validation import freeze
from bisimetric.transitions._validation import collect_metadata

ENEMY_COUNT_ADDRESS = {"SpaceInvaders": 17}
"""The byte of memory that counts the foes of a level, where it is known: it rises at its start."""


class ScreenRecorder:
    """A second console that follows a game by its starts and actions, and shows its screen.

    Where a picture flickers, both see the last two frames of a step in one: of each point, the
    brighter colour.

    >>> from bisimetric.games.environments import game
    >>> screens = Screens(game("Pong"), seed=1)
    >>> screens.start(frames=10)
    >>> screens.step(3), screens.shown.shape
    (0.0, (210, 160))
    """

    def __init__(self, game: Game, seed: int) -> None:
        self._console = create_emulator(game.rom, seed)
        self._actions = self._console.getMinimalActionSet()
        self._enemy_address = ENEMY_COUNT_ADDRESS.get(game.name)
        self._known_colours = np.zeros(256, np.bool_)
        self.palette = np.zeros((256, 3), np.uint8)
        self.screen: NDArray[np.uint8] = np.zeros(self._console.getScreenDims(), np.uint8)

    def reset(self, num_frames: int) -> None:
        """The start of a game, and so many frames without an action."""
        self._console.reset_game()
        for _ in range(num_frames):
            self._console.act(0)
        self.screen, _ = self._read_screen()

    def step(self, action: int) -> float:
        """Holds an action for the frames of a step, and returns what it paid."""
        paid, looks = 0.0, []
        for frame in range(FRAME_SKIP):
            paid += self._console.act(self._actions[action])
            if self._console.game_over():
                break
            if frame >= FRAME_SKIP - 2:
                looks.append(self._read_screen())
        if len(looks) == 2:
            (one, grey), (other, other_grey) = looks
            self.screen = np.where(grey > other_grey, one, other)
        return paid

    @property
    def lives(self) -> int:
        return int(self._console.lives())

    @property
    def num_enemies(self) -> int | None:
        """How many foes of this level are left, where that is known."""
        return (
            None
            if self._enemy_address is None
            else int(self._console.getRAM()[self._enemy_address])
        )

    def _read_screen(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The screen in the numbers of its colours, and in grey."""
        indices = self._console.getScreen()
        if not self._known_colours[indices].all():
            self.palette[indices] = self._console.getScreenRGB()
            self._known_colours[indices] = True
        return indices, self._console.getScreenGrayscale()


MAX_STEPS = 10_000
"""Steps after which a recording is cut: 336 MB of screens."""

MIN_STEPS = 2
"""Frames that a game must have, so that they can be compared."""


def play(
    name: str | Game,
    agent: Agent,
    *,
    episodes: int = 1,
    max_steps: int = MAX_STEPS,
    epsilon: float = EPSILON,
    max_noops: int = 0,
    seed: int = 0,
    max_episode_steps: int = MAX_EPISODE_STEPS,
) -> Episode:
    """So many `episodes` of an agent in a row, or their first `most` steps, with the screens.

    The agent sees what it would see in `Games` of one game with the same key, and slips as in
    `collect`: with probability epsilon it takes any action. The games start at once, without
    `noops`, so that the first frames of all of them are alike.

    >>> from bisimetric.games.agent import Idle
    >>> episode = play("Pong", Idle("Pong"), most=20)
    >>> len(episode), episode.rgb(0).shape, episode.starts.tolist()
    (20, (210, 160, 3), [0])
    """
    games = AtariGames(name, 1, seed=seed, max_noops=max_noops, max_episode_steps=max_episode_steps)
    game = games.game
    player = EpsilonGreedyPolicy(agent, game, 1, epsilon=epsilon, seed=seed)
    screens = ScreenRecorder(game, int(games.seeds[0]))
    episodes = require_integer(game.name, "episodes", episodes, 1)
    max_steps = require_integer(game.name, "most", max_steps, MIN_STEPS)
    size = screens.screen.nbytes + 4 * agent.num_features
    require_memory(
        f"{game.name}: the screens of {max_steps:,} steps need", max_steps * size, "take fewer"
    )

    kept = np.empty((max_steps, *screens.screen.shape), np.uint8)
    rows: list[dict[str, Any]] = []
    foes: list[int | None] = []
    played = 0
    moves = games.reset()
    screens.reset(int(moves.frames[0]))
    with show_progress(max_steps, f"steps in {game.name}") as progress:
        while len(rows) < max_steps:
            seen, chosen = player.act(moves.observations, moves.is_first)
            if moves.terminated[0] or moves.truncated[0]:
                _require_min_steps(game, sum(row["episode"] == played for row in rows), seed)
                played += 1
                if played == episodes:
                    break
                moves = games.step(chosen)
                screens.reset(int(moves.frames[0]))
                continue
            kept[len(rows)] = screens.screen
            foes.append(screens.num_enemies)
            lives = int(moves.lives[0])
            moves = games.step(chosen)
            paid = screens.step(int(chosen[0]))
            if paid != moves.rewards[0] or screens.lives != moves.lives[0]:
                raise RuntimeError(
                    f"{game.name}: the screens left the game after {len(rows)} steps; report this "
                    f"with the version of ale_py, {import_game_package('ale_py').__version__}."
                )
            rows.append(
                {
                    "features": seen.features[0],
                    "values": seen.value[0],
                    "actions": chosen[0],
                    "rewards": moves.rewards[0],
                    "lives": lives,
                    "terminated": moves.terminated[0],
                    "truncated": moves.truncated[0],
                    "episode": played,
                }
            )
            progress.set_position(len(rows), f"{len(rows):,} taken")
    columns = {each: np.array([row[each] for row in rows]) for each in rows[0]}
    columns["truncated"][-1] |= not columns["terminated"][-1]
    made = {
        "game": game.name,
        "agent": agent.name,
        "episodes": episodes,
        "most": max_steps,
        "epsilon": epsilon,
        "noops": max_noops,
        "key": seed,
        "longest": max_episode_steps,
        "ale_py": import_game_package("ale_py").__version__,
    }
    return Episode(
        game=game.name,
        screens=freeze(kept[: len(rows)]),
        palette=freeze(screens.palette),
        level_starts=_find_level_starts(foes, columns["episode"]),
        metadata=collect_metadata(made),
        **columns,
    )


def _find_level_starts(num_enemies: list[int | None], episode: np.ndarray[Any, Any]) -> Any:
    """Where there are more foes than a frame before, within one game."""
    if None in num_enemies:
        return None
    more = np.diff(np.array(num_enemies), prepend=0) > 0
    return freeze(np.flatnonzero(more & (np.diff(episode, prepend=-1) == 0)))


def _require_min_steps(game: Game, steps: int, seed: int) -> None:
    if steps < MIN_STEPS:
        raise InputError(
            f"{game.name}: the game of key {seed} ends after {steps} step, which leaves no two "
            "frames to compare; give another key, or a larger longest."
        )

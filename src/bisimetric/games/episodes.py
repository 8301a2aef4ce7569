"""Episodes to look at: an agent plays, and the screens are kept with what it finds in them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bisimetric.datasets.checks import collect_metadata
from bisimetric.errors import InputError, require_integer
from bisimetric.games.environments import MAX_EPISODE_STEPS, AtariGames
from bisimetric.games.names import Game, import_optional
from bisimetric.games.players import EPSILON, EpsilonGreedyPolicy
from bisimetric.games.protocol import Agent
from bisimetric.games.recordings import Episode
from bisimetric.games.screens import ScreenRecorder
from bisimetric.mdp.checks import freeze
from bisimetric.memory import require_memory
from bisimetric.progress import show_progress

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

    >>> from bisimetric.games.idle import Idle
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
                    f"with the version of ale_py, {import_optional('ale_py').__version__}."
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
        "ale_py": import_optional("ale_py").__version__,
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

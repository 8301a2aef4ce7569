"""Episodes to look at: an agent plays, and the screens are kept with what it finds in them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bisimetric.datasets.checks import told
from bisimetric.errors import InputError, whole
from bisimetric.games.environments import LONGEST, Games
from bisimetric.games.names import Game, imported
from bisimetric.games.players import EPSILON, Player
from bisimetric.games.protocol import Agent
from bisimetric.games.recordings import Episode
from bisimetric.games.screens import Screens
from bisimetric.mdp.checks import frozen
from bisimetric.memory import require_memory
from bisimetric.progress import bar

MOST = 10_000
"""Steps after which a recording is cut: 336 MB of screens."""

LEAST = 2
"""Frames that a game must have, so that they can be compared."""


def play(
    name: str | Game,
    agent: Agent,
    *,
    episodes: int = 1,
    most: int = MOST,
    epsilon: float = EPSILON,
    noops: int = 0,
    key: int = 0,
    longest: int = LONGEST,
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
    games = Games(name, 1, key=key, noops=noops, longest=longest)
    game = games.game
    player = Player(agent, game, 1, epsilon=epsilon, key=key)
    screens = Screens(game, int(games.seeds[0]))
    episodes = whole(game.name, "episodes", episodes, 1)
    most = whole(game.name, "most", most, LEAST)
    size = screens.shown.nbytes + 4 * agent.num_features
    require_memory(f"{game.name}: the screens of {most:,} steps need", most * size, "take fewer")

    kept = np.empty((most, *screens.shown.shape), np.uint8)
    rows: list[dict[str, Any]] = []
    foes: list[int | None] = []
    played = 0
    moves = games.reset()
    screens.start(int(moves.frames[0]))
    with bar(most, f"steps in {game.name}") as progress:
        while len(rows) < most:
            seen, chosen = player.look(moves.observations, moves.fresh)
            if moves.terminated[0] or moves.truncated[0]:
                _refuse_short(game, sum(row["episode"] == played for row in rows), key)
                played += 1
                if played == episodes:
                    break
                moves = games.step(chosen)
                screens.start(int(moves.frames[0]))
                continue
            kept[len(rows)] = screens.shown
            foes.append(screens.foes)
            lives = int(moves.lives[0])
            moves = games.step(chosen)
            paid = screens.step(int(chosen[0]))
            if paid != moves.rewards[0] or screens.lives != moves.lives[0]:
                raise RuntimeError(
                    f"{game.name}: the screens left the game after {len(rows)} steps; report this "
                    f"with the version of ale_py, {imported('ale_py').__version__}."
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
            progress.at(len(rows), f"{len(rows):,} taken")
    columns = {each: np.array([row[each] for row in rows]) for each in rows[0]}
    columns["truncated"][-1] |= not columns["terminated"][-1]
    made = {
        "game": game.name,
        "agent": agent.name,
        "episodes": episodes,
        "most": most,
        "epsilon": epsilon,
        "noops": noops,
        "key": key,
        "longest": longest,
        "ale_py": imported("ale_py").__version__,
    }
    return Episode(
        game=game.name,
        screens=frozen(kept[: len(rows)]),
        palette=frozen(screens.palette),
        levels=_levels(foes, columns["episode"]),
        made=told(made),
        **columns,
    )


def _levels(foes: list[int | None], episode: np.ndarray[Any, Any]) -> Any:
    """Where there are more foes than a frame before, within one game."""
    if None in foes:
        return None
    more = np.diff(np.array(foes), prepend=0) > 0
    return frozen(np.flatnonzero(more & (np.diff(episode, prepend=-1) == 0)))


def _refuse_short(game: Game, steps: int, key: int) -> None:
    if steps < LEAST:
        raise InputError(
            f"{game.name}: the game of key {key} ends after {steps} step, which leaves no two "
            "frames to compare; give another key, or a larger longest."
        )

"""Experience of an agent: it plays many games at once, and its features of each frame are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.datasets.checks import told
from bisimetric.errors import InputError, whole
from bisimetric.games.environments import LONGEST, NOOPS, Games, Moves
from bisimetric.games.names import Game, game, imported
from bisimetric.games.players import EPSILON, Player, fitting, share
from bisimetric.games.protocol import Agent
from bisimetric.mdp.checks import frozen
from bisimetric.memory import require_memory
from bisimetric.progress import bar
from bisimetric.transitions import Transitions

STEPS = 600_000
COUNT = 64
"""Games side by side: enough to keep 16 cores busy while a network looks at the other half."""

KEPT = np.float16
LARGEST = float(np.finfo(KEPT).max)
Places = NDArray[np.int64]
Mask = NDArray[np.bool_]
OFTEN = 64
"""Rounds between two movements of the bar."""


def collect(
    name: str | Game,
    agent: Agent,
    *,
    steps: int = STEPS,
    count: int = COUNT,
    epsilon: float = EPSILON,
    noops: int = NOOPS,
    key: int = 0,
    clip: bool = True,
    threads: int = 0,
    longest: int = LONGEST,
) -> Transitions:
    """`steps` of an agent that plays a game, as its own features of each observation.

    The agent looks at each frame once; what it finds is kept as float16, (steps, k), and no frame
    is kept. `count` games run side by side; rows are stored game by game, so that those of a
    game follow one another as they were played. Rewards are clipped to [-1, 1], unless `clip` is
    False. A step is terminated where the game is over, truncated where it is cut: after `longest`
    steps, and at the last step of each of the `count`.

    Games are deterministic, and an agent would play one of them for ever. They differ by their
    starts, up to `noops` frames late, and by slips: any action, with probability epsilon. The
    same key and count give the same steps with any number of `threads`.

    >>> from bisimetric.games.idle import Idle
    >>> collect("Pong", Idle("Pong"), steps=40, count=4)
    Transitions(40 steps, 4 episodes, observations (12,) float16, 6 actions)
    """
    played = game(name)
    fitting(agent, played)
    steps = whole(played.name, "steps", steps, 1)
    count = min(whole(played.name, "count", count, 1), steps)
    share(played.name, epsilon)
    size = np.dtype(KEPT).itemsize * agent.num_features
    require_memory(
        f"{played.name}: {agent.num_features} features of {steps:,} steps need",
        steps * (2 * size + 18),
        "take fewer steps",
    )
    store = _Store(steps, count, agent, clip)
    # While one half of the consoles works, the agent looks at the other.
    halves = [range(count // 2), range(count // 2, count)]
    teams = [
        _Team(
            Games(
                played,
                len(each),
                key=key,
                noops=noops,
                threads=threads,
                longest=longest,
                first=each.start,
            ),
            Player(agent, played, len(each), epsilon=epsilon, key=key, first=each.start),
            store,
            each,
        )
        for each in halves
        if each
    ]
    with bar(steps, f"steps in {played.name}") as progress:
        rounds = 0
        while store.done < steps:
            for team in teams:
                team.go_on()
            rounds += 1
            if rounds % OFTEN == 0:
                progress.at(store.done, f"{store.done:,} taken")
    made = {
        "game": played.name,
        "agent": agent.name,
        "steps": steps,
        "count": count,
        "epsilon": epsilon,
        "noops": noops,
        "key": key,
        "clip": clip,
        "longest": longest,
        "ale_py": imported("ale_py").__version__,
    }
    return Transitions(
        **store.columns(),
        num_actions=len(played.actions),
        action_names=played.actions,
        made=told(made),
    )


class _Store:
    """The rows of all games: those of game i from `start[i]` to `stop[i]`."""

    def __init__(self, steps: int, count: int, agent: Agent, clip: bool) -> None:
        self._agent, self._clip = agent.name, clip
        shape = (steps, agent.num_features)
        self.observations, self.next_observations = np.empty(shape, KEPT), np.empty(shape, KEPT)
        self.actions, self.rewards = np.empty(steps, np.int64), np.empty(steps)
        self.terminated, self.truncated = np.empty(steps, np.bool_), np.empty(steps, np.bool_)
        edges = np.arange(count + 1) * steps // count
        self.start, self.stop = edges[:-1], edges[1:]
        self.row = self.start.copy()

    @property
    def done(self) -> int:
        return int((self.row - self.start).sum())

    def kept(self, features: NDArray[np.float32]) -> NDArray[np.float16]:
        largest = float(np.abs(features).max())
        if largest > LARGEST:
            raise InputError(
                f"{self._agent}: a feature is {largest:.3g} and the largest that float16 holds is "
                f"{LARGEST:.0f}; scale its features down."
            )
        return features.astype(KEPT)

    def close(
        self, places: Places, which: Mask, moves: Moves, features: NDArray[np.float16]
    ) -> None:
        """What the steps under way led to: `which` of the places."""
        rows = self.row[places[which]]
        paid, over = moves.rewards[which], moves.terminated[which]
        self.rewards[rows] = np.clip(paid, -1.0, 1.0) if self._clip else paid
        self.terminated[rows] = over
        # The last row of a game that is not over is cut: the next row is one of another game.
        last = (rows + 1 == self.stop[places[which]]) & ~over
        self.truncated[rows] = moves.truncated[which] | last
        self.next_observations[rows] = features[which]
        self.row[places[which]] += 1

    def open(
        self,
        places: Places,
        which: Mask,
        actions: NDArray[np.int64],
        features: NDArray[np.float16],
    ) -> None:
        """The steps that are taken next, in `which` of the places."""
        rows = self.row[places[which]]
        self.actions[rows] = actions[which]
        self.observations[rows] = features[which]

    def columns(self) -> dict[str, Any]:
        names = ("observations", "actions", "rewards", "next_observations")
        return {each: frozen(getattr(self, each)) for each in (*names, "terminated", "truncated")}


class _Team:
    """Some of the games, who plays them, and which of their steps are under way."""

    def __init__(self, games: Games, player: Player, store: _Store, places: range) -> None:
        self._games, self._player, self._store = games, player, store
        self._places = np.array(places)
        self._under_way = np.zeros(games.count, np.bool_)
        self._moves: Moves | None = games.reset()
        self._done = False

    def go_on(self) -> None:
        """Looks at what the last actions led to, stores it, and sends the next."""
        if self._done:
            return
        moves = self._games.receive() if self._moves is None else self._moves
        self._moves = None
        seen, chosen = self._player.look(moves.observations, moves.fresh)
        features = self._store.kept(seen.features)
        self._store.close(self._places, self._under_way, moves, features)
        left = self._store.row[self._places] < self._store.stop[self._places]
        self._under_way = left & ~(moves.terminated | moves.truncated)
        self._store.open(self._places, self._under_way, chosen, features)
        self._done = not left.any()
        if not self._done:
            self._games.send(chosen)

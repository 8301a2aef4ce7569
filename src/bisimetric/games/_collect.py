"""Experience of an agent: it plays many games at once, and its features of each frame are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._memory import require_memory
from bisimetric._progress import show_progress
from bisimetric.errors import InputError, require_integer
from bisimetric.games.agent import (
    EPSILON,
    Agent,
    EpsilonGreedyPolicy,
    validate_agent,
    validate_epsilon,
)
from bisimetric.games.environments import (
    MAX_EPISODE_STEPS,
    MAX_NOOPS,
    AtariGames,
    Game,
    VectorStep,
    find_game,
    import_game_package,
)
from bisimetric.mdp._validation import freeze
from bisimetric.transitions import Transitions
from bisimetric.transitions._validation import collect_metadata

STEPS = 600_000
NUM_GAMES = 64
"""Games side by side: enough to keep 16 cores busy while a network looks at the other half."""

FEATURE_DTYPE = np.float16
MAX_FEATURE = float(np.finfo(FEATURE_DTYPE).max)
GameIndices = NDArray[np.int64]
Mask = NDArray[np.bool_]
PROGRESS_PERIOD = 64
"""Rounds between two movements of the bar."""


def collect(
    name: str | Game,
    agent: Agent,
    *,
    steps: int = STEPS,
    num_games: int = NUM_GAMES,
    epsilon: float = EPSILON,
    max_noops: int = MAX_NOOPS,
    seed: int = 0,
    clip_rewards: bool = True,
    num_threads: int = 0,
    max_episode_steps: int = MAX_EPISODE_STEPS,
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

    >>> from bisimetric.games.agent import Idle
    >>> collect("Pong", Idle("Pong"), steps=40, count=4)
    Transitions(40 steps, 4 episodes, observations (12,) float16, 6 actions)
    """
    played = find_game(name)
    validate_agent(agent, played)
    steps = require_integer(played.name, "steps", steps, 1)
    num_games = min(require_integer(played.name, "count", num_games, 1), steps)
    validate_epsilon(played.name, epsilon)
    size = np.dtype(FEATURE_DTYPE).itemsize * agent.num_features
    require_memory(
        f"{played.name}: {agent.num_features} features of {steps:,} steps need",
        steps * (2 * size + 18),
        "take fewer steps",
    )
    store = _TransitionBuffer(steps, num_games, agent, clip_rewards)
    # While one half of the consoles works, the agent looks at the other.
    halves = [range(num_games // 2), range(num_games // 2, num_games)]
    teams = [
        _GameGroup(
            AtariGames(
                played,
                len(each),
                seed=seed,
                max_noops=max_noops,
                num_threads=num_threads,
                max_episode_steps=max_episode_steps,
                first_index=each.start,
            ),
            EpsilonGreedyPolicy(
                agent, played, len(each), epsilon=epsilon, seed=seed, first_index=each.start
            ),
            store,
            each,
        )
        for each in halves
        if each
    ]
    with show_progress(steps, f"steps in {played.name}") as progress:
        rounds = 0
        while store.num_stored < steps:
            for team in teams:
                team.advance()
            rounds += 1
            if rounds % PROGRESS_PERIOD == 0:
                progress.set_position(store.num_stored, f"{store.num_stored:,} taken")
    made = {
        "game": played.name,
        "agent": agent.name,
        "steps": steps,
        "count": num_games,
        "epsilon": epsilon,
        "noops": max_noops,
        "key": seed,
        "clip": clip_rewards,
        "longest": max_episode_steps,
        "ale_py": import_game_package("ale_py").__version__,
    }
    return Transitions(
        **store.get_columns(),
        num_actions=len(played.actions),
        action_names=played.actions,
        metadata=collect_metadata(made),
    )


class _TransitionBuffer:
    """The rows of all games: those of game i from `start[i]` to `stop[i]`."""

    def __init__(self, steps: int, num_games: int, agent: Agent, clip_rewards: bool) -> None:
        self._agent, self._clip_rewards = agent.name, clip_rewards
        shape = (steps, agent.num_features)
        self.observations, self.next_observations = (
            np.empty(shape, FEATURE_DTYPE),
            np.empty(shape, FEATURE_DTYPE),
        )
        self.actions, self.rewards = np.empty(steps, np.int64), np.empty(steps)
        self.terminated, self.truncated = np.empty(steps, np.bool_), np.empty(steps, np.bool_)
        edges = np.arange(num_games + 1) * steps // num_games
        self.start, self.stop = edges[:-1], edges[1:]
        self.row = self.start.copy()

    @property
    def num_stored(self) -> int:
        return int((self.row - self.start).sum())

    def to_half_precision(self, features: NDArray[np.float32]) -> NDArray[np.float16]:
        largest = float(np.abs(features).max())
        if largest > MAX_FEATURE:
            raise InputError(
                f"{self._agent}: a feature is {largest:.3g} and the largest that float16 holds is "
                f"{MAX_FEATURE:.0f}; scale its features down."
            )
        return features.astype(FEATURE_DTYPE)

    def store_outcomes(
        self, indices: GameIndices, mask: Mask, step: VectorStep, features: NDArray[np.float16]
    ) -> None:
        """What the steps under way led to: `which` of the places."""
        rows = self.row[indices[mask]]
        paid, over = step.rewards[mask], step.terminated[mask]
        self.rewards[rows] = np.clip(paid, -1.0, 1.0) if self._clip_rewards else paid
        self.terminated[rows] = over
        # The last row of a game that is not over is cut: the next row is one of another game.
        last = (rows + 1 == self.stop[indices[mask]]) & ~over
        self.truncated[rows] = step.truncated[mask] | last
        self.next_observations[rows] = features[mask]
        self.row[indices[mask]] += 1

    def store_actions(
        self,
        indices: GameIndices,
        mask: Mask,
        actions: NDArray[np.int64],
        features: NDArray[np.float16],
    ) -> None:
        """The steps that are taken next, in `which` of the places."""
        rows = self.row[indices[mask]]
        self.actions[rows] = actions[mask]
        self.observations[rows] = features[mask]

    def get_columns(self) -> dict[str, Any]:
        names = ("observations", "actions", "rewards", "next_observations")
        return {each: freeze(getattr(self, each)) for each in (*names, "terminated", "truncated")}


class _GameGroup:
    """Some of the games, who plays them, and which of their steps are under way."""

    def __init__(
        self,
        games: AtariGames,
        policy: EpsilonGreedyPolicy,
        buffer: _TransitionBuffer,
        indices: range,
    ) -> None:
        self._games, self._policy, self._buffer = games, policy, buffer
        self._indices = np.array(indices)
        self._active = np.zeros(games.num_games, np.bool_)
        self._pending_step: VectorStep | None = games.reset()
        self._finished = False

    def advance(self) -> None:
        """Looks at what the last actions led to, stores it, and sends the next."""
        if self._finished:
            return
        moves = self._games.receive() if self._pending_step is None else self._pending_step
        self._pending_step = None
        seen, chosen = self._policy.act(moves.observations, moves.is_first)
        features = self._buffer.to_half_precision(seen.features)
        self._buffer.store_outcomes(self._indices, self._active, moves, features)
        left = self._buffer.row[self._indices] < self._buffer.stop[self._indices]
        self._active = left & ~(moves.terminated | moves.truncated)
        self._buffer.store_actions(self._indices, self._active, chosen, features)
        self._finished = not left.any()
        if not self._finished:
            self._games.send(chosen)

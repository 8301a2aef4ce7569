"""An MDP as a Gymnasium environment; it is imported only where Gymnasium is installed."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from bisimetric.errors import InputError, whole
from bisimetric.mdp import MDP


class Environment(gymnasium.Env[int, int]):
    """Walks through an MDP from one state: observations and actions are ids.

    A step pays R(s, a) and leads to a successor drawn from P(s, a). A state that every action stays
    in for nothing ends the episode; after `longest` steps it is truncated. An action that a state
    lacks stays on the spot and pays 0.

    >>> walk = Environment(MDP.deterministic([[1], [1]], [[3.0], [0.0]], discount=0.9))
    >>> walk.reset(seed=0), walk.step(0)
    ((0, {}), (1, 3.0, True, False, {}))
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - so it is called in Gymnasium

    def __init__(self, mdp: MDP, start: int | str = 0, longest: int | None = None) -> None:
        self.observation_space = gymnasium.spaces.Discrete(mdp.num_states)  # type: ignore[assignment]
        self.action_space = gymnasium.spaces.Discrete(mdp.num_actions)  # type: ignore[assignment]
        self._start = mdp.state(start)
        self._longest = (
            None if longest is None else whole("Environment", "max_episode_steps", longest, 1)
        )
        self._pays = mdp.R.tolist()
        # Cumulative shares, row by row: the whole of all rows before is taken off by adding it.
        self._starts = mdp.P.indptr
        self._successors = mdp.P.indices
        self._bounds = np.cumsum(mdp.shares.data)
        self._ends = ends(mdp)
        if self._ends[self._start]:
            raise InputError(
                f"Environment: state {mdp.name(self._start)} is an end, which no step leaves; "
                "start in another."
            )
        self._state, self._taken = self._start, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._taken = self._start, 0
        return self._state, {}

    def step(self, action: int) -> tuple[int, SupportsFloat, bool, bool, dict[str, Any]]:
        pays = self._pays[self._state]
        row = self._state * len(pays) + int(action)
        first, last = int(self._starts[row]), int(self._starts[row + 1]) - 1
        if first < last:
            below = self._bounds[first - 1] if first else 0.0
            drawn = below + self.np_random.random() * (self._bounds[last] - below)
            found = first + int(np.searchsorted(self._bounds[first:last], drawn, side="right"))
        else:
            found = first
        self._state = int(self._successors[found])
        self._taken += 1
        terminated = bool(self._ends[self._state])
        truncated = self._taken == self._longest and not terminated
        return self._state, pays[int(action)], terminated, truncated, {}


def ends(mdp: MDP) -> Any:
    """(S,), whether every action of a state stays there for nothing.

    >>> ends(MDP.deterministic([[1, 0], [1, 1]], [[0, 0], [0, 0]], discount=0.9)).tolist()
    [False, True]
    """
    source = np.repeat(np.arange(mdp.R.size), np.diff(mdp.P.indptr)) // mdp.num_actions
    leaves = np.zeros(mdp.num_states, bool)
    leaves[source[mdp.P.indices != source]] = True
    return ~leaves & (mdp.R == 0).all(axis=1)

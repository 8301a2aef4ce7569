"""The wrapper that pays a bonus; it is imported only where Gymnasium is installed.

An MDP as a Gymnasium environment; it is imported only where Gymnasium is installed.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from bisimetric.errors import InputError, require_integer
from bisimetric.mdp import MDP
from bisimetric.uses.exploration.state_lookup import ObservationArray, StateLookup
from bisimetric.uses.exploration.visit_counts import EpisodicMemory, VisitCounts


class BonusWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that pays `scale` times the bonus of the state that a step leads to.

    `info["reward"]` is the environment's own reward, `info["bonus"]` what was added to it. A reset
    is a visit to where it leads, and pays nothing; visits stay from episode to episode. Where
    `find` is States, `visits` are Visits; where it is Observed, a Memory. They are the whole
    state of the wrapper: keep them to go on later, put others in their place to begin again.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        visits: VisitCounts | EpisodicMemory,
        lookup: Any,
        scale: float,
    ) -> None:
        super().__init__(env)
        self.visits: Any = visits
        self.scale = scale
        self._lookup: StateLookup | ObservationArray = lookup

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        here: Any
        if isinstance(self._lookup, StateLookup):
            here = self._lookup.reset(self.env, observation)
        else:
            here = self._lookup(observation)
        _, self.visits = self.visits.visit(here)
        return observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        here: Any
        if isinstance(self._lookup, StateLookup):
            here = self._lookup.step(self.env, action, observation, bool(terminated))
        else:
            # A learned distance knows the end of an episode as a state of its own.
            here = None if terminated else self._lookup(observation)
        bonus, self.visits = self.visits.visit(here)
        paid, added = float(reward), self.scale * bonus
        told = {**info, "reward": paid, "bonus": added}
        return observation, paid + added, terminated, truncated, told


class MDPEnvironment(gymnasium.Env[int, int]):
    """Walks through an MDP from one state: observations and actions are ids.

    A step pays R(s, a) and leads to a successor drawn from P(s, a). A state that every action stays
    in for nothing ends the episode; after `longest` steps it is truncated. An action that a state
    lacks stays on the spot and pays 0.

    >>> walk = Environment(MDP.deterministic([[1], [1]], [[3.0], [0.0]], discount=0.9))
    >>> walk.reset(seed=0), walk.step(0)
    ((0, {}), (1, 3.0, True, False, {}))
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - so it is called in Gymnasium

    def __init__(
        self, mdp: MDP, start: int | str = 0, max_episode_steps: int | None = None
    ) -> None:
        self.observation_space = gymnasium.spaces.Discrete(mdp.num_states)  # type: ignore[assignment]
        self.action_space = gymnasium.spaces.Discrete(mdp.num_actions)  # type: ignore[assignment]
        self._start = mdp.state(start)
        self._max_episode_steps = (
            None
            if max_episode_steps is None
            else require_integer("Environment", "max_episode_steps", max_episode_steps, 1)
        )
        self._rewards = mdp.R.tolist()
        # Cumulative shares, row by row: the whole of all rows before is taken off by adding it.
        self._row_starts = mdp.P.indptr
        self._successors = mdp.P.indices
        self._cumulative = np.cumsum(mdp.normalised_probabilities.data)
        self._terminal = find_terminal_states(mdp)
        if self._terminal[self._start]:
            raise InputError(
                f"Environment: state {mdp.state_name(self._start)} is an end, which no step leaves; "
                "start in another."
            )
        self._state, self._num_steps = self._start, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._num_steps = self._start, 0
        return self._state, {}

    def step(self, action: int) -> tuple[int, SupportsFloat, bool, bool, dict[str, Any]]:
        pays = self._rewards[self._state]
        row = self._state * len(pays) + int(action)
        first, last = int(self._row_starts[row]), int(self._row_starts[row + 1]) - 1
        if first < last:
            below = self._cumulative[first - 1] if first else 0.0
            drawn = below + self.np_random.random() * (self._cumulative[last] - below)
            found = first + int(np.searchsorted(self._cumulative[first:last], drawn, side="right"))
        else:
            found = first
        self._state = int(self._successors[found])
        self._num_steps += 1
        terminated = bool(self._terminal[self._state])
        truncated = self._num_steps == self._max_episode_steps and not terminated
        return self._state, pays[int(action)], terminated, truncated, {}


def find_terminal_states(mdp: MDP) -> Any:
    """(S,), whether every action of a state stays there for nothing.

    >>> ends(MDP.deterministic([[1, 0], [1, 1]], [[0, 0], [0, 0]], discount=0.9)).tolist()
    [False, True]
    """
    source = np.repeat(np.arange(mdp.R.size), np.diff(mdp.P.indptr)) // mdp.num_actions
    leaves = np.zeros(mdp.num_states, bool)
    leaves[source[mdp.P.indices != source]] = True
    return ~leaves & (mdp.R == 0).all(axis=1)

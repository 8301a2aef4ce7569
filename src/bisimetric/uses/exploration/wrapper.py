"""The wrapper that pays a bonus; it is imported only where Gymnasium is installed."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium

from bisimetric.uses.exploration.memory import EpisodicMemory
from bisimetric.uses.exploration.states import ObservationArray, StateLookup
from bisimetric.uses.exploration.visits import VisitCounts


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

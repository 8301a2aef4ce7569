"""The d~ of an agent's own steps, estimated again while it explores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bisimetric import exact
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions
from bisimetric.uses.exploration.agents import Step

FIRST = 1000
"""Steps before the first estimate; each later one waits for twice as many as the last."""
DISCOUNT = 0.9
"""That of the distance: nearer to 1, all states of a grid are about equally far apart."""

SMALL = 0.01
"""The error of an estimate, as a share of the largest distance that it can have."""


class Estimates:
    """Puts better and better distances under the visits of an environment that `explore` made.

    The distance is the exact d~ of the MDP that the steps so far tell of, in which a state has the
    actions that were seen. As long as no two rewards differ nothing is known, and the visits stay
    under the distance that they began with.
    """

    def __init__(self, mdp: MDP, environment: Any, radius: float | None) -> None:
        self._shape = mdp.R.shape
        self._environment, self._radius = environment, radius

    def watched(self, walk: Iterator[Step]) -> Iterator[Step]:
        """The same steps; from time to time the distance is estimated again."""
        steps: list[Step] = []
        enough = FIRST
        for step in walk:
            steps.append(step)
            if len(steps) == enough:
                enough *= 2
                if len({each.reward for each in steps}) > 1:
                    visits = self._environment.visits
                    self._environment.visits = visits.under(self._d(steps), radius=self._radius)
            yield step

    def _d(self, steps: list[Step]) -> Any:
        states, actions = self._shape
        # An end is a state that no step left, and to_mdp keeps those as they are.
        data = Transitions(
            [step.state for step in steps],
            [step.action for step in steps],
            [step.reward for step in steps],
            [step.successor for step in steps],
            np.zeros(len(steps), bool),
            [step.over for step in steps],
            num_states=states,
            num_actions=actions,
        )
        mdp = data.to_mdp(discount=DISCOUNT, unseen="lacking")
        return exact.bisimulation(mdp, tol=SMALL * max(mdp.farthest, 1.0))

"""The d~ of an agent's own steps, estimated again while it explores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bisimetric import exact
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions
from bisimetric.uses.exploration.agents import AgentStep

FIRST_UPDATE = 1000
"""Steps before the first estimate; each later one waits for twice as many as the last."""
DISTANCE_DISCOUNT = 0.9
"""That of the distance: nearer to 1, all states of a grid are about equally far apart."""

RELATIVE_TOLERANCE = 0.01
"""The error of an estimate, as a share of the largest distance that it can have."""


class OnlineDistance:
    """Puts better and better distances under the visits of an environment that `explore` made.

    The distance is the exact d~ of the MDP that the steps so far tell of, in which a state has the
    actions that were seen. As long as no two rewards differ nothing is known, and the visits stay
    under the distance that they began with.
    """

    def __init__(self, mdp: MDP, environment: Any, radius: float | None) -> None:
        self._shape = mdp.R.shape
        self._environment, self._radius = environment, radius

    def track(self, agent_steps: Iterator[AgentStep]) -> Iterator[AgentStep]:
        """The same steps; from time to time the distance is estimated again."""
        steps: list[AgentStep] = []
        enough = FIRST_UPDATE
        for step in agent_steps:
            steps.append(step)
            if len(steps) == enough:
                enough *= 2
                if len({each.reward for each in steps}) > 1:
                    visits = self._environment.visits
                    self._environment.visits = visits.under(
                        self._estimate(steps), radius=self._radius
                    )
            yield step

    def _estimate(self, steps: list[AgentStep]) -> Any:
        states, actions = self._shape
        # An end is a state that no step left, and to_mdp keeps those as they are.
        data = Transitions(
            [step.state for step in steps],
            [step.action for step in steps],
            [step.reward for step in steps],
            [step.successor for step in steps],
            np.zeros(len(steps), bool),
            [step.episode_over for step in steps],
            num_states=states,
            num_actions=actions,
        )
        mdp = data.to_mdp(discount=DISTANCE_DISCOUNT, unseen="lacking")
        return exact.bisimulation(mdp, tol=RELATIVE_TOLERANCE * max(mdp.diameter_bound, 1.0))

"""Distances that a network learns as in Castro (2020): the baseline of `learned`.

One network psi moves, for all pairs of a batch with the same action, towards the target

    T = max(|r - r'| + discount * beta * psi'(s', t'), beta * psi'(s, t))

of a target network psi'; for d^pi, and for all pairs, towards |r - r'| + discount * beta *
psi'(s', t'). T = 0 for a transition and itself; beta grows from 0 to 1 with the updates of psi'.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from bisimetric.learned.bisimulation import bisimulation as _bisimulation
from bisimetric.learned.distance import LearnedDistance
from bisimetric.learned.networks.pairs import FunctionalNetwork, PairNetwork
from bisimetric.learned.on_policy import on_policy as _on_policy
from bisimetric.learned.paper.mico import mico
from bisimetric.learned.paper.settings import Castro2020Config
from bisimetric.learned.sources import TrainingSource
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions

__all__ = [
    "Castro2020Config",
    "FunctionalNetwork",
    "PairNetwork",
    "bisimulation",
    "mico",
    "on_policy",
]


def bisimulation(
    source: MDP | Transitions | TrainingSource,
    *,
    updates: int = 100_000,
    config: Castro2020Config | None = None,
    **options: Any,
) -> LearnedDistance:
    """d~ as the paper learns it; the other arguments are those of `learned.bisimulation`.

    >>> from bisimetric import worlds
    >>> quick = Settings((32,), batch=32, learning_rate=0.01, period=50, rate=0.5)
    >>> mdp = worlds.load("pessimism", discount=0.5)
    >>> d = bisimulation(mdp, steps=1_000, key=1, settings=quick)
    >>> round(d("s", "t"), 1)
    2.0
    """
    return _bisimulation(source, updates=updates, config=config or Castro2020Config(), **options)


def on_policy(
    source: MDP | Transitions | TrainingSource,
    policy: ArrayLike | None = None,
    *,
    updates: int = 100_000,
    config: Castro2020Config | None = None,
    **options: Any,
) -> LearnedDistance:
    """d^pi as the paper learns it; the other arguments are those of `learned.on_policy`."""
    return _on_policy(
        source, policy, updates=updates, config=config or Castro2020Config(), **options
    )

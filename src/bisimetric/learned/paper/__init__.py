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
from bisimetric.learned.distance import Learned
from bisimetric.learned.networks.pairs import AnyNetwork, PairNetwork
from bisimetric.learned.on_policy import on_policy as _on_policy
from bisimetric.learned.paper.mico import mico
from bisimetric.learned.paper.settings import Settings
from bisimetric.learned.sources import Source
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions

__all__ = ["AnyNetwork", "PairNetwork", "Settings", "bisimulation", "mico", "on_policy"]


def bisimulation(
    source: MDP | Transitions | Source,
    *,
    steps: int = 100_000,
    settings: Settings | None = None,
    **options: Any,
) -> Learned:
    """d~ as the paper learns it; the other arguments are those of `learned.bisimulation`.

    >>> from bisimetric import worlds
    >>> quick = Settings((32,), batch=32, learning_rate=0.01, period=50, rate=0.5)
    >>> mdp = worlds.load("pessimism", discount=0.5)
    >>> d = bisimulation(mdp, steps=1_000, key=1, settings=quick)
    >>> round(d("s", "t"), 1)
    2.0
    """
    return _bisimulation(source, steps=steps, settings=settings or Settings(), **options)


def on_policy(
    source: MDP | Transitions | Source,
    policy: ArrayLike | None = None,
    *,
    steps: int = 100_000,
    settings: Settings | None = None,
    **options: Any,
) -> Learned:
    """d^pi as the paper learns it; the other arguments are those of `learned.on_policy`."""
    return _on_policy(source, policy, steps=steps, settings=settings or Settings(), **options)

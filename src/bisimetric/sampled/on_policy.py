"""d^pi from pairs of transitions: equation 3 of Castro (2020), actions taken from the policy."""

from __future__ import annotations

import os
from collections.abc import Iterable

from numpy.typing import ArrayLike

from bisimetric.distance import Distance
from bisimetric.mdp import MDP
from bisimetric.sampled.samplers import Sampler
from bisimetric.sampled.stopping import StoppingCriteria
from bisimetric.sampled.verbs import compute_distance
from bisimetric.transitions import Transitions


def on_policy(
    source: MDP | Transitions | Iterable[Transitions],
    policy: ArrayLike | None = None,
    *,
    discount: float | None = None,
    sampler: Sampler | None = None,
    seed: int = 0,
    steps: int | None = None,
    seconds: float | None = None,
    tol: float | None = None,
    updates_per_transition: int = 1,
    reference: Distance | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
) -> Distance:
    """The on-policy metric d^pi of a deterministic MDP and policy, from samples.

    Like `sampled.bisimulation`, but that a step takes any two transitions of the policy, whatever
    their actions, (s, r, s') and (t, r', t'):

    d(s, t) = max(d(s, t), |r - r'| + discount * d(s', t'))

    Since each state has one successor, the maximum is always the newer value. Two different
    outcomes in one state are refused: a policy that draws its actions needs `exact.on_policy`.

    Args:
        policy: (S,) actions. For an MDP the default is its own, or the only one there is. For
            data without one, all of it follows the policy; with one, steps that take another
            action are left out.

    The other arguments are those of `sampled.bisimulation`.

    >>> from bisimetric import worlds
    >>> d = on_policy(worlds.load("pessimism"), [0, 1, 0])
    >>> round(d("s", "t"), 2), round(d("s", "u"), 2)
    (0.0, 10.0)
    """
    limits = StoppingCriteria(
        steps, seconds, tol, updates_per_transition, reference, checkpoint, resume
    )
    return compute_distance("on_policy", source, policy, discount, sampler, seed, limits)

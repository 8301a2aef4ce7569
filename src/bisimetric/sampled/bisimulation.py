"""d~ from pairs of transitions: equation 3 of Castro (2020)."""

from __future__ import annotations

import os
from collections.abc import Iterable

from bisimetric.distance import Distance
from bisimetric.mdp import MDP
from bisimetric.sampled.samplers import Sampler
from bisimetric.sampled.stopping import StoppingCriteria
from bisimetric.sampled.verbs import compute_distance
from bisimetric.transitions import Transitions


def bisimulation(
    source: MDP | Transitions | Iterable[Transitions],
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
    """The bisimulation metric d~ of a deterministic MDP, from samples of what it does.

    Starts at d = 0. A step takes two transitions with the same action, (s, a, r, s') and
    (t, a, r', t'), and sets

    d(s, t) = max(d(s, t), |r - r'| + discount * d(s', t'))

    so that d never exceeds d~, and, if all pairs are drawn for ever, reaches it almost surely
    (Castro 2020, section 5). Where the transitions determine a distance its error is proven;
    `coverage` says where, and `bounds(s, t)` how well. The other entries are lower bounds.

    Args:
        source: an MDP; or transitions with ids of states, kept as a replay memory that pairs are
            drawn from; or an iterable of such, that keep coming.
        discount: default: that of the MDP, and for data 0.99.
        sampler: which pairs: `Uniform` (the paper's, the default), `Trajectories`, `AllActions`
            or `Prioritised`.
        key: of the random numbers; the same key gives the same run.
        steps: stop after so many pairs, those before `resume` included.
        seconds: stop after so long.
        tol: stop when no known pair could still change any distance by more:
            max(|r - r'| + discount * d(s', t') - d(s, t)) / (1 - discount) <= tol, looked at every
            so often. The default, 1e-3, where there is no limit at all. `NotConverged` where
            another limit comes first. A stream has no default limit, and reaches `tol` only once
            it has shown all actions of all states that it lived in.
        updates: of a stream, how many pairs are drawn for each transition that arrives.
        truth: the exact distance, where it is known, for the progress bar to show the error.
        checkpoint: a file to keep the run in, each minute and at the end, also after Ctrl-C.
        resume: such a file to go on from.

    >>> from bisimetric import worlds
    >>> d = bisimulation(worlds.load("mirrored-rooms", discount=0.9), key=0)
    >>> round(d("1,5", "5,5"), 2), d.error <= 1e-3
    (11.55, True)
    """
    limits = StoppingCriteria(
        steps, seconds, tol, updates_per_transition, reference, checkpoint, resume
    )
    return compute_distance("bisimulation", source, None, discount, sampler, seed, limits)

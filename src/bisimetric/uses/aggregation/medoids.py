"""Classes around medoids: k states from which the others are as near as can be, in the sum."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

MIN_RELATIVE_GAIN = 1e-9
"""The share of the whole sum that a swap must gain; less is rounding."""
MAX_PASSES = 100
"""How often all states are tried in place of a medoid, at most; a few times is enough."""


def k_medoids(
    distances: NDArray[np.floating], k: int, seed: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The labels (n,) and the medoids (k,) of a table (n, n): local least of sum_s d(s, medoid(s)).

    The first medoids are drawn, each with a chance in proportion to how far it is from those before
    (Arthur & Vassilvitskii 2007). Then a state takes the place of a medoid whenever that makes the
    sum smaller, until no single swap does (Schubert & Rousseeuw 2021, Fast and eager k-medoids
    clustering, Information Systems 101). A medoid is of its own class; what a table says of a state
    and itself is not looked at.

    >>> table = np.abs(np.subtract.outer([0.0, 1, 2, 9, 10], [0.0, 1, 2, 9, 10]))
    >>> labels, found = medoids(table, 2, key=0)
    >>> labels.tolist() in ([0, 0, 0, 1, 1], [1, 1, 1, 0, 0]), sorted(found.tolist())[0]
    (True, 1)
    """
    if k == 1:
        with np.errstate(over="ignore"):  # where sums overflow, any state will do
            sums = distances.sum(axis=1, dtype=np.float64) - distances.diagonal()
        return np.zeros(len(distances), np.int64), np.array([int(sums.argmin())])
    chosen = _initialise_medoids(distances, k, np.random.default_rng(seed))
    near, _ = _swap_medoids(distances, chosen, MIN_RELATIVE_GAIN, MAX_PASSES)
    return near, chosen


def _initialise_medoids(
    distances: NDArray[np.floating], k: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    chosen = np.empty(k, np.int64)
    chosen[0] = rng.integers(len(distances))
    far = distances[chosen[0]].astype(np.float64)
    taken = np.zeros(len(distances), np.bool_)
    for i in range(1, k):
        taken[chosen[i - 1]] = True
        far[taken] = 0.0
        # Where all are at distance 0 of a medoid, any will do. The sum of large ones may overflow.
        weights = far / far.max() if far.max() > 0 else np.where(taken, 0.0, 1.0)
        weights /= weights.sum()
        chosen[i] = rng.choice(len(distances), p=weights)
        np.minimum(far, distances[chosen[i]], out=far)
    return chosen


@njit(cache=True)
def _two_nearest(distances: Any, medoids: Any, s: int) -> tuple[int, float, int, float]:
    """The two nearest medoids of a state, by their places, and their distances."""
    first, second = -1, -1
    here, there = np.inf, np.inf
    for i in range(len(medoids)):
        # Below every distance: a medoid is of its own class, whoever else is at distance 0.
        far = -1.0 if medoids[i] == s else float(distances[medoids[i], s])
        if far < here:
            first, second, here, there = i, first, far, here
        elif far < there:
            second, there = i, far
    return first, max(here, 0.0), second, there


@njit(cache=True)
def _swap_medoids(
    distances: Any, medoids: Any, min_relative_gain: float, max_passes: int
) -> tuple[Any, float]:
    """Swaps in `chosen` what makes the sum smaller; the places of the nearest medoids, the sum."""
    states, k = len(distances), len(medoids)
    near, next_near = np.empty(states, np.int64), np.empty(states, np.int64)
    here, there = np.empty(states), np.empty(states)
    taken = np.zeros(states, np.bool_)
    for i in range(k):
        taken[medoids[i]] = True
    for s in range(states):
        near[s], here[s], next_near[s], there[s] = _two_nearest(distances, medoids, s)
    change = np.empty(k)
    since = 0
    for turn in range(max_passes * states):
        x = turn % states
        since += 1
        if since > states:
            break
        if taken[x]:
            continue
        # What the sum gains by x, and what it loses by each medoid that x might replace.
        joined = 0.0
        change[:] = 0.0
        for s in range(states):
            far = 0.0 if s == x else float(distances[x, s])
            if far < here[s]:
                joined += far - here[s]
            else:
                change[near[s]] += min(far, there[s]) - here[s]
        best = int(change.argmin())
        if change[best] + joined < -min_relative_gain * here.sum():
            taken[medoids[best]], taken[x] = False, True
            medoids[best] = x
            since = 0
            for s in range(states):
                far = -1.0 if s == x else float(distances[x, s])
                if near[s] == best or next_near[s] == best or far < there[s]:
                    near[s], here[s], next_near[s], there[s] = _two_nearest(distances, medoids, s)
    return near, here.sum()

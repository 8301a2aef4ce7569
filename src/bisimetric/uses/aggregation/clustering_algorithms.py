"""Classes that grow state by state: the rule of the supplement of Castro (2020).

Complete linkage: the two classes are merged whose farthest members are nearest, and so on.

A chain of nearest neighbours finds all merges in O(n^2) (Benzécri 1982; Müllner 2011, Modern
hierarchical, agglomerative clustering algorithms). It works on half of the table, a copy, in place.

Classes around medoids: k states from which the others are as near as can be, in the sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

NUM_BISECTIONS = 24
"""How often the way to a radius is halved: it is found to a ten-millionth of its range."""


def cluster_incrementally(distances: NDArray[np.floating], radius: float) -> NDArray[np.int64]:
    """The classes (n,), numbered 0, 1, ..., that grow from a symmetric table (n, n).

    State after state joins the first class all of whose members are within `radius`, else it
    starts one; so no two states of a class are farther apart. This is the rule that the paper's
    text gives. The snippet printed there loses members: it drops what `np.append` returns, so that
    nobody ever joins, and begins a class with all states near its first one, which need not be
    near each other and are taken away from the classes that held them.

    Each pair of states is looked at once at most, and nothing but the members is kept.

    >>> incremental(np.array([[0.0, 1, 2], [1, 0, 1], [2, 1, 0]]), 1.0).tolist()
    [0, 0, 1]
    """
    labels = np.empty(len(distances), np.int64)
    _assign_incrementally(distances, float(radius), len(distances), labels)
    return labels


def find_smallest_radius(
    distances: NDArray[np.floating], max_clusters: int, *, num_bisections: int = NUM_BISECTIONS
) -> float:
    """A radius at which there are at most `most` classes, as small as halving finds it.

    The range from 0 to the largest distance is halved `halvings` times, and of what is left the
    largest distance is taken. The rule is greedy: a still smaller radius may happen to do, and is
    not searched for.

    >>> table = np.abs(np.subtract.outer(np.arange(8.0), np.arange(8.0)))
    >>> smallest_radius(table, 4)
    1.0
    """
    labels = np.empty(len(distances), np.int64)
    if _assign_incrementally(distances, 0.0, max_clusters, labels):
        return 0.0
    low, high = 0.0, _largest_distance_below(distances, np.inf)
    for _ in range(num_bisections):
        middle = (low + high) / 2
        if _assign_incrementally(distances, middle, max_clusters, labels):
            high = middle
        else:
            low = middle
    # A radius between two distances means the same as the smaller of them.
    return float(_largest_distance_below(distances, high))


@njit(cache=True)
def _assign_incrementally(distances: Any, radius: float, max_clusters: int, labels: Any) -> bool:
    """Writes the labels; whether there are no more than `most`."""
    states, found = len(distances), 0
    # Members as lists: of a class the last one to join, of a member the one before it.
    last, before = np.empty(states, np.int64), np.empty(states, np.int64)
    for s in range(states):
        label = found
        for each in range(found):
            member = last[each]
            while member >= 0 and distances[s, member] <= radius:
                member = before[member]
            if member < 0:
                label = each
                break
        before[s] = last[label] if label < found else -1
        last[label], labels[s] = s, label
        found = max(found, label + 1)
        if found > max_clusters:
            return False
    return True


@njit(cache=True)
def _largest_distance_below(distances: Any, bound: float) -> float:
    """The largest distance of two states up to a bound, or 0."""
    largest = 0.0
    for s in range(len(distances)):
        for t in range(s):
            if largest < distances[s, t] <= bound:
                largest = distances[s, t]
    return largest


def complete_linkage(
    distances: NDArray[np.floating], *, radius: float = np.inf, clusters: int = 1
) -> NDArray[np.int64]:
    """The classes (n,) of a symmetric table (n, n), numbered by first appearance.

    Classes are merged, the nearest two first, while there are more than `clusters` and the farthest
    members of the two are within `radius`.

    >>> table = np.abs(np.subtract.outer([0.0, 1, 5, 7], [0.0, 1, 5, 7]))
    >>> complete(table, clusters=2).tolist(), complete(table, radius=1.0).tolist()
    ([0, 0, 1, 1], [0, 0, 1, 2])
    """
    pairs, heights = compute_merges(distances)
    # Among equal heights the order stands, in which a class comes before what it is merged into.
    order = np.argsort(heights, kind="stable")
    order = order[: max(len(distances) - clusters, 0)]
    order = order[heights[order] <= radius]
    return np.asarray(_label_merges(len(distances), pairs[order]), np.int64)


def compute_merges(
    distances: NDArray[np.floating],
) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
    """All n - 1 merges: a state of each of the two classes, (n - 1, 2), and how far apart they are.

    They are in the order in which they are found, not in that of the distances.
    """
    states = len(distances)
    half = np.empty(states * (states - 1) // 2, distances.dtype)
    _condense(distances, half)
    pairs = np.empty((max(states - 1, 0), 2), np.int64)
    heights = np.empty(len(pairs), distances.dtype)
    _nearest_neighbour_chain(half, states, pairs, heights)
    return pairs, heights


@njit(cache=True)
def _condense(distances: Any, condensed: Any) -> None:
    """The distances of the pairs t < s, row by row."""
    at = 0
    for s in range(len(distances)):
        for t in range(s):
            condensed[at] = distances[s, t]
            at += 1


@njit(cache=True, inline="always")
def _condensed_index(s: int, t: int) -> int:
    return s * (s - 1) // 2 + t if s > t else t * (t - 1) // 2 + s


@njit(cache=True)
def _nearest_neighbour_chain(condensed: Any, num_states: int, pairs: Any, heights: Any) -> None:
    """Finds all merges; of a class one state is left, and has its distances."""
    left = np.arange(num_states)
    count, length = num_states, 0
    chain = np.empty(num_states, np.int64)
    for merge in range(num_states - 1):
        if length == 0:
            chain[0], length = left[0], 1
        while True:
            # Each class leads to its nearest one; of equals the one before, so that it ends.
            s, nearest = chain[length - 1], -1
            least = np.inf
            if length > 1:
                nearest = chain[length - 2]
                least = condensed[_condensed_index(s, nearest)]
            for i in range(count):
                t = left[i]
                if t != s and condensed[_condensed_index(s, t)] < least:
                    least, nearest = condensed[_condensed_index(s, t)], t
            if length > 1 and nearest == chain[length - 2]:
                break
            chain[length] = nearest
            length += 1
        length -= 2
        gone, stays = max(s, nearest), min(s, nearest)
        pairs[merge, 0], pairs[merge, 1], heights[merge] = stays, gone, least
        kept = 0
        for i in range(count):
            t = left[i]
            if t == gone:
                continue
            left[kept] = t
            kept += 1
            if t != stays:
                farther = condensed[_condensed_index(gone, t)]
                if farther > condensed[_condensed_index(stays, t)]:
                    condensed[_condensed_index(stays, t)] = farther
        count = kept


@njit(cache=True)
def _label_merges(num_states: int, pairs: Any) -> Any:
    """The classes that the merges make: a forest, in which the smaller state is the root."""
    root = np.arange(num_states)
    for i in range(len(pairs)):
        s, t = pairs[i]
        while root[s] != s:
            s = root[s]
        while root[t] != t:
            t = root[t]
        root[max(s, t)] = min(s, t)
    labels, found = np.empty(num_states, np.int64), 0
    for s in range(num_states):
        if root[s] == s:
            labels[s] = found
            found += 1
        else:
            # A root is smaller, so that it has its label.
            labels[s] = labels[root[s]]
    return labels


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

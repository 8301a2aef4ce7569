"""Clustering of a distance matrix: incremental (Castro 2020), complete linkage, k-medoids.

Complete linkage follows nearest-neighbour chains, O(n^2) (Benzécri 1982; Müllner 2011, Modern
hierarchical, agglomerative clustering algorithms), in place on a condensed copy in the precision of
the matrix. SciPy's `linkage` needs float64, breaks ties otherwise and is slower.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

NUM_BISECTIONS = 24
"""Bisections of a radius: it is found to within a ten-millionth of its range."""
MIN_RELATIVE_GAIN = 1e-9
"""The least gain of a swap of medoids, relative to the whole cost; less is rounding."""
MAX_PASSES = 100
"""The largest number of passes over all states in search of a swap; a few suffice."""


def cluster_incrementally(distances: NDArray[np.floating], radius: float) -> NDArray[np.int64]:
    """Return the classes (n,), numbered 0, 1, ..., of a symmetric matrix (n, n).

    Each state in turn joins the first class all of whose members are within `radius`, else it
    starts one, so that no two states of a class are farther apart. This is the rule in the text of
    Castro (2020). The snippet printed there loses members: it discards the result of `np.append`,
    so that no state ever joins, and starts a class with all states near its first one, which need
    not be near each other and are removed from their previous classes.

    Each pair of states is compared at most once, and only the members are stored.

    >>> cluster_incrementally(np.array([[0.0, 1, 2], [1, 0, 1], [2, 1, 0]]), 1.0).tolist()
    [0, 0, 1]
    """
    labels = np.empty(len(distances), np.int64)
    _assign_incrementally(distances, float(radius), len(distances), labels)
    return labels


def find_smallest_radius(
    distances: NDArray[np.floating], max_clusters: int, *, num_bisections: int = NUM_BISECTIONS
) -> float:
    """Return the smallest radius, found by bisection, that yields at most `max_clusters` classes.

    The range from 0 to the largest distance is bisected `num_bisections` times; the result is the
    largest distance in what remains. The rule is greedy, so that the number of classes need not
    decrease with the radius, and a smaller radius that suffices may be missed.

    >>> distances = np.abs(np.subtract.outer(np.arange(8.0), np.arange(8.0)))
    >>> find_smallest_radius(distances, 4)
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
    # A radius between two distances is equivalent to the smaller of them.
    return float(_largest_distance_below(distances, high))


@njit(cache=True)
def _assign_incrementally(distances: Any, radius: float, max_clusters: int, labels: Any) -> bool:
    """Write the labels and return whether there are at most `max_clusters` of them."""
    num_states, num_classes = len(distances), 0
    # Linked lists of members: the last one of each class, and the one before each member.
    last_member, previous = np.empty(num_states, np.int64), np.empty(num_states, np.int64)
    for s in range(num_states):
        label = num_classes
        for candidate in range(num_classes):
            member = last_member[candidate]
            while member >= 0 and distances[s, member] <= radius:
                member = previous[member]
            if member < 0:
                label = candidate
                break
        previous[s] = last_member[label] if label < num_classes else -1
        last_member[label], labels[s] = s, label
        num_classes = max(num_classes, label + 1)
        if num_classes > max_clusters:
            return False
    return True


@njit(cache=True)
def _largest_distance_below(distances: Any, bound: float) -> float:
    """Return the largest distance between two states that is at most `bound`, or 0."""
    largest = 0.0
    for s in range(len(distances)):
        for t in range(s):
            if largest < distances[s, t] <= bound:
                largest = distances[s, t]
    return largest


def complete_linkage(
    distances: NDArray[np.floating], *, radius: float = np.inf, clusters: int = 1
) -> NDArray[np.int64]:
    """Return the classes (n,) of a symmetric matrix (n, n), numbered by first appearance.

    Classes are merged, the nearest two first, while there are more than `clusters` and the farthest
    members of the two are within `radius`.

    >>> distances = np.abs(np.subtract.outer([0.0, 1, 5, 7], [0.0, 1, 5, 7]))
    >>> complete_linkage(distances, clusters=2).tolist()
    [0, 0, 1, 1]
    >>> complete_linkage(distances, radius=1.0).tolist()
    [0, 0, 1, 2]
    """
    pairs, heights = compute_merges(distances)
    # A stable sort: among equal heights a class is formed before it is merged further.
    order = np.argsort(heights, kind="stable")
    order = order[: max(len(distances) - clusters, 0)]
    order = order[heights[order] <= radius]
    return np.asarray(_label_merges(len(distances), pairs[order]), np.int64)


def compute_merges(
    distances: NDArray[np.floating],
) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
    """Return all n - 1 merges: one state of each of the two classes, (n - 1, 2), and heights.

    They are in the order in which they are found, not sorted by height.
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
    """Write the distances of the pairs t < s, row by row."""
    position = 0
    for s in range(len(distances)):
        for t in range(s):
            condensed[position] = distances[s, t]
            position += 1


@njit(cache=True, inline="always")
def _pair_index(s: int, t: int) -> int:
    return s * (s - 1) // 2 + t if s > t else t * (t - 1) // 2 + s


@njit(cache=True)
def _nearest_neighbour_chain(condensed: Any, num_states: int, pairs: Any, heights: Any) -> None:
    """Find all merges; the smallest state of a class stores the distances of the class."""
    active = np.arange(num_states)
    num_active, length = num_states, 0
    chain = np.empty(num_states, np.int64)
    for merge in range(num_states - 1):
        if length == 0:
            chain[0], length = active[0], 1
        while True:
            # Follow the nearest class; among equals the previous one, so that the chain ends.
            s, nearest = chain[length - 1], -1
            min_distance = np.inf
            if length > 1:
                nearest = chain[length - 2]
                min_distance = condensed[_pair_index(s, nearest)]
            for i in range(num_active):
                t = active[i]
                if t != s and condensed[_pair_index(s, t)] < min_distance:
                    min_distance, nearest = condensed[_pair_index(s, t)], t
            if length > 1 and nearest == chain[length - 2]:
                break
            chain[length] = nearest
            length += 1
        length -= 2
        removed, survivor = max(s, nearest), min(s, nearest)
        pairs[merge, 0], pairs[merge, 1], heights[merge] = survivor, removed, min_distance
        num_kept = 0
        for i in range(num_active):
            t = active[i]
            if t == removed:
                continue
            active[num_kept] = t
            num_kept += 1
            if t != survivor:
                farther = condensed[_pair_index(removed, t)]
                if farther > condensed[_pair_index(survivor, t)]:
                    condensed[_pair_index(survivor, t)] = farther
        num_active = num_kept


@njit(cache=True)
def _label_merges(num_states: int, pairs: Any) -> Any:
    """Return the classes of the merges: a forest with the smallest state as root."""
    root = np.arange(num_states)
    for i in range(len(pairs)):
        s, t = pairs[i]
        while root[s] != s:
            s = root[s]
        while root[t] != t:
            t = root[t]
        root[max(s, t)] = min(s, t)
    labels, num_classes = np.empty(num_states, np.int64), 0
    for s in range(num_states):
        if root[s] == s:
            labels[s] = num_classes
            num_classes += 1
        else:
            # A root is smaller, so that its label is known.
            labels[s] = labels[root[s]]
    return labels


def k_medoids(
    distances: NDArray[np.floating], k: int, seed: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return labels (n,) and medoids (k,) at a local minimum of sum_s d(s, medoid(s)).

    Initial medoids are sampled in proportion to their distance from those before (k-means++, Arthur
    & Vassilvitskii 2007). Then a state replaces a medoid whenever that lowers the cost, until no
    single swap does (Schubert & Rousseeuw 2021, Fast and eager k-medoids clustering, Information
    Systems 101). A medoid belongs to its own class; the diagonal of the matrix is ignored.

    >>> distances = np.abs(np.subtract.outer([0.0, 1, 2, 9, 10], [0.0, 1, 2, 9, 10]))
    >>> labels, medoids = k_medoids(distances, 2, seed=0)
    >>> labels.tolist() in ([0, 0, 0, 1, 1], [1, 1, 1, 0, 0]), sorted(medoids.tolist())[0]
    (True, 1)
    """
    if k == 1:
        with np.errstate(over="ignore"):  # where sums overflow, any state is as good
            sums = distances.sum(axis=1, dtype=np.float64) - distances.diagonal()
        return np.zeros(len(distances), np.int64), np.array([int(sums.argmin())])
    medoids = _initialise_medoids(distances, k, np.random.default_rng(seed))
    labels, _ = _swap_medoids(distances, medoids, MIN_RELATIVE_GAIN, MAX_PASSES)
    return labels, medoids


def _initialise_medoids(
    distances: NDArray[np.floating], k: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Sample k distinct initial medoids."""
    medoids = np.empty(k, np.int64)
    medoids[0] = rng.integers(len(distances))
    to_nearest = distances[medoids[0]].astype(np.float64)
    is_medoid = np.zeros(len(distances), np.bool_)
    for i in range(1, k):
        is_medoid[medoids[i - 1]] = True
        to_nearest[is_medoid] = 0.0
        # Uniform where all are at distance 0 of a medoid. A sum of large distances may overflow.
        weights = (
            to_nearest / to_nearest.max() if to_nearest.max() > 0 else np.where(is_medoid, 0.0, 1.0)
        )
        weights /= weights.sum()
        medoids[i] = rng.choice(len(distances), p=weights)
        np.minimum(to_nearest, distances[medoids[i]], out=to_nearest)
    return medoids


@njit(cache=True)
def _two_nearest(distances: Any, medoids: Any, s: int) -> tuple[int, float, int, float]:
    """Return the indices and distances of the two nearest medoids of a state."""
    first, second = -1, -1
    first_distance, second_distance = np.inf, np.inf
    for i in range(len(medoids)):
        # Below every distance: a medoid belongs to its own class even at distance 0 of another.
        distance = -1.0 if medoids[i] == s else float(distances[medoids[i], s])
        if distance < first_distance:
            first, second, first_distance, second_distance = i, first, distance, first_distance
        elif distance < second_distance:
            second, second_distance = i, distance
    return first, max(first_distance, 0.0), second, second_distance


@njit(cache=True)
def _swap_medoids(
    distances: Any, medoids: Any, min_relative_gain: float, max_passes: int
) -> tuple[Any, float]:
    """Swap medoids in place while the cost falls; return the nearest medoid indices, the cost."""
    num_states, k = len(distances), len(medoids)
    nearest, second = np.empty(num_states, np.int64), np.empty(num_states, np.int64)
    nearest_distance, second_distance = np.empty(num_states), np.empty(num_states)
    is_medoid = np.zeros(num_states, np.bool_)
    for i in range(k):
        is_medoid[medoids[i]] = True
    for s in range(num_states):
        nearest[s], nearest_distance[s], second[s], second_distance[s] = _two_nearest(
            distances, medoids, s
        )
    change = np.empty(k)
    num_failed = 0
    for trial in range(max_passes * num_states):
        x = trial % num_states
        num_failed += 1
        if num_failed > num_states:
            break
        if is_medoid[x]:
            continue
        # The gain of adding x, and the cost of removing each medoid in exchange.
        gain = 0.0
        change[:] = 0.0
        for s in range(num_states):
            distance = 0.0 if s == x else float(distances[x, s])
            if distance < nearest_distance[s]:
                gain += distance - nearest_distance[s]
            else:
                change[nearest[s]] += min(distance, second_distance[s]) - nearest_distance[s]
        best = int(change.argmin())
        if change[best] + gain < -min_relative_gain * nearest_distance.sum():
            is_medoid[medoids[best]], is_medoid[x] = False, True
            medoids[best] = x
            num_failed = 0
            for s in range(num_states):
                distance = -1.0 if s == x else float(distances[x, s])
                if nearest[s] == best or second[s] == best or distance < second_distance[s]:
                    nearest[s], nearest_distance[s], second[s], second_distance[s] = _two_nearest(
                        distances, medoids, s
                    )
    return nearest, nearest_distance.sum()

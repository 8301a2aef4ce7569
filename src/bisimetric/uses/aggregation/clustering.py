"""Cluster states by a distance matrix: classes, representatives and diameters."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric._memory import require_memory
from bisimetric.errors import InputError, require_integer, suggest_names
from bisimetric.uses.aggregation.clustering_algorithms import (
    cluster_incrementally,
    complete_linkage,
    find_smallest_radius,
    k_medoids,
)
from bisimetric.uses.certificates import validate_distance_matrix

MEDOID_SEARCH_TOLERANCE = 0.05
"""Relative accuracy of the search for the smallest number of medoids within a radius."""

ClusteringRule = Literal["incremental", "complete", "medoids"]


class Clustering(NamedTuple):
    """Classes of states.

    Attributes:
        labels: (n,), the class of each state; classes are numbered by first appearance.
        representatives: (k,), one state per class.
        representative_distances: (n,), from each state to the representative of its class.
        diameters: (k,), the largest distance between two states of each class.
    """

    labels: NDArray[np.int64]
    representatives: NDArray[np.int64]
    representative_distances: NDArray[np.float64]
    diameters: NDArray[np.float64]


def cluster(
    d: Any,
    *,
    radius: float | None = None,
    clusters: int | None = None,
    rule: ClusteringRule = "incremental",
    seed: int = 0,
) -> NDArray[np.int64]:
    """Cluster states by their distances; `aggregate` does it for an MDP, with regret bounds.

    For sampled observations of an environment whose states cannot be enumerated, pass
    `d.table(observations)` of a learned distance d. Exactly one of `radius` and `clusters` is
    required.

    Args:
        d: a `Distance`, a `LearnedDistance` of listed states, or a matrix (n, n).
        radius: the largest distance from a state to the representative of its class; under
            "incremental" and "complete" also the largest distance between two states of a class.
        clusters: the largest number of classes, made as tight as the rule can.
        rule: "incremental" (Castro 2020): each state in turn joins the first class all of whose
            members are within the radius; "complete": complete linkage; "medoids": k-medoids.
        seed: of the initial medoids.

    Returns:
        (n,), the class of each state; classes are numbered by first appearance.

    Raises:
        InputError: where d is no distance matrix, or the options contradict each other.

    >>> cluster(np.abs(np.subtract.outer([0.0, 5.0, 1.0], [0.0, 5.0, 1.0])), clusters=2)
    array([0, 1, 0])
    """
    distances = validate_distance_matrix("uses.cluster", d)
    return cluster_matrix("uses.cluster", distances, radius, clusters, rule, seed).labels


def cluster_matrix(
    caller: str,
    distances: NDArray[np.floating],
    radius: float | None,
    clusters: int | None,
    rule: ClusteringRule,
    seed: int,
) -> Clustering:
    """Cluster a validated matrix and choose representatives.

    The representative of a class is its medoid under "medoids", else the state of least
    eccentricity: the one whose farthest class member is nearest.
    """
    _validate_options(caller, len(distances), radius, clusters, rule)
    seed = require_integer(caller, "seed", seed)
    max_distance = math.inf if radius is None else float(radius)
    centres = None
    if rule == "incremental":
        bound = max_distance if clusters is None else find_smallest_radius(distances, clusters)
        labels = cluster_incrementally(distances, bound)
    elif rule == "complete":
        num_bytes = distances.nbytes / 2
        require_memory(f"{caller}: complete linkage needs", num_bytes, "use rule='incremental'")
        labels = complete_linkage(distances, radius=max_distance, clusters=clusters or 1)
    else:
        labels, centres = _cluster_around_medoids(distances, max_distance, clusters, seed)
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    ordered = np.asarray(rank[inverse], np.int64)
    eccentricities = _eccentricities(distances, ordered, np.argsort(ordered, kind="stable"))
    diameters = np.zeros(len(first))
    np.maximum.at(diameters, ordered, eccentricities)
    if centres is None:
        # By class, then by eccentricity, then by id.
        order = np.lexsort((eccentricities, ordered))
        centres = order[np.unique(ordered[order], return_index=True)[1]]
    else:
        centres = centres[np.argsort(rank)]
    to_centres = distances[centres[ordered], np.arange(len(distances))].astype(np.float64)
    to_centres[centres] = 0.0
    return Clustering(ordered, np.asarray(centres, np.int64), to_centres, diameters)


def _validate_options(
    caller: str, num_states: int, radius: float | None, clusters: int | None, rule: str
) -> None:
    """Raise InputError for options that do not determine a clustering."""
    if (radius is None) == (clusters is None):
        given = "neither is" if radius is None else "both are"
        raise InputError(f"{caller}: give exactly one of radius and clusters; {given} given.")
    if rule not in get_args(ClusteringRule):
        hint = (
            suggest_names(str(rule), get_args(ClusteringRule))
            or f"; choose from {', '.join(get_args(ClusteringRule))}."
        )
        raise InputError(f"{caller}: there is no rule {rule!r}{hint}")
    if radius is not None and not (isinstance(radius, int | float | np.number) and radius >= 0):
        raise InputError(
            f"is {radius!r} and must be a number, at least 0", caller=caller, argument="radius"
        )
    if clusters is not None and require_integer(caller, "clusters", clusters, 1) > num_states:
        raise InputError(
            f"is {clusters} and must be at most the number of states, {num_states}",
            caller=caller,
            argument="clusters",
        )


def _cluster_around_medoids(
    distances: NDArray[np.floating], radius: float, clusters: int | None, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return labels and medoids: `clusters` of them, or about as few as the radius allows."""
    if clusters is not None:
        return k_medoids(distances, clusters, seed)
    num_states = len(distances)
    too_few, enough = 0, 1
    best = k_medoids(distances, enough, seed)
    while not _is_within_radius(distances, best, radius):
        too_few, enough = enough, min(4 * enough, num_states)
        best = k_medoids(distances, enough, seed)
    while enough - too_few > max(1, MEDOID_SEARCH_TOLERANCE * enough):
        middle = (too_few + enough) // 2
        trial = k_medoids(distances, middle, seed)
        if _is_within_radius(distances, trial, radius):
            enough, best = middle, trial
        else:
            too_few = middle
    return best


def _is_within_radius(
    distances: NDArray[np.floating],
    clustering: tuple[NDArray[np.int64], NDArray[np.int64]],
    radius: float,
) -> bool:
    """Return whether every state is within the radius of the medoid of its class."""
    centres = clustering[1][clustering[0]]
    states = np.arange(len(distances))
    return bool(((distances[centres, states] <= radius) | (centres == states)).all())


@njit(cache=True)
def _eccentricities(distances: Any, labels: Any, order: Any) -> Any:
    """Return the largest distance from each state to another of its class, (n,)."""
    eccentricities = np.zeros(len(labels))
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and labels[order[end]] == labels[order[start]]:
            end += 1
        for i in range(start, end):
            s = order[i]
            for j in range(start, end):
                if i != j and distances[s, order[j]] > eccentricities[s]:
                    eccentricities[s] = distances[s, order[j]]
        start = end
    return eccentricities

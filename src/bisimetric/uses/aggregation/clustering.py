"""Classes of states that lie near each other, from nothing but a table of distances."""

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
"""The share of the number of medoids that the search for it may leave open."""

ClusteringRule = Literal["incremental", "complete", "medoids"]


class Clustering(NamedTuple):
    """Classes of states.

    Attributes:
        labels: (n,), the class of each state; classes are numbered by first appearance.
        representatives: (k,), the state that stands for each class.
        far: (n,), how far each state is from the one that stands for it.
        diameters: (k,), the largest distance of two states of each class.
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
    """The classes (n,) of states by their distances, numbered by first appearance.

    For samples of a world whose states cannot be listed: `labels(d.table(observations), ...)` with
    a learned distance d. A class is all that comes out; there is no MDP to aggregate, nothing to
    measure a loss by, and nothing is proven. Of an MDP, `aggregate` tells all that.

    Args:
        d: a table (n, n), a `Distance`, or a `Learned` that knows its states.
        radius: no state lies farther from the one that stands for its class; and under
            "incremental" and "complete" no two states of a class do.
        clusters: as near to each other as at most so many classes allow.
        rule: "incremental", state after state joins the first class all of whose members are near
            (Castro 2020); "complete", complete linkage, the two classes are merged whose farthest
            members are nearest; "medoids", k-medoids, the sum of the distances to the
            representatives is made small.
        key: of the first medoids.

    >>> labels(np.abs(np.subtract.outer([0.0, 5.0, 1.0], [0.0, 5.0, 1.0])), clusters=2)
    array([0, 1, 0])
    """
    table = validate_distance_matrix("uses.labels", d)
    return cluster_matrix("uses.labels", table, radius, clusters, rule, seed).labels


def cluster_matrix(
    caller: str,
    distances: NDArray[np.floating],
    radius: float | None,
    clusters: int | None,
    rule: ClusteringRule,
    seed: int,
) -> Clustering:
    """The classes of a checked table, with the states that stand for them.

    The representative of a class is its medoid under that rule, else the state whose farthest
    fellow is nearest.
    """
    _validate_options(caller, len(distances), radius, clusters, rule)
    seed = require_integer(caller, "key", seed)
    within = math.inf if radius is None else float(radius)
    centres = None
    if rule == "incremental":
        bound = within if clusters is None else find_smallest_radius(distances, clusters)
        found = cluster_incrementally(distances, bound)
    elif rule == "complete":
        need = distances.nbytes / 2
        require_memory(f"{caller}: complete linkage needs", need, "use rule='incremental'")
        found = complete_linkage(distances, radius=within, clusters=clusters or 1)
    else:
        found, centres = _cluster_around_medoids(distances, within, clusters, seed)
    _, first, place = np.unique(found, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    ordered = np.asarray(rank[place], np.int64)
    farthest = _eccentricities(distances, ordered, np.argsort(ordered, kind="stable"))
    diameters = np.zeros(len(first))
    np.maximum.at(diameters, ordered, farthest)
    if centres is None:
        # Sorted by class, then by how far the farthest fellow is, then by id.
        order = np.lexsort((farthest, ordered))
        centres = order[np.unique(ordered[order], return_index=True)[1]]
    else:
        centres = centres[np.argsort(rank)]
    far = distances[centres[ordered], np.arange(len(distances))].astype(np.float64)
    far[centres] = 0.0
    return Clustering(ordered, np.asarray(centres, np.int64), far, diameters)


def _validate_options(
    caller: str, num_states: int, radius: float | None, clusters: int | None, rule: str
) -> None:
    if (radius is None) == (clusters is None):
        found = "neither is" if radius is None else "both are"
        raise InputError(
            f"{caller}: {found} given; radius or clusters, one of the two, chooses the classes."
        )
    if rule not in get_args(ClusteringRule):
        hint = (
            suggest_names(str(rule), get_args(ClusteringRule))
            or f"; they are {', '.join(get_args(ClusteringRule))}."
        )
        raise InputError(f"{caller}: there is no rule {rule!r}{hint}")
    if radius is not None and not (isinstance(radius, int | float | np.number) and radius >= 0):
        raise InputError(f"{caller}: radius is {radius!r} and must be a number, at least 0.")
    if clusters is not None and require_integer(caller, "clusters", clusters, 1) > num_states:
        raise InputError(
            f"{caller}: {clusters} clusters are asked for and there are {num_states} states; ask for "
            f"at most {num_states}."
        )


def _cluster_around_medoids(
    distances: NDArray[np.floating], radius: float, clusters: int | None, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Around so many medoids, or around about as few as are near enough."""
    if clusters is not None:
        return k_medoids(distances, clusters, seed)
    states = len(distances)
    few, many = 0, 1
    found = k_medoids(distances, many, seed)
    while not _is_within_radius(distances, found, radius):
        few, many = many, min(4 * many, states)
        found = k_medoids(distances, many, seed)
    while many - few > max(1, MEDOID_SEARCH_TOLERANCE * many):
        middle = (few + many) // 2
        tried = k_medoids(distances, middle, seed)
        if _is_within_radius(distances, tried, radius):
            many, found = middle, tried
        else:
            few = middle
    return found


def _is_within_radius(
    distances: NDArray[np.floating],
    clustering: tuple[NDArray[np.int64], NDArray[np.int64]],
    radius: float,
) -> bool:
    centres = clustering[1][clustering[0]]
    everyone = np.arange(len(distances))
    return bool(((distances[centres, everyone] <= radius) | (centres == everyone)).all())


@njit(cache=True)
def _eccentricities(distances: Any, labels: Any, order: Any) -> Any:
    """How far the farthest other state of its class is from each state, (n,)."""
    farthest = np.zeros(len(labels))
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and labels[order[end]] == labels[order[start]]:
            end += 1
        for i in range(start, end):
            s = order[i]
            for j in range(start, end):
                if i != j and distances[s, order[j]] > farthest[s]:
                    farthest[s] = distances[s, order[j]]
        start = end
    return farthest

"""Nearest observations by a metric network, without comparing with all of them.

By the triangle inequality d(x, y) >= |d(x, p) - d(y, p)| for every pivot p. The distances of all
observations to the pivots are computed once; candidates whose lower bound exceeds the k-th best
distance so far are skipped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric._k_centre import k_centre
from bisimetric.errors import InputError, require_integer
from bisimetric.learned.learned_distance import LearnedDistance
from bisimetric.learned.networks.metric_networks import MetricNetwork, PairQEnsemble

ROUNDING_SLACK = 1e-4
"""The share of the largest distance that rounding may add to a bound."""

QUERY_BLOCK = 256
"""Observations compared at once; a fixed number, since every other one is compiled anew."""


class Neighbours(NamedTuple):
    """The result of a nearest-neighbour query.

    Attributes:
        ids: (k,), positions among the observations, nearest first.
        distances: (k,), their distances.
        num_compared: how many observations were compared with, including the pivots.

    >>> Neighbours(np.array([3]), np.array([0.5], np.float32), 7).num_compared
    7
    """

    ids: NDArray[np.int64]
    distances: NDArray[np.float32]
    num_compared: int


class PivotIndex:
    """An index of observations for nearest-neighbour queries under a learned metric.

    It returns what comparing with all observations would return. Where all distances are nearly
    equal, as is common at discounts near 1, few comparisons are saved.

    Args:
        distance: a learned distance whose network is a `MetricNetwork`; no other satisfies the
            triangle inequality by construction.
        observations: (n, ...).
        num_pivots: how many observations, each farthest from those before it, are compared with all
            others in advance; fewer where fewer observations are at a positive distance.

    Raises:
        InputError: when the network is no `MetricNetwork` or there are no observations.

    >>> from bisimetric import worlds
    >>> from bisimetric.learned import MetricNetwork, PairQConfig, bisimulation
    >>> config = PairQConfig(MetricNetwork((8,), num_groups=2), batch_size=16, warm_up=0)
    >>> d = bisimulation(worlds.load("pessimism", discount=0.5), updates=200, config=config)
    >>> PivotIndex(d, d.points, num_pivots=2).nearest(d.points[0], k=1).ids.tolist()
    [0]
    """

    def __init__(
        self, distance: LearnedDistance, observations: Any, *, num_pivots: int = 16
    ) -> None:
        if not (
            isinstance(distance.network, PairQEnsemble)
            and isinstance(distance.network.network, MetricNetwork)
        ):
            raise InputError(
                "has a network that is no MetricNetwork and may violate the triangle inequality",
                caller="PivotIndex",
                argument="distance",
                remedy="use distance.table(observations)",
            )
        self.distance = distance
        self.observations = np.asarray(observations)
        count = len(self.observations)
        if not count:
            raise InputError(
                "is empty", caller="PivotIndex", argument="observations", remedy="give at least one"
            )
        num_pivots = min(require_integer("PivotIndex", "num_pivots", num_pivots, 1), count)
        columns = []

        def compute_column(i: int) -> NDArray[np.float32]:
            columns.append(distance.table(self.observations, self.observations[i : i + 1])[:, 0])
            return columns[-1]

        self.pivots = k_centre(compute_column, num_pivots).centres
        self.pivot_distances = np.stack(columns, axis=1)

    def __len__(self) -> int:
        return len(self.observations)

    def nearest(self, x: Any, k: int = 5) -> Neighbours:
        """Return the k nearest observations, or all where there are fewer; ties by position.

        Args:
            x: one observation.
            k: how many.

        Returns:
            Their positions and distances, nearest first.

        Raises:
            InputError: when k is not a whole number, at least 1.
        """
        k = min(require_integer("PivotIndex.nearest", "k", k, 1), len(self))
        query = np.asarray(x)[None]
        to_pivots = self.distance.table(query, self.observations[self.pivots])[0]
        bound = np.abs(self.pivot_distances - to_pivots).max(axis=1)
        slack = ROUNDING_SLACK * float(max(self.pivot_distances.max(), to_pivots.max()))
        order = np.argsort(bound, kind="stable")
        distances = np.full(len(self), np.inf, np.float32)
        distances[self.pivots] = to_pivots
        num_compared = len(self.pivots)
        size = min(QUERY_BLOCK, len(self))
        for start in range(0, len(self), size):
            if bound[order[start]] > np.partition(distances, k - 1)[k - 1] + slack:
                break
            block = order[min(start, len(self) - size) :][:size]
            distances[block] = self.distance.table(query, self.observations[block])[0]
            num_compared += size
        ids = np.argsort(distances, kind="stable")[:k]
        return Neighbours(ids, distances[ids], num_compared)

"""Nearest observations by a metric network, without looking at all of them.

By the triangle inequality d(x, y) >= |d(x, p) - d(y, p)| for every pivot p. The distances of all
observations to some pivots are known beforehand, so that those that must be farther than what was
found already are passed over.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError, require_integer
from bisimetric.learned.distance import LearnedDistance
from bisimetric.learned.networks.coupled import MetricNetwork, PairQEnsemble

ROUNDING_SLACK = 1e-4
"""The share of the largest distance that rounding may add to a bound."""

QUERY_BLOCK = 256
"""How many observations are looked at together."""


class Neighbours(NamedTuple):
    """What was found: `ids` (k,) among the observations, nearest first, and their `distances`.

    `looked` tells how many observations were compared with, the pivots included.
    """

    ids: NDArray[np.int64]
    distances: NDArray[np.float32]
    num_compared: int


class PivotIndex:
    """Observations, ready to be asked for those nearest to another one.

    Args:
        d: a learned distance whose network is a `MetricNetwork`: no other is sure to keep the
            triangle inequality, which an index stands on.
        observations: (n, ...).
        pivots: how many of them all others are compared with beforehand, each as far as possible
            from those before.

    `nearest(x, k)` is what comparing with all of them would give; where all are about equally far
    from each other, as in many a world at a discount near 1, little is passed over.
    """

    def __init__(
        self, distance: LearnedDistance, observations: Any, *, num_pivots: int = 16
    ) -> None:
        if not (
            isinstance(distance.network, PairQEnsemble)
            and isinstance(distance.network.network, MetricNetwork)
        ):
            raise InputError(
                "Index: the network of d is no MetricNetwork, and may break the triangle "
                "inequality; use table(observations)."
            )
        self.distance = distance
        self.observations = np.asarray(observations)
        count = len(self.observations)
        if not count:
            raise InputError("Index: there are no observations; give at least one.")
        wanted = min(require_integer("Index", "pivots", num_pivots, 1), count)
        chosen, columns = [0], [distance.table(self.observations, self.observations[:1])[:, 0]]
        while len(chosen) < wanted:
            far = int(np.min(columns, axis=0).argmax())
            chosen.append(far)
            columns.append(
                distance.table(self.observations, self.observations[far : far + 1])[:, 0]
            )
        self.pivots = np.array(chosen, np.int64)
        self.pivot_distances = np.stack(columns, axis=1)

    def __len__(self) -> int:
        return len(self.observations)

    def nearest(self, x: Any, k: int = 5) -> Neighbours:
        """The k observations nearest to x, or all where there are fewer; ties by place."""
        k = min(require_integer("Index.nearest", "k", k, 1), len(self))
        seen = np.asarray(x)[None]
        own = self.distance.table(seen, self.observations[self.pivots])[0]
        bound = np.abs(self.pivot_distances - own).max(axis=1)
        slack = ROUNDING_SLACK * float(max(self.pivot_distances.max(), own.max()))
        order = np.argsort(bound, kind="stable")
        found = np.full(len(self), np.inf, np.float32)
        found[self.pivots] = own
        looked = len(self.pivots)
        # Always as many together, since each number of them is compiled anew.
        size = min(QUERY_BLOCK, len(self))
        for start in range(0, len(self), size):
            if bound[order[start]] > np.partition(found, k - 1)[k - 1] + slack:
                break
            part = order[min(start, len(self) - size) :][:size]
            found[part] = self.distance.table(seen, self.observations[part])[0]
            looked += size
        ids = np.argsort(found, kind="stable")[:k]
        return Neighbours(ids, found[ids], looked)

"""Memory: the visits of observations, some of which are kept, by a learned distance."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError, require_integer
from bisimetric.uses.exploration.visits import (
    CALLER,
    BonusRule,
    lipschitz_envelope,
    triangular_kernel,
    validate_nonnegative,
    validate_rule,
)

MAX_OBSERVATIONS = 1000
"""Observations that are kept, at most."""
MIN_BATCH_SIZE = 16
"""Rows that a network is asked about together, at least."""


@dataclasses.dataclass(frozen=True, eq=False)
class EpisodicMemory:
    """The visits N(i) of kept observations x_i, and the bonus of the next visit to any x.

        n(x) = sum_i N(i) max(0, 1 - d(x, x_i) / radius)

    The bonus is that of `Visits`, by the same two rules, with x_i in the place of t. An observation
    is kept when it is farther than `apart` from all that are; else its visit is one to the nearest.
    So where d is a metric, n(x) is off by at most `apart` / `radius` of all visits. A full memory
    keeps no more, and that bound is lost. The end of an episode, None, is one observation more, far
    from all others.

    Attributes:
        d: whatever has `table(x, y)`, the distances (n, m) of observations (n, ...) and (m, ...):
            a `Learned`.
        radius: how far away a visit counts.
        apart: how near to a kept observation another is taken for it.
        rule: "counts" or "nearest".
        most: how many are kept, at most.
        kept: (k, ...), these observations.
        counts: (k,), their visits.
        ends: the visits of the end.

    >>> class Line:
    ...     def table(self, x, y):
    ...         return np.abs(x[:, None, 0] - y[None, :, 0])
    >>> memory = Memory.of(Line(), radius=2.0, apart=0.5)
    >>> for place in ([0.0], [0.3], [1.0]):
    ...     bonus, memory = memory.visit(np.array(place))
    >>> memory, round(bonus, 3)
    (Memory(3 visits, 2 of at most 1000 observations kept, radius 2), 0.707)
    """

    d: Any
    radius: float
    merge_radius: float
    rule: BonusRule = "counts"
    max_observations: int = MAX_OBSERVATIONS
    observations: NDArray[Any] | None = None
    counts: NDArray[np.int64] = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))
    terminal_visits: int = 0

    @classmethod
    def from_distance(
        cls,
        d: Any,
        *,
        radius: float | None = None,
        rule: BonusRule = "counts",
        merge_radius: float | None = None,
        max_observations: int = MAX_OBSERVATIONS,
    ) -> EpisodicMemory:
        """No visits yet; `apart` None means a quarter of the radius."""
        if not callable(getattr(d, "table", None)):
            raise InputError(
                f"{CALLER}: d is {type(d).__name__} and knows no observations; take a learned "
                "distance, or give a state_of that finds the states of a table."
            )
        if radius is None:
            raise InputError(
                f"{CALLER}: a distance of observations has no typical size of its own; give "
                "radius, such as the median of d.table(observations)."
            )
        wide = validate_nonnegative("radius", radius)
        near = wide / 4 if merge_radius is None else validate_nonnegative("apart", merge_radius)
        return cls(
            d,
            wide,
            near,
            validate_rule(rule),
            require_integer(CALLER, "memory", max_observations, 1),
        )

    def bonus(self, observation: Any) -> float:
        """The bonus of the next visit to an observation; None is the end."""
        if observation is None:
            return 1 / math.sqrt(1 + self.terminal_visits)
        return self._bonus(self._measure_distances(np.asarray(observation)))

    def visit(self, observation: Any) -> tuple[float, EpisodicMemory]:
        """The bonus of a visit, and the memory with this visit in it."""
        if observation is None:
            return self.bonus(None), dataclasses.replace(self, terminal_visits=self.terminal_visits + 1)
        here = np.array(observation)
        distances = self._measure_distances(here)
        bonus = self._bonus(distances)
        nearest = int(distances.argmin()) if len(distances) else -1
        known = nearest >= 0 and (
            distances[nearest] <= self.merge_radius or len(distances) >= self.max_observations
        )
        if known:
            counts = self.counts.copy()
            counts[nearest] += 1
            return bonus, dataclasses.replace(self, counts=counts)
        kept = (
            here[None]
            if self.observations is None
            else np.concatenate([self.observations, here[None]])
        )
        return bonus, dataclasses.replace(self, observations=kept, counts=np.append(self.counts, 1))

    def _bonus(self, distances: NDArray[np.float64]) -> float:
        if self.rule == "nearest":
            return float(lipschitz_envelope(distances, self.radius, self.counts).min(initial=1.0))
        return 1 / math.sqrt(1 + float(triangular_kernel(distances, self.radius) @ self.counts))

    def _measure_distances(self, observation: NDArray[Any]) -> NDArray[np.float64]:
        """The distances (k,) to what is kept; 0 to itself, which a network may not say."""
        if self.observations is None:
            return np.zeros(0)
        if observation.shape != self.observations.shape[1:]:
            raise InputError(
                f"{CALLER}: an observation has shape {observation.shape} and those before had "
                f"{self.observations.shape[1:]}; observations must keep their shape."
            )
        count = len(self.observations)
        # Filled up to a power of two: a compiled network meets few different shapes.
        size = max(MIN_BATCH_SIZE, 1 << (count - 1).bit_length())
        rows = np.concatenate(
            [self.observations, np.repeat(self.observations[:1], size - count, axis=0)]
        )
        found = np.asarray(self.d.table(observation[None], rows), np.float64)[0, :count]
        if not (found >= 0).all():
            raise InputError(
                f"{CALLER}: d says that an observation is {found[~(found >= 0)][0]:g} from another, "
                "and distances are at least 0; train it again, or scale the observations."
            )
        same = (self.observations == observation).reshape(count, -1).all(axis=1)
        return np.where(same, 0.0, found)

    def __repr__(self) -> str:
        visits = int(self.counts.sum()) + self.terminal_visits
        return (
            f"Memory({visits:,} visits, {len(self.counts)} of at most {self.max_observations} observations "
            f"kept, radius {self.radius:.4g})"
        )

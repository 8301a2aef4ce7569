"""Visits: how often states were visited, and how new that leaves all of them, by a distance.

Memory: the visits of observations, some of which are kept, by a learned distance.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError, require_integer
from bisimetric.uses.certificates import validate_distance_matrix

CALLER = "uses.explore"
BonusRule = Literal["counts", "nearest"]


@dataclasses.dataclass(frozen=True, eq=False)
class VisitCounts:
    """The visits N(t) of states, and the bonus of the next visit to any state, from 0 to 1.

    A visit to t is also, in part, one to all states within `radius` of t:

        n(s) = sum_t N(t) max(0, 1 - d(s, t) / radius)

    | rule | bonus(s) |
    |---|---|
    | "counts" | 1 / sqrt(1 + n(s)) |
    | "nearest" | the least of 1 and, over visited t, 1 / sqrt(1 + N(t)) + d(s, t) / radius |

    Where no other state is nearer than `radius`, both are 1 / sqrt(1 + N(s)), the bonus of plain
    counts. With "counts" states at distance 0 have one bonus for all of them; with "nearest" no two
    bonuses differ by more than d(s, t) / radius. A state is at distance 0 from itself, also where
    MICo says otherwise.

    Make one with `Visits.of`. Nothing here changes: `visit` returns the bonus and another record.

    Attributes:
        table: (S, S), the distances.
        radius: how far away a visit counts; at 0 it counts for states at distance 0.
        rule: "counts" or "nearest".
        counts: (S,), the visits of each state.
        near: (S,), what the rule keeps of them: n(s), or bonus(s).

    >>> visits = Visits.of([[0, 1, 4], [1, 0, 4], [4, 4, 0]], radius=2)
    >>> first, visits = visits.visit(0)
    >>> first, [round(visits.bonus(s), 3) for s in range(3)]
    (1.0, [0.707, 0.816, 1.0])
    """

    distances: NDArray[np.floating]
    radius: float
    rule: BonusRule
    counts: NDArray[np.int64]
    accumulator: NDArray[np.float64]

    @classmethod
    def from_distance(
        cls, d: Any, *, radius: float | None = None, rule: BonusRule = "counts"
    ) -> VisitCounts:
        """No visits yet. `d` is a `Distance`, a `Learned` that knows its states, or a table.

        `radius` None means the median of all distances above 0.
        """
        table = validate_distance_matrix(CALLER, d)
        validate_rule(rule)
        wide = median_distance(table, getattr(d, "error", 0.0)) if radius is None else radius
        states = len(table)
        near = np.zeros(states) if rule == "counts" else np.ones(states)
        return cls(
            table, validate_nonnegative("radius", wide), rule, np.zeros(states, np.int64), near
        )

    @property
    def bonuses(self) -> NDArray[np.float64]:
        """(S,), the bonus of the next visit to each state."""
        return (
            self.accumulator.copy() if self.rule == "nearest" else 1 / np.sqrt(1 + self.accumulator)
        )

    def bonus(self, state: int) -> float:
        """The bonus of the next visit to a state."""
        near = float(self.accumulator[self._validate_state(state)])
        return near if self.rule == "nearest" else 1 / math.sqrt(1 + near)

    def visit(self, state: int) -> tuple[float, VisitCounts]:
        """The bonus of a visit, and the visits with this one among them."""
        here = self._validate_state(state)
        counts = self.counts.copy()
        counts[here] += 1
        near = self._update(self.accumulator, here, 1, int(counts[here]))
        return self.bonus(here), dataclasses.replace(self, counts=counts, accumulator=near)

    def with_distance(self, d: Any, *, radius: float | None = None) -> VisitCounts:
        """The same visits by another distance of the same states, such as a better estimate."""
        start = VisitCounts.from_distance(d, radius=radius, rule=self.rule)
        if len(start.distances) != len(self.distances):
            raise InputError(
                f"{CALLER}: the other distance knows {len(start.distances)} states and the visits are "
                f"of {len(self.distances)}; take one of the same states."
            )
        near = start.accumulator
        for state in np.flatnonzero(self.counts):
            count = int(self.counts[state])
            near = start._update(near, int(state), count, count)
        return dataclasses.replace(start, counts=self.counts, accumulator=near)

    def _update(
        self, accumulator: NDArray[np.float64], state: int, added: int, total: int
    ) -> NDArray[np.float64]:
        """What is kept after `added` visits here, `total` in all."""
        row = self.distances[state]
        if self.rule == "counts":
            after = accumulator + added * triangular_kernel(row, self.radius)
            after[state] = accumulator[state] + added
            return after
        after = np.minimum(accumulator, lipschitz_envelope(row, self.radius, total))
        after[state] = min(accumulator[state], 1 / math.sqrt(1 + total))
        return after

    def _validate_state(self, state: int) -> int:
        index = require_integer(CALLER, "the state", state)
        if index >= len(self.distances):
            raise InputError(
                f"{CALLER}: there is no state {index}; d knows ids from 0 to {len(self.distances) - 1}."
            )
        return index

    def __repr__(self) -> str:
        seen = int(np.count_nonzero(self.counts))
        return (
            f"Visits({int(self.counts.sum()):,} to {seen} of {len(self.distances)} states, "
            f"{self.rule}, radius {self.radius:.4g})"
        )


def triangular_kernel(distances: NDArray[np.floating], radius: float) -> NDArray[np.float64]:
    """How much a visit at each of these distances counts: 1 at 0, nothing from `radius` on.

    >>> weights(np.array([0.0, 0.5, 3.0]), 2.0), weights(np.array([0.0, 0.5]), 0.0)
    (array([1.  , 0.75, 0.  ]), array([1., 0.]))
    """
    far: NDArray[np.float64] = distances.astype(np.float64)
    return (far == 0).astype(np.float64) if radius == 0 else np.maximum(0.0, 1 - far / radius)


def lipschitz_envelope(
    distances: NDArray[np.floating], radius: float, counts: int | NDArray[np.int64]
) -> NDArray[np.float64]:
    """What so many visits at each of these distances leave of a bonus: 1/sqrt(1 + N) + d/radius.

    >>> envelope(np.array([0.0, 0.5, 3.0]), 2.0, 3), envelope(np.array([0.0, 0.5]), 0.0, 3)
    (array([0.5 , 0.75, 2.  ]), array([0.5, inf]))
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.where(distances > 0, distances.astype(np.float64) / radius, 0.0)
    left: NDArray[np.float64] = far + 1 / np.sqrt(1 + np.asarray(counts))
    return left


def median_distance(distances: NDArray[np.floating], error: float = 0.0) -> float:
    """The median of the distances that are proven to be above 0; 0 where all of them are 0.

    >>> typical(np.array([[0.0, 1.0, 9.0], [1.0, 0.0, 5.0], [9.0, 5.0, 0.0]]))
    5.0
    """
    apart = np.triu(distances, 1)
    found = apart[apart > (error if math.isfinite(error) else 0.0)]
    return float(np.median(found)) if len(found) else 0.0


def validate_rule(rule: BonusRule) -> BonusRule:
    """One of the rules, or a clear error."""
    if rule not in get_args(BonusRule):
        raise InputError(f"{CALLER}: rule is {rule!r} and must be counts or nearest.")
    return rule


def validate_nonnegative(name: str, value: Any) -> float:
    """A finite number that is at least 0, or a clear error."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise InputError(f"{CALLER}: {name} is {value!r} and must be a number, at least 0.")
    return number


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
            return self.bonus(None), dataclasses.replace(
                self, terminal_visits=self.terminal_visits + 1
            )
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

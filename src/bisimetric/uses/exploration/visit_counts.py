"""Count-based novelty by a distance: `VisitCounts` of states, `EpisodicMemory` of observations."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bisimetric.distance import Distance
from bisimetric.errors import InputError, require_integer
from bisimetric.uses.certificates import is_network, validate_distance_matrix

CALLER = "uses.bonus"
MAX_OBSERVATIONS = 1000
"""The default capacity of an `EpisodicMemory`."""
MIN_BATCH_SIZE = 16
"""The smallest batch on which a network is evaluated."""

BonusRule = Literal["counts", "nearest"]


@dataclasses.dataclass(frozen=True, eq=False)
class VisitCounts:
    """Visit counts N(t) of states, and the bonus of the next visit to any state, from 0 to 1.

    A visit to t counts in part for all states within `radius` of t, by a triangular kernel:

        n(s) = sum_t N(t) max(0, 1 - d(s, t) / radius)

    | rule | bonus(s) |
    |---|---|
    | "counts" | 1 / sqrt(1 + n(s)) |
    | "nearest" | the least of 1 and, over visited t, 1 / sqrt(1 + N(t)) + d(s, t) / radius |

    Where no other state is nearer than `radius`, both are 1 / sqrt(1 + N(s)), the bonus of plain
    visit counts. With "counts" states at distance 0 share one bonus; with "nearest" no two bonuses
    differ by more than d(s, t) / radius. The diagonal of d counts as 0, also for MICo.

    Create one with `VisitCounts.from_distance`. It is immutable: `visit` returns the bonus and the
    next record.

    Attributes:
        distances: (S, S), d.
        radius: the range of the kernel; at 0 a visit counts for states at distance 0.
        rule: "counts" or "nearest".
        counts: (S,), the visits of each state.
        accumulator: (S,), n(s) under "counts", bonus(s) under "nearest".

    >>> visits = VisitCounts.from_distance([[0, 1, 4], [1, 0, 4], [4, 4, 0]], radius=2)
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
        """Return a record without visits.

        Args:
            d: a `Distance`, a `LearnedDistance` of listed states, or a matrix (S, S).
            radius: the range of the kernel; default: the median of all distances above 0.
            rule: "counts" or "nearest".

        Returns:
            A `VisitCounts`.

        Raises:
            InputError: where d is no distance matrix, or an option is out of range.
        """
        distances = validate_distance_matrix(CALLER, d)
        validate_rule(rule)
        if radius is None:
            radius = median_distance(distances, d.error if isinstance(d, Distance) else 0.0)
        num_states = len(distances)
        accumulator = np.zeros(num_states) if rule == "counts" else np.ones(num_states)
        counts = np.zeros(num_states, np.int64)
        return cls(distances, validate_nonnegative("radius", radius), rule, counts, accumulator)

    @property
    def bonuses(self) -> NDArray[np.float64]:
        """(S,), the bonus of the next visit to each state."""
        if self.rule == "nearest":
            return self.accumulator.copy()
        return 1 / np.sqrt(1 + self.accumulator)

    def bonus(self, state: int) -> float:
        """Return the bonus of the next visit to a state.

        Args:
            state: its id.

        Returns:
            A number from 0 to 1.

        Raises:
            InputError: where d has no such state.
        """
        entry = float(self.accumulator[self._validate_state(state)])
        return entry if self.rule == "nearest" else 1 / math.sqrt(1 + entry)

    def visit(self, state: int) -> tuple[float, VisitCounts]:
        """Return the bonus of a visit and the record that includes it.

        Args:
            state: its id.

        Returns:
            The bonus, and another `VisitCounts`.

        Raises:
            InputError: where d has no such state.
        """
        index = self._validate_state(state)
        counts = self.counts.copy()
        counts[index] += 1
        accumulator = self._update(self.accumulator, index, 1, int(counts[index]))
        return self.bonus(index), dataclasses.replace(self, counts=counts, accumulator=accumulator)

    def with_distance(self, d: Any, *, radius: float | None = None) -> VisitCounts:
        """Return the same visits under another distance of the same states.

        Args:
            d: a `Distance`, a `LearnedDistance` of listed states, or a matrix (S, S), such as a
                better estimate.
            radius: the range of the kernel; default: the median of all distances above 0.

        Returns:
            Another `VisitCounts`.

        Raises:
            InputError: where d is no distance matrix of as many states.
        """
        start = VisitCounts.from_distance(d, radius=radius, rule=self.rule)
        if len(start.distances) != len(self.distances):
            raise InputError(
                f"has {len(start.distances)} states and the visits are of {len(self.distances)}",
                caller=CALLER,
                argument="d",
                remedy="use a distance of the same states",
            )
        accumulator = start.accumulator
        for state in np.flatnonzero(self.counts):
            count = int(self.counts[state])
            accumulator = start._update(accumulator, int(state), count, count)
        return dataclasses.replace(start, counts=self.counts, accumulator=accumulator)

    def _update(
        self, accumulator: NDArray[np.float64], state: int, added: int, total: int
    ) -> NDArray[np.float64]:
        """Return the accumulator after `added` visits to a state, `total` in all."""
        row = self.distances[state]
        if self.rule == "counts":
            updated = accumulator + added * triangular_kernel(row, self.radius)
            updated[state] = accumulator[state] + added
            return updated
        updated = np.minimum(accumulator, lipschitz_envelope(row, self.radius, total))
        updated[state] = min(accumulator[state], 1 / math.sqrt(1 + total))
        return updated

    def _validate_state(self, state: int) -> int:
        """Return the id of a state of d."""
        index = require_integer(CALLER, "the state", state)
        if index >= len(self.distances):
            raise InputError(
                f"{CALLER}: there is no state {index}; the ids of d are 0 to "
                f"{len(self.distances) - 1}."
            )
        return index

    def __repr__(self) -> str:
        num_visited = int(np.count_nonzero(self.counts))
        return (
            f"VisitCounts({int(self.counts.sum()):,} visits to {num_visited} of "
            f"{len(self.distances)} states, {self.rule}, radius {self.radius:.4g})"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class EpisodicMemory:
    """Visit counts N(i) of stored observations x_i, and the bonus of the next visit to any x.

        n(x) = sum_i N(i) max(0, 1 - d(x, x_i) / radius)

    The bonus is that of `VisitCounts`, by the same two rules, with x_i in place of t. An
    observation is stored when it is farther than `merge_radius` from all stored ones; else its
    visit counts for the nearest. So where d is a metric, the error of n(x) is at most
    `merge_radius` / `radius` times the number of visits. A full memory stores no more, and that
    bound is lost. The terminal state, None, is an additional observation, far from all others.

    Attributes:
        d: an object with `table(x, y)`, the distances (n, m) between observations (n, ...) and
            (m, ...), such as a `LearnedDistance`.
        radius: the range of the kernel.
        merge_radius: the distance up to which an observation is merged with a stored one.
        rule: "counts" or "nearest".
        max_observations: the capacity.
        observations: (k, ...), the stored ones.
        counts: (k,), their visits.
        terminal_visits: the visits of the terminal state.

    >>> class Line:
    ...     def table(self, x, y):
    ...         return np.abs(x[:, None, 0] - y[None, :, 0])
    >>> memory = EpisodicMemory.from_distance(Line(), radius=2.0, merge_radius=0.5)
    >>> for position in ([0.0], [0.3], [1.0]):
    ...     bonus, memory = memory.visit(np.array(position))
    >>> memory, round(bonus, 3)
    (EpisodicMemory(3 visits, 2 of at most 1000 observations, radius 2), 0.707)
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
        """Return an empty memory.

        Args:
            d: an object with `table(x, y)`, such as a `LearnedDistance`.
            radius: the range of the kernel; required.
            rule: "counts" or "nearest".
            merge_radius: the distance up to which an observation is merged with a stored one;
                default: a quarter of the radius.
            max_observations: the capacity.

        Returns:
            An `EpisodicMemory`.

        Raises:
            InputError: where d compares no observations, or an option is missing or out of range.
        """
        if not is_network(d):
            raise InputError(
                f"is {type(d).__name__} and compares no observations",
                caller=CALLER,
                argument="d",
                remedy="use a learned distance, or pass state_of to find the states of a matrix",
            )
        if radius is None:
            raise InputError(
                "is required for a distance of observations",
                caller=CALLER,
                argument="radius",
                remedy="use, for example, the median of d.table(observations)",
            )
        radius = validate_nonnegative("radius", radius)
        merge_radius = (
            radius / 4
            if merge_radius is None
            else validate_nonnegative("merge_radius", merge_radius)
        )
        capacity = require_integer(CALLER, "max_observations", max_observations, 1)
        return cls(d, radius, merge_radius, validate_rule(rule), capacity)

    def bonus(self, observation: Any) -> float:
        """Return the bonus of the next visit to an observation.

        Args:
            observation: an array, or None for the terminal state.

        Returns:
            A number from 0 to 1.

        Raises:
            InputError: where the shape differs from that of the stored observations, or d is
                negative.
        """
        if observation is None:
            return 1 / math.sqrt(1 + self.terminal_visits)
        return self._bonus(self._measure_distances(np.asarray(observation)))

    def visit(self, observation: Any) -> tuple[float, EpisodicMemory]:
        """Return the bonus of a visit and the memory that includes it.

        Args:
            observation: an array, or None for the terminal state.

        Returns:
            The bonus, and another `EpisodicMemory`.

        Raises:
            InputError: where the shape differs from that of the stored observations, or d is
                negative.
        """
        if observation is None:
            return self.bonus(None), dataclasses.replace(
                self, terminal_visits=self.terminal_visits + 1
            )
        array = np.array(observation)
        distances = self._measure_distances(array)
        bonus = self._bonus(distances)
        nearest = int(distances.argmin()) if len(distances) else -1
        merge = nearest >= 0 and (
            distances[nearest] <= self.merge_radius or len(distances) >= self.max_observations
        )
        if merge:
            counts = self.counts.copy()
            counts[nearest] += 1
            return bonus, dataclasses.replace(self, counts=counts)
        observations = (
            array[None]
            if self.observations is None
            else np.concatenate([self.observations, array[None]])
        )
        counts = np.append(self.counts, 1)
        return bonus, dataclasses.replace(self, observations=observations, counts=counts)

    def _bonus(self, distances: NDArray[np.float64]) -> float:
        """Return the bonus at these distances from the stored observations."""
        if self.rule == "nearest":
            return float(lipschitz_envelope(distances, self.radius, self.counts).min(initial=1.0))
        return 1 / math.sqrt(1 + float(triangular_kernel(distances, self.radius) @ self.counts))

    def _measure_distances(self, observation: NDArray[Any]) -> NDArray[np.float64]:
        """Return the distances (k,) to the stored observations; 0 to an equal one."""
        if self.observations is None:
            return np.zeros(0)
        if observation.shape != self.observations.shape[1:]:
            raise InputError(
                f"{CALLER}: an observation has shape {observation.shape} and those before had "
                f"{self.observations.shape[1:]}; all observations must have one shape."
            )
        num_stored = len(self.observations)
        # Padded to a power of two: few shapes to compile a network for.
        size = max(MIN_BATCH_SIZE, 1 << (num_stored - 1).bit_length())
        padding = np.repeat(self.observations[:1], size - num_stored, axis=0)
        rows = np.concatenate([self.observations, padding])
        distances = np.asarray(self.d.table(observation[None], rows), np.float64)[0, :num_stored]
        if not (distances >= 0).all():
            raise InputError(
                f"is {distances[~(distances >= 0)][0]:g} between two observations and must be at "
                "least 0",
                caller=CALLER,
                argument="d",
                remedy="train it longer, or scale the observations",
            )
        equal = (self.observations == observation).reshape(num_stored, -1).all(axis=1)
        return np.where(equal, 0.0, distances)

    def __repr__(self) -> str:
        visits = int(self.counts.sum()) + self.terminal_visits
        return (
            f"EpisodicMemory({visits:,} visits, {len(self.counts)} of at most "
            f"{self.max_observations} observations, radius {self.radius:.4g})"
        )


def triangular_kernel(distances: NDArray[np.floating], radius: float) -> NDArray[np.float64]:
    """Return max(0, 1 - d / radius); at radius 0 the indicator of d = 0.

    >>> triangular_kernel(np.array([0.0, 0.5, 3.0]), 2.0)
    array([1.  , 0.75, 0.  ])
    >>> triangular_kernel(np.array([0.0, 0.5]), 0.0)
    array([1., 0.])
    """
    d: NDArray[np.float64] = distances.astype(np.float64)
    return (d == 0).astype(np.float64) if radius == 0 else np.maximum(0.0, 1 - d / radius)


def lipschitz_envelope(
    distances: NDArray[np.floating], radius: float, counts: int | NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return 1 / sqrt(1 + N) + d / radius, an upper bound on the bonus at distance d of N visits.

    >>> lipschitz_envelope(np.array([0.0, 0.5, 3.0]), 2.0, 3)
    array([0.5 , 0.75, 2.  ])
    >>> lipschitz_envelope(np.array([0.0, 0.5]), 0.0, 3)
    array([0.5, inf])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(distances > 0, distances.astype(np.float64) / radius, 0.0)
    envelope: NDArray[np.float64] = relative + 1 / np.sqrt(1 + np.asarray(counts))
    return envelope


def median_distance(distances: NDArray[np.floating], error: float = 0.0) -> float:
    """Return the median of the distances that are proven to be above 0; 0 where there are none.

    >>> median_distance(np.array([[0.0, 1.0, 9.0], [1.0, 0.0, 5.0], [9.0, 5.0, 0.0]]))
    5.0
    """
    upper = np.triu(distances, 1)
    positive = upper[upper > (error if math.isfinite(error) else 0.0)]
    return float(np.median(positive)) if len(positive) else 0.0


def validate_rule(rule: BonusRule) -> BonusRule:
    """Return a rule, or raise InputError."""
    if rule not in get_args(BonusRule):
        raise InputError(
            f"is {rule!r} and must be counts or nearest", caller=CALLER, argument="rule"
        )
    return rule


def validate_nonnegative(name: str, value: Any) -> float:
    """Return a finite number of at least 0, or raise InputError."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise InputError(
            f"is {value!r} and must be a number, at least 0", caller=CALLER, argument=name
        )
    return number

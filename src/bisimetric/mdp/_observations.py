"""Observations of states, compared by a ground distance that is part of every distance."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric._memory import require_memory
from bisimetric._rounding import UNIT
from bisimetric.errors import InputError
from bisimetric.mdp._labels import number_by_appearance
from bisimetric.mdp._validation import as_float_array, freeze, validate_state_array

if TYPE_CHECKING:
    from bisimetric.mdp import MDP

VectorMetric = Literal["l2", "l1", "max", "discrete"]
GroundMetric = VectorMetric | Callable[[Any, Any], Any] | ArrayLike

ROW_BLOCK = 256
"""Rows of states for which a function of vectors is evaluated at once."""
NUM_TRIPLES = 100_000
"""Random triples whose triangle inequality is checked."""
RELATIVE_ROUNDING = 1e-12
"""Relative violation of symmetry or of the triangle inequality that counts as rounding."""


class GroundDistance:
    """The ground distance of the states: `ground(s, t)` for arrays of ids that broadcast.

    Attributes:
        observations: (S, k), one vector per state, or None for a matrix.
        metric: "l2", "l1", "max" or "discrete"; a function of vectors; or a matrix (S, S).
        num_states: the number of states.

    >>> ground = GroundDistance(np.array([[0.0, 0.0], [3.0, 4.0]]), "l2", 2)
    >>> float(ground(0, 1)), round(ground.largest, 6), ground.classes.tolist()
    (5.0, 5.0, [0, 1])
    """

    def __init__(
        self, observations: NDArray[np.float64] | None, metric: Any, num_states: int
    ) -> None:
        self.observations, self.metric, self.num_states = observations, metric, num_states

    def __repr__(self) -> str:
        return f"GroundDistance({self.description}, {self.num_states} states)"

    @property
    def description(self) -> str:
        """The name of the metric: that of a norm, "function" or "matrix"."""
        if isinstance(self.metric, str):
            return self.metric
        return "function" if callable(self.metric) else "matrix"

    def __call__(self, s: Any, t: Any) -> NDArray[np.float64]:
        """Return the ground distances of pairs of states.

        Args:
            s: ids, an array or an integer.
            t: ids that broadcast with them.

        Returns:
            The distances, at least 0, in the broadcast shape.
        """
        if self.observations is None or not isinstance(self.metric, str):
            return np.asarray(self.matrix[s, t])
        x = self.observations.T
        if self.metric == "discrete":
            return np.asarray(self.classes[s] != self.classes[t], np.float64)
        total: Any = 0.0
        for column in x:
            part = np.abs(column[s] - column[t])
            if self.metric == "l1":
                total = total + part
            else:
                # Unlike the root of a sum of squares, hypot neither overflows nor underflows.
                total = np.hypot(total, part) if self.metric == "l2" else np.maximum(total, part)
        return np.asarray(total, np.float64)

    @functools.cached_property
    def matrix(self) -> NDArray[np.float64]:
        """(S, S), read-only, the ground distances of all pairs."""
        states = np.arange(self.num_states)
        if not isinstance(self.metric, str) and not callable(self.metric):
            return np.asarray(self.metric)
        require_memory(
            f"MDP: the ground distances of {self.num_states:,} states need",
            8.0 * self.num_states**2,
            "use fewer states, such as bisimetric.relation's classes",
        )
        out = np.empty((self.num_states, self.num_states))
        for start in range(0, self.num_states, ROW_BLOCK):
            rows = states[start : start + ROW_BLOCK]
            out[rows] = (
                self._evaluate(rows) if callable(self.metric) else self(rows[:, None], states)
            )
        return freeze(_validate_matrix(out) if callable(self.metric) else out)

    def _evaluate(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Evaluate a function of vectors between some states and all."""
        x = self.observations
        if x is None:
            raise InputError("MDP: ground_distance is a function of observations; pass them too.")
        block = np.asarray(self.metric(x[rows, None], x[None]), np.float64)
        if block.shape != (len(rows), len(x)):
            raise InputError(
                f"MDP: ground_distance(x, y) returns shape {block.shape} for x of shape "
                f"{(len(rows), 1, x.shape[1])} and y of shape {(1, *x.shape)}, and must return "
                f"{(len(rows), len(x))}."
            )
        return block

    @functools.cached_property
    def largest(self) -> float:
        """A bound on the largest ground distance."""
        if self.observations is None or not isinstance(self.metric, str):
            return float(self.matrix.max())
        if self.metric == "discrete":
            return float(self.classes.any())
        with np.errstate(over="ignore"):
            ranges = np.ptp(self.observations, axis=0)
            if self.metric == "max" or len(ranges) == 1:
                return float(ranges.max())
            norm = ranges.sum() if self.metric == "l1" else np.hypot.reduce(ranges)
            return float(norm * (1 + 4 * len(ranges) * UNIT))

    @property
    def rounding_error(self) -> float:
        """A bound on the rounding of a ground distance; 0 where its floats define it.

        A norm of k differences has one rounding per difference and per sum; `np.hypot` is off by at
        most 2 units.
        """
        if self.observations is None or self.description not in ("l1", "l2", "max"):
            return 0.0
        return float((3 * self.observations.shape[1] + 1) * UNIT * self.largest)

    @functools.cached_property
    def classes(self) -> NDArray[np.int64]:
        """(S,), equal for states at ground distance 0, numbered by first appearance."""
        if self.observations is not None and isinstance(self.metric, str):
            # -0.0 + 0.0 is 0.0.
            columns = self.observations.T + 0.0
            return freeze(number_by_appearance(*columns))
        return freeze(number_by_appearance((self.matrix == 0).argmax(axis=1)))

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of the observations and the metric."""
        digest = hashlib.sha256(self.description.encode())
        array = self.observations if isinstance(self.metric, str) else self.matrix
        digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def select(self, states: NDArray[Any]) -> tuple[NDArray[np.float64] | None, Any]:
        """Return the arguments `observations` and `ground_distance` of an MDP of some states."""
        vectors = None if self.observations is None else self.observations[states]
        if isinstance(self.metric, str) or callable(self.metric):
            return vectors, self.metric
        return vectors, self.matrix[np.ix_(states, states)]

    def encode(self) -> str | NDArray[np.float64]:
        """Return the metric for a file: its name, or the matrix."""
        return self.metric if isinstance(self.metric, str) else self.matrix


def validate_observations(
    observations: Any, metric: Any, num_states: int
) -> tuple[NDArray[np.float64] | None, GroundDistance | None]:
    """Return the vectors (S, k) and the ground distance of the arguments of an MDP."""
    if isinstance(metric, GroundDistance):
        if metric.observations is observations and metric.num_states == num_states:
            return observations, metric
        metric = metric.metric
        if observations is None and (isinstance(metric, str) or callable(metric)):
            return None, None
    vectors = None
    if observations is not None:
        array = as_float_array("observations", observations)
        array = array[:, None] if array.ndim == 1 else array
        vectors = validate_state_array("observations", array, num_states)
        if vectors is None or vectors.shape[1] == 0:
            raise InputError("MDP: observations are empty and must be (S, k) with k of at least 1.")
    if metric is None:
        return vectors, None if vectors is None else GroundDistance(vectors, "l2", num_states)
    if isinstance(metric, str):
        metric = "l2" if metric == "euclidean" else metric
        if metric not in get_args(VectorMetric):
            raise InputError(
                f"MDP: ground_distance is {metric!r} and must be 'l2' (or 'euclidean'), 'l1', "
                "'max', 'discrete', a function of vectors, or a matrix (S, S)."
            )
    elif not callable(metric):
        matrix = np.array(as_float_array("ground_distance", metric))
        if matrix.shape != (num_states, num_states):
            raise InputError(
                f"MDP: ground_distance has shape {matrix.shape} and must be "
                f"({num_states}, {num_states}), a name or a function."
            )
        return vectors, GroundDistance(vectors, freeze(_validate_matrix(matrix)), num_states)
    if vectors is None:
        raise InputError(
            "MDP: ground_distance compares observations, and there are none; pass observations, "
            "or a matrix (S, S)."
        )
    return vectors, GroundDistance(vectors, metric, num_states)


def _validate_matrix(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a ground distance made exactly symmetric, with equal rows at distance 0."""
    low, high = float(matrix.min()), float(matrix.max())
    if not (np.isfinite(low) and np.isfinite(high) and low >= 0):
        raise InputError(
            f"MDP: ground distances go from {low:g} to {high:g} and must be finite and >= 0."
        )
    if matrix.diagonal().any():
        raise InputError(
            f"MDP: the ground distance of a state and itself is {matrix.diagonal().max():g} and "
            "must be 0."
        )
    asymmetry = float(np.abs(matrix - matrix.T).max())
    if asymmetry > RELATIVE_ROUNDING * high:
        raise InputError(
            f"MDP: ground distances of (s, t) and (t, s) differ by {asymmetry:.2g} and must be "
            "equal."
        )
    matrix = np.maximum(matrix, matrix.T)
    first = (matrix == 0).argmax(axis=1)
    merged = matrix[np.ix_(first, first)]
    if float(np.abs(merged - matrix).max()) > RELATIVE_ROUNDING * high:
        raise InputError(
            "MDP: the ground distance violates the triangle inequality: states at distance 0 have "
            "different distances from a third one; pass a pseudometric."
        )
    s, t, u = np.random.default_rng(0).integers(len(merged), size=(3, NUM_TRIPLES))
    excess = float((merged[s, u] - merged[s, t] - merged[t, u]).max())
    if excess > RELATIVE_ROUNDING * high:
        raise InputError(
            f"MDP: the ground distance violates the triangle inequality by {excess:.2g}; pass a "
            "pseudometric."
        )
    return merged


def merge_observations(
    mdps: Sequence[MDP],
) -> tuple[NDArray[np.float64] | None, GroundMetric | None]:
    """Return `observations` and `ground_distance` of a disjoint union.

    Raises:
        InputError: the MDPs do not have vectors of one size with one ground distance.
    """
    grounds = [mdp.ground_distance for mdp in mdps]
    if all(ground is None for ground in grounds):
        return None, None
    vectors = [ground.observations for ground in grounds if ground is not None]
    metrics = [ground.metric for ground in grounds if ground is not None]
    comparable = len(metrics) == len(mdps) and all(
        isinstance(metric, str) or callable(metric) for metric in metrics
    )
    found = [each for each in vectors if each is not None]
    if not comparable or any(metric != metrics[0] for metric in metrics):
        raise InputError(
            "MDP: states of two MDPs are compared by their observations, and these have different "
            "ground distances, a matrix, or none; give both observations and one ground_distance."
        )
    if len({each.shape[1] for each in found}) > 1:
        sizes = [each.shape[1] for each in found]
        raise InputError(f"MDP: observations of two MDPs have {sizes} numbers; give equally many.")
    return np.concatenate(found), metrics[0]


def reject_observations(caller: str, mdp: MDP) -> None:
    """Raise InputError if the MDP has observations, which a caller would drop.

    Args:
        caller: begins the message.
        mdp: the MDP.
    """
    if mdp.ground_distance is not None:
        raise InputError(
            f"{caller}: the observations of the states would be lost; pass "
            "mdp.replace(observations=None, ground_distance=None)."
        )

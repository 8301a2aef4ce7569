"""Coordinates whose distances follow d: for pictures, and as features of states."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric._rounding import TINY, UNIT
from bisimetric.distance import Distance
from bisimetric.errors import InputError, require_integer
from bisimetric.mdp import MDP
from bisimetric.uses.certificates import ROUNDING_SLACK, validate_state_distances
from bisimetric.uses.mds import (
    NEGLIGIBLE,
    classical_mds,
    fix_signs,
    lipschitz_constant,
    measure_distortion,
    rotate_to_principal_axes,
    smacof,
)

CALLER = "uses.embed"

EmbeddingMethod = Literal["classical", "metric"]


@dataclasses.dataclass(frozen=True, eq=False)
class Embedding:
    """States as points x_s, and how far their distances are from d.

    Attributes:
        coordinates: (S, k), around 0, the widest axis first; on each axis the state that is
            farthest from 0 is positive. NaN for ids of which a table from data says nothing.
        method: "classical" or "metric".
        stress: stress-1, sqrt(sum (d - |x_s - x_t|)^2 / sum d^2): 0 where all distances are kept, 1
            where all points lie on one spot.
        stretch: the largest |x_s - x_t| / d(s, t).
        shrink: the largest d(s, t) / |x_s - x_t|; infinite where states that differ lie on one
            spot.
        mean_gap: the mean |d(s, t) - |x_s - x_t|| over pairs of two states.
        largest_gap: the largest.
        negative: how far d is from Euclidean: the share of the negative eigenvalues of the centred
            squares, by size. 0 where points in some space have exactly these distances.
        eigenvalues: (k,), the leading ones, those below 0 included.
        rank: how many axes are used; on the others all coordinates are 0.
        error: of d, as it is proven; infinite where it is not.
        mdp: whose states these are, or None.
        made: rounds, seconds, and whether `negative` is exact or estimated.
    """

    coordinates: NDArray[np.float64]
    method: EmbeddingMethod
    stress: float
    expansion: float
    contraction: float
    mean_deviation: float
    max_deviation: float
    negative_fraction: float
    eigenvalues: NDArray[np.float64]
    rank: int
    error: float = math.inf
    mdp: MDP | None = None
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)

    def value_bound(self, s: ArrayLike, t: ArrayLike) -> Any:
        """How far values of states can differ, proven by their coordinates alone.

        |V(s) - V(t)| <= d(s, t) + error <= min(shrink * |x_s - x_t|, |x_s - x_t| + largest_gap)
        + error, with V = V^pi for an on-policy distance and V* otherwise. So V is Lipschitz in the
        coordinates, with the constant `shrink`, where d is exact. What |x_s - x_t| may have lost in
        rounding when `shrink` and `largest_gap` were measured is added to it. Ids broadcast.

        >>> from bisimetric import exact, worlds
        >>> found = embed(exact.on_policy(worlds.load("mirrored-rooms-policy", discount=0.9)))
        >>> round(float(found.bound(0, 30)), 4)
        0.9
        """
        if math.isinf(self.error):
            raise InputError(
                "Embedding: bound is a proof, and of this distance nothing is proven; embed one "
                "that `exact` made."
            )
        first, second = self._select_points(s), self._select_points(t)
        # Divided by the widest coordinate, so that no square overflows or vanishes.
        widest = float(np.nanmax(np.abs(self.coordinates), initial=0.0))
        scale, dimensions = widest or 1.0, self.coordinates.shape[1]
        apart = scale * np.linalg.norm((first - second) / scale, axis=-1)
        unsure = apart + (4 * dimensions + 16) * UNIT * (widest + self.max_deviation)
        with np.errstate(invalid="ignore"):
            near = np.where(apart > 0, self.contraction * unsure, np.inf)
        least = np.minimum(near, unsure + self.max_deviation)
        return np.where(np.equal(s, t), 0.0, (1 + ROUNDING_SLACK) * (least + self.error) + TINY)

    def _select_points(self, states: ArrayLike) -> NDArray[np.float64]:
        """The coordinates of states, given by id."""
        ids, size = np.asarray(states), len(self.coordinates)
        if ids.dtype.kind not in "iu" or (ids < 0).any() or (ids >= size).any():
            raise InputError(f"Embedding: states are ids from 0 to {size - 1}, and not {states!r}.")
        return np.asarray(self.coordinates[ids])

    def lipschitz_constant(self, values: ArrayLike) -> float:
        """The largest |v_s - v_t| / |x_s - x_t| of values (S,): what `bound` promises of V*."""
        told = np.asarray(values, np.float64)
        if told.shape != self.coordinates.shape[:1]:
            raise InputError(
                f"Embedding: values have shape {told.shape} and must be "
                f"({len(self.coordinates)},), one a state."
            )
        known = np.isfinite(self.coordinates).all(axis=1)
        return lipschitz_constant(told[known], self.coordinates[known])

    def __repr__(self) -> str:
        states, dimensions = self.coordinates.shape
        return (
            f"Embedding({self.method}, {states:,} states, {dimensions} dimensions, "
            f"stress {self.stress:.3g})"
        )


def embed(
    d: Any,
    dimensions: int = 2,
    *,
    method: EmbeddingMethod = "classical",
    seed: int = 0,
    max_iterations: int = 300,
) -> Embedding:
    """Points x_s (S, dimensions) with |x_s - x_t| about d(s, t), and how well that went.

    "classical" takes the leading eigenvectors of B = -J D^2 J / 2, times the roots of their
    eigenvalues (Torgerson 1952): exact where d is Euclidean and there are dimensions enough.
    "metric" moves those points by SMACOF until sum (d - |x_s - x_t|)^2 falls no more (de Leeuw
    1977), which is a local minimum. Needs no second table; axes with equal eigenvalues may come
    turned against each other on another machine.

    Args:
        d: a `Distance`, a learned distance with listed states, or an array (S, S).
        dimensions: at least 1; those beyond the rank of d are 0.
        key: of the first vector of the iteration, and of what is estimated or jittered.
        steps: of "metric", the most rounds.

    >>> line = np.abs(np.subtract.outer([0.0, 1.0, 4.0], [0.0, 1.0, 4.0]))
    >>> found = embed(line, 2)
    >>> found.coordinates.round(3).tolist(), found.rank
    ([[-1.667, 0.0], [-0.667, 0.0], [2.333, 0.0]], 1)
    """
    started = time.perf_counter()
    number = require_integer(CALLER, "dimensions", dimensions, 1)
    seed, rounds = (
        require_integer(CALLER, "key", seed),
        require_integer(CALLER, "steps", max_iterations),
    )
    if method not in get_args(EmbeddingMethod):
        raise InputError(f"{CALLER}: method is {method!r} and must be classical or metric.")
    table = validate_state_distances(CALLER, d)
    lived = _visited_states(d, len(table))
    if not lived.all():
        table = table[np.ix_(lived, lived)]
    spectrum = classical_mds(table, number, seed)
    points = spectrum.points
    made: dict[str, Any] = {"method": method, "key": seed}
    if method == "metric":
        points, made["rounds"] = smacof(table, points, rounds, seed)
        points = rotate_to_principal_axes(points)
    points = fix_signs(points)
    made["negative"] = "exact" if spectrum.exact else "estimate"
    found = measure_distortion(table, points)
    widths = np.abs(points).max(axis=0)
    coordinates = np.full((len(lived), number), np.nan)
    coordinates[lived] = points
    made["seconds"] = time.perf_counter() - started
    return Embedding(
        coordinates,
        method,
        *found,
        spectrum.negative_fraction,
        spectrum.eigenvalues,
        int((widths > NEGLIGIBLE * float(table.max())).sum()),
        d.error if isinstance(d, Distance) else math.inf,
        getattr(d, "mdp", None),
        made,
    )


def _visited_states(d: Any, num_states: int) -> NDArray[np.bool_]:
    """The states of which something is known."""
    coverage = d.coverage if isinstance(d, Distance) else None
    return np.ones(num_states, np.bool_) if coverage is None else coverage.visited

"""Embed states as points whose Euclidean distances approximate d."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric._rounding import TINY, UNIT
from bisimetric.distance import Distance, StateDistance
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
    """States as points x_s, and how well their distances approximate d.

    Attributes:
        coordinates: (S, k), around 0, the widest axis first; on each axis the state that is
            farthest from 0 is positive. NaN for ids that the data of d never visited.
        method: "classical" or "metric".
        stress: stress-1, sqrt(sum (d - |x_s - x_t|)^2 / sum d^2): 0 where all distances are
            preserved, 1 where all points coincide.
        expansion: the largest |x_s - x_t| / d(s, t).
        contraction: the largest d(s, t) / |x_s - x_t|; infinite where different states coincide.
        mean_deviation: the mean |d(s, t) - |x_s - x_t|| over pairs of different states.
        max_deviation: the largest |d(s, t) - |x_s - x_t||.
        negative_fraction: how far d is from Euclidean: the sum of the negative eigenvalues of the
            centred squares over the sum of all, in absolute value. 0 for Euclidean distances.
        eigenvalues: (k,), the leading ones, including negative ones.
        rank: the number of axes that are used; on the others all coordinates are 0.
        error: the proven error of d; infinite where nothing is proven.
        mdp: the MDP of the states, or None.
        metadata: rounds, seconds, and whether `negative_fraction` is exact or an estimate.

    >>> embedding = embed([[0, 3, 4], [3, 0, 5], [4, 5, 0]])  # a right triangle is Euclidean
    >>> embedding.coordinates.shape, embedding.rank, round(embedding.stress, 6)
    ((3, 2), 2, 0.0)
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
        """Bound the difference in value between states by their coordinates alone.

            |V(s) - V(t)| <= min(contraction * |x_s - x_t|, |x_s - x_t| + max_deviation) + error

        with V = V^pi for an on-policy distance and V* otherwise. So V is Lipschitz in the
        coordinates, with the constant `contraction`, where d is exact. The rounding of |x_s - x_t|
        is included.

        Args:
            s: ids of states; they broadcast with t.
            t: ids of states.

        Returns:
            The bound for each pair.

        Raises:
            InputError: where d has no proven error, or an id is out of range.

        >>> from bisimetric import exact, worlds
        >>> embedding = embed(exact.on_policy(worlds.load("mirrored-rooms-policy", discount=0.9)))
        >>> round(float(embedding.value_bound(0, 30)), 4)
        0.9
        """
        if math.isinf(self.error):
            raise InputError(
                "Embedding: value_bound requires a distance with a proven error; embed one from "
                "bisimetric.exact."
            )
        first, second = self._select_points(s), self._select_points(t)
        # Divided by the largest coordinate, so that no square overflows or underflows.
        widest = float(np.nanmax(np.abs(self.coordinates), initial=0.0))
        scale, dimensions = widest or 1.0, self.coordinates.shape[1]
        euclidean = scale * np.linalg.norm((first - second) / scale, axis=-1)
        upper = euclidean + (4 * dimensions + 16) * UNIT * (widest + self.max_deviation)
        with np.errstate(invalid="ignore"):
            by_contraction = np.where(euclidean > 0, self.contraction * upper, np.inf)
        bound = np.minimum(by_contraction, upper + self.max_deviation)
        return np.where(np.equal(s, t), 0.0, (1 + ROUNDING_SLACK) * (bound + self.error) + TINY)

    def _select_points(self, states: ArrayLike) -> NDArray[np.float64]:
        """Return the coordinates of states, given by id."""
        ids, size = np.asarray(states), len(self.coordinates)
        if ids.dtype.kind not in "iu" or (ids < 0).any() or (ids >= size).any():
            raise InputError(f"Embedding: states are ids from 0 to {size - 1}, and not {states!r}.")
        return np.asarray(self.coordinates[ids])

    def lipschitz_constant(self, values: ArrayLike) -> float:
        """Return the largest |v_s - v_t| / |x_s - x_t|, which `value_bound` bounds for V*.

        Args:
            values: (S,), such as V*.

        Returns:
            The Lipschitz constant; infinite where coinciding states differ in value.

        Raises:
            InputError: where the shape is wrong.
        """
        array = np.asarray(values, np.float64)
        if array.shape != self.coordinates.shape[:1]:
            raise InputError(
                f"Embedding: values have shape {array.shape} and must be "
                f"({len(self.coordinates)},), one per state."
            )
        visited = np.isfinite(self.coordinates).all(axis=1)
        return lipschitz_constant(array[visited], self.coordinates[visited])

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
    """Embed states as points x_s with |x_s - x_t| close to d(s, t), by multidimensional scaling.

    "classical" MDS takes the leading eigenvectors of B = -J D^2 J / 2, times the roots of their
    eigenvalues (Torgerson 1952): exact where d is Euclidean and there are enough dimensions.
    "metric" MDS moves those points by SMACOF to a local minimum of sum (d - |x_s - x_t|)^2 (de
    Leeuw 1977). Neither copies the matrix. Axes with equal eigenvalues may be rotated against each
    other on another machine.

    Args:
        d: a `Distance`, a `LearnedDistance` of listed states, or a matrix (S, S).
        dimensions: at least 1; those beyond the rank of d are 0.
        method: "classical" or "metric".
        seed: of the start vector of the eigensolver, of the estimate of `negative_fraction`, and of
            the initial noise of SMACOF.
        max_iterations: of SMACOF.

    Returns:
        An `Embedding`.

    Raises:
        InputError: where d is no distance matrix with zeros on the diagonal, an option is out of
            range, or the eigenvalues are too close to be separated.

    >>> line = np.abs(np.subtract.outer([0.0, 1.0, 4.0], [0.0, 1.0, 4.0]))
    >>> embedding = embed(line, 2)
    >>> embedding.coordinates.round(3).tolist(), embedding.rank
    ([[-1.667, 0.0], [-0.667, 0.0], [2.333, 0.0]], 1)
    """
    start_time = time.perf_counter()
    num_axes = require_integer(CALLER, "dimensions", dimensions, 1)
    seed, num_rounds = (
        require_integer(CALLER, "seed", seed),
        require_integer(CALLER, "max_iterations", max_iterations),
    )
    if method not in get_args(EmbeddingMethod):
        raise InputError(
            f"is {method!r} and must be classical or metric", caller=CALLER, argument="method"
        )
    distances = validate_state_distances(CALLER, d)
    visited = _coverage_mask(d, len(distances))
    if not visited.all():
        distances = distances[np.ix_(visited, visited)]
    spectrum = classical_mds(distances, num_axes, seed)
    points = spectrum.points
    metadata: dict[str, Any] = {"method": method, "seed": seed}
    if method == "metric":
        points, metadata["rounds"] = smacof(distances, points, num_rounds, seed)
        points = rotate_to_principal_axes(points)
    points = fix_signs(points)
    metadata["negative"] = "exact" if spectrum.exact else "estimate"
    distortion = measure_distortion(distances, points)
    widths = np.abs(points).max(axis=0)
    coordinates = np.full((len(visited), num_axes), np.nan)
    coordinates[visited] = points
    metadata["seconds"] = time.perf_counter() - start_time
    return Embedding(
        coordinates,
        method,
        *distortion,
        spectrum.negative_fraction,
        spectrum.eigenvalues,
        int((widths > NEGLIGIBLE * float(distances.max())).sum()),
        d.error if isinstance(d, Distance) else math.inf,
        d.mdp if isinstance(d, StateDistance) else None,
        metadata,
    )


def _coverage_mask(d: Any, num_states: int) -> NDArray[np.bool_]:
    """Return the states that the data of d visited, (S,)."""
    coverage = d.coverage if isinstance(d, Distance) else None
    return np.ones(num_states, np.bool_) if coverage is None else coverage.visited

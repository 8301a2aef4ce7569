"""Scores of a learned distance against a reference, over all pairs of states that differ."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Matrix = NDArray[np.float64]

TIE = 1e-6
"""Reference distances that differ by less than this, in units of the largest, are ties."""
VALUE_TOL = 0.01
"""Violations of the value bound below this, in units of the largest difference, do not count."""


class ReferenceScores(NamedTuple):
    """Scores against one reference.

    Attributes:
        rank_correlation: Spearman's, over pairs; 0 for a constant distance.
        error: root of the sum of squared errors over that of squared reference distances.
        scaled_error: the same after multiplication by the best factor c >= 0; at most 1.
        neighbours: share of states whose nearest other state is one by the reference, too.
    """

    rank_correlation: float
    error: float
    scaled_error: float
    neighbours: float


def score(learned: Matrix, reference: Matrix) -> ReferenceScores:
    """Score a learned distance against a reference.

    Args:
        learned: (n, n).
        reference: (n, n).

    Returns:
        The scores; not a number for a learned distance that is not finite.

    >>> exact = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]])
    >>> score(2 * exact, exact)
    ReferenceScores(rank_correlation=1.0, error=1.0, scaled_error=0.0, neighbours=1.0)
    """
    if not np.isfinite(learned).all():
        return ReferenceScores(*(float("nan"),) * 4)
    upper = np.triu_indices(len(reference), 1)
    x, y = learned[upper], reference[upper]
    constant = np.ptp(x) == 0 or np.ptp(y) == 0
    correlation = 0.0 if constant else float(np.corrcoef(_rank(x), _rank(y))[0, 1])
    norm = np.linalg.norm(y)
    factor = max(float(x @ y / (x @ x)), 0.0) if x.any() else 0.0
    return ReferenceScores(
        correlation,
        float(np.linalg.norm(x - y) / norm),
        float(np.linalg.norm(factor * x - y) / norm),
        compute_neighbour_agreement(learned, reference),
    )


def _rank(values: Matrix) -> Matrix:
    return np.asarray(stats.rankdata(values), np.float64)


def compute_neighbour_agreement(learned: Matrix, reference: Matrix) -> float:
    """Return the share of states whose nearest other state is nearest in the reference, too.

    Ties of the reference count as agreement.

    >>> exact = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]])
    >>> float(compute_neighbour_agreement(-exact, exact))
    0.0
    """
    others = np.where(np.eye(len(reference), dtype=bool), np.inf, 0.0)
    nearest = np.argmin(learned + others, axis=1)
    least = np.min(reference + others, axis=1)
    found = reference[np.arange(len(reference)), nearest]
    return float(np.mean(found <= least + TIE * reference.max()))


def compute_value_violations(learned: Matrix, values: NDArray[np.float64]) -> float:
    """Return the share of pairs with |V(s) - V(t)| > d(s, t).

    Args:
        learned: (n, n).
        values: (n,).

    >>> compute_value_violations(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0.0, 2.0]))
    1.0
    """
    if not np.isfinite(learned).all():
        return float("nan")
    upper = np.triu_indices(len(values), 1)
    gaps = np.abs(values[:, None] - values)[upper]
    return float(np.mean(gaps > learned[upper] + VALUE_TOL * gaps.max()))


def compute_noise_ratio(learned: Matrix) -> float:
    """Return the mean distance of two renderings of a state over that of different states.

    Args:
        learned: (n, n); the diagonal holds distances of two renderings of one state.

    >>> compute_noise_ratio(np.array([[0.5, 2.0], [2.0, 0.5]]))
    0.25
    """
    if not np.isfinite(learned).all():
        return float("nan")
    mean = learned[np.triu_indices(len(learned), 1)].mean()
    return float(np.diag(learned).mean() / mean) if mean > 0 else 0.0

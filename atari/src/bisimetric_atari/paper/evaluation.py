"""Accuracy of metrics on recorded games, against the exact distances of their futures.

Games of another seed than those of the training are held out: the agent sees other starts and
other random actions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError, require_integer
from bisimetric.learned import LearnedDistance
from bisimetric.transitions import Transitions
from bisimetric_atari.paper import exact_returns
from bisimetric_atari.paper.learning import sample_reference

NUM_STATES = 2_000


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """Agreement of distances with exact ones, over all pairs of distinct states.

    Attributes:
        correlation: Pearson's correlation.
        rank_correlation: Spearman's correlation.
        relative_error: the mean absolute error, divided by the mean exact distance.
        self_distance: the largest d(x, x).
    """

    correlation: float
    rank_correlation: float
    relative_error: float
    self_distance: float


def compute_accuracy(distances: NDArray[np.float64], exact: NDArray[np.float64]) -> Accuracy:
    """Compare two matrices of distances.

    Args:
        distances: (n, n).
        exact: (n, n), the reference.

    Returns:
        Correlations and errors.

    >>> exact = np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 2.0], [3.0, 2.0, 0.0]])
    >>> compute_accuracy(exact / 2, exact)
    Accuracy(correlation=1.0, rank_correlation=1.0, relative_error=0.5, self_distance=0.0)
    """
    from scipy.stats import rankdata

    upper = np.triu_indices(len(exact), 1)
    found, reference = distances[upper], exact[upper]
    return Accuracy(
        _correlate(found, reference),
        _correlate(rankdata(found), rankdata(reference)),
        float(np.abs(found - reference).mean() / reference.mean()),
        float(np.abs(np.diagonal(distances)).max()),
    )


def _correlate(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return Pearson's correlation; NaN for a constant."""
    if not (np.ptp(x) and np.ptp(y)):
        return float("nan")
    return round(float(np.corrcoef(x, y)[0, 1]), 12)


def evaluate_metrics(
    metrics: Mapping[str, LearnedDistance],
    data: Transitions,
    *,
    num_states: int = NUM_STATES,
    seed: int = 0,
) -> dict[str, Accuracy]:
    """Compare metrics with the exact distances between sampled states of recorded games.

    Args:
        metrics: metrics of the features of the data, by name; all of one discount.
        data: transitions of the agent in their order.
        num_states: how many states are sampled; all their pairs are compared.
        seed: of that sample.

    Returns:
        By name, the accuracy of each metric, of `features`, the Euclidean distance of the
        features, scaled by least squares, and of `constant`, the median exact distance.

    Raises:
        InputError: if the metrics differ in discount or features, or no future is long enough.
    """
    require_integer("evaluate", "num_states", num_states, 2)
    discounts = sorted({metric.discount for metric in metrics.values()})
    if len(discounts) != 1:
        raise InputError(
            f"evaluate: the metrics have the discounts {discounts}; compare metrics of one."
        )
    rows, exact = sample_reference(data, discounts[0], num_samples=num_states, seed=seed)
    if exact is None:
        horizon = exact_returns.compute_horizon(discounts[0])
        raise InputError(
            "evaluate: exact distances need deterministic agents and games, and futures recorded "
            f"for {horizon} steps; record longer ones with fewer --num-envs or more --steps."
        )
    x = data.observations[rows]
    for name, metric in metrics.items():
        if len(metric.scaling.shift) != x.shape[1]:
            raise InputError(
                f"evaluate: {name} is for {len(metric.scaling.shift)} features and the data have "
                f"{x.shape[1]}; name the agent that it was learned with."
            )
    found = {
        name: compute_accuracy(np.asarray(metric.table(x), np.float64), exact)
        for name, metric in metrics.items()
    }
    features = _compute_feature_distances(x)
    features *= (features * exact).sum() / max((features**2).sum(), np.finfo(np.float64).tiny)
    constant = np.full_like(exact, np.median(exact[np.triu_indices(len(exact), 1)]))
    np.fill_diagonal(constant, 0.0)
    found["features"] = compute_accuracy(features, exact)
    found["constant"] = compute_accuracy(constant, exact)
    return found


def _compute_feature_distances(x: NDArray[np.float16]) -> NDArray[np.float64]:
    from scipy.spatial.distance import cdist

    rows = x.astype(np.float64)
    return np.asarray(cdist(rows, rows))


def format_table(found: Mapping[str, Accuracy]) -> list[str]:
    """Return the lines of a table, one row per metric.

    >>> print(*format_table({"mine": Accuracy(0.987, 0.98, 0.0172, 0.0)}), sep="\\n")
            correlation  rank correlation  relative error  d(x, x)
      mine        0.987             0.980           0.017        0
    """
    header = ("correlation", "rank correlation", "relative error", "d(x, x)")
    width = max(map(len, found))
    lines = ["  " + " " * width + "".join(f"  {name}" for name in header)]
    for name, each in found.items():
        lines.append(f"  {name:<{width}}" + _join_cells(header, each))
    return lines


def _join_cells(header: Sequence[str], accuracy: Accuracy) -> str:
    numbers = [accuracy.correlation, accuracy.rank_correlation, accuracy.relative_error]
    cells = ["-" if np.isnan(number) else f"{number:.3f}" for number in numbers]
    cells.append(f"{accuracy.self_distance:.3g}")
    return "".join(f"  {cell:>{len(name)}}" for cell, name in zip(cells, header, strict=True))

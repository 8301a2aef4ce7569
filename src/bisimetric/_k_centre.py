"""Greedy k-centre: farthest-first traversal (Gonzalez 1985)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True, eq=False)
class KCentreCover:
    """Centres, and how near they are to all points.

    Attributes:
        centres: (k,), in the order of selection.
        labels: (n,), the index of the nearest centre, the first of several.
        distances: (n,), to that centre; infinite where no centre is reachable.
        radii: (k,), the largest of these distances after one centre, two, and so on.
    """

    centres: NDArray[np.int64]
    labels: NDArray[np.int64]
    distances: NDArray[np.float64]
    radii: NDArray[np.float64]

    @property
    def radius(self) -> float:
        """The largest distance from a point to its nearest centre."""
        return float(self.radii[-1])


def k_centre(
    row: Callable[[int], NDArray[np.floating]], num_centres: int, first: int = 0
) -> KCentreCover:
    """Select up to `num_centres` centres, each the farthest point from those before it.

    In a metric the radius is at most twice the optimum for as many centres, and no polynomial
    algorithm guarantees less unless P = NP (Gonzalez 1985). Infinite distances are allowed: an
    unreachable point is farthest, so that every component gets a centre before any gets two. Stops
    early at radius 0.

    Args:
        row: `row(i)` (n,) are the distances from point i to all points; one row is held at a time.
        num_centres: at least 1.
        first: the first centre.

    >>> points = np.array([0.0, 1.0, 10.0, 11.0])
    >>> cover = k_centre(lambda i: np.abs(points[i] - points), 2)
    >>> cover.centres.tolist(), cover.labels.tolist(), cover.radii.tolist()
    ([0, 3], [0, 0, 1, 1], [11.0, 1.0])
    """
    distances = np.array(row(first), np.float64)
    # A network need not output 0 for a centre and itself.
    distances[first] = 0.0
    labels = np.zeros(len(distances), np.int64)
    centres, radii = [first], [float(distances.max())]
    while len(centres) < num_centres and radii[-1] > 0:
        centre = int(distances.argmax())
        to_centre = np.asarray(row(centre))
        nearer = to_centre < distances
        nearer[centre] = True
        distances[nearer] = to_centre[nearer]
        distances[centre] = 0.0
        labels[nearer] = len(centres)
        centres.append(centre)
        radii.append(float(distances.max()))
    return KCentreCover(np.array(centres), labels, distances, np.array(radii))

"""Few points that are near to all: greedy k-centre (Gonzalez 1985)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True, eq=False)
class KCentreCover:
    """Points that are centres, and how near they are to all points.

    Attributes:
        centres: (k,), in the order in which they were chosen.
        assigned: (n,), which of the centres is the nearest, the first one of several.
        distances: (n,), how far that is; infinite where no centre can be reached.
        radii: (k,), the largest of these distances after one centre, two, and so on.
    """

    centres: NDArray[np.int64]
    labels: NDArray[np.int64]
    distances: NDArray[np.float64]
    radii: NDArray[np.float64]

    @property
    def radius(self) -> float:
        """Every point has a centre that is at most so far away."""
        return float(self.radii[-1])


def k_centre(
    row: Callable[[int], NDArray[np.floating]], num_centres: int, first: int = 0
) -> KCentreCover:
    """Up to `number` centres, each the farthest point from those before it.

    In a metric the radius is at most twice the least that so many centres can have, and no quick
    way is sure of less unless P = NP (Gonzalez 1985). Infinite distances are allowed: what cannot
    be reached is farthest, so that every part gets a centre before a part gets two. Ends early
    where the radius is 0.

    Args:
        row: `row(i)` (n,) are the distances from point i to all points; one row is kept at a time.
        number: at least 1.
        first: the first centre.

    >>> points = np.array([0.0, 1.0, 10.0, 11.0])
    >>> cover = k_centre(lambda i: np.abs(points[i] - points), 2)
    >>> cover.centres.tolist(), cover.assigned.tolist(), cover.radii.tolist()
    ([0, 3], [0, 0, 1, 1], [11.0, 1.0])
    """
    distances = np.array(row(first), np.float64)
    # A centre is its own nearest, whatever a network says of it.
    distances[first] = 0.0
    assigned = np.zeros(len(distances), np.int64)
    centres, radii = [first], [float(distances.max())]
    while len(centres) < num_centres and radii[-1] > 0:
        centre = int(distances.argmax())
        there = np.asarray(row(centre))
        nearer = there < distances
        nearer[centre] = True
        distances[nearer] = there[nearer]
        distances[centre] = 0.0
        assigned[nearer] = len(centres)
        centres.append(centre)
        radii.append(float(distances.max()))
    return KCentreCover(np.array(centres), assigned, distances, np.array(radii))

"""How far points are from the distances that they should have, and SMACOF, which moves them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from bisimetric.progress import show_progress
from bisimetric.uses.embedding.spectra import NEGLIGIBLE, row_blocks

MIN_RELATIVE_DECREASE = 1e-6
"""A round that lowers the stress by less than this share of it is the last."""
JITTER = 1e-3
"""How far points start from 0 along axes that classical scaling left empty, of the largest d."""


class Distortion(NamedTuple):
    """What became of the distances; see `Embedding`."""

    stress: float
    expansion: float
    contraction: float
    mean_deviation: float
    max_deviation: float


def measure_distortion(distances: NDArray[np.floating], points: NDArray[np.float64]) -> Distortion:
    """Compares table (n, n) with the distances of points (n, k), a block of rows at a time."""
    scale = float(distances.max()) or 1.0
    missed = whole = gaps = largest = stretch = shrink = 0.0
    for rows in row_blocks(distances):
        d = np.divide(distances[rows], scale, dtype=np.float64)
        drawn = cdist(points[rows] / scale, points / scale)
        gap = np.abs(d - drawn)
        missed += float((gap * gap).sum())
        whole += float((d * d).sum())
        gaps += float(gap.sum())
        largest = max(largest, float(gap.max()))
        apart = d > 0
        stretch = max(stretch, float(np.divide(drawn, d, out=np.zeros_like(d), where=apart).max()))
        # Points that only rounding keeps apart lie on one spot.
        drawn[drawn <= NEGLIGIBLE] = 0.0
        with np.errstate(divide="ignore"):
            shrink = max(shrink, float(np.divide(d, drawn, out=gap * 0, where=apart).max()))
    pairs = len(distances) * (len(distances) - 1)
    if whole == 0:
        return Distortion(0.0, 1.0, 1.0, gaps / max(pairs, 1) * scale, largest * scale)
    return Distortion(
        math.sqrt(missed / whole), stretch, shrink, gaps / pairs * scale, largest * scale
    )


def lipschitz_constant(values: NDArray[np.float64], points: NDArray[np.float64]) -> float:
    """The largest |v_i - v_j| / |x_i - x_j|; infinite where points on one spot differ in v."""
    scale = float(np.abs(points).max(initial=0.0)) or 1.0
    found = 0.0
    for rows in row_blocks(values):
        rise = np.abs(values[rows, None] - values)
        run = cdist(points[rows], points)
        run[run <= NEGLIGIBLE * scale] = 0.0
        # What differs by rounding only does not differ.
        rise[rise <= NEGLIGIBLE * float(np.ptp(values))] = 0.0
        with np.errstate(divide="ignore"):
            found = max(found, float(np.divide(rise, run, out=run * 0, where=rise > 0).max()))
    return found


def smacof(
    distances: NDArray[np.floating], start: NDArray[np.float64], max_iterations: int, seed: int
) -> tuple[NDArray[np.float64], int]:
    """Points of least stress near `start` (n, k), and the rounds that were made.

    A round is the Guttman transform, x_i <- sum_j (d_ij / |x_i - x_j|) (x_i - x_j) / n. It
    minimises a function that lies nowhere below the stress and touches it at the points, so that
    no round raises the stress (de Leeuw 1977).
    """
    largest = float(distances.max())
    if largest == 0:
        return start, 0
    points = start / largest
    before = _guttman_transform(distances, points, largest)[1]
    if before <= (NEGLIGIBLE * len(distances)) ** 2:
        return start, 0
    empty = ~points.any(axis=0)
    rng = np.random.default_rng(seed)
    points[:, empty] = JITTER * rng.normal(size=(len(points), int(empty.sum())))
    stress, done = math.inf, 0
    with show_progress(max_iterations, "metric scaling") as shown:
        while done < max_iterations:
            moved, missed = _guttman_transform(distances, points, largest)
            if missed >= (1 - MIN_RELATIVE_DECREASE) * stress:
                break
            points, stress, done = moved, missed, done + 1
            shown.set_position(done)
    # The jitter is no gain where the empty axes stay empty.
    return (points * largest, done) if stress <= before else (start, done)


def _guttman_transform(
    distances: NDArray[np.floating], points: NDArray[np.float64], largest: float
) -> tuple[NDArray[np.float64], float]:
    """The Guttman transform of points, and the squares that were missed before it."""
    moved, missed = np.empty_like(points), 0.0
    for rows in row_blocks(distances):
        d = np.divide(distances[rows], largest, dtype=np.float64)
        drawn = cdist(points[rows], points)
        missed += float(np.square(d - drawn).sum())
        ratio = np.divide(d, drawn, out=np.zeros_like(d), where=drawn > 0)
        moved[rows] = ratio.sum(axis=1)[:, None] * points[rows] - ratio @ points
    return moved / len(points), missed


def rotate_to_principal_axes(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points around 0, turned so that the first axis is the widest, and so on."""
    centred = points - points.mean(axis=0)
    shares = centred / (float(np.abs(centred).max()) or 1.0)
    _, axes = np.linalg.eigh(shares.T @ shares)
    return np.asarray(centred @ axes[:, ::-1])


def fix_signs(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points mirrored so that on each axis the farthest one is positive, the first of several.

    >>> signed(np.array([[1.0, 0.0], [-1.0, -3.0], [0.0, 2.0]])).tolist()
    [[1.0, 0.0], [-1.0, 3.0], [0.0, -2.0]]
    """
    far = np.abs(points)
    # Nearly as far counts as well: which one rounding makes the farthest is chance.
    first = np.argmax(far >= (1 - 1e-6) * far.max(axis=0), axis=0)
    mirrored = points[first, np.arange(points.shape[1])] < 0
    return np.where(mirrored, -points, points) + 0.0

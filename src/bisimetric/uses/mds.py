"""Classical scaling: the leading eigenvectors of the centred squares, without a second table.

How far points are from the distances that they should have, and SMACOF, which moves them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from scipy.spatial.distance import cdist

from bisimetric._progress import show_progress
from bisimetric.errors import InputError

BLOCK_ENTRIES = 2**16
"""Entries of a table that are worked on in one go: half a megabyte, which a cache holds."""
MAX_DENSE_STATES = 1_000
"""States up to which all eigenvalues are found; beyond, the leading ones only."""
NEGLIGIBLE = 1e-10
"""An eigenvalue below this share of the largest is rounding, and counts as 0."""
NUM_PROBES, LANCZOS_STEPS = 8, 30
"""Random vectors, and steps from each, by which the sum of the negative ones is estimated."""

MatrixProduct = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Spectrum(NamedTuple):
    """Leading eigenvalues (k,), the points (n, k) they make, and what is known of all the others.

    `negative` is the share of the negative ones, by size; `exact` whether it is no estimate.
    """

    eigenvalues: NDArray[np.float64]
    points: NDArray[np.float64]
    negative_fraction: float
    exact: bool


def row_blocks(array: NDArray[np.floating]) -> list[slice]:
    """Slices of the rows of a table (n, n), or of n points, with about BLOCK entries each."""
    size = max(1, BLOCK_ENTRIES // len(array))
    return [slice(start, start + size) for start in range(0, len(array), size)]


def classical_mds(distances: NDArray[np.floating], dimensions: int, seed: int) -> Spectrum:
    """The `number` largest eigenvalues of B = -J D^2 J / 2, and the points of classical scaling.

    D^2 are the squares, entry by entry, and J = I - 1/n takes the mean away. For Euclidean
    distances B is the matrix of inner products of the points around their centre (Torgerson 1952),
    so that eigenvectors times the roots of their eigenvalues are the points. Where an eigenvalue is
    not positive, or there are fewer than `number`, they are 0.
    """
    largest, size = float(distances.max()), len(distances)
    values, points = np.zeros(dimensions), np.zeros((size, dimensions))
    if largest == 0:
        return Spectrum(values, points, 0.0, True)
    # Worked on as shares of the largest distance, whose square may be no number.
    exact = size <= max(MAX_DENSE_STATES, dimensions + 1)
    if exact:
        found, vectors = _eigh_dense(distances, largest)
        below = found[found < -NEGLIGIBLE * found[0]]
        negative = float(np.abs(below).sum() / np.abs(found).sum())
    else:
        rng = np.random.default_rng(seed)
        times = _centred_operator(distances, largest)
        found, vectors = _eigsh_leading(times, size, dimensions, rng)
        negative = _estimate_negative_fraction(times, _trace(distances, largest), size, rng)
    found, vectors = found[:dimensions], vectors[:, :dimensions]
    used = np.flatnonzero(found > NEGLIGIBLE * found[0])
    points[:, used] = vectors[:, used] * np.sqrt(found[used]) * largest
    with np.errstate(over="ignore", under="ignore"):
        values[: len(found)] = found * largest * largest
    return Spectrum(values, points, negative, exact)


def _eigh_dense(
    distances: NDArray[np.floating], largest: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    squares = (distances / largest).astype(np.float64) ** 2
    means = squares.mean(axis=0)
    inner = -0.5 * (squares - means - means[:, None] + means.mean())
    values, vectors = linalg.eigh(inner, overwrite_a=True)
    return values[::-1], vectors[:, ::-1]


def _eigsh_leading(
    multiply: MatrixProduct, size: int, dimensions: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    operator = LinearOperator((size, size), matvec=multiply, matmat=multiply, dtype=np.float64)
    room = min(size, max(4 * dimensions, 40))
    try:
        values, vectors = eigsh(
            operator, dimensions, which="LA", v0=rng.normal(size=size), ncv=room
        )
    except ArpackNoConvergence:
        raise InputError(
            f"uses.embed: the {dimensions} largest of {size:,} eigenvalues lie too close together to "
            "be told apart; ask for other dimensions, or for a distance of fewer states."
        ) from None
    return np.asarray(values)[::-1], np.asarray(vectors)[:, ::-1]


def _centred_operator(distances: NDArray[np.floating], largest: float) -> MatrixProduct:
    """v -> -J D^2 J v / 2 for v (n,) or (n, k); the squares of a block of rows at a time."""

    def multiply(v: NDArray[np.float64]) -> NDArray[np.float64]:
        centred = v - v.mean(axis=0)
        out = np.empty_like(centred)
        for rows in row_blocks(distances):
            part = np.multiply(distances[rows], 1 / largest, dtype=np.float64)
            out[rows] = np.multiply(part, part, out=part) @ centred
        out -= out.mean(axis=0)
        out *= -0.5
        return np.asarray(out)

    return multiply


def _trace(distances: NDArray[np.floating], largest: float) -> float:
    """The sum of all eigenvalues of B: of D^2 / 2n where the diagonal is 0."""
    total = math.fsum(
        float(np.square(distances[rows] / largest).sum()) for rows in row_blocks(distances)
    )
    return total / (2 * len(distances))


def _estimate_negative_fraction(
    multiply: MatrixProduct, trace: float, size: int, rng: np.random.Generator
) -> float:
    """The share of negative eigenvalues, by size, estimated.

    Their sum is the mean of z^T B_- z over random signs z, which Lanczos quadrature finds (Ubaru
    et al. 2017), all probes in one product; the sum of all eigenvalues is the trace.
    """
    v = rng.choice([-1.0, 1.0], (size, NUM_PROBES)) / math.sqrt(size)
    basis = np.zeros((LANCZOS_STEPS, size, NUM_PROBES))
    diagonal, beside = np.zeros((LANCZOS_STEPS, NUM_PROBES)), np.zeros((LANCZOS_STEPS, NUM_PROBES))
    for step in range(LANCZOS_STEPS):
        basis[step] = v
        w = multiply(v)
        diagonal[step] = (w * v).sum(axis=0)
        before = basis[: step + 1]
        for _ in range(2):
            # Twice is enough (Kahan): what is left of the earlier ones is rounding.
            w -= np.einsum("snp,sp->np", before, np.einsum("snp,np->sp", before, w))
        beside[step] = np.sqrt((w * w).sum(axis=0))
        # A probe that has come to its end goes on from nothing, with weight 0.
        v = w / np.where(beside[step] > NEGLIGIBLE, beside[step], np.inf)
    below = 0.0
    for probe in range(NUM_PROBES):
        nodes, vectors = linalg.eigh_tridiagonal(diagonal[:, probe], beside[:-1, probe])
        below += size / NUM_PROBES * float(np.maximum(-nodes, 0.0) @ vectors[0] ** 2)
    return below / (trace + 2 * below)


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

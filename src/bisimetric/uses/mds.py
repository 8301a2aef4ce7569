"""Multidimensional scaling: classical MDS and SMACOF, block by block, without a second matrix."""

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
"""Entries of a matrix per block: half a megabyte, which fits into a cache."""
MAX_DENSE_STATES = 1_000
"""States up to which all eigenvalues are computed; beyond, the leading ones only."""
NEGLIGIBLE = 1e-10
"""An eigenvalue below this fraction of the largest is rounding, and counts as 0."""
NUM_PROBES, LANCZOS_STEPS = 8, 30
"""Random probes and Lanczos steps per probe, to estimate the sum of negative eigenvalues."""
MIN_RELATIVE_DECREASE = 1e-6
"""SMACOF stops after a round that lowers the stress by less, relatively."""
JITTER = 1e-3
"""The noise of SMACOF along axes without classical coordinates, relative to the largest d."""

MatrixProduct = Callable[[NDArray[np.float64]], NDArray[np.float64]]


class Spectrum(NamedTuple):
    """Leading eigenvalues (k,) and the points (n, k) of classical MDS.

    `negative_fraction` is the sum of the negative eigenvalues over the sum of all, in absolute
    value; `exact` is False where that is an estimate.
    """

    eigenvalues: NDArray[np.float64]
    points: NDArray[np.float64]
    negative_fraction: float
    exact: bool


def row_blocks(array: NDArray[np.floating]) -> list[slice]:
    """Return slices of the rows of (n, n) distances of n points, of BLOCK_ENTRIES entries each."""
    size = max(1, BLOCK_ENTRIES // len(array))
    return [slice(start, start + size) for start in range(0, len(array), size)]


def classical_mds(distances: NDArray[np.floating], dimensions: int, seed: int) -> Spectrum:
    """Return the largest eigenvalues of B = -J D^2 J / 2 and the points of classical MDS.

    D^2 are the squared entries, and J = I - 1/n subtracts the mean. For Euclidean distances B is
    the Gram matrix of the centred points (Torgerson 1952), so that eigenvectors times the roots of
    their eigenvalues are the points. Coordinates are 0 where an eigenvalue is not positive, or
    there are fewer than `dimensions`.
    """
    largest, size = float(distances.max()), len(distances)
    eigenvalues, points = np.zeros(dimensions), np.zeros((size, dimensions))
    if largest == 0:
        return Spectrum(eigenvalues, points, 0.0, True)
    # Relative to the largest distance, whose square may overflow.
    exact = size <= max(MAX_DENSE_STATES, dimensions + 1)
    if exact:
        spectrum, vectors = _eigh_dense(distances, largest)
        below_zero = spectrum[spectrum < -NEGLIGIBLE * spectrum[0]]
        negative = float(np.abs(below_zero).sum() / np.abs(spectrum).sum())
    else:
        rng = np.random.default_rng(seed)
        multiply = _build_operator(distances, largest)
        spectrum, vectors = _eigsh_leading(multiply, size, dimensions, rng)
        negative = _estimate_negative_fraction(multiply, _trace(distances, largest), size, rng)
    spectrum, vectors = spectrum[:dimensions], vectors[:, :dimensions]
    positive = np.flatnonzero(spectrum > NEGLIGIBLE * spectrum[0])
    points[:, positive] = vectors[:, positive] * np.sqrt(spectrum[positive]) * largest
    with np.errstate(over="ignore", under="ignore"):
        eigenvalues[: len(spectrum)] = spectrum * largest * largest
    return Spectrum(eigenvalues, points, negative, exact)


def _eigh_dense(
    distances: NDArray[np.floating], largest: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return all eigenvalues of B / largest^2, the largest first, and their vectors."""
    squares = (distances / largest).astype(np.float64) ** 2
    means = squares.mean(axis=0)
    inner = -0.5 * (squares - means - means[:, None] + means.mean())
    eigenvalues, vectors = linalg.eigh(inner, overwrite_a=True)
    return eigenvalues[::-1], vectors[:, ::-1]


def _eigsh_leading(
    multiply: MatrixProduct, size: int, dimensions: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    operator = LinearOperator((size, size), matvec=multiply, matmat=multiply, dtype=np.float64)
    num_vectors = min(size, max(4 * dimensions, 40))
    try:
        eigenvalues, vectors = eigsh(
            operator, dimensions, which="LA", v0=rng.normal(size=size), ncv=num_vectors
        )
    except ArpackNoConvergence:
        raise InputError(
            f"uses.embed: the {dimensions} largest of {size:,} eigenvalues are too close to be "
            "separated; use another number of dimensions, or a distance of fewer states."
        ) from None
    return np.asarray(eigenvalues)[::-1], np.asarray(vectors)[:, ::-1]


def _build_operator(distances: NDArray[np.floating], largest: float) -> MatrixProduct:
    """Return v -> -J D^2 J v / 2 for v (n,) or (n, k), which squares block by block."""

    def multiply(v: NDArray[np.float64]) -> NDArray[np.float64]:
        centred = v - v.mean(axis=0)
        product = np.empty_like(centred)
        for rows in row_blocks(distances):
            squares = np.multiply(distances[rows], 1 / largest, dtype=np.float64)
            product[rows] = np.multiply(squares, squares, out=squares) @ centred
        product -= product.mean(axis=0)
        product *= -0.5
        return np.asarray(product)

    return multiply


def _trace(distances: NDArray[np.floating], largest: float) -> float:
    """Return the trace of B, sum D^2 / 2n where the diagonal is 0."""
    total = math.fsum(
        float(np.square(distances[rows] / largest).sum()) for rows in row_blocks(distances)
    )
    return total / (2 * len(distances))


def _estimate_negative_fraction(
    multiply: MatrixProduct, trace: float, size: int, rng: np.random.Generator
) -> float:
    """Estimate the sum of the negative eigenvalues over the sum of all, in absolute value.

    The former is the mean of z^T B_- z over random signs z, by stochastic Lanczos quadrature (Ubaru
    et al. 2017), all probes in one product; the sum of all eigenvalues is the trace.
    """
    v = rng.choice([-1.0, 1.0], (size, NUM_PROBES)) / math.sqrt(size)
    basis = np.zeros((LANCZOS_STEPS, size, NUM_PROBES))
    diagonal, off_diagonal = (
        np.zeros((LANCZOS_STEPS, NUM_PROBES)),
        np.zeros((LANCZOS_STEPS, NUM_PROBES)),
    )
    for step in range(LANCZOS_STEPS):
        basis[step] = v
        w = multiply(v)
        diagonal[step] = (w * v).sum(axis=0)
        previous = basis[: step + 1]
        for _ in range(2):
            # Reorthogonalising twice is enough (Kahan).
            w -= np.einsum("snp,sp->np", previous, np.einsum("snp,np->sp", previous, w))
        off_diagonal[step] = np.sqrt((w * w).sum(axis=0))
        # A probe whose Krylov space is exhausted continues with the zero vector, at weight 0.
        v = w / np.where(off_diagonal[step] > NEGLIGIBLE, off_diagonal[step], np.inf)
    negative = 0.0
    for probe in range(NUM_PROBES):
        nodes, vectors = linalg.eigh_tridiagonal(diagonal[:, probe], off_diagonal[:-1, probe])
        negative += size / NUM_PROBES * float(np.maximum(-nodes, 0.0) @ vectors[0] ** 2)
    return negative / (trace + 2 * negative)


class Distortion(NamedTuple):
    """How the distances are distorted; see `Embedding`."""

    stress: float
    expansion: float
    contraction: float
    mean_deviation: float
    max_deviation: float


def measure_distortion(distances: NDArray[np.floating], points: NDArray[np.float64]) -> Distortion:
    """Compare distances (n, n) with those of points (n, k), one block of rows at a time."""
    scale = float(distances.max()) or 1.0
    squared_error = squared_total = total_deviation = max_deviation = expansion = contraction = 0.0
    for rows in row_blocks(distances):
        d = np.divide(distances[rows], scale, dtype=np.float64)
        embedded = cdist(points[rows] / scale, points / scale)
        deviation = np.abs(d - embedded)
        squared_error += float((deviation * deviation).sum())
        squared_total += float((d * d).sum())
        total_deviation += float(deviation.sum())
        max_deviation = max(max_deviation, float(deviation.max()))
        positive = d > 0
        expansion = max(
            expansion, float(np.divide(embedded, d, out=np.zeros_like(d), where=positive).max())
        )
        # Points that differ only by rounding coincide.
        embedded[embedded <= NEGLIGIBLE] = 0.0
        with np.errstate(divide="ignore"):
            contraction = max(
                contraction, float(np.divide(d, embedded, out=deviation * 0, where=positive).max())
            )
    num_pairs = len(distances) * (len(distances) - 1)
    if squared_total == 0:
        return Distortion(
            0.0, 1.0, 1.0, total_deviation / max(num_pairs, 1) * scale, max_deviation * scale
        )
    return Distortion(
        math.sqrt(squared_error / squared_total),
        expansion,
        contraction,
        total_deviation / num_pairs * scale,
        max_deviation * scale,
    )


def lipschitz_constant(values: NDArray[np.float64], points: NDArray[np.float64]) -> float:
    """Return max |v_i - v_j| / |x_i - x_j|; infinite where coinciding points differ in v."""
    scale = float(np.abs(points).max(initial=0.0)) or 1.0
    constant = 0.0
    for rows in row_blocks(values):
        differences = np.abs(values[rows, None] - values)
        euclidean = cdist(points[rows], points)
        euclidean[euclidean <= NEGLIGIBLE * scale] = 0.0
        # Values that differ only by rounding are equal.
        differences[differences <= NEGLIGIBLE * float(np.ptp(values))] = 0.0
        with np.errstate(divide="ignore"):
            constant = max(
                constant,
                float(
                    np.divide(
                        differences, euclidean, out=euclidean * 0, where=differences > 0
                    ).max()
                ),
            )
    return constant


def smacof(
    distances: NDArray[np.floating], start: NDArray[np.float64], max_iterations: int, seed: int
) -> tuple[NDArray[np.float64], int]:
    """Return points of locally minimal stress near `start` (n, k), and the number of rounds.

    A round is the Guttman transform, x_i <- sum_j (d_ij / |x_i - x_j|) (x_i - x_j) / n. It
    minimises a majorant of the stress that touches it at the points, so that no round increases
    the stress (de Leeuw 1977).
    """
    largest = float(distances.max())
    if largest == 0:
        return start, 0
    points = start / largest
    start_stress = _guttman_transform(distances, points, largest)[1]
    if start_stress <= (NEGLIGIBLE * len(distances)) ** 2:
        return start, 0
    is_empty = ~points.any(axis=0)
    rng = np.random.default_rng(seed)
    points[:, is_empty] = JITTER * rng.normal(size=(len(points), int(is_empty.sum())))
    stress, num_rounds = math.inf, 0
    with show_progress(max_iterations, "metric scaling") as progress:
        while num_rounds < max_iterations:
            updated, squared_error = _guttman_transform(distances, points, largest)
            if squared_error >= (1 - MIN_RELATIVE_DECREASE) * stress:
                break
            points, stress, num_rounds = updated, squared_error, num_rounds + 1
            progress.set_position(num_rounds)
    # Discard the noise where it gains nothing.
    return (points * largest, num_rounds) if stress <= start_stress else (start, num_rounds)


def _guttman_transform(
    distances: NDArray[np.floating], points: NDArray[np.float64], largest: float
) -> tuple[NDArray[np.float64], float]:
    """Return the Guttman transform of points, and the squared error before it."""
    updated, squared_error = np.empty_like(points), 0.0
    for rows in row_blocks(distances):
        d = np.divide(distances[rows], largest, dtype=np.float64)
        embedded = cdist(points[rows], points)
        squared_error += float(np.square(d - embedded).sum())
        ratio = np.divide(d, embedded, out=np.zeros_like(d), where=embedded > 0)
        updated[rows] = ratio.sum(axis=1)[:, None] * points[rows] - ratio @ points
    return updated / len(points), squared_error


def rotate_to_principal_axes(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Centre points and rotate them to their principal axes, the widest first."""
    centred = points - points.mean(axis=0)
    scaled = centred / (float(np.abs(centred).max()) or 1.0)
    _, axes = np.linalg.eigh(scaled.T @ scaled)
    return np.asarray(centred @ axes[:, ::-1])


def fix_signs(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Reflect points so that on each axis the farthest one is positive, the first of several.

    >>> fix_signs(np.array([[1.0, 0.0], [-1.0, -3.0], [0.0, 2.0]])).tolist()
    [[1.0, 0.0], [-1.0, 3.0], [0.0, -2.0]]
    """
    magnitude = np.abs(points)
    # Nearly as far counts as well, so that rounding does not choose among them.
    farthest = np.argmax(magnitude >= (1 - 1e-6) * magnitude.max(axis=0), axis=0)
    is_negative = points[farthest, np.arange(points.shape[1])] < 0
    return np.where(is_negative, -points, points) + 0.0

"""The confidence interval of a mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from bisimetric.errors import InputError

CONFIDENCE = 0.95


def compute_confidence_interval(
    samples: ArrayLike,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute the mean over the first axis and half the width of its 95% confidence interval.

    mean +- t * s / sqrt(k), with s the standard deviation of k samples (divided by k - 1) and t
    the 97.5% quantile of Student's distribution with k - 1 degrees of freedom.

    Args:
        samples: (k, ...), one row per seed.

    Returns:
        The mean and half the width, both (...). The width is not a number where a sample is
        infinite.

    Raises:
        InputError: there are fewer than two samples.

    >>> mean, half_width = compute_confidence_interval([1.0, 3.0])
    >>> float(mean), round(float(half_width), 3)
    (2.0, 12.706)
    """
    array = np.asarray(samples, dtype=np.float64)
    count = len(array) if array.ndim else 0
    if count < 2:
        raise InputError(
            f"confidence interval: there are {count} samples and it needs at least 2; use more "
            "seeds."
        )
    quantile = stdtrit(count - 1, (1 + CONFIDENCE) / 2)
    with np.errstate(invalid="ignore"):
        half_width = quantile * array.std(axis=0, ddof=1) / np.sqrt(count)
    return array.mean(axis=0), half_width

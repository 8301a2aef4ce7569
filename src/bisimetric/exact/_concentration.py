"""Concentration inequalities for empirical distributions and means."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError


def validate_confidence(caller: str, confidence: float) -> float:
    """Return a probability above 0 and below 1."""
    if not 0 < confidence < 1:
        raise InputError(
            f"is {confidence} and must be above 0 and below 1", caller=caller, argument="confidence"
        )
    return float(confidence)


def log_subsets(support: ArrayLike) -> NDArray[np.float64]:
    """Return log(2^n - 2), the number of subsets that are neither empty nor all of n successors.

    It is minus infinity for n = 1: such a distribution is known.

    >>> log_subsets([1, 2, 3]).round(4)
    array([  -inf, 0.6931, 1.7918])
    """
    n = np.asarray(support, np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(n * np.log(2.0) + np.log1p(-np.exp2(1.0 - n)))

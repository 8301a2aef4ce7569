"""R(s, a) from rewards that were paid by outcome."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def mean_rewards(
    row: NDArray[np.integer],
    reward: NDArray[np.floating],
    num_rows: int,
    probability: NDArray[np.floating] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The mean reward of each row, and whether its outcomes pay differently, both (rows,).

    `row` and `reward` (n,) describe one outcome each. With `probability` (n,) the mean is the sum
    of probability times reward; without, outcomes count alike, and their order changes nothing.
    A row that always pays the same pays exactly that, and one without outcomes pays 0.

    >>> mean, differs = mean_rewards(np.array([0, 0, 0, 2, 2]), np.array([0.1, 0.1, 0.1, 1, 2]), 3)
    >>> mean.tolist(), differs.tolist()
    ([0.1, 0.0, 1.5], [False, False, True])
    """
    lowest, highest = np.full(num_rows, np.inf), np.full(num_rows, -np.inf)
    with np.errstate(invalid="ignore"):  # what is no number is for the MDP to refuse
        np.minimum.at(lowest, row, reward)
        np.maximum.at(highest, row, reward)
    differs = lowest < highest
    # Sums of equal numbers would round them: only rows that differ are summed.
    same = np.where(lowest > highest, 0.0, lowest)
    if not differs.any():
        return same, differs
    if probability is not None:
        sums = np.bincount(row, weights=probability * reward, minlength=num_rows)
        return np.where(differs, sums, same), differs
    summed = differs[row]
    row, reward = row[summed], reward[summed]
    order = np.lexsort((reward, row))
    sums = np.bincount(row[order], weights=reward[order], minlength=num_rows)
    counts = np.maximum(np.bincount(row, minlength=num_rows), 1)
    return np.where(differs, sums / counts, same), differs

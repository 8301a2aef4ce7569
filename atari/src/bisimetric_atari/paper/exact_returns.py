"""Exact on-policy distances of recorded states, from their recorded rewards.

Where policy and game are deterministic, each state has one future, and

    d^pi(s, t) = sum_k discount^k |r_k(s) - r_k(t)|,

with r_k(s) the reward k steps after s, 0 after termination. For an agent that sometimes acts at
random this is the distance between the realised futures.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.learned.reward_sequence import compute_horizon

__all__ = [
    "compute_distances",
    "compute_horizon",
    "compute_returns",
    "find_complete_steps",
    "gather_futures",
]


def find_complete_steps(
    terminated: ArrayLike, truncated: ArrayLike, horizon: int
) -> NDArray[np.int64]:
    """Find the steps whose next `horizon` rewards, or all up to termination, are recorded.

    >>> find_complete_steps([False, False, True, False, False], [False] * 5, horizon=3).tolist()
    [0, 1, 2]
    """
    terminal = np.asarray(terminated, np.bool_)
    last = terminal | np.asarray(truncated, np.bool_)
    n = len(last)
    stops = np.append(np.flatnonzero(last), n - 1)
    stop = stops[np.searchsorted(stops, np.arange(n))]
    return np.flatnonzero(terminal[stop] | (stop - np.arange(n) + 1 >= horizon))


def gather_futures(
    rewards: ArrayLike, terminated: ArrayLike, rows: ArrayLike, horizon: int
) -> NDArray[np.float32]:
    """Gather the rewards (m, horizon) from each of the steps `rows` on, 0 after termination.

    >>> gather_futures([1, 2, 3, 4], [False, True, False, False], [0, 2], 3).tolist()
    [[1.0, 2.0, 0.0], [3.0, 4.0, 0.0]]
    """
    sequence = np.asarray(rewards, np.float32)
    terminations = np.cumsum(np.asarray(terminated, np.int64))
    at = np.asarray(rows, np.int64)[:, None] + np.arange(horizon)
    inside = at < len(sequence)
    at = np.minimum(at, len(sequence) - 1)
    # Steps of one game have the same number of terminations before them.
    game = terminations - np.asarray(terminated, np.int64)
    return np.where(inside & (game[at] == game[at[:, :1]]), sequence[at], np.float32(0))


def compute_returns(futures: NDArray[np.float32], discount: float) -> NDArray[np.float64]:
    """Compute the returns sum_k discount^k r_k, (m,), of futures (m, k).

    >>> compute_returns(np.array([[1.0, 1.0]], np.float32), 0.5).tolist()
    [1.5]
    """
    return np.asarray(futures @ discount ** np.arange(futures.shape[1], dtype=np.float64))


def compute_distances(
    futures: NDArray[np.float32], discount: float, other: NDArray[np.float32] | None = None
) -> NDArray[np.float64]:
    """Compute d^pi (m, n) between futures (m, k) and (n, k).

    >>> compute_distances(np.array([[1.0, 0.0], [0.0, 1.0]], np.float32), 0.5).tolist()
    [[0.0, 1.5], [1.5, 0.0]]
    """
    from scipy.spatial.distance import cdist

    weights = discount ** np.arange(futures.shape[1], dtype=np.float64)
    weighted = futures * weights
    return np.asarray(cdist(weighted, weighted if other is None else other * weights, "cityblock"))

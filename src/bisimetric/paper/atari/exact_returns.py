"""The exact on-policy distances of recorded states: their futures are in the record.

Where the policy and the game are deterministic, two states have one future each, and

    d^pi(s, t) = sum over k of discount^k |r_k(s) - r_k(t)|,

with r_k(s) the reward k steps after s, 0 once the game is over. An agent that sometimes acts at
random has several futures; then this is the distance of those that came true.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.mdp import validate_discount

TAIL_TOLERANCE = 1e-4
"""The share of a discounted future that may be left out."""


def compute_horizon(discount: float) -> int:
    """How many steps ahead to look, so that no more than `MISSING` of all that counts is left out.

    >>> horizon(0.99), horizon(0.0)
    (917, 1)
    """
    rate = validate_discount(discount)
    return 1 if rate == 0 else max(1, math.ceil(math.log(TAIL_TOLERANCE) / math.log(rate)))


def find_complete_steps(
    terminated: ArrayLike, truncated: ArrayLike, horizon: int
) -> NDArray[np.int64]:
    """The steps whose next `ahead` rewards were recorded, or all up to the end of their game.

    >>> known([False, False, True, False, False], [False] * 5, ahead=3).tolist()
    [0, 1, 2]
    """
    ended = np.asarray(terminated, np.bool_)
    last = ended | np.asarray(truncated, np.bool_)
    steps = len(last)
    stops = np.append(np.flatnonzero(last), steps - 1)
    stop = stops[np.searchsorted(stops, np.arange(steps))]
    return np.flatnonzero(ended[stop] | (stop - np.arange(steps) + 1 >= horizon))


def gather_futures(
    rewards: ArrayLike, terminated: ArrayLike, rows: ArrayLike, horizon: int
) -> NDArray[np.float32]:
    """The rewards (m, ahead) from each of some steps on, 0 after the end of their game.

    >>> futures([1, 2, 3, 4], [False, True, False, False], [0, 2], 3).tolist()
    [[1.0, 2.0, 0.0], [3.0, 4.0, 0.0]]
    """
    paid = np.asarray(rewards, np.float32)
    over = np.cumsum(np.asarray(terminated, np.int64))
    at = np.asarray(rows, np.int64)[:, None] + np.arange(horizon)
    inside = at < len(paid)
    at = np.minimum(at, len(paid) - 1)
    # Steps of the same game have as many ends before them.
    game = over - np.asarray(terminated, np.int64)
    return np.where(inside & (game[at] == game[at[:, :1]]), paid[at], np.float32(0))


def compute_returns(futures: NDArray[np.float32], discount: float) -> NDArray[np.float64]:
    """V^pi of each of the futures (m, k): sum over k of discount^k r_k, (m,).

    >>> values(np.array([[1.0, 1.0]], np.float32), 0.5).tolist()
    [1.5]
    """
    return np.asarray(futures @ discount ** np.arange(futures.shape[1], dtype=np.float64))


def compute_distances(
    futures: NDArray[np.float32], discount: float, other: NDArray[np.float32] | None = None
) -> NDArray[np.float64]:
    """d^pi of all pairs of the futures (m, k) and (n, k), (m, n).

    >>> distances(np.array([[1.0, 0.0], [0.0, 1.0]], np.float32), 0.5).tolist()
    [[0.0, 1.5], [1.5, 0.0]]
    """
    from scipy.spatial.distance import cdist

    weights = discount ** np.arange(futures.shape[1], dtype=np.float64)
    one = futures * weights
    return np.asarray(cdist(one, one if other is None else other * weights, "cityblock"))

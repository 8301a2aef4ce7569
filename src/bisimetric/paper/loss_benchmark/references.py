"""Fixed points of the losses on a finite MDP, where no function of `exact` has them.

Losses compare sampled rewards and independent samples of successors. Their fixed points replace
|R^pi(s) - R^pi(t)| by E|r - r'| and couple successors independently; those that are metrics by
construction also set self-distances to 0. Each is the limit of a contraction and is iterated until
the residual proves the error.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

TOL = 1e-9
"""Bound on the true error of every entry, rounding aside."""


def compute_expected_gaps(R: Matrix, policy: Matrix) -> Matrix:
    """Return E|r - r'| for independent actions of the policy in two states, (S, S).

    Args:
        R: (S, A), rewards.
        policy: (S, A), probabilities.

    >>> compute_expected_gaps(np.array([[0.0, 1.0]]), np.array([[0.5, 0.5]])).tolist()
    [[0.5]]
    """
    gaps = np.abs(R[:, None, :, None] - R[None, :, None, :])
    return np.asarray(np.einsum("sa,tb,stab->st", policy, policy, gaps))


def solve_independent(
    P: Matrix, gaps: Matrix, discount: float, *, num_steps: int = 1, self_distances: bool = True
) -> Matrix:
    """Return the fixed point of D = sum_{i<n} discount^i P^i G P^i' + discount^n P^n D P^n'.

    Args:
        P: (S, S), transition probabilities of the chain.
        gaps: (S, S), immediate costs G.
        discount: below 1.
        num_steps: n. The fixed point depends on it where self-distances are 0.
        self_distances: whether D(s, s) follows the equation; False sets it to 0, as a metric does.

    >>> P, gaps = np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> solve_independent(P, gaps, 0.5).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    power, costs = np.eye(len(P)), np.zeros_like(gaps)
    for step in range(num_steps):
        costs += discount**step * power @ gaps @ power.T
        power = power @ P
    mask = np.ones_like(gaps) if self_distances else 1 - np.eye(len(P))
    factor = discount**num_steps
    return _iterate(lambda D: mask * (costs + factor * power @ D @ power.T), mask * costs, factor)


def solve_product(P: Matrix, R: Matrix, discount: float) -> Matrix:
    """Return the fixed point of pair Q-learning, with self-distances 0.

        D(s, t) = max_a |R(s, a) - R(t, a)| + discount * sum_xy P(s, a)(x) P(t, a)(y) D(x, y)

    It is the optimal value of the synchronous product MDP with independent successors: d~ where P
    is deterministic, and at least d~ otherwise.

    Args:
        P: (A, S, S), transition probabilities.
        R: (S, A), rewards.
        discount: below 1.

    >>> P, R = np.eye(2)[None], np.array([[0.0], [1.0]])
    >>> solve_product(P, R, 0.5).round(6).tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """
    gaps = np.abs(R.T[:, :, None] - R.T[:, None, :])
    mask = 1 - np.eye(len(R))

    def apply(D: Matrix) -> Matrix:
        return np.asarray(mask * np.max(gaps + discount * P @ D @ P.transpose(0, 2, 1), axis=0))

    return _iterate(apply, np.zeros(mask.shape), discount)


def reduce(U: Matrix) -> Matrix:
    """Return U(s, t) - (U(s, s) + U(t, t)) / 2.

    >>> reduce(np.array([[1.0, 3.0], [3.0, 1.0]])).tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """
    own = np.diag(U) / 2
    return U - own[:, None] - own[None, :]


def _iterate(operator: Callable[[Matrix], Matrix], start: Matrix, factor: float) -> Matrix:
    """Apply a contraction until its residual proves the error of the result."""
    values = start
    while True:
        following = operator(values)
        if factor * np.abs(following - values).max() <= TOL * (1 - factor):
            return following
        values = following

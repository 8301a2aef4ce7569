"""Search for the cycles of the pair graph with the largest infinite-horizon value.

If (s, t) has the largest distance d~ = M, the rewards along its optimal path satisfy

    sum over i < k of discount^i gap_i >= (1 - discount^k) M        for every k,

since no pair on the path has a larger distance (cf. the cycle lemma, Dvoretzky & Motzkin 1947).
Paths from a pair are therefore left as soon as they violate this for a level M. At a level for
which the expected number of paths does not grow with their length, a search from all pairs visits
about as many pairs as there are, and finds every cycle of a larger value.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bisimetric.exact.deterministic import cycle_kernels
from bisimetric.exact.deterministic.problem import DeterministicProblem, sample_pairs
from bisimetric.exact.deterministic.table_kernels import map_rows

EFFORTS = (1.012, 16), (0.995, 64), (0.985, 32)
"""Levels relative to the estimate, and pairs visited per first step: if the first search finds no
cycle, the others find longer and worse ones."""
STRIDES = 16, 4, 1
"""Searches from the pairs of every 16th state, every 4th, and all: each begins at the level of the
best cycle so far."""
MIN_IMPROVEMENT = 1 + 1e-6
MAX_LENGTH = 128
MIN_ANCESTORS = 256
"""Cycles that fewer pairs lead to are left out: they are of no use for the others."""
MAX_STEPS_PER_BIT = 3
"""Steps to all states of a graph that mixes fast, per binary digit of their number."""
NUM_SAMPLES, NUM_BINS = 4096, 64
"""Pairs, and bins of a histogram of their gaps, from which the level is estimated."""


def find_cycles(
    problem: DeterministicProblem, starts: NDArray[np.int64], predecessors: NDArray[np.uint32]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find cycles of large value; return their pairs s * S + t, t < s, and the values of those.

    See `propagation.index_predecessors` for `starts` and `predecessors`.
    """
    states = problem.num_states
    estimate = estimate_level(problem)
    order = np.argsort(problem.reward, axis=1, kind="stable").astype(np.uint32)
    sorted_reward = np.take_along_axis(problem.reward, order, axis=1)
    successor, reward = problem.successor.T.copy(), problem.reward.T.copy()
    cycles, values = np.zeros((states, MAX_LENGTH), np.int64), np.zeros((states, MAX_LENGTH))
    lengths = np.zeros(states, np.int64)

    def search(rows: NDArray[np.int64], level: float, visits_per_step: int) -> None:
        map_rows(
            lambda low, high: cycle_kernels.search_rows(
                successor, reward, order, sorted_reward, problem.discount, level, visits_per_step,
                rows, cycles, values, lengths, low, high,
            ),
            len(rows),
            2 * states,
        )  # fmt: skip
        for row in rows[lengths[rows] > 0]:
            s, t = divmod(int(cycles[row, 0]), states)
            if not cycle_kernels.has_ancestors(
                s, t, starts, predecessors, problem.num_actions, MIN_ANCESTORS
            ):
                lengths[row], values[row] = 0, 0.0

    for relative_level, visits_per_step in EFFORTS if estimate > 0.0 else ():
        is_searched = np.zeros(states, np.bool_)
        for stride in STRIDES:
            rows = np.flatnonzero(~is_searched[::stride]) * stride
            is_searched[rows] = True
            level = max(relative_level * estimate, MIN_IMPROVEMENT * float(values.max()))
            search(rows, level, visits_per_step)
        if lengths.any():
            break
    is_found = np.arange(MAX_LENGTH) < lengths[:, None]
    return cycles[is_found], values[is_found]


def mixes_fast(successor: NDArray[np.uint32]) -> bool:
    """Return whether state 0 reaches most states, and those in O(log S) steps, as in random graphs.

    Elsewhere, as in grids, paths to the best cycle are long, and the search does not pay: most
    pairs change many times until their distance has converged.
    """
    states = successor.shape[1]
    reached, frontier = np.zeros(states, np.bool_), np.zeros(1, np.uint32)
    for _ in range(MAX_STEPS_PER_BIT * states.bit_length()):
        reached[frontier] = True
        following = np.unique(successor[:, frontier])
        frontier = following[~reached[following]]
        if len(frontier) == 0:
            return bool(reached.sum() > states // 2)
    return False


def estimate_level(problem: DeterministicProblem) -> float:
    """Estimate the largest value that arbitrarily long paths attain.

    If the gaps of actions were drawn independently, the expected number of paths of length k with
    mean gap x would be at most (A E[exp(theta (gap - x))])^k for every theta > 0. It does not grow
    at the least x for which some theta makes that 1 (the speed of a branching random walk, Biggins
    1976). Actions that merge the pair end the path.
    """
    s, t = sample_pairs(problem.num_states, NUM_SAMPLES)
    gap = np.abs(problem.reward[:, s] - problem.reward[:, t])
    gap = gap[problem.successor[:, s] != problem.successor[:, t]]
    largest = float(gap.max(initial=0.0))
    if not 0.0 < largest < np.inf:
        return 0.0
    bins = np.bincount((gap / largest * (NUM_BINS - 1)).astype(np.int64), minlength=NUM_BINS)
    theta = np.geomspace(0.1, 2.0 * NUM_BINS, 64)
    centres = (np.arange(NUM_BINS) + 0.5) / NUM_BINS
    paths = np.exp(np.outer(theta, centres)) @ (bins / NUM_SAMPLES)
    mean = largest * float((np.log(paths) / theta).min())
    return mean / (1 - problem.discount)

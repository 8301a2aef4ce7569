"""Kernels of confidence bounds: how far empirical rows may be from the true ones."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

BISECTIONS = 48
"""Halvings of an interval in [0, 1]."""
RELATIVE_MARGIN, ABSOLUTE_MARGIN = 1e-9, 1e-13
"""Added to what a divergence is compared with, so that its rounding does not matter."""


@njit(cache=True)
def bound_probability(frequency, level):
    """Return the least probability p whose divergence kl(frequency, p) is at most `level`.

    kl(q, p) = q log(q / p) + (1 - q) log((1 - q) / (1 - p)). Rounded down. By Chernoff's bound,
    P(p < bound) <= exp(-K level) for a frequency, or a mean of numbers in [0, 1], of K samples.
    """
    if frequency <= 0.0:
        return 0.0
    level = level * (1 + RELATIVE_MARGIN) + ABSOLUTE_MARGIN
    if frequency >= 1.0:
        return math.exp(-level) * (1 - RELATIVE_MARGIN)
    low, high = 0.0, frequency
    for _ in range(BISECTIONS):
        p = (low + high) / 2
        divergence = frequency * math.log(frequency / p)
        divergence += (1 - frequency) * math.log((1 - frequency) / (1 - p))
        if divergence >= level:
            low = p
        else:
            high = p
    return low


@njit(cache=True)
def bound_probabilities(frequencies, levels):
    """Apply `bound_probability` to arrays."""
    found = np.empty(len(frequencies))
    for i in range(len(frequencies)):
        found[i] = bound_probability(frequencies[i], levels[i])
    return found


@njit(cache=True)
def log_binomial(n, k):
    """Return the logarithm of n choose k."""
    return math.lgamma(n + 1.0) - math.lgamma(k + 1.0) - math.lgamma(n - k + 1.0)


@njit(cache=True, nogil=True)
def bound_rows(
    upper, starts, successors, counts, totals, log_level, num_states, largest, observed_only,
    transport, span, spread,
):  # fmt: skip
    """Bound, for each row with samples, what an upper bound on the distances d implies for it.

    Args:
        upper: (S, S) an upper bound on d.
        starts: (rows + 1,) where the successors of each row start.
        successors: their states.
        counts: how often each was observed.
        totals: (rows,) the number of samples; 0 is skipped.
        log_level: (rows,) log(1 / probability of failure), before the choice of a set.
        num_states: the number of states that may be successors.
        largest: (S,) the largest distance from each state to any other.
        observed_only: whether only observed states may be successors.
        transport: (rows,) receives a bound on W1(d) between the empirical and the true row.
        span: (rows,) receives a bound on the largest d between two possible successors.
        spread: (rows,) receives a bound on the sample standard deviation of any 1-Lipschitz
            function of the successor; 0 for one sample.
    """
    width = 0
    for row in range(len(totals)):
        width = max(width, starts[row + 1] - starts[row])
    farthest, order = np.empty(width), np.empty(width, np.int64)
    overall = largest.max()
    for row in range(len(totals)):
        total = totals[row]
        if total == 0:
            continue
        first, n = starts[row], starts[row + 1] - starts[row]
        widest, squares = 0.0, 0.0
        for i in range(n):
            x = successors[first + i]
            most = 0.0
            for j in range(n):
                distance = upper[x, successors[first + j]]
                most = max(most, distance)
                squares += counts[first + i] * counts[first + j] * distance * distance
            farthest[i] = most if observed_only else largest[x]
            widest = max(widest, most)
            # Sorted by the farthest successor, descending.
            k = i
            while k > 0 and farthest[order[k - 1]] < farthest[i]:
                order[k] = order[k - 1]
                k -= 1
            order[k] = i
        span[row] = widest if observed_only else overall
        spread[row] = math.sqrt(squares / 2 / total / (total - 1)) if total > 1 else 0.0
        candidates = n if observed_only else num_states
        if candidates == 1:
            transport[row] = 0.0
            continue
        # The mass that leaves the k farthest states is the excess of one of their subsets.
        base = log_level[row] + math.log(candidates)
        single = (base + math.log(candidates)) / total
        cost, excess, log_sets = 0.0, 0.0, 0.0
        for k in range(n):
            if k + 1 < candidates:
                log_sets = max(log_sets, log_binomial(candidates, k + 1))
            frequency = counts[first + order[k]] / total
            excess += frequency - bound_probability(frequency, single)
            excess = min(excess, math.sqrt((base + log_sets) / (2 * total)), 1.0)
            step = farthest[order[k]] - (farthest[order[k + 1]] if k + 1 < n else 0.0)
            cost += step * excess
        transport[row] = cost

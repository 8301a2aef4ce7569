"""Kernels of interval iteration: one update of the lower and upper bounds of some pairs.

With d between L and U, |R(s, a) - R(t, b)| + discount * W1(d)(P(s, a), P(t, b)) lies between the
same expressions of L and U, since W1 is monotone in its costs. Common mass of the two rows stays in
place, which is optimal for the pseudometric d, so that it is a lower bound for L and an upper bound
for U even where these violate the triangle inequality.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric import _transport
from bisimetric._rounding import UNIT


class Slack(NamedTuple):
    """How far an update may be off for pairs of rows, each (S, A); infinite for unknown rows.

    The lower bound of the rows p and q decreases by row[p] + row[q]. The upper bound increases by
    the least of row[p] + row[q], linear[p] + linear[q] and
    sqrt((square[p] + square[q]) * (level[p] + level[q])).
    """

    row: NDArray[Any]
    linear: NDArray[Any]
    square: NDArray[Any]
    level: NDArray[Any]


@njit(cache=True)
def _bound_w1(model, workspace, costs, p, q):
    """Return W1 of two rows of P, and a bound on its error besides the rounding of sums."""
    starts = model.row_starts
    _, _, cost, error = _transport.solve_w1(
        workspace, model.successors, model.probabilities, starts[p], starts[p + 1], starts[q],
        starts[q + 1], costs, model.max_support,
    )  # fmt: skip
    return cost, error


@njit(cache=True)
def _bound_move(model, workspace, lower, upper, slack, rounding, s, a, t, b):
    """Return the bounds on |R(s, a) - R(t, b)| + discount * W1(d)(P(s, a), P(t, b))."""
    sum_of_rows = slack.row[s, a] + slack.row[t, b]
    most = min(sum_of_rows, slack.linear[s, a] + slack.linear[t, b])
    level = slack.level[s, a] + slack.level[t, b]
    most = min(most, np.sqrt((slack.square[s, a] + slack.square[t, b]) * level))
    if most == np.inf:
        return 0.0, np.inf
    actions = model.reward.shape[1]
    p, q = s * actions + a, t * actions + b
    gap = abs(model.reward[s, a] - model.reward[t, b])
    w1, error = _bound_w1(model, workspace, lower, p, q)
    low = gap + model.discount * (w1 - error) - sum_of_rows
    # Slacks are sums, square roots and minima of numbers that are rounded up themselves.
    low -= rounding + 4 * UNIT * (gap + sum_of_rows)
    w1, error = _bound_w1(model, workspace, upper, p, q)
    high = gap + model.discount * (w1 + error) + most
    high += rounding + 4 * UNIT * (gap + most)
    return max(low, 0.0), high


@njit(cache=True, nogil=True)
def update_bounds(
    model, lower, upper, slack, rounding, apart, first, second, lower_out, upper_out, start, stop
):
    """Write the updated bounds of the pairs (first[i], second[i]), start <= i < stop.

    `lower` and `upper` are `Costs` of all pairs. `rounding` bounds that of sums, and `apart` are
    the bounds on the distance of states that are not comparable.
    """
    actions = model.reward.shape[1]
    workspace = _transport.allocate_workspace(model.max_support)
    lows, highs = np.empty((actions, actions)), np.empty((actions, actions))
    for i in range(start, stop):
        s, t = first[i], second[i]
        if model.classes[s] != model.classes[t]:
            lower_out[i], upper_out[i] = apart
            continue
        low, high = 0.0, 0.0
        if not model.match_freely:
            for a in range(actions):
                if model.available[s, a]:
                    one, other = _bound_move(
                        model, workspace, lower, upper, slack, rounding, s, a, t, a
                    )
                    low, high = max(low, one), max(high, other)
        else:
            for a in range(actions):
                for b in range(actions):
                    lows[a, b] = highs[a, b] = np.inf
                    if (
                        model.available[s, a]
                        and model.available[t, b]
                        and model.groups[a] == model.groups[b]
                    ):
                        lows[a, b], highs[a, b] = _bound_move(
                            model, workspace, lower, upper, slack, rounding, s, a, t, b
                        )
            for a in range(actions):
                if model.available[s, a]:
                    low, high = max(low, lows[a].min()), max(high, highs[a].min())
                if model.available[t, a]:
                    low, high = max(low, lows[:, a].min()), max(high, highs[:, a].min())
        lower_out[i], upper_out[i] = low, high

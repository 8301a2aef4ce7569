"""Kernels for labelled MDPs: distances 1, pairs that a policy leaves at 0, and better actions.

The distance is the value of a game on pairs: one player chooses an action for both states and
maximises the probability that labels differ; the other answers with a coupling and minimises it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric import _transport
from bisimetric.exact.undiscounted_solver.pair_kernels import (
    compute_change,
    load_problem,
    optimise_coupling,
)

MIN_MASS = 2.0**-53
"""The least positive mass."""
MIN_INCREASE = 1e-12
"""The least increase of a value that changes the selected move."""


class Backward(NamedTuple):
    """Predecessors of state u by action a: `starts[u * A + a]:starts[u * A + a + 1]`.

    `ranks` (S, A) is the position of an action among those that a state has.
    """

    starts: NDArray[np.int64]
    predecessors: NDArray[Any]
    ranks: NDArray[np.int64]
    num_actions: int


@njit(cache=True)
def _is_forced(rows, workspace, pairs, moves, move, flags):
    """Return whether every coupling of a move has mass on a flagged pair or one at distance 1.

    Costs are 0 and 1, so that potentials, flows and the cost are exact.
    """
    n, m, _ = load_problem(rows, workspace, moves, move, pairs.first[moves.pair[move]])
    if n == 0:
        return False
    ints = workspace.ints
    num_flagged = 0
    for i in range(n):
        for j in range(m):
            x, y = ints[_transport.ROW_STATE, i], ints[_transport.COLUMN_STATE, j]
            pair = pairs.number[x, y]
            is_flagged = pair < 0 or flags[pair]
            workspace.cost[i * m + j] = 1.0 if is_flagged else 0.0
            num_flagged += is_flagged
    if num_flagged == 0 or num_flagged == n * m:
        return num_flagged > 0
    _transport.build_northwest_tree(workspace, n, m)
    _transport.compute_flows(workspace, n, m)
    least = 0.0
    if n > 1 and m > 1:
        least, _, _ = _transport.optimise_tree(workspace, n, m, 1.0)
    mass = 0.0
    for v in range(1, n + m):
        u = ints[_transport.PARENT, v]
        i, j = (v, u - n) if v < n else (u, v - n)
        mass += workspace.reals[_transport.FLOW, v] * workspace.cost[i * m + j]
    return least >= 0 and mass > 0


@njit(cache=True)
def _stays_inside(rows, workspace, pairs, moves, move, inside):
    """Return whether no coupling of a move leaves a set of pairs and those at distance 1."""
    n, m, common = load_problem(rows, workspace, moves, move, pairs.first[moves.pair[move]])
    if common > 0:
        return False
    for i in range(n):
        for j in range(m):
            x = workspace.ints[_transport.ROW_STATE, i]
            y = workspace.ints[_transport.COLUMN_STATE, j]
            pair = pairs.number[x, y]
            if pair >= 0 and not inside[pair]:
                return False
    return True


@njit(cache=True)
def grow_certain_pairs(rows, backward, pairs, moves, candidates, certain):
    """Add the candidates with a move that stays among them and may lead to a certain pair.

    First those that lead to different labels at once, then by a work list of added pairs: only the
    predecessors of one may follow it.
    """
    workspace = _transport.allocate_workspace(rows.max_support)
    queue = np.empty(len(certain), np.int64)
    found, num_actions = 0, backward.num_actions
    for pair in range(len(certain)):
        for move in range(moves.starts[pair], moves.starts[pair + 1]):
            if candidates[pair] and _is_certain(
                rows, workspace, pairs, moves, move, candidates, certain
            ):
                certain[pair] = True
                queue[found] = pair
                found += 1
                break
    at = 0
    while at < found:
        u, v = pairs.first[queue[at]], pairs.second[queue[at]]
        at += 1
        for a in range(num_actions):
            left, right = u * num_actions + a, v * num_actions + a
            for i in range(backward.starts[left], backward.starts[left + 1]):
                for j in range(backward.starts[right], backward.starts[right + 1]):
                    s, t = backward.predecessors[i], backward.predecessors[j]
                    pair = pairs.number[s, t]
                    if s == t or pair < 0 or certain[pair] or not candidates[pair]:
                        continue
                    move = moves.starts[pair] + backward.ranks[s, a]
                    if _is_certain(rows, workspace, pairs, moves, move, candidates, certain):
                        certain[pair] = True
                        queue[found] = pair
                        found += 1


@njit(cache=True, inline="always")
def _is_certain(rows, workspace, pairs, moves, move, candidates, certain):
    """Return whether a move stays among the candidates and may lead to a certain pair."""
    return _stays_inside(rows, workspace, pairs, moves, move, candidates) and _is_forced(
        rows, workspace, pairs, moves, move, certain
    )


@njit(cache=True, nogil=True)
def grow_positive_pairs(rows, pairs, moves, selected, positive, low, high):
    """Add the pairs whose selected move leads to a positive one under every coupling."""
    workspace = _transport.allocate_workspace(rows.max_support)
    num_added = 0
    for pair in range(low, high):
        if not positive[pair] and _is_forced(
            rows, workspace, pairs, moves, selected[pair], positive
        ):
            positive[pair] = True
            num_added += 1
    return num_added


@njit(cache=True, nogil=True)
def back_up(rows, couplings, pairs, moves, values, backup, selected, low, high):
    """Write one sweep of value iteration to `backup`; return the largest increase.

    A pair selects another move only if its value increases.
    """
    workspace = _transport.allocate_workspace(rows.max_support)
    largest = 0.0
    for pair in range(low, high):
        best = values[pair]
        for move in range(moves.starts[pair], moves.starts[pair + 1]):
            n, m, common, _, _ = optimise_coupling(
                rows, couplings, workspace, pairs, moves, move, values
            )
            change, _ = compute_change(workspace, pairs.number, values, n, m, common, pair)
            value = min(values[pair] + change / rows.total, 1.0)
            if value > best + MIN_INCREASE:
                best, selected[pair] = value, move
        backup[pair] = best
        largest = max(largest, best - values[pair])
    return largest


@njit(cache=True, nogil=True)
def improve_moves(rows, couplings, pairs, moves, selected, values, slack, threshold, low, high):
    """Select moves of larger value, with optimal couplings of all moves; count the changes.

    Values are compared per unit of leaving mass; an increase up to `threshold` changes nothing.
    """
    workspace = _transport.allocate_workspace(rows.max_support)
    num_changed = 0
    for pair in range(low, high):
        own = selected[pair]
        n, m, common, _, _ = optimise_coupling(
            rows, couplings, workspace, pairs, moves, own, values
        )
        change, _ = compute_change(workspace, pairs.number, values, n, m, common, pair)
        best, choice = change / max(slack[0, own], MIN_MASS) + threshold, own
        for move in range(moves.starts[pair], moves.starts[pair + 1]):
            if move == own:
                continue
            n, m, common, _, _ = optimise_coupling(
                rows, couplings, workspace, pairs, moves, move, values
            )
            change, _ = compute_change(workspace, pairs.number, values, n, m, common, pair)
            gain = change / max(slack[0, move], MIN_MASS)
            if gain > best:
                best, choice = gain, move
        selected[pair] = choice
        num_changed += choice != own
    return num_changed

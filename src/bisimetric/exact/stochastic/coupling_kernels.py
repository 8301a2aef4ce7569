"""Kernels for stochastic MDPs: F(d), and the actions and couplings that attain it.

A move of a pair (s, t) is an action a of s and an action b of t; its value is

    gap(s, a, t, b) + discount * W1(d)(P(s, a), P(t, b)),    gap = |R(s, a) - R(t, b)| + cost.

In d~ both take the same action, which maximises. In d_lax, and where choice labels group actions,
one state maximises and the other responds, with an action of the same group. Each move is cached
from sweep to sweep: its value, how much d may change before its coupling must be checked again, and
the basis tree of the coupling. The `drift` is the sum of the largest changes of d so far, so that
little is computed where little has changed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric import _transport
from bisimetric._rounding import UNIT
from bisimetric._transport import NO_ALLOCATION

NO_MOVE = 2**32 - 1
"""The choice of a pair whose states are not comparable: labels or available actions differ."""
FLOAT32_MARGIN = 1e-6
"""The relative error of a cached float32 number, with a margin."""


class KernelMDP(NamedTuple):
    """An MDP for the kernels: row i = s * A + a of P is `row_starts[i]:row_starts[i + 1]`."""

    row_starts: NDArray[Any]
    successors: NDArray[Any]
    probabilities: NDArray[Any]
    reward: NDArray[Any]  # (S, A)
    available: NDArray[Any]  # (S, A)
    classes: NDArray[Any]  # (S,), comparison classes: others are at the diameter bound
    groups: NDArray[Any]  # (A,), with `match_freely` only actions of one group are matched
    cost: NDArray[Any]  # (1 or A, 1 or A, S, S), besides |R(s, a) - R(t, b)|, or empty
    discount: float
    diameter_bound: float
    match_freely: bool
    max_support: int


class CouplingCache(NamedTuple):
    """Values and couplings of each move; those of a pair are at pair * moves + move."""

    value: NDArray[Any]
    value_drift: NDArray[Any]  # the drift when it was computed
    optimal_until: NDArray[Any]  # the drift up to which its tree stays optimal
    choice: NDArray[Any]  # one action per pair; lax: (side * A + action) * A + response
    trees: NDArray[Any]  # a node's parent; at the root, whether there is a tree
    tree_starts: NDArray[Any]  # per state and move, or per pair and move
    preceding_support: NDArray[Any]  # (A, S) sums over smaller states; empty: starts are per pair


@njit(cache=True, inline="always")
def decode_pair(costs, pair):
    """Return the two states of a pair, the larger first."""
    if costs.pair_codes.size > 0:
        return costs.pair_codes[pair] // costs.num_states, costs.pair_codes[pair] % costs.num_states
    s = np.int64((1 + np.sqrt(1.0 + 8.0 * pair)) / 2)
    while s * (s - 1) // 2 > pair:
        s -= 1
    while (s + 1) * s // 2 <= pair:
        s += 1
    return s, pair - s * (s - 1) // 2


@njit(cache=True, inline="always")
def _compute_gap(model, s, a, t, b):
    """Return the immediate cost of a move."""
    gap, cost = abs(model.reward[s, a] - model.reward[t, b]), model.cost
    if cost.size == 0:
        return gap
    return gap + cost[min(a, cost.shape[0] - 1), min(b, cost.shape[1] - 1), s, t]


@njit(cache=True, inline="always")
def _locate_tree(model, cache, pair, s, t, move, a, b):
    """Return where the tree of a move is stored."""
    if cache.preceding_support.size == 0:
        return cache.tree_starts[pair, move]
    row = s * model.reward.shape[1] + a
    support = model.row_starts[row + 1] - model.row_starts[row]
    return cache.tree_starts[s, move] + t * support + cache.preceding_support[b, t]


@njit(**NO_ALLOCATION)
def _load_problem(model, cache, workspace, pair, s, t, move, a, b):
    """Load the transport problem of a move with its last tree and flows; return its size."""
    actions = model.reward.shape[1]
    p, q = s * actions + a, t * actions + b
    row_starts = model.row_starts
    n, m = _transport.cancel_common_mass(
        workspace, model.successors, model.probabilities, row_starts[p], row_starts[p + 1],
        row_starts[q], row_starts[q + 1],
    )  # fmt: skip
    if n == 0 or m == 0:
        return 0, 0
    start = _locate_tree(model, cache, pair, s, t, move, a, b)
    if n == 1 or m == 1 or cache.trees[start] == 0:
        _transport.build_northwest_tree(workspace, n, m)
    else:
        for v in range(1, n + m):
            workspace.ints[_transport.PARENT, v] = cache.trees[start + v]
    _transport.compute_flows(workspace, n, m)
    return n, m


@njit(**NO_ALLOCATION)
def _evaluate_move(
    model, cache, workspace, costs, pair, s, t, move, a, b, drift, recheck_all, enough
):
    """Return the value of a move, the error of W1, and whether the coupling is optimal.

    The last coupling bounds the value from above; a bound of at most `enough` is returned as is.
    """
    n, m = _load_problem(model, cache, workspace, pair, s, t, move, a, b)
    gap, w1_error = _compute_gap(model, s, a, t, b), 0.0
    at = pair * (cache.value.size // cache.choice.size) + move
    value = gap + model.discount * _transport.compute_cost(workspace, costs, n, m)
    if value <= enough:
        return value, 0.0, False
    if n > 1 and m > 1 and (recheck_all or not drift < cache.optimal_until[at]):
        largest = _transport.gather_costs(workspace, costs, n, m)
        least, max_potential = _transport.optimise_tree(workspace, n, m, largest)
        # Weak duality, whatever the potentials: no coupling costs less by more than reduced costs
        # are off, per unit of mass. Outside the tree they are at least -REDUCED_COST_TOLERANCE *
        # largest, or `least` where pivots ran out. In the tree they are 0 but for rounding: each of
        # at most 2 * support pivots rounds the potentials and flows that it changes; 16 more are
        # for computing them.
        w1_error = (_transport.REDUCED_COST_TOLERANCE + (4 * model.max_support + 16) * UNIT) * (
            largest + 2 * max_potential
        )
        w1_error = max(w1_error, w1_error - least)
        # A reduced cost is a sum of at most n + m costs.
        cache.optimal_until[at] = drift + (least / (n + m) - FLOAT32_MARGIN * drift) * (
            1 - FLOAT32_MARGIN
        )
        start = _locate_tree(model, cache, pair, s, t, move, a, b)
        cache.trees[start] = 1
        for v in range(1, n + m):
            cache.trees[start + v] = workspace.ints[_transport.PARENT, v]
        value = gap + model.discount * _transport.compute_cost(workspace, costs, n, m)
    cache.value[at], cache.value_drift[at] = value, drift
    return value, w1_error, True


@njit(**NO_ALLOCATION)
def _update_bisimulation(
    model, cache, workspace, costs, pair, s, t, drift, hold_actions, recheck_all, w1_error
):
    """Find the best action of a pair: the last choice first, others if they may be better."""
    actions = model.reward.shape[1]
    last = np.int64(cache.choice[pair])
    while not model.available[s, last]:
        last = (last + 1) % actions
    value, best = -1.0, last
    for turn in range(1 if hold_actions else actions):
        a = (last + turn) % actions
        if not model.available[s, a]:
            continue
        at = pair * actions + a
        upper_bound = cache.value[at] + model.discount * (drift - cache.value_drift[at])
        if upper_bound + FLOAT32_MARGIN * (upper_bound + drift) < value:
            continue
        candidate, error, is_optimal = _evaluate_move(
            model, cache, workspace, costs, pair, s, t, a, a, a, drift, recheck_all, value
        )
        w1_error = max(w1_error, error)
        if is_optimal and candidate > value:
            value, best = candidate, a
    cache.choice[pair] = best
    return value, w1_error


@njit(**NO_ALLOCATION)
def _update_lax(
    model, cache, workspace, costs, pair, s, t, drift, hold_actions, recheck_all, w1_error, known,
    evaluated,
):  # fmt: skip
    """Compute the Hausdorff distance of the two sets of actions, from the moves that may matter.

    `known` (A, A) holds the value of each move, or its last cached value.
    """
    actions = model.reward.shape[1]
    for a in range(actions):
        for b in range(actions):
            evaluated[a, b] = not (
                model.available[s, a]
                and model.available[t, b]
                and model.groups[a] == model.groups[b]
            )
            known[a, b] = (
                np.inf if evaluated[a, b] else cache.value[(pair * actions + a) * actions + b]
            )
    last = np.int64(cache.choice[pair])
    value, choice = -1.0, last
    for turn in range(1 if hold_actions else 2 * actions):
        # The last choice first: its value rules out most others.
        turn = (turn + last // actions) % (2 * actions)
        side, own = turn // actions, turn % actions
        if not (model.available[s, own] if side == 0 else model.available[t, own]):
            continue
        while True:
            least, response, floor, guess = _find_responses(
                cache, known, evaluated, pair, side, own, drift, model.discount
            )
            if least <= value or floor >= least:
                break
            a, b = (own, guess) if side == 0 else (guess, own)
            candidate, error, is_optimal = _evaluate_move(
                model, cache, workspace, costs, pair, s, t, a * actions + b, a, b, drift,
                recheck_all, value,
            )  # fmt: skip
            if not is_optimal:
                least = candidate
                break
            known[a, b], evaluated[a, b] = candidate, True
            w1_error = max(w1_error, error)
        if least > value:
            value, choice = least, turn * actions + response
    cache.choice[pair] = choice
    return value, w1_error


@njit(**NO_ALLOCATION)
def _find_responses(cache, known, evaluated, pair, side, own, drift, discount):
    """Find the best response among the evaluated ones, and the most promising of the others.

    Each with its value, which is a lower bound for the second.
    """
    actions = len(known)
    least, response, floor, guess = np.inf, -1, np.inf, -1
    for other in range(actions):
        a, b = (own, other) if side == 0 else (other, own)
        if evaluated[a, b]:
            if known[a, b] < least:
                least, response = known[a, b], other
        else:
            change = discount * (drift - cache.value_drift[(pair * actions + a) * actions + b])
            bound = known[a, b] - change - FLOAT32_MARGIN * (known[a, b] + drift)
            if guess < 0 or bound < floor:
                floor, guess = bound, other
    return least, response, floor, guess


@njit(cache=True, nogil=True)
def sweep(model, cache, costs, backup, drift, hold_actions, recheck_all, pairs, low, high):
    """Write F(d) of some pairs to `backup`; return the largest |F(d) - d|, F(d) and W1 error.

    The pairs are `pairs[low:high]`, or range(low, high) if `pairs` is empty; `backup` is indexed
    like `pairs`. With `hold_actions` each pair keeps its last action, and only couplings (and
    responses) are computed. With `recheck_all` no coupling counts as optimal without a check.
    """
    actions = model.reward.shape[1]
    workspace = _transport.allocate_workspace(model.max_support)
    known, evaluated = np.empty((actions, actions)), np.empty((actions, actions), np.bool_)
    return _sweep_pairs(
        model, cache, workspace, costs, backup, drift, hold_actions, recheck_all, pairs, known,
        evaluated, low, high,
    )  # fmt: skip


@njit(**NO_ALLOCATION)
def _sweep_pairs(
    model, cache, workspace, costs, backup, drift, hold_actions, recheck_all, pairs, known,
    evaluated, low, high,
):  # fmt: skip
    """Sweep some pairs, with memory for their transport problems."""
    residual, largest, w1_error = 0.0, 0.0, 0.0
    for at in range(low, high):
        pair = pairs[at] if pairs.size > 0 else at
        s, t = decode_pair(costs, pair)
        if model.classes[s] != model.classes[t]:
            cache.choice[pair] = NO_MOVE
            value = model.diameter_bound
        elif model.match_freely:
            value, w1_error = _update_lax(
                model, cache, workspace, costs, pair, s, t, drift, hold_actions, recheck_all,
                w1_error, known, evaluated,
            )  # fmt: skip
        else:
            value, w1_error = _update_bisimulation(
                model, cache, workspace, costs, pair, s, t, drift, hold_actions, recheck_all,
                w1_error,
            )  # fmt: skip
        backup[at] = value
        before = _transport.look_up_distance(costs.values, costs.pair_codes, costs.num_states, s, t)
        residual = max(residual, abs(value - before))
        largest = max(largest, value)
    return residual, largest, w1_error


@njit(**NO_ALLOCATION)
def _decode_choice(model, cache, pair):
    """Return the chosen move of a pair, and its two actions."""
    actions, choice = model.reward.shape[1], np.int64(cache.choice[pair])
    if not model.match_freely:
        return choice, choice, choice
    own, response = choice // actions % actions, choice % actions
    a, b = (own, response) if choice < actions * actions else (response, own)
    return a * actions + b, a, b


@njit(**NO_ALLOCATION)
def _find_edge_states(workspace, n, v):
    """Return the two states of the edge above a node of a coupling's tree."""
    u = workspace.ints[_transport.PARENT, v]
    i, j = (v, u - n) if v < n else (u, v - n)
    return workspace.ints[_transport.ROW_STATE, i], workspace.ints[_transport.COLUMN_STATE, j]


@njit(nogil=True, **NO_ALLOCATION)
def count_successors(model, cache, costs, counts, pairs, low, high):
    """Set counts[i + 1] to the maximal number of successors of the chosen coupling of pair i.

    It is `pairs[i]`, or i if `pairs` is empty.
    """
    actions, row_starts = model.reward.shape[1], model.row_starts
    for at in range(low, high):
        pair = pairs[at] if pairs.size > 0 else at
        counts[at + 1] = 0
        if cache.choice[pair] != NO_MOVE:
            s, t = decode_pair(costs, pair)
            _, a, b = _decode_choice(model, cache, pair)
            p, q = s * actions + a, t * actions + b
            counts[at + 1] = (
                row_starts[p + 1] - row_starts[p] + row_starts[q + 1] - row_starts[q] - 1
            )


@njit(cache=True, nogil=True)
def write_policy_matrix(
    model, cache, costs, starts, successors, masses, gaps, pairs, position, low, high
):
    """Write the chosen couplings as a sparse matrix of pairs, and their immediate costs.

    Row i is that of `pairs[i]`, and `position` holds the row of each pair, or -1; if both are
    empty, row i is that of pair i. A successor without a row is a constant, and so part of the
    immediate cost. Unused entries of a row hold mass 0.
    """
    workspace = _transport.allocate_workspace(model.max_support)
    _write_policy_rows(
        model, cache, workspace, costs, starts, successors, masses, gaps, pairs, position, low, high
    )


@njit(**NO_ALLOCATION)
def _write_policy_rows(
    model, cache, workspace, costs, starts, successors, masses, gaps, pairs, position, low, high
):
    """Write some rows of the policy matrix, with memory for their transport problems."""
    values, pair_codes, num_states = costs.values, costs.pair_codes, costs.num_states
    for row in range(low, high):
        pair = pairs[row] if pairs.size > 0 else row
        at = starts[row]
        if cache.choice[pair] == NO_MOVE:
            gaps[row] = model.diameter_bound
            continue
        s, t = decode_pair(costs, pair)
        move, a, b = _decode_choice(model, cache, pair)
        gap = _compute_gap(model, s, a, t, b)
        n, m = _load_problem(model, cache, workspace, pair, s, t, move, a, b)
        for v in range(1, n + m):
            flow = workspace.reals[_transport.FLOW, v]
            if flow > 0:
                x, y = _find_edge_states(workspace, n, v)
                successor = _transport.find_pair(pair_codes, num_states, x, y)
                if successor >= 0 and position.size > 0:
                    successor = position[successor]
                if successor >= 0:
                    successors[at], masses[at] = successor, flow
                    at += 1
                else:
                    distance = _transport.look_up_distance(values, pair_codes, num_states, x, y)
                    gap += model.discount * flow * distance
        for rest in range(at, starts[row + 1]):
            successors[rest], masses[rest] = row, 0.0
        gaps[row] = gap


@njit(cache=True)
def apply_operator_at(model, costs, s, t):
    """Compute F(d) of d~ at one pair, without the cache."""
    workspace = _transport.allocate_workspace(model.max_support)
    actions, row_starts = model.reward.shape[1], model.row_starts
    value = 0.0
    if model.classes[s] != model.classes[t]:
        return model.diameter_bound
    for a in range(actions):
        p, q = s * actions + a, t * actions + a
        n, m = _transport.cancel_common_mass(
            workspace, model.successors, model.probabilities, row_starts[p], row_starts[p + 1],
            row_starts[q], row_starts[q + 1],
        )  # fmt: skip
        cost = 0.0
        if n > 0 and m > 0:
            _transport.build_northwest_tree(workspace, n, m)
            _transport.compute_flows(workspace, n, m)
            _transport.optimise_tree(
                workspace, n, m, _transport.gather_costs(workspace, costs, n, m)
            )
            cost = _transport.compute_cost(workspace, costs, n, m)
        if model.available[s, a]:
            value = max(value, _compute_gap(model, s, a, t, a) + model.discount * cost)
    return value


@njit(nogil=True, **NO_ALLOCATION)
def fill_symmetric(values, matrix, low, high):
    """Fill rows low to high of a symmetric matrix, and the mirrored columns, from the values of
    the pairs t < s; return the largest change of an entry."""
    moved = 0.0
    for s in range(low, high):
        for t in range(s):
            value = values[s * (s - 1) // 2 + t]
            moved = max(moved, abs(value - matrix[s, t]))
            matrix[s, t] = value
            matrix[t, s] = value
    return moved


@njit(nogil=True, **NO_ALLOCATION)
def write_values(values, pairs, costs, low, high):
    """Set the distances of `pairs[low:high]`; return the largest change."""
    moved = 0.0
    for at in range(low, high):
        pair, value = pairs[at], values[at]
        if costs.pair_codes.size > 0:
            moved = max(moved, abs(value - costs.values[0, 1 + pair]))
            costs.values[0, 1 + pair] = value
        else:
            s, t = decode_pair(costs, pair)
            moved = max(moved, abs(value - costs.values[s, t]))
            costs.values[s, t] = value
            costs.values[t, s] = value
    return moved

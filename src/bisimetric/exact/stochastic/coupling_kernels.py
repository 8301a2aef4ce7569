"""Kernels for stochastic MDPs: F(d), and the actions and couplings that attain it.

A move of a pair (s, t) is an action a of s and an action b of t; its value is

    gap(s, a, t, b) + discount * W1(d)(P(s, a), P(t, b)),    gap = |R(s, a) - R(t, b)| + cost.

In d~ both take the same action, which maximises. In d_lax, and where choice labels group actions,
one state maximises and the other responds, with an action of the same group. Two things of each
move are cached from sweep to sweep: a bound on its value, and the basis tree of its coupling. Upper
bounds of d~ rise by the `drift`, the sum of the largest increases of d so far, and lower bounds of
d_lax fall by that of the largest decreases, so that most moves are ruled out without a look at
their coupling. What a sweep returns is checked in that sweep:
every coupling that attains F(d) is optimal for d, by its reduced costs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric import _transport
from bisimetric._transport import NO_ALLOCATION
from bisimetric.exact._intrinsics import pack_rows
from bisimetric.exact.stochastic.distance_kernels import find_next_pair
from bisimetric.exact.stochastic.move_cache import (
    FLOAT32_MARGIN,
    decode_bound,
    encode_bound,
    locate_pair,
    locate_tree,
    read_node,
    write_node,
)


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


@njit(cache=True, inline="always")
def decode_choice(model, choice, pair):
    """Return the two actions of the chosen move of a pair."""
    actions, chosen = model.reward.shape[1], np.int64(choice[pair])
    if not model.match_freely:
        return chosen, chosen
    own, response = chosen // actions % actions, chosen % actions
    return (own, response) if chosen < actions * actions else (response, own)


@njit(cache=True, inline="always")
def _compute_gap(model, s, a, t, b):
    """Return the immediate cost of a move."""
    gap, cost = abs(model.reward[s, a] - model.reward[t, b]), model.cost
    if cost.size == 0:
        return gap
    return gap + cost[min(a, cost.shape[0] - 1), min(b, cost.shape[1] - 1), s, t]


@njit(**NO_ALLOCATION)
def _load_problem(model, cache, workspace, pair, s, t, a, b):
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
    start = locate_tree(model, cache, pair, s, t, a, b)
    if n == 1 or m == 1 or read_node(cache, start) == 0:
        _transport.build_northwest_tree(workspace, n, m)
    else:
        parents = workspace.ints[_transport.PARENT]
        for v in range(1, n):
            parents[v] = n + np.int64(read_node(cache, start + v))
        for v in range(n, n + m):
            parents[v] = read_node(cache, start + v)
    _transport.compute_flows(workspace, n, m)
    return n, m


@njit(**NO_ALLOCATION)
def _store_tree(cache, workspace, n, m, start):
    """Store the tree of a move."""
    parents = workspace.ints[_transport.PARENT]
    write_node(cache, start, 1)
    for v in range(1, n):
        write_node(cache, start + v, parents[v] - n)
    for v in range(n, n + m):
        write_node(cache, start + v, parents[v])


@njit(**NO_ALLOCATION)
def _evaluate_move(model, cache, workspace, costs, pair, s, t, a, b, drift, enough):
    """Return the value of a move, the error of W1, and whether its coupling is optimal and new.

    The last coupling bounds the value from above; a bound of at most `enough` is returned as is.
    """
    n, m = _load_problem(model, cache, workspace, pair, s, t, a, b)
    gap, w1_error, is_optimal, is_new = _compute_gap(model, s, a, t, b), 0.0, True, True
    actions = model.reward.shape[1]
    moves, move = (actions * actions, a * actions + b) if model.match_freely else (actions, a)
    is_choice, value = n > 1 and m > 1, gap
    if is_choice and enough >= 0:
        value = gap + model.discount * _transport.compute_cost(workspace, costs, n, m)
        is_optimal = value > enough
    if is_choice and is_optimal:
        largest = _transport.gather_costs(workspace, costs, n, m)
        is_bounded = enough >= 0 and model.discount > 0
        excess = (value - enough) / model.discount if is_bounded else np.inf
        least, max_potential, pivots = _transport.reduce_cost(workspace, n, m, largest, excess)
        if least == -np.inf:
            # Without the rounding of the pivots.
            _transport.compute_flows(workspace, n, m)
            value = gap + model.discount * _transport.compute_cost(workspace, costs, n, m)
            is_optimal = value > enough
            if is_optimal:
                least, max_potential, _ = _transport.optimise_tree(workspace, n, m, largest)
        start = locate_tree(model, cache, pair, s, t, a, b)
        is_new = pivots > 0 or read_node(cache, start) == 0
        if is_new:
            _store_tree(cache, workspace, n, m, start)
        if is_optimal:
            w1_error = _transport.bound_transport_error(
                largest, least, max_potential, model.max_support
            )
    if is_optimal:
        value = gap + model.discount * _transport.compute_cost(workspace, costs, n, m)
    if not model.match_freely:
        cache.bound[pair * moves + move] = encode_bound(value - model.discount * drift)
    elif is_optimal:
        cache.bound[pair * moves + move] = encode_bound(-value - model.discount * drift)
    return value, w1_error, is_optimal, is_new


@njit(**NO_ALLOCATION)
def _update_bisimulation(
    model, cache, workspace, costs, couplings, pair, s, t, drift, hold_actions
):
    """Find the best action of a pair: the last choice first, others if they may be better."""
    actions, w1_error = model.reward.shape[1], 0.0
    last, any_new = np.int64(cache.choice[pair]), False
    while not model.available[s, last]:
        last = (last + 1) % actions
    value, best = -1.0, last
    for turn in range(1 if hold_actions else actions):
        a = (last + turn) % actions
        if not model.available[s, a]:
            continue
        upper_bound = decode_bound(cache.bound[pair * actions + a]) + model.discount * drift
        if upper_bound + FLOAT32_MARGIN * (upper_bound + drift) < value:
            continue
        candidate, error, is_optimal, is_new = _evaluate_move(
            model, cache, workspace, costs, pair, s, t, a, a, drift, value
        )
        w1_error = max(w1_error, error)
        if is_optimal:
            any_new = any_new or is_new
            if candidate > value:
                value, best = candidate, a
    if any_new or best != last:
        cache.choice[pair] = best
        _write_coupling(model, cache, workspace, costs, couplings, pair, s, t, best, best)
    return value, w1_error


@njit(**NO_ALLOCATION)
def _update_lax(
    model, cache, workspace, costs, couplings, pair, s, t, drift, hold_actions, known, evaluated
):
    """Compute the Hausdorff distance of the two sets of actions, from the moves that may matter.

    `known` (A, A) holds the value of each move, or a lower bound.
    """
    actions, w1_error = model.reward.shape[1], 0.0
    for a in range(actions):
        for b in range(actions):
            evaluated[a, b] = not (
                model.available[s, a]
                and model.available[t, b]
                and model.groups[a] == model.groups[b]
            )
            code = cache.bound[(pair * actions + a) * actions + b]
            bound = -decode_bound(code) - model.discount * drift
            bound -= FLOAT32_MARGIN * (abs(bound) + 2 * drift)
            known[a, b] = np.inf if evaluated[a, b] else bound
    last = np.int64(cache.choice[pair])
    value, choice, any_new = -1.0, last, False
    for turn in range(1 if hold_actions else 2 * actions):
        # The last choice first: its value rules out most others.
        turn = (turn + last // actions) % (2 * actions)
        side, own = turn // actions, turn % actions
        if not (model.available[s, own] if side == 0 else model.available[t, own]):
            continue
        while True:
            least, response, floor, guess = _find_responses(known, evaluated, side, own)
            if least <= value or floor >= least:
                break
            a, b = (own, guess) if side == 0 else (guess, own)
            candidate, error, is_optimal, is_new = _evaluate_move(
                model, cache, workspace, costs, pair, s, t, a, b, drift, value
            )
            any_new = any_new or (is_optimal and is_new)
            if not is_optimal:
                least = candidate
                break
            known[a, b], evaluated[a, b] = candidate, True
            w1_error = max(w1_error, error)
        if least > value:
            value, choice = least, turn * actions + response
    if any_new or choice != last:
        cache.choice[pair] = choice
        a, b = decode_choice(model, cache.choice, pair)
        _write_coupling(model, cache, workspace, costs, couplings, pair, s, t, a, b)
    return value, w1_error


@njit(**NO_ALLOCATION)
def _write_coupling(model, cache, workspace, costs, couplings, pair, s, t, a, b):
    """Write the last coupling of a move as that of the chosen move of a pair."""
    n, m = _load_problem(model, cache, workspace, pair, s, t, a, b)
    actions, starts, states = model.reward.shape[1], model.row_starts, model.successors
    ints, flows = workspace.ints, workspace.reals[_transport.FLOW]
    # No child is needed any more: their memory is for the positions of the nodes in their rows.
    parents, positions = ints[_transport.PARENT], ints[_transport.FIRST_CHILD]
    p, q = starts[s * actions + a], starts[t * actions + b]
    at = locate_pair(couplings.layout, pair, s, t)
    end = at + starts[s * actions + a + 1] - p + starts[t * actions + b + 1] - q - 1
    state = p
    for i in range(n):
        while states[state] != ints[_transport.ROW_STATE, i]:
            state += 1
        positions[i] = state - p
        state += 1
    state = q
    for j in range(m):
        while states[state] != ints[_transport.COLUMN_STATE, j]:
            state += 1
        positions[n + j] = state - q
        state += 1
    for v in range(1, n + m):
        u = parents[v]
        i, j = (positions[v], positions[u]) if v < n else (positions[u], positions[v])
        successor = (i << couplings.shift) + j
        if costs.pair_codes.size > 0:
            successor = _transport.find_pair(
                costs.pair_codes, costs.num_states, states[p + i], states[q + j]
            )
        mass = flows[v] / couplings.unit
        if couplings.unit < 1:
            mass = np.floor(mass + 0.5)
        if mass > 0 and successor >= 0:
            couplings.successors[at], couplings.masses[at] = successor, mass
            at += 1
    if at < end:
        couplings.masses[at] = 0


@njit(**NO_ALLOCATION)
def _find_responses(known, evaluated, side, own):
    """Find the best response among the evaluated ones, and the most promising of the others.

    Each with its value, which is a lower bound for the second.
    """
    least, response, floor, guess = np.inf, -1, np.inf, -1
    for other in range(len(known)):
        a, b = (own, other) if side == 0 else (other, own)
        if evaluated[a, b]:
            if known[a, b] < least:
                least, response = known[a, b], other
        elif guess < 0 or known[a, b] < floor:
            floor, guess = known[a, b], other
    return least, response, floor, guess


@njit(cache=True, nogil=True)
def sweep(
    model, cache, costs, couplings, residuals, drift, hold_actions, in_place, pairs, block_size,
    maxima, low, high,
):  # fmt: skip
    """Write F(d) - d of some blocks of pairs, and the couplings that attain it.

    `maxima` receives per block the largest |F(d) - d|, F(d) and W1 error.

    Blocks are those of `pairs`, or of all pairs if that is empty. With `hold_actions` each pair
    keeps its last action, and only couplings (and responses) are computed. With `in_place` d is set
    to F(d): for pairs that do not depend on each other.
    """
    actions = model.reward.shape[1]
    workspace = _transport.allocate_workspace(model.max_support)
    known, evaluated = np.empty((actions, actions)), np.empty((actions, actions), np.bool_)
    count = pairs.size if pairs.size > 0 else len(residuals)
    for block in range(low, high):
        first = block * block_size
        maxima[block, 0], maxima[block, 1], maxima[block, 2] = _sweep_pairs(
            model, cache, workspace, costs, couplings, residuals, drift, hold_actions, in_place,
            pairs, known, evaluated, first, min(first + block_size, count),
        )  # fmt: skip


@njit(cache=True)
def prepare_sweep(pack, *arguments):
    return pack_rows(sweep, pack, arguments)


@njit(**NO_ALLOCATION)
def _sweep_pairs(
    model, cache, workspace, costs, couplings, residuals, drift, hold_actions, in_place, pairs,
    known, evaluated, low, high,
):  # fmt: skip
    """Sweep some pairs, with memory for their transport problems."""
    max_residual, largest, w1_error = 0.0, 0.0, 0.0
    s = t = 0
    for row in range(low, high):
        pair, s, t = find_next_pair(costs, pairs, row, low, s, t)
        if model.classes[s] != model.classes[t]:
            value, error = model.diameter_bound, 0.0
        elif model.match_freely:
            value, error = _update_lax(
                model, cache, workspace, costs, couplings, pair, s, t, drift, hold_actions, known,
                evaluated,
            )  # fmt: skip
        else:
            value, error = _update_bisimulation(
                model, cache, workspace, costs, couplings, pair, s, t, drift, hold_actions
            )
        residual = value - costs.values[1 + pair]
        residuals[pair] = residual
        if in_place:
            costs.values[1 + pair] = value
        max_residual = max(max_residual, abs(residual))
        largest = max(largest, value)
        w1_error = max(w1_error, error)
    return max_residual, largest, w1_error


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
        _, _, cost, _ = _transport.solve_w1(
            workspace, model.successors, model.probabilities, row_starts[p], row_starts[p + 1],
            row_starts[q], row_starts[q + 1], costs, model.max_support,
        )  # fmt: skip
        if model.available[s, a]:
            value = max(value, _compute_gap(model, s, a, t, a) + model.discount * cost)
    return value

"""Kernels for pairs that branch: F(d), and the actions and couplings that attain it.

A move of a pair (s, t) is an action a of s and an action b of t; its worth is

    |R(s, a) - R(t, b)| + discount * W1(d)(P(s, a), P(t, b)).

d~ lets both take the same action, the best for the distance; d_lax lets one choose and the other
answer. What is known of each move stays from sweep to sweep: its worth, how much the table may move
before its coupling must be looked at again, and the coupling's tree. With the `drift`, the sum of
the largest changes of the table so far, that leaves little to do where little has changed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric import _transport
from bisimetric._rounding import UNIT

NO_MOVE = 2**32 - 1
"""The choice of a pair that has none: its states differ in the actions that they have."""
FLOAT32_MARGIN = 1e-6
"""The share of its size that a remembered number, in float32, may be wrong by."""


class KernelMDP(NamedTuple):
    """An MDP as the kernels read it: row s * A + a of P is `first[row]:first[row + 1]`."""

    first: NDArray[Any]
    states: NDArray[Any]
    share: NDArray[Any]
    reward: NDArray[Any]  # (S, A)
    has: NDArray[Any]  # (S, A)
    discount: float
    farthest: float  # the distance of two states that differ in the actions that they have
    lax: bool
    support: int  # of the widest row


class CouplingCache(NamedTuple):
    """What is known of each move; those of a pair are at pair * moves + move."""

    worth: NDArray[Any]
    when: NDArray[Any]  # the drift when it was computed
    safe: NDArray[Any]  # the drift up to which its tree stays optimal
    choice: NDArray[Any]  # an action a pair; lax: (whose * A + action) * A + answer
    trees: NDArray[Any]  # a node's parent; at the root, whether there is a tree
    slots: NDArray[Any]  # where the trees begin: of a state and a move, or of a pair and a move
    before: NDArray[Any]  # (A, S) the supports of all earlier states; empty: slots are of pairs


@njit(cache=True, inline="always")
def decode_pair(costs, pair):
    """The two states of a pair, the larger first."""
    if costs.codes.size > 0:
        return costs.codes[pair] // costs.states, costs.codes[pair] % costs.states
    s = np.int64((1 + np.sqrt(1.0 + 8.0 * pair)) / 2)
    while s * (s - 1) // 2 > pair:
        s -= 1
    while (s + 1) * s // 2 <= pair:
        s += 1
    return s, pair - s * (s - 1) // 2


@njit(cache=True, inline="always")
def _locate_tree(model, memory, pair, s, t, move, a, b):
    """Where the tree of a move is kept."""
    if memory.before.size == 0:
        return memory.slots[pair, move]
    row = s * model.reward.shape[1] + a
    support = model.first[row + 1] - model.first[row]
    return memory.slots[s, move] + t * support + memory.before[b, t]


@njit(cache=True)
def _load_problem(model, memory, room, pair, s, t, move, a, b):
    """The reduced problem of a move with its last tree, and its flows; its rows and columns."""
    actions = model.reward.shape[1]
    p, q = s * actions + a, t * actions + b
    first = model.first
    n, m = _transport.cancel_common_mass(
        room, model.states, model.share, first[p], first[p + 1], first[q], first[q + 1]
    )
    if n == 0 or m == 0:
        return 0, 0
    slot = _locate_tree(model, memory, pair, s, t, move, a, b)
    if n == 1 or m == 1 or memory.trees[slot] == 0:
        _transport.build_northwest_tree(room, n, m)
    else:
        for v in range(1, n + m):
            room.ints[_transport.PARENT, v] = memory.trees[slot + v]
    _transport.compute_flows(room, n, m)
    return n, m


@njit(cache=True)
def _evaluate_move(model, memory, room, costs, pair, s, t, move, a, b, drift, thorough, enough):
    """The worth of a move, the error that W1 may have, and whether it was worked out.

    The last coupling bounds it from above; where that bound is `enough`, it is returned as it is.
    """
    n, m = _load_problem(model, memory, room, pair, s, t, move, a, b)
    gap, doubt = abs(model.reward[s, a] - model.reward[t, b]), 0.0
    at = pair * (memory.worth.size // memory.choice.size) + move
    value = gap + model.discount * _transport.compute_cost(room, costs, n, m)
    if value <= enough:
        return value, 0.0, False
    if n > 1 and m > 1 and (thorough or not drift < memory.safe[at]):
        largest = _transport.gather_costs(room, costs, n, m)
        least, longest = _transport.optimise_tree(room, n, m, largest)
        # Weak duality, whatever the potentials: no coupling costs less by more than reduced costs
        # are off, per unit of mass. Outside the tree they are at least -LOOSE * largest, or `least`
        # where pivots ran out. In the tree they are 0 but for rounding: each of at most 2 * support
        # pivots rounds the potentials and flows that it changes; 16 more are for computing them.
        doubt = (_transport.REDUCED_COST_TOLERANCE + (4 * model.support + 16) * UNIT) * (
            largest + 2 * longest
        )
        doubt = max(doubt, doubt - least)
        # A reduced cost is a sum of at most n + m costs.
        memory.safe[at] = drift + (least / (n + m) - FLOAT32_MARGIN * drift) * (1 - FLOAT32_MARGIN)
        slot = _locate_tree(model, memory, pair, s, t, move, a, b)
        memory.trees[slot] = 1
        for v in range(1, n + m):
            memory.trees[slot + v] = room.ints[_transport.PARENT, v]
        value = gap + model.discount * _transport.compute_cost(room, costs, n, m)
    memory.worth[at], memory.when[at] = value, drift
    return value, doubt, True


@njit(cache=True)
def _update_bisimulation(model, memory, room, costs, pair, s, t, drift, held, thorough, doubt):
    """The best action of a pair, the last choice first, the others if they may be better."""
    actions = model.reward.shape[1]
    for a in range(actions):
        if model.has[s, a] != model.has[t, a]:
            memory.choice[pair] = NO_MOVE
            return model.farthest, doubt
    last = np.int64(memory.choice[pair])
    while not model.has[s, last]:
        last = (last + 1) % actions
    value, best = -1.0, last
    for turn in range(1 if held else actions):
        a = (last + turn) % actions
        if not model.has[s, a]:
            continue
        at = pair * actions + a
        most = memory.worth[at] + model.discount * (drift - memory.when[at])
        if most + FLOAT32_MARGIN * (most + drift) < value:
            continue
        worth, off, exact = _evaluate_move(
            model, memory, room, costs, pair, s, t, a, a, a, drift, thorough, value
        )
        doubt = max(doubt, off)
        if exact and worth > value:
            value, best = worth, a
    memory.choice[pair] = best
    return value, doubt


@njit(cache=True)
def _update_lax(model, memory, room, costs, pair, s, t, drift, held, thorough, doubt, known, done):
    """The Hausdorff distance of the two sets of actions; only moves that may matter are worked out.

    `known` (A, A) holds each move's worth, or what it was when it was last looked at.
    """
    actions = model.reward.shape[1]
    for a in range(actions):
        for b in range(actions):
            done[a, b] = not (model.has[s, a] and model.has[t, b])
            known[a, b] = np.inf if done[a, b] else memory.worth[(pair * actions + a) * actions + b]
    last = np.int64(memory.choice[pair])
    value, choice = -1.0, last
    for turn in range(1 if held else 2 * actions):
        # The last choice first: what it is worth rules out most others.
        turn = (turn + last // actions) % (2 * actions)
        side, own = turn // actions, turn % actions
        if not (model.has[s, own] if side == 0 else model.has[t, own]):
            continue
        while True:
            least, answer, floor, guess = _find_responses(
                memory, known, done, pair, side, own, drift, model.discount
            )
            if least <= value or floor >= least:
                break
            a, b = (own, guess) if side == 0 else (guess, own)
            worth, off, exact = _evaluate_move(
                model, memory, room, costs, pair, s, t, a * actions + b, a, b, drift, thorough,
                value,
            )  # fmt: skip
            if not exact:
                least = worth
                break
            known[a, b], done[a, b] = worth, True
            doubt = max(doubt, off)
        if least > value:
            value, choice = least, turn * actions + answer
    memory.choice[pair] = choice
    return value, doubt


@njit(cache=True)
def _find_responses(memory, known, done, pair, side, own, drift, discount):
    """The best answer to an action among those worked out, and the most promising of the others.

    Each with its worth, which for the other is a lower bound.
    """
    actions = len(known)
    least, answer, floor, guess = np.inf, -1, np.inf, -1
    for other in range(actions):
        a, b = (own, other) if side == 0 else (other, own)
        if done[a, b]:
            if known[a, b] < least:
                least, answer = known[a, b], other
        else:
            change = discount * (drift - memory.when[(pair * actions + a) * actions + b])
            bound = known[a, b] - change - FLOAT32_MARGIN * (known[a, b] + drift)
            if guess < 0 or bound < floor:
                floor, guess = bound, other
    return least, answer, floor, guess


@njit(cache=True, nogil=True)
def sweep(model, memory, costs, image, drift, held, thorough, low, high):
    """F(d) of the pairs from low to high into `image`; the largest |F(d) - d|, F(d), doubt of W1.

    Where actions are `held`, each pair keeps the action that it chose last, and only couplings (and
    answers) are found anew. A `thorough` sweep takes no coupling for optimal without looking.
    """
    actions = model.reward.shape[1]
    room = _transport.allocate_workspace(model.support)
    known, done = np.empty((actions, actions)), np.empty((actions, actions), np.bool_)
    residual, largest, doubt = 0.0, 0.0, 0.0
    for pair in range(low, high):
        s, t = decode_pair(costs, pair)
        if model.lax:
            value, doubt = _update_lax(
                model, memory, room, costs, pair, s, t, drift, held, thorough, doubt, known, done
            )
        else:
            value, doubt = _update_bisimulation(
                model, memory, room, costs, pair, s, t, drift, held, thorough, doubt
            )
        image[pair] = value
        before = _transport.look_up_distance(costs.table, costs.codes, costs.states, s, t)
        residual = max(residual, abs(value - before))
        largest = max(largest, value)
    return residual, largest, doubt


@njit(cache=True)
def _decode_choice(model, memory, pair):
    """The move that a pair has chosen, and its two actions."""
    actions, choice = model.reward.shape[1], np.int64(memory.choice[pair])
    if not model.lax:
        return choice, choice, choice
    own, answer = choice // actions % actions, choice % actions
    a, b = (own, answer) if choice < actions * actions else (answer, own)
    return a * actions + b, a, b


@njit(cache=True)
def _find_edge_pair(room, costs, n, v):
    """The pair that the edge above a node of a coupling's tree leads to, or -1."""
    u = room.ints[_transport.PARENT, v]
    i, j = (v, u - n) if v < n else (u, v - n)
    x, y = room.ints[_transport.ROW_STATE, i], room.ints[_transport.COLUMN_STATE, j]
    return _transport.find_pair(costs.codes, costs.states, x, y)


@njit(cache=True, nogil=True)
def count_successors(model, memory, costs, counts, low, high):
    """The most pairs that the chosen couplings lead each pair to: counts[pair + 1]."""
    actions, first = model.reward.shape[1], model.first
    for pair in range(low, high):
        counts[pair + 1] = 0
        if memory.choice[pair] != NO_MOVE:
            s, t = decode_pair(costs, pair)
            _, a, b = _decode_choice(model, memory, pair)
            p, q = s * actions + a, t * actions + b
            counts[pair + 1] = first[p + 1] - first[p] + first[q + 1] - first[q] - 1


@njit(cache=True, nogil=True)
def write_policy_matrix(model, memory, costs, starts, leads_to, masses, gaps, low, high):
    """The chosen couplings as a sparse matrix of pairs, and what they pay at once.

    What is left of the room of a pair holds mass 0.
    """
    room = _transport.allocate_workspace(model.support)
    for pair in range(low, high):
        at = starts[pair]
        if memory.choice[pair] == NO_MOVE:
            gaps[pair] = model.farthest
            continue
        s, t = decode_pair(costs, pair)
        move, a, b = _decode_choice(model, memory, pair)
        gap = abs(model.reward[s, a] - model.reward[t, b])
        n, m = _load_problem(model, memory, room, pair, s, t, move, a, b)
        for v in range(1, n + m):
            flow = room.reals[_transport.FLOW, v]
            if flow > 0:
                there = _find_edge_pair(room, costs, n, v)
                if there >= 0:
                    leads_to[at], masses[at] = there, flow
                    at += 1
                else:
                    gap += model.discount * flow * costs.table[0, 0]
        for rest in range(at, starts[pair + 1]):
            leads_to[rest], masses[rest] = pair, 0.0
        gaps[pair] = gap


@njit(cache=True)
def apply_operator_at(model, costs, s, t):
    """F(d) of d~ at a pair of which nothing is known."""
    room = _transport.allocate_workspace(model.support)
    actions, first = model.reward.shape[1], model.first
    value = 0.0
    for a in range(actions):
        if model.has[s, a] != model.has[t, a]:
            return model.farthest
        p, q = s * actions + a, t * actions + a
        n, m = _transport.cancel_common_mass(
            room, model.states, model.share, first[p], first[p + 1], first[q], first[q + 1]
        )
        cost = 0.0
        if n > 0 and m > 0:
            _transport.build_northwest_tree(room, n, m)
            _transport.compute_flows(room, n, m)
            _transport.optimise_tree(room, n, m, _transport.gather_costs(room, costs, n, m))
            cost = _transport.compute_cost(room, costs, n, m)
        if model.has[s, a]:
            gap = abs(model.reward[s, a] - model.reward[t, a])
            value = max(value, gap + model.discount * cost)
    return value


@njit(cache=True, nogil=True)
def fill_symmetric(values, table, low, high):
    """Rows low to high of a symmetric table, and the columns that mirror them, from the values of
    its pairs t < s; the largest change of an entry."""
    moved = 0.0
    for s in range(low, high):
        for t in range(s):
            value = values[s * (s - 1) // 2 + t]
            moved = max(moved, abs(value - table[s, t]))
            table[s, t] = value
            table[t, s] = value
    return moved

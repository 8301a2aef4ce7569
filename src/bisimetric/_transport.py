"""W1 between two distributions on few states: a transportation simplex for many small problems.

    W1(d)(p, q) = min { sum_xy f(x, y) d(x, y) : f >= 0 with marginals p and q }

Mass that p and q share stays where it is, which costs a metric nothing; what is left is moved from
the states where p is larger (rows) to those where q is (columns). A basis is a tree on rows and
columns whose edges carry the flow. It is kept from call to call as one parent a node: as long as
the costs leave it optimal, the next call only checks it. Root is row 0; column j is node n + j.

    Dantzig (1951), Application of the simplex method to a transportation problem;
    Bland (1977), New finite pivoting rules for the simplex method, Math. Oper. Res. 2(2).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric._rounding import UNIT

REDUCED_COST_TOLERANCE = 64 * UNIT
"""A reduced cost above minus this share of the largest cost counts as not negative."""
PRICING_BLOCK = 256
"""Reduced costs that are looked at before the best of them enters the basis."""


class SimplexWorkspace(NamedTuple):
    """Room for one problem at a time; the rows of `ints` and `reals` are named below."""

    ints: NDArray[Any]
    reals: NDArray[Any]
    cost: NDArray[Any]  # rows * columns, row by row


ROW_STATE, COLUMN_STATE = 0, 1
"""The states of the rows, and of the columns."""
PARENT, FIRST_CHILD, NEXT_SIBLING, PREVIOUS_SIBLING, DEPTH, ORDER = 2, 3, 4, 5, 6, 7
"""Of a node: its parent, first child, next and last sibling (-1: none), depth; parents first."""
MASS, FLOW, POTENTIAL, SCRATCH = 0, 1, 2, 3
"""Of a node: its share to send or to take, the flow between it and its parent, its potential."""


class Costs(NamedTuple):
    """The distances of all pairs of states, or of some.

    Of all: `table` is (S, S) and `codes` is empty. Of some: `codes` are their s * S + t, t < s, in
    rising order, and `table` is (1, 1 + len(codes)): first the distance of all other pairs of
    different states, then theirs.
    """

    table: NDArray[Any]
    codes: NDArray[Any]
    states: int


@njit(cache=True)
def allocate_workspace(support):
    """Room for problems of at most `support` rows and as many columns."""
    nodes = 2 * support
    ints, reals = np.empty((8, nodes), np.int64), np.empty((4, nodes))
    return SimplexWorkspace(ints, reals, np.empty(support * support))


@njit(cache=True, inline="always")
def cancel_common_mass(room, states, share, p, p_end, q, q_end):
    """Takes the rows and columns of two distributions, shared mass cancelled; their numbers.

    A distribution is `states[p:p_end]`, in rising order, with the masses `share[p:p_end]`.
    """
    ints, reals = room.ints, room.reals
    n = m = 0
    while p < p_end or q < q_end:
        if q == q_end or (p < p_end and states[p] < states[q]):
            ints[ROW_STATE, n], reals[MASS, n] = states[p], share[p]
            n, p = n + 1, p + 1
        elif p == p_end or states[q] < states[p]:
            ints[COLUMN_STATE, m], reals[SCRATCH, m] = states[q], share[q]
            m, q = m + 1, q + 1
        else:
            left = share[p] - share[q]
            if left > 0:
                ints[ROW_STATE, n], reals[MASS, n] = states[p], left
                n += 1
            elif left < 0:
                ints[COLUMN_STATE, m], reals[SCRATCH, m] = states[q], -left
                m += 1
            p, q = p + 1, q + 1
    for j in range(m):
        reals[MASS, n + j] = reals[SCRATCH, j]
    return n, m


@njit(cache=True, inline="always")
def build_northwest_tree(room, n, m):
    """The tree of the north-west corner rule: optimal where costs are distances on a line."""
    ints, reals = room.ints, room.reals
    ints[PARENT, 0], ints[PARENT, n] = 0, 0
    i, j = 0, 0
    send, take = reals[MASS, 0], reals[MASS, n]
    while i < n - 1 or j < m - 1:
        if j == m - 1 or (i < n - 1 and send <= take):
            take -= send
            i += 1
            send = reals[MASS, i]
            ints[PARENT, i] = n + j
        else:
            send -= take
            j += 1
            take = reals[MASS, n + j]
            ints[PARENT, n + j] = i


@njit(cache=True, inline="always")
def compute_flows(room, n, m):
    """The flows of the tree that `parent` describes, leaves first; `order` holds that order."""
    ints, reals = room.ints, room.reals
    nodes = n + m
    for v in range(nodes):
        ints[DEPTH, v], reals[FLOW, v] = 0, reals[MASS, v]
    for v in range(1, nodes):
        ints[DEPTH, ints[PARENT, v]] += 1
    found = nodes
    for v in range(1, nodes):
        w = v
        # A node that waits for no child hands on; its parent follows, if its turn is over.
        while ints[DEPTH, w] == 0:
            if reals[FLOW, w] < 0.0:  # by rounding
                reals[FLOW, w] = 0.0
            found -= 1
            ints[ORDER, found], ints[DEPTH, w] = w, -1
            u = ints[PARENT, w]
            reals[FLOW, u] -= reals[FLOW, w]
            ints[DEPTH, u] -= 1
            if u > v or u == 0:
                break
            w = u
    ints[ORDER, 0] = 0


@njit(cache=True)
def solve_coupling(states, share, second, costs):
    """An optimal coupling of two distributions, without the mass that both share.

    The first is `states[:second]`, in rising order, with the masses `share[:second]`; the other is
    the rest. Returns the states that mass moves from, those that it moves to, and how much.
    """
    room = allocate_workspace(max(second, len(states) - second))
    n, m = cancel_common_mass(room, states, share, 0, second, second, len(states))
    if n == 0 or m == 0:
        return states[:0], states[:0], share[:0]
    build_northwest_tree(room, n, m)
    compute_flows(room, n, m)
    optimise_tree(room, n, m, gather_costs(room, costs, n, m))
    source, target = np.empty(n + m - 1, np.int64), np.empty(n + m - 1, np.int64)
    for v in range(1, n + m):
        u = room.ints[PARENT, v]
        i, j = (v, u - n) if v < n else (u, v - n)
        source[v - 1], target[v - 1] = room.ints[ROW_STATE, i], room.ints[COLUMN_STATE, j]
    moved = room.reals[FLOW, 1 : n + m] > 0
    return source[moved], target[moved], room.reals[FLOW, 1 : n + m][moved]


@njit(cache=True, inline="always")
def find_pair(codes, states, x, y):
    """Where the pair of two different states is among the pairs, or -1."""
    s, t = (x, y) if x > y else (y, x)
    if codes.size == 0:
        return s * (s - 1) // 2 + t
    code = s * states + t
    at = np.searchsorted(codes, code)
    return at if at < codes.size and codes[at] == code else -1


@njit(cache=True, inline="always")
def look_up_distance(table, codes, states, x, y):
    """The distance of two states; see `Costs`."""
    if codes.size == 0:
        return table[x, y]
    return table[0, 1 + find_pair(codes, states, x, y)]


@njit(cache=True, inline="always")
def compute_cost(room, costs, n, m):
    """The cost of the flow of a tree, reading only the costs of its edges."""
    ints, reals = room.ints, room.reals
    table, codes, states = costs.table, costs.codes, costs.states
    cost = 0.0
    for v in range(1, n):
        cost += reals[FLOW, v] * look_up_distance(
            table, codes, states, ints[ROW_STATE, v], ints[COLUMN_STATE, ints[PARENT, v] - n]
        )
    for v in range(n, n + m):
        cost += reals[FLOW, v] * look_up_distance(
            table, codes, states, ints[ROW_STATE, ints[PARENT, v]], ints[COLUMN_STATE, v - n]
        )
    return cost


@njit(cache=True, inline="always")
def gather_costs(room, costs, n, m):
    """The costs of all cells; the largest of them."""
    ints = room.ints
    cost = room.cost
    table, codes, states = costs.table, costs.codes, costs.states
    largest = 0.0
    for i in range(n):
        for j in range(m):
            here = look_up_distance(table, codes, states, ints[ROW_STATE, i], ints[COLUMN_STATE, j])
            cost[i * m + j] = here
            largest = max(largest, here)
    return largest


@njit(cache=True)
def _link_children(room, n, m):
    """Children and depths of the tree, whose `order` is known."""
    ints = room.ints
    ints[DEPTH, 0] = 0
    for v in range(n + m):
        ints[FIRST_CHILD, v] = -1
    for at in range(1, n + m):
        v = ints[ORDER, at]
        ints[DEPTH, v] = ints[DEPTH, ints[PARENT, v]] + 1
        _attach_child(ints, ints[PARENT, v], v)


@njit(cache=True)
def _compute_potentials(room, n, m):
    """Potentials for which the edges of the tree, whose `order` is known, have reduced cost 0."""
    ints, reals, cost = room.ints, room.reals, room.cost
    reals[POTENTIAL, 0] = 0.0
    for at in range(1, n + m):
        v = ints[ORDER, at]
        u = ints[PARENT, v]
        reals[POTENTIAL, v] = cost[_index_cell(v, u, n, m)] - reals[POTENTIAL, u]


@njit(cache=True)
def optimise_tree(room, n, m, largest):
    """Pivots from a tree with flows to an optimal one; least reduced cost, longest potential.

    The first is that of the cells outside the tree, which says how far the costs may move before
    the tree must change.
    """
    ints, reals = room.ints, room.reals
    cost = room.cost
    nodes = n + m
    _compute_potentials(room, n, m)
    small = -REDUCED_COST_TOLERANCE * largest
    stalled, pivots = 0, 0
    start, clean, least = 0, 0, np.inf
    while clean < n and pivots < 50 * n * m + 1000:
        # Rows from `start` on, cyclically, until a block of cells holds one that may enter.
        best, enter, leave_row, seen = small, -1, 0, 0
        bland = stalled > 2 * nodes
        if bland:
            start = 0
        while clean < n:
            i = start
            u = reals[POTENTIAL, i]
            for j in range(m):
                reduced = cost[i * m + j] - u - reals[POTENTIAL, n + j]
                if reduced < best:
                    best, enter, leave_row = reduced, j, i
                    if bland:
                        break
                if reduced < least and ints[PARENT, i] != n + j and ints[PARENT, n + j] != i:
                    least = reduced
            seen += m
            start = i + 1 if i + 1 < n else 0
            clean += 1
            if enter >= 0 and (bland or seen >= PRICING_BLOCK):
                break
        if enter < 0:
            break
        if pivots == 0:
            _link_children(room, n, m)
        moved = _pivot(room, n, m, leave_row, n + enter, best)
        stalled = 0 if moved > 0 else stalled + 1
        pivots += 1
        clean, least = 0, np.inf
    if pivots > nodes:
        # Each pivot leaves a rounding in flows and potentials: they are worked out afresh. What is
        # below 0 then, also because pivots ran out, says how far from optimal the tree may be.
        compute_flows(room, n, m)
        _compute_potentials(room, n, m)
        least = np.inf
        for i in range(n):
            for j in range(m):
                if ints[PARENT, i] != n + j and ints[PARENT, n + j] != i:
                    reduced = cost[i * m + j] - reals[POTENTIAL, i] - reals[POTENTIAL, n + j]
                    least = min(least, reduced)
    longest = 0.0
    for v in range(nodes):
        longest = max(longest, abs(reals[POTENTIAL, v]))
    return least, longest


@njit(cache=True, inline="always")
def _index_cell(v, u, n, m):
    """The place in `cost` of the edge between two nodes."""
    return v * m + u - n if v < n else u * m + v - n


@njit(cache=True)
def _pivot(room, n, m, i, j, reduced):
    """Lets the edge between row node i and column node j in; the flow that it takes over."""
    ints, reals = room.ints, room.reals
    # Going up from both ends, edges below a node of the end's own side give flow, others take it.
    a, b = i, j
    amount, out, lowest, below = np.inf, -1, 0, True
    while a != b:
        if ints[DEPTH, a] >= ints[DEPTH, b]:
            cell = _index_cell(a, ints[PARENT, a], n, m)
            if a < n and (reals[FLOW, a] < amount or (reals[FLOW, a] == amount and cell < lowest)):
                amount, out, lowest, below = reals[FLOW, a], a, cell, True
            a = ints[PARENT, a]
        else:
            cell = _index_cell(b, ints[PARENT, b], n, m)
            if b >= n and (reals[FLOW, b] < amount or (reals[FLOW, b] == amount and cell < lowest)):
                amount, out, lowest, below = reals[FLOW, b], b, cell, False
            b = ints[PARENT, b]
    apex = a
    a, b = i, j
    while a != apex:
        reals[FLOW, a] += -amount if a < n else amount
        a = ints[PARENT, a]
    while b != apex:
        reals[FLOW, b] += -amount if b >= n else amount
        b = ints[PARENT, b]
    # The part that is cut off hangs below the entering edge, its path up to `out` turned round.
    top, hook = (i, j) if below else (j, i)
    v, above, carried = top, hook, amount
    while True:
        old, old_flow = ints[PARENT, v], reals[FLOW, v]
        _detach_child(ints, old, v)
        _attach_child(ints, above, v)
        ints[PARENT, v], reals[FLOW, v] = above, carried
        if v == out:
            break
        v, above, carried = old, v, old_flow
    _shift_potentials(room, n, top, reduced if top < n else -reduced)
    return amount


@njit(cache=True)
def _shift_potentials(room, n, top, by):
    """Adds `by` to the rows below `top`, takes it from the columns, and mends the depths."""
    ints, reals = room.ints, room.reals
    v = top
    while True:
        ints[DEPTH, v] = ints[DEPTH, ints[PARENT, v]] + 1
        reals[POTENTIAL, v] += by if v < n else -by
        if ints[FIRST_CHILD, v] >= 0:
            v = ints[FIRST_CHILD, v]
            continue
        while v != top and ints[NEXT_SIBLING, v] < 0:
            v = ints[PARENT, v]
        if v == top:
            return
        v = ints[NEXT_SIBLING, v]


@njit(cache=True, inline="always")
def _attach_child(ints, parent, child):
    old = ints[FIRST_CHILD, parent]
    ints[NEXT_SIBLING, child], ints[PREVIOUS_SIBLING, child] = old, -1
    if old >= 0:
        ints[PREVIOUS_SIBLING, old] = child
    ints[FIRST_CHILD, parent] = child


@njit(cache=True, inline="always")
def _detach_child(ints, parent, child):
    if ints[PREVIOUS_SIBLING, child] >= 0:
        ints[NEXT_SIBLING, ints[PREVIOUS_SIBLING, child]] = ints[NEXT_SIBLING, child]
    else:
        ints[FIRST_CHILD, parent] = ints[NEXT_SIBLING, child]
    if ints[NEXT_SIBLING, child] >= 0:
        ints[PREVIOUS_SIBLING, ints[NEXT_SIBLING, child]] = ints[PREVIOUS_SIBLING, child]

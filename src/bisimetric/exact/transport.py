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

from bisimetric.planning import UNIT

LOOSE = 64 * UNIT
"""A reduced cost above minus this share of the largest cost counts as not negative."""
BLOCK = 256
"""Reduced costs that are looked at before the best of them enters the basis."""


class Space(NamedTuple):
    """Room for one problem at a time; the rows of `ints` and `reals` are named below."""

    ints: NDArray[Any]
    reals: NDArray[Any]
    cost: NDArray[Any]  # rows * columns, row by row


X, Y = 0, 1
"""The states of the rows, and of the columns."""
PARENT, FIRST, AFTER, BEFORE, DEPTH, ORDER = 2, 3, 4, 5, 6, 7
"""Of a node: its parent, first child, next and last sibling (-1: none), depth; parents first."""
MASS, FLOW, POTENTIAL, SPARE = 0, 1, 2, 3
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
def space(support):
    """Room for problems of at most `support` rows and as many columns."""
    nodes = 2 * support
    ints, reals = np.empty((8, nodes), np.int64), np.empty((4, nodes))
    return Space(ints, reals, np.empty(support * support))


@njit(cache=True)
def reduce(room, states, share, p, p_end, q, q_end):
    """Takes the rows and columns of two distributions, shared mass cancelled; their numbers.

    A distribution is `states[p:p_end]`, in rising order, with the masses `share[p:p_end]`.
    """
    n = m = 0
    x, y, mass, taken = room.ints[X], room.ints[Y], room.reals[MASS], room.reals[SPARE]
    while p < p_end or q < q_end:
        if q == q_end or (p < p_end and states[p] < states[q]):
            x[n], mass[n] = states[p], share[p]
            n, p = n + 1, p + 1
        elif p == p_end or states[q] < states[p]:
            y[m], taken[m] = states[q], share[q]
            m, q = m + 1, q + 1
        else:
            left = share[p] - share[q]
            if left > 0:
                x[n], mass[n] = states[p], left
                n += 1
            elif left < 0:
                y[m], taken[m] = states[q], -left
                m += 1
            p, q = p + 1, q + 1
    for j in range(m):
        mass[n + j] = taken[j]
    return n, m


@njit(cache=True)
def north_west(room, n, m):
    """The tree of the north-west corner rule: optimal where costs are distances on a line."""
    parent, mass = room.ints[PARENT], room.reals[MASS]
    parent[0], parent[n] = 0, 0
    i, j = 0, 0
    send, take = mass[0], mass[n]
    while i < n - 1 or j < m - 1:
        if j == m - 1 or (i < n - 1 and send <= take):
            take -= send
            i += 1
            send = mass[i]
            parent[i] = n + j
        else:
            send -= take
            j += 1
            take = mass[n + j]
            parent[n + j] = i


@njit(cache=True)
def send(room, n, m):
    """The flows of the tree that `parent` describes, leaves first; `order` holds that order."""
    parent, order, waits = room.ints[PARENT], room.ints[ORDER], room.ints[DEPTH]
    flow, mass = room.reals[FLOW], room.reals[MASS]
    nodes = n + m
    for v in range(nodes):
        waits[v], flow[v] = 0, mass[v]
    for v in range(1, nodes):
        waits[parent[v]] += 1
    found = nodes
    for v in range(1, nodes):
        w = v
        # A node that waits for no child hands on; its parent follows, if its turn is over.
        while waits[w] == 0:
            if flow[w] < 0.0:  # by rounding
                flow[w] = 0.0
            found -= 1
            order[found], waits[w] = w, -1
            u = parent[w]
            flow[u] -= flow[w]
            waits[u] -= 1
            if u > v or u == 0:
                break
            w = u
    order[0] = 0


@njit(cache=True)
def place(codes, states, x, y):
    """Where the pair of two different states is among the pairs, or -1."""
    s, t = (x, y) if x > y else (y, x)
    if codes.size == 0:
        return s * (s - 1) // 2 + t
    code = s * states + t
    at = np.searchsorted(codes, code)
    return at if at < codes.size and codes[at] == code else -1


@njit(cache=True)
def distance(table, codes, states, x, y):
    """The distance of two states; see `Costs`."""
    if codes.size == 0:
        return table[x, y]
    return table[0, 1 + place(codes, states, x, y)]


@njit(cache=True)
def total(room, costs, n, m):
    """The cost of the flow of a tree, reading only the costs of its edges."""
    x, y, parent, flow = room.ints[X], room.ints[Y], room.ints[PARENT], room.reals[FLOW]
    table, codes, states = costs.table, costs.codes, costs.states
    cost = 0.0
    for v in range(1, n):
        cost += flow[v] * distance(table, codes, states, x[v], y[parent[v] - n])
    for v in range(n, n + m):
        cost += flow[v] * distance(table, codes, states, x[parent[v]], y[v - n])
    return cost


@njit(cache=True)
def gather(room, costs, n, m):
    """The costs of all cells; the largest of them."""
    x, y, cost = room.ints[X], room.ints[Y], room.cost
    table, codes, states = costs.table, costs.codes, costs.states
    largest = 0.0
    for i in range(n):
        for j in range(m):
            here = distance(table, codes, states, x[i], y[j])
            cost[i * m + j] = here
            largest = max(largest, here)
    return largest


@njit(cache=True)
def _hang(room, n, m):
    """Children and depths of the tree, whose `order` is known."""
    parent, depth, order = room.ints[PARENT], room.ints[DEPTH], room.ints[ORDER]
    first, after, before = room.ints[FIRST], room.ints[AFTER], room.ints[BEFORE]
    depth[0] = 0
    for v in range(n + m):
        first[v] = -1
    for at in range(1, n + m):
        v = order[at]
        depth[v] = depth[parent[v]] + 1
        _adopt(first, after, before, parent[v], v)


@njit(cache=True)
def improve(room, n, m, largest):
    """Pivots from a tree with flows to an optimal one; least reduced cost, longest potential.

    The first is that of the cells outside the tree, which says how far the costs may move before
    the tree must change.
    """
    parent, order, potential = room.ints[PARENT], room.ints[ORDER], room.reals[POTENTIAL]
    cost = room.cost
    nodes = n + m
    potential[0] = 0.0
    for at in range(1, nodes):
        v = order[at]
        u = parent[v]
        potential[v] = cost[_cell(v, u, n, m)] - potential[u]
    small = -LOOSE * largest
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
            u = potential[i]
            for j in range(m):
                reduced = cost[i * m + j] - u - potential[n + j]
                if reduced < best:
                    best, enter, leave_row = reduced, j, i
                    if bland:
                        break
                if reduced < least and parent[i] != n + j and parent[n + j] != i:
                    least = reduced
            seen += m
            start = i + 1 if i + 1 < n else 0
            clean += 1
            if enter >= 0 and (bland or seen >= BLOCK):
                break
        if enter < 0:
            break
        if pivots == 0:
            _hang(room, n, m)
        moved = _pivot(room, n, m, leave_row, n + enter, best)
        stalled = 0 if moved > 0 else stalled + 1
        pivots += 1
        clean, least = 0, np.inf
    longest = 0.0
    for v in range(nodes):
        longest = max(longest, abs(potential[v]))
    return least, longest


@njit(cache=True)
def _cell(v, u, n, m):
    """The place in `cost` of the edge between two nodes."""
    return v * m + u - n if v < n else u * m + v - n


@njit(cache=True)
def _pivot(room, n, m, i, j, reduced):
    """Lets the edge between row node i and column node j in; the flow that it takes over."""
    parent, depth, flow = room.ints[PARENT], room.ints[DEPTH], room.reals[FLOW]
    first, after, before = room.ints[FIRST], room.ints[AFTER], room.ints[BEFORE]
    # Going up from both ends, edges below a node of the end's own side give flow, others take it.
    a, b = i, j
    amount, out, lowest, below = np.inf, -1, 0, True
    while a != b:
        if depth[a] >= depth[b]:
            cell = _cell(a, parent[a], n, m)
            if a < n and (flow[a] < amount or (flow[a] == amount and cell < lowest)):
                amount, out, lowest, below = flow[a], a, cell, True
            a = parent[a]
        else:
            cell = _cell(b, parent[b], n, m)
            if b >= n and (flow[b] < amount or (flow[b] == amount and cell < lowest)):
                amount, out, lowest, below = flow[b], b, cell, False
            b = parent[b]
    apex = a
    a, b = i, j
    while a != apex:
        flow[a] += -amount if a < n else amount
        a = parent[a]
    while b != apex:
        flow[b] += -amount if b >= n else amount
        b = parent[b]
    # The part that is cut off hangs below the entering edge, its path up to `out` turned round.
    top, hook = (i, j) if below else (j, i)
    v, above, carried = top, hook, amount
    while True:
        old, old_flow = parent[v], flow[v]
        _leave(first, after, before, old, v)
        _adopt(first, after, before, above, v)
        parent[v], flow[v] = above, carried
        if v == out:
            break
        v, above, carried = old, v, old_flow
    _shift(room, n, top, reduced if top < n else -reduced)
    return amount


@njit(cache=True)
def _shift(room, n, top, by):
    """Adds `by` to the rows below `top`, takes it from the columns, and mends the depths."""
    first, after, parent = room.ints[FIRST], room.ints[AFTER], room.ints[PARENT]
    depth, potential = room.ints[DEPTH], room.reals[POTENTIAL]
    v = top
    while True:
        depth[v] = depth[parent[v]] + 1
        potential[v] += by if v < n else -by
        if first[v] >= 0:
            v = first[v]
            continue
        while v != top and after[v] < 0:
            v = parent[v]
        if v == top:
            return
        v = after[v]


@njit(cache=True)
def _adopt(first, after, before, parent, child):
    old = first[parent]
    after[child], before[child] = old, -1
    if old >= 0:
        before[old] = child
    first[parent] = child


@njit(cache=True)
def _leave(first, after, before, parent, child):
    if before[child] >= 0:
        after[before[child]] = after[child]
    else:
        first[parent] = after[child]
    if after[child] >= 0:
        before[after[child]] = before[child]

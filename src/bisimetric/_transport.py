"""W1 between two distributions on few states: a transportation simplex for many small problems.

    W1(d)(p, q) = min { sum_xy f(x, y) d(x, y) : f >= 0 with marginals p and q }

Common mass of p and q stays in place, which is optimal for a metric; the rest moves from the
states where p is larger (rows) to those where q is (columns). A basis is a spanning tree on rows
and columns whose edges carry the flow. It is stored between calls as one parent per node: as long
as it stays optimal for the costs, the next call only checks it. The root is row 0; column j is node
n + j.

    Dantzig (1951), Application of the simplex method to a transportation problem;
    Bland (1977), New finite pivoting rules for the simplex method, Math. Oper. Res. 2(2).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric._rounding import UNIT

NO_ALLOCATION: dict[str, Any] = {"cache": True, "_nrt": False}
"""Options of kernels that allocate nothing: compiled without reference counts.

Otherwise Numba counts references to every array of a record at every call, with atomic operations
that threads compete for, and policy iteration over couplings takes two to four times as long
(`benchmarks/structured_chains.py`).
"""
REDUCED_COST_TOLERANCE = 64 * UNIT
"""A reduced cost above minus this fraction of the largest cost counts as not negative."""
PRICING_BLOCK = 64
"""Block pricing: reduced costs computed, by rows, before the best of them enters the basis."""


class SimplexWorkspace(NamedTuple):
    """Memory for one problem at a time; the rows of `ints` and `reals` are named below."""

    ints: NDArray[Any]
    reals: NDArray[Any]
    cost: NDArray[Any]  # rows * columns, row by row


ROW_STATE, COLUMN_STATE = 0, 1
"""The states of the rows, and of the columns."""
PARENT, FIRST_CHILD, NEXT_SIBLING, PREVIOUS_SIBLING, DEPTH, ORDER = 2, 3, 4, 5, 6, 7
"""Of a node: parent, first child, next and previous sibling (-1: none), depth, sorted order."""
MASS, FLOW, POTENTIAL, SCRATCH = 0, 1, 2, 3
"""Of a node: its supply or demand, the flow between it and its parent, its dual potential."""


class Costs(NamedTuple):
    """The distances of all pairs of states, as a matrix or once per pair, or of some pairs.

    A matrix: `values` is (S, S) and `pair_codes` is empty. Once per pair: `values` is
    (1 + S (S - 1) / 2,); its first entry is unused, and (s, t), t < s, is at 1 + s (s - 1) / 2 + t.
    Some: `pair_codes` are s * S + t, t < s, in increasing order, and `values` is
    (1 + len(pair_codes),): first the distance of all other pairs of different states, then theirs.
    """

    values: NDArray[Any]
    pair_codes: NDArray[Any]
    num_states: int


@njit(cache=True)
def allocate_workspace(support):
    """Allocate memory for problems of at most `support` rows and as many columns."""
    nodes = 2 * support
    ints, reals = np.empty((8, nodes), np.int64), np.empty((4, nodes))
    return SimplexWorkspace(ints, reals, np.empty(support * support))


@njit(cache=True, inline="always")
def cancel_common_mass(workspace, states, probabilities, p, p_end, q, q_end):
    """Load two distributions without their common mass; return the number of rows and columns.

    A distribution is `states[p:p_end]`, in increasing order, with `probabilities[p:p_end]`.
    """
    ints, reals = workspace.ints, workspace.reals
    n = m = 0
    while p < p_end or q < q_end:
        if q == q_end or (p < p_end and states[p] < states[q]):
            ints[ROW_STATE, n], reals[MASS, n] = states[p], probabilities[p]
            n, p = n + 1, p + 1
        elif p == p_end or states[q] < states[p]:
            ints[COLUMN_STATE, m], reals[SCRATCH, m] = states[q], probabilities[q]
            m, q = m + 1, q + 1
        else:
            left = probabilities[p] - probabilities[q]
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
def build_northwest_tree(workspace, n, m):
    """Build the tree of the north-west corner rule: optimal where costs are distances on a line."""
    ints, reals = workspace.ints, workspace.reals
    ints[PARENT, 0], ints[PARENT, n] = 0, 0
    i, j = 0, 0
    supply, demand = reals[MASS, 0], reals[MASS, n]
    while i < n - 1 or j < m - 1:
        if j == m - 1 or (i < n - 1 and supply <= demand):
            demand -= supply
            i += 1
            supply = reals[MASS, i]
            ints[PARENT, i] = n + j
        else:
            supply -= demand
            j += 1
            demand = reals[MASS, n + j]
            ints[PARENT, n + j] = i


@njit(cache=True, inline="always")
def compute_flows(workspace, n, m):
    """Compute the flows of the tree of parents, leaves first; ORDER receives that order."""
    ints, reals = workspace.ints, workspace.reals
    nodes = n + m
    for v in range(nodes):
        ints[DEPTH, v], reals[FLOW, v] = 0, reals[MASS, v]
    for v in range(1, nodes):
        ints[DEPTH, ints[PARENT, v]] += 1
    found = nodes
    for v in range(1, nodes):
        w = v
        # A node without pending children sends its flow; its parent follows if already visited.
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
def solve_coupling(states, probabilities, second, costs):
    """Solve for an optimal coupling of two distributions, without their common mass.

    The first is `states[:second]`, in increasing order, with `probabilities[:second]`; the other is
    the rest. Returns the source states, the target states, and the mass of each.
    """
    workspace = allocate_workspace(max(second, len(states) - second))
    n, m = cancel_common_mass(workspace, states, probabilities, 0, second, second, len(states))
    if n == 0 or m == 0:
        return states[:0], states[:0], probabilities[:0]
    build_northwest_tree(workspace, n, m)
    compute_flows(workspace, n, m)
    optimise_tree(workspace, n, m, gather_costs(workspace, costs, n, m))
    source, target = np.empty(n + m - 1, np.int64), np.empty(n + m - 1, np.int64)
    for v in range(1, n + m):
        u = workspace.ints[PARENT, v]
        i, j = (v, u - n) if v < n else (u, v - n)
        source[v - 1], target[v - 1] = workspace.ints[ROW_STATE, i], workspace.ints[COLUMN_STATE, j]
    moved = workspace.reals[FLOW, 1 : n + m] > 0
    return source[moved], target[moved], workspace.reals[FLOW, 1 : n + m][moved]


@njit(cache=True)
def solve_potentials(states, probabilities, second, costs):
    """Solve the dual problem of `solve_coupling`: the target states, and a potential v of each.

    g(x) = min over targets y of d(x, y) - v(y) is 1-Lipschitz in the costs d, and its expectations
    under the two distributions differ by their optimal cost.
    """
    workspace = allocate_workspace(max(second, len(states) - second))
    n, m = cancel_common_mass(workspace, states, probabilities, 0, second, second, len(states))
    if n == 0 or m == 0:
        return states[:0], probabilities[:0]
    build_northwest_tree(workspace, n, m)
    compute_flows(workspace, n, m)
    optimise_tree(workspace, n, m, gather_costs(workspace, costs, n, m))
    return workspace.ints[COLUMN_STATE, :m].copy(), workspace.reals[POTENTIAL, n : n + m].copy()


@njit(cache=True, inline="always")
def find_pair(pair_codes, num_states, x, y):
    """Return the index of the pair of two different states, or -1."""
    s, t = (x, y) if x > y else (y, x)
    if pair_codes.size == 0:
        return s * (s - 1) // 2 + t
    code = s * num_states + t
    at = np.searchsorted(pair_codes, code)
    return at if at < pair_codes.size and pair_codes[at] == code else -1


@njit(**NO_ALLOCATION)  # not inlined by Numba, which drops the other branch only in a function
def look_up_distance(values, pair_codes, num_states, x, y):
    """Return the distance of two different states; see `Costs`."""
    if values.ndim == 2:
        return values[x, y]
    return values[1 + find_pair(pair_codes, num_states, x, y)]


@njit(cache=True, inline="always")
def compute_cost(workspace, costs, n, m):
    """Return the cost of the flow of a tree, reading only the costs of its edges."""
    ints, reals = workspace.ints, workspace.reals
    values, pair_codes, states = costs.values, costs.pair_codes, costs.num_states
    cost = 0.0
    for v in range(1, n):
        cost += reals[FLOW, v] * look_up_distance(
            values, pair_codes, states, ints[ROW_STATE, v], ints[COLUMN_STATE, ints[PARENT, v] - n]
        )
    for v in range(n, n + m):
        cost += reals[FLOW, v] * look_up_distance(
            values, pair_codes, states, ints[ROW_STATE, ints[PARENT, v]], ints[COLUMN_STATE, v - n]
        )
    return cost


@njit(cache=True, inline="always")
def gather_costs(workspace, costs, n, m):
    """Read the costs of all cells; return the largest."""
    ints = workspace.ints
    cost = workspace.cost
    values, pair_codes, states = costs.values, costs.pair_codes, costs.num_states
    largest = 0.0
    for i in range(n):
        for j in range(m):
            distance = look_up_distance(
                values, pair_codes, states, ints[ROW_STATE, i], ints[COLUMN_STATE, j]
            )
            cost[i * m + j] = distance
            largest = max(largest, distance)
    return largest


@njit(**NO_ALLOCATION)
def _link_children(workspace, n, m):
    """Set children and depths of the tree, whose ORDER is known."""
    ints = workspace.ints
    ints[DEPTH, 0] = 0
    for v in range(n + m):
        ints[FIRST_CHILD, v] = -1
    for at in range(1, n + m):
        v = ints[ORDER, at]
        ints[DEPTH, v] = ints[DEPTH, ints[PARENT, v]] + 1
        _attach_child(ints, ints[PARENT, v], v)


@njit(**NO_ALLOCATION)
def _compute_potentials(workspace, n, m):
    """Compute potentials with reduced cost 0 on the tree, whose ORDER is known."""
    ints, reals, cost = workspace.ints, workspace.reals, workspace.cost
    reals[POTENTIAL, 0] = 0.0
    for at in range(1, n + m):
        v = ints[ORDER, at]
        u = ints[PARENT, v]
        reals[POTENTIAL, v] = cost[_index_cell(v, u, n, m)] - reals[POTENTIAL, u]


@njit(fastmath={"nnan", "nsz"}, **NO_ALLOCATION)  # costs are numbers, so that SIMD finds the least
def _price_row(cost, potentials, first, n, m):
    """Return the least cost minus potential of the columns, for the row that starts at `first`."""
    least = cost[first] - potentials[n]
    for j in range(1, m):
        least = min(least, cost[first + j] - potentials[n + j])
    return least


@njit(**NO_ALLOCATION)
def optimise_tree(workspace, n, m, largest):
    """Pivot from a tree with flows to an optimal one; see `reduce_cost`."""
    return reduce_cost(workspace, n, m, largest, np.inf)


@njit(**NO_ALLOCATION)
def reduce_cost(workspace, n, m, largest, excess):
    """Pivot from a tree with flows until it is optimal, or its cost is lower by `excess`.

    Returns the least reduced cost of a cell, which is at most 0 but for rounding, the largest
    potential, and the number of pivots. If the excess was reached, the least reduced cost is
    -infinity.
    """
    potentials, cost = workspace.reals[POTENTIAL], workspace.cost
    nodes = n + m
    _compute_potentials(workspace, n, m)
    threshold = -REDUCED_COST_TOLERANCE * largest
    stalled, pivots = 0, 0
    start, num_clean_rows, least = 0, 0, np.inf
    while num_clean_rows < n and pivots < 50 * n * m + 1000:
        # Rows from `start` on, cyclically, until a block of cells has a candidate to enter.
        best, row, num_priced = threshold, -1, 0
        bland = stalled > 2 * nodes
        if bland:
            start = 0
        while num_clean_rows < n:
            i = start
            reduced = _price_row(cost, potentials, i * m, n, m) - potentials[i]
            least = min(least, reduced)
            if reduced < best:
                best, row = reduced, i
            num_priced += m
            start = i + 1 if i + 1 < n else 0
            num_clean_rows += 1
            if row >= 0 and (bland or num_priced >= PRICING_BLOCK):
                break
        if row < 0:
            break
        # The first column with the least reduced cost, or, by Bland's rule, below the threshold.
        column, reduced, limit = 0, best, threshold if bland else best
        for j in range(m):
            column, reduced = j, cost[row * m + j] - potentials[n + j] - potentials[row]
            if reduced <= best or reduced < limit:
                break
        if pivots == 0:
            _link_children(workspace, n, m)
        moved = _pivot(workspace, n, m, row, n + column, reduced)
        stalled = 0 if moved > 0 else stalled + 1
        pivots += 1
        excess += reduced * moved
        if excess <= 0:
            return -np.inf, 0.0, pivots
        num_clean_rows, least = 0, np.inf
    if pivots > nodes:
        # Each pivot leaves a rounding in flows and potentials: recompute them. A reduced cost below
        # 0 then, also because pivots ran out, bounds how far from optimal the tree is.
        compute_flows(workspace, n, m)
        _compute_potentials(workspace, n, m)
        least = np.inf
        for i in range(n):
            least = min(least, _price_row(cost, potentials, i * m, n, m) - potentials[i])
    max_potential = 0.0
    for v in range(nodes):
        max_potential = max(max_potential, abs(potentials[v]))
    return least, max_potential, pivots


@njit(cache=True, inline="always")
def bound_transport_error(largest, least, max_potential, max_support):
    """Bound how far the cost of a coupling from `optimise_tree` is above W1.

    Weak duality, whatever the potentials: no coupling costs less by more than reduced costs are
    off, per unit of mass. Outside the tree they are at least -REDUCED_COST_TOLERANCE * largest, or
    `least` where pivots ran out. In the tree they are 0 but for rounding: each of at most
    2 * support pivots rounds the potentials and flows that it changes; 16 more are for computing
    them. The rounding of sums over flows is not included.
    """
    error = (REDUCED_COST_TOLERANCE + (4 * max_support + 16) * UNIT) * (largest + 2 * max_potential)
    return max(error, error - least)


@njit(**NO_ALLOCATION)
def solve_w1(workspace, states, probabilities, p, p_end, q, q_end, costs, max_support):
    """Solve W1 of two distributions; return the size n, m of the problem, its cost and error.

    A distribution is `states[p:p_end]`, in increasing order, with `probabilities[p:p_end]`. The
    cost is that of the coupling in `workspace`: no lower than W1, and higher by at most the error,
    besides the rounding of sums.
    """
    n, m = cancel_common_mass(workspace, states, probabilities, p, p_end, q, q_end)
    if n == 0 or m == 0:
        return 0, 0, 0.0, 0.0
    build_northwest_tree(workspace, n, m)
    compute_flows(workspace, n, m)
    error = 0.0
    if n > 1 and m > 1:
        largest = gather_costs(workspace, costs, n, m)
        least, max_potential, _ = optimise_tree(workspace, n, m, largest)
        error = bound_transport_error(largest, least, max_potential, max_support)
    return n, m, compute_cost(workspace, costs, n, m), error


@njit(cache=True, inline="always")
def _index_cell(v, u, n, m):
    """Return the index in `cost` of the edge between two nodes."""
    return v * m + u - n if v < n else u * m + v - n


@njit(**NO_ALLOCATION)
def _pivot(workspace, n, m, i, j, reduced):
    """Enter the edge between row node i and column node j; return the flow that it takes over."""
    ints, reals = workspace.ints, workspace.reals
    # On the paths up from both ends, edges below a node of the end's own side lose flow.
    a, b = i, j
    amount, leaving, lowest, below = np.inf, -1, 0, True
    while a != b:
        if ints[DEPTH, a] >= ints[DEPTH, b]:
            cell = _index_cell(a, ints[PARENT, a], n, m)
            if a < n and (reals[FLOW, a] < amount or (reals[FLOW, a] == amount and cell < lowest)):
                amount, leaving, lowest, below = reals[FLOW, a], a, cell, True
            a = ints[PARENT, a]
        else:
            cell = _index_cell(b, ints[PARENT, b], n, m)
            if b >= n and (reals[FLOW, b] < amount or (reals[FLOW, b] == amount and cell < lowest)):
                amount, leaving, lowest, below = reals[FLOW, b], b, cell, False
            b = ints[PARENT, b]
    apex = a
    a, b = i, j
    while a != apex:
        reals[FLOW, a] += -amount if a < n else amount
        a = ints[PARENT, a]
    while b != apex:
        reals[FLOW, b] += -amount if b >= n else amount
        b = ints[PARENT, b]
    # The subtree that is cut off moves below the entering edge, its path up to `leaving` reversed.
    top, attachment = (i, j) if below else (j, i)
    v, above, new_flow = top, attachment, amount
    while True:
        old, old_flow = ints[PARENT, v], reals[FLOW, v]
        _detach_child(ints, old, v)
        _attach_child(ints, above, v)
        ints[PARENT, v], reals[FLOW, v] = above, new_flow
        if v == leaving:
            break
        v, above, new_flow = old, v, old_flow
    _shift_potentials(workspace, n, top, reduced if top < n else -reduced)
    return amount


@njit(**NO_ALLOCATION)
def _shift_potentials(workspace, n, top, shift):
    """Add `shift` to the rows below `top`, subtract it from the columns, and update the depths."""
    ints, reals = workspace.ints, workspace.reals
    v = top
    while True:
        ints[DEPTH, v] = ints[DEPTH, ints[PARENT, v]] + 1
        reals[POTENTIAL, v] += shift if v < n else -shift
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

"""Kernels on pairs of states: couplings of their moves, the values of these, and certificates.

A move of a pair x = (s, t) is an action of both; a chain has one. A coupling of a move keeps the
common mass of its two rows in place, which leads to pairs of equal states, at distance 0, and moves
the rest along the edges of a basis tree. All masses are exact (`fixed_point`). Values are compared
in difference form,

    sum_y f(y) (d(y) - d(x)) - common * d(x),

where the mass that stays in x has no part: rounding is relative to the mass that leaves x.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric import _transport
from bisimetric._rounding import TINY, UNIT


class Moves(NamedTuple):
    """The moves of all pairs: those of a pair are `starts[pair]:starts[pair + 1]`."""

    first_row: NDArray[np.int64]
    second_row: NDArray[np.int64]
    pair: NDArray[np.int64]
    starts: NDArray[np.int64]


class Couplings(NamedTuple):
    """One basis tree per move: its nodes' parents at `tree_starts[move]:tree_starts[move + 1]`.

    The first entry of a tree, that of the root, is whether there is one.
    """

    trees: NDArray[Any]
    tree_starts: NDArray[np.int64]


@njit(cache=True)
def load_problem(rows, workspace, moves, move, s):
    """Load the transport problem of a move; return its rows, columns, and the common mass.

    If the first state of the pair, s, is a row, it is row 0, whose potential is 0.
    """
    starts, p, q = rows.row_starts, moves.first_row[move], moves.second_row[move]
    n, m = _transport.cancel_common_mass(
        workspace, rows.successors, rows.probabilities, starts[p], starts[p + 1], starts[q],
        starts[q + 1],
    )  # fmt: skip
    ints, reals = workspace.ints, workspace.reals
    common = rows.total
    for i in range(n):
        common -= reals[_transport.MASS, i]
    for i in range(1, n):
        if ints[_transport.ROW_STATE, i] == s:
            ints[_transport.ROW_STATE, i] = ints[_transport.ROW_STATE, 0]
            ints[_transport.ROW_STATE, 0] = s
            mass = reals[_transport.MASS, i]
            reals[_transport.MASS, i] = reals[_transport.MASS, 0]
            reals[_transport.MASS, 0] = mass
            break
    return n, m, common


@njit(cache=True)
def load_coupling(rows, couplings, workspace, moves, move, s):
    """Load the problem of a move with its last tree and flows."""
    n, m, common = load_problem(rows, workspace, moves, move, s)
    if n > 0:
        start = couplings.tree_starts[move]
        if n == 1 or m == 1 or couplings.trees[start] == 0:
            _transport.build_northwest_tree(workspace, n, m)
        else:
            for v in range(1, n + m):
                workspace.ints[_transport.PARENT, v] = couplings.trees[start + v]
        _transport.compute_flows(workspace, n, m)
    return n, m, common


@njit(cache=True, inline="always")
def _bound_leaving_mass(workspace, n, m, total, common, s, t):
    """Return an upper bound, over all couplings, on the mass that is not in cell (s, t)."""
    ints, reals = workspace.ints, workspace.reals
    if n > 0 and ints[_transport.ROW_STATE, 0] == s:
        for j in range(m):
            if ints[_transport.COLUMN_STATE, j] == t:
                stays = reals[_transport.MASS, 0] + reals[_transport.MASS, n + j] - (total - common)
                return total - max(stays, 0.0)
    return total


@njit(cache=True, inline="always")
def _read_value(values, number, x, y):
    """Return the value of a pair of different states."""
    pair = number[x, y]
    return values[pair] if pair >= 0 else 1.0


@njit(cache=True, inline="always")
def _find_edge(workspace, number, n, v):
    """Return the pair of the edge between a node and its parent."""
    u = workspace.ints[_transport.PARENT, v]
    i, j = (v, u - n) if v < n else (u, v - n)
    return number[
        workspace.ints[_transport.ROW_STATE, i], workspace.ints[_transport.COLUMN_STATE, j]
    ]


@njit(cache=True, inline="always")
def compute_change(workspace, number, values, n, m, common, pair):
    """Return the value of the coupling minus that of the pair, and a bound on its rounding.

    Differences and products have a relative rounding of UNIT, and so has each of at most n + m + 1
    additions; products below the normal numbers add TINY. Differences of 0 are exact.
    """
    value = values[pair]
    change = -common * value
    moved = -change
    for v in range(1, n + m):
        flow = workspace.reals[_transport.FLOW, v]
        successor = _find_edge(workspace, number, n, v)
        if flow > 0 and successor != pair:
            difference = (values[successor] if successor >= 0 else 1.0) - value
            change += flow * difference
            moved += flow * abs(difference)
    return change, (n + m + 8) * (UNIT * moved + TINY) if moved > 0 else 0.0


@njit(cache=True, nogil=True)
def bound_slack(rows, pairs, moves, slack, low, high):
    """Write two parts of the slack of a move: the leaving mass, and the rounding of its rows.

    Let (p, q) and (p', q') be rows and their roundings, and e the sum of the total variation
    distances. The parts (p - q)+ and (q - p)+ that a coupling moves differ by at most 2 e in total
    from those of (p', q'), so that their optimal costs differ by at most 2 e, with costs in [0, 1].
    """
    workspace = _transport.allocate_workspace(rows.max_support)
    for move in range(low, high):
        s, t = pairs.first[moves.pair[move]], pairs.second[moves.pair[move]]
        n, m, common = load_problem(rows, workspace, moves, move, s)
        slack[0, move] = _bound_leaving_mass(workspace, n, m, rows.total, common, s, t)
        rounding = rows.rounding[moves.first_row[move]] + rows.rounding[moves.second_row[move]]
        slack[1, move] = 2 * rounding * (1 + 4 * UNIT)


@njit(cache=True)
def optimise_coupling(rows, couplings, workspace, pairs, moves, move, values):
    """Set the coupling of a move to an optimal one and load it.

    Returns its rows, columns and common mass, a bound on how much less any coupling costs, per unit
    of the mass outside its own cell or of all mass, and whether the coupling changed.
    """
    pair = moves.pair[move]
    s, value = pairs.first[pair], values[pair]
    n, m, common = load_coupling(rows, couplings, workspace, moves, move, s)
    if n <= 1 or m <= 1:
        return n, m, common, 0.0, False
    ints, largest = workspace.ints, 0.0
    for i in range(n):
        for j in range(m):
            x, y = ints[_transport.ROW_STATE, i], ints[_transport.COLUMN_STATE, j]
            cost = _read_value(values, pairs.number, x, y) - value
            workspace.cost[i * m + j] = cost
            largest = max(largest, abs(cost))
    least, max_potential, _ = _transport.optimise_tree(workspace, n, m, largest)
    start = couplings.tree_starts[move]
    is_changed = couplings.trees[start] == 0
    couplings.trees[start] = 1
    for v in range(1, n + m):
        is_changed = is_changed or couplings.trees[start + v] != ints[_transport.PARENT, v]
        couplings.trees[start + v] = ints[_transport.PARENT, v]
    error = _bound_transport_error(workspace, n, m, largest, max_potential, least)
    return n, m, common, error, is_changed


@njit(cache=True, nogil=True)
def improve_couplings(rows, couplings, pairs, moves, selected, values, slack, low, high):
    """Set the couplings of the selected moves to optimal ones; count changes and unproven pairs.

    A pair x is proven if d(x) <= min_f sum_y f(y) d(y) over all couplings of the exact rows that
    keep their common mass in place, or if d(x) = 0. With potentials u and reduced costs
    r = c - u - u' any coupling g costs sum (g - f) r more than f, where r is nearly 0 in the tree
    and nearly not negative outside. In cell (s, t), of cost 0 and with u_s = 0, r = -u_t is exact.
    So g costs less than f by at most the error of r times the mass outside (s, t).
    """
    workspace = _transport.allocate_workspace(rows.max_support)
    num_changed, num_unproven = 0, 0
    for at in range(low, high):
        move = selected[at]
        pair = moves.pair[move]
        s, t = pairs.first[pair], pairs.second[pair]
        n, m, common, error, is_changed = optimise_coupling(
            rows, couplings, workspace, pairs, moves, move, values
        )
        num_changed += is_changed
        if n > 1 and m > 1:
            is_exact = _is_own_cell_exact(workspace, n, m, s, t)
            error *= slack[0, move] if is_exact else rows.total - common
        change, rounding = compute_change(workspace, pairs.number, values, n, m, common, pair)
        if values[pair] > 0 and not change >= (error + rounding + slack[1, move]) * (1 + 8 * UNIT):
            num_unproven += 1
    return num_changed, num_unproven


@njit(cache=True, inline="always")
def _bound_transport_error(workspace, n, m, largest, max_potential, least):
    """Bound how much less any coupling costs than that of the tree, per unit of mass.

    The reduced costs in the tree count for both couplings. Each has the rounding of its cost, and
    two of numbers of at most largest + 2 max_potential.
    """
    in_tree = 0.0
    for v in range(1, n + m):
        u = workspace.ints[_transport.PARENT, v]
        i, j = (v, u - n) if v < n else (u, v - n)
        potentials = (
            workspace.reals[_transport.POTENTIAL, i],
            workspace.reals[_transport.POTENTIAL, n + j],
        )
        reduced = workspace.cost[i * m + j] - potentials[0] - potentials[1]
        in_tree = max(in_tree, abs(reduced))
    return max(0.0, -least) + 2 * in_tree + 8 * UNIT * (largest + 2 * max_potential)


@njit(cache=True, inline="always")
def _is_own_cell_exact(workspace, n, m, s, t):
    """Return whether the reduced cost of cell (s, t) is 0 in the tree, or at least 0 outside."""
    ints = workspace.ints
    if ints[_transport.ROW_STATE, 0] != s:
        return False
    for j in range(m):
        if ints[_transport.COLUMN_STATE, j] == t:
            potential = workspace.reals[_transport.POTENTIAL, n + j]
            return potential == 0.0 or (potential < 0.0 and ints[_transport.PARENT, n + j] != 0)
    return False


@njit(cache=True, nogil=True)
def count_unproven_upper(rows, couplings, pairs, moves, values, slack, low, high):
    """Count the moves without a proof of sum_y f(y) d(y) <= d(x) for their coupling of exact rows.

    A pair with d(x) = 1 needs none.
    """
    workspace = _transport.allocate_workspace(rows.max_support)
    num_unproven = 0
    for move in range(low, high):
        pair = moves.pair[move]
        n, m, common = load_coupling(rows, couplings, workspace, moves, move, pairs.first[pair])
        change, rounding = compute_change(workspace, pairs.number, values, n, m, common, pair)
        if values[pair] < 1 and not change + (rounding + slack[1, move]) * (1 + 8 * UNIT) <= 0:
            num_unproven += 1
    return num_unproven


@njit(cache=True, nogil=True)
def write_couplings(
    rows, couplings, pairs, moves, selected, starts, successors, masses, rewards, leaving, low, high
):
    """Write the couplings of the selected moves as a sparse matrix, without mass that stays.

    `rewards` receives the mass that moves to pairs at distance 1, and `leaving` all of the mass
    that leaves a pair; unused entries hold mass 0.
    """
    workspace = _transport.allocate_workspace(rows.max_support)
    for k in range(low, high):
        move = selected[k]
        pair = moves.pair[move]
        n, m, common = load_coupling(rows, couplings, workspace, moves, move, pairs.first[pair])
        at, reward, left = starts[k], 0.0, common
        for v in range(1, n + m):
            flow = workspace.reals[_transport.FLOW, v]
            successor = _find_edge(workspace, pairs.number, n, v)
            if flow > 0 and successor != pair:
                left += flow
                if successor < 0:
                    reward += flow
                else:
                    successors[at], masses[at] = successor, flow
                    at += 1
        for rest in range(at, starts[k + 1]):
            successors[rest], masses[rest] = pair, 0.0
        rewards[k], leaving[k] = reward, left

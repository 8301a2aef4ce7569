"""Slow, readable reference implementations: plain loops, and SciPy's linear programmes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse

from bisimetric import MDP

Matrix = NDArray[Any]
STRICT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def apply_bisimulation_operator(mdp: MDP, d: Matrix) -> Matrix:
    """Compute F(d)(s, t) = max_a |R(s, a) - R(t, a)| + discount * d(n(s, a), n(t, a))."""
    backup = np.zeros_like(d)
    n, R = mdp.next_state, mdp.R
    for s in range(mdp.num_states):
        for t in range(mdp.num_states):
            for a in range(mdp.num_actions):
                value = abs(R[s, a] - R[t, a]) + mdp.discount * d[n[s, a], n[t, a]]
                backup[s, t] = max(backup[s, t], value)
    return backup


def apply_lax_operator(mdp: MDP, d: Matrix) -> Matrix:
    """Compute the Hausdorff distance between the action sets of s and t."""
    backup = np.zeros_like(d)
    n, R = mdp.next_state, mdp.R
    actions = range(mdp.num_actions)
    for s in range(mdp.num_states):
        for t in range(mdp.num_states):
            delta = [
                [abs(R[s, a] - R[t, b]) + mdp.discount * d[n[s, a], n[t, b]] for b in actions]
                for a in actions
            ]
            forward = max(min(delta[a][b] for b in actions) for a in actions)
            backward = max(min(delta[a][b] for a in actions) for b in actions)
            backup[s, t] = max(forward, backward)
    return backup


def apply_bisimulation_operator_vectorised(mdp: MDP, d: Matrix) -> Matrix:
    """`apply_bisimulation_operator` without loops over states, for larger MDPs."""
    backups = [
        np.abs(mdp.R[:, a, None] - mdp.R[None, :, a])
        + mdp.discount * d[np.ix_(mdp.next_state[:, a], mdp.next_state[:, a])]
        for a in range(mdp.num_actions)
    ]
    return np.asarray(np.max(backups, axis=0))


def apply_lax_operator_vectorised(mdp: MDP, d: Matrix) -> Matrix:
    """`apply_lax_operator` without loops over states."""
    R, n = mdp.R, mdp.next_state
    ahead = d[n[:, None, :, None], n[None, :, None, :]]
    delta = np.abs(R[:, None, :, None] - R[None, :, None, :]) + mdp.discount * ahead
    return np.asarray(np.maximum(delta.min(axis=3).max(axis=2), delta.min(axis=2).max(axis=2)))


def solve_lax_fixed_point(mdp: MDP, error: float = 1e-9) -> Matrix:
    """d_lax by value iteration from 0, until the true error is below `error`."""
    d = np.zeros((mdp.num_states, mdp.num_states))
    while True:
        backup = apply_lax_operator_vectorised(mdp, d)
        if np.abs(backup - d).max() <= error * (1 - mdp.discount):
            return backup
        d = backup


def solve_bisimulation_by_linear_programme(mdp: MDP) -> tuple[Matrix, float]:
    """d~ as a linear programme: the least d with d(s, t) >= gap + discount * d(successors).

    An optimal value function is the solution of such a programme (Puterman 1994, section 6.9).
    Its unknowns are d / scale, so that the solver's tolerances mean the same for all discounts.
    Returns the table and its own error, which the contraction F proves from its residual.
    """
    states, actions = mdp.R.shape
    scale = max(float(np.ptp(mdp.R)), 1.0) / (1 - mdp.discount)
    rows: list[int] = []
    columns: list[int] = []
    entries: list[float] = []
    bounds: list[float] = []
    for s in range(states):
        for t in range(states):
            for a in range(actions):
                row = len(bounds)
                after = mdp.next_state[s, a] * states + mdp.next_state[t, a]
                rows += [row, row]
                columns += [s * states + t, int(after)]
                entries += [-1.0, mdp.discount]
                bounds.append(-abs(mdp.R[s, a] - mdp.R[t, a]) / scale)
    matrix = sparse.csr_array((entries, (rows, columns)), (len(bounds), states**2))
    programme: Any = optimize.linprog  # its stubs know no sparse matrices
    found = programme(
        np.ones(states**2), matrix, bounds, bounds=(0, None), method="highs", options=STRICT
    )
    if found.status != 0:
        raise RuntimeError(found.message)
    d = np.asarray(found.x).reshape(states, states) * scale
    return d, float(np.abs(apply_bisimulation_operator(mdp, d) - d).max()) / (1 - mdp.discount)


def transport(cost: Matrix, p: Matrix, q: Matrix) -> float:
    """W1 of two distributions as SciPy's linear programme."""
    n, m = cost.shape
    rows, columns = np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))
    programme: Any = optimize.linprog
    found = programme(
        cost.ravel(),
        # At most p goes out, up to rounding, and at least q comes in: this can always be met.
        A_ub=np.vstack([rows, -columns]),
        b_ub=np.concatenate([p * (1 + 1e-13), -q]),
        method="highs",
        # The presolver takes masses as small as its tolerance for a contradiction.
        options={**STRICT, "presolve": False},
    )
    if found.status != 0:
        raise RuntimeError(found.message)
    return float(found.fun)


def moves(mdp: MDP, kind: str) -> list[tuple[int, int]]:
    """Return the pairs of actions that a kind of distance compares."""
    actions = range(mdp.num_actions)
    return [(a, b) for a in actions for b in actions if kind == "lax" or a == b]


def compute_move_values(mdp: MDP, d: Matrix, kind: str) -> Matrix:
    """|R(s, a) - R(t, b)| + discount * W1(d)(P(s, a), P(t, b)) as (S, S, A, A); else NaN."""
    states, actions = mdp.R.shape
    P = mdp.P.toarray().reshape(states, actions, states)
    P = P / P.sum(axis=2, keepdims=True)
    has = np.ones(mdp.R.shape, bool) if mdp.available is None else mdp.available
    found = np.full((states, states, actions, actions), np.nan)
    for s in range(states):
        for t in range(states):
            for a, b in moves(mdp, kind):
                if has[s, a] and has[t, b] and s != t:
                    p, q = P[s, a] > 0, P[t, b] > 0
                    cost = transport(d[np.ix_(p, q)], P[s, a][p], P[t, b][q])
                    gap = abs(mdp.R[s, a] - mdp.R[t, b])
                    found[s, t, a, b] = found[t, s, b, a] = gap + mdp.discount * cost
    return found


def select_moves(mdp: MDP, found: Matrix, kind: str, s: int, t: int) -> tuple[float, list[Any]]:
    """Return F(d)(s, t), and the moves over which the minimising player chooses."""
    has = np.ones(mdp.R.shape, bool) if mdp.available is None else mdp.available
    options = []
    if kind == "lax":
        for a in np.flatnonzero(has[s]):
            options.append([(a, b) for b in np.flatnonzero(has[t])])
        for b in np.flatnonzero(has[t]):
            options.append([(a, b) for a in np.flatnonzero(has[s])])
    else:
        options = [[(a, a)] for a in np.flatnonzero(has[s])]
    values = [min(found[s, t, a, b] for a, b in option) for option in options]
    best = int(np.argmax(values))
    return float(values[best]), options[best]


def apply_stochastic_operator(mdp: MDP, d: Matrix, kind: str) -> Matrix:
    """Compute F(d) with one linear programme per pair and move."""
    has = np.ones(mdp.R.shape, bool) if mdp.available is None else mdp.available
    found, backup = compute_move_values(mdp, d, kind), np.zeros_like(d)
    for s in range(mdp.num_states):
        for t in range(s):
            differ = kind != "lax" and (has[s] != has[t]).any()
            backup[s, t] = backup[t, s] = (
                np.ptp(mdp.R[has]) / (1 - mdp.discount)
                if differ
                else select_moves(mdp, found, kind, s, t)[0]
            )
    return backup


def solve_by_linear_programme(mdp: MDP, kind: str) -> tuple[Matrix, float]:
    """Solve d~ (also of a chain, d^pi) or d_lax of any MDP; return it with its proven error.

    Hoffman & Karp's strategy iteration: with the actions of the maximiser fixed, the greatest d
    with d(s, t) <= gap + discount * (p u + q v) and u(x) + v(y) <= d(x, y), for each move that the
    minimiser may take, is a linear programme by the duality of W1 (Chen, van Breugel & Worrell
    2012). It stops when F, one linear programme per pair, agrees. HiGHS satisfies constraints up to
    a tolerance, so that masses of some 1e-12 may be neglected; the error includes that.
    """
    states = mdp.num_states
    has = np.ones(mdp.R.shape, bool) if mdp.available is None else mdp.available
    d, best, error = np.zeros((states, states)), np.zeros((states, states)), np.inf
    scale = max(float(np.ptp(mdp.R)), 1e-3) / (1 - mdp.discount)
    for _ in range(30):
        backup = apply_stochastic_operator(mdp, d, kind)
        bound = float(np.abs(backup - d).max()) / (1 - mdp.discount)
        if bound < error:
            best, error = d, bound
        elif error < 1e-7 * scale:
            break
        found, options = compute_move_values(mdp, d, kind), {}
        for s in range(states):
            for t in range(s):
                if kind == "lax" or (has[s] == has[t]).all():
                    options[s, t] = select_moves(mdp, found, kind, s, t)[1]
        d = _solve_held_actions(mdp, options, scale)
    return best, error + 1e-9 * scale / (1 - mdp.discount)


def _solve_held_actions(
    mdp: MDP, options: dict[tuple[int, int], list[Any]], scale: float
) -> Matrix:
    """Solve the linear programme for held actions; unknowns are d / scale, then each u and v."""
    states, actions = mdp.R.shape
    P = mdp.P.toarray().reshape(states, actions, states)
    P = P / P.sum(axis=2, keepdims=True)
    number = {(s, t): i for i, (s, t) in enumerate((s, t) for s in range(states) for t in range(s))}
    lines: list[dict[int, float]] = []
    limits: list[float] = []
    unknowns = len(number)
    for (s, t), moves_here in options.items():
        for a, b in moves_here:
            u, v = unknowns, unknowns + states
            unknowns += 2 * states
            line = {number[s, t]: 1.0}
            for x in range(states):
                line[u + x] = -mdp.discount * P[s, a, x]
                line[v + x] = -mdp.discount * P[t, b, x]
                for y in range(states):
                    edge = {u + x: 1.0, v + y: 1.0}
                    if x != y:
                        edge[number[max(x, y), min(x, y)]] = -1.0
                    lines.append(edge)
                    limits.append(0.0)
            lines.append(line)
            limits.append(abs(mdp.R[s, a] - mdp.R[t, b]) / scale)
    if not number:
        return np.zeros((states, states))
    rows = np.repeat(np.arange(len(lines)), [len(line) for line in lines])
    columns = [column for line in lines for column in line]
    entries = [entry for line in lines for entry in line.values()]
    matrix = sparse.csr_array((entries, (rows, columns)), (len(lines), unknowns))
    aim = np.zeros(unknowns)
    aim[: len(number)] = -1.0
    bounds = [(0.0, 1.0)] * len(number) + [(-2.0 * states, 2.0 * states)] * (unknowns - len(number))
    programme: Any = optimize.linprog
    found = programme(aim, matrix, limits, bounds=bounds, method="highs", options=STRICT)
    if found.status != 0:
        raise RuntimeError(found.message)
    d = np.zeros((states, states))
    for (s, t), i in number.items():
        d[s, t] = d[t, s] = found.x[i] * scale
    return d

"""Slow, readable twins of the fast code: plain loops, and SciPy's linear programme."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse

from bisimetric import MDP

Table = NDArray[Any]


def bisimulation_once(mdp: MDP, d: Table) -> Table:
    """F(d)(s, t) = max_a |R(s, a) - R(t, a)| + discount * d(n(s, a), n(t, a)), as it is written."""
    image = np.zeros_like(d)
    n, R = mdp.next_state, mdp.R
    for s in range(mdp.num_states):
        for t in range(mdp.num_states):
            for a in range(mdp.num_actions):
                value = abs(R[s, a] - R[t, a]) + mdp.discount * d[n[s, a], n[t, a]]
                image[s, t] = max(image[s, t], value)
    return image


def lax_once(mdp: MDP, d: Table) -> Table:
    """The Hausdorff distance between the action sets of s and t, as it is written."""
    image = np.zeros_like(d)
    n, R = mdp.next_state, mdp.R
    actions = range(mdp.num_actions)
    for s in range(mdp.num_states):
        for t in range(mdp.num_states):
            delta = [
                [abs(R[s, a] - R[t, b]) + mdp.discount * d[n[s, a], n[t, b]] for b in actions]
                for a in actions
            ]
            there = max(min(delta[a][b] for b in actions) for a in actions)
            back = max(min(delta[a][b] for a in actions) for b in actions)
            image[s, t] = max(there, back)
    return image


def bisimulation_everywhere(mdp: MDP, d: Table) -> Table:
    """`bisimulation_once` without loops over states, for larger tables."""
    backups = [
        np.abs(mdp.R[:, a, None] - mdp.R[None, :, a])
        + mdp.discount * d[np.ix_(mdp.next_state[:, a], mdp.next_state[:, a])]
        for a in range(mdp.num_actions)
    ]
    return np.asarray(np.max(backups, axis=0))


def lax_everywhere(mdp: MDP, d: Table) -> Table:
    """`lax_once` without loops over states."""
    R, n = mdp.R, mdp.next_state
    ahead = d[n[:, None, :, None], n[None, :, None, :]]
    delta = np.abs(R[:, None, :, None] - R[None, :, None, :]) + mdp.discount * ahead
    return np.asarray(np.maximum(delta.min(axis=3).max(axis=2), delta.min(axis=2).max(axis=2)))


def lax_fixed_point(mdp: MDP, error: float = 1e-9) -> Table:
    """d_lax by value iteration from 0, until the true error is below `error`."""
    d = np.zeros((mdp.num_states, mdp.num_states))
    while True:
        image = lax_everywhere(mdp, d)
        if np.abs(image - d).max() <= error * (1 - mdp.discount):
            return image
        d = image


def bisimulation_by_programme(mdp: MDP) -> tuple[Table, float]:
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
    strict = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = programme(
        np.ones(states**2), matrix, bounds, bounds=(0, None), method="highs", options=strict
    )
    if found.status != 0:
        raise RuntimeError(found.message)
    d = np.asarray(found.x).reshape(states, states) * scale
    return d, float(np.abs(bisimulation_once(mdp, d) - d).max()) / (1 - mdp.discount)

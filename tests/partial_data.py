"""Distances d~ from a part of the transitions of an MDP."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import MDP, Distance
from bisimetric.distance import Coverage


def compute_partial_distance(mdp: MDP, seed: int, sweeps: int = 200) -> Distance:
    """Compute d~ from a random part of the transitions, by sweeps from 0 over that part."""
    rng = np.random.default_rng(seed)
    known = rng.random(mdp.R.shape) < rng.choice([0.4, 0.9, 1.0])
    known[rng.random(mdp.num_states) < 0.2] = False
    return solve_partial(mdp, known, sweeps)


def solve_partial(mdp: MDP, known: NDArray[np.bool_], sweeps: int) -> Distance:
    states = len(known)
    pairs = [(s, t) for s in range(states) for t in range(states) if s != t]
    both = {
        (s, t): [
            (abs(mdp.R[s, a] - mdp.R[t, a]), (int(mdp.next_state[s, a]), int(mdp.next_state[t, a])))
            for a in np.flatnonzero(known[s] & known[t])
        ]
        for s, t in pairs
    }

    def image(d: NDArray[np.float64]) -> NDArray[np.float64]:
        raised = np.zeros_like(d)
        for pair in pairs:
            raised[pair] = max([gap + mdp.discount * d[after] for gap, after in both[pair]] + [0.0])
        return raised

    values = np.zeros((states, states))
    for _ in range(sweeps):
        values = image(values)
    determined = np.eye(states, dtype=bool) | np.outer(known.all(axis=1), known.all(axis=1))
    for _ in range(states**2):
        for pair in pairs:
            determined[pair] &= all(determined[after] for _, after in both[pair])
    rise = image(values) - values
    slack = 1e-12 * (1 + values.max()) / (1 - mdp.discount)
    within = [float(rise[which].max()) / (1 - mdp.discount) + slack for which in (determined, ...)]
    coverage = Coverage(known, determined, within[0], slack, len(pairs) // 2, len(pairs))
    left = known.any(axis=1, keepdims=True)
    n = np.where(known, mdp.next_state, np.arange(states)[:, None])
    seen = MDP.deterministic(
        n, np.where(known, mdp.R, 0.0), discount=mdp.discount, available=known | ~left
    )
    if coverage.complete:
        return Distance(values, within[0], "bisimulation", seen, coverage=coverage)
    return Distance(values, math.inf, "bisimulation", seen, estimate=within[1], coverage=coverage)


def build_corridor(**about: Any) -> MDP:
    """Cells in a row, one action per side; entering the last pays 0.5, and staying there 1."""
    n = [[0, 1], [0, 2], [1, 3], [2, 3]]
    R = [[0.0, 0.0], [0.0, 0.0], [0.0, 0.5], [0.0, 1.0]]
    names = ["A", "B", "C", "D"]
    return MDP.deterministic(n, R, discount=0.5, names=names, actions=["left", "right"], **about)


def build_partial_corridor() -> Distance:
    """Everything was seen except action left in A, and all of D."""
    known = np.array([[False, True], [True, True], [True, True], [False, False]])
    d = solve_partial(build_corridor(), known, 60)
    return dataclasses.replace(d, mdp=d.mdp.replace(names="ABCD", actions=["left", "right"]))


def build_partial_self_loops(error: float = 0.00099) -> Distance:
    """17 states with self-loops, of which 13 were seen."""
    left = np.arange(17) < 13
    values = np.abs(np.subtract.outer(np.arange(17.0), np.arange(17.0))) / 8
    values[~np.outer(left, left)] = 0.0
    determined = np.outer(left, left) | np.eye(17, dtype=bool)
    coverage = Coverage(left[:, None], determined, error, 1e-12, 70, 78)
    rewards = np.where(left, np.arange(17) / 16, 0.0)[:, None]
    mdp = MDP.deterministic(np.arange(17)[:, None], rewards, discount=0.5)
    return Distance(values, math.inf, "bisimulation", mdp, estimate=0.001, coverage=coverage)

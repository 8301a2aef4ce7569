"""Quick distance matrices for the tests of views."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from bisimetric import MDP, Distance, worlds


def iterate_distance(mdp: MDP, kind: Any = "bisimulation", sweeps: int = 30) -> Distance:
    """Some sweeps of value iteration: not exact, but like a distance and different everywhere."""
    d = np.zeros((mdp.num_states, mdp.num_states))
    by_action = [
        mdp.P[np.arange(mdp.num_states) * mdp.num_actions + a] for a in range(len(mdp.R[0]))
    ]
    for _ in range(sweeps):
        gaps = [
            abs(r[:, None] - r) + mdp.discount * (P @ (P @ d).T)
            for r, P in zip(mdp.R.T, by_action, strict=True)
        ]
        d = np.max(gaps, axis=0)
    np.fill_diagonal(d, 0)
    return Distance(d, 1e-6, kind, mdp)


def build_distinct_states() -> Distance:
    """Like a MICo distance: no state is at distance 0 from any, itself included."""
    d = iterate_distance(worlds.load("mirrored-rooms"), "mico", 5)
    return dataclasses.replace(d, values=d.values + 1)


def build_zero_distance(states: int, **about: Any) -> Distance:
    loops = np.arange(states)[:, None]
    mdp = MDP.deterministic(loops, np.zeros((states, 1)), discount=0.5, **about)
    return Distance(np.zeros((states, states)), 0.0, "lax", mdp)

"""Sinkhorn value iteration: an upper bound of d~ that approaches it."""

from __future__ import annotations

import numpy as np
import pytest

from bisimetric import MDP, exact, worlds
from sinkhorn import SinkhornValueIteration, read_chain


def load_chain() -> MDP:
    return worlds.load("random", states=7, actions=1, successors=3, discount=0.8)


def test_the_bound_holds_and_approaches_the_exact_distance() -> None:
    mdp = load_chain()
    d = exact.bisimulation(mdp, tol=1e-9)
    solver, gaps = SinkhornValueIteration(mdp, eta=0.1), []
    for iterations in (10, 100, 2_000):
        solver.iterate(iterations)
        gap = solver.bound(1e-9) - d.values
        assert gap.min() >= -(d.error + 1e-9)
        gaps.append(gap.max())
    assert gaps[0] > 10 * gaps[2]
    assert gaps[1] > gaps[2]
    assert gaps[2] < 0.02 * d.values.max()


def test_a_decaying_step_size_reaches_a_smaller_error_than_a_constant_one() -> None:
    mdp = load_chain()
    d = exact.bisimulation(mdp, tol=1e-9)
    gaps = []
    for decay in (0.0, 0.5):
        solver = SinkhornValueIteration(mdp, eta=3.0, decay=decay)
        solver.iterate(2_000)
        gaps.append((solver.bound(1e-9) - d.values).max())
    assert gaps[1] < gaps[0]


def test_deterministic_chains_are_solved_without_any_choice() -> None:
    mdp = worlds.load("random", states=6, actions=1, discount=0.8)
    bound = SinkhornValueIteration(mdp, eta=1.0).bound(1e-10)
    d = exact.bisimulation(mdp, tol=1e-9)
    np.testing.assert_allclose(bound, d.values, atol=d.error + 1e-9)


def test_supports_of_different_sizes_are_padded() -> None:
    P = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.2, 0.3, 0.5]])
    mdp = MDP(P[:, None, :], np.array([[0.0], [1.0], [0.3]]), discount=0.5)
    chain = read_chain(mdp)
    assert chain.probabilities.tolist() == [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]]
    d = exact.bisimulation(mdp, tol=1e-9)
    solver = SinkhornValueIteration(mdp, eta=0.1)
    solver.iterate(3_000)
    gap = solver.bound(1e-9) - d.values
    assert gap.min() >= -1e-8
    assert gap.max() < 0.02


def test_two_actions_are_rejected() -> None:
    with pytest.raises(ValueError, match="2 actions"):
        read_chain(worlds.load("random", states=4, actions=2))

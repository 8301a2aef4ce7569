"""Values of small MDPs in rational arithmetic, from nothing but arrays: what bounds are held to.

The distributions are those that the MDP documents: every row of P, and every row of a stochastic
policy, divided by its exact sum.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

Vector = list[Fraction]


class Rational(NamedTuple):
    """An MDP: P[s][a][x], R[s][a], the actions of each state, and the discount."""

    P: list[list[Vector]]
    R: list[Vector]
    actions: list[list[int]]
    discount: Fraction

    def action_value(self, V: Vector, s: int, a: int) -> Fraction:
        """R(s, a) + discount * sum_x P(s, a)(x) V(x)."""
        return self.R[s][a] + self.discount * _dot(self.P[s][a], V)

    @property
    def diameter(self) -> Fraction:
        """The range of the rewards of available actions / (1 - discount)."""
        paid = [self.R[s][a] for s, actions in enumerate(self.actions) for a in actions]
        return (max(paid) - min(paid)) / (1 - self.discount)


def rational(mdp: Any) -> Rational:
    """The arrays of an MDP as rational numbers."""
    states, actions = mdp.R.shape
    rows = [_normalise(row) for row in mdp.P.toarray()]
    has = np.ones(mdp.R.shape, bool) if mdp.available is None else mdp.available
    return Rational(
        [rows[s * actions : (s + 1) * actions] for s in range(states)],
        [[Fraction(float(r)) for r in row] for row in mdp.R],
        [np.flatnonzero(row).tolist() for row in has],
        Fraction(mdp.discount),
    )


def policy_values(mdp: Rational, policy: Any) -> Vector:
    """V^pi of actions (S,) or probabilities (S, A), by Gaussian elimination."""
    given = np.asarray(policy)
    rewards, rows = [], []
    for s in range(len(mdp.R)):
        if given.ndim == 1:
            weights = {int(given[s]): Fraction(1)}
        else:
            weights = {a: w for a, w in enumerate(_normalise(given[s])) if w}
        rewards.append(sum((w * mdp.R[s][a] for a, w in weights.items()), Fraction(0)))
        rows.append(
            [sum(w * mdp.P[s][a][x] for a, w in weights.items()) for x in range(len(mdp.R))]
        )
    return _solve(rows, rewards, mdp.discount)


def optimal_values(mdp: Rational) -> Vector:
    """V*, by policy iteration, which ends: no policy comes back where nothing is rounded."""
    policy = [actions[0] for actions in mdp.actions]
    while True:
        V = policy_values(mdp, policy)
        better = list(policy)
        for s, actions in enumerate(mdp.actions):
            best = max(actions, key=lambda a: mdp.action_value(V, s, a))
            if mdp.action_value(V, s, best) > V[s]:
                better[s] = best
        if better == policy:
            return V
        policy = better


def _normalise(row: Any) -> Vector:
    masses = [Fraction(float(mass)) for mass in row]
    total = sum(masses)
    return [mass / total for mass in masses]


def _dot(row: Vector, V: Vector) -> Fraction:
    return sum((p * v for p, v in zip(row, V, strict=True) if p), Fraction(0))


def _solve(rows: list[Any], rewards: Vector, discount: Fraction) -> Vector:
    """V with V = rewards + discount * rows V; the matrix is diagonally dominant."""
    size = len(rewards)
    system = [
        [int(i == j) - discount * rows[i][j] for j in range(size)] + [rewards[i]]
        for i in range(size)
    ]
    for k in range(size):
        for i in range(k + 1, size):
            if system[i][k]:
                factor = system[i][k] / system[k][k]
                system[i] = [x - factor * y for x, y in zip(system[i], system[k], strict=True)]
    V = [Fraction(0)] * size
    for k in reversed(range(size)):
        known = _dot(system[k][k + 1 : size], V[k + 1 :])
        V[k] = (system[k][size] - known) / system[k][k]
    return V

"""V^pi and V* by policy iteration; Q* from V*."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tests.high_precision.models import Model, induce_chain
from tests.high_precision.numbers import (
    BITS,
    REST,
    Enclosure,
    Undecided,
    enclose,
    round_to_units,
    solve,
)

ROUNDS = 60


def optimal_values(mdp: Model) -> Enclosure:
    """V*(s) = max_a R(s, a) + discount * sum_s' P(s, a)(s') V*(s')."""
    V = [0] * len(mdp.rows)
    for _ in range(ROUNDS):
        images, actions = [], []
        for s in mdp.states:
            worth = {a: backup(mdp, V, s, a) for a in mdp.actions(s)}
            best = max(worth, key=worth.__getitem__)
            images.append(worth[best])
            actions.append(best)
        gains = [image - value for image, value in zip(images, V, strict=True)]
        residual = max(map(abs, gains))
        if residual <= REST:
            centres: dict[tuple[int, ...], int] = {(s,): value for s, value in enumerate(V)}
            return enclose(centres, residual, mdp.discount)
        rows = [
            {
                x: (mass * mdp.discount.numerator << BITS)
                // (mdp.row(s, a).total * mdp.discount.denominator)
                for x, mass in mdp.row(s, a).masses.items()
            }
            for s, a in enumerate(actions)
        ]
        # Policy evaluation as a Newton step: the error of the solution is that of its gain.
        V = [value + gain for value, gain in zip(V, solve(rows, gains), strict=True)]
    raise Undecided("V*")


def policy_values(mdp: Model, policy: Sequence[int] | Sequence[Sequence[float]]) -> Enclosure:
    """V^pi, the optimal values of the chain, which has one action."""
    return optimal_values(induce_chain(mdp, policy))


def action_values(mdp: Model, V: Enclosure) -> Enclosure:
    """Q*(s, a) = R(s, a) + discount * sum_s' P(s, a)(s') V*(s') from V*, by (s, a)."""
    values = [V.centres[s,] for s in mdp.states]
    centres: dict[tuple[int, ...], int] = {
        (s, a): backup(mdp, values, s, a) for s in mdp.states for a in mdp.actions(s)
    }
    return Enclosure(centres, V.radius + 8)


def backup(mdp: Model, V: list[int], s: int, a: int) -> int:
    """R(s, a) + discount * sum_s' P(s, a)(s') V(s') in units, off by less than 2."""
    row = mdp.row(s, a)
    total = sum(mass * V[x] for x, mass in row.masses.items())
    ahead = total * mdp.discount.numerator // (row.total * mdp.discount.denominator)
    return round_to_units(mdp.reward(s, a)) + ahead


def exact_policy_values(chain: Model) -> list[Fraction]:
    """V of a chain by elimination in rational numbers: slow, and without any rounding."""
    size = len(chain.rows)
    rows = [
        [
            Fraction(int(s == x))
            - chain.discount * Fraction(chain.row(s, 0).masses.get(x, 0), chain.row(s, 0).total)
            for x in range(size)
        ]
        + [chain.reward(s, 0)]
        for s in range(size)
    ]
    for k in range(size):
        rows[k] = [entry / rows[k][k] for entry in rows[k]]
        for i in range(size):
            if i != k and rows[i][k]:
                factor = rows[i][k]
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]

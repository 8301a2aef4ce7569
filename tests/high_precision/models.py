"""Finite MDPs as exact rational numbers, from plain arrays of floats."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction


@dataclasses.dataclass(frozen=True)
class Distribution:
    """Probabilities masses[x] / total, in lowest terms."""

    masses: dict[int, int]
    total: int

    def key(self) -> tuple[tuple[int, int], ...]:
        """What equal distributions have in common."""
        return tuple(sorted(self.masses.items()))


def reduce_masses(masses: Mapping[int, int]) -> Distribution:
    """The masses divided by their sum."""
    held = {x: mass for x, mass in masses.items() if mass}
    divisor = math.gcd(*held.values())
    held = {x: mass // divisor for x, mass in held.items()}
    return Distribution(held, sum(held.values()))


def normalise(entries: Mapping[int, float]) -> Distribution:
    """The entries divided by their exact sum."""
    fractions = {x: float(entry).as_integer_ratio() for x, entry in entries.items() if entry}
    common = math.lcm(*(bottom for _, bottom in fractions.values()))
    return reduce_masses({x: top * (common // bottom) for x, (top, bottom) in fractions.items()})


@dataclasses.dataclass(frozen=True)
class Model:
    """An MDP: rows[s][a] = P(s, a) and rewards[s][a] = R(s, a), None where s lacks a."""

    rows: list[list[Distribution | None]]
    rewards: list[list[Fraction | None]]
    discount: Fraction

    @property
    def states(self) -> range:
        return range(len(self.rows))

    def actions(self, s: int) -> list[int]:
        """The actions that a state has."""
        return [a for a, row in enumerate(self.rows[s]) if row is not None]

    def row(self, s: int, a: int) -> Distribution:
        found = self.rows[s][a]
        assert found is not None
        return found

    def reward(self, s: int, a: int) -> Fraction:
        found = self.rewards[s][a]
        assert found is not None
        return found

    def diameter(self) -> Fraction:
        """The range of the rewards of available actions / (1 - discount)."""
        held = [reward for rewards in self.rewards for reward in rewards if reward is not None]
        return (max(held) - min(held)) / (1 - self.discount)


def model(
    P: Sequence[Sequence[Mapping[int, float]]],
    R: Sequence[Sequence[float]],
    discount: float,
    available: Sequence[Sequence[bool]] | None = None,
) -> Model:
    """The MDP of sparse rows P[s][a] = {successor: probability} and rewards R[s][a]."""
    has = [[True] * len(row) for row in P] if available is None else available
    rows = [
        [normalise(row) if has[s][a] else None for a, row in enumerate(rows)]
        for s, rows in enumerate(P)
    ]
    rewards = [
        [Fraction(float(reward)) if has[s][a] else None for a, reward in enumerate(rewards)]
        for s, rewards in enumerate(R)
    ]
    return Model(rows, rewards, Fraction(float(discount)))


def induce_chain(mdp: Model, policy: Sequence[int] | Sequence[Sequence[float]]) -> Model:
    """R^pi(s) = sum_a pi(a|s) R(s, a), P^pi(s) = sum_a pi(a|s) P(s, a), with one action.

    The policy is an action for each state, or a row of probabilities, divided by its exact sum.
    """
    rows: list[list[Distribution | None]] = []
    rewards: list[list[Fraction | None]] = []
    for s in mdp.states:
        choice = policy[s]
        if isinstance(choice, Sequence):
            taken = normalise(dict(enumerate(choice)))
        else:
            taken = Distribution({int(choice): 1}, 1)
        common = math.prod(mdp.row(s, a).total for a in taken.masses)
        masses: dict[int, int] = {}
        for a, weight in taken.masses.items():
            row = mdp.row(s, a)
            for x, mass in row.masses.items():
                masses[x] = masses.get(x, 0) + weight * mass * (common // row.total)
        rows.append([reduce_masses(masses)])
        weighted = (weight * mdp.reward(s, a) for a, weight in taken.masses.items())
        rewards.append([sum(weighted, Fraction(0)) / taken.total])
    return Model(rows, rewards, mdp.discount)

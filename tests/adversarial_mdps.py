"""Small MDPs and policies that are hard on rounding, from a seed: plain arrays, no library code."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

Row = dict[int, float]

DISCOUNTS = [0.0, 1e-300, 0.5, 0.9, 0.9, 0.99, 0.9999, 1 - 1e-9, math.nextafter(1, 0)]
TINY = [5e-324, 1e-300, 1e-100, 1e-17, 4e-15, 1e-13, 1e-12]
# Rows may sum to 1 within 1e-8.
OFF = [1.0, 1.0, 1 - 9e-9, 1 + 9e-9, 1 + 2.0**-52]


@dataclasses.dataclass(frozen=True)
class Case:
    """An MDP as P[s][a] = {successor: probability}, R[s][a], which actions are there, a policy.

    `policy` holds actions or rows of probabilities.
    """

    P: list[list[Row]]
    R: list[list[float]]
    discount: float
    available: list[list[bool]] | None
    policy: list[int] | list[list[float]]

    @property
    def num_states(self) -> int:
        return len(self.P)

    @property
    def num_actions(self) -> int:
        return len(self.P[0])

    @property
    def is_deterministic(self) -> bool:
        return all(len(row) == 1 for rows in self.P for row in rows)

    @property
    def actions(self) -> list[int]:
        """The policy's likeliest actions: a policy that draws nothing."""
        return [
            int(np.argmax(choice)) if isinstance(choice, list) else choice for choice in self.policy
        ]

    def dense(self) -> np.ndarray[Any, Any]:
        """P as (S, A, S)."""
        P = np.zeros((self.num_states, self.num_actions, self.num_states))
        for s, rows in enumerate(self.P):
            for a, row in enumerate(rows):
                for x, mass in row.items():
                    P[s, a, x] = mass
        return P


def generate(
    seed: int,
    *,
    max_states: int = 6,
    deterministic: bool | None = None,
    lacking: bool = True,
    drawn: bool = True,
) -> Case:
    """The case of a seed; without `drawn` its policy is one of actions, not of probabilities."""
    rng = np.random.default_rng(seed)
    states = int(rng.integers(1, max_states + 1))
    actions = int(rng.integers(1, 4))
    single = bool(rng.random() < 0.4) if deterministic is None else deterministic
    rewards = _rewards(rng, states, actions)
    P = [[_row(rng, states, single) for _ in range(actions)] for _ in range(states)]
    available = None
    if lacking and rng.random() < 0.25:
        available = [[bool(rng.random() < 0.6) for _ in range(actions)] for _ in range(states)]
        for s, has in enumerate(available):
            has[int(rng.integers(actions))] = True
            P[s] = [row if held else {s: 1.0} for row, held in zip(P[s], has, strict=True)]
    if states > 1 and rng.random() < 0.4:
        _plant_copy(rng, P, rewards, available, single)
    discount = float(rng.choice(DISCOUNTS))
    policy = _policy(rng, states, actions, available)
    case = Case(P, rewards, discount, available, policy)
    return case if drawn else dataclasses.replace(case, policy=case.actions)


def _row(rng: np.random.Generator, states: int, single: bool) -> Row:
    count = 1 if single else int(rng.integers(1, states + 1))
    support = rng.choice(states, count, replace=False).tolist()
    return _probabilities(rng, support)


def _probabilities(rng: np.random.Generator, support: list[int]) -> Row:
    kind = rng.integers(4)
    if len(support) == 1:
        return {support[0]: 1.0}
    if kind == 0:
        weights = rng.integers(1, 4, len(support)).astype(float)
    elif kind == 1:
        weights = np.ones(len(support))
    else:
        weights = rng.dirichlet(np.ones(len(support))) + 1e-9
    masses = weights / weights.sum()
    if kind == 3:
        # The rest of the mass goes to the first, so that the row sums to about 1.
        masses[1:] = np.where(rng.random(len(support) - 1) < 0.5, rng.choice(TINY), masses[1:])
        masses[0] = 1.0 - masses[1:].sum()
    masses *= rng.choice(OFF)
    return {x: float(mass) for x, mass in zip(support, masses, strict=True)}


def _rewards(rng: np.random.Generator, states: int, actions: int) -> list[list[float]]:
    size = (states, actions)
    kind = rng.integers(9)
    if kind == 0:
        R = rng.integers(-2, 3, size).astype(float)
    elif kind == 1:
        R = rng.random(size)
    elif kind == 2:
        R = rng.choice([9e15, -1e15, 0.0, 1.0, 8e15], size)
    elif kind == 3:
        R = rng.choice([0.0, 5e-324, 1e-323, 2.5e-320, 1e-310], size)
    elif kind == 4:
        R = rng.choice([1e300, -1e300, 0.0, 1e307, 3e299, 1.0], size)
    elif kind == 5:
        R = np.zeros(size)
    elif kind == 6:
        R = 1.0 + rng.integers(-2, 3, size) * 2.0**-52
    elif kind == 7:
        R = 0.3 + rng.choice([0.0, 0.0, 1e-12, -1e-12, 1e-9], size)
    else:
        R = rng.choice([0.1, 0.2, 0.1 + 0.2, 0.3, 1 / 3], size)
    return [[float(reward) for reward in row] for row in R]


def _plant_copy(
    rng: np.random.Generator,
    P: list[list[Row]],
    R: list[list[float]],
    available: list[list[bool]] | None,
    single: bool,
) -> None:
    """Makes the last state a copy of the first, exactly or nearly."""
    kind = rng.integers(6)
    P[-1] = [dict(row) for row in P[0]]
    R[-1] = list(R[0])
    last = len(P) - 1
    if available is not None:
        available[-1] = list(available[0])
        P[-1] = [
            row if held else {last: 1.0} for row, held in zip(P[-1], available[-1], strict=True)
        ]
    if kind == 1:
        R[-1][0] = math.nextafter(R[-1][0], math.inf)
    elif kind == 2:
        R[-1][0] += 1e-12
    elif kind in (4, 5) and not single:
        # A mass that is negligible, but for where it leads.
        for row in P[-1]:
            tiny, there = float(rng.choice(TINY)), int(rng.integers(len(P)))
            row[max(row, key=row.__getitem__)] -= tiny
            row[there] = row.get(there, 0.0) + tiny
    elif kind == 3 and not single:
        # Split mass: what leads to the first state may lead to its copy.
        for row in P[-1]:
            if 0 in row and last not in row:
                share = float(rng.choice([0.25, 1 / 3, 0.1]))
                row[0], row[last] = row[0] * (1 - share), row[0] * share


def _policy(
    rng: np.random.Generator, states: int, actions: int, available: list[list[bool]] | None
) -> list[int] | list[list[float]]:
    has = [list(range(actions))] * states
    if available is not None:
        has = [[a for a, held in enumerate(row) if held] for row in available]
    if rng.random() < 0.3:
        return [int(rng.choice(row)) for row in has]
    policy = []
    for held in has:
        support = rng.choice(held, int(rng.integers(1, len(held) + 1)), replace=False)
        found = _probabilities(rng, [int(a) for a in support])
        policy.append([found.get(a, 0.0) for a in range(actions)])
    return policy


def generate_hidden_reward(seed: int) -> Case:
    """States 0 and 1 stay and pay the same; a tiny mass leads from 1 to 2, which pays much."""
    rng = np.random.default_rng(seed)
    tiny = float(rng.choice([mass for mass in TINY if mass < 1e-13]))
    reward = float(rng.choice([1.0, 1e15, 1e30, 1e300]))
    P = [[{0: 1.0}], [{1: 1.0 - tiny, 2: tiny}], [{2: 1.0}]]
    discount = float(rng.choice([0.5, 0.9, 0.99]))
    return Case(P, [[0.0], [0.0], [reward]], discount, None, [0, 0, 0])


@dataclasses.dataclass(frozen=True)
class Star:
    """Two states that lead to many absorbing ones, with weights; one action.

    State 0 leads to `first` and state 1 to `second`, {absorbing state: probability}; the
    absorbing states pay `rewards`, and the two pay `start`.
    """

    first: Row
    second: Row
    rewards: dict[int, float]
    start: tuple[float, float]
    discount: float

    def case(self) -> Case:
        absorbing = [[{x: 1.0}] for x in sorted(self.rewards)]
        P = [[self.first], [self.second], *absorbing]
        R = [[self.start[0]], [self.start[1]], *([self.rewards[x]] for x in sorted(self.rewards))]
        return Case(P, R, self.discount, None, [0] * len(P))


def generate_star(seed: int, width: int, discount: float) -> Star:
    """Rows over `width` absorbing states, uniform or nearly so, that share a few."""
    rng = np.random.default_rng(seed)
    shared = int(rng.integers(0, 3))
    number = 2 * width - shared
    # The last kind has states that differ by little, so that none are merged, at distances that
    # are all but equal, so that the roundings of a sum over them do not cancel.
    close = (np.arange(number) < width) * rng.random() + np.arange(number) * 2.0**-52
    rewards = [
        rng.random(number),
        rng.integers(0, 2, number),
        0.1 * rng.integers(0, 9, number),
        close,
        close,
    ][rng.integers(5)]
    rows = []
    for first in (2, 2 + width - shared):
        weights = np.ones(width) if rng.random() < 0.5 else 0.5 + rng.random(width)
        masses = weights / weights.sum() * rng.choice(OFF)
        rows.append({first + i: float(mass) for i, mass in enumerate(masses)})
    pays = {2 + i: float(reward) for i, reward in enumerate(rewards)}
    start = (float(rng.random()), float(rng.random()))
    return Star(rows[0], rows[1], pays, start, discount)

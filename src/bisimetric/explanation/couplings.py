"""Where successors branch: how they are matched, and which match the distance comes from."""

from __future__ import annotations

import functools
import math
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from bisimetric.explanation.choices import Choices, Way, attained
from bisimetric.explanation.records import Match, Step
from bisimetric.mdp import MDP
from bisimetric.transport import Costs, coupling

ENOUGH_STEPS = 6
SMALL_SHARE = 0.05
"""A pair that carries less than this share of the whole distance is not followed."""

Coupling = dict[tuple[int, int], float]


def follow(choices: Choices, states: tuple[int, int]) -> Way:
    """The step from `states`, and from there on the steps of the match that adds most.

    Matches of states at distance 0 from those of another count together, but for a table from
    experience, where 0 may only mean that nothing tells them apart yet.
    """
    values = choices.values

    @functools.cache
    def first_like(state: int) -> int:
        same = values[state] == 0
        return int(np.argmax(same)) if choices.zero_is_near and same.any() else state

    def kin(pair: tuple[int, int]) -> tuple[int, int]:
        return first_like(pair[0]), first_like(pair[1])

    steps: list[Step] = []
    seen: dict[tuple[int, int], int] = {}
    pair, weight, whole = states, 1.0, float(values[states])
    while kin(pair) not in seen and not choices.end_at(pair):
        carried = weight * float(values[pair])
        if carried <= SMALL_SHARE * whole * bool(steps) or len(steps) == ENOUGH_STEPS:
            break
        seen[kin(pair)] = len(steps)
        actions, gap, matches = _attaining(choices, pair)
        masses: dict[tuple[int, int], float] = defaultdict(float)
        for match in matches:
            masses[kin(match.states)] += match.mass
        after = max(matches, key=lambda match: masses[kin(match.states)] * match.distance).states
        spoken = choices.spoken_of(actions, pair)
        steps.append(Step(pair, spoken, gap, weight * gap, after, matches, weight))
        pair, weight = after, weight * choices.mdp.discount * masses[kin(after)]
    apart = pair if choices.sets_differ(pair) else None
    total = whole
    if steps:
        total = math.fsum([steps[0].gap, *(each.adds for each in steps[0].coupling)])
    return Way(tuple(steps), seen.get(kin(pair)), total, pair, apart)


def _attaining(
    choices: Choices, pair: tuple[int, int]
) -> tuple[tuple[int, int], float, tuple[Match, ...]]:
    """The actions that attain F(d)(s, t), their reward gap, and the matches of their successors."""
    mdp, values, kind = choices.mdp, choices.values, choices.kind
    s, t = pair
    gaps = np.abs(mdp.R[s][:, None] - mdp.R[t][None, :])
    compared = choices.candidates(pair)
    backup = np.zeros(gaps.shape)
    found: dict[tuple[int, int], Coupling] = {}
    for a, b in np.argwhere(compared).tolist():
        first, second = _distribution(mdp, s, a), _distribution(mdp, t, b)
        plan = independent(first, second) if kind == "mico" else best(first, second, values)
        found[a, b] = plan
        mean = math.fsum(mass * float(values[states]) for states, mass in plan.items())
        backup[a, b] = gaps[a, b] + mdp.discount * mean
    actions = attained(backup, compared, kind)
    matches = [
        Match(states, mass, float(values[states]), mdp.discount * mass * float(values[states]))
        for states, mass in found[actions].items()
    ]
    matches.sort(key=lambda each: (_is_shared(each, kind), -each.adds, -each.mass))
    return actions, float(gaps[actions]), tuple(matches)


def _is_shared(match: Match, kind: str) -> bool:
    """Whether both are in the same state, where no distance but MICo sees a difference."""
    return kind != "mico" and match.states[0] == match.states[1]


def _distribution(mdp: MDP, state: int, action: int) -> dict[int, float]:
    row = state * mdp.num_actions + action
    part = slice(mdp.P.indptr[row], mdp.P.indptr[row + 1])
    masses = mdp.P.data[part] / math.fsum(mdp.P.data[part])
    return dict(zip(mdp.P.indices[part].tolist(), masses.tolist(), strict=True))


def independent(first: dict[int, float], second: dict[int, float]) -> Coupling:
    """The coupling in which the two successors know nothing of each other.

    >>> independent({0: 0.5, 1: 0.5}, {1: 1.0})
    {(0, 1): 0.5, (1, 1): 0.5}
    """
    return {(x, y): p * q for x, p in first.items() for y, q in second.items()}


def best(
    first: dict[int, float], second: dict[int, float], values: NDArray[np.floating]
) -> Coupling:
    """A coupling of two distributions with the least mean distance (W1), up to rounding.

    Mass that both have in a state stays there: by the triangle inequality nothing is gained by
    moving it. The rest is moved by the simplex method that computes the distances too.

    >>> best({0: 0.5, 1: 0.5}, {1: 0.75, 2: 0.25}, np.abs(np.subtract.outer(range(3), range(3))))
    {(1, 1): 0.5, (0, 1): 0.25, (0, 2): 0.25}
    """
    plan = {(x, x): min(first[x], second[x]) for x in first if x in second}
    sides = [sorted(side.items()) for side in (first, second)]
    states = sorted({*first, *second})
    places = np.searchsorted(states, [x for side in sides for x, _ in side])
    masses = np.array([mass for side in sides for _, mass in side])
    table = np.ascontiguousarray(values[np.ix_(states, states)], np.float64)
    costs = Costs(table, np.empty(0, np.int64), len(states))
    for x, y, mass in zip(*coupling(places, masses, len(first), costs), strict=True):
        plan[states[x], states[y]] = float(mass)
    return plan

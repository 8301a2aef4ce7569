"""Where successors branch: how they are matched, and which match the distance comes from."""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse

from bisimetric.explanation.choices import Choices, Way, attained
from bisimetric.explanation.records import Match, Step
from bisimetric.mdp import MDP

ENOUGH_STEPS = 6
SMALL_SHARE = 0.05
"""A pair that carries less than this share of the whole distance is not followed."""

Coupling = dict[tuple[int, int], float]


def follow(choices: Choices, states: tuple[int, int]) -> Way:
    """The step from `states`, and from there on the steps of the match that adds most.

    Matches of states at distance 0 from those of another are alike, and count together, but for
    a table from experience, where 0 may only mean that nothing tells them apart yet.
    """
    values = choices.values

    @functools.cache
    def first_like(state: int) -> int:
        same = values[state] == 0
        return int(np.argmax(same)) if choices.zero_is_alike and same.any() else state

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
    total = steps[0].gap + sum(each.adds for each in steps[0].coupling) if steps else whole
    return Way(tuple(steps), seen.get(kin(pair)), total, apart)


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
        mean = sum(mass * float(values[states]) for states, mass in plan.items())
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
    masses = mdp.P.data[part] / mdp.P.data[part].sum()
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
    """A coupling of two distributions with the least mean distance (W1), by a linear programme.

    Mass that both have in a state stays there: by the triangle inequality nothing is gained by
    moving it.

    >>> best({0: 0.5, 1: 0.5}, {1: 0.75, 2: 0.25}, np.abs(np.subtract.outer(range(3), range(3))))
    {(1, 1): 0.5, (0, 1): 0.25, (0, 2): 0.25}
    """
    plan = {(x, x): min(first[x], second[x]) for x in first if x in second}
    more = {x: p - plan.get((x, x), 0.0) for x, p in first.items()}
    less = {y: q - plan.get((y, y), 0.0) for y, q in second.items()}
    sources, sinks = ([x for x, mass in side.items() if mass > 0] for side in (more, less))
    if not sources or not sinks:
        return plan
    supply, demand = np.array([more[x] for x in sources]), np.array([less[y] for y in sinks])
    if len(sources) == 1 or len(sinks) == 1:
        moved = np.outer(supply, demand) / supply.sum()
    else:
        moved = _transported(supply, demand, values[np.ix_(sources, sinks)].astype(np.float64))
    for i, j in np.argwhere(moved > 0).tolist():
        plan[sources[i], sinks[j]] = float(moved[i, j])
    return plan


def _transported(
    supply: NDArray[np.float64], demand: NDArray[np.float64], cost: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How much goes from each source to each sink, at the least cost."""
    rows, columns = cost.shape
    # The last demand follows from the others; masses and costs are scaled to what HiGHS expects.
    leaving = sparse.kron(sparse.eye_array(rows), np.ones((1, columns)))
    arriving = sparse.kron(np.ones((1, rows)), sparse.eye_array(columns - 1, columns))
    programme: Any = optimize.linprog  # its stubs know no sparse matrices
    found = programme(
        cost.ravel() / (cost.max() or 1.0),
        A_eq=sparse.vstack([leaving, arriving], format="csr"),
        b_eq=np.concatenate([supply / supply.sum(), demand[:-1] / demand.sum()]),
        bounds=(0, None),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if found.status != 0:
        raise RuntimeError(f"explain: the coupling was not found ({found.message}).")
    return np.asarray(found.x * supply.sum()).reshape(cost.shape)

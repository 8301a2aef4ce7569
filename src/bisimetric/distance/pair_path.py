"""The path of a pair of states under the actions that attain their distance.

In a deterministic MDP a pair has one successor, and the discounted reward gaps along its path add
up to the distance. In a stochastic MDP the successors are coupled, and the path follows the match
that contributes most.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric._transport import Costs, solve_coupling
from bisimetric.distance.explanation import Match, PairStep
from bisimetric.mdp import MDP, compute_comparison_classes


class PairPath(NamedTuple):
    """The steps that start in a pair of states; see `Explanation`."""

    steps: tuple[PairStep, ...]
    loop_start: int | None
    total: float
    final_pair: tuple[int, int]
    mismatched_pair: tuple[int, int] | None


@dataclasses.dataclass(frozen=True, eq=False)
class PairChoices:
    """The actions that a distance compares in each pair of states.

    Attributes:
        mdp: the dynamics; for a policy, its chain.
        values: (S, S), the distance matrix.
        kind: the kind of the distance.
        policy_actions: (S,), the policy's actions, -1 where it mixes several; None without one.
        known: for a matrix from data, the observed transitions; otherwise None.
        complete: whether they determine the whole matrix. If not, only known ones are compared.
    """

    mdp: MDP
    values: NDArray[np.floating]
    kind: str
    policy_actions: NDArray[Any] | None = None
    known: NDArray[np.bool_] | None = None
    complete: bool = True

    @property
    def zero_is_proven(self) -> bool:
        """Whether an entry 0 means distance 0, and not that no sample distinguishes the states."""
        return self.known is None

    @functools.cached_property
    def comparison_classes(self) -> NDArray[np.int64]:
        """(S,): the distance of states of different classes is the diameter bound."""
        if self.kind == "bisimulation" and self.complete:
            return compute_comparison_classes(self.mdp)
        return self.mdp.label_classes

    def are_incomparable(self, pair: tuple[int, int]) -> bool:
        """Whether labels or, in d~, available actions put the states at the diameter bound."""
        return bool(self.comparison_classes[pair[0]] != self.comparison_classes[pair[1]])

    def ends_at(self, pair: tuple[int, int]) -> bool:
        """Whether the path ends here: states are not comparable, or no action is compared."""
        return self.are_incomparable(pair) or not self.get_compared_actions(pair).any()

    def get_compared_actions(self, pair: tuple[int, int]) -> NDArray[np.bool_]:
        """Return the pairs of actions (A, A) that the distance compares."""
        compared = np.ones((self.mdp.num_actions,) * 2, dtype=bool)
        if self.kind != "lax":
            groups = self.mdp.choice_groups
            compared = groups[:, None] == groups[None, :]
        usable = self.mdp.available if self.complete else self.known
        if usable is not None:
            compared &= np.outer(usable[pair[0]], usable[pair[1]])
        return compared

    def get_reported_actions(
        self, chosen: tuple[int, int], pair: tuple[int, int]
    ) -> tuple[int, int] | None:
        """Return the chosen actions, or the policy's, or None where it mixes several."""
        if self.policy_actions is None:
            return chosen
        first, second = int(self.policy_actions[pair[0]]), int(self.policy_actions[pair[1]])
        return None if min(first, second) < 0 else (first, second)


def compute_gaps(mdp: MDP, s: int, t: int) -> NDArray[np.float64]:
    """Return |R(s, a) - R(t, b)|, plus the ground distance of observations, (A, A)."""
    gaps = np.abs(mdp.R[s][:, None] - mdp.R[t][None, :])
    ground = 0.0 if mdp.ground_distance is None else mdp.ground_distance(s, t)
    return np.asarray(gaps + ground)


def select_actions(
    backup: NDArray[np.float64], compared: NDArray[np.bool_], kind: str
) -> tuple[int, int]:
    """Return the two actions that attain F(d)(s, t).

    `backup` (A, A) is reward gap + discount * distance of the successors for each two actions.
    """
    if kind != "lax" and (compared.sum(axis=1) <= 1).all():
        action = int(np.where(compared, backup, -np.inf).diagonal().argmax())
        return action, action
    answers = np.where(compared, backup, np.inf)
    first, second = answers.min(axis=1), answers.min(axis=0)
    first[~compared.any(axis=1)] = second[~compared.any(axis=0)] = -np.inf
    if first.max() >= second.max():
        action = int(np.argmax(first))
        return action, int(np.argmin(answers[action]))
    answer = int(np.argmax(second))
    return int(np.argmin(answers[:, answer])), answer


MAX_PATH_STEPS = 10_000


def follow_path(choices: PairChoices, states: tuple[int, int]) -> PairPath:
    """Follow the path from `states` until it reaches distance 0 or an earlier pair."""
    mdp, values = choices.mdp, choices.values
    steps: list[PairStep] = []
    seen: dict[tuple[int, int], int] = {}
    pair, weight = states, 1.0
    while pair not in seen and pair[0] != pair[1] and len(steps) < MAX_PATH_STEPS:
        if values[pair] == 0 or choices.ends_at(pair):
            break
        seen[pair] = len(steps)
        s, t = pair
        gaps = compute_gaps(mdp, s, t)
        successor_values = values[np.ix_(mdp.next_state[s], mdp.next_state[t])]
        backup = gaps + mdp.discount * successor_values
        a, b = select_actions(backup, choices.get_compared_actions(pair), choices.kind)
        following = (int(mdp.next_state[s, a]), int(mdp.next_state[t, b]))
        gap = float(gaps[a, b])
        actions = choices.get_reported_actions((a, b), pair)
        steps.append(PairStep(pair, actions, gap, weight * gap, following, weight=weight))
        pair, weight = following, weight * mdp.discount
    loop = seen.get(pair)
    if loop is not None:
        once = math.fsum(step.contribution for step in steps[loop:])
        rest = once / (1 - mdp.discount ** (len(steps) - loop))
        total = math.fsum([*(step.contribution for step in steps[:loop]), rest])
    else:
        total = math.fsum([*(step.contribution for step in steps), weight * float(values[pair])])
    return PairPath(
        tuple(steps), loop, total, pair, pair if choices.are_incomparable(pair) else None
    )


MAX_COUPLING_STEPS = 6
MIN_FOLLOWED_SHARE = 0.05
"""A pair that contributes less than this share of the whole distance is not followed."""

Coupling = dict[tuple[int, int], float]


def follow_couplings(choices: PairChoices, states: tuple[int, int]) -> PairPath:
    """Follow, from `states`, the match that contributes most in each step.

    Matches between states at distance 0 from each other count together, except for a matrix from
    data, where 0 may only mean that no sample distinguishes the states yet.
    """
    values = choices.values

    @functools.cache
    def find_representative(state: int) -> int:
        same = values[state] == 0
        return int(np.argmax(same)) if choices.zero_is_proven and same.any() else state

    def find_representatives(pair: tuple[int, int]) -> tuple[int, int]:
        return find_representative(pair[0]), find_representative(pair[1])

    steps: list[PairStep] = []
    seen: dict[tuple[int, int], int] = {}
    pair, weight, whole = states, 1.0, float(values[states])
    while find_representatives(pair) not in seen and not choices.ends_at(pair):
        contribution = weight * float(values[pair])
        negligible = contribution <= MIN_FOLLOWED_SHARE * whole * bool(steps)
        if negligible or len(steps) == MAX_COUPLING_STEPS:
            break
        seen[find_representatives(pair)] = len(steps)
        actions, gap, matches = _compute_backup(choices, pair)
        masses: dict[tuple[int, int], float] = defaultdict(float)
        for match in matches:
            masses[find_representatives(match.states)] += match.mass
        following = max(
            matches, key=lambda match: masses[find_representatives(match.states)] * match.distance
        ).states
        reported = choices.get_reported_actions(actions, pair)
        steps.append(PairStep(pair, reported, gap, weight * gap, following, matches, weight))
        mass = masses[find_representatives(following)]
        pair, weight = following, weight * choices.mdp.discount * mass
    mismatched = pair if choices.are_incomparable(pair) else None
    total = whole
    if steps:
        contributions = (match.contribution for match in steps[0].coupling)
        total = math.fsum([steps[0].reward_gap, *contributions])
    return PairPath(tuple(steps), seen.get(find_representatives(pair)), total, pair, mismatched)


def _compute_backup(
    choices: PairChoices, pair: tuple[int, int]
) -> tuple[tuple[int, int], float, tuple[Match, ...]]:
    """Return the actions that attain F(d)(s, t), their reward gap and their coupling."""
    mdp, values, kind = choices.mdp, choices.values, choices.kind
    s, t = pair
    gaps = compute_gaps(mdp, s, t)
    compared = choices.get_compared_actions(pair)
    backup = np.zeros(gaps.shape)
    found: dict[tuple[int, int], Coupling] = {}
    for a, b in np.argwhere(compared).tolist():
        first, second = _successor_distribution(mdp, s, a), _successor_distribution(mdp, t, b)
        plan = (
            compute_independent_coupling(first, second)
            if kind == "mico"
            else compute_optimal_coupling(first, second, values)
        )
        found[a, b] = plan
        mean = math.fsum(mass * float(values[states]) for states, mass in plan.items())
        backup[a, b] = gaps[a, b] + mdp.discount * mean
    actions = select_actions(backup, compared, kind)
    matches = [
        Match(states, mass, float(values[states]), mdp.discount * mass * float(values[states]))
        for states, mass in found[actions].items()
    ]
    matches.sort(key=lambda each: (_has_common_state(each, kind), -each.contribution, -each.mass))
    return actions, float(gaps[actions]), tuple(matches)


def _has_common_state(match: Match, kind: str) -> bool:
    """Whether both successors are one state, at distance 0 for every kind except MICo."""
    return kind != "mico" and match.states[0] == match.states[1]


def _successor_distribution(mdp: MDP, state: int, action: int) -> dict[int, float]:
    row = state * mdp.num_actions + action
    part = slice(mdp.P.indptr[row], mdp.P.indptr[row + 1])
    masses = mdp.P.data[part] / math.fsum(mdp.P.data[part])
    return dict(zip(mdp.P.indices[part].tolist(), masses.tolist(), strict=True))


def compute_independent_coupling(first: dict[int, float], second: dict[int, float]) -> Coupling:
    """Return the product of two distributions.

    >>> compute_independent_coupling({0: 0.5, 1: 0.5}, {1: 1.0})
    {(0, 1): 0.5, (1, 1): 0.5}
    """
    return {(x, y): p * q for x, p in first.items() for y, q in second.items()}


def compute_optimal_coupling(
    first: dict[int, float], second: dict[int, float], values: NDArray[np.floating]
) -> Coupling:
    """Return a coupling with the smallest mean distance (W1), up to rounding.

    Mass that both distributions have in a state stays there, which by the triangle inequality is
    optimal. The simplex method that computes the distances couples the rest.

    >>> d = np.abs(np.subtract.outer(range(3), range(3)))
    >>> compute_optimal_coupling({0: 0.5, 1: 0.5}, {1: 0.75, 2: 0.25}, d)
    {(1, 1): 0.5, (0, 1): 0.25, (0, 2): 0.25}
    """
    plan = {(x, x): min(first[x], second[x]) for x in first if x in second}
    sides = [sorted(side.items()) for side in (first, second)]
    states = sorted({*first, *second})
    places = np.searchsorted(states, [x for side in sides for x, _ in side])
    masses = np.array([mass for side in sides for _, mass in side])
    submatrix = np.ascontiguousarray(values[np.ix_(states, states)], np.float64)
    costs = Costs(submatrix, np.empty(0, np.int64), len(states))
    for x, y, mass in zip(*solve_coupling(places, masses, len(first), costs), strict=True):
        plan[states[x], states[y]] = float(mass)
    return plan

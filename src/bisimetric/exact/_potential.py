"""A function of states that attains the distance of a pair: a witness of how far they are."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from bisimetric._transport import Costs, solve_potentials
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.implicit_mdp import normalise
from bisimetric.mdp import MDP, compute_comparison_classes

Masses = dict[int, Fraction]


@dataclasses.dataclass(frozen=True, eq=False)
class Potential:
    """A function g of states, and the action under which it attains the distance of s and t.

        f(x) = sign * R(x, a) + discount * sum_y P(x, a)(y) g(y)

    is 1-Lipschitz in d, like g, and f(s) - f(t) is at least `lower_bound`.

    Attributes:
        mdp: the MDP, or the chain of the policy.
        states: the ids of s and t.
        action: a, its id.
        values: (S,), g, with minimum 0.
        sign: of R(s, a) - R(t, a): 1 or -1.
        reward_gap: |R(s, a) - R(t, a)|.
        expectations: of g after action a, in s and in t.
        lower_bound: a proven lower bound on d(s, t), in units of reward.

    >>> from bisimetric import exact
    >>> P = [[[0, 0.5, 0.5]], [[0, 1, 0]], [[0, 0, 1]]]
    >>> d = exact.bisimulation(MDP(P, [[0], [0], [1]], discount=0.5))
    >>> found = potential(d, 0, 1)
    >>> found.values, found.expectations, round(found.lower_bound, 6)
    (array([0.5, 0. , 2. ]), (1.0, 0.0), 0.5)
    """

    mdp: MDP
    states: tuple[int, int]
    action: int
    values: NDArray[np.float64]
    sign: int
    reward_gap: float
    expectations: tuple[float, float]
    lower_bound: float

    def __str__(self) -> str:
        s, t = (self.mdp.state_name(state) for state in self.states)
        means = " and ".join(
            f"{mean:.6g} in {name}" for mean, name in zip(self.expectations, (s, t), strict=True)
        )
        return (
            f"d({s}; {t}) >= {self.lower_bound:.9g} by action {self.mdp.action_name(self.action)}: "
            f"reward gap {self.reward_gap:.6g}, and g is {means} after it, "
            f"at discount {self.mdp.discount:g}"
        )


def potential(distance: Distance, s: int | str, t: int | str) -> Potential:
    """Find a function of states whose expectation distinguishes s and t as much as d(s, t) does.

        W1(d)(p, q) = max { E_p g - E_q g : |g(x) - g(y)| <= d(x, y) for all x, y }

    (Kantorovich duality). The maximising action a and the maximising g for P(s, a) and P(t, a)
    attain d(s, t) = |R(s, a) - R(t, a)| + discount * (E_s g - E_t g): a lower bound, as a coupling
    of `Distance.explain` is an upper one. g is a value of the real-valued modal logic that
    characterises d~ (Desharnais, Gupta, Jagadeesan & Panangaden 2004, Metrics for labelled Markov
    processes, Theoretical Computer Science 318; van Breugel & Worrell 2005, A behavioural
    pseudometric for probabilistic transition systems, Theoretical Computer Science 331).

    Args:
        distance: d~ of an MDP without choice labels and observations, or d^pi of a deterministic
            policy in an MDP without observations.
        s: a state, by id or name.
        t: another state.

    Returns:
        The function with its expectations, and the lower bound, which is computed in rational
        numbers and within a few times the distance's error of d(s, t).

    Raises:
        InputError: the distance is of another kind or has no proven error, there is no such state,
            or the states have different labels or available actions, which no function explains.

    >>> from bisimetric import exact, worlds
    >>> d = exact.bisimulation(worlds.load("mirrored-rooms", discount=0.9))
    >>> print(potential(d, "1,5", "5,5"))
    d(1,5; 5,5) >= 11.553... by action left: reward gap 0, and g is 12.8368 in 1,5 and 0 in 5,5
    after it, at discount 0.9
    """
    caller = "exact.potential"
    mdp = _select_dynamics(caller, distance)
    pair = distance.mdp.state(s), distance.mdp.state(t)
    classes = compute_comparison_classes(mdp)
    if classes[pair[0]] != classes[pair[1]]:
        names = " and ".join(map(distance.mdp.state_name, pair))
        raise InputError(
            f"{caller}: states {names} have different labels or available actions, which sets "
            "their distance; relation.distinguish names them."
        )
    values = np.asarray(distance.values, np.float64)
    found = [
        _build_potential(mdp, values, distance.error, pair, action)
        for action in np.flatnonzero(mdp.action_mask[pair[0]]).tolist()
    ]
    return max(found, key=lambda each: each.lower_bound)


def _select_dynamics(caller: str, distance: Distance) -> MDP:
    """Return the MDP, or the chain of a deterministic policy."""
    if not isinstance(distance, Distance) or distance.kind not in ("bisimulation", "on_policy"):
        kind = getattr(distance, "kind", type(distance).__name__)
        raise InputError(
            f"{caller}: the distance is {kind} and must be exact.bisimulation or on_policy."
        )
    if not np.isfinite(distance.error) or distance.coverage is not None:
        raise InputError(f"{caller}: the distance has no proven error; compute it with exact.")
    mdp = distance.mdp
    compares_more = mdp.choice_labels is not None or mdp.ground_distance is not None
    if "gap" in distance.metadata or compares_more:
        raise InputError(f"{caller}: choice labels, observations and gap=... are not supported.")
    policy = distance.policy
    if policy is None:
        return distance.mdp
    if policy.ndim > 1:
        raise InputError(f"{caller}: the policy is stochastic and must be deterministic.")
    return distance.mdp.apply_policy(policy)


def _build_potential(
    mdp: MDP, d: NDArray[np.float64], error: float, pair: tuple[int, int], action: int
) -> Potential:
    """Return the potential of two states for one action, with its proven bound."""
    p, q = (_get_masses(mdp, state, action) for state in pair)
    states = np.array([*p, *q], np.int64)
    masses = np.array([*map(float, p.values()), *map(float, q.values())])
    costs = Costs(d, np.zeros(0, np.int64), len(d))
    targets, v = solve_potentials(states, masses, len(p), costs)
    g = np.zeros(len(d))
    if len(targets):
        g = (d[:, targets] - v).min(axis=1)
        g -= g.min()
    # For any coupling of p and q, E_p g - E_q g is at most the expected d + slack.
    slack = max(
        Fraction(float(g[x])) - Fraction(float(g[y])) - Fraction(float(d[x, y]))
        for x in p
        for y in q
    )
    means = [sum(mass * Fraction(float(g[x])) for x, mass in each.items()) for each in (p, q)]
    moved = means[0] - means[1] - max(slack, Fraction(0)) - Fraction(error)
    rewards = [Fraction(float(mdp.R[state, action])) for state in pair]
    gap = abs(rewards[0] - rewards[1])
    bound = gap + Fraction(mdp.discount) * max(moved, Fraction(0))
    return Potential(
        mdp=mdp,
        states=pair,
        action=action,
        values=g,
        sign=1 if rewards[0] >= rewards[1] else -1,
        reward_gap=float(gap),
        expectations=(float(means[0]), float(means[1])),
        lower_bound=_round_down(bound),
    )


def _get_masses(mdp: MDP, state: int, action: int) -> Masses:
    """Return the normalised distribution of the successors, in increasing order of states."""
    row = state * mdp.num_actions + action
    part = slice(mdp.P.indptr[row], mdp.P.indptr[row + 1])
    masses = normalise(mdp.P.data[part].tolist())
    return dict(zip(mdp.P.indices[part].tolist(), masses, strict=True))


def _round_down(value: Fraction) -> float:
    found = float(value)
    return found if Fraction(found) <= value else math.nextafter(found, -math.inf)

"""State abstractions by values and optimal actions: Li, Walsh & Littman's hierarchy."""

from __future__ import annotations

import itertools
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric import planning
from bisimetric._rounding import UNIT
from bisimetric.errors import InputError
from bisimetric.mdp import MDP, compute_comparison_classes, number_by_appearance
from bisimetric.mdp._validation import require_mdp
from bisimetric.relation.api import compute_classes, select_representatives

AbstractionKind = Literal["bisimulation", "q_pi", "q_star", "a_star", "pi_star"]

ABSTRACTION_TOL = 1e-9
"""Default tolerance on values, relative to the largest possible value."""
NUM_POLICIES = 3
"""Random policies per round of Q^pi-irrelevance; one would do with probability 1."""
MAX_COVERS = 100_000
"""Sets of actions that are tried for the smallest one; beyond that they are chosen greedily."""


def q_pi_irrelevance(
    mdp: MDP, policy: ArrayLike | None = None, *, tol: float | None = None, seed: int = 0
) -> NDArray[np.int64]:
    """Compute the classes of the coarsest Q^pi-irrelevance abstraction of an MDP.

        s ~ t  iff  Q^pi(s, a) = Q^pi(t, a)  for all actions a and all policies pi

    where pi ranges over the policies that act alike within a class. (Over all policies of the MDP
    the relation would not contain bisimulation: two bisimilar states may lead to states in which
    a policy acts differently.) The join of two such abstractions is one, so that there is a
    coarsest one. It is found by refinement: random policies that are constant on the current
    classes split them by Q^pi. Q^pi is a rational function of the policy, so that for almost every
    policy it differs in two states unless it agrees for all. A split is certain up to `tol`; states
    that stay together are related with probability 1, up to `tol`. See Li, Walsh & Littman (2006),
    Towards a unified theory of state abstraction for MDPs, ISAIM.

    Args:
        mdp: the MDP, without choice labels.
        policy: (S,) actions or (S, A) probabilities: Q^pi of this policy only; default: all
            policies that are constant on the classes.
        tol: values that differ by no more count as equal; default: 1e-9 max |R| / (1 - discount).
        seed: of the random policies.

    Returns:
        (S,) the class of each state, numbered by first appearance.

    Raises:
        InputError: if the MDP has choice labels, the policy does not fit, or float64 cannot resolve
            `tol`.

    >>> mdp = MDP.deterministic([[2], [3], [2], [2]], [[1.0], [0.0], [0.0], [2.0]], discount=0.5)
    >>> from bisimetric import relation
    >>> q_pi_irrelevance(mdp), relation.bisimulation(mdp)
    (array([0, 0, 1, 2]), array([0, 1, 2, 3]))
    """
    caller = "relation.q_pi_irrelevance"
    tol = _validate(caller, mdp, tol)
    classes = _compare_first(mdp)
    if policy is not None:
        return _split(classes, _evaluate(caller, mdp, policy, tol), tol)
    rng = np.random.default_rng(seed)
    while True:
        refined = classes
        for pi in _sample_policies(mdp, classes, rng):
            refined = _split(refined, _evaluate(caller, mdp, pi, tol), tol)
        if refined.max() == classes.max():
            return refined
        classes = refined


def q_star_irrelevance(mdp: MDP, *, tol: float | None = None) -> NDArray[np.int64]:
    """Compute the classes of the coarsest Q*-irrelevance abstraction of an MDP.

        s ~ t  iff  Q*(s, a) = Q*(t, a)  for all actions a

    See Li, Walsh & Littman (2006), Towards a unified theory of state abstraction for MDPs, ISAIM.
    Labels, observations and available actions must agree, too.

    Args:
        mdp: the MDP, without choice labels.
        tol: values that differ by no more count as equal; as that is not transitive, they are
            sorted and split where neighbours differ by more. Default:
            1e-9 max |R| / (1 - discount).

    Returns:
        (S,) the class of each state, numbered by first appearance.

    Raises:
        InputError: if the MDP has choice labels, or float64 cannot resolve `tol`.

    >>> P = [[2, 2], [3, 2], [2, 2], [2, 3]]
    >>> mdp = MDP.deterministic(P, [[1, 0], [0, 0], [0, 0], [2, -1]], discount=0.5)
    >>> q_star_irrelevance(mdp), q_pi_irrelevance(mdp)
    (array([0, 0, 1, 2]), array([0, 1, 2, 3]))
    """
    caller = "relation.q_star_irrelevance"
    tol = _validate(caller, mdp, tol)
    return _split(_compare_first(mdp), _evaluate(caller, mdp, None, tol), tol)


def a_star_irrelevance(mdp: MDP, *, tol: float | None = None) -> NDArray[np.int64]:
    """Compute the classes of an a*-irrelevance abstraction of an MDP, as few as possible.

    Every class has an action that is optimal in all of its states, and one value of V*:

        s ~ t  implies  V*(s) = Q*(s, a) = Q*(t, a) = V*(t)  for some action a of the class

    There is no coarsest one, since sharing an optimal action is not transitive. States of one value
    are covered by the fewest actions (greedily, if too many sets of actions would have to be
    tried). See Li, Walsh & Littman (2006), Towards a unified theory of state abstraction for MDPs,
    ISAIM.

    Args:
        mdp: the MDP, without choice labels.
        tol: values that differ by no more count as equal; default: 1e-9 max |R| / (1 - discount).

    Returns:
        (S,) the class of each state, numbered by first appearance.

    Raises:
        InputError: if the MDP has choice labels, or float64 cannot resolve `tol`.

    >>> R = [[1, 0], [1, 0.5], [0, 1], [0, 0]]
    >>> mdp = MDP.deterministic([[3, 3]] * 4, R, discount=0.5)
    >>> a_star_irrelevance(mdp), q_star_irrelevance(mdp)
    (array([0, 0, 1, 2]), array([0, 1, 2, 3]))
    """
    caller = "relation.a_star_irrelevance"
    tol = _validate(caller, mdp, tol)
    Q = _evaluate(caller, mdp, None, tol)
    return _cover(_split(_compare_first(mdp, lax=True), Q.max(axis=1)[:, None], tol), Q, tol)


def pi_star_irrelevance(mdp: MDP, *, tol: float | None = None) -> NDArray[np.int64]:
    """Compute the classes of a pi*-irrelevance abstraction of an MDP, as few as possible.

    Every class has an action that is optimal in all of its states:

        s ~ t  implies  Q*(s, a) = V*(s) and Q*(t, a) = V*(t)  for some action a of the class

    so that some optimal policy is constant on the classes. There is no coarsest one; the states are
    covered by the fewest actions (greedily, if too many sets of actions would have to be tried).
    See Li, Walsh & Littman (2006), Towards a unified theory of state abstraction for MDPs, ISAIM.

    Args:
        mdp: the MDP, without choice labels.
        tol: values that differ by no more count as equal; default: 1e-9 max |R| / (1 - discount).

    Returns:
        (S,) the class of each state, numbered by first appearance.

    Raises:
        InputError: if the MDP has choice labels, or float64 cannot resolve `tol`.

    >>> R = [[1, 0], [1, 0.5], [0, 1], [0, 0]]
    >>> mdp = MDP.deterministic([[3, 3]] * 4, R, discount=0.5)
    >>> pi_star_irrelevance(mdp)
    array([0, 0, 1, 0])
    """
    caller = "relation.pi_star_irrelevance"
    tol = _validate(caller, mdp, tol)
    return _cover(_compare_first(mdp, lax=True), _evaluate(caller, mdp, None, tol), tol)


def check_abstraction(
    mdp: MDP, labels: ArrayLike, *, tol: float | None = None, seed: int = 0
) -> dict[AbstractionKind, bool]:
    """Check which conditions of Li, Walsh & Littman's hierarchy a partition of the states meets.

    Each condition implies the next: model-irrelevance, which is that the classes are a
    bisimulation; Q^pi-, Q*-, a*- and pi*-irrelevance. See the functions of these names.

    Args:
        mdp: the MDP, without choice labels.
        labels: (S,) the class of each state, from 0 without gaps.
        tol: values that differ by no more count as equal; default: 1e-9 max |R| / (1 - discount).
        seed: of the random policies that check Q^pi-irrelevance.

    Returns:
        Whether the partition is a bisimulation, and Q^pi-, Q*-, a*- and pi*-irrelevant, by the
        names "bisimulation", "q_pi", "q_star", "a_star" and "pi_star".

    Raises:
        InputError: if the labels do not fit the MDP, it has choice labels, or float64 cannot
            resolve `tol`.

    >>> R = [[1, 0], [1, 0.5], [0, 1], [0, 0]]
    >>> mdp = MDP.deterministic([[3, 3]] * 4, R, discount=0.5)
    >>> [name for name, holds in check_abstraction(mdp, [0, 0, 1, 2]).items() if holds]
    ['a_star', 'pi_star']
    """
    caller = "relation.check_abstraction"
    tol = _validate(caller, mdp, tol)
    classes = np.asarray(labels)
    select_representatives("check_abstraction", mdp, classes, None)
    # Numbered by appearance, so that a finer partition is one with more classes.
    classes = number_by_appearance(classes)
    same = number_by_appearance(classes, _compare_first(mdp)).max() == classes.max()
    stable = same and compute_classes(mdp, initial=classes).max() == classes.max()
    Q = _evaluate(caller, mdp, None, tol)
    V = Q.max(axis=1)
    same_labels = (
        number_by_appearance(classes, _compare_first(mdp, lax=True)).max() == classes.max()
    )
    q_pi = same
    for pi in _sample_policies(mdp, classes, np.random.default_rng(seed)) if same else ():
        q_pi = q_pi and _is_constant(classes, _evaluate(caller, mdp, pi, tol), tol)
    shared = np.ones((int(classes.max()) + 1, mdp.num_actions), np.bool_)
    np.logical_and.at(shared, classes, _find_optimal(Q, tol))
    pi_star = same_labels and bool(shared.any(axis=1).all())
    return {
        "bisimulation": bool(stable),
        "q_pi": bool(q_pi),
        "q_star": bool(same and _is_constant(classes, Q, tol)),
        "a_star": pi_star and _is_constant(classes, V[:, None], tol),
        "pi_star": pi_star,
    }


def _validate(caller: str, mdp: MDP, tol: float | None) -> float:
    """Return the tolerance on values."""
    require_mdp(caller, mdp)
    if mdp.choice_labels is not None:
        raise InputError(
            f"{caller}: choice labels are not supported; use mdp.replace(choice_labels=None)."
        )
    if tol is None:
        return ABSTRACTION_TOL * float(np.abs(mdp.R).max()) / (1 - mdp.discount)
    if not (tol >= 0 and np.isfinite(tol)):
        raise InputError(
            f"is {tol} and must be at least 0 and finite", caller=caller, argument="tol"
        )
    return float(tol)


def _compare_first(mdp: MDP, *, lax: bool = False) -> NDArray[np.int64]:
    """Return the classes by labels, observations and, unless `lax`, available actions."""
    classes = compute_comparison_classes(mdp, lax=lax)
    if mdp.ground_distance is None:
        return number_by_appearance(classes)
    return number_by_appearance(classes, mdp.ground_distance.classes)


def _evaluate(caller: str, mdp: MDP, policy: ArrayLike | None, tol: float) -> NDArray[np.float64]:
    """Compute Q^pi, or Q* without a policy, to less than half of the tolerance."""
    values = (
        planning.optimal_values(mdp, tol=np.inf)
        if policy is None
        else planning.policy_values(mdp, policy, tol=np.inf)
    )
    largest = float(np.abs(values.values).max() + np.abs(mdp.R).max())
    rounding = (2 * int(np.diff(mdp.P.indptr).max()) + 6) * UNIT * largest
    error = mdp.discount * values.error + rounding
    if 2 * error > tol > 0 or (tol == 0 and largest > 0):
        raise InputError(
            f"is {tol:g} and action values are proven to {error:.2g} only", caller=caller,
            argument="tol", remedy=f"pass {4 * error:.1g} or more",
        )  # fmt: skip
    return planning.action_values(mdp, values)


def _split(
    classes: NDArray[np.int64], values: NDArray[np.float64], tol: float
) -> NDArray[np.int64]:
    """Refine classes (S,) by the columns of values (S, k), up to the tolerance."""
    codes = []
    for column in values.T:
        distinct, rank = np.unique(column, return_inverse=True)
        with np.errstate(invalid="ignore"):  # missing actions are minus infinity
            steps = np.diff(distinct) > tol
        codes.append(np.concatenate([[0], np.cumsum(steps)])[rank])
    return number_by_appearance(classes, *codes)


def _is_constant(classes: NDArray[np.int64], values: NDArray[np.float64], tol: float) -> bool:
    """Return whether the columns of values are constant on the classes, up to the tolerance."""
    return bool(_split(classes, values, tol).max() == classes.max())


def _sample_policies(
    mdp: MDP, classes: NDArray[np.int64], rng: np.random.Generator
) -> list[NDArray[np.float64]]:
    """Sample stochastic policies (S, A) that are constant on the classes."""
    num_classes = int(classes.max()) + 1
    policies = []
    for _ in range(NUM_POLICIES):
        weights = rng.dirichlet(np.ones(mdp.num_actions), num_classes)[classes] * mdp.action_mask
        policies.append(weights / weights.sum(axis=1, keepdims=True))
    return policies


def _find_optimal(Q: NDArray[np.float64], tol: float) -> NDArray[np.bool_]:
    """Return which actions are optimal, (S, A)."""
    return np.asarray(Q.max(axis=1, keepdims=True) - tol <= Q)


def _cover(classes: NDArray[np.int64], Q: NDArray[np.float64], tol: float) -> NDArray[np.int64]:
    """Split each class by the fewest actions, one of which is optimal in each of its states."""
    optimal = _find_optimal(Q, tol)
    chosen = np.empty(len(classes), np.int64)
    for label in range(int(classes.max()) + 1):
        members = np.flatnonzero(classes == label)
        actions = np.array(_find_smallest_cover(np.unique(optimal[members], axis=0)))
        chosen[members] = actions[optimal[np.ix_(members, actions)].argmax(axis=1)]
    return number_by_appearance(classes, chosen)


def _find_smallest_cover(optimal: NDArray[np.bool_]) -> list[int]:
    """Return a smallest set of columns of which every row (n, A) has one.

    >>> _find_smallest_cover(np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1]], bool))
    [0, 1]
    """
    candidates = np.flatnonzero(optimal.any(axis=0)).tolist()
    num_tried = 0
    for size in range(1, len(candidates) + 1):
        for subset in itertools.combinations(candidates, size):
            if optimal[:, subset].any(axis=1).all():
                return list(subset)
            num_tried += 1
            if num_tried > MAX_COVERS:
                return _find_greedy_cover(optimal)
    raise AssertionError("every state has an optimal action")


def _find_greedy_cover(optimal: NDArray[np.bool_]) -> list[int]:
    """Choose the column that covers most rows, until all are covered."""
    actions, left = [], optimal
    while len(left):
        actions.append(int(left.sum(axis=0).argmax()))
        left = left[~left[:, actions[-1]]]
    return sorted(actions)

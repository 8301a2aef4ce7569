"""How far distances can move if the probabilities and rewards of an MDP are perturbed."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from bisimetric import _memory
from bisimetric._rounding import TINY, UNIT
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.mdp import MDP, compute_comparison_classes, induce_chain

MAX_SWEEPS = 1000
MIN_IMPROVEMENT = 1e-6
"""Sweeps end when the largest bound decreases by less than this fraction of it."""
ROUNDING = 1 + 32 * UNIT
"""Bounds are sums and products of few numbers of at least 0."""


def perturbation_bound(
    distance: Distance,
    *,
    probability: float = 0.0,
    reward: float = 0.0,
    preserve_support: bool = False,
) -> NDArray[np.float64]:
    """Bound |d'(s, t) - d(s, t)| for every MDP whose probabilities and rewards are nearby.

    Let TV(P'(s, a), P(s, a)) <= eps, half the L1 distance, and |R'(s, a) - R(s, a)| <= delta for
    all states and available actions, with the same labels, observations and available actions.
    Then, with D = max d,

        max |d' - d| <= (2 delta + 2 discount eps D) / (1 - discount),

    because W1(d)(P, P') <= eps D, so that F' and F differ by at most 2 delta + 2 discount eps D
    at d, and F' is a contraction. The bounds returned are smaller: they are iterated from this one
    by e(s, t) <= max_a 2 delta + discount (c(s, a) + c(t, a) + e(a successor of s and of t)), where
    c(s, a) = eps max d(x, y) over the successors x of s, and over those y that mass may move to.
    d_lax compares all pairs of actions. For d^pi, P and R are those of the chain of the policy.

    The first bound is attained in the limit of small eps, and the pairwise ones are attained with
    equality, by examples in the documentation (concepts, witnesses and robustness).

    Args:
        distance: d~, d^pi or d_lax of `exact`.
        probability: eps, the total variation distance by which each row may change, at most 1.
        reward: delta, by which each reward may change.
        preserve_support: whether probabilities of 0 stay 0; then mass moves between the successors
            only, and a row with one successor is fixed.

    Returns:
        (S, S) a proven bound for each pair, in units of reward; it refers to the true distances,
        so that computed ones may differ by their errors more.

    Raises:
        InputError: the distance is of another kind or has no proven error, or a number is out of
            range.
        InsufficientMemory: the bounds do not fit into memory.

    >>> from bisimetric import exact
    >>> P = [[[0, 0, 0.5, 0.5]], [[0, 0, 0.5, 0.5]], [[0, 0, 1, 0]], [[0, 0, 0, 1]]]
    >>> d = exact.bisimulation(MDP(P, [[0], [0], [0], [1]], discount=0.5))
    >>> bounds = perturbation_bound(d, probability=0.1, preserve_support=True)
    >>> bounds[[0, 2], [1, 3]].round(4)  # d(2, 3) = 2: mass 0.1 moves by 2 in both rows
    array([0.2, 0. ])
    """
    caller = "exact.perturbation_bound"
    _validate(caller, distance, probability, reward)
    mdp, lax = distance.mdp, distance.kind == "lax"
    if distance.policy is not None:
        mdp = induce_chain(mdp, distance.policy).mdp
    _memory.require_memory(
        f"{caller}: {mdp.num_states:,} states need",
        8.0 * mdp.num_states**2 * (3 + mdp.num_actions + mdp.P.nnz / mdp.num_states),
        "reduce the MDP with relation.quotient",
    )
    upper = np.asarray(distance.values, np.float64) + distance.error
    np.fill_diagonal(upper, 0.0)
    jump = _bound_reward_change(mdp, reward)
    bounds, comparable = _initialise(mdp, upper, probability, reward, jump, lax)
    costs = _bound_moved_mass(mdp, upper, probability, preserve_support)
    outside = 0.0 if preserve_support else min(1.0, 2 * probability)
    for _ in range(MAX_SWEEPS):
        largest = float(bounds.max())
        after = _maximise_over_successors(mdp, bounds, costs, outside, lax)
        image = np.where(comparable, (2 * reward + mdp.discount * after) * ROUNDING, bounds)
        np.fill_diagonal(image, 0.0)
        improvement = float((bounds - image).max(initial=0.0))
        np.minimum(bounds, image, out=bounds)
        if improvement <= MIN_IMPROVEMENT * largest:
            break
    return bounds


def _validate(caller: str, distance: Distance, probability: float, reward: float) -> None:
    if not isinstance(distance, Distance) or distance.kind not in (
        "bisimulation", "on_policy", "lax",
    ):  # fmt: skip
        kind = getattr(distance, "kind", type(distance).__name__)
        raise InputError(
            f"{caller}: the distance is {kind} and must be exact.bisimulation, on_policy or lax."
        )
    if not np.isfinite(distance.error) or distance.coverage is not None:
        raise InputError(f"{caller}: the distance has no proven error; compute it with exact.")
    if "gap" in distance.metadata:
        raise InputError(f"{caller}: distances with gap=... are not supported.")
    if not 0 <= probability <= 1:
        raise InputError(
            f"is {probability} and must be from 0 to 1", caller=caller, argument="probability"
        )
    if not (reward >= 0 and np.isfinite(reward)):
        raise InputError(
            f"is {reward} and must be at least 0 and finite", caller=caller, argument="reward"
        )


def _bound_reward_change(mdp: MDP, reward: float) -> float:
    """Bound the change of (1 - discount) * `MDP.diameter_bound`.

    The reward range changes by at most 2 delta. If labels differ, a range of 0 counts as 1.
    """
    if not mdp.has_labels or reward == 0:
        return 2 * reward
    rewards = mdp.R[mdp.action_mask]
    return max(2 * reward, 1.0) if np.ptp(rewards) <= 2 * reward else 2 * reward


def _initialise(
    mdp: MDP, upper: NDArray[np.float64], eps: float, reward: float, jump: float, lax: bool
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the uniform bound for all pairs, and which pairs are comparable."""
    discount = mdp.discount
    classes = compute_comparison_classes(mdp, lax=lax)
    comparable = classes[:, None] == classes
    largest = float(upper.max())
    one_step = 2 * reward + 2 * discount * eps * largest
    uniform = max(one_step, 0.0 if comparable.all() else jump) / (1 - discount)
    bounds = np.where(comparable, uniform, jump / (1 - discount)) * ROUNDING + TINY
    # Both distances lie between 0 and the diameter bound of their MDP.
    diameter = (mdp.diameter_bound + jump / (1 - discount)) * ROUNDING
    np.minimum(bounds, np.maximum(upper, diameter), out=bounds)
    np.fill_diagonal(bounds, 0.0)
    return bounds, comparable


def _bound_moved_mass(
    mdp: MDP, upper: NDArray[np.float64], eps: float, preserve_support: bool
) -> NDArray[np.float64]:
    """Bound W1(d)(P(s, a), P'(s, a)) for each state and action, (S, A)."""
    starts, successors = mdp.P.indptr[:-1], mdp.P.indices
    if not preserve_support:
        farthest = np.maximum.reduceat(upper.max(axis=1)[successors], starts)
    else:
        farthest = np.zeros(len(starts))
        for row, (low, high) in enumerate(itertools.pairwise(mdp.P.indptr.tolist())):
            support = successors[low:high]
            farthest[row] = upper[np.ix_(support, support)].max()
    return (eps * farthest).reshape(mdp.R.shape)


def _maximise_over_successors(
    mdp: MDP,
    bounds: NDArray[np.float64],
    costs: NDArray[np.float64],
    outside: float,
    lax: bool,
) -> NDArray[np.float64]:
    """Return max c(s, a) + c(t, b) + e(x, y), over compared actions and their successors x, y.

    `outside` is the mass that may be on pairs (x, y) of other states.
    """
    num_actions = mdp.num_actions
    mask, largest = mdp.action_mask, float(bounds.max())
    groups = np.zeros(num_actions, np.int64) if lax else mdp.choice_groups
    found = np.zeros_like(bounds)
    supports = [_list_successors(mdp, action) for action in range(num_actions)]
    for a, (successors, starts) in enumerate(supports):
        half = np.maximum.reduceat(bounds[successors], starts, axis=0)
        for b in np.flatnonzero(groups == groups[a]).tolist():
            other, other_starts = supports[b]
            after = np.maximum.reduceat(half[:, other], other_starts, axis=1)
            if outside > 0:
                after += outside * (largest - after)
            after += costs[:, a][:, None] + costs[:, b]
            np.maximum(found, after, out=found, where=mask[:, a][:, None] & mask[:, b])
    return found


def _list_successors(mdp: MDP, action: int) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Return the successors of all states under an action, and where those of each state begin."""
    rows = mdp.P[np.arange(mdp.num_states) * mdp.num_actions + action]
    return rows.indices, rows.indptr[:-1]

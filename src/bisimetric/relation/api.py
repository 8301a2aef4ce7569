"""Bisimulation relations by partition refinement, and the quotient MDP on their classes.

Each state and available action is a row: the label (a, R(s, a)), or only R(s, a) if actions are
matched freely, and the distribution of the successors. The initial partition is that by label sets
and observations.
States are split by the rows that they have, and rows by their probabilities of the blocks, always
by the smaller part, in O(m log m) for m transitions. Deterministic MDPs have a faster kernel.

The first call compiles for some seconds; later processes read the result from Numba's cache.
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from bisimetric.errors import InputError, NearTieWarning
from bisimetric.mdp import MDP, StateLabels, compute_comparison_classes, number_by_appearance
from bisimetric.mdp._validation import require_mdp
from bisimetric.relation.lumping import FIXED_POINT_ONE, group_by_successor, lump
from bisimetric.relation.refinement import refine

RELATION_TOL = 1e-13
"""Default tolerance below which two probabilities of a class count as equal."""
NEAR_TIE = 2.0**-46
"""Rewards whose relative difference is at most this are reported as near-ties."""


def bisimulation(
    mdp: MDP, *, tol: float = RELATION_TOL, reward_tol: float = 0.0
) -> NDArray[np.int64]:
    """Compute the classes of the largest bisimulation relation of an MDP.

        s ~ t  iff  L(s) = L(t)  and
                    for all a:  R(s, a) = R(t, a)  and  P(s, a)(C) = P(t, a)(C) for all classes C

    L(s) is the label set of s (`MDP.labels`). Where states have observations, s and t must also be
    at ground distance 0 (`MDP.ground_distance`), in all relations. States with different available
    actions are never bisimilar. Actions with equal `MDP.choice_labels` are compared as sets: each
    action of s is matched by one of t with the same label, and each of t by one of s. At a discount
    above 0 the true d~ is 0 within a class and positive between classes; a computed one may be
    below its error there, and at discount 0 only labels, observations and immediate rewards count.
    See Givan, Dean & Greig (2003), Equivalence notions and model minimization in Markov decision
    processes, Artificial Intelligence 147; Larsen & Skou (1991), Bisimulation through probabilistic
    testing, Information and Computation 94.

    Probabilities count as equal within `tol`, rewards within `reward_tol`; as that is not
    transitive, they are sorted and split where neighbours differ by more. Rows are normalised, and
    probabilities are integer multiples of 2^-62, so that their sums are exact in any order. By
    default 1e-12 differs from 0, and 0.1 + 0.2 equals 0.3 as a probability, but not as a reward:
    a `NearTieWarning` names such rewards.

    Args:
        mdp: the MDP.
        tol: tolerance on probabilities, at least 0 and below 1; 0 compares exactly. Unused for a
            deterministic MDP.
        reward_tol: tolerance on rewards of one action, at least 0; 0 compares exactly.

    Returns:
        (S,) the class of each state, numbered by first appearance.

    Raises:
        InputError: if a tolerance is out of range.

    >>> P = [[[0, 0.3, 0.7]], [[0.1, 0.2, 0.7]], [[0, 0, 1]]]
    >>> mdp = MDP(P, [[1], [1], [0]], discount=0.9)
    >>> bisimulation(mdp)
    array([0, 0, 1])
    >>> bisimulation(mdp.replace(labels=["x", "y", "x"]))
    array([0, 1, 2])
    >>> bisimulation(mdp.replace(observations=[[0.5], [0.5], [0.7]]))
    array([0, 0, 1])
    """
    require_mdp("relation.bisimulation", mdp)
    return compute_classes(mdp, tol=tol, reward_tol=reward_tol, warn_caller="relation.bisimulation")


def on_policy(
    mdp: MDP, policy: ArrayLike, *, tol: float = RELATION_TOL, reward_tol: float = 0.0
) -> NDArray[np.int64]:
    """Compute the classes of the largest bisimulation relation of the chain a policy induces.

        s ~ t  iff  L(s) = L(t), R^pi(s) = R^pi(t), and P^pi(s)(C) = P^pi(t)(C) for all classes C

    R^pi is compared as computed: a stochastic policy rounds it, see `reward_tol`.

    Args:
        mdp: the MDP.
        policy: (S,) actions or (S, A) probabilities.
        tol: tolerance on probabilities, at least 0 and below 1; see `relation.bisimulation`.
        reward_tol: tolerance on rewards, at least 0; see `relation.bisimulation`.

    Returns:
        (S,) the class of each state, numbered by first appearance.

    Raises:
        InputError: if the policy does not fit the MDP, or a tolerance is out of range.

    >>> mdp = MDP.deterministic([[2, 0], [1, 2], [2, 2]], [[1, 0], [3, 1], [0, 0]], discount=0.9)
    >>> on_policy(mdp, [0, 1, 0])
    array([0, 0, 1])
    """
    require_mdp("relation.on_policy", mdp)
    chain = mdp.apply_policy(policy)
    return compute_classes(chain, tol=tol, reward_tol=reward_tol, warn_caller="relation.on_policy")


def lax(mdp: MDP, *, tol: float = RELATION_TOL, reward_tol: float = 0.0) -> NDArray[np.int64]:
    """Compute the classes of the largest lax bisimulation relation of an MDP.

        s ~ t  iff  L(s) = L(t)  and  {(R(s, a), [P(s, a)]) : a} = {(R(t, b), [P(t, b)]) : b}

    as sets over the available actions, where L(s) is the label set of s and [P(s, a)] are the
    probabilities of the classes: each action of s is matched by an action of t in reward and
    dynamics, and each of t by one of s. This is strong probabilistic bisimulation as in Storm and
    PRISM, which ignores action labels. The zero set of d_lax is this relation. See Taylor, Precup &
    Panangaden (2009), Bounding performance loss in approximate MDP homomorphisms, NIPS 21.

    Args:
        mdp: the MDP.
        tol: tolerance on probabilities, at least 0 and below 1; see `relation.bisimulation`.
        reward_tol: tolerance on rewards, at least 0; see `relation.bisimulation`.

    Returns:
        (S,) the class of each state, numbered by first appearance.

    Raises:
        InputError: if a tolerance is out of range.

    >>> mdp = MDP.deterministic([[2, 0], [1, 2], [2, 2]], [[1, 0], [0, 1], [0, 0]], discount=0.9)
    >>> lax(mdp), bisimulation(mdp)
    (array([0, 0, 1]), array([0, 1, 2]))
    """
    require_mdp("relation.lax", mdp)
    return compute_classes(
        mdp, lax=True, tol=tol, reward_tol=reward_tol, warn_caller="relation.lax"
    )


def representatives(labels: ArrayLike) -> NDArray[np.int64]:
    """Return the first state of each class.

    Args:
        labels: (S,) the class of each state, from 0 without gaps.

    Returns:
        (C,) state ids.

    Raises:
        InputError: if the labels are not such integers.

    >>> representatives([0, 0, 1, 0, 2])
    array([0, 2, 4])
    """
    return _find_representatives("representatives", np.asarray(labels))


def quotient(mdp: MDP, labels: ArrayLike, *, states: ArrayLike | None = None) -> MDP:
    """Build the MDP on the classes of a relation from one representative of each class.

        R'(c, a) = R(s_c, a),    P'(c, a)(k) = P(s_c, a)(states of class k)

    where s_c is the representative of class c. Rows are normalised; names, positions, features,
    labels, observations, policy and available actions are those of the representatives. If the
    classes come from `bisimulation` or `lax`, V*(s) is the optimal value of the class of s,
    `V_quotient[labels]`.

    Args:
        mdp: the MDP.
        labels: (S,) the class of each state, from 0 without gaps.
        states: (C,) the representative of each class; default: its first state.

    Returns:
        The MDP with one state per class.

    Raises:
        InputError: if the labels or the representatives do not fit the MDP.

    >>> P = [[[0, 0.2, 0.8]], [[0, 0.4, 0.6]], [[0, 0, 1]]]
    >>> mdp = MDP(P, [[1], [1], [1]], discount=0.9, names="xyz")
    >>> small = quotient(mdp, [0, 1, 1])
    >>> small.names, small.P.toarray()
    (('x', 'y'), array([[0., 1.], [0., 1.]]))
    """
    classes = np.asarray(labels)
    first = select_representatives("quotient", mdp, classes, states)

    def select(rows: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if rows is None else rows[first]

    rows = mdp.normalised_probabilities[
        (first[:, None] * mdp.num_actions + np.arange(mdp.num_actions)).ravel()
    ]
    P = sparse.csr_array(
        (rows.data, classes[rows.indices], rows.indptr),
        shape=(rows.shape[0], len(first)),
    )
    vectors, metric = (
        (None, None) if mdp.ground_distance is None else mdp.ground_distance.select(first)
    )
    return MDP(
        P,
        mdp.R[first],
        mdp.discount,
        names=None if mdp.names is None else tuple(mdp.names[s] for s in first),
        actions=mdp.actions,
        positions=select(mdp.positions),
        features=select(mdp.features),
        policy=select(mdp.policy),
        available=select(mdp.available),
        labels=None
        if mdp.labels is None
        else StateLabels({name: mask[first] for name, mask in mdp.labels.items()}, len(first)),
        choice_labels=mdp.choice_labels,
        observations=vectors,
        ground_distance=metric,
    )


def select_representatives(
    caller: str, mdp: MDP, classes: NDArray[Any], states: ArrayLike | None
) -> NDArray[np.int64]:
    """Return one state per class (C,): those given, or the first ones."""
    if classes.shape != (mdp.num_states,):
        raise InputError(
            f"{caller}: labels have shape {classes.shape} and must be one integer for each of "
            f"{mdp.num_states} states."
        )
    first = _find_representatives(caller, classes)
    if states is None:
        return first
    return _validate_states(caller, np.asarray(states), classes, len(first))


def _validate_states(
    caller: str, states: NDArray[Any], labels: NDArray[Any], classes: int
) -> NDArray[np.int64]:
    """Return one state per class, in the order of the classes, or raise InputError."""
    valid = states.shape == (classes,) and states.dtype.kind in "iu"
    valid = valid and bool(((states >= 0) & (states < len(labels))).all())
    if not valid or not np.array_equal(labels[states], np.arange(classes)):
        raise InputError(
            f"{caller}: states are {states.dtype} of shape {states.shape} and must be ids of one "
            f"state of each of {classes} classes, in the order of the classes."
        )
    return states


def _find_representatives(caller: str, labels: NDArray[Any]) -> NDArray[np.int64]:
    if labels.ndim != 1 or labels.size == 0 or labels.dtype.kind not in "iu":
        raise InputError(
            f"{caller}: labels are {labels.dtype} of shape {labels.shape} and must be one integer "
            "per state."
        )
    found, first = np.unique(labels, return_index=True)
    if not np.array_equal(found, np.arange(len(found))):
        raise InputError(
            f"{caller}: {len(found)} classes are labelled from {found[0]} to {found[-1]} and must "
            f"be from 0 to {len(found) - 1}."
        )
    return first


def compute_classes(
    mdp: MDP,
    *,
    lax: bool = False,
    tol: float = RELATION_TOL,
    reward_tol: float = 0.0,
    warn_caller: str | None = None,
    initial: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Compute the classes (S,) of `bisimulation` or `lax`.

    `warn_caller` begins the warning on near-ties; None raises none. `initial` (S,) is the partition
    to refine, numbered without gaps; None is that by labels, observations and available actions.
    """
    if not 0 <= tol < 1:
        raise InputError(f"relation: tol is {tol} and must be at least 0 and below 1.")
    if not (reward_tol >= 0 and np.isfinite(reward_tol)):
        raise InputError(f"relation: reward_tol is {reward_tol} and must be at least 0 and finite.")
    num_states, num_actions = mdp.R.shape
    groups = np.zeros(num_actions, np.int64) if lax else mdp.choice_groups
    match_freely = len(np.unique(groups)) < num_actions
    starts, successors, probabilities = mdp.P.indptr, mdp.P.indices, mdp.P.data
    if initial is None:
        initial = compute_comparison_classes(mdp, lax=lax)
        if mdp.ground_distance is not None:
            initial = number_by_appearance(initial, mdp.ground_distance.classes)
    source = np.repeat(np.arange(num_states), num_actions)
    action = np.tile(np.arange(num_actions), num_states)
    rewards = mdp.R.ravel()
    if mdp.available is not None:
        rows = np.flatnonzero(mdp.available)
        source, action, rewards = source[rows], action[rows], rewards[rows]
        # As mdp.P[rows], which takes longer than the refinement of a small model.
        support = np.diff(starts)[rows]
        ends = np.cumsum(support)
        entries = np.arange(ends[-1]) + np.repeat(starts[rows] - ends + support, support)
        successors, probabilities = successors[entries], probabilities[entries]
        starts = np.concatenate([[0], ends])
    labels, num_labels = label_rows(rewards, groups[action], reward_tol, warn_caller)
    # Refinement is memory-bound, so indices use the narrowest type.
    index: Any = np.int32 if len(successors) <= np.iinfo(np.int32).max else np.int64
    start = (initial.astype(index), int(initial.max()) + 1)
    edges = (source.astype(index), labels.astype(index), num_labels)
    successors = successors.astype(index)
    classes: NDArray[np.int64]
    if len(successors) == len(labels):
        classes = refine(edges[0], successors, *edges[1:], *start, match_freely)
    else:
        moves = group_by_successor(starts.astype(index), successors, probabilities, num_states)
        classes = lump(*moves, *edges, *start, match_freely, int(tol * FIXED_POINT_ONE))
    return classes


def label_rows(
    rewards: NDArray[np.float64],
    groups: NDArray[np.int64],
    reward_tol: float,
    warn_caller: str | None = None,
) -> tuple[NDArray[np.int64], int]:
    """Number the pairs of a group and a reward, without gaps; return their number too."""
    labels = np.empty(len(rewards), np.int64)
    # Small integers are sorted by radix.
    narrow = groups.astype(np.int16 if int(groups.max()) < 2**15 else np.int64)
    order = np.argsort(narrow, kind="stable") if groups.any() else np.arange(len(groups))
    bounds = np.flatnonzero(np.diff(groups[order], prepend=-1, append=-1))
    num_labels = 0
    for low, high in itertools.pairwise(bounds.tolist()):
        members = order[low:high]
        values = rewards[members] + 0.0  # -0.0 + 0.0 is 0.0
        if values.min() == values.max():
            labels[members] = num_labels
            num_labels += 1
            continue
        distinct, rank = np.unique(values, return_inverse=True)
        gaps = np.diff(distinct)
        splits = gaps > reward_tol
        if warn_caller is not None:
            _warn_near_ties(warn_caller, distinct, gaps, splits)
        merged = np.concatenate([[0], np.cumsum(splits)])
        labels[members] = num_labels + merged[rank]
        num_labels += int(merged[-1]) + 1
    return labels, num_labels


def _warn_near_ties(
    caller: str, distinct: NDArray[Any], gaps: NDArray[Any], splits: NDArray[Any]
) -> None:
    sizes = np.maximum(np.abs(distinct[:-1]), np.abs(distinct[1:]))
    near = np.flatnonzero(splits & (gaps <= NEAR_TIE * sizes))
    if len(near):
        low, high = distinct[near[0]], distinct[near[0] + 1]
        warnings.warn(
            f"{caller}: the rewards {low!s} and {high!s} differ by {high - low:.2g}, as by "
            f"rounding, and count as different ({len(near)} near-ties); pass reward_tol="
            f"{2 * gaps[near].max():.1g} to merge them.",
            NearTieWarning,
            stacklevel=5,
        )

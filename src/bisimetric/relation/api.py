"""Bisimulation relations by partition refinement, and the quotient MDP on their classes.

Each state and action is a row: a label, which is (a, R(s, a)), or only R(s, a) if actions are
matched freely, and the distribution of the successors. States are split by the rows that they have,
and rows by their probabilities of the blocks, always by the smaller part, in O(m log m) for m
transitions. Deterministic MDPs have a faster kernel.

The first call compiles for some seconds; later processes read the result from Numba's cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from bisimetric.errors import InputError
from bisimetric.mdp import MDP, reject_label_actions
from bisimetric.mdp._validation import require_mdp
from bisimetric.relation.lumping import FIXED_POINT_ONE, group_by_successor, lump
from bisimetric.relation.refinement import refine

RELATION_TOL = 1e-13
"""Default tolerance below which two probabilities of a class count as equal."""


def bisimulation(mdp: MDP, *, tol: float = RELATION_TOL) -> NDArray[np.int64]:
    """Compute the classes of the largest bisimulation relation of an MDP.

        s ~ t  iff  for all a:  R(s, a) = R(t, a)  and  P(s, a)(C) = P(t, a)(C) for all classes C

    States with different available actions are never bisimilar. At a discount above 0 the true d~
    is 0 within a class and positive between classes; a computed one may be below its error there,
    and at discount 0 only the immediate rewards count. See Givan, Dean & Greig (2003), Equivalence
    notions and model minimization in Markov decision processes, Artificial Intelligence 147.

    Rewards are compared exactly, as floats. Probabilities count as equal within `tol`; as that is
    not transitive, those of a class are sorted and split where neighbours differ by more than
    `tol`. Rows are normalised, and probabilities are integer multiples of 2^-62, so that their sums
    are exact in any order. By default 1e-12 differs from 0, and 0.1 + 0.2 equals 0.3.

    Args:
        mdp: the MDP.
        tol: tolerance on probabilities, at least 0 and below 1; 0 compares exactly. Unused for a
            deterministic MDP.

    Returns:
        (S,) the class of each state, numbered by first appearance.

    Raises:
        InputError: if `tol` is out of range.

    >>> P = [[[0, 0.3, 0.7]], [[0.1, 0.2, 0.7]], [[0, 0, 1]]]
    >>> mdp = MDP(P, [[1], [1], [0]], discount=0.9)
    >>> bisimulation(mdp)
    array([0, 0, 1])
    """
    require_mdp("relation.bisimulation", mdp)
    R = mdp.R
    if mdp.available is not None:
        R = np.where(mdp.available, R, np.nan)  # a separate label: all NaN have one rank
    labels = np.empty(R.shape, np.int64)
    num_labels = 0
    for a in range(mdp.num_actions):
        column, num_ranks = _rank_rewards(R[:, a])
        labels[:, a] = num_labels + column
        num_labels += num_ranks
    return _compute_classes(mdp.P, labels, num_labels, False, tol)


def on_policy(mdp: MDP, policy: ArrayLike, *, tol: float = RELATION_TOL) -> NDArray[np.int64]:
    """Compute the classes of the largest bisimulation relation of the chain a policy induces.

        s ~ t  iff  R^pi(s) = R^pi(t)  and  P^pi(s)(C) = P^pi(t)(C) for all classes C

    R^pi is compared as computed: a stochastic policy rounds it.

    Args:
        mdp: the MDP.
        policy: (S,) actions or (S, A) probabilities.
        tol: tolerance on probabilities, at least 0 and below 1; see `relation.bisimulation`.

    Returns:
        (S,) the class of each state, numbered by first appearance.

    Raises:
        InputError: if the policy does not fit the MDP, or `tol` is out of range.

    >>> mdp = MDP.deterministic([[2, 0], [1, 2], [2, 2]], [[1, 0], [3, 1], [0, 0]], discount=0.9)
    >>> on_policy(mdp, [0, 1, 0])
    array([0, 0, 1])
    """
    require_mdp("relation.on_policy", mdp)
    return bisimulation(mdp.apply_policy(policy), tol=tol)


def lax(mdp: MDP, *, tol: float = RELATION_TOL) -> NDArray[np.int64]:
    """Compute the classes of the largest lax bisimulation relation of an MDP.

        s ~ t  iff  {(R(s, a), [P(s, a)]) : a} = {(R(t, b), [P(t, b)]) : b}

    as sets over the available actions, where [P(s, a)] are the probabilities of the classes: each
    action of s is matched by an action of t in reward and dynamics, and each of t by one of s. The
    zero set of d_lax is this relation. See Taylor, Precup & Panangaden (2009), Bounding performance
    loss in approximate MDP homomorphisms, NIPS 21.

    Args:
        mdp: the MDP.
        tol: tolerance on probabilities, at least 0 and below 1; see `relation.bisimulation`.

    Returns:
        (S,) the class of each state, numbered by first appearance.

    Raises:
        InputError: if actions encode labels (`MDP.label_actions`), which must not be matched with
            others, or `tol` is out of range.

    >>> mdp = MDP.deterministic([[2, 0], [1, 2], [2, 2]], [[1, 0], [0, 1], [0, 0]], discount=0.9)
    >>> lax(mdp), bisimulation(mdp)
    (array([0, 0, 1]), array([0, 1, 2]))
    """
    require_mdp("relation.lax", mdp)
    reject_label_actions("relation.lax", mdp)
    P, R = mdp.P, mdp.R
    if mdp.available is not None:
        # An unavailable action becomes a copy of the first available one: the set is the same.
        s = np.arange(mdp.num_states)[:, None]
        first = mdp.available.argmax(axis=1)[:, None]
        a = np.where(mdp.available, np.arange(mdp.num_actions), first)
        P, R = P[(s * mdp.num_actions + a).ravel()], R[s, a]
    return _compute_classes(P, *_rank_rewards(R), True, tol)


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
    policy and available actions are those of the representatives. If the labels come from
    `bisimulation` or `lax`, V*(s) is the optimal value of the class of s, `V_quotient[labels]`.

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
    if classes.shape != (mdp.num_states,):
        raise InputError(
            f"quotient: labels have shape {classes.shape} and must be one integer for each of "
            f"{mdp.num_states} states."
        )
    first = _find_representatives("quotient", classes)
    if states is not None:
        first = _validate_states(np.asarray(states), classes, len(first))

    def select(rows: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if rows is None else rows[first]

    rows = mdp.normalised_probabilities[
        (first[:, None] * mdp.num_actions + np.arange(mdp.num_actions)).ravel()
    ]
    P = sparse.csr_array(
        (rows.data, classes[rows.indices], rows.indptr),
        shape=(rows.shape[0], len(first)),
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
        label_actions=mdp.label_actions,
    )


def _validate_states(states: NDArray[Any], labels: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """Return one state per class, in the order of the classes, or raise InputError."""
    valid = states.shape == (classes,) and states.dtype.kind in "iu"
    valid = valid and bool(((states >= 0) & (states < len(labels))).all())
    if not valid or not np.array_equal(labels[states], np.arange(classes)):
        raise InputError(
            f"quotient: states are {states.dtype} of shape {states.shape} and must be ids of one "
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


def _rank_rewards(rewards: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
    """Return the rank of each reward among the distinct ones, and their number."""
    values, ranks = np.unique(rewards + 0.0, return_inverse=True)  # -0.0 + 0.0 is 0.0
    return ranks.reshape(rewards.shape), len(values)


def _compute_classes(
    P: sparse.csr_array, labels: NDArray[np.int64], num_labels: int, match_freely: bool, tol: float
) -> NDArray[np.int64]:
    if not 0 <= tol < 1:
        raise InputError(f"relation: tol is {tol} and must be at least 0 and below 1.")
    # Refinement is memory-bound, so indices use the narrowest type.
    index: Any = np.int32 if P.nnz <= np.iinfo(np.int32).max else np.int64
    narrow, successors = labels.astype(index), P.indices.astype(index)
    classes: NDArray[np.int64]
    if P.nnz == labels.size:
        classes = refine(successors.reshape(labels.shape), narrow, num_labels, match_freely)
    else:
        moves = group_by_successor(P.indptr.astype(index), successors, P.data, len(labels))
        classes = lump(*moves, narrow.ravel(), num_labels, match_freely, int(tol * FIXED_POINT_ONE))
    return classes

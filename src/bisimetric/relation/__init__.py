"""Which states behave exactly alike? Bisimulation relations by partition refinement.

State s and action a make a row: a label, which is (a, R(s, a)), or only R(s, a) if actions may be
matched freely, and the distribution of the successors. States are parted by the rows that they
have, and rows by their probabilities of the parts, always by the smaller part, in O(m log m) for
m transitions. Deterministic MDPs have a quicker kernel of their own.

The first call compiles for some seconds; later processes read the result from Numba's cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from bisimetric.errors import InputError
from bisimetric.mdp import MDP, reject_label_actions
from bisimetric.relation.api import quotient, representatives
from bisimetric.relation.lumping import FIXED_POINT_ONE, group_by_successor, lump
from bisimetric.relation.refinement import refine

__all__ = ["RELATION_TOL", "bisimulation", "lax", "on_policy", "quotient", "representatives"]

RELATION_TOL = 1e-13
"""How far apart two probabilities of one class may lie and count as equal."""


def bisimulation(mdp: MDP, *, tol: float = RELATION_TOL) -> NDArray[np.int64]:
    """The classes (S,) of the largest bisimulation of an MDP.

        s ~ t  iff  for all a:  R(s, a) = R(t, a)  and  P(s, a)(C) = P(t, a)(C) for all classes C

    States whose available actions differ are never alike. Classes are numbered by first
    appearance. At a discount above 0 the true d~ is 0 within a class and above 0 between classes;
    a computed one may be below its error there, and at discount 0 only the first rewards count.
    See Givan, Dean & Greig (2003), Equivalence notions and model minimization in Markov decision
    processes, Artificial Intelligence 147.

    Rewards are compared exactly, as floats. Probabilities count as equal within `tol`; as that is
    not transitive, those of a class are sorted and parted where neighbours lie more than `tol`
    apart. Rows are scaled to sum to 1, and probabilities held as whole multiples of 2^-62, so that
    their sums are exact in any order. So 1e-12 is told from 0, and 0.1 + 0.2 is not told from 0.3;
    with `tol=0` it is. In a deterministic MDP `tol` has no say.

    >>> P = [[[0, 0.3, 0.7]], [[0.1, 0.2, 0.7]], [[0, 0, 1]]]
    >>> mdp = MDP(P, [[1], [1], [0]], discount=0.9)
    >>> bisimulation(mdp)
    array([0, 0, 1])
    """
    R = mdp.R
    if mdp.available is not None:
        R = np.where(mdp.available, R, np.nan)  # a label of its own: all NaN have one rank
    labels = np.empty(R.shape, np.int64)
    num_labels = 0
    for a in range(mdp.num_actions):
        column, found = _rank_rewards(R[:, a])
        labels[:, a] = num_labels + column
        num_labels += found
    return _compute_classes(mdp.P, labels, num_labels, False, tol)


def on_policy(mdp: MDP, policy: ArrayLike, *, tol: float = RELATION_TOL) -> NDArray[np.int64]:
    """The classes (S,) of the largest bisimulation of the chain that a policy makes of an MDP.

        s ~ t  iff  R^pi(s) = R^pi(t)  and  P^pi(s)(C) = P^pi(t)(C) for all classes C

    The policy is (S,) or (S, A). R^pi is compared as it is computed: a policy of probabilities
    rounds it. For `tol` see `bisimulation`.

    >>> mdp = MDP.deterministic([[2, 0], [1, 2], [2, 2]], [[1, 0], [3, 1], [0, 0]], discount=0.9)
    >>> on_policy(mdp, [0, 1, 0])
    array([0, 0, 1])
    """
    return bisimulation(mdp.apply_policy(policy), tol=tol)


def lax(mdp: MDP, *, tol: float = RELATION_TOL) -> NDArray[np.int64]:
    """The classes (S,) of the largest lax bisimulation of an MDP.

        s ~ t  iff  {(R(s, a), [P(s, a)]) : a} = {(R(t, b), [P(t, b)]) : b}

    as sets over the available actions, where [P(s, a)] holds the probabilities of the classes:
    each action of s is matched by an action of t in reward and dynamics at once, and each of t by
    one of s. See Taylor, Precup & Panangaden (2009), Bounding performance loss in approximate MDP
    homomorphisms, NIPS 21. What d_lax says of these classes, and `tol`: see `bisimulation`. Raises
    an `InputError` where actions encode labels (`MDP.label_actions`), which must not be matched
    with others.

    >>> mdp = MDP.deterministic([[2, 0], [1, 2], [2, 2]], [[1, 0], [0, 1], [0, 0]], discount=0.9)
    >>> lax(mdp), bisimulation(mdp)
    (array([0, 0, 1]), array([0, 1, 2]))
    """
    reject_label_actions("relation.lax", mdp)
    P, R = mdp.P, mdp.R
    if mdp.available is not None:
        # In place of an action that a state lacks, its first one again: the set is the same.
        s = np.arange(mdp.num_states)[:, None]
        first = mdp.available.argmax(axis=1)[:, None]
        a = np.where(mdp.available, np.arange(mdp.num_actions), first)
        P, R = P[(s * mdp.num_actions + a).ravel()], R[s, a]
    return _compute_classes(P, *_rank_rewards(R), True, tol)


def _rank_rewards(rewards: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
    """The rank of each reward among the distinct ones, and how many those are."""
    values, ranks = np.unique(rewards + 0.0, return_inverse=True)  # -0.0 + 0.0 is 0.0
    return ranks.reshape(rewards.shape), len(values)


def _compute_classes(
    P: sparse.csr_array, labels: NDArray[np.int64], num_labels: int, match_freely: bool, tol: float
) -> NDArray[np.int64]:
    if not 0 <= tol < 1:
        raise InputError(f"relation: tol is {tol} and must be at least 0 and below 1.")
    # Refinement is bound by memory traffic, so indices are as narrow as they can be.
    index: Any = np.int32 if P.nnz <= np.iinfo(np.int32).max else np.int64
    narrow, successors = labels.astype(index), P.indices.astype(index)
    classes: NDArray[np.int64]
    if P.nnz == labels.size:
        classes = refine(successors.reshape(labels.shape), narrow, num_labels, match_freely)
    else:
        moves = group_by_successor(P.indptr.astype(index), successors, P.data, len(labels))
        classes = lump(*moves, narrow.ravel(), num_labels, match_freely, int(tol * FIXED_POINT_ONE))
    return classes

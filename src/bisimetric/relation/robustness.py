"""Classes that no perturbation of the transition probabilities splits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bisimetric.mdp import MDP, number_by_appearance
from bisimetric.mdp._validation import require_mdp
from bisimetric.relation.api import compute_classes


def robust(
    mdp: MDP, *, preserve_support: bool = True, lax: bool = False, reward_tol: float = 0.0
) -> NDArray[np.int64]:
    """Compute the classes of states that are bisimilar under every perturbation of P.

        s ~ t  iff  s = t,  or  L(s) = L(t)  and  for all a:  R(s, a) = R(t, a),  and one class
                    contains the successors of s and t under a

    A perturbation changes the probabilities of each state and available action, independently of
    those of the others, by at most some eps > 0; rewards and labels stay. The largest such relation
    is a bisimulation of every perturbed MDP, and for almost all perturbations, however small eps
    is, the largest one: P'(s, a)(C) = P'(t, a)(C) is a linear equation, which holds for all
    perturbations only where both sides are 0, or both are 1. A class of `relation.bisimulation`
    that is split here can be split by an arbitrarily small perturbation; one that is not stays.

    Args:
        mdp: the MDP.
        preserve_support: whether probabilities of 0 stay 0. If not, only an MDP with one class
            keeps it, and any other gets one class per state.
        lax: perturb the classes of `relation.lax` in place of those of `relation.bisimulation`:
            actions, or those of equal choice labels, are compared as sets.
        reward_tol: tolerance on rewards, at least 0; see `relation.bisimulation`.

    Returns:
        (S,) the class of each state, numbered by first appearance.

    Raises:
        InputError: if the tolerance is out of range.

    >>> from bisimetric import relation
    >>> P = [[[0, 0, 0.5, 0.5]], [[0, 0, 0.5, 0.5]], [[0, 0, 0, 1]], [[0, 0, 1, 0]]]
    >>> one, two = MDP(P, [[0], [0], [1], [1]], 0.9), MDP(P, [[0], [0], [1], [2]], 0.9)
    >>> relation.bisimulation(one), robust(one)
    (array([0, 0, 1, 1]), array([0, 0, 1, 1]))
    >>> relation.bisimulation(two), robust(two)
    (array([0, 0, 1, 2]), array([0, 1, 2, 3]))
    """
    require_mdp("relation.robust", mdp)
    classes = compute_classes(mdp, lax=lax, reward_tol=reward_tol)
    states = np.arange(mdp.num_states)
    if not preserve_support:
        return classes if classes.max() == 0 else states
    successors, starts = mdp.P.indices, mdp.P.indptr[:-1]
    one_successor = MDP.deterministic(
        successors[starts].reshape(mdp.R.shape),
        mdp.R,
        discount=mdp.discount,
        available=mdp.available,
        choice_labels=mdp.choice_labels,
    )
    while True:
        found = classes[successors]
        spread = np.minimum.reduceat(found, starts) != np.maximum.reduceat(found, starts)
        split = spread.reshape(mdp.R.shape).any(axis=1)
        initial = number_by_appearance(classes, np.where(split, states + 1, 0))
        refined = compute_classes(one_successor, lax=lax, reward_tol=reward_tol, initial=initial)
        if refined.max() == classes.max():
            return refined
        classes = refined

"""The MDP on the classes of a relation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from bisimetric.errors import InputError
from bisimetric.mdp import MDP


def representatives(labels: ArrayLike) -> NDArray[np.int64]:
    """The first state of each class, for the labels (S,) of a relation.

    >>> representatives([0, 0, 1, 0, 2])
    array([0, 2, 4])
    """
    return _find_representatives("representatives", np.asarray(labels))


def quotient(mdp: MDP, labels: ArrayLike, *, states: ArrayLike | None = None) -> MDP:
    """The MDP on the classes of a relation, made of one state of each class.

        R'(c, a) = R(s_c, a),    P'(c, a)(k) = P(s_c, a)(states of class k)

    where s_c is `states[c]`, or `representatives(labels)[c]`, the first state of the class. Rows
    are scaled to sum to 1; names, positions, features, policy and available actions are those of
    these states.

    `labels` (S,) lead from the states to the classes and values back: if they come from
    `bisimulation` or `lax`, V*(s) is the optimal value of the class of s, `V_small[labels]`.

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
    """States (classes,), one of each class and in the order of the classes."""
    known = states.shape == (classes,) and states.dtype.kind in "iu"
    known = known and bool(((states >= 0) & (states < len(labels))).all())
    if not known or not np.array_equal(labels[states], np.arange(classes)):
        raise InputError(
            f"quotient: states are {states.dtype} of shape {states.shape} and must be ids of one "
            f"state of each of {classes} classes, in the order of the classes."
        )
    return states


def _find_representatives(caller: str, labels: NDArray[Any]) -> NDArray[np.int64]:
    if labels.ndim != 1 or labels.size == 0 or labels.dtype.kind not in "iu":
        raise InputError(
            f"{caller}: labels are {labels.dtype} of shape {labels.shape} and must be one integer "
            "for each state."
        )
    found, first = np.unique(labels, return_index=True)
    if not np.array_equal(found, np.arange(len(found))):
        raise InputError(
            f"{caller}: {len(found)} classes are labelled from {found[0]} to {found[-1]} and must "
            f"be from 0 to {len(found) - 1}."
        )
    return first

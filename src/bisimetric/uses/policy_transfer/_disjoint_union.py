"""The disjoint union of two MDPs, on which a distance compares the states of both."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric import exact
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.mdp import MDP, merge_labels, merge_observations

MAP_GAP = 3
"""Columns between the positions of the source and those of the target."""


def disjoint_union(source: MDP, target: MDP) -> MDP:
    """Return the disjoint union of two MDPs: the states of `source`, then those of `target`.

    No transition leads from one to the other; state t of the target has id S1 + t. A distance on
    the union compares the states of both.

    Actions of the same name are one action of the union. The others share columns, in order: d_lax
    ignores names, and d~, which compares equal actions, requires MDPs with the same ones. Unmatched
    actions are unavailable. Actions without names are matched by number. Labels of the same name
    are one label.

    States are named "source 1,1" and "target 1,1". Where both have positions, those of the target
    are placed to the right of the source; where both have features of the same width, an additional
    feature is 0 for the source and 1 for the target.

    Args:
        source: the first MDP.
        target: the second MDP, of the same discount.

    Returns:
        An `MDP` with S1 + S2 states.

    Raises:
        InputError: where the discounts differ, choice labels of one action, or ground distances.

    >>> from bisimetric import exact, worlds
    >>> union = disjoint_union(worlds.grid("g ", discount=0.5), worlds.grid(" g", discount=0.5))
    >>> union
    MDP(4 states, 4 actions, deterministic, discount 0.5)
    >>> d = exact.lax(union)
    >>> d("source 0,0", "target 0,1"), round(d("source 0,0", "target 0,0"), 6)
    (0.0, 2.0)
    """
    if source.discount != target.discount:
        raise InputError(
            f"uses.disjoint_union: the source has discount {source.discount:g} and the target "
            f"{target.discount:g}; load both with the same discount."
        )
    alignment = align_actions(source, target)
    num_actions = len(alignment.names)
    both = (source, target), (alignment.source, alignment.target)
    available = np.zeros((source.num_states + target.num_states, num_actions), np.bool_)
    R = np.zeros(available.shape)
    rows, offset = [], 0
    for mdp, columns in zip(*both, strict=True):
        states = offset + np.arange(mdp.num_states)
        available[np.ix_(states, columns)] = mdp.action_mask
        R[np.ix_(states, columns)] = mdp.R
        rows.append((states[:, None] * num_actions + columns).ravel())
        offset += mdp.num_states
    steps = sparse.block_diag([source.P, target.P], format="coo")
    entries = (np.concatenate(rows)[steps.row], steps.col)
    P = sparse.csr_array((steps.data, entries), (available.size, len(available)))
    vectors, metric = merge_observations((source, target))
    return MDP(
        P,
        R,
        source.discount,
        names=tuple(
            f"{which} {mdp.state_name(s)}"
            for which, mdp in (("source", source), ("target", target))
            for s in range(mdp.num_states)
        ),
        actions=None if None in alignment.names else tuple(map(str, alignment.names)),
        positions=_union_positions(source, target),
        features=_union_features(source, target),
        available=available,
        labels=merge_labels([(mdp.labels, mdp.num_states) for mdp in (source, target)]),
        choice_labels=_union_choice_labels(source, target, alignment),
        observations=vectors,
        ground_distance=metric,
    )


def solve_lax(union: MDP, *, tol: float | None = None) -> Distance:
    """Compute `exact.lax`, faster for a deterministic MDP with unavailable actions.

    d_lax compares sets of actions, and repeating an element leaves a set unchanged: an unavailable
    action is replaced by the first available one, after which every action is available.

    >>> union = disjoint_union(MDP.deterministic([[0]], [[1]], discount=0.5),
    ...                        MDP.deterministic([[0, 0]], [[1, 0]], discount=0.5))
    >>> round(solve_lax(union)(0, 1), 6), round(exact.lax(union)(0, 1), 6)
    (2.0, 2.0)
    """
    if union.available is None or not union.is_deterministic:
        return exact.lax(union, tol=tol)
    states = np.arange(union.num_states)[:, None]
    first_available = union.available.argmax(axis=1)[:, None]
    substitutes = np.where(union.available, np.arange(union.num_actions), first_available)
    completed = MDP.deterministic(
        union.next_state[states, substitutes],
        union.R[states, substitutes],
        discount=union.discount,
        labels=union.labels,
        observations=union.observations,
        ground_distance=union.ground_distance,
    )
    return dataclasses.replace(exact.lax(completed, tol=tol), mdp=union)


class ActionAlignment(NamedTuple):
    """The actions of a union.

    Attributes:
        source: (A1,), the columns of the actions of the source.
        target: (A2,), the columns of the actions of the target.
        names: one per column, or None.
        identical: whether both MDPs have the same actions.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    names: tuple[str | None, ...]
    identical: bool


def align_actions(source: MDP, target: MDP) -> ActionAlignment:
    """Match the actions of two MDPs to columns of their union; see `disjoint_union`.

    >>> left = MDP.deterministic([[0, 0]], [[0, 0]], discount=0.5, actions=["go", "wait"])
    >>> right = MDP.deterministic([[0, 0, 0]], [[0] * 3], discount=0.5, actions=["wait", "up", "x"])
    >>> alignment = align_actions(left, right)
    >>> alignment.target.tolist(), alignment.names, alignment.identical
    ([1, 0, 2], ('go/up', 'wait', 'x'), False)
    """
    source_names, target_names = source.actions, target.actions
    source_columns = np.arange(source.num_actions)
    if source_names is None or target_names is None:
        num_actions = max(source.num_actions, target.num_actions)
        identical = source.num_actions == target.num_actions
        return ActionAlignment(
            source_columns, np.arange(target.num_actions), (None,) * num_actions, identical
        )
    names = list(source_names)
    unmatched = [
        column for column in source_columns.tolist() if source_names[column] not in target_names
    ]
    target_columns = np.empty(len(target_names), np.int64)
    for action, name in enumerate(target_names):
        if name in source_names:
            target_columns[action] = source_names.index(name)
        elif unmatched:
            target_columns[action] = unmatched.pop(0)
            names[target_columns[action]] += f"/{name}"
        else:
            target_columns[action] = len(names)
            names.append(name)
    unique = len(set(names)) == len(names)
    union_names = tuple(names) if unique else (None,) * len(names)
    return ActionAlignment(
        source_columns, target_columns, union_names, set(source_names) == set(target_names)
    )


def _union_choice_labels(source: MDP, target: MDP, alignment: ActionAlignment) -> list[str] | None:
    """Return the choice labels of the columns, or None where all actions have their own."""
    if source.choice_labels is None and target.choice_labels is None:
        return None
    labels = [""] * len(alignment.names)
    for mdp, columns in ((source, alignment.source), (target, alignment.target)):
        for action, column in enumerate(columns.tolist()):
            own = mdp.choice_labels[action] if mdp.choice_labels else mdp.action_name(action)
            if labels[column] not in ("", own):
                raise InputError(
                    f"uses.disjoint_union: action {mdp.action_name(action)} has the choice label "
                    f"{own!r} in one MDP and {labels[column]!r} in the other; rename the actions."
                )
            labels[column] = own
    return labels


def _union_positions(source: MDP, target: MDP) -> NDArray[np.float64] | None:
    """Return the positions of both MDPs side by side, or None."""
    if source.positions is None or target.positions is None:
        return None
    shifted = target.positions.copy()
    shifted[:, 1] += source.positions[:, 1].max() + MAP_GAP - target.positions[:, 1].min()
    return np.concatenate([source.positions, shifted])


def _union_features(source: MDP, target: MDP) -> NDArray[np.float64] | None:
    """Return the features of both MDPs with an indicator of the target, or None."""
    source_features, target_features = source.features, target.features
    if (
        source_features is None
        or target_features is None
        or source_features.shape[1] != target_features.shape[1]
    ):
        return None
    indicator = np.repeat([0.0, 1.0], [len(source_features), len(target_features)])
    return np.column_stack([np.concatenate([source_features, target_features]), indicator])

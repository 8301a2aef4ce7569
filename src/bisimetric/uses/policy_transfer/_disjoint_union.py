"""Two MDPs as one: their disjoint union, in which the states of both have distances."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric import exact
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.mdp import MDP, reject_label_actions

MAP_GAP = 3
"""Columns from the last of the source's map to the first of the target's."""


def disjoint_union(source: MDP, target: MDP) -> MDP:
    """The disjoint union of two MDPs: the states of `source`, then those of `target`.

    No step leads from the one to the other; state t of the target has id S1 + t. Any distance of
    the union tells how far the states of the two are apart.

    Actions of one name are one action of the union. Others share a place, in their order: d_lax
    does not ask for names, and d~, which does, is for MDPs with the same actions. What a state
    cannot do is not `available` to it. Actions without names go by their numbers.

    States are named after their MDP, "source 1,1" and "target 1,1". Where both have maps, the
    target's is drawn to the right of the source's; where both have features of one width, a
    last one tells them apart.

    >>> from bisimetric import exact, worlds
    >>> pair = paired(worlds.grid("g ", discount=0.5), worlds.grid(" g", discount=0.5))
    >>> pair
    MDP(4 states, 4 actions, deterministic, discount 0.5)
    >>> d = exact.lax(pair)
    >>> d("source 0,0", "target 0,1"), round(d("source 0,0", "target 0,0"), 6)
    (0.0, 2.0)
    """
    if source.discount != target.discount:
        raise InputError(
            f"uses.paired: the source has discount {source.discount:g} and the target "
            f"{target.discount:g}, and they must be equal; load both with the same discount."
        )
    shared = align_actions(source, target)
    actions = len(shared.names)
    both = (source, target), (shared.source, shared.target)
    available = np.zeros((source.num_states + target.num_states, actions), np.bool_)
    R = np.zeros(available.shape)
    rows, first = [], 0
    for mdp, place in zip(*both, strict=True):
        states = first + np.arange(mdp.num_states)
        available[np.ix_(states, place)] = mdp.action_mask
        R[np.ix_(states, place)] = mdp.R
        rows.append((states[:, None] * actions + place).ravel())
        first += mdp.num_states
    steps = sparse.block_diag([source.P, target.P], format="coo")
    entries = (np.concatenate(rows)[steps.row], steps.col)
    P = sparse.csr_array((steps.data, entries), (available.size, len(available)))
    return MDP(
        P,
        R,
        source.discount,
        names=tuple(
            f"{which} {mdp.state_name(s)}"
            for which, mdp in (("source", source), ("target", target))
            for s in range(mdp.num_states)
        ),
        actions=None if None in shared.names else tuple(map(str, shared.names)),
        positions=_union_positions(source, target),
        features=_union_features(source, target),
        available=available,
        label_actions=tuple(
            {
                int(place[action])
                for mdp, place in zip(*both, strict=True)
                for action in mdp.label_actions
            }
        ),
    )


def solve_lax(union: MDP, *, tol: float | None = None) -> Distance:
    """`exact.lax`, quicker for a deterministic MDP in which states lack actions.

    d_lax compares sets of actions, and a set in which one occurs twice is the same set: in place of
    an action that it lacks a state takes the first that it has, and then every state has them all.

    >>> pair = paired(MDP.deterministic([[0]], [[1]], discount=0.5),
    ...               MDP.deterministic([[0, 0]], [[1, 0]], discount=0.5))
    >>> round(lax(pair)(0, 1), 6), round(exact.lax(pair)(0, 1), 6)
    (2.0, 2.0)
    """
    reject_label_actions("uses.transfer", union)
    if union.available is None or not union.is_deterministic:
        return exact.lax(union, tol=tol)
    everyone = np.arange(union.num_states)[:, None]
    first = union.available.argmax(axis=1)[:, None]
    taken = np.where(union.available, np.arange(union.num_actions), first)
    full = MDP.deterministic(
        union.next_state[everyone, taken], union.R[everyone, taken], discount=union.discount
    )
    return dataclasses.replace(exact.lax(full, tol=tol), mdp=union)


class ActionAlignment(NamedTuple):
    """The actions of a union.

    `source` (A1,) and `target` (A2,) are the places of the actions of each; `names` has one name a
    place, or None; `same` is whether both MDPs have the same actions.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    names: tuple[str | None, ...]
    identical: bool


def align_actions(source: MDP, target: MDP) -> ActionAlignment:
    """Which actions of two MDPs are one action of their union; see `paired`.

    >>> left = MDP.deterministic([[0, 0]], [[0, 0]], discount=0.5, actions=["go", "wait"])
    >>> right = MDP.deterministic([[0, 0, 0]], [[0] * 3], discount=0.5, actions=["wait", "up", "x"])
    >>> shared = shared_actions(left, right)
    >>> shared.target.tolist(), shared.names, shared.same
    ([1, 0, 2], ('go/up', 'wait', 'x'), False)
    """
    ours, theirs = source.actions, target.actions
    places = np.arange(source.num_actions)
    if ours is None or theirs is None:
        number = max(source.num_actions, target.num_actions)
        same = source.num_actions == target.num_actions
        return ActionAlignment(places, np.arange(target.num_actions), (None,) * number, same)
    names = list(ours)
    free = [place for place in places.tolist() if ours[place] not in theirs]
    found = np.empty(len(theirs), np.int64)
    for action, name in enumerate(theirs):
        if name in ours:
            found[action] = ours.index(name)
        elif free:
            found[action] = free.pop(0)
            names[found[action]] += f"/{name}"
        else:
            found[action] = len(names)
            names.append(name)
    distinct = len(set(names)) == len(names)
    called = tuple(names) if distinct else (None,) * len(names)
    return ActionAlignment(places, found, called, set(ours) == set(theirs))


def _union_positions(source: MDP, target: MDP) -> NDArray[np.float64] | None:
    if source.positions is None or target.positions is None:
        return None
    beside = target.positions.copy()
    beside[:, 1] += source.positions[:, 1].max() + MAP_GAP - target.positions[:, 1].min()
    return np.concatenate([source.positions, beside])


def _union_features(source: MDP, target: MDP) -> NDArray[np.float64] | None:
    ours, theirs = source.features, target.features
    if ours is None or theirs is None or ours.shape[1] != theirs.shape[1]:
        return None
    which = np.repeat([0.0, 1.0], [len(ours), len(theirs)])
    return np.column_stack([np.concatenate([ours, theirs]), which])

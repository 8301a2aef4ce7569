"""Sources from worlds and from data, checked, with sensible features."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError, whole
from bisimetric.exact.table import given_policy
from bisimetric.learned.losses import LOSSES, Kind
from bisimetric.learned.sources import Record, Scale, Source, States
from bisimetric.mdp import MDP
from bisimetric.memory import require_memory
from bisimetric.transitions import Transitions

INFINITE = 0x7C00
"""The bits of infinity in half precision."""
BLOCK = 2**14
"""Observations that are scaled in one go, so that it needs little memory."""

LARGEST = float(np.finfo(np.float32).max)
"""The largest number that a network can be given."""


def source_of(
    kind: Kind,
    given: MDP | Transitions | Source,
    policy: ArrayLike | None,
    noise: float,
    most: float,
) -> Source:
    """What to learn from: a source as it is, the states of an MDP, or recorded steps."""
    if isinstance(given, MDP):
        return of_mdp(kind, given, policy, noise=noise, most=most)
    if noise:
        raise InputError(
            f"learned.{kind}: noise is for the states of an MDP; data has its own, and a source is "
            "made with it."
        )
    if isinstance(given, Transitions):
        return of_transitions(kind, given, policy)
    if isinstance(given, Source):
        if policy is not None:
            raise InputError(
                f"learned.{kind}: a source is made with its policy; give it to of_mdp or "
                "of_transitions."
            )
        return given
    raise InputError(
        f"learned.{kind}: the source is {type(given).__name__} and must be an MDP or Transitions."
    )


def of_mdp(
    kind: Kind,
    mdp: MDP,
    policy: ArrayLike | None = None,
    *,
    points: ArrayLike | None = None,
    scale: Scale | None = None,
    noise: float = 0.0,
    most: float = 0.3,
) -> States:
    """The states of a deterministic MDP: by its features, else its positions, else one by one.

    `points` (S, k) are features to take instead, `scale` is how to scale them, and `noise` is
    added to them; see `learned.bisimulation`.
    """
    if not mdp.is_deterministic:
        s, a = mdp.first_branch()
        raise InputError(
            f"learned.{kind}: state {mdp.name(s)} and action {mdp.action_name(a)} have several "
            f"successors, and these losses need a deterministic MDP; use exact.{kind}."
        )
    if mdp.available is not None and kind == "bisimulation":
        raise InputError(
            f"learned.{kind}: some states lack some actions; use exact.{kind} or on_policy."
        )
    if LOSSES[kind].same_actions:
        successor, reward = mdp.next_state, mdp.R
    else:
        chain = mdp.under(given_policy(kind, mdp, policy, how="learned"))
        if not chain.is_deterministic:
            raise InputError(f"learned.{kind}: the policy must take one action a state.")
        successor, reward = chain.next_state, chain.R
    for name, value in (("noise", noise), ("most", most)):
        if not (math.isfinite(value) and value >= 0):
            raise InputError(f"learned.{kind}: {name} is {value!r} and must be at least 0.")
    if noise and not most:
        raise InputError(f"learned.{kind}: most is 0 and leaves nothing of the noise; raise it.")
    where = _points(mdp) if points is None else _given_points(kind, mdp, points)
    return States(
        jnp.asarray(where),
        jnp.asarray(successor, jnp.int32),
        jnp.asarray(_single(kind, reward)),
        standard(where) if scale is None else _fitting(kind, scale, where.shape[1]),
        float(noise),
        float(most),
    )


def of_transitions(
    kind: Kind,
    data: Transitions,
    policy: ArrayLike | None = None,
    *,
    scale: Scale | None = None,
    half: bool = False,
    growing: tuple[int, int] | None = None,
) -> Record:
    """Recorded steps; observations that are ids become one feature a state.

    Args:
        scale: how to scale the observations; by default each number has mean 0 and deviation 1.
        half: keep features in half precision, and a state that one step enters and the next one
            leaves only once: a quarter of the memory. Observations in half precision that the
            scale leaves as they are lose nothing.
        growing: (first, more): training begins with the first steps, and each of its own steps
            adds some more, as when they are collected meanwhile. For all but d~.
    """
    loss = LOSSES[kind]
    actions = np.zeros(len(data), dtype=np.int32)
    if data.actions.ndim == 1:
        actions = data.actions.astype(np.int32)
    elif loss.same_actions:
        raise InputError(
            "learned.bisimulation: actions are not numbered, so that no two are the same; use "
            "learned.on_policy."
        )
    kept = _kept(kind, data, policy)
    if loss.same_actions and kept.sum() > 1 and np.bincount(actions[kept]).max() < 2:
        raise InputError(
            "learned.bisimulation: no two steps took the same action, so that no pair can be "
            "compared; collect more, or use learned.on_policy."
        )
    if kept.sum() < 2:
        raise InputError(
            f"learned.{kind}: {kept.sum()} of {len(data)} steps can be learned from and 2 are "
            "needed; collect more."
        )
    observed, following = _observed(kind, data)
    ended = data.terminated[kept]
    if scale is None:
        flat = observed.reshape(len(data), -1)
        if max(flat.max(initial=0), -float(flat.min(initial=0))) > LARGEST:
            raise InputError(
                f"learned.{kind}: an observation is too large for 32-bit floats; give observations "
                "on a smaller scale."
            )
        shape = observed.shape[1:]
        scale = dataclasses.replace(standard(flat), ends=bool(ended.any()), shape=shape)
    elif ended.any() and not scale.ends:
        raise InputError(
            f"learned.{kind}: episodes end in the data and the scale knows of no end; give a "
            "Scale with ends=True."
        )
    pace = None if growing is None else _pace(kind, growing)
    if not kept.all():
        observed, following = observed[kept], following[kept]
    states = (_once if half else _twice)(kind, scale, observed, following, ended)
    return Record(
        jnp.asarray(states[0]),
        jnp.asarray(actions[kept]),
        jnp.asarray(_single(kind, data.rewards[kept])),
        jnp.asarray(states[1]),
        scale,
        growing=None if pace is None else jnp.asarray(pace, jnp.int32),
    )


def _pace(kind: Kind, growing: tuple[int, int]) -> tuple[int, int]:
    if LOSSES[kind].same_actions:
        raise InputError(
            f"learned.{kind}: data that grows is drawn from whatever the actions; use on_policy."
        )
    first, more = growing
    where = f"learned.{kind}: growing"
    return whole(where, "the first number", first, 1), whole(where, "the second", more, 0)


def _twice(
    kind: Kind,
    scale: Scale,
    observed: NDArray[Any],
    following: NDArray[Any],
    ended: NDArray[np.bool_],
) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """The features (n, k) of the states that were left, and those of the states entered."""
    x_next = scale(following)
    if scale.ends:
        x_next = np.where(ended[:, None], scale.end, x_next)
    return scale(observed), x_next


def _once(
    kind: Kind,
    scale: Scale,
    observed: NDArray[Any],
    following: NDArray[Any],
    ended: NDArray[np.bool_],
) -> tuple[NDArray[np.float16], NDArray[Any]]:
    """The features (m, k) of n states that were left and others, in half precision, and (n,) rows.

    Where steps lead is a row too: that of the next step where it leaves what this one enters, and
    one of those past n where it does not, the last of which is the end.
    """
    steps, left, into = len(observed), _bits(observed), _bits(following)
    goes_on = np.zeros(steps, np.bool_)
    for start in range(0, steps - 1, BLOCK):
        stop = min(start + BLOCK, steps - 1)
        alike = into[start:stop] == left[start + 1 : stop + 1]
        goes_on[start:stop] = alike.reshape(stop - start, -1).all(axis=1)
    entered = np.flatnonzero(~goes_on & ~ended)
    x = np.zeros((steps + len(entered) + scale.ends, scale.features), np.float16)
    row = np.arange(1, steps + 1, dtype=np.int32)
    row[entered] = steps + np.arange(len(entered))
    if scale.ends:
        row[ended], x[-1] = len(x) - 1, scale.end
    as_is = observed.dtype == np.float16 and not scale.shift.any() and (scale.width == 1).all()
    with np.errstate(over="ignore"):
        for start in range(0, steps, BLOCK):
            some = observed[start : start + BLOCK]
            if as_is:
                x[start : start + len(some), : len(scale.shift)] = some.reshape(len(some), -1)
            else:
                x[start : start + len(some)] = scale(some)
        x[steps : steps + len(entered)] = scale(following[entered])
    if any((_bits(x[start : start + BLOCK]) & INFINITE == INFINITE).any()
           for start in range(0, len(x), BLOCK)):  # fmt: skip
        raise InputError(
            f"learned.{kind}: a feature is too large for half precision; leave out half, or scale."
        )
    return x, row


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    """Numbers in half precision as their bits, with which NumPy is many times faster."""
    return array.view(np.uint16) if array.dtype == np.float16 else array


def standard(points: NDArray[Any]) -> Scale:
    """Mean 0 and standard deviation 1; features that never change are left as they are."""
    shift = points.mean(axis=0, dtype=np.float64)
    width = points.std(axis=0, dtype=np.float64)
    # Equal numbers have a deviation too, of rounding.
    width[width <= 1e-6 * np.maximum(np.abs(shift), 1e-30)] = 1.0
    return Scale(shift.astype(np.float32), width.astype(np.float32))


def listed_by_ids(data: Transitions) -> bool:
    """Whether the observations of data are the ids of its states, and nothing else."""
    return data.observations.ndim == 1 and data.states is not None


def _observed(kind: Kind, data: Transitions) -> tuple[NDArray[Any], NDArray[Any]]:
    if not listed_by_ids(data):
        return data.observations, data.next_observations
    states = int(data.num_states or 0)
    require_memory(
        f"learned.{kind}: {len(data):,} steps with one feature for each of {states:,} states need",
        4.0 * 4 * len(data) * states,
        "give observations of fewer numbers",
    )
    one_hot = np.eye(states, dtype=np.float32)
    return one_hot[data.states], one_hot[data.next_states]


def _kept(kind: Kind, data: Transitions, policy: ArrayLike | None) -> NDArray[np.bool_]:
    """The steps that follow a policy; all of them where none is given."""
    if policy is None:
        return np.ones(len(data), dtype=np.bool_)
    chosen = np.asarray(policy)
    if data.states is None or data.actions.ndim > 1 or chosen.shape != (data.num_states,):
        raise InputError(
            f"learned.{kind}: a policy for data must be ({data.num_states},) actions, one a "
            "numbered state."
        )
    return np.asarray(data.actions == chosen[data.states])


def _single(kind: Kind, rewards: NDArray[np.float64]) -> NDArray[np.float32]:
    largest = float(np.abs(rewards).max())
    if largest > LARGEST:
        raise InputError(
            f"learned.{kind}: a reward is as large as {largest:.3g}, too large for 32-bit floats; "
            "give rewards on a smaller scale."
        )
    return rewards.astype(np.float32)


def _fitting(kind: Kind, scale: Scale, features: int) -> Scale:
    """A scale for so many features, also from one number for all of them."""
    if scale.ends:
        raise InputError(f"learned.{kind}: no state of an MDP is an end; give a Scale without.")
    if len(scale.shift) == features:
        return scale
    if len(scale.shift) != 1:
        raise InputError(
            f"learned.{kind}: the scale has {len(scale.shift)} numbers and the points have "
            f"{features}."
        )
    wide = np.zeros(features, np.float32)
    return Scale(scale.shift + wide, scale.width + wide)


def _given_points(kind: Kind, mdp: MDP, points: ArrayLike) -> NDArray[np.float32]:
    try:
        where = np.asarray(points, np.float32)
    except (TypeError, ValueError):
        where = np.zeros(0, np.float32)
    if where.ndim != 2 or len(where) != mdp.num_states or not where.size:
        raise InputError(
            f"learned.{kind}: points have shape {where.shape} and must be ({mdp.num_states}, k), "
            "one row a state."
        )
    if not np.isfinite(where).all():
        raise InputError(f"learned.{kind}: points hold NaN or infinity and must be finite.")
    return where


def _points(mdp: MDP) -> NDArray[np.float32]:
    for found in (mdp.features, mdp.positions):
        if found is not None and len(np.unique(found, axis=0)) == len(found):
            return np.asarray(found, np.float32)
    return np.eye(mdp.num_states, dtype=np.float32)

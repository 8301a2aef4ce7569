"""Sources from worlds and from data, checked, with sensible features."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric._memory import require_memory
from bisimetric.errors import InputError, require_integer
from bisimetric.learned.losses import LOSSES, LearnedKind
from bisimetric.learned.sources import FeatureScaling, StateSource, TrainingSource, TransitionSource
from bisimetric.mdp import MDP
from bisimetric.mdp._validation import resolve_policy
from bisimetric.transitions import Transitions

FLOAT16_INFINITY_BITS = 0x7C00
"""The bits of infinity in half precision."""
SCALING_BLOCK = 2**14
"""Observations that are scaled in one go, so that it needs little memory."""

FLOAT32_MAX = float(np.finfo(np.float32).max)
"""The largest number that a network can be given."""


def build_source(
    kind: LearnedKind,
    source: MDP | Transitions | TrainingSource,
    policy: ArrayLike | None,
    noise: float,
    noise_clip: float,
) -> TrainingSource:
    """What to learn from: a source as it is, the states of an MDP, or recorded steps."""
    if isinstance(source, MDP):
        return source_from_mdp(kind, source, policy, noise=noise, noise_clip=noise_clip)
    if noise:
        raise InputError(
            f"learned.{kind}: noise is for the states of an MDP; data has its own, and a source is "
            "made with it."
        )
    if isinstance(source, Transitions):
        return source_from_transitions(kind, source, policy)
    if isinstance(source, TrainingSource):
        if policy is not None:
            raise InputError(
                f"learned.{kind}: a source is made with its policy; give it to of_mdp or "
                "of_transitions."
            )
        return source
    raise InputError(
        f"learned.{kind}: the source is {type(source).__name__} and must be an MDP or Transitions."
    )


def source_from_mdp(
    kind: LearnedKind,
    mdp: MDP,
    policy: ArrayLike | None = None,
    *,
    points: ArrayLike | None = None,
    scaling: FeatureScaling | None = None,
    noise: float = 0.0,
    noise_clip: float = 0.3,
) -> StateSource:
    """The states of a deterministic MDP: by its features, else its positions, else one by one.

    `points` (S, k) are features to take instead, `scale` is how to scale them, and `noise` is
    added to them; see `learned.bisimulation`.
    """
    if not mdp.is_deterministic:
        s, a = mdp.first_stochastic_action()
        raise InputError(
            f"learned.{kind}: state {mdp.state_name(s)} and action {mdp.action_name(a)} have several "
            f"successors, and these losses need a deterministic MDP; use exact.{kind}."
        )
    if mdp.available is not None and kind == "bisimulation":
        raise InputError(
            f"learned.{kind}: some states lack some actions; use exact.{kind} or on_policy."
        )
    if LOSSES[kind].same_actions:
        successor, reward = mdp.next_state, mdp.R
    else:
        chain = mdp.apply_policy(resolve_policy(kind, mdp, policy, caller="learned"))
        if not chain.is_deterministic:
            raise InputError(f"learned.{kind}: the policy must take one action a state.")
        successor, reward = chain.next_state, chain.R
    for name, value in (("noise", noise), ("most", noise_clip)):
        if not (math.isfinite(value) and value >= 0):
            raise InputError(f"learned.{kind}: {name} is {value!r} and must be at least 0.")
    if noise and not noise_clip:
        raise InputError(f"learned.{kind}: most is 0 and leaves nothing of the noise; raise it.")
    where = _choose_points(mdp) if points is None else _validate_points(kind, mdp, points)
    return StateSource(
        jnp.asarray(where),
        jnp.asarray(successor, jnp.int32),
        jnp.asarray(_convert_rewards(kind, reward)),
        standardise(where) if scaling is None else _validate_scaling(kind, scaling, where.shape[1]),
        float(noise),
        float(noise_clip),
    )


def source_from_transitions(
    kind: LearnedKind,
    data: Transitions,
    policy: ArrayLike | None = None,
    *,
    scaling: FeatureScaling | None = None,
    half_precision: bool = False,
    growth: tuple[int, int] | None = None,
) -> TransitionSource:
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
    kept = _select_policy_steps(kind, data, policy)
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
    observed, following = _build_observations(kind, data)
    ended = data.terminated[kept]
    if scaling is None:
        flat = observed.reshape(len(data), -1)
        if max(flat.max(initial=0), -float(flat.min(initial=0))) > FLOAT32_MAX:
            raise InputError(
                f"learned.{kind}: an observation is too large for 32-bit floats; give observations "
                "on a smaller scale."
            )
        shape = observed.shape[1:]
        scaling = dataclasses.replace(
            standardise(flat), has_terminal=bool(ended.any()), shape=shape
        )
    elif ended.any() and not scaling.has_terminal:
        raise InputError(
            f"learned.{kind}: episodes end in the data and the scale knows of no end; give a "
            "Scale with ends=True."
        )
    pace = None if growth is None else _validate_growth(kind, growth)
    if not kept.all():
        observed, following = observed[kept], following[kept]
    states = (_featurise_shared if half_precision else _featurise_separately)(
        kind, scaling, observed, following, ended
    )
    return TransitionSource(
        jnp.asarray(states[0]),
        jnp.asarray(actions[kept]),
        jnp.asarray(_convert_rewards(kind, data.rewards[kept])),
        jnp.asarray(states[1]),
        scaling,
        growth=None if pace is None else jnp.asarray(pace, jnp.int32),
    )


def _validate_growth(kind: LearnedKind, growth: tuple[int, int]) -> tuple[int, int]:
    if LOSSES[kind].same_actions:
        raise InputError(
            f"learned.{kind}: data that grows is drawn from whatever the actions; use on_policy."
        )
    first, more = growth
    where = f"learned.{kind}: growing"
    return require_integer(where, "the first number", first, 1), require_integer(
        where, "the second", more, 0
    )


def _featurise_separately(
    kind: LearnedKind,
    scaling: FeatureScaling,
    observed: NDArray[Any],
    following: NDArray[Any],
    terminated: NDArray[np.bool_],
) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """The features (n, k) of the states that were left, and those of the states entered."""
    x_next = scaling(following)
    if scaling.has_terminal:
        x_next = np.where(terminated[:, None], scaling.terminal, x_next)
    return scaling(observed), x_next


def _featurise_shared(
    kind: LearnedKind,
    scaling: FeatureScaling,
    observed: NDArray[Any],
    following: NDArray[Any],
    terminated: NDArray[np.bool_],
) -> tuple[NDArray[np.float16], NDArray[Any]]:
    """The features (m, k) of n states that were left and others, in half precision, and (n,) rows.

    Where steps lead is a row too: that of the next step where it leaves what this one enters, and
    one of those past n where it does not, the last of which is the end.
    """
    steps, left, into = len(observed), _view_bits(observed), _view_bits(following)
    goes_on = np.zeros(steps, np.bool_)
    for start in range(0, steps - 1, SCALING_BLOCK):
        stop = min(start + SCALING_BLOCK, steps - 1)
        alike = into[start:stop] == left[start + 1 : stop + 1]
        goes_on[start:stop] = alike.reshape(stop - start, -1).all(axis=1)
    entered = np.flatnonzero(~goes_on & ~terminated)
    x = np.zeros((steps + len(entered) + scaling.has_terminal, scaling.num_features), np.float16)
    row = np.arange(1, steps + 1, dtype=np.int32)
    row[entered] = steps + np.arange(len(entered))
    if scaling.has_terminal:
        row[terminated], x[-1] = len(x) - 1, scaling.terminal
    as_is = observed.dtype == np.float16 and not scaling.shift.any() and (scaling.width == 1).all()
    with np.errstate(over="ignore"):
        for start in range(0, steps, SCALING_BLOCK):
            some = observed[start : start + SCALING_BLOCK]
            if as_is:
                x[start : start + len(some), : len(scaling.shift)] = some.reshape(len(some), -1)
            else:
                x[start : start + len(some)] = scaling(some)
        x[steps : steps + len(entered)] = scaling(following[entered])
    if any((_view_bits(x[start : start + SCALING_BLOCK]) & FLOAT16_INFINITY_BITS == FLOAT16_INFINITY_BITS).any()
           for start in range(0, len(x), SCALING_BLOCK)):  # fmt: skip
        raise InputError(
            f"learned.{kind}: a feature is too large for half precision; leave out half, or scale."
        )
    return x, row


def _view_bits(array: NDArray[Any]) -> NDArray[Any]:
    """Numbers in half precision as their bits, with which NumPy is many times faster."""
    return array.view(np.uint16) if array.dtype == np.float16 else array


def standardise(points: NDArray[Any]) -> FeatureScaling:
    """Mean 0 and standard deviation 1; features that never change are left as they are."""
    shift = points.mean(axis=0, dtype=np.float64)
    width = points.std(axis=0, dtype=np.float64)
    # Equal numbers have a deviation too, of rounding.
    width[width <= 1e-6 * np.maximum(np.abs(shift), 1e-30)] = 1.0
    return FeatureScaling(shift.astype(np.float32), width.astype(np.float32))


def has_id_observations(data: Transitions) -> bool:
    """Whether the observations of data are the ids of its states, and nothing else."""
    return data.observations.ndim == 1 and data.states is not None


def _build_observations(kind: LearnedKind, data: Transitions) -> tuple[NDArray[Any], NDArray[Any]]:
    if not has_id_observations(data):
        return data.observations, data.next_observations
    states = int(data.num_states or 0)
    require_memory(
        f"learned.{kind}: {len(data):,} steps with one feature for each of {states:,} states need",
        4.0 * 4 * len(data) * states,
        "give observations of fewer numbers",
    )
    one_hot = np.eye(states, dtype=np.float32)
    return one_hot[data.states], one_hot[data.next_states]


def _select_policy_steps(
    kind: LearnedKind, data: Transitions, policy: ArrayLike | None
) -> NDArray[np.bool_]:
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


def _convert_rewards(kind: LearnedKind, rewards: NDArray[np.float64]) -> NDArray[np.float32]:
    largest = float(np.abs(rewards).max())
    if largest > FLOAT32_MAX:
        raise InputError(
            f"learned.{kind}: a reward is as large as {largest:.3g}, too large for 32-bit floats; "
            "give rewards on a smaller scale."
        )
    return rewards.astype(np.float32)


def _validate_scaling(
    kind: LearnedKind, scaling: FeatureScaling, num_features: int
) -> FeatureScaling:
    """A scale for so many features, also from one number for all of them."""
    if scaling.has_terminal:
        raise InputError(f"learned.{kind}: no state of an MDP is an end; give a Scale without.")
    if len(scaling.shift) == num_features:
        return scaling
    if len(scaling.shift) != 1:
        raise InputError(
            f"learned.{kind}: the scale has {len(scaling.shift)} numbers and the points have "
            f"{num_features}."
        )
    wide = np.zeros(num_features, np.float32)
    return FeatureScaling(scaling.shift + wide, scaling.width + wide)


def _validate_points(kind: LearnedKind, mdp: MDP, points: ArrayLike) -> NDArray[np.float32]:
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


def _choose_points(mdp: MDP) -> NDArray[np.float32]:
    for found in (mdp.features, mdp.positions):
        if found is not None and len(np.unique(found, axis=0)) == len(found):
            return np.asarray(found, np.float32)
    return np.eye(mdp.num_states, dtype=np.float32)

"""Build training sources from an MDP or from transitions: validation and default features."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric._memory import require_memory
from bisimetric.errors import InputError, require_integer
from bisimetric.exact.gaps import GapFunction
from bisimetric.learned.costs import build_cost
from bisimetric.learned.losses import LOSSES, LearnedKind
from bisimetric.learned.repeated_states import (
    average_repeated_rewards,
    count_remaining_steps,
    find_shared_states,
    select_policy_steps,
    view_bits,
)
from bisimetric.learned.sources import (
    ChainSource,
    FeatureScaling,
    StateSource,
    TrainingSource,
    TransitionSource,
)
from bisimetric.mdp import MDP, reject_labels
from bisimetric.mdp._validation import resolve_policy
from bisimetric.transitions import Transitions

FLOAT16_INFINITY_BITS = 0x7C00
"""The bits of infinity in half precision."""

SCALING_BLOCK = 2**14
"""Observations that are scaled at once, to bound the scratch memory."""

UNSCALED = "none"
"""The scaling that leaves observations as they are."""

FLOAT32_MAX = float(np.finfo(np.float32).max)
"""The largest number that a network can be given."""


def build_source(
    kind: LearnedKind,
    source: MDP | Transitions | TrainingSource,
    policy: ArrayLike | None,
    noise: float,
    noise_clip: float,
    gap: ArrayLike | GapFunction | None = None,
) -> TrainingSource:
    """Return the training source of an MDP or of transitions; a training source as it is."""
    caller = f"learned.{kind}"
    if isinstance(source, MDP):
        return source_from_mdp(kind, source, policy, noise=noise, noise_clip=noise_clip, gap=gap)
    if noise:
        raise InputError(
            "is for the states of an MDP; a training source has its own",
            caller=caller,
            argument="noise",
        )
    if isinstance(source, Transitions):
        return source_from_transitions(kind, source, policy)
    if isinstance(source, TrainingSource):
        if policy is not None:
            raise InputError(
                "is part of a training source",
                caller=caller,
                argument="policy",
                remedy="give it to source_from_mdp or source_from_transitions",
            )
        return source
    raise InputError(
        f"is {type(source).__name__} and must be an MDP or Transitions",
        caller=caller,
        argument="source",
    )


def source_from_mdp(
    kind: LearnedKind,
    mdp: MDP,
    policy: ArrayLike | None = None,
    *,
    points: ArrayLike | None = None,
    scaling: FeatureScaling | Literal["none"] | None = None,
    noise: float = 0.0,
    noise_clip: float = 0.3,
    gap: ArrayLike | GapFunction | None = None,
) -> StateSource:
    """Return the states of an MDP as a training source.

    The MDP and the policy must be deterministic, except for "mico".

    Args:
        kind: "bisimulation", "on_policy" or "mico".
        mdp: its states are described by its features, else their positions, else one-hot vectors.
        policy: (S,) actions, for "on_policy" and "mico", for "mico" also (S, A) probabilities;
            default: that of the MDP, or its only action.
        points: (S, ...), the features of the states, such as vectors or images, in place of those
            of the MDP.
        scaling: how to scale them; "none" does not. Default: mean 0 and standard deviation 1.
        noise: the standard deviation of Gaussian noise added to the points of a state and its
            successor alike.
        noise_clip: the largest noise, in either direction.
        gap: immediate costs in place of the differences of rewards; see `exact.bisimulation`.

    Returns:
        The source, whose states and actions are sampled uniformly.

    Raises:
        InputError: when the MDP or the policy is stochastic, states lack actions, or an argument
            is out of range.

    >>> from bisimetric import worlds
    >>> source = source_from_mdp("bisimulation", worlds.load("mirrored-rooms"))
    >>> source.points.shape
    (31, 2)
    """
    caller = f"learned.{kind}"
    reject_labels(f"learned.{kind}", mdp)
    if not mdp.is_deterministic and kind != "mico":
        s, a = mdp.first_stochastic_action()
        raise InputError(
            f"has several successors of state {mdp.state_name(s)} under action "
            f"{mdp.action_name(a)} and must be deterministic",
            caller=caller,
            argument="source",
            remedy=f"use exact.{kind}, or give a learned.ModelBasedConfig",
        )
    if mdp.available is not None and kind == "bisimulation":
        raise InputError(
            "has states that lack some actions",
            caller=caller,
            argument="source",
            remedy=f"use exact.{kind}, or give a learned.ModelBasedConfig",
        )
    probabilities = None
    if LOSSES[kind].same_actions:
        successor, reward = mdp.next_state, mdp.R
    else:
        chain = mdp.apply_policy(resolve_policy(kind, mdp, policy, caller="learned"))
        if not chain.is_deterministic and kind != "mico":
            raise InputError("must be one action per state", caller=caller, argument="policy")
        reward = chain.R
        if chain.is_deterministic:
            successor = chain.next_state
        else:
            probabilities = _build_dense_probabilities(chain)
            successor = probabilities.argmax(axis=1)[:, None]
    for name, value in (("noise", noise), ("noise_clip", noise_clip)):
        if not (math.isfinite(value) and value >= 0):
            raise InputError(f"is {value!r} and must be at least 0", caller=caller, argument=name)
    if noise and not noise_clip:
        raise InputError(
            "is 0 and removes all noise", caller=caller, argument="noise_clip", remedy="raise it"
        )
    features = choose_points(mdp) if points is None else validate_points(kind, mdp, points)
    shape = features.shape[1:] if features.ndim > 2 else None
    features = features.reshape(len(features), -1)
    scaling = _resolve_scaling(kind, scaling)
    fitted = (
        standardise(features)
        if scaling is None
        else _validate_scaling(kind, scaling, features.shape[1])
    )
    source = StateSource(
        jnp.asarray(features),
        jnp.asarray(successor, jnp.int32),
        jnp.asarray(_convert_rewards(kind, reward)),
        fitted if shape is None else dataclasses.replace(fitted, shape=shape),
        float(noise),
        float(noise_clip),
        jnp.asarray(_convert_rewards(kind, build_cost(kind, mdp, policy, gap))),
    )
    if gap is not None:
        source = dataclasses.replace(source, reward=jnp.zeros_like(source.reward))
    if probabilities is None:
        return source
    return ChainSource(**vars(source), probabilities=jnp.asarray(probabilities))


def source_from_transitions(
    kind: LearnedKind,
    data: Transitions,
    policy: ArrayLike | None = None,
    *,
    scaling: FeatureScaling | Literal["none"] | None = None,
    half_precision: bool = False,
    growth: tuple[int, int] | None = None,
) -> TransitionSource:
    """Return recorded transitions as a training source.

    Args:
        kind: "bisimulation", "on_policy" or "mico".
        data: the transitions; observations that are ids of states become one-hot vectors. For
            "mico", the rewards of equal observations are replaced by their mean.
        policy: (S,) actions; transitions with other actions are left out. Default: all are used.
        scaling: how to scale the observations; "none" does not. Default: mean 0 and standard
            deviation 1.
        half_precision: store features in half precision, and a state that one transition enters and
            the next one leaves only once: a quarter of the memory. Observations in half precision
            that the scaling does not change lose nothing.
        growth: (first, more): training begins with the first transitions, and every update adds
            some more, as if they were collected meanwhile. Not for "bisimulation".

    Returns:
        The source, whose transitions are sampled uniformly.

    Raises:
        InputError: when there is no pair to compare, a value is too large, or an argument does not
            fit the data.

    >>> data = Transitions([[0.0], [1.0]], [0, 0], [1.0, 0.0], [[1.0], [0.0]], [False, False])
    >>> source_from_transitions("on_policy", data).x.tolist()
    [[-1.0], [1.0]]
    """
    caller, loss = f"learned.{kind}", LOSSES[kind]
    actions = np.zeros(len(data), dtype=np.int32)
    if data.actions.ndim == 1:
        actions = data.actions.astype(np.int32)
    elif loss.same_actions:
        raise InputError(
            f"{caller}: actions are not numbered, so that no two are equal; use learned.on_policy."
        )
    selected = select_policy_steps(kind, data, policy)
    if loss.same_actions and selected.sum() > 1 and np.bincount(actions[selected]).max() < 2:
        raise InputError(
            "has no two transitions with the same action, so that no pair can be compared",
            caller=caller,
            argument="source",
            remedy="collect more, or use learned.on_policy",
        )
    if selected.sum() < 2:
        raise InputError(
            f"{caller}: {selected.sum()} of {len(data)} transitions can be used and 2 are needed; "
            "collect more."
        )
    observations, next_observations = _build_observations(kind, data)
    terminated = data.terminated[selected]
    if scaling == UNSCALED:
        size, shape = math.prod(observations.shape[1:]), observations.shape[1:]
        scaling = FeatureScaling(np.zeros(size), np.ones(size), bool(terminated.any()), shape)
    scaling = _resolve_scaling(kind, scaling)
    if scaling is None:
        flat = observations.reshape(len(data), -1)
        if max(flat.max(initial=0), -float(flat.min(initial=0))) > FLOAT32_MAX:
            raise InputError(
                f"{caller}: an observation is too large for 32-bit floats; give observations on a "
                "smaller scale."
            )
        scaling = dataclasses.replace(
            standardise(flat), has_terminal=bool(terminated.any()), shape=observations.shape[1:]
        )
    elif terminated.any() and not scaling.has_terminal:
        raise InputError(
            "has no terminal state, and episodes of the data terminate",
            caller=caller,
            argument="scaling",
            remedy="give a FeatureScaling with has_terminal=True",
        )
    validated_growth = None if growth is None else _validate_growth(kind, growth)
    if not selected.all():
        observations, next_observations = observations[selected], next_observations[selected]
    rewards = data.rewards[selected]
    if kind == "mico":
        # The mean is the best estimate of the expected reward, which MICo compares.
        rewards = average_repeated_rewards(observations, rewards)
    featurise = _featurise_shared if half_precision else _featurise_separately
    x, x_next = featurise(kind, scaling, observations, next_observations, terminated)
    remaining = count_remaining_steps(data, selected) if kind == "on_policy" else None
    return TransitionSource(
        jnp.asarray(x),
        jnp.asarray(actions[selected]),
        jnp.asarray(_convert_rewards(kind, rewards)),
        jnp.asarray(x_next),
        scaling,
        growth=None if validated_growth is None else jnp.asarray(validated_growth, jnp.int32),
        remaining=None if remaining is None else jnp.asarray(remaining),
        longest_episode=1 if remaining is None else int(remaining.max()),
    )


def standardise(points: NDArray[Any]) -> FeatureScaling:
    """Return the scaling to mean 0 and standard deviation 1; constant features are only shifted."""
    shift = points.mean(axis=0, dtype=np.float64)
    width = points.std(axis=0, dtype=np.float64)
    # Rounding gives equal numbers a small deviation, too.
    width[width <= 1e-6 * np.maximum(np.abs(shift), 1e-30)] = 1.0
    return FeatureScaling(shift.astype(np.float32), width.astype(np.float32))


def has_id_observations(data: Transitions) -> bool:
    """Return whether the observations of the data are ids of states and nothing else."""
    return data.observations.ndim == 1 and data.states is not None


def _featurise_separately(
    kind: LearnedKind,
    scaling: FeatureScaling,
    observations: NDArray[Any],
    next_observations: NDArray[Any],
    terminated: NDArray[np.bool_],
) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Return the features (n, k) of the states and those of the next states."""
    x_next = scaling(next_observations)
    if scaling.has_terminal:
        x_next = np.where(terminated[:, None], scaling.terminal, x_next)
    return scaling(observations), x_next


def _featurise_shared(
    kind: LearnedKind,
    scaling: FeatureScaling,
    observations: NDArray[Any],
    next_observations: NDArray[Any],
    terminated: NDArray[np.bool_],
) -> tuple[NDArray[np.float16], NDArray[Any]]:
    """Return features (m, k) in half precision, and the rows (n,) of the next states in them.

    The first n rows are the states. A next state shares the row of the following transition where
    that transition leaves it; otherwise it has a row past n, the last of which is the terminal
    state.
    """
    steps = len(observations)
    continues = find_shared_states(observations, next_observations)
    entered = np.flatnonzero(~continues & ~terminated)
    x = np.zeros((steps + len(entered) + scaling.has_terminal, scaling.num_features), np.float16)
    row = np.arange(1, steps + 1, dtype=np.int32)
    row[entered] = steps + np.arange(len(entered))
    if scaling.has_terminal:
        row[terminated], x[-1] = len(x) - 1, scaling.terminal
    unscaled = (
        observations.dtype == np.float16 and not scaling.shift.any() and (scaling.width == 1).all()
    )
    with np.errstate(over="ignore"):
        for start in range(0, steps, SCALING_BLOCK):
            block = observations[start : start + SCALING_BLOCK]
            if unscaled:
                x[start : start + len(block), : len(scaling.shift)] = block.reshape(len(block), -1)
            else:
                x[start : start + len(block)] = scaling(block)
        x[steps : steps + len(entered)] = scaling(next_observations[entered])
    for start in range(0, len(x), SCALING_BLOCK):
        exponents = view_bits(x[start : start + SCALING_BLOCK]) & FLOAT16_INFINITY_BITS
        if (exponents == FLOAT16_INFINITY_BITS).any():
            raise InputError(
                f"learned.{kind}: a feature is too large for half precision; leave out "
                "half_precision, or give a scaling."
            )
    return x, row


def _build_observations(kind: LearnedKind, data: Transitions) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the observations and next observations, one-hot where they are ids of states."""
    if not has_id_observations(data):
        return data.observations, data.next_observations
    states = int(data.num_states or 0)
    require_memory(
        f"learned.{kind}: {len(data):,} transitions with one feature for each of {states:,} states "
        "need",
        4.0 * 4 * len(data) * states,
        "give observations of fewer numbers",
    )
    one_hot = np.eye(states, dtype=np.float32)
    return one_hot[data.states], one_hot[data.next_states]


def _build_dense_probabilities(chain: MDP) -> NDArray[np.float32]:
    """Return the transition matrix (S, S) of a chain."""
    states = chain.num_states
    require_memory(
        f"learned.mico: the transition matrix of {states:,} states needs",
        3.0 * 4 * states**2,
        "record transitions, and learn from those",
    )
    return chain.normalised_probabilities.astype(np.float32).toarray()


def choose_points(mdp: MDP) -> NDArray[np.float32]:
    """Return the features of the states, else positions, else one-hot vectors, all different."""
    for points in (mdp.features, mdp.positions):
        if points is not None and len(np.unique(points, axis=0)) == len(points):
            return np.asarray(points, np.float32)
    return np.eye(mdp.num_states, dtype=np.float32)


def validate_points(kind: LearnedKind, mdp: MDP, points: ArrayLike) -> NDArray[np.float32]:
    caller = f"learned.{kind}"
    try:
        array = np.asarray(points, np.float32)
    except (TypeError, ValueError):
        array = np.zeros(0, np.float32)
    if array.ndim < 2 or len(array) != mdp.num_states or not array.size:
        raise InputError(
            f"has shape {array.shape} and must be ({mdp.num_states}, k), one row per state",
            caller=caller,
            argument="points",
        )
    if not np.isfinite(array).all():
        raise InputError("holds NaN or infinity", caller=caller, argument="points")
    return array


def _resolve_scaling(
    kind: LearnedKind, scaling: FeatureScaling | str | None
) -> FeatureScaling | None:
    """Return a scaling, that by one number for "none", or None for the default."""
    if scaling == UNSCALED:
        return FeatureScaling(0.0, 1.0)
    if isinstance(scaling, str):
        raise InputError(
            f'is {scaling!r} and must be a FeatureScaling or "none"',
            caller=f"learned.{kind}",
            argument="scaling",
        )
    return scaling


def _validate_scaling(
    kind: LearnedKind, scaling: FeatureScaling, num_features: int
) -> FeatureScaling:
    """Return a scaling of so many features, also from one number for all of them."""
    caller = f"learned.{kind}"
    if scaling.has_terminal:
        raise InputError(
            "has a terminal state, and an MDP has none",
            caller=caller,
            argument="scaling",
            remedy="give a FeatureScaling with has_terminal=False",
        )
    if len(scaling.shift) == num_features:
        return scaling
    if len(scaling.shift) != 1:
        raise InputError(
            f"has {len(scaling.shift)} numbers and the points have {num_features}",
            caller=caller,
            argument="scaling",
        )
    zeros = np.zeros(num_features, np.float32)
    return FeatureScaling(scaling.shift + zeros, scaling.width + zeros)


def _validate_growth(kind: LearnedKind, growth: tuple[int, int]) -> tuple[int, int]:
    if LOSSES[kind].same_actions:
        raise InputError(
            "is not available, since actions would have to be balanced",
            caller=f"learned.{kind}",
            argument="growth",
            remedy="use on_policy",
        )
    first, more = growth
    caller = f"learned.{kind}: growth"
    return (
        require_integer(caller, "the first number", first, 1),
        require_integer(caller, "the second number", more, 0),
    )


def _convert_rewards(kind: LearnedKind, rewards: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return rewards in single precision, or raise an InputError where they overflow."""
    largest = float(np.abs(rewards).max(initial=0.0))
    if largest > FLOAT32_MAX:
        raise InputError(
            f"learned.{kind}: a reward is {largest:.3g}, too large for 32-bit floats; give rewards "
            "on a smaller scale."
        )
    return rewards.astype(np.float32)

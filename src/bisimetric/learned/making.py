"""Sources from worlds and from data, checked, with sensible features."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.exact.table import given_policy
from bisimetric.learned.losses import LOSSES, Kind
from bisimetric.learned.sources import Record, Scale, Source, States
from bisimetric.mdp import MDP
from bisimetric.transitions import Transitions


def source_of(
    kind: Kind,
    given: MDP | Transitions | Source,
    policy: ArrayLike | None,
    noise: float,
    most: float,
) -> Source:
    """What to learn from: a source as it is, the states of an MDP, or recorded steps."""
    if isinstance(given, Source):
        return given
    if isinstance(given, MDP):
        return of_mdp(kind, given, policy, noise=noise, most=most)
    if noise:
        raise InputError(f"learned.{kind}: noise is for the states of an MDP; data has its own.")
    if isinstance(given, Transitions):
        return of_transitions(kind, given, policy)
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
    most: float = 0.0,
) -> States:
    """The states of a deterministic MDP: by its features, else its positions, else one by one."""
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
        chain = mdp.under(given_policy(kind, mdp, policy))
        if not chain.is_deterministic:
            raise InputError(f"learned.{kind}: the policy must take one action a state.")
        successor, reward = chain.next_state, chain.R
    where = _points(mdp) if points is None else np.asarray(points, np.float32)
    return States(
        jnp.asarray(where, jnp.float32),
        jnp.asarray(successor, jnp.int32),
        jnp.asarray(reward, jnp.float32),
        standard(where) if scale is None else scale,
        float(noise),
        float(most),
    )


def of_transitions(kind: Kind, data: Transitions, policy: ArrayLike | None = None) -> Record:
    """Recorded steps; observations that are ids become one feature a state."""
    observed, following = data.observations, data.next_observations
    if observed.ndim == 1 and data.states is not None:
        one_hot = np.eye(int(data.num_states or 0), dtype=np.float32)
        observed, following = one_hot[data.states], one_hot[np.asarray(data.next_states)]
    kept = np.ones(len(data), dtype=np.bool_)
    actions = np.zeros(len(data), dtype=np.int32)
    if data.actions.ndim == 1:
        actions = data.actions.astype(np.int32)
    elif LOSSES[kind].same_actions:
        raise InputError(
            "learned.bisimulation: actions are not numbered, so that no two are the same; use "
            "learned.on_policy."
        )
    if policy is not None:
        chosen = np.asarray(policy)
        if data.states is None or data.actions.ndim > 1 or chosen.shape != (data.num_states,):
            raise InputError(
                f"learned.{kind}: a policy for data must be ({data.num_states},) actions, one an id."
            )
        kept = np.asarray(data.actions == chosen[data.states])
    if LOSSES[kind].same_actions and np.bincount(actions).max() < 2 and len(data) > 1:
        raise InputError(
            "learned.bisimulation: no two steps took the same action, so that no pair can be "
            "compared; collect more, or use learned.on_policy."
        )
    if kept.sum() < 2:
        raise InputError(
            f"learned.{kind}: {kept.sum()} of {len(data)} steps can be learned from and 2 are "
            "needed; collect more."
        )
    flat = np.asarray(observed, np.float32).reshape(len(data), -1)
    base = standard(flat)
    ended = data.terminated[kept]
    scale = Scale(base.shift, base.width, ends=bool(ended.any()))
    x_next = scale(following[kept])
    if scale.ends:
        x_next = np.where(ended[:, None], scale.end, x_next)
    return Record(
        jnp.asarray(scale(observed[kept])),
        jnp.asarray(actions[kept]),
        jnp.asarray(data.rewards[kept], jnp.float32),
        jnp.asarray(x_next),
        scale,
    )


def standard(points: NDArray[Any]) -> Scale:
    """Mean 0 and standard deviation 1; features that never change are left as they are."""
    shift = points.mean(axis=0, dtype=np.float64)
    width = points.std(axis=0, dtype=np.float64)
    width[width < 1e-6 * np.maximum(1.0, np.abs(shift))] = 1.0
    return Scale(shift.astype(np.float32), width.astype(np.float32))


def _points(mdp: MDP) -> NDArray[np.float32]:
    for found in (mdp.features, mdp.positions):
        if found is not None and len(np.unique(found, axis=0)) == len(found):
            return np.asarray(found, np.float32)
    return np.eye(mdp.num_states, dtype=np.float32)

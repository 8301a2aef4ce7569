"""Immediate costs of a pair of states and actions, in place of |R(s, a) - R(t, b)|.

Distances take them as `gap=` (`exact`, `exact.query`, `exact.sharded`, `sampled`, `learned`):

    d(s, t) = max_a gap(s, a, t, a) + discount * W1(d)(P(s, a), P(t, a))

A gap is an array, or a function gap(s, a, t, b) that is evaluated block by block: s is an array
(n, 1) and t (1, m) of state ids; a and b are actions, the policy's of each state for a
deterministic policy, and None for a stochastic one. The floats that it returns are taken as
exact; of two that differ by rounding, gap(s, a, t, b) and gap(t, b, s, a), the larger one counts.
The functions here build such functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.mdp._validation import as_float_array, require_finite, validate_policy

__all__ = ["observations", "policies", "rewards", "zero_classes"]

GapFunction = Callable[[Any, Any, Any, Any], Any]
"""From s, a, t and b, integer arrays that broadcast to (n, m), to the costs (n, m)."""


def rewards(
    R: ArrayLike, *, weights: ArrayLike | None = None, combine: Literal["sum", "max"] = "sum"
) -> GapFunction:
    """Compare several reward structures.

        gap(s, a, t, b) = sum_i w_i |R_i(s, a) - R_i(t, b)|,  or the maximum over i.

    With the sum, d(s, t) bounds the difference of V* for the rewards sum_i c_i R_i with any
    |c_i| <= w_i; with the maximum, for each w_i R_i. In d^pi and MICo the policy must be
    deterministic, or the rewards those of its chain, (k, S, 1), with `mdp.apply_policy`.

    Args:
        R: (k, S, A), the rewards of k structures.
        weights: (k,), at least 0; default: all 1.
        combine: "sum" or "max".

    Returns:
        The gap.

    Raises:
        InputError: a shape is wrong, a number not finite, or a weight negative.

    >>> from bisimetric import MDP, exact
    >>> mdp = MDP.deterministic([[0], [1]], [[0], [0]], discount=0.5)
    >>> time, energy = [[1], [2]], [[5], [1]]
    >>> round(exact.bisimulation(mdp, gap=rewards([time, energy]))(0, 1), 6)
    10.0
    >>> round(exact.bisimulation(mdp, gap=rewards([time, energy], combine="max"))(0, 1), 6)
    8.0
    """
    stacked = as_float_array("gaps.rewards: R", R)
    if stacked.ndim != 3 or 0 in stacked.shape:
        raise InputError(f"gaps.rewards: R has shape {stacked.shape} and must be (k, S, A).")
    scale = np.ones(len(stacked)) if weights is None else as_float_array("weights", weights)
    if scale.shape != (len(stacked),) or not (np.isfinite(scale).all() and (scale >= 0).all()):
        raise InputError(
            f"gaps.rewards: weights are {weights!r} and must be {len(stacked)} finite numbers of "
            "at least 0."
        )
    if combine not in ("sum", "max"):
        raise InputError(f"gaps.rewards: combine is {combine!r} and must be 'sum' or 'max'.")
    require_finite("R", stacked, caller="gaps.rewards")

    def compute(s: Any, a: Any, t: Any, b: Any) -> Any:
        if a is None or b is None:
            if stacked.shape[2] > 1:
                raise InputError(
                    "gaps.rewards: a stochastic policy has no action to compare; pass the rewards "
                    "of its chain, (k, S, 1)."
                )
            a = b = 0
        total: Any = 0.0
        for weight, each in zip(scale, stacked, strict=True):
            part = weight * np.abs(each[s, a] - each[t, b])
            total = total + part if combine == "sum" else np.maximum(total, part)
        return total

    return compute


def policies(mdp: MDP, policy: ArrayLike) -> GapFunction:
    """Compare the policy in two states by total variation, whatever the rewards.

        gap(s, t) = 1/2 sum_a |pi(a|s) - pi(a|t)|

    `exact.on_policy(mdp, policy, gap=gaps.policies(mdp, policy))` is the policy-similarity metric
    (PSM) of Agarwal, Machado, Castro & Bellemare (2021), Contrastive behavioral similarity
    embeddings for generalization in reinforcement learning, ICLR 2021:

        d(s, t) = gap(s, t) + discount * W1(d)(P^pi(s), P^pi(t)).

    Args:
        mdp: the MDP that the policy acts in.
        policy: (S,) actions or (S, A) probabilities, usually an optimal policy.

    Returns:
        The gap, from 0 to 1.

    Raises:
        InputError: the policy does not fit the MDP.

    >>> from bisimetric import MDP, exact
    >>> mdp = MDP.deterministic([[0, 1], [0, 1]], [[0, 0], [7, 7]], discount=0.5)
    >>> round(exact.on_policy(mdp, [0, 1], gap=policies(mdp, [0, 1]))(0, 1), 6)
    2.0
    """
    pi = validate_policy(mdp, policy)
    if pi.ndim == 1:
        pi = np.eye(mdp.num_actions)[pi]
    pi = pi / pi.sum(axis=1, keepdims=True)

    def compute(s: Any, a: Any, t: Any, b: Any) -> Any:
        return sum(np.abs(column[s] - column[t]) for column in pi.T) / 2

    return compute


def observations(
    vectors: ArrayLike,
    *,
    norm: Literal["l1", "l2", "max"] = "l2",
    weight: float = 1.0,
    R: ArrayLike | None = None,
) -> GapFunction:
    """Compare vectors observed in the states by a ground distance, besides the rewards.

        gap(s, a, t, b) = |R(s, a) - R(t, b)| + weight * ||x(s) - x(t)||

    For another ground distance pass a matrix (S, S), or a function, as `gap`.

    Args:
        vectors: (S, k), one per state; scale the columns to weigh them.
        norm: "l1", "l2" (Euclidean) or "max".
        weight: of the ground distance, at least 0.
        R: (S, A), the rewards, usually `mdp.R`; None compares the vectors only.

    Returns:
        The gap.

    Raises:
        InputError: a shape is wrong, a number not finite, or the norm unknown.

    >>> from bisimetric import MDP, exact
    >>> mdp = MDP.deterministic([[0], [1]], [[0], [1]], discount=0.5)
    >>> x = [[0, 0], [3, 4]]
    >>> round(exact.bisimulation(mdp, gap=observations(x, R=mdp.R))(0, 1), 6)
    12.0
    """
    x = as_float_array("gaps.observations: vectors", vectors)
    if x.ndim != 2 or 0 in x.shape:
        raise InputError(f"gaps.observations: vectors have shape {x.shape} and must be (S, k).")
    require_finite("vectors", x, caller="gaps.observations")
    if norm not in ("l1", "l2", "max"):
        raise InputError(f"gaps.observations: norm is {norm!r} and must be 'l1', 'l2' or 'max'.")
    if not (np.isfinite(weight) and weight >= 0):
        raise InputError(f"gaps.observations: weight is {weight} and must be at least 0.")
    compare_rewards = None
    if R is not None:
        compare_rewards = rewards(as_float_array("gaps.observations: R", R)[None])

    def compute(s: Any, a: Any, t: Any, b: Any) -> NDArray[np.float64]:
        total: Any = 0.0
        for column in x.T:
            part = np.abs(column[s] - column[t])
            if norm == "max":
                total = np.maximum(total, part)
            else:
                total = total + (part if norm == "l1" else part**2)
        ground = weight * (np.sqrt(total) if norm == "l2" else total)
        return np.asarray(
            ground if compare_rewards is None else ground + compare_rewards(s, a, t, b)
        )

    return compute


def zero_classes(
    mdp: MDP, gap: ArrayLike | GapFunction, *, lax: bool = False
) -> NDArray[np.float64]:
    """Number the state-action pairs so that those with gap 0 have equal numbers.

    As rewards they give the relation whose classes are at distance 0 with this gap, for example
    that of several reward structures: `relation.bisimulation(mdp.replace(R=zero_classes(...)))`.

    Args:
        mdp: the MDP.
        gap: an array or a function, as in `exact.bisimulation`; a pseudometric.
        lax: whether pairs of different actions are compared, for `relation.lax`; actions of equal
            choice labels always are.

    Returns:
        (S, A), the number of each pair; without `lax` numbers of different actions are unrelated.

    Raises:
        InputError: the gap is no symmetric nonnegative cost of the MDP.

    >>> from bisimetric import relation
    >>> mdp = MDP.deterministic([[0], [1], [2]], [[0], [0], [0]], discount=0.5)
    >>> time, energy = [[1], [2], [1]], [[5], [5], [5]]
    >>> relation.bisimulation(mdp.replace(R=zero_classes(mdp, rewards([time, energy]))))
    array([0, 1, 0])
    """
    from bisimetric.exact._gap_solver import evaluate_gap  # which imports this module

    everything = mdp.replace(available=None)
    kind = "lax" if lax else "bisimulation"
    table = evaluate_gap("gaps.zero_classes", kind, everything, gap, None, check_triangles=False)
    (states, actions), (own, other) = mdp.R.shape, table.shape[:2]
    if other > 1:
        pairs = table.transpose(2, 0, 3, 1).reshape(states * actions, states * actions)
        return np.array((pairs == 0).argmax(axis=1).reshape(states, actions), np.float64)
    classes = (table[:, 0] == 0).argmax(axis=2).T.astype(np.float64)
    return np.array(np.broadcast_to(classes, (states, actions if own == 1 else own)))

"""Why two states are as far apart as they are: the steps whose reward gaps add up to it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric.explanation import couplings, paths
from bisimetric.explanation.bisimilarity import are_bisimilar
from bisimetric.explanation.choices import PairChoices
from bisimetric.explanation.records import Explanation, Match, PairStep, Proof
from bisimetric.explanation.text import describe_unseen
from bisimetric.mdp import MDP
from bisimetric.rounding import UNIT

__all__ = ["Explanation", "Match", "PairStep", "Proof", "describe_unseen", "explain"]


def explain(
    mdp: MDP,
    values: NDArray[np.floating],
    kind: str,
    policy: NDArray[Any] | None,
    states: tuple[int, int],
    proof: Proof,
) -> Explanation:
    """Follows, from a pair of states, the choices that the distance makes.

    d~ takes the action with the largest gap + discount * distance of the successors; d^pi and MICo
    the policy's; d_lax the action that the other state answers worst, and its best answer. Where
    successors branch their distance is that of the best coupling, or for MICo of the independent
    one. Where not all transitions were seen, the actions are those known in both states. `policy`
    is that of an on-policy distance, else None.
    """
    dynamics = mdp
    if policy is not None:
        # A policy may take actions that were never seen; no step is taken there.
        whole = mdp if proof.complete else mdp.replace(available=None)
        dynamics = whole.apply_policy(policy)
    choices = PairChoices(
        dynamics, values, kind, _find_policy_actions(policy), proof.known, proof.complete
    )
    follow = paths.follow_path if dynamics.is_deterministic else couplings.follow_couplings
    way = follow(choices, states)
    gap, gap_error = _compute_value_gap(mdp, policy, states) if proof.complete else (None, 0.0)
    rounded = choices.policy_actions is not None and bool((choices.policy_actions < 0).any())
    return Explanation(
        mdp=mdp,
        kind=kind,
        states=states,
        distance=float(values[states]),
        proof=proof,
        steps=way.steps,
        loop_start=way.loop_start,
        total=way.total,
        value_gap=gap,
        value_gap_error=gap_error,
        mismatched_pair=way.mismatched_pair,
        bisimilar=way.loop_start is None and not rounded and are_bisimilar(choices, way.final_pair),
    )


def _find_policy_actions(policy: NDArray[Any] | None) -> NDArray[Any] | None:
    """The action of each state under a policy, -1 where it mixes several."""
    if policy is None or policy.ndim == 1:
        return policy
    return np.where(np.count_nonzero(policy, axis=1) == 1, policy.argmax(axis=1), -1)


def _compute_value_gap(
    mdp: MDP, policy: NDArray[Any] | None, states: tuple[int, int]
) -> tuple[float, float]:
    """abs(V(s) - V(t)), and a bound on its error: as small as float64 lets it be."""
    if policy is not None:
        V = planning.policy_values(mdp, policy, tol=math.inf)
    else:
        V = planning.optimal_values(mdp, tol=math.inf)
    gap = abs(float(V.values[states[0]] - V.values[states[1]]))
    return gap, 0.0 if states[0] == states[1] else 2 * V.error + UNIT * gap

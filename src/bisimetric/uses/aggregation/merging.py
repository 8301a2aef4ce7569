"""Aggregating the states of an MDP by a distance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.uses.aggregation.groups import ClusteringRule, cluster_matrix
from bisimetric.uses.aggregation.lifting import lift_policy
from bisimetric.uses.aggregation.promises import CertifiedDistance, compute_bounds
from bisimetric.uses.aggregation.record import Aggregation
from bisimetric.uses.aggregation.solving import solve_aggregate_mdp
from bisimetric.uses.proofs import (
    certified_error,
    describe_mismatch,
    diameter_bound,
    difference_error,
)
from bisimetric.uses.tables import validate_distance_matrix

CALLER = "uses.aggregate"


def aggregate(
    mdp: MDP,
    d: Any,
    *,
    radius: float | None = None,
    clusters: int | None = None,
    rule: ClusteringRule = "incremental",
    seed: int = 0,
    proof: bool = False,
    measure: bool = True,
) -> Aggregation:
    """Merges states that are near each other, solves what is left, and lifts the policy back.

    The aggregated MDP takes rewards and transitions from one representative t_c a class,

        R'(c, a) = R(t_c, a),    P'(c, a)(k) = P(t_c, a)(class k),

    and is solved. With r(s) = d(s, t_[s]), the distance to the representative, its values are
    promised to be near those of the states, and its policy, lifted, not to lose much:

        |V(s) - V'([s])|    <=  max r / (1 - discount)          `promised_gap` is at most this
        V(s) - V^policy(s)  <=  2 max r / (1 - discount)^2      `promised` is at most this

    but for errors and rounding. Both are worked out state by state, which is tighter, and hold with
    the error of d and of all that is computed; `uses/aggregation/promises.py` proves them. What d
    is decides what V is:

    - d~: V*. A state does what its class does.
    - d_lax: V*. Actions may have other names in other states: a state takes the action b that is
      most like the action a of its representative t, with the least |R(t, a) - R(s, b)| +
      discount * W1(d)(P(t, a), P(s, b)).
    - d^pi and MICo: V^pi. The aggregated MDP keeps the policy pi of its representatives, and a
      state takes the action b that is most like what its representative t does, with the least
      delta = |R^pi(t) - R(s, b)| + discount * W1(d)(P^pi(t), P(s, b)). If pi mixes actions, delta
      is above 0 also where s is t, and the second bound is (max r + max delta) / (1 - discount).
    - a plain table (S, S), or distances without a proof (sampled, learned): V^pi where d knows a
      policy, else V*. There is no promise, and the loss is measured only.

    Args:
        d: a `Distance` of this MDP, a `Learned` that knows its states, or a table (S, S).
        radius, clusters, rule, key: how large the classes are and how they are made, see `labels`;
            exactly one of `radius` and `clusters` is given.
        proof: refuse distances of which nothing is proven.
        measure: solve the whole MDP as well, to know what is lost. Where that takes too long, False
            leaves `loss` and `gap` NaN, and `promised` is the largest regret / (1 - discount).

    >>> from bisimetric import exact, worlds
    >>> mdp = worlds.load("pessimism")  # V*(s) = V*(t): d_lax sees it, and d~ does not
    >>> aggregate(mdp, exact.lax(mdp), clusters=2)
    Aggregation(3 states in 2 classes by lax, incremental, loss 0, at most ... promised)
    >>> round(aggregate(mdp, exact.bisimulation(mdp), clusters=2).loss, 6)
    10.0
    """
    if hasattr(d, "distance"):
        d = d.distance()
    table = validate_distance_matrix(CALLER, d)
    error, kind, pi = _certify(mdp, d, table)
    if proof and math.isinf(error):
        raise InputError(
            f"{CALLER}: proof=True asks for a promise, and nothing is proven of these distances; "
            "take a table of bisimetric.exact, or leave proof out."
        )
    groups = cluster_matrix(CALLER, table, radius, clusters, rule, seed)
    small = solve_aggregate_mdp(mdp, groups, pi)
    lifting = lift_policy(mdp, table, groups, small, kind, pi, error)
    promised = promised_gap = math.inf
    if math.isfinite(error):
        source = CertifiedDistance(mdp, kind, error, pi)
        promised_gap, promised = compute_bounds(
            source, groups, small, lifting, evaluate_chain=measure
        )
    lost = gap = lost_error = gap_error = math.nan
    if measure:
        V = (
            planning.optimal_values(mdp, tol=math.inf)
            if pi is None
            else planning.policy_values(mdp, pi, tol=math.inf)
        )
        kept = planning.policy_values(mdp, lifting.policy, tol=math.inf)
        apart = V.values - kept.values
        lost = max(float(apart.max()), 0.0)
        lost_error = difference_error(V, kept, float(np.abs(apart).max()))
        gap = float(np.abs(V.values - small.values.values[groups.labels]).max())
        gap_error = difference_error(V, small.values, gap)
    return Aggregation(
        groups.labels,
        groups.representatives,
        small.mdp,
        small.values,
        lifting.policy,
        kind,
        "V*" if pi is None else "V^pi",
        rule,
        float(groups.representative_distances.max()),
        groups.diameters,
        promised,
        lost,
        promised_gap,
        gap,
        diameter_bound(mdp),
        lost_error,
        gap_error,
    )


def _certify(
    mdp: MDP, d: Any, distances: NDArray[np.floating]
) -> tuple[float, str | None, NDArray[Any] | None]:
    """The proven error of distances, their kind, and their policy."""
    found = None
    if len(distances) != mdp.num_states:
        found = f"it has {len(distances)} states and this one {mdp.num_states}"
    elif isinstance(d, Distance) and math.isfinite(certified_error(d)):
        found = describe_mismatch(mdp, d.mdp)
    if found is not None:
        raise InputError(
            f"{CALLER}: d is of another MDP: {found}; give the MDP that it was made from."
        )
    return (
        (certified_error(d), d.kind, d.policy)
        if isinstance(d, Distance)
        else (math.inf, None, None)
    )

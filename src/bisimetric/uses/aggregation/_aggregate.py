"""Aggregate the states of an MDP by a distance: the result and its regret bound."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric._text import pluralise
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.planning import ValueFunction
from bisimetric.uses.aggregation.aggregate_mdp import lift_policy, solve_aggregate_mdp
from bisimetric.uses.aggregation.bounds import CertifiedDistance, compute_bounds
from bisimetric.uses.aggregation.clustering import ClusteringRule, cluster_matrix
from bisimetric.uses.certificates import (
    certify_error,
    describe_mismatch,
    diameter_bound,
    difference_error,
    is_network,
    validate_distance_matrix,
)
from bisimetric.uses.trivial_bounds import bound_any_regret, format_bound, is_vacuous

CALLER = "uses.aggregate"


@dataclasses.dataclass(frozen=True, eq=False)
class Aggregation:
    """An aggregated MDP, its policy lifted to the states, and the regret of that policy.

    V is V*, or V^pi for a distance of a policy pi. `print` shows the numbers. Arrays are read-only.

    Attributes:
        labels: (S,), the class of each state, numbered by first appearance.
        representatives: (classes,), one state per class.
        mdp: the aggregated MDP, built from the representatives, with its optimal policy, or pi.
        values: V' of that MDP, (classes,), with a proven error.
        policy: (S,), that policy lifted to the states.
        kind: of the distance; None for a plain matrix.
        value_function: what V is, "V*" or "V^pi".
        rule: the clustering rule.
        radius: the largest distance from a state to the representative of its class.
        diameters: (classes,), the largest distance between two states of each class.
        regret_bound: a proven bound on V - V^policy at every state; infinite without a proof.
        regret: the largest V - V^policy, measured; NaN with measure=False.
        value_bound: a proven bound on |V - V'| at every state; infinite without a proof.
        value_gap: the largest |V - V'|, measured; NaN with measure=False.
        diameter_bound: (max R - min R) / (1 - discount), which no regret exceeds.
        trivial_bound: a proven bound on the regret of every policy, the largest V - V_min with
            V_min the least value of any policy; with measure=False the diameter bound.
        regret_error: a proven bound on the error of `regret`, which may exceed `regret_bound` by
            as much; or NaN.
        value_gap_error: a proven bound on the error of `value_gap`; or NaN.

    >>> from bisimetric import exact, worlds
    >>> mdp = worlds.load("pessimism")
    >>> aggregation = aggregate(mdp, exact.lax(mdp), clusters=2)
    >>> aggregation.labels.tolist(), aggregation.representatives.tolist(), len(aggregation)
    ([0, 0, 1], [0, 2], 2)
    """

    labels: NDArray[np.int64]
    representatives: NDArray[np.int64]
    mdp: MDP
    values: ValueFunction
    policy: NDArray[np.int64]
    kind: str | None
    value_function: str
    rule: ClusteringRule
    radius: float
    diameters: NDArray[np.float64]
    regret_bound: float
    regret: float
    value_bound: float
    value_gap: float
    diameter_bound: float
    trivial_bound: float
    regret_error: float = math.nan
    value_gap_error: float = math.nan

    def __post_init__(self) -> None:
        for array in (self.labels, self.representatives, self.policy, self.diameters):
            array.flags.writeable = False

    def __len__(self) -> int:
        """Return the number of classes."""
        return len(self.representatives)

    @property
    def is_vacuous(self) -> bool:
        """Whether `regret_bound` is above 0 and at least `trivial_bound`: it proves nothing."""
        return is_vacuous(self.regret_bound, self.trivial_bound)

    @property
    def note(self) -> str | None:
        """A remark on trivial clusterings, or None."""
        if len(self) == len(self.labels):
            return "no two states are in one class: nothing was aggregated"
        if len(self) == 1:
            return "all states are in one class"
        return None

    def lines(self) -> Iterator[str]:
        """Yield the numbers, one topic per line.

        Returns:
            An iterator over lines of text.
        """
        states, largest = len(self.labels), int(np.bincount(self.labels).max())
        yield f"classes    {len(self):,} of {states:,} states, the largest of {largest:,}"
        yield f"radius     {self.radius:.4g}, the largest distance to a representative"
        gap = _format_with_bound(
            self.value_bound, self.diameter_bound, self.value_gap, self.value_gap_error
        )
        yield f"values     {gap}: |V' - {self.value_function}|"
        regret = _format_with_bound(
            self.regret_bound, self.trivial_bound, self.regret, self.regret_error
        )
        yield f"regret     {regret}: {self.value_function} - V^policy"
        if math.isinf(self.regret_bound):
            yield "note       nothing is proven of these distances: there is no regret bound"
        if self.note is not None:
            yield f"note       {self.note}"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        by = "a matrix" if self.kind is None else self.kind
        classes = pluralise(len(self), "class", "classes")
        return (
            f"Aggregation({len(self.labels)} states in {classes} by {by}, {self.rule}, "
            f"regret {_format_with_bound(self.regret_bound, self.trivial_bound, self.regret)})"
        )


def _format_with_bound(
    upper_bound: float, trivial_bound: float, measured: float, error: float = math.nan
) -> str:
    """Format a measured number, its error and its proven bound.

    >>> _format_with_bound(2.0, 4.0, 0.5, 1e-15), _format_with_bound(math.inf, 4.0, 0.5)
    ('0.5 (error 1e-15), proven at most 2', '0.5, no bound')
    """
    number = "not measured" if math.isnan(measured) else f"{measured:.4g}"
    if not math.isnan(error):
        number += f" (error {error:.2g})"
    if math.isinf(upper_bound):
        return f"{number}, no bound"
    return f"{number}, proven at most {format_bound(upper_bound, trivial_bound)}"


def aggregate(
    mdp: MDP,
    d: Any,
    *,
    radius: float | None = None,
    clusters: int | None = None,
    rule: ClusteringRule = "incremental",
    seed: int = 0,
    require_proof: bool = False,
    measure: bool = True,
) -> Aggregation:
    """Aggregate nearby states, solve the aggregated MDP and lift its policy to the states.

    The aggregated MDP takes rewards and transitions from one representative t_c per class,

        R'(c, a) = R(t_c, a),    P'(c, a)(k) = P(t_c, a)(class k).

    With r(s) = d(s, t_[s]), the distance to the representative, its values and the regret of its
    lifted policy are bounded by

        |V(s) - V'([s])|    <=  max r / (1 - discount)          `value_bound` is at most this
        V(s) - V^policy(s)  <=  2 max r / (1 - discount)^2      `regret_bound` is at most this

    up to errors and rounding. Both bounds are computed state by state, which is tighter, and
    include the error of d and of all computed values; `uses/aggregation/bounds.py` has the proof.
    V depends on the kind of d:

    - d~: V*. A state takes the action of its class.
    - d_lax: V*. Actions may be named differently in each state: a state takes the action b nearest
      to the action a of its representative t, with the least |R(t, a) - R(s, b)| +
      discount * W1(d)(P(t, a), P(s, b)).
    - d^pi and MICo: V^pi. The aggregated MDP keeps the policy pi of its representatives, and a
      state takes the action b nearest to what pi does in its representative t, with the least
      delta = |R^pi(t) - R(s, b)| + discount * W1(d)(P^pi(t), P(s, b)). If pi is stochastic, delta
      is above 0 even where s is t, and the second bound is (max r + max delta) / (1 - discount).
    - a plain matrix (S, S), or distances without a proof (sampled, learned): V^pi where d has a
      policy, else V*. There is no bound; the regret is measured only.

    Args:
        mdp: the MDP to aggregate.
        d: a `Distance` of this MDP, a `LearnedDistance` of its states, or a matrix (S, S).
        radius: the largest distance from a state to its representative; this or `clusters`.
        clusters: the largest number of classes; this or `radius`.
        rule: the clustering rule, "incremental", "complete" or "medoids"; see `cluster`.
        seed: of the initial medoids.
        require_proof: raise InputError if d has no proven error.
        measure: also solve the whole MDP, to measure the regret. False leaves `regret` and
            `value_gap` NaN, and `regret_bound` is the largest one-step regret / (1 - discount).

    Returns:
        An `Aggregation`.

    Raises:
        InputError: where d belongs to another MDP or is no distance matrix, where the clustering
            options contradict each other, or where `require_proof` is not satisfied.

    >>> from bisimetric import exact, worlds
    >>> mdp = worlds.load("pessimism")  # V*(s) = V*(t): d_lax sees it, and d~ does not
    >>> aggregate(mdp, exact.lax(mdp), clusters=2)
    Aggregation(3 states in 2 classes by lax, incremental, regret 0, proven at most ...)
    >>> aggregate(mdp, exact.lax(mdp), clusters=2).is_vacuous
    False
    >>> round(aggregate(mdp, exact.bisimulation(mdp), clusters=2).regret, 6)
    10.0
    """
    if is_network(d):
        d = d.to_distance()
    distances = validate_distance_matrix(CALLER, d)
    error, kind, pi = _certify(mdp, d, distances)
    if require_proof and math.isinf(error):
        raise InputError(
            "requires a proven error, and d has none",
            caller=CALLER,
            argument="require_proof",
            remedy="use a distance from bisimetric.exact, or leave it out",
        )
    clustering = cluster_matrix(CALLER, distances, radius, clusters, rule, seed)
    aggregated = solve_aggregate_mdp(mdp, clustering, pi)
    lifted = lift_policy(mdp, distances, clustering, aggregated, kind, pi, error)
    regret_bound = value_bound = math.inf
    if math.isfinite(error):
        certified = CertifiedDistance(mdp, kind, error, pi)
        value_bound, regret_bound = compute_bounds(
            certified, clustering, aggregated, lifted, evaluate_chain=measure
        )
    regret = value_gap = regret_error = value_gap_error = math.nan
    trivial_bound = diameter_bound(mdp)
    if measure:
        V = (
            planning.optimal_values(mdp, tol=math.inf)
            if pi is None
            else planning.policy_values(mdp, pi, tol=math.inf)
        )
        trivial_bound = bound_any_regret(mdp, V)
        V_policy = planning.policy_values(mdp, lifted.policy, tol=math.inf)
        differences = V.values - V_policy.values
        regret = max(float(differences.max()), 0.0)
        regret_error = difference_error(V, V_policy, float(np.abs(differences).max()))
        value_gap = float(np.abs(V.values - aggregated.values.values[clustering.labels]).max())
        value_gap_error = difference_error(V, aggregated.values, value_gap)
    return Aggregation(
        clustering.labels,
        clustering.representatives,
        aggregated.mdp,
        aggregated.values,
        lifted.policy,
        kind,
        "V*" if pi is None else "V^pi",
        rule,
        float(clustering.representative_distances.max()),
        clustering.diameters,
        regret_bound,
        regret,
        value_bound,
        value_gap,
        diameter_bound(mdp),
        trivial_bound,
        regret_error,
        value_gap_error,
    )


def _certify(
    mdp: MDP, d: Any, distances: NDArray[np.floating]
) -> tuple[float, str | None, NDArray[Any] | None]:
    """Return the proven error of d, its kind and its policy; require that it belongs to the MDP."""
    mismatch = None
    if len(distances) != mdp.num_states:
        mismatch = f"it has {len(distances)} states and this one {mdp.num_states}"
    elif isinstance(d, Distance) and math.isfinite(certify_error(d)):
        mismatch = describe_mismatch(mdp, d.mdp)
    if mismatch is not None:
        raise InputError(
            f"belongs to another MDP: {mismatch}",
            caller=CALLER,
            argument="d",
            remedy="pass the MDP that it was computed from",
        )
    return (
        (certify_error(d), d.kind, d.policy) if isinstance(d, Distance) else (math.inf, None, None)
    )

"""Aggregated states: what is left of an MDP, what was promised of it, and what is lost.

Aggregating the states of an MDP by a distance.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.planning import ValueFunction
from bisimetric.uses.aggregation.aggregate_mdp import lift_policy, solve_aggregate_mdp
from bisimetric.uses.aggregation.bounds import CertifiedDistance, compute_bounds
from bisimetric.uses.aggregation.clustering import ClusteringRule, cluster_matrix
from bisimetric.uses.certificates import (
    certified_error,
    describe_mismatch,
    diameter_bound,
    difference_error,
    validate_distance_matrix,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Aggregation:
    """The states of an MDP in classes, what is done there, and what is promised and lost by it.

    V is V*, or V^pi for a distance of a policy pi. `print` shows the numbers. Arrays are read-only.

    Attributes:
        labels: (S,), the class of each state, numbered by first appearance.
        representatives: (classes,), the state that stands for each class.
        mdp: the aggregated MDP, made of the representatives, with the policy that was solved for
            there, or pi.
        values: V' of that MDP, (classes,), to a proven error.
        policy: (S,), that policy lifted to the states.
        kind: of the distance; None for a plain table.
        of: what V is, "V*" or "V^pi".
        rule: how the classes were made.
        radius: the largest distance of a state to the one that stands for its class.
        diameters: (classes,), the largest distance of two states of each class.
        promised: no state loses more by the lifted policy, V - V^policy; infinite without a proof.
        loss: the most that a state loses, measured; NaN where that was not asked for.
        promised_gap: no value of a class is farther from that of a state, |V - V'|.
        gap: the largest of these differences, measured; or NaN.
        most: no policy loses more than this, the range of the rewards / (1 - discount).
        loss_error: a proven bound on the error of `loss`, which may exceed `promised` by so much;
            or NaN.
        gap_error: a proven bound on the error of `gap`; or NaN.
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
    regret_error: float = math.nan
    value_gap_error: float = math.nan

    def __post_init__(self) -> None:
        for array in (self.labels, self.representatives, self.policy, self.diameters):
            array.flags.writeable = False

    def __len__(self) -> int:
        """How many classes there are."""
        return len(self.representatives)

    @property
    def note(self) -> str | None:
        """What is to be said of classes that are no help, or None."""
        if len(self) == len(self.labels):
            return "no two states are in one class: nothing was aggregated"
        if len(self) == 1:
            return "all states are in one class"
        return None

    def lines(self) -> Iterator[str]:
        """The numbers, one topic a line."""
        states, largest = len(self.labels), int(np.bincount(self.labels).max())
        yield f"classes    {len(self):,} of {states:,} states, the largest of {largest:,}"
        yield f"radius     {self.radius:.4g}, the farthest that a state is from its representative"
        gap = _format_with_bound(self.value_bound, self.value_gap, self.value_gap_error)
        yield f"values     {gap}: how far V' is off {self.value_function}"
        loss = _format_with_bound(self.regret_bound, self.regret, self.regret_error)
        yield f"loss       {loss}: what the policy loses of {self.value_function}"
        if math.isinf(self.regret_bound):
            yield "note       nothing is proven of these distances, so nothing is promised"
        elif self.regret_bound >= self.diameter_bound > 0:
            yield f"note       the promise says nothing: no policy loses more than {self.diameter_bound:.4g}"
        if self.note is not None:
            yield f"note       {self.note}"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        by = "a table" if self.kind is None else self.kind
        classes = "1 class" if len(self) == 1 else f"{len(self)} classes"
        return (
            f"Aggregation({len(self.labels)} states in {classes} by {by}, {self.rule}, "
            f"loss {_format_with_bound(self.regret_bound, self.regret)})"
        )


def _format_with_bound(upper_bound: float, measured: float, error: float = math.nan) -> str:
    """What was measured, with its error, beside what was promised.

    >>> _beside(2.0, 0.5, 1e-15), _beside(math.inf, 0.5), _beside(2.0, math.nan)
    ('0.5 (error 1e-15), at most 2 promised', '0.5, no promise', 'not measured, at most 2 promised')
    """
    found = "not measured" if math.isnan(measured) else f"{measured:.4g}"
    if not math.isnan(error):
        found += f" (error {error:.2g})"
    bound = "no promise" if math.isinf(upper_bound) else f"at most {upper_bound:.4g} promised"
    return f"{found}, {bound}"


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
    the error of d and of all that is computed; `uses/aggregation/bounds.py` proves them. What d
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

"""Transfer the optimal policy of one MDP to another (Castro & Precup 2010)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric import planning
from bisimetric.distance import Distance
from bisimetric.errors import InputError, NotConverged
from bisimetric.mdp import MDP
from bisimetric.planning import ValueFunction
from bisimetric.uses.certificates import (
    add_upward,
    certify_action_values,
    certify_error,
    describe_mismatch,
    diameter_bound,
    difference_error,
    is_network,
    multiply_upward,
    validate_distance_matrix,
)
from bisimetric.uses.policy_transfer._disjoint_union import align_actions, disjoint_union, solve_lax
from bisimetric.uses.policy_transfer.action_bounds import (
    TransferRule,
    bound_actions,
    choose_by_bounds,
)
from bisimetric.uses.policy_transfer.imitation import choose_by_imitation
from bisimetric.uses.trivial_bounds import bound_any_regret, format_bound, is_vacuous

if TYPE_CHECKING:
    from bisimetric.learned import LearnedDistance

MAX_SHOWN_ACTIONS = 6
"""Actions that an error message lists."""


@dataclasses.dataclass(frozen=True, eq=False)
class Transfer:
    """A transferred policy with its regret and a proven bound on it.

    State t of the target is matched with a state s and an action a of the source, and takes the
    action b = policy[t]. `print` shows the numbers. Arrays are read-only.

    Attributes:
        source: the MDP that the policy comes from.
        target: the MDP that it is transferred to.
        rule: how the matches were chosen.
        policy: (S2,), the transferred policy, actions of the target.
        matched_states: (S2,), the s that each t is matched with.
        matched_actions: (S2,), the a that each t is matched with.
        distances: (S2,), delta((s, a), (t, b)) of the matches; for the optimistic rule d_o(s, t).
        regret_bound: (S2,), a proven bound on V2* - V2^policy; infinite without a proof.
        optimal_values: V2* of the target, with a proven error.
        policy_values: V2^policy of the transferred policy, with a proven error.
        random_values: the values of the uniform random policy, with a proven error.
        trivial_bound: a proven bound on the regret of every policy of the target, the largest
            V2* - V_min with V_min the least value of any policy.
        d: the distance on `uses.disjoint_union(source, target)`; None for a plain matrix.

    >>> from bisimetric import worlds
    >>> small, large = (worlds.grid(" " * k + "g", discount=0.5) for k in (2, 4))
    >>> result = transfer(small, large)
    >>> result.policy.shape, round(result.max_regret, 6), round(result.max_regret_bound, 6)
    ((5,), 0.0, 0.5)
    """

    source: MDP
    target: MDP
    rule: TransferRule
    policy: NDArray[np.int64]
    matched_states: NDArray[np.int64]
    matched_actions: NDArray[np.int64]
    distances: NDArray[np.float64]
    regret_bound: NDArray[np.float64]
    optimal_values: ValueFunction
    policy_values: ValueFunction
    random_values: ValueFunction
    trivial_bound: float
    d: Distance | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            values = getattr(self, field.name)
            if isinstance(values, np.ndarray):
                values.flags.writeable = False

    @property
    def regret(self) -> NDArray[np.float64]:
        """(S2,), V2* - V2^policy, to within `regret_error`."""
        return _regret(self.optimal_values, self.policy_values)

    @property
    def random_regret(self) -> NDArray[np.float64]:
        """(S2,), the regret of the uniform random policy."""
        return _regret(self.optimal_values, self.random_values)

    @property
    def regret_error(self) -> float:
        """A proven bound on the error of `regret`."""
        return difference_error(self.optimal_values, self.policy_values, self.diameter_bound)

    @property
    def max_regret_bound(self) -> float:
        """The largest entry of `regret_bound`."""
        return float(self.regret_bound.max())

    @property
    def max_regret(self) -> float:
        """The largest entry of `regret`."""
        return float(self.regret.max())

    @property
    def diameter_bound(self) -> float:
        """(max R2 - min R2) / (1 - discount), which no regret exceeds."""
        return diameter_bound(self.target)

    @property
    def is_vacuous(self) -> bool:
        """Whether `max_regret_bound` is above 0 and at least `trivial_bound`: it proves nothing."""
        return is_vacuous(self.max_regret_bound, self.trivial_bound)

    @property
    def better_than_random(self) -> NDArray[np.bool_]:
        """(S2,), where the bound proves a larger value than that of uniform random actions."""
        error = difference_error(self.optimal_values, self.random_values, self.diameter_bound)
        return np.asarray(add_upward(self.regret_bound, error) < self.random_regret)

    def lines(self) -> Iterator[str]:
        """Yield the numbers, one topic per line.

        Returns:
            An iterator over lines of text.
        """
        states, num_matched = self.target.num_states, len(np.unique(self.matched_states))
        kind = "a matrix" if self.d is None else {"lax": "d_lax", "bisimulation": "d~"}[self.d.kind]
        yield (
            f"transfer   to {states:,} states, matched with {num_matched:,} of the "
            f"{self.source.num_states:,} source states"
        )
        yield f"rule       {self.rule}, by {kind}"
        if math.isfinite(self.max_regret_bound):
            yield f"bound      {_format_regrets(self.regret_bound, 0.0)}"
            if self.is_vacuous:
                yield f"           vacuous: at least the trivial bound, {self.trivial_bound:.4g}"
            better = f"{np.count_nonzero(self.better_than_random):,} of {states:,} states"
            yield f"           below the regret of random actions in {better}"
        yield f"regret     {_format_regrets(self.regret, self.regret_error)}"
        yield f"random     {_format_regrets(self.random_regret, self.regret_error)}"
        V = self.optimal_values.values
        yield f"values     from {V.min():.4g} to {V.max():.4g}"
        if math.isinf(self.max_regret_bound):
            yield "note       nothing is proven of these distances: there is no regret bound"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        bound = self.max_regret_bound
        proof = "no bound"
        if math.isfinite(bound):
            proof = f"proven at most {format_bound(bound, self.trivial_bound)}"
        return (
            f"Transfer({self.rule}, {self.source.num_states} to {self.target.num_states} states, "
            f"regret {_format_regret(self.max_regret, self.regret_error)}, {proof})"
        )


def _regret(best: ValueFunction, other: ValueFunction) -> NDArray[np.float64]:
    return np.asarray(np.maximum(best.values - other.values, 0.0))


def _format_regrets(regrets: NDArray[np.float64], error: float) -> str:
    """Format the largest and the mean regret."""
    if regrets.max() <= error:
        return "0 everywhere"
    largest, mean = (
        _format_regret(float(regrets.max()), error),
        _format_regret(float(regrets.mean()), error),
    )
    return f"at most {largest}, {mean} on average"


def _format_regret(regret: float, error: float) -> str:
    """Format a regret in four digits, and as 0 where it is within its error of 0."""
    return "0" if regret <= error else f"{regret:.4g}"


def transfer(
    source: MDP,
    target: MDP,
    d: Distance | LearnedDistance | ArrayLike | None = None,
    *,
    rule: TransferRule = "optimistic",
    require_proof: bool = False,
) -> Transfer:
    """Transfer the optimal policy of `source` to `target`, with a bound on its regret.

    On the disjoint union of both, d bounds the difference in value between a state s of the source
    and a state t of the target, and

        delta((s, a), (t, b)) = |R1(s, a) - R2(t, b)| + discount * W1(d)(P1(s, a), P2(t, b))

    bounds the difference between their action values. So, with Q1 the optimal action values of the
    source,

        lower(t, b) = max_(s, a) Q1(s, a) - delta  <=  Q2(t, b),
        upper(t, b) = min_(s, a) Q1(s, a) + delta  >=  Q2(t, b).

    | `rule` | each t takes |
    |---|---|
    | "nearest" | the action nearest, by delta, to the best one of the nearest source state |
    | "pessimistic" | the action with the largest `lower` |
    | "hopeful" | the action with the largest `upper` |
    | "optimistic" | the action that imitates best, see below |

    All but "hopeful" are from Castro & Precup (2010). "optimistic" uses a directed distance that
    ignores the actions which the optimal policy of the source does not take:

        d_o(s, t) = min_b |R1(s, a*) - R2(t, b)| + discount * W1(d_o)(P1(s, a*), P2(t, b));

    each t imitates the s with the largest V1(s) - d_o(s, t), and takes its best b.

    **Regret bound.** Let U(t) = max_b upper(t, b) >= V2*(t), and L(t) = max_b lower(t, b). As
    d(x, y) is at least delta((x, a*), (y, b)) for some b, V1(x) - d(x, y) <= L(y), and so

        lower(t, b) <= R2(t, b) + discount * E L(y),  y sampled from P2(t, b).

    A policy that takes the b of L(t) everywhere therefore has V2^pi >= L and a regret of at most
    U - L. Any other may add c(t) = L(t) - lower(t, pi(t)) per step: its regret is at most
    U - L + C, where C is the value of c in the chain of pi. This is never more, and often much
    less, than the value of the chain with the one-step regrets U(t) - lower(t, pi(t)). For the
    optimistic rule the same argument holds with L(t) = max_s V1(s) - d_o(s, t) and c = 0. The bound
    includes the errors of d and of all values, and rounding, and is never above
    (max R2 - min R2) / (1 - discount).

    Args:
        source: the MDP whose optimal policy is transferred.
        target: the MDP that receives it, of the same discount.
        d: a distance on `uses.disjoint_union(source, target)`: "lax", or "bisimulation" where both
            have the same actions, which then compares equal actions only. Default: `exact.lax`,
            which needs no common actions and is never above the other, so that its bounds are
            tighter. A learned or sampled distance, or a plain matrix (S1 + S2, S1 + S2), gives no
            bound.
        rule: "optimistic", "pessimistic", "nearest" or "hopeful", as above.
        require_proof: raise InputError if d has no proven error.

    Returns:
        A `Transfer`.

    Raises:
        InputError: where the rule is unknown, the discounts differ, d does not fit the union, or
            `require_proof` is not satisfied.

    >>> from bisimetric import worlds
    >>> small, large = (worlds.grid(" " * k + "g", discount=0.5) for k in (2, 4))
    >>> result = transfer(small, large)
    >>> result
    Transfer(optimistic, 3 to 5 states, regret 0, proven at most 0.5)
    >>> [large.action_name(b) for b in result.policy]
    ['right', 'right', 'right', 'right', 'left']
    """
    if rule not in get_args(TransferRule):
        raise InputError(
            f"is {rule!r} and must be one of {', '.join(get_args(TransferRule))}",
            caller="uses.transfer",
            argument="rule",
        )
    distance = _validate_union_distance(source, target, d)
    if require_proof and not math.isfinite(distance.error):
        raise InputError(
            "requires a proven error, and d has none",
            caller="uses.transfer",
            argument="require_proof",
            remedy="use a distance from bisimetric.exact, or leave it out",
        )
    V = planning.optimal_values(source, tol=math.inf)
    Q = certify_action_values(source, V)
    best = planning.greedy_policy(source, V)
    distances = distance.values[: source.num_states]
    nearest = distances[:, source.num_states :].argmin(axis=0)
    nearest_actions = nearest * source.num_actions + best[nearest]
    bounds = bound_actions(
        source, target, distances, Q.values, nearest_actions, distance.comparable
    )
    has_proof = math.isfinite(distance.error)
    bound_error = add_upward(Q.error, bounds.error)
    if has_proof:
        bound_error = add_upward(bound_error, multiply_upward(source.discount, distance.error))
    if rule == "optimistic":
        matched = choose_by_imitation(source, target, best)
    else:
        matched = choose_by_bounds(rule, target, bounds, nearest_actions, bound_error)
    regret_bound = add_upward(bounds.upper.max(axis=1), bound_error, -matched.value_lower_bound)
    if has_proof:
        regret_bound = np.minimum(regret_bound, diameter_bound(target))
    else:
        regret_bound = np.full(target.num_states, math.inf)
    optimal_values = planning.optimal_values(target, tol=math.inf)
    uniform = target.action_mask / target.action_mask.sum(axis=1, keepdims=True)
    return Transfer(
        source,
        target,
        rule,
        matched.policy,
        matched.matches // source.num_actions,
        matched.matches % source.num_actions,
        matched.distances,
        regret_bound,
        optimal_values,
        planning.policy_values(target, matched.policy, tol=math.inf),
        planning.policy_values(target, uniform, tol=math.inf),
        bound_any_regret(target, optimal_values),
        distance.d,
    )


class _UnionDistance(NamedTuple):
    """A distance on the union: its matrix, its error, the actions (A1, A2) that it compares."""

    values: NDArray[np.floating]
    error: float
    comparable: NDArray[np.bool_]
    d: Distance | None


def _validate_union_distance(source: MDP, target: MDP, d: Any) -> _UnionDistance:
    """Compute or validate the distance on the union."""
    union, alignment = disjoint_union(source, target), align_actions(source, target)
    all_actions = np.ones((source.num_actions, target.num_actions), np.bool_)
    if d is None:
        try:
            d = solve_lax(union)
        except NotConverged as error:
            # Large rewards: its error is larger than usual, and the bound includes it.
            partial: Any = error.partial
            d = dataclasses.replace(partial, mdp=union)
    elif is_network(d):
        d = d.to_distance()
    if not isinstance(d, Distance):
        values = validate_distance_matrix("uses.transfer", d)
        if len(values) != union.num_states:
            raise InputError(
                f"has {len(values)} states and must have the {union.num_states} of "
                "uses.disjoint_union(source, target)",
                caller="uses.transfer",
                argument="d",
            )
        return _UnionDistance(values, math.inf, all_actions, None)
    mismatch = describe_mismatch(union, d.mdp)
    if mismatch is not None:
        raise InputError(
            f"belongs to another MDP: {mismatch}",
            caller="uses.transfer",
            argument="d",
            remedy="compute it on uses.disjoint_union(source, target)",
        )
    if d.kind not in ("lax", "bisimulation"):
        raise InputError(
            f"is of kind {d.kind!r}, which does not bound V*",
            caller="uses.transfer",
            argument="d",
            remedy="use exact.lax or exact.bisimulation",
        )
    if d.kind == "bisimulation" and not alignment.identical:
        raise InputError(
            "uses.transfer: a bisimulation distance compares equal actions, and source and target "
            f"have different ones ({_format_actions(source)}; {_format_actions(target)}); use "
            "exact.lax."
        )
    # With labels or unavailable actions d~ may be the diameter, and with observations it contains
    # their ground distance, which no pair of equal actions attains; choice labels match different
    # ones.
    equal_actions = d.kind == "bisimulation" and union.available is None and not union.has_labels
    equal_actions = equal_actions and union.choice_labels is None
    equal_actions = equal_actions and union.ground_distance is None
    comparable = alignment.source[:, None] == alignment.target if equal_actions else all_actions
    return _UnionDistance(d.values, certify_error(d), comparable, d)


def _format_actions(mdp: MDP) -> str:
    names = [mdp.action_name(a) for a in range(min(mdp.num_actions, MAX_SHOWN_ACTIONS))]
    return ", ".join(names) + (", ..." if mdp.num_actions > MAX_SHOWN_ACTIONS else "")

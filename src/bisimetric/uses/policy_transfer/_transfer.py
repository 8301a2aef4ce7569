"""A policy that was carried from one MDP to another: what was promised of it, and what it lost.

A policy for one MDP from the best policy of another (Castro & Precup 2010).
"""

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
from bisimetric.mdp import MDP, reject_label_actions
from bisimetric.planning import ValueFunction
from bisimetric.uses.certificates import (
    add_upward,
    certified_action_values,
    certified_error,
    describe_mismatch,
    diameter_bound,
    difference_error,
    multiply_upward,
    validate_distance_matrix,
)
from bisimetric.uses.policy_transfer import _disjoint_union
from bisimetric.uses.policy_transfer._disjoint_union import align_actions, disjoint_union
from bisimetric.uses.policy_transfer.action_bounds import (
    TransferRule,
    bound_actions,
    choose_by_bounds,
    choose_by_imitation,
)

if TYPE_CHECKING:
    from bisimetric.learned import LearnedDistance


@dataclasses.dataclass(frozen=True, eq=False)
class Transfer:
    """A carried policy, with the loss that is promised of it and the loss that it has.

    State t of the target was matched with a state s of the source and an action a of s, and takes
    the action b = policy[t] for it. `print` shows the numbers.

    Attributes:
        source, target: the two MDPs.
        rule: how the matches were chosen.
        policy: (S2,), the carried policy, actions of the target.
        states, actions: (S2,), the s and the a that each t was matched with.
        distances: (S2,), delta((s, a), (t, b)), how unlike the two actions are; by the optimistic
            rule d_o(s, t), how badly t imitates s.
        promised: (S2,), no state loses more by the carried policy, V2* - V2^policy; infinite
            without a proof.
        optimal, carried, random: the values of the target under its best policy, the carried one,
            and one that takes any action with equal probability; each to a proven error.
        d: the distance that was used, on `uses.paired(source, target)`; None for a plain table.
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
    d: Distance | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            numbers = getattr(self, field.name)
            if isinstance(numbers, np.ndarray):
                numbers.flags.writeable = False

    @property
    def regret(self) -> NDArray[np.float64]:
        """(S2,), V2* - V2^policy, measured, to within `error`."""
        return _regret(self.optimal_values, self.policy_values)

    @property
    def random_regret(self) -> NDArray[np.float64]:
        """(S2,), what is lost where any action is taken with equal probability."""
        return _regret(self.optimal_values, self.random_values)

    @property
    def regret_error(self) -> float:
        """A proven bound on the error of `loss`."""
        return difference_error(self.optimal_values, self.policy_values, self.diameter_bound)

    @property
    def max_regret_bound(self) -> float:
        """No state loses more, proven."""
        return float(self.regret_bound.max())

    @property
    def max_regret(self) -> float:
        """The most that a state loses, measured."""
        return float(self.regret.max())

    @property
    def diameter_bound(self) -> float:
        """No policy loses more than this, the range of the target's rewards / (1 - discount)."""
        return diameter_bound(self.target)

    def lines(self) -> Iterator[str]:
        """The numbers, one topic a line."""
        states, used = self.target.num_states, len(np.unique(self.matched_states))
        kind = "a table" if self.d is None else {"lax": "d_lax", "bisimulation": "d~"}[self.d.kind]
        yield (
            f"carried    to {states:,} states, which match {used:,} of the source's "
            f"{self.source.num_states:,}"
        )
        yield f"rule       {self.rule}, by {kind}"
        if math.isfinite(self.max_regret_bound):
            yield f"promised   {_format_regrets(self.regret_bound, 0.0)}"
        yield f"loss       {_format_regrets(self.regret, self.regret_error)}"
        yield f"at random  {_format_regrets(self.random_regret, self.regret_error)}"
        yield f"values     from {self.optimal_values.values.min():.4g} to {self.optimal_values.values.max():.4g}"
        if math.isinf(self.max_regret_bound):
            yield "note       nothing is proven of these distances, so nothing is promised"
        elif self.max_regret_bound >= self.diameter_bound > 0:
            yield f"note       no policy loses more than {self.diameter_bound:.4g}: little is promised"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        promised = self.max_regret_bound
        said = "nothing promised" if math.isinf(promised) else f"promised {promised:.4g}"
        return (
            f"Transfer({self.rule}, {self.source.num_states} to {self.target.num_states} states, "
            f"largest loss {_format_regret(self.max_regret, self.regret_error)}, {said})"
        )


def _regret(best: ValueFunction, other: ValueFunction) -> NDArray[np.float64]:
    return np.asarray(np.maximum(best.values - other.values, 0.0))


def _format_regrets(regrets: NDArray[np.float64], error: float) -> str:
    """The largest loss, and the mean."""
    if regrets.max() <= error:
        return "0 everywhere"
    largest, mean = (
        _format_regret(float(regrets.max()), error),
        _format_regret(float(regrets.mean()), error),
    )
    return f"at most {largest}, {mean} on average"


def _format_regret(regret: float, error: float) -> str:
    """A loss in four digits; what its error does not tell from 0 is 0."""
    return "0" if regret <= error else f"{regret:.4g}"


MAX_SHOWN_ACTIONS = 6


def transfer(
    source: MDP,
    target: MDP,
    d: Distance | LearnedDistance | ArrayLike | None = None,
    *,
    rule: TransferRule = "optimistic",
    proof: bool = False,
) -> Transfer:
    """The best policy of `source` carried over to `target`, with the loss that is promised of it.

    On the disjoint union of both, `uses.paired(source, target)`, d bounds how much the values of a
    state s of the source and a state t of the target differ, and

        delta((s, a), (t, b)) = |R1(s, a) - R2(t, b)| + discount * W1(d)(P1(s, a), P2(t, b))

    bounds how much what their actions are worth differs. So, with Q1 the best action values of the
    source,

        low(t, b) = max_(s, a) Q1(s, a) - delta  <=  Q2(t, b)  <=  up(t, b) = min_(s, a) Q1 + delta.

    | `rule` | each t takes |
    |---|---|
    | "nearest" | the action nearest to the best one of the source's nearest state, by delta |
    | "pessimistic" | the action with the largest `low` |
    | "hopeful" | the action with the largest `up` |
    | "optimistic" | the action that imitates best, see below |

    The first two and the last are those of the paper. The last has a distance of its own, which
    asks nothing of actions that the best policy of the source does not take, in one direction only:

        d_o(s, t) = min_b |R1(s, a*) - R2(t, b)| + discount * W1(d_o)(P1(s, a*), P2(t, b));

    each t imitates the s with the largest V1(s) - d_o(s, t), and takes its best b.

    **The promise.** Let U(t) = max_b up(t, b) >= V2*(t), and L(t) = max_b low(t, b). As d(x, y) is
    at least delta((x, a*), (y, b)) for some b, V1(x) - d(x, y) <= L(y), and so

        low(t, b) <= R2(t, b) + discount * E L(y),  y drawn from P2(t, b).

    A policy that takes the b of L(t) everywhere is therefore worth L or more, V2^pi >= L, and loses
    at most U - L. Any other may lose c(t) = L(t) - low(t, pi(t)) more in each step: its loss is at
    most U - L + C, where C is the value of c in the chain that pi makes of the target. This is
    never more, and often much less, than the value of the chain with the regrets
    U(t) - low(t, pi(t)). For the optimistic rule the same argument holds with
    L(t) = max_s V1(s) - d_o(s, t) and c = 0. The errors of d, of all values, and rounding are part
    of the promise, and none is above what any policy can lose, the range of R2 / (1 - discount).

    Args:
        d: a distance on `uses.paired(source, target)`: "lax", or "bisimulation" where both have the
            same actions, and then only equal actions are compared. Default: `exact.lax`, which
            needs no common actions and is never above the other, so that its bounds are tighter. A
            learned or sampled distance, or a plain table (S1 + S2, S1 + S2), promises nothing.
        rule: as above.
        proof: refuse a distance that promises nothing.

    >>> from bisimetric import worlds
    >>> small, large = (worlds.grid(" " * k + "g", discount=0.5) for k in (2, 4))
    >>> found = transfer(small, large)
    >>> found
    Transfer(optimistic, 3 to 5 states, largest loss 0, promised 0.5)
    >>> [large.action_name(b) for b in found.policy]
    ['right', 'right', 'right', 'right', 'left']
    """
    if rule not in get_args(TransferRule):
        raise InputError(
            f"uses.transfer: rule is {rule!r} and must be one of {', '.join(get_args(TransferRule))}."
        )
    for mdp in (source, target):
        # Whatever the distance, the rules match any actions of the two.
        reject_label_actions("uses.transfer", mdp)
    known = _validate_union_distance(source, target, d)
    if proof and not math.isfinite(known.error):
        raise InputError(
            "uses.transfer: proof=True asks for a promise, and the distance is an estimate that "
            "proves nothing; use exact.lax(uses.paired(source, target))."
        )
    V = planning.optimal_values(source, tol=math.inf)
    Q = certified_action_values(source, V)
    best = planning.greedy_policy(source, V)
    across = known.values[: source.num_states]
    nearest = across[:, source.num_states :].argmin(axis=0)
    asked = nearest * source.num_actions + best[nearest]
    found = bound_actions(source, target, across, Q.values, asked, known.comparable)
    proven = math.isfinite(known.error)
    off = add_upward(Q.error, found.error)
    if proven:
        off = add_upward(off, multiply_upward(source.discount, known.error))
    if rule == "optimistic":
        choice = choose_by_imitation(source, target, best)
    else:
        choice = choose_by_bounds(rule, target, found, asked, off)
    promised = add_upward(found.upper.max(axis=1), off, -choice.value_lower_bound)
    if proven:
        promised = np.minimum(promised, diameter_bound(target))
    else:
        promised = np.full(target.num_states, math.inf)
    uniform = target.action_mask / target.action_mask.sum(axis=1, keepdims=True)
    return Transfer(
        source,
        target,
        rule,
        choice.policy,
        choice.matches // source.num_actions,
        choice.matches % source.num_actions,
        choice.distances,
        promised,
        planning.optimal_values(target, tol=math.inf),
        planning.policy_values(target, choice.policy, tol=math.inf),
        planning.policy_values(target, uniform, tol=math.inf),
        known.d,
    )


class _UnionDistance(NamedTuple):
    """A distance of the union: its table, its error, the actions (A1, A2) that it compares."""

    values: NDArray[np.floating]
    error: float
    comparable: NDArray[np.bool_]
    d: Distance | None


def _validate_union_distance(source: MDP, target: MDP, d: Any) -> _UnionDistance:
    """What is known of the distances, checked."""
    pair, shared = disjoint_union(source, target), align_actions(source, target)
    everything = np.ones((source.num_actions, target.num_actions), np.bool_)
    if d is None:
        try:
            d = _disjoint_union.solve_lax(pair)
        except NotConverged as error:
            # Large rewards: its error is larger than usual, and the promise counts it in.
            partial: Any = error.partial
            d = dataclasses.replace(partial, mdp=pair)
    elif hasattr(d, "distance"):
        d = d.distance()
    if not isinstance(d, Distance):
        table = validate_distance_matrix("uses.transfer", d)
        if len(table) != pair.num_states:
            raise InputError(
                f"uses.transfer: the table is of {len(table)} states and must be of the "
                f"{pair.num_states} of uses.paired(source, target)."
            )
        return _UnionDistance(table, math.inf, everything, None)
    found = describe_mismatch(pair, d.mdp)
    if found is not None:
        raise InputError(
            f"uses.transfer: d is of another MDP: {found}; give a distance of "
            "uses.paired(source, target)."
        )
    if d.kind not in ("lax", "bisimulation"):
        raise InputError(
            f"uses.transfer: the distance is {d.kind!r}, which says nothing of best policies; use "
            "exact.lax or exact.bisimulation."
        )
    if d.kind == "bisimulation" and not shared.identical:
        raise InputError(
            "uses.transfer: a bisimulation distance compares equal actions, and source and target "
            f"have different ones ({_format_actions(source)}; {_format_actions(target)}); use exact.lax."
        )
    # Where states lack actions, d~ may be the largest distance, which no equal action attains.
    equal = d.kind == "bisimulation" and pair.available is None
    compared = shared.source[:, None] == shared.target if equal else everything
    return _UnionDistance(d.values, certified_error(d), compared, d)


def _format_actions(mdp: MDP) -> str:
    names = [mdp.action_name(a) for a in range(min(mdp.num_actions, MAX_SHOWN_ACTIONS))]
    return ", ".join(names) + (", ..." if mdp.num_actions > MAX_SHOWN_ACTIONS else "")

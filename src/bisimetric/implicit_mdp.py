"""Successors: an MDP given by a function, for queries that never enumerate its states."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from fractions import Fraction
from typing import Any

from bisimetric.errors import InputError
from bisimetric.mdp import PROBABILITY_TOL, validate_discount

StepFunction = Callable[[Any, Any], tuple[Any, Any]]
PolicyFunction = Callable[[Any], Any]
Number = float | Fraction


@dataclasses.dataclass(frozen=True, eq=False)
class ImplicitMDP:
    """An MDP given by its steps; its states, perhaps infinitely many, are met when they matter.

    A state is anything hashable. What `step` gives must depend on nothing else than the state
    and the action; it is asked once for each.

    Attributes:
        step: step(state, action) gives (reward, successor), (reward, {successor: probability})
            or (reward, [(probability, successor), ...]). Probabilities that sum to 1 only nearly
            are divided by their sum. A `fractions.Fraction` is not rounded.
        actions: the actions of every state, or a function from a state to those that it has.
        discount: in [0, 1).
        reward_range: (low, high) of all rewards, or None where nobody knows. With it no distance
            exceeds (high - low) / (1 - discount), so that a query may end by the discount alone.

    >>> walk = Successors(lambda x, a: (x % 3 == 0, x + a), actions=(1, 2), discount=0.5)
    >>> walk
    Successors(2 actions, discount 0.5)
    >>> walk.outcome(5, 2)
    (0.0, {7: 1.0})
    >>> Successors(lambda x, a: (0, {x: 0.9}), actions=["stay"], discount=0.5).outcome(1, "stay")
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: Successors: the probabilities of step(1, 'stay') sum to 0.9 and
    must sum to 1.
    """

    step: StepFunction
    _: dataclasses.KW_ONLY
    actions: Sequence[Hashable] | Callable[[Any], Sequence[Hashable]]
    discount: float
    reward_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        if not callable(self.step):
            raise InputError(
                f"Successors: step is {self.step!r} and must be a function (state, action)."
            )
        put(self, "discount", validate_discount(self.discount))
        if not callable(self.actions):
            put(self, "actions", _validate_actions("actions are", self.actions))
        if self.reward_range is not None:
            put(self, "reward_range", _validate_reward_range(self.reward_range))

    def available_actions(self, state: Hashable) -> tuple[Hashable, ...]:
        """The actions that a state has."""
        if callable(self.actions):
            return _validate_actions(f"actions({state!r}) gave", self.actions(state))
        return tuple(self.actions)

    def outcome(self, state: Hashable, action: Hashable) -> tuple[float, dict[Hashable, float]]:
        """The reward of a step and the probability, above 0, of each successor; checked."""
        reward, successors = self.exact_outcome(state, action)
        rounded = {successor: float(p) for successor, p in successors.items()}
        return float(reward), {successor: p for successor, p in rounded.items() if p > 0}

    def exact_outcome(
        self, state: Hashable, action: Hashable
    ) -> tuple[Number, dict[Hashable, Number]]:
        """`outcome` without rounding: a number is a float, or a fraction such as a mean."""
        what = f"step({state!r}, {action!r})"
        given: Any = self.step(state, action)
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise InputError(
                f"Successors: {what} gave {given!r} and must give (reward, successor) or "
                "(reward, {successor: probability})."
            )
        return self._validate_reward(what, given[0]), _parse_successors(what, given[1])

    def apply_policy(self, policy: PolicyFunction) -> ImplicitMDP:
        """The Markov chain of a policy, which gives a state's action or {action: probability}.

        R^pi(s) = sum_a pi(a|s) R(s, a) and P^pi(s) = sum_a pi(a|s) P(s, a), where pi(s) and each
        P(s, a) are divided by their sums, as in `MDP.under`. The sums are exact: `exact_outcome`
        gives them as fractions, and `outcome` rounds each number once.

        >>> coin = Successors(lambda x, a: (a, x + a), actions=(0, 1), discount=0.9)
        >>> coin.under(lambda x: {0: 0.5, 1: 0.5}).outcome(3, "policy")
        (0.5, {3: 0.5, 4: 0.5})
        """
        if not callable(policy):
            raise InputError(
                f"Successors: the policy is {policy!r} and must be a function from a state to an "
                "action or to {action: probability}."
            )

        def step_chain(state: Hashable, _: Hashable) -> tuple[Number, dict[Hashable, Number]]:
            chosen = self._action_probabilities(policy, state)
            reward, mixed = Fraction(0), dict[Hashable, Number]()
            for action, weight in zip(chosen, normalise(chosen.values()), strict=True):
                here, successors = self.exact_outcome(state, action)
                shares = normalise(successors.values())
                if len(chosen) == 1:
                    return here, dict(zip(successors, shares, strict=True))
                reward += weight * Fraction(here)
                for successor, share in zip(successors, shares, strict=True):
                    mixed[successor] = mixed.get(successor, Fraction(0)) + weight * share
            return reward, mixed

        return dataclasses.replace(self, step=step_chain, actions=("policy",))

    def _action_probabilities(
        self, policy: PolicyFunction, state: Hashable
    ) -> dict[Hashable, Number]:
        """The actions that a policy takes in a state, with their probabilities as given."""
        chosen = policy(state)
        what = f"policy({state!r})"
        if isinstance(chosen, dict):
            weights = _parse_distribution(what, ((p, action) for action, p in chosen.items()))
        else:
            weights = {_require_hashable(f"{what} gave the action", chosen): 1.0}
        has = self.available_actions(state)
        for action in weights:
            if action not in has:
                raise InputError(
                    f"Successors: {what} takes {action!r}, which the state lacks; it has "
                    f"{_format_actions(has)}."
                )
        return weights

    def _validate_reward(self, name: str, value: Any) -> Number:
        reward = _parse_number(value)
        if not math.isfinite(reward):
            raise InputError(f"Successors: the reward of {name} is {value!r} and must be finite.")
        if self.reward_range is not None:
            low, high = self.reward_range
            if not low <= reward <= high:
                raise InputError(
                    f"Successors: the reward of {name} is {float(reward):g} and lies outside "
                    f"reward_range=({low:g}, {high:g})."
                )
        return reward

    def __repr__(self) -> str:
        count = "actions by state"
        if not callable(self.actions):
            count = "1 action" if len(self.actions) == 1 else f"{len(self.actions)} actions"
        rewards = ""
        if self.reward_range is not None:
            rewards = ", rewards from {:g} to {:g}".format(*self.reward_range)
        return f"Successors({count}, discount {self.discount}{rewards})"


def normalise(values: Iterable[Number]) -> list[Fraction]:
    """Positive numbers divided by their exact sum.

    >>> normalised([0.5, 0.25])
    [Fraction(2, 3), Fraction(1, 3)]
    """
    weights = to_integer_weights(values)
    total = sum(weights)
    return [Fraction(weight, total) for weight in weights]


def to_integer_weights(values: Iterable[Number]) -> list[int]:
    """Integers in exactly the proportion of the given numbers."""
    ratios = [mass.as_integer_ratio() for mass in values]
    common = math.lcm(*(denominator for _, denominator in ratios))
    return [numerator * (common // denominator) for numerator, denominator in ratios]


def _parse_successors(name: str, value: Any) -> dict[Hashable, Number]:
    """{successor: probability}, from any of the forms that a step may give."""
    if isinstance(value, dict):
        return _parse_distribution(name, ((p, successor) for successor, p in value.items()))
    if isinstance(value, list):
        for entry in value:
            if not isinstance(entry, tuple | list) or len(entry) != 2:
                raise InputError(
                    f"Successors: {name} lists {entry!r} and must list (probability, successor)."
                )
        return _parse_distribution(name, value)
    return {_require_hashable(f"{name} gave the successor", value): 1.0}


def _parse_distribution(name: str, entries: Iterable[Sequence[Any]]) -> dict[Hashable, Number]:
    found: dict[Hashable, Number] = {}
    for given, outcome in entries:
        probability = _parse_number(given)
        if not (math.isfinite(probability) and probability >= 0):
            raise InputError(
                f"Successors: {name} gives {outcome!r} the probability {given!r}; probabilities "
                "must be finite and at least 0."
            )
        if probability > 0:
            key = _require_hashable(f"{name} gave", outcome)
            found[key] = (
                Fraction(found[key]) + Fraction(probability) if key in found else probability
            )
    total = math.fsum(found.values())
    if abs(total - 1) > PROBABILITY_TOL:
        raise InputError(
            f"Successors: the probabilities of {name} sum to {total:.12g} and must sum to 1."
        )
    # As in an MDP: the only successor is certain.
    return dict.fromkeys(found, 1.0) if len(found) == 1 else found


def _validate_actions(name: str, value: Any) -> tuple[Hashable, ...]:
    try:
        actions = tuple(value)
        distinct = len(set(actions)) == len(actions)
    except TypeError:
        actions, distinct = (), False
    if not actions or not distinct:
        raise InputError(
            f"Successors: {name} {value!r} and must be one or more distinct, hashable actions."
        )
    return actions


def _validate_reward_range(reward_range: Any) -> tuple[float, float]:
    try:
        low, high = map(float, reward_range)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise InputError(
            f"Successors: reward_range is {reward_range!r} and must be two finite numbers, the lower "
            "first."
        )
    return low, high


def _require_hashable(name: str, value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        raise InputError(f"Successors: {name} {value!r}, which must be hashable.") from None
    return value  # type: ignore[no-any-return]


def _parse_number(value: Any) -> Number:
    try:
        rounded = float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return value if isinstance(value, Fraction) else rounded


def _format_actions(actions: Sequence[Hashable]) -> str:
    shown = ", ".join(map(repr, actions[:8]))
    return shown + (", ..." if len(actions) > 8 else "")

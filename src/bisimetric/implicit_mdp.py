"""Implicit MDPs: a step function in place of matrices, for queries on the fly."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from fractions import Fraction
from typing import Any

from bisimetric._text import pluralise
from bisimetric.errors import InputError
from bisimetric.mdp import PROBABILITY_TOL, validate_discount

__all__ = ["ImplicitMDP"]

StepFunction = Callable[[Any, Any], tuple[Any, Any]]
PolicyFunction = Callable[[Any], Any]
Number = float | Fraction


@dataclasses.dataclass(frozen=True, eq=False)
class ImplicitMDP:
    """An MDP given by a step function, whose states are never enumerated.

    States are hashable and may be infinitely many. `step` must depend on the state and the action
    only; `exact.query` calls it once per state and action.

    Args:
        step: step(state, action) returns (reward, successor), (reward, {successor: probability})
            or (reward, [(probability, successor), ...]). Probabilities that sum to 1 within 1e-8
            are divided by their sum. A `fractions.Fraction` is not rounded.
        actions: the actions of every state, or a function from a state to its actions.
        discount: in [0, 1).
        reward_range: (low, high) of all rewards, or None if unknown. It bounds every distance by
            (high - low) / (1 - discount), so that discounting alone can end a query.

    Raises:
        InputError: `step` is no function, or another argument is invalid.

    >>> walk = ImplicitMDP(lambda x, a: (x % 3 == 0, x + a), actions=(1, 2), discount=0.5)
    >>> walk
    ImplicitMDP(2 actions, discount 0.5)
    >>> walk.outcome(5, 2)
    (0.0, {7: 1.0})
    >>> ImplicitMDP(lambda x, a: (0, {x: 0.9}), actions=["stay"], discount=0.5).outcome(1, "stay")
    Traceback (most recent call last):
    ...
    bisimetric.errors.InputError: ImplicitMDP: the probabilities of step(1, 'stay') sum to 0.9 and
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
                f"ImplicitMDP: step is {self.step!r} and must be a function (state, action)."
            )
        put(self, "discount", validate_discount(self.discount))
        if not callable(self.actions):
            put(self, "actions", _validate_actions("actions are", self.actions))
        if self.reward_range is not None:
            put(self, "reward_range", validate_reward_range(self.reward_range))

    def available_actions(self, state: Hashable) -> tuple[Hashable, ...]:
        """Return the actions of a state.

        Args:
            state: any state.

        Returns:
            One or more distinct actions.

        Raises:
            InputError: the actions are empty, repeated or not hashable.
        """
        if callable(self.actions):
            return _validate_actions(f"actions({state!r}) returned", self.actions(state))
        return tuple(self.actions)

    def outcome(self, state: Hashable, action: Hashable) -> tuple[float, dict[Hashable, float]]:
        """Return the reward of a step and its successors with positive probability.

        Args:
            state: any state.
            action: one of its actions.

        Returns:
            The reward and {successor: probability}, rounded to floats.

        Raises:
            InputError: `step` returned something that is no reward and distribution.
        """
        reward, successors = self.exact_outcome(state, action)
        rounded = {successor: float(p) for successor, p in successors.items()}
        return float(reward), {successor: p for successor, p in rounded.items() if p > 0}

    def exact_outcome(
        self, state: Hashable, action: Hashable
    ) -> tuple[Number, dict[Hashable, Number]]:
        """Return the reward of a step and its successors without rounding.

        Args:
            state: any state.
            action: one of its actions.

        Returns:
            The reward and {successor: probability}, as floats or fractions.

        Raises:
            InputError: `step` returned something that is no reward and distribution.
        """
        name = f"step({state!r}, {action!r})"
        result: Any = self.step(state, action)
        if not isinstance(result, tuple | list) or len(result) != 2:
            raise InputError(
                f"ImplicitMDP: {name} returned {result!r} and must return (reward, successor) or "
                "(reward, {successor: probability})."
            )
        return self._validate_reward(name, result[0]), _parse_successors(name, result[1])

    def apply_policy(self, policy: PolicyFunction) -> ImplicitMDP:
        """Return the Markov chain that a policy induces, with one action.

        R^pi(s) = sum_a pi(a|s) R(s, a) and P^pi(s) = sum_a pi(a|s) P(s, a), where pi(s) and each
        P(s, a) are divided by their sums, as in `MDP.apply_policy`. The sums are exact:
        `exact_outcome` returns fractions, and `outcome` rounds each number once.

        Args:
            policy: a function from a state to an action or to {action: probability}.

        Returns:
            The chain; the only action of every state is "policy".

        Raises:
            InputError: the policy is no function; when stepped, it takes a missing action.

        >>> coin = ImplicitMDP(lambda x, a: (a, x + a), actions=(0, 1), discount=0.9)
        >>> coin.apply_policy(lambda x: {0: 0.5, 1: 0.5}).outcome(3, "policy")
        (0.5, {3: 0.5, 4: 0.5})
        """
        if not callable(policy):
            raise InputError(
                f"ImplicitMDP: the policy is {policy!r} and must be a function from a state to an "
                "action or to {action: probability}."
            )

        def step_chain(state: Hashable, _: Hashable) -> tuple[Number, dict[Hashable, Number]]:
            actions = self._action_probabilities(policy, state)
            reward, mixed = Fraction(0), dict[Hashable, Number]()
            for action, weight in zip(actions, normalise(actions.values()), strict=True):
                own_reward, successors = self.exact_outcome(state, action)
                probabilities = normalise(successors.values())
                if len(actions) == 1:
                    return own_reward, dict(zip(successors, probabilities, strict=True))
                reward += weight * Fraction(own_reward)
                for successor, probability in zip(successors, probabilities, strict=True):
                    mixed[successor] = mixed.get(successor, Fraction(0)) + weight * probability
            return reward, mixed

        return dataclasses.replace(self, step=step_chain, actions=("policy",))

    def _action_probabilities(
        self, policy: PolicyFunction, state: Hashable
    ) -> dict[Hashable, Number]:
        """Return the actions that a policy takes in a state, with their probabilities."""
        chosen = policy(state)
        name = f"policy({state!r})"
        if isinstance(chosen, dict):
            weights = _parse_distribution(name, ((p, action) for action, p in chosen.items()))
        else:
            weights = {_require_hashable(f"{name} returned the action", chosen): 1.0}
        available = self.available_actions(state)
        for action in weights:
            if action not in available:
                raise InputError(
                    f"ImplicitMDP: {name} takes {action!r}, which the state lacks; it has "
                    f"{_format_actions(available)}."
                )
        return weights

    def _validate_reward(self, name: str, value: Any) -> Number:
        """Return a finite reward within the reward range."""
        reward = _parse_number(value)
        if not math.isfinite(reward):
            raise InputError(f"ImplicitMDP: the reward of {name} is {value!r} and must be finite.")
        if self.reward_range is not None:
            low, high = self.reward_range
            if not low <= reward <= high:
                raise InputError(
                    f"ImplicitMDP: the reward of {name} is {float(reward):g} and lies outside "
                    f"reward_range=({low:g}, {high:g})."
                )
        return reward

    def __repr__(self) -> str:
        actions = "actions per state"
        if not callable(self.actions):
            actions = pluralise(len(self.actions), "action")
        rewards = ""
        if self.reward_range is not None:
            rewards = ", rewards from {:g} to {:g}".format(*self.reward_range)
        return f"ImplicitMDP({actions}, discount {self.discount}{rewards})"


def normalise(values: Iterable[Number]) -> list[Fraction]:
    """Divide positive numbers by their exact sum.

    Args:
        values: floats or fractions.

    >>> normalise([0.5, 0.25])
    [Fraction(2, 3), Fraction(1, 3)]
    """
    weights = to_integer_weights(values)
    total = sum(weights)
    return [Fraction(weight, total) for weight in weights]


def to_integer_weights(values: Iterable[Number]) -> list[int]:
    """Return integers in exactly the proportion of the numbers.

    Args:
        values: floats or fractions.
    """
    ratios = [mass.as_integer_ratio() for mass in values]
    common = math.lcm(*(denominator for _, denominator in ratios))
    return [numerator * (common // denominator) for numerator, denominator in ratios]


def _parse_successors(name: str, value: Any) -> dict[Hashable, Number]:
    """Return {successor: probability} from any form that `step` may return."""
    if isinstance(value, dict):
        return _parse_distribution(name, ((p, successor) for successor, p in value.items()))
    if isinstance(value, list):
        for entry in value:
            if not isinstance(entry, tuple | list) or len(entry) != 2:
                raise InputError(
                    f"ImplicitMDP: {name} lists {entry!r} and must list (probability, successor)."
                )
        return _parse_distribution(name, value)
    return {_require_hashable(f"{name} returned the successor", value): 1.0}


def _parse_distribution(name: str, entries: Iterable[Sequence[Any]]) -> dict[Hashable, Number]:
    """Return {outcome: probability} without zeros; the probabilities must sum to 1."""
    distribution: dict[Hashable, Number] = {}
    for raw, outcome in entries:
        probability = _parse_number(raw)
        if not (math.isfinite(probability) and probability >= 0):
            raise InputError(
                f"ImplicitMDP: {name} gives {outcome!r} the probability {raw!r}; probabilities "
                "must be finite and at least 0."
            )
        if probability > 0:
            successor = _require_hashable(f"{name} returned", outcome)
            distribution[successor] = (
                Fraction(distribution[successor]) + Fraction(probability)
                if successor in distribution
                else probability
            )
    total = math.fsum(distribution.values())
    if abs(total - 1) > PROBABILITY_TOL:
        raise InputError(
            f"ImplicitMDP: the probabilities of {name} sum to {total:.12g} and must sum to 1."
        )
    # As in `MDP`, a single successor available probability 1.
    return dict.fromkeys(distribution, 1.0) if len(distribution) == 1 else distribution


def _validate_actions(name: str, value: Any) -> tuple[Hashable, ...]:
    """Return one or more distinct, hashable actions."""
    try:
        actions = tuple(value)
        distinct = len(set(actions)) == len(actions)
    except TypeError:
        actions, distinct = (), False
    if not actions or not distinct:
        raise InputError(
            f"ImplicitMDP: {name} {value!r} and must be one or more distinct, hashable actions."
        )
    return actions


def validate_reward_range(reward_range: Any, caller: str = "ImplicitMDP") -> tuple[float, float]:
    """Return two finite numbers in order."""
    try:
        low, high = map(float, reward_range)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise InputError(
            f"is {reward_range!r} and must be two finite numbers, the lower first",
            caller=caller,
            argument="reward_range",
        )
    return low, high


def _require_hashable(name: str, value: Any) -> Hashable:
    """Return a value, which must be hashable."""
    try:
        hash(value)
    except TypeError:
        raise InputError(f"ImplicitMDP: {name} {value!r}, which must be hashable.") from None
    return value  # type: ignore[no-any-return]


def _parse_number(value: Any) -> Number:
    """Return a float or fraction, or not a number."""
    try:
        rounded = float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return value if isinstance(value, Fraction) else rounded


def _format_actions(actions: Sequence[Hashable]) -> str:
    """List at most eight actions."""
    text = ", ".join(map(repr, actions[:8]))
    return text + (", ..." if len(actions) > 8 else "")

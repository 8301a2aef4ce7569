"""A policy that was carried from one MDP to another: what was promised of it, and what it lost."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bisimetric.distance import Distance
from bisimetric.mdp import MDP
from bisimetric.planning import ValueFunction
from bisimetric.uses.proofs import diameter_bound, difference_error
from bisimetric.uses.transfer.rules import TransferRule


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

"""Aggregated states: what is left of an MDP, what was promised of it, and what is lost."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bisimetric.mdp import MDP
from bisimetric.planning import ValueFunction
from bisimetric.uses.aggregation.groups import ClusteringRule


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

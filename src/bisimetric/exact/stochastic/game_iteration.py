"""Policy iteration for the game of actions and couplings, with safeguards; on any device.

Pollatschek & Avi-Itzhak (1969), Algorithms for stochastic games with geometrical interpretation;
Hoffman & Karp (1966), On nonterminating stochastic games.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

from bisimetric._progress import convergence_fraction
from bisimetric._rounding import UNIT
from bisimetric.exact._request import SweepLimit
from bisimetric.exact.stochastic.coupling_kernels import KernelMDP
from bisimetric.exact.stochastic.policy_evaluation import EVALUATION_TOLERANCE

PATIENCE = 8
"""Rounds that may pass without a smaller residual."""
MAX_RESPONSES = 50
"""Rounds in which only couplings (and responses) change, before actions do again."""
MIN_FALLBACK_SWEEPS = 16
"""Sweeps of value iteration when policy iteration diverges for the first time."""


class PairIteration(Protocol):
    """The distances d of pairs, with their actions and couplings.

    Attributes:
        model: the MDP.
        solved_largest: the largest F(d) of pairs that are solved.
    """

    model: KernelMDP
    solved_largest: float

    @property
    def count(self) -> int:
        """The number of pairs."""

    def sweep(self, *, hold_actions: bool = False) -> tuple[float, float]:
        """Compute F(d) - d; return its largest magnitude, and the largest F(d)."""

    def evaluate(self, residual: float, tolerance: float) -> None:
        """Set d to the infinite-horizon value of the actions and couplings of the last sweep."""

    def apply_backup(self) -> None:
        """Set d to F(d): a sweep of value iteration."""


class IterationResult(NamedTuple):
    """The largest |F(d) - d| and F(d), the rounds, and whether the tolerance is out of reach."""

    residual: float
    largest: float
    rounds: int
    is_hopeless: bool


def iterate_pairs(
    iteration: PairIteration,
    residual_tolerance: float,
    report: Callable[[float, str], None],
    *,
    is_hopeless: bool = False,
) -> IterationResult:
    """Iterate on the current pairs to the residual tolerance.

    In each round a sweep finds the best actions and couplings of every pair; their infinite-horizon
    value solves a sparse linear system. For chains this is Howard's policy iteration. With actions
    it is Newton's method for a game (Pollatschek & Avi-Itzhak), fast but able to diverge: after
    `PATIENCE` rounds without gain, actions are held until the couplings have converged (Hoffman &
    Karp); if rounding spoils even that, sweeps of value iteration follow, twice as many each time,
    so that it terminates; at a discount next to 1, `SweepLimit` stops it.

    The result is that of the last sweep; with `is_hopeless` the first is the last. `report`
    receives the progress.
    """
    best, without_gain, rounds = math.inf, 0, 0
    hold_actions, fallback_sweeps, remaining_sweeps = False, MIN_FALLBACK_SWEEPS, 0
    limit = SweepLimit(math.isqrt(2 * iteration.count))
    residual, largest = iteration.sweep()
    while True:
        # The precision floor of F, whose sums have one rounding per term.
        tolerance = max(
            residual_tolerance,
            (8 * iteration.model.max_support + 128) * UNIT * max(largest, iteration.solved_largest),
        )
        is_hopeless = is_hopeless or limit.is_exceeded(rounds, residual, tolerance)
        if residual <= tolerance or is_hopeless:
            return IterationResult(residual, largest, rounds, is_hopeless)
        rounds += 1
        without_gain = 0 if residual < best else without_gain + 1
        best = min(best, residual)
        if without_gain > PATIENCE:
            if hold_actions:
                remaining_sweeps, fallback_sweeps = fallback_sweeps, 2 * fallback_sweeps
            hold_actions, without_gain = True, 0
        if remaining_sweeps > 0:
            remaining_sweeps -= 1
            iteration.apply_backup()
        else:
            iteration.evaluate(residual, tolerance)
            for _ in range(MAX_RESPONSES if hold_actions else 0):
                response_residual, _ = iteration.sweep(hold_actions=True)
                if response_residual <= max(tolerance, EVALUATION_TOLERANCE * residual):
                    break
                iteration.evaluate(response_residual, tolerance)
        residual, largest = iteration.sweep()
        report(convergence_fraction(residual, tolerance, largest), f"round {rounds}")

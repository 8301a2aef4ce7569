"""Interval iteration: bounds on all distances that hold whichever pairs are updated, and when."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bisimetric._rounding import TINY, UNIT
from bisimetric._transport import Costs
from bisimetric.errors import InputError
from bisimetric.exact._threads import map_chunks
from bisimetric.exact.stochastic import interval_kernels
from bisimetric.exact.stochastic.interval_kernels import Slack
from bisimetric.exact.stochastic.policy_iteration import build_kernel_mdp
from bisimetric.mdp import MDP, InducedChain

MIN_PARALLEL_PAIRS = 256
"""Pairs of an update that are worth several threads."""


def zero_slack(mdp: MDP) -> Slack:
    """Return the slack of rows that are known exactly."""
    zeros = np.zeros(mdp.R.shape)
    return Slack(zeros, zeros, zeros, zeros)


class IntervalIteration:
    """A lower and an upper bound on every distance, tightened pair by pair.

    The operator F of the distance d is monotone, and d = F(d). If L <= d <= U, then
    F(L) - slack <= d <= F(U) + slack, at any pair. So L may be increased and U decreased to these
    at any set of pairs, in any order, at any time. Both bounds start at the trivial ones, 0 and the
    diameter bound.

    Attributes:
        lower: (S, S).
        upper: (S, S).
        first: the larger state of each pair of different states.
        second: the smaller one.
    """

    def __init__(
        self,
        mdp: MDP,
        *,
        lax: bool = False,
        diameter_bound: float | None = None,
        slack: Slack | None = None,
        chain: InducedChain | None = None,
        pair_error: float = 0.0,
    ) -> None:
        """Start from the trivial bounds.

        Args:
            mdp: the MDP, or the chain of a policy.
            lax: whether to bound d_lax.
            diameter_bound: an upper bound on all distances; default: that of the MDP.
            slack: how far one update may be off; default: not at all.
            chain: the chain that `mdp` is, if it is that of a policy, for its rounding.
            pair_error: a bound on other errors of an update, such as the rounding of estimates.
        """
        states = mdp.num_states
        diameter = mdp.diameter_bound if diameter_bound is None else diameter_bound
        # The rewards of a chain are rounded, and so is the diameter bound: three times.
        reward_error = 0.0 if chain is None else chain.reward_error
        shift = 2 * reward_error / (1 - mdp.discount) * (1 + 8 * UNIT)
        # Equal rewards count as a range of 1 where labels differ, and rounding hides whether a
        # range is 0.
        is_unclear = mdp.has_labels and reward_error > 0 and np.ptp(mdp.R) <= 2 * reward_error
        largest = max(diameter, 1 / (1 - mdp.discount)) if is_unclear else diameter
        self.diameter = (largest + shift) * (1 + 8 * UNIT) + TINY
        if not self.diameter < np.finfo(np.float64).max / 4:
            raise InputError(
                f"exact: rewards from {mdp.R.min():g} to {mdp.R.max():g} make distances that "
                "float64 cannot hold; scale the rewards down."
            )
        least = 0.0 if is_unclear else max((diameter - shift) * (1 - 8 * UNIT) - TINY, 0.0)
        self._apart = (least, self.diameter)
        self.model = build_kernel_mdp(mdp, np.arange(states), lax, diameter)
        self.slack = zero_slack(mdp) if slack is None else slack
        self.lower = np.zeros((states, states))
        self.upper = np.full((states, states), self.diameter)
        np.fill_diagonal(self.upper, 0.0)
        self.first, self.second = np.tril_indices(states, -1)
        chain_error = 0.0 if chain is None else chain.pair_error(self.diameter)
        self._pair_error = (pair_error + chain_error) * (1 + 4 * UNIT)

    @property
    def num_pairs(self) -> int:
        """The number of pairs of different states."""
        return len(self.first)

    def width(self) -> NDArray[np.float64]:
        """Return the width of the bounds of each pair, in the order of `first` and `second`."""
        return np.asarray((self.upper - self.lower)[self.first, self.second])

    def update(self, pairs: NDArray[np.int64] | None = None) -> float:
        """Update the bounds of some pairs from the current bounds; return the largest change.

        Args:
            pairs: indices of pairs; default: all pairs.

        Returns:
            The largest amount by which a bound was tightened.
        """
        first = self.first if pairs is None else self.first[pairs]
        second = self.second if pairs is None else self.second[pairs]
        lower, upper = np.empty(len(first)), np.empty(len(first))
        none = np.empty(0, np.int64)
        costs = (Costs(self.lower, none, len(self.lower)), Costs(self.upper, none, len(self.upper)))
        map_chunks(
            lambda start, stop: interval_kernels.update_bounds(
                self.model, *costs, self.slack, self._bound_rounding(), self._apart, first, second,
                lower, upper, start, stop,
            ),
            len(first),
            MIN_PARALLEL_PAIRS,
        )  # fmt: skip
        old_lower, old_upper = self.lower[first, second], self.upper[first, second]
        # Both bounds hold, so that rounding cannot make the lower one exceed the upper one.
        np.maximum(lower, old_lower, out=lower)
        np.minimum(upper, old_upper, out=upper)
        for matrix, values in ((self.lower, lower), (self.upper, upper)):
            matrix[first, second] = values
            matrix[second, first] = values
        return float(max((lower - old_lower).max(initial=0), (old_upper - upper).max(initial=0)))

    def _bound_rounding(self) -> float:
        """Bound the rounding of an update, W1 excepted, as the last sweep of the solvers does.

        Sums over a row, and dividing it by its sum, take one rounding per term; four more are for
        the update itself. No distance exceeds the diameter bound.
        """
        terms = 4 * self.model.max_support + 8
        rounding = self.model.discount * terms * (UNIT * self.diameter + TINY) + 2 * TINY
        rounding += 4 * (UNIT * self.diameter + TINY) + self._pair_error
        return rounding * (1 + 8 * UNIT)

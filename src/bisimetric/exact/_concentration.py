"""Concentration inequalities for the rows of an empirical MDP.

Weissman, Ordentlich, Seroussi, Verdu & Weinberger (2003), Inequalities for the L1 deviation of
the empirical distribution;
Maurer & Pontil (2009), Empirical Bernstein bounds and sample variance penalization, COLT.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from bisimetric.errors import InputError
from bisimetric.exact.stochastic import confidence_kernels
from bisimetric.exact.stochastic.interval_kernels import Slack
from bisimetric.transitions.empirical_mdp import mean_rewards

OUTWARD = 1 + 1e-9
"""Bounds are increased by more than the rounding of logarithms, square roots and sums."""


def validate_confidence(caller: str, confidence: float) -> float:
    """Return a probability above 0 and below 1."""
    if not 0 < confidence < 1:
        raise InputError(
            f"is {confidence} and must be above 0 and below 1", caller=caller, argument="confidence"
        )
    return float(confidence)


def log_subsets(support: ArrayLike) -> NDArray[np.float64]:
    """Return log(2^n - 2), the number of subsets that are neither empty nor all of n successors.

    It is minus infinity for n = 1: such a distribution is known.

    >>> log_subsets([1, 2, 3]).round(4)
    array([  -inf, 0.6931, 1.7918])
    """
    n = np.asarray(support, np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(n * np.log(2.0) + np.log1p(-np.exp2(1.0 - n)))


def penalise_random_sizes(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log(2 K (1 + log K)^2), which a bound for all numbers K of samples at once costs.

    The probability of failure at K is divided by 2 K (1 + log K)^2. The sum of the reciprocals is
    at most (1 + 0.18 + 1 / (1 + log 2)) / 2 < 1: the terms for K = 1 and 2, and an integral from 2.

    >>> penalise_random_sizes(np.array([1.0, 100.0])).round(2)
    array([0.69, 8.75])
    """
    K = np.maximum(totals, 1.0)
    return np.asarray(np.log(2 * K) + 2 * np.log1p(np.log(K)))


@dataclasses.dataclass(frozen=True)
class RowSamples:
    """The outcomes that were observed in each row: a state and action, or a state of a policy.

    Attributes:
        shape: (S, A), the rows.
        starts: (rows + 1,) where the successors of each row start.
        successors: their states, in increasing order in each row.
        counts: how often each was observed.
        totals: (rows,) the number of samples.
        known: (rows,) whether the row needs no samples: that of the terminal state.
        mean: (rows,) the mean reward.
        deviation: (rows,) the sample standard deviation of the rewards; 0 for one sample.
        reward_range: (rows,) the width of the interval that contains the rewards.
        least_reward: its lower end.
        visited: (S,) which ids are states.
        adaptive: whether the numbers of samples are random.
        observed_only: whether only observed states may be successors.
    """

    shape: tuple[int, int]
    starts: NDArray[np.int64]
    successors: NDArray[np.int64]
    counts: NDArray[np.float64]
    totals: NDArray[np.int64]
    known: NDArray[np.bool_]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    reward_range: NDArray[np.float64]
    least_reward: float
    visited: NDArray[np.bool_]
    adaptive: bool
    observed_only: bool

    @classmethod
    def count(
        cls,
        row: NDArray[np.int64],
        successor: NDArray[np.int64],
        reward: NDArray[np.float64],
        *,
        shape: tuple[int, int],
        terminal: int | None,
        visited: NDArray[np.bool_],
        reward_range: tuple[float, float],
        adaptive: bool,
        observed_only: bool,
        deterministic_rewards: bool,
        caller: str,
    ) -> RowSamples:
        """Count the outcomes (n,): the row, the successor and the reward of each."""
        num_rows = shape[0] * shape[1]
        totals = np.bincount(row, minlength=num_rows)
        mean, differs = mean_rewards(row, reward, num_rows)
        if deterministic_rewards and differs.any():
            s, a = divmod(int(np.argmax(differs)), shape[1])
            raise InputError(
                f"{caller}: the rewards of state {s} and action {a} differ; leave out "
                "rewards='deterministic'."
            )
        known = np.zeros(num_rows, np.bool_)
        if terminal is not None:
            known[terminal * shape[1] : (terminal + 1) * shape[1]] = True
        # The mean minimises the sum of squares, so that a rounded one does not decrease it.
        squares = np.bincount(row, (reward - mean[row]) ** 2, minlength=num_rows)
        with np.errstate(divide="ignore", invalid="ignore"):
            deviation = np.sqrt(squares / (totals - 1)) * OUTWARD
        # Rows without a sample have a self-loop, which is never read.
        empty = np.flatnonzero(totals == 0)
        entries = (
            np.ones(len(row) + len(empty)),
            (np.concatenate([row, empty]), np.concatenate([successor, empty // shape[1]])),
        )
        matrix: Any = sparse.csr_array(entries, (num_rows, shape[0]))
        matrix.sum_duplicates()
        matrix.sort_indices()
        width = 0.0 if deterministic_rewards else reward_range[1] - reward_range[0]
        return cls(
            shape, matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data,
            totals, known, mean, np.where(totals > 1, deviation, 0.0),
            np.full(num_rows, width), reward_range[0], visited, adaptive, observed_only,
        )  # fmt: skip

    def estimate(self) -> tuple[sparse.csr_array, NDArray[np.float64]]:
        """Return the relative frequencies P (rows, S), and the mean rewards R (S, A)."""
        sums = np.repeat(np.maximum(self.totals, 1), np.diff(self.starts))
        P = sparse.csr_array(
            (self.counts / sums, self.successors, self.starts), (len(self.totals), self.shape[0])
        )
        return P, self.mean.reshape(self.shape)

    def describe(self) -> dict[str, Any]:
        """Return the numbers of samples per row."""
        needed = self.totals[~self.known & np.repeat(self.visited, self.shape[1])]
        return {
            "samples": [int(needed.min()), float(np.median(needed)), int(needed.max())],
            "without": int((needed == 0).sum()),
        }


class RowSlack:
    """How far one update of a pair may be off, from an upper bound on the distances.

    Four events fail with a probability of at most (1 - confidence) / 4 each: for all rows, the
    frequencies of all sets of successors (1) and the mean rewards (2) are near their expectations;
    for all compared pairs of rows, the mean of one function per pair is, by Hoeffding's inequality
    for both rows (3) and by the empirical Bernstein inequality for each (4). See the documentation
    (concepts, confidence bounds).
    """

    def __init__(
        self,
        samples: RowSamples,
        confidence: float,
        num_states: int,
        comparisons: float,
        discount: float,
        diameter_bound: float,
        weights: NDArray[np.float64] | None = None,
    ) -> None:
        """Prepare what does not depend on the distances.

        Args:
            samples: the outcomes of each row.
            confidence: the probability that all events hold.
            num_states: the number of states of the environment, visited or not.
            comparisons: the number of compared pairs of rows, or of states under a policy.
            discount: of the MDP.
            diameter_bound: an upper bound on all distances.
            weights: (S, A) probabilities of a policy, or None.
        """
        self._samples, self._discount, self._weights = samples, discount, weights
        self._diameter, self._num_states = diameter_bound * OUTWARD, num_states
        log_failure = math.log(4) - math.log1p(-confidence)
        totals = samples.totals.astype(np.float64)
        num_rows = num_states * samples.shape[1]
        self._penalty = np.zeros(len(totals))
        if samples.adaptive:
            self._penalty = penalise_random_sizes(totals)
        row_level = log_failure + math.log(num_rows) + self._penalty
        self._row_level = row_level * OUTWARD
        self._pair_level = (log_failure + math.log(comparisons)) * OUTWARD
        # Two rows of each comparison, or 2 A with a policy that mixes actions.
        rows_per_pair = 2 * (1 if weights is None else samples.shape[1])
        bernstein = log_failure + math.log(2 * rows_per_pair * comparisons) + self._penalty
        self._bernstein_level = bernstein * OUTWARD
        self._reward = self._bound_rewards(totals, row_level)

    def _bound_rewards(
        self, totals: NDArray[np.float64], row_level: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Bound |mean - expectation| of the rewards of each row: Chernoff, or Bernstein."""
        samples = self._samples
        width = samples.reward_range
        found = np.zeros(len(totals))
        rows = np.flatnonzero((totals > 0) & (width > 0))
        if len(rows) == 0:
            return found
        # Two inequalities, each on both sides.
        K, level = totals[rows], row_level[rows] + math.log(4)
        means = np.clip((samples.mean[rows] - samples.least_reward) / width[rows], 0.0, 1.0)
        below = means - confidence_kernels.bound_probabilities(means, level / K)
        above = 1 - means - confidence_kernels.bound_probabilities(1 - means, level / K)
        chernoff = np.maximum(below, above) * width[rows]
        bernstein = self._bound_by_bernstein(
            samples.deviation[rows], width[rows], level + math.log(2), K
        )
        found[rows] = np.minimum(chernoff, bernstein) * OUTWARD
        return found

    @staticmethod
    def _bound_by_bernstein(
        deviation: NDArray[np.float64],
        width: NDArray[np.float64],
        level: NDArray[np.float64],
        totals: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        """Return the empirical Bernstein bound, infinite for fewer than two samples."""
        K = np.maximum(totals, 2.0)
        bound = deviation * np.sqrt(2 * level / K) + 7 * width * level / (3 * (K - 1))
        return np.where(totals > 1, bound, np.inf)

    def compute(self, upper: NDArray[np.float64]) -> Slack:
        """Return the slack of each row, (rows,), or of each state under the policy, (S,)."""
        samples, discount = self._samples, self._discount
        num_rows = len(samples.totals)
        transport, span, spread = np.zeros(num_rows), np.zeros(num_rows), np.zeros(num_rows)
        # Successors are states; states that were not visited may be anywhere.
        largest = np.where(samples.visited, upper[:, samples.visited].max(axis=1), 0.0)
        if self._num_states > samples.visited.sum():
            largest[:] = self._diameter
        confidence_kernels.bound_rows(
            upper, samples.starts, samples.successors, samples.counts, samples.totals,
            self._row_level, self._num_states, largest, samples.observed_only, transport, span,
            spread,
        )  # fmt: skip
        totals = np.maximum(samples.totals, 1).astype(np.float64)
        width = (samples.reward_range + discount * span) * OUTWARD
        reward_deviation = np.where(samples.reward_range > 0, samples.deviation, 0.0)
        row = (self._reward + discount * transport) * OUTWARD
        linear = self._bound_by_bernstein(
            (reward_deviation + discount * spread) * OUTWARD, width, self._bernstein_level,
            samples.totals.astype(np.float64),
        )  # fmt: skip
        square = width**2 / (2 * totals) * OUTWARD
        level = np.full(num_rows, self._pair_level / 2) + self._penalty
        unknown = (samples.totals == 0) & ~samples.known
        for bound in (row, linear, square):
            bound[unknown] = np.inf
            bound[samples.known] = 0.0
        level[samples.known] = self._pair_level / 2
        slack = Slack(row, linear * OUTWARD, square, level)
        return slack if self._weights is None else self._mix(slack, self._weights)

    def _mix(self, slack: Slack, weights: NDArray[np.float64]) -> Slack:
        """Return the slack of each state under a policy that takes several actions."""
        taken = weights > 0
        table = [np.where(taken, field.reshape(taken.shape), 0.0) for field in slack]
        share = weights * OUTWARD
        row, linear = ((share * field).sum(axis=1) for field in table[:2])
        square = (share**2 * table[2]).sum(axis=1)
        penalty = np.where(taken, self._penalty.reshape(taken.shape), 0.0).sum(axis=1)
        return Slack(row, linear, square, penalty + self._pair_level / 2)

"""Bounds on the action values of a target from those of a source, and policies chosen by them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric._memory import require_memory
from bisimetric._progress import announce_compilation, show_progress
from bisimetric._rounding import TINY, UNIT
from bisimetric.exact._threads import map_chunks
from bisimetric.mdp import MDP
from bisimetric.uses.certificates import add_upward, round_upward
from bisimetric.uses.policy_transfer import transport_kernels
from bisimetric.uses.policy_transfer.transport_kernels import build_transition_rows

TransferRule = Literal["optimistic", "pessimistic", "nearest", "hopeful"]

BLOCK_ENTRIES = 2**22
"""Entries of the matrix of action distances that are computed together."""
TIE_TOLERANCE = 2.0**-40
"""The fraction of a distance by which a farther match must be better: the nearest wins ties."""
MIN_PARALLEL_ROWS = 2
"""Columns per block from which several threads pay off, where both MDPs are stochastic."""

MATCHES = ("lower_matches", "upper_matches")
"""The integer fields of `ActionBounds`."""


class ActionBounds(NamedTuple):
    """Bounds on the value of each action (t, b) of the target, (S2, A2).

    Attributes:
        lower: max_(s, a) Q1(s, a) - delta, minus infinity for an unavailable action.
        upper: min_(s, a) Q1(s, a) + delta, minus infinity likewise.
        lower_matches: the indices s * A1 + a that attain `lower`.
        upper_matches: the indices s * A1 + a that attain `upper`.
        lower_distances: the delta of `lower_matches`.
        upper_distances: the delta of `upper_matches`.
        response_distances: delta of (t, b) to the best action of the source state nearest to t;
            infinite where b is unavailable.
        error: of the bounds, beside those of the exact delta of the given matrix and Q.
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    lower_matches: NDArray[np.int64]
    upper_matches: NDArray[np.int64]
    lower_distances: NDArray[np.float64]
    upper_distances: NDArray[np.float64]
    response_distances: NDArray[np.float64]
    error: float


def bound_actions(
    source: MDP,
    target: MDP,
    d: NDArray[np.floating],
    Q: NDArray[np.float64],
    nearest_actions: NDArray[np.int64],
    comparable: NDArray[np.bool_],
) -> ActionBounds:
    """Bound action values by delta((s, a), (t, b)) = |R1(s, a) - R2(t, b)| + discount * W1(d).

    W1 is between the distributions P1(s, a) and P2(t, b). The deltas are computed and used block
    by block and not stored.

    Args:
        source: the MDP with known action values.
        target: the MDP to bound.
        d: (S1, S1 + S2), the rows of the source in the distance matrix of the union.
        Q: (S1, A1), the action values of the source.
        nearest_actions: (S2,), the index s * A1 + a of the action that the nearest rule matches.
        comparable: (A1, A2), the pairs of actions that are compared.
    """
    num_rows, num_columns = source.R.size, target.R.size
    distances = _ActionDistances(source, target, d)
    size = min(num_columns, max(1, BLOCK_ENTRIES // num_rows))
    require_memory(
        f"uses.transfer: {num_rows:,} actions need", 40.0 * num_rows * size, "take fewer states"
    )
    available = source.action_mask.ravel()
    incomparable = ~np.tile(comparable, (source.num_states, 1))
    values = np.where(available, Q.ravel(), 0.0)[:, None]
    bounds: dict[str, NDArray[Any]] = {
        name: np.empty(num_columns, np.int64 if name in MATCHES else np.float64)
        for name in ActionBounds._fields[:-1]
    }
    with show_progress(num_columns, "actions matched") as progress:
        for start in range(0, num_columns, size):
            columns = np.arange(start, min(num_columns, start + size))
            delta = distances.compute_block(columns)
            delta[incomparable[:, columns % target.num_actions] | ~available[:, None]] = np.inf
            positions = np.arange(len(columns))
            penalty = (1 + TIE_TOLERANCE) * delta
            lower_matches, upper_matches = (
                (values - penalty).argmax(axis=0),
                (values + penalty).argmin(axis=0),
            )
            lower_distances, upper_distances = (
                delta[lower_matches, positions],
                delta[upper_matches, positions],
            )
            bounds["lower_matches"][columns] = lower_matches
            bounds["lower_distances"][columns] = lower_distances
            bounds["upper_matches"][columns] = upper_matches
            bounds["upper_distances"][columns] = upper_distances
            bounds["lower"][columns] = values[lower_matches, 0] - lower_distances
            bounds["upper"][columns] = values[upper_matches, 0] + upper_distances
            requested = nearest_actions[columns // target.num_actions]
            bounds["response_distances"][columns] = delta[requested, positions]
            progress.set_position(columns[-1] + 1)
    matrices = {name: entries.reshape(target.R.shape) for name, entries in bounds.items()}
    for name, default in (("lower", -np.inf), ("upper", -np.inf), ("response_distances", np.inf)):
        matrices[name][~target.action_mask] = default
    return ActionBounds(**matrices, error=distances.error)


class _ActionDistances:
    """The deltas of two MDPs by blocks of columns, and a bound on their error."""

    def __init__(self, source: MDP, target: MDP, d: NDArray[np.floating]) -> None:
        self.source, self.target = source, target
        self.target_probabilities = target.normalised_probabilities
        self.single_coupling = source.is_deterministic or target.is_deterministic
        # The mass lost to rounding may have to move the largest distance.
        self.largest, self.transport_error = float(d[:, source.num_states :].max()), 0.0
        if self.single_coupling:
            # With one deterministic side there is one coupling, and its cost is a mean.
            self.expected_distances = source.normalised_probabilities @ d[
                :, source.num_states :
            ].astype(np.float64)
        else:
            self.distances = np.ascontiguousarray(d, np.float64)
            self.rows = build_transition_rows(
                source.normalised_probabilities, self.target_probabilities
            )

    def compute_block(self, columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return delta (S1 * A1, n) for the target actions with indices t * A2 + b."""
        if self.single_coupling:
            transport = np.asarray(
                (self.target_probabilities[columns] @ self.expected_distances.T).T
            )
        else:
            transport = np.empty((self.source.R.size, len(columns)))
            with announce_compilation("the kernels"):
                errors = map_chunks(
                    lambda low, high: transport_kernels.fill_transport_costs(
                        self.rows,
                        self.distances,
                        self.source.R.size,
                        transport,
                        int(columns[0]),
                        low,
                        high,
                    ),
                    len(columns),
                    MIN_PARALLEL_ROWS,
                )
            self.transport_error = max(self.transport_error, *errors)
        gaps = np.abs(self.source.R.reshape(-1, 1) - self.target.R.ravel()[columns])
        delta = gaps + self.target.discount * transport
        self.largest = max(self.largest, float(delta.max()))
        return np.asarray(delta)

    @property
    def error(self) -> float:
        """A bound on the error of the deltas so far, beside the exact ones of the matrix.

        With n the largest number of entries in a row: dividing two rows by their sums costs n + 1
        units each, the flows of a coupling miss their marginals by at most 8 n, and sums over them
        cost 2 n; a few more are for the gap, the discount, the sum, and that with an action value.
        A nearer match may be worse by `TIE_TOLERANCE`.
        """
        max_support = max(int(np.diff(mdp.P.indptr).max()) for mdp in (self.source, self.target))
        rounding = (12 * max_support + 32) * (UNIT * self.largest + TINY)
        return float(
            add_upward(
                self.target.discount * self.transport_error, rounding, TIE_TOLERANCE * self.largest
            )
        )


class MatchedPolicy(NamedTuple):
    """A policy of the target and the source actions that it is matched with.

    Attributes:
        policy: (S2,), actions of the target.
        matches: (S2,), indices s * A1 + a of source actions.
        distances: (S2,), from the actions of the policy to their matches.
        value_lower_bound: (S2,), a proven lower bound on the values of the policy.
    """

    policy: NDArray[np.int64]
    matches: NDArray[np.int64]
    distances: NDArray[np.float64]
    value_lower_bound: NDArray[np.float64]


def choose_by_bounds(
    rule: TransferRule,
    target: MDP,
    bounds: ActionBounds,
    nearest_actions: NDArray[np.int64],
    bound_error: float,
) -> MatchedPolicy:
    """Choose a policy by any rule but the optimistic one.

    `nearest_actions` (S2,) are the matches of the nearest rule. `bound_error` is the error of the
    bounds beside those of the exact distance and the exact values.
    """
    choices = {
        "nearest": (
            -bounds.response_distances,
            nearest_actions[:, None],
            bounds.response_distances,
        ),
        "pessimistic": (bounds.lower, bounds.lower_matches, bounds.lower_distances),
        "hopeful": (bounds.upper, bounds.upper_matches, bounds.upper_distances),
    }
    scores, matches, distances = choices[rule]
    states = np.arange(target.num_states)
    policy = scores.argmax(axis=1)
    lower_bound = bounds.lower.max(axis=1)
    shortfall = add_upward(lower_bound, -bounds.lower[states, policy])
    shortfall_mdp = target.replace(R=np.broadcast_to(shortfall[:, None], target.R.shape))
    accumulated = planning.policy_values(shortfall_mdp, policy, tol=math.inf)
    value_lower_bound = -add_upward(
        -lower_bound,
        accumulated.values,
        accumulated.error,
        accumulate_error(bound_error, target.discount),
    )
    matches = np.broadcast_to(matches, target.R.shape)
    return MatchedPolicy(
        policy, matches[states, policy], distances[states, policy], value_lower_bound
    )


def accumulate_error(backup_error: float, discount: float) -> float:
    """Return the effect of errors on a lower bound L of the values of a policy.

    Where L and lower(t, pi(t)) are within `backup_error` of their exact values, the policy's backup
    of L is at least L - (1 + discount) * backup_error, and its values are at least L minus that
    divided by 1 - discount.
    """
    if not math.isfinite(backup_error):
        return math.inf
    gamma = Fraction(discount)
    return round_upward((1 + gamma) / (1 - gamma) * Fraction(backup_error))

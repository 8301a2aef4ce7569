"""What the actions of a source tell of the actions of a target: bounds on what those are worth.

Which action each state of the target takes, and what the policy is then worth at least.
"""

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
from bisimetric.uses.certificates import add_upward, multiply_upward, round_upward
from bisimetric.uses.policy_transfer import transport_kernels
from bisimetric.uses.policy_transfer.imitation import solve_imitation
from bisimetric.uses.policy_transfer.transport_kernels import build_transition_rows

BLOCK_ENTRIES = 2**22
"""Entries of the table of two actions that are worked on in one go."""
TIE_TOLERANCE = 2.0**-40
"""The share of a distance by which a farther match must be better, so that of equals the nearest
is taken."""
MIN_PARALLEL_ROWS = 2
"""Rows of such a block that are worth many threads, where both sides branch."""


class ActionBounds(NamedTuple):
    """For each action (t, b) of the target, (S2, A2), what the source's actions tell of it.

    Attributes:
        low: max_(s, a) Q1(s, a) - delta, minus infinity for an action that t lacks.
        up: min_(s, a) Q1(s, a) + delta, minus infinity likewise.
        below, above: the numbers s * A1 + a of those that attain `low` and `up`.
        low_delta, up_delta: their delta.
        answers: delta of (t, b) to the one action that t was to answer; infinite where t lacks b.
        error: how far the bounds may be from those that the given table and Q make.
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
    """Bounds from delta((s, a), (t, b)) = |R1(s, a) - R2(t, b)| + discount * W1(d)(P1, P2).

    Where W1 lies between the distributions P1(s, a) and P2(t, b). The deltas are made and used
    block by block, none of them is kept.

    Args:
        d: (S1, S1 + S2), the rows of the source in a table of the union.
        Q: (S1, A1), the action values of the source.
        asked: (S2,), the number s * A1 + a of the action that each t is to answer.
        compared: (A1, A2), the actions that are compared at all.
    """
    rows, columns = source.R.size, target.R.size
    distances = _ActionDistances(source, target, d)
    size = min(columns, max(1, BLOCK_ENTRIES // rows))
    require_memory(f"uses.transfer: {rows:,} actions need", 40.0 * rows * size, "take fewer states")
    where = source.action_mask.ravel()
    apart = ~np.tile(comparable, (source.num_states, 1))
    value = np.where(where, Q.ravel(), 0.0)[:, None]
    found: dict[str, NDArray[Any]] = {
        name: np.empty(columns, np.int64 if name in ("below", "above") else np.float64)
        for name in ActionBounds._fields[:-1]
    }
    with show_progress(columns, "actions matched") as shown:
        for start in range(0, columns, size):
            part = np.arange(start, min(columns, start + size))
            delta = distances.compute_block(part)
            delta[apart[:, part % target.num_actions] | ~where[:, None]] = np.inf
            each = np.arange(len(part))
            far = (1 + TIE_TOLERANCE) * delta
            below, above = (value - far).argmax(axis=0), (value + far).argmin(axis=0)
            least, most = delta[below, each], delta[above, each]
            found["below"][part], found["low_delta"][part] = below, least
            found["above"][part], found["up_delta"][part] = above, most
            found["low"][part] = value[below, 0] - least
            found["up"][part] = value[above, 0] + most
            found["answers"][part] = delta[nearest_actions[part // target.num_actions], each]
            shown.set_position(part[-1] + 1)
    tables = {name: numbers.reshape(target.R.shape) for name, numbers in found.items()}
    for name, nothing in (("low", -np.inf), ("up", -np.inf), ("answers", np.inf)):
        tables[name][~target.action_mask] = nothing
    return ActionBounds(**tables, error=distances.error)


class _ActionDistances:
    """The deltas of two MDPs, some columns at a time, and how wrong they may be by rounding."""

    def __init__(self, source: MDP, target: MDP, d: NDArray[np.floating]) -> None:
        self.source, self.target = source, target
        self.target_probabilities = target.normalised_probabilities
        self.single_coupling = source.is_deterministic or target.is_deterministic
        # Rounded masses may have to go as far as any two states are apart.
        self.largest, self.transport_error = float(d[:, source.num_states :].max()), 0.0
        if self.single_coupling:
            # Where one side is certain there is one coupling, and its cost is a mean.
            self.expected_distances = source.normalised_probabilities @ d[
                :, source.num_states :
            ].astype(np.float64)
        else:
            self.distances = np.ascontiguousarray(d, np.float64)
            self.rows = build_transition_rows(
                source.normalised_probabilities, self.target_probabilities
            )

    def compute_block(self, columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """delta (S1 * A1, n) for the target's actions of the numbers t * A2 + b."""
        if self.single_coupling:
            far = np.asarray((self.target_probabilities[columns] @ self.expected_distances.T).T)
        else:
            far = np.empty((self.source.R.size, len(columns)))
            with announce_compilation("the kernels"):
                doubts = map_chunks(
                    lambda low, high: transport_kernels.fill_transport_costs(
                        self.rows,
                        self.distances,
                        self.source.R.size,
                        far,
                        int(columns[0]),
                        low,
                        high,
                    ),
                    len(columns),
                    MIN_PARALLEL_ROWS,
                )
            self.transport_error = max(self.transport_error, *doubts)
        gaps = np.abs(self.source.R.reshape(-1, 1) - self.target.R.ravel()[columns])
        delta = gaps + self.target.discount * far
        self.largest = max(self.largest, float(delta.max()))
        return np.asarray(delta)

    @property
    def error(self) -> float:
        """How far the deltas so far may be from those that the table makes.

        With n the most entries of a row: dividing two rows by their sums takes n + 1 units each,
        the flows of a coupling miss their marginals by at most 8 n, and sums over them take 2 n; a
        few more are for the gap, the discount, the sum, and that with an action value. A match
        that is nearer may be worse by a `TIE`.
        """
        widest = max(int(np.diff(mdp.P.indptr).max()) for mdp in (self.source, self.target))
        rounding = (12 * widest + 32) * (UNIT * self.largest + TINY)
        return float(
            add_upward(
                self.target.discount * self.transport_error, rounding, TIE_TOLERANCE * self.largest
            )
        )


TransferRule = Literal["optimistic", "pessimistic", "nearest", "hopeful"]
IMITATION_TOLERANCE = 1e-6
"""The error that is asked of the optimistic distance, times 1 - discount."""


class MatchedPolicy(NamedTuple):
    """A policy (S2,) of the target, and where it comes from; see `Transfer`.

    `match` (S2,) are numbers s * A1 + a of the source's actions, `distances` (S2,) how far from
    them those of the policy are, and `lower` (S2,) is proven to be no more than its values.
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
    """The choice of every rule but the optimistic one.

    `asked` (S2,) is what the nearest rule answers. `off` is the error of the bounds: `low` and `up`
    are within it of those that the true distance and the true values make.
    """
    tables = {
        "nearest": (
            -bounds.response_distances,
            nearest_actions[:, None],
            bounds.response_distances,
        ),
        "pessimistic": (bounds.lower, bounds.lower_matches, bounds.lower_distances),
        "hopeful": (bounds.upper, bounds.upper_matches, bounds.upper_distances),
    }
    worth, match, delta = tables[rule]
    each = np.arange(target.num_states)
    policy = worth.argmax(axis=1)
    best = bounds.lower.max(axis=1)
    short = add_upward(best, -bounds.lower[each, policy])
    paid = target.replace(R=np.broadcast_to(short[:, None], target.R.shape))
    along = planning.policy_values(paid, policy, tol=math.inf)
    lower = -add_upward(
        -best, along.values, along.error, _accumulate_error(bound_error, target.discount)
    )
    match = np.broadcast_to(match, target.R.shape)
    return MatchedPolicy(policy, match[each, policy], delta[each, policy], lower)


def choose_by_imitation(
    source: MDP, target: MDP, source_policy: NDArray[np.int64]
) -> MatchedPolicy:
    """The choice of the optimistic rule: each t imitates the s with the largest V1 - d_o.

    Let V be V1 of the policy `best` as computed, to within v, and d be d_o as computed, whose
    residual proves its error e: the answer b of t to s costs at most d(s, t) + (1 - discount) e.
    With L(t) = max_s V(s) - (1 + TIE) d(s, t), attained by s, the policy's backup of L is

        R2(t, b) + discount * E L(y)
            >=  V1(s) - discount * v - (1 + TIE) (d(s, t) + (1 - discount) e)
            >=  L(t) - (1 + discount) v - (1 + TIE) (1 - discount) e,

    so that its values are L or more, less (1 + discount) / (1 - discount) v and (1 + TIE) e. TIE
    prefers the nearest of equals, and costs nothing but that. L is rounded by a unit of the product
    and one of the difference, which is added to v.
    """
    followed = planning.policy_values(source, source_policy, tol=math.inf)
    alike = solve_imitation(
        source, source_policy, target, tol=IMITATION_TOLERANCE * (1 - source.discount)
    )
    worth = followed.values[:, None] - (1 + TIE_TOLERANCE) * alike.values
    each, like = np.arange(target.num_states), worth.argmax(axis=0)
    largest = float(np.abs(followed.values).max() + alike.values.max())
    off = add_upward(followed.error, 3 * (UNIT * largest + TINY))
    lower = -add_upward(
        -worth[like, each],
        _accumulate_error(off, target.discount),
        multiply_upward(1 + 2 * TIE_TOLERANCE, alike.error),
    )
    return MatchedPolicy(
        alike.actions[like, each],
        like * source.num_actions + source_policy[like],
        alike.values[like, each],
        lower,
    )


def _accumulate_error(backup_error: float, discount: float) -> float:
    """What errors cost a lower bound L of the values of a policy.

    Where L and low(t, pi(t)) are within `off` of what they stand for, the policy's backup of L is
    at least L less (1 + discount) * off, and its values are L less this / (1 - discount).
    """
    if not math.isfinite(backup_error):
        return math.inf
    share = Fraction(discount)
    return round_upward((1 + share) / (1 - share) * Fraction(backup_error))

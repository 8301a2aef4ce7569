"""The optimistic distance of Castro & Precup (2010), and the policy that imitates by it.

Only the action that the source's policy takes in s counts, and the best response of t to it. Policy
iteration over responses and couplings, as in `exact.stochastic`; there is one player, so that it
converges.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import linalg

from bisimetric import planning
from bisimetric._memory import require_memory
from bisimetric._progress import announce_compilation, convergence_fraction, show_progress
from bisimetric._rounding import TINY, UNIT
from bisimetric.exact._request import SweepLimit, bound_error
from bisimetric.exact._threads import map_chunks
from bisimetric.mdp import MDP
from bisimetric.planning import solve_bicgstab
from bisimetric.uses.certificates import add_upward, multiply_upward
from bisimetric.uses.policy_transfer import transport_kernels
from bisimetric.uses.policy_transfer.action_bounds import (
    TIE_TOLERANCE,
    MatchedPolicy,
    accumulate_error,
)
from bisimetric.uses.policy_transfer.transport_kernels import BestResponses, build_transition_rows

IMITATION_TOLERANCE = 1e-6
"""The error of the optimistic distance, divided by 1 - discount."""
MIN_PARALLEL_PAIRS = 256
"""Pairs from which several threads pay off."""
MAX_POLICY_ROUNDS = 1_000
"""Rounds of policy iteration; beyond, rounding prevents convergence, and plain sweeps follow."""
MAX_SOLVER_STEPS = 200
"""Steps of the linear solver per round."""
SOLVER_TOLERANCE = 1e-3
"""The relative residual of the linear solver."""


@dataclasses.dataclass(frozen=True, eq=False)
class ImitationDistance:
    """The distances (S1, S2) from source to target, each within `error`, and the best responses."""

    values: NDArray[np.float64]
    actions: NDArray[np.int64]
    error: float


def solve_imitation(
    source: MDP, policy: NDArray[np.int64], target: MDP, *, tol: float
) -> ImitationDistance:
    """Solve d(s, t) = min_b |R1(s, pi(s)) - R2(t, b)| + discount * W1(d)(P1(s, pi(s)), P2(t, b)).

    By induction V1^pi(s) - d(s, t) <= V2*(t). It is no metric: actions that pi does not take are
    ignored, and d(s, t) = 0 means that t can imitate s.

    >>> mdp = MDP.deterministic([[0, 0]], [[0, 1]], discount=0.5)
    >>> other = MDP.deterministic([[0, 1], [1, 1]], [[1, 0], [0.25, 0]], discount=0.5)
    >>> solve_imitation(mdp, np.array([1]), other, tol=1e-6).values
    array([[0. , 1.5]])
    """
    chain, shape = source.apply_policy(policy), (source.num_states, target.num_states)
    max_support = np.diff(target.P.indptr).reshape(target.R.shape).max(axis=1)
    capacity = (np.diff(chain.P.indptr)[:, None] + max_support - 1).ravel()
    require_memory(
        f"uses.transfer: {shape[0]:,} x {shape[1]:,} pairs of states need",
        12.0 * capacity.sum() + 80.0 * capacity.size,
        "use a smaller source, such as the quotient by its bisimulation relation",
    )
    starts = np.concatenate([[0], np.cumsum(capacity)])
    responses = BestResponses(
        np.zeros(capacity.size, np.int64),
        np.zeros(capacity.size),
        starts,
        np.zeros(starts[-1], np.int64),
        np.zeros(starts[-1]),
    )
    return _ImitationSolver(chain, target, responses).solve(tol)


def choose_by_imitation(
    source: MDP, target: MDP, source_policy: NDArray[np.int64]
) -> MatchedPolicy:
    """Choose a policy by the optimistic rule: each t imitates the s with the largest V1 - d_o.

    Let V be the computed V1 of `source_policy`, with error v, and d the computed d_o, whose
    residual proves its error e: the response b of t to s costs at most d(s, t) + (1 - discount) e.
    With L(t) = max_s V(s) - (1 + TIE) d(s, t), attained by s, the policy's backup of L is

        R2(t, b) + discount * E L(y)
            >=  V1(s) - discount * v - (1 + TIE) (d(s, t) + (1 - discount) e)
            >=  L(t) - (1 + discount) v - (1 + TIE) (1 - discount) e,

    so that its values are at least L - (1 + discount) / (1 - discount) v - (1 + TIE) e. TIE, which
    is `TIE_TOLERANCE`, makes the nearest of equals win. L is rounded by a unit of the product and
    one of the difference, which is added to v.
    """
    V = planning.policy_values(source, source_policy, tol=math.inf)
    imitation = solve_imitation(
        source, source_policy, target, tol=IMITATION_TOLERANCE * (1 - source.discount)
    )
    scores = V.values[:, None] - (1 + TIE_TOLERANCE) * imitation.values
    states, imitated = np.arange(target.num_states), scores.argmax(axis=0)
    largest = float(np.abs(V.values).max() + imitation.values.max())
    value_error = add_upward(V.error, 3 * (UNIT * largest + TINY))
    value_lower_bound = -add_upward(
        -scores[imitated, states],
        accumulate_error(value_error, target.discount),
        multiply_upward(1 + 2 * TIE_TOLERANCE, imitation.error),
    )
    return MatchedPolicy(
        imitation.actions[imitated, states],
        imitated * source.num_actions + source_policy[imitated],
        imitation.values[imitated, states],
        value_lower_bound,
    )


class _ImitationSolver:
    """The distances d of all pairs, their Bellman update F(d), and the responses that attain it."""

    def __init__(self, chain: MDP, target: MDP, responses: BestResponses) -> None:
        self.shape = (chain.num_states, target.num_states)
        self.rows = build_transition_rows(
            chain.normalised_probabilities, target.normalised_probabilities
        )
        self.distances = np.zeros((self.shape[0], sum(self.shape)))
        self.constants = (chain.R[:, 0].copy(), target.R, target.action_mask, target.discount)
        self.responses, self.updated = responses, np.zeros(responses.reward_gap.size)

    def solve(self, tol: float) -> ImitationDistance:
        """Iterate until F(d) = d, up to `tol` or rounding."""
        discount, support, rounds = self.constants[3], self.rows.max_support, 0
        with announce_compilation("the kernels"):
            residual, largest, transport_error = self.sweep()
        limit = SweepLimit(max(self.shape))
        with show_progress(1.0, "imitation: digits of the error") as progress:
            while True:
                residual_tolerance = max(
                    tol * (1 - discount) / 2, (8 * support + 128) * UNIT * largest
                )
                if residual <= residual_tolerance or limit.is_exceeded(
                    rounds, residual, residual_tolerance
                ):
                    break
                improve = rounds < MAX_POLICY_ROUNDS
                self.distances[:, self.shape[0] :] = (
                    self.evaluate_policy(residual_tolerance) if improve else self.updated
                ).reshape(self.shape)
                residual, largest, transport_error = self.sweep()
                rounds += 1
                progress.set_position(
                    convergence_fraction(residual, residual_tolerance, largest), f"round {rounds}"
                )
        # Normalised rows, flows that miss their marginals, and sums: as in `action_bounds`.
        scale = max(largest, float(self.distances.max()))
        rounding = (12 * support + 32) * (UNIT * scale + TINY)
        error = bound_error(residual + discount * (transport_error + rounding), largest, discount)
        values = self.distances[:, self.shape[0] :].copy()
        return ImitationDistance(values, self.responses.action.reshape(self.shape), error)

    def sweep(self) -> tuple[float, float, float]:
        """Update F(d); return its largest difference from d, its largest entry and its error."""

        def sweep_part(low: int, high: int) -> Any:
            return transport_kernels.sweep(
                self.rows, self.distances, *self.constants, self.responses, self.updated, low, high
            )

        results = np.array(map_chunks(sweep_part, self.updated.size, MIN_PARALLEL_PAIRS))
        residual, largest, transport_error = results.max(axis=0).tolist()
        return residual, largest, transport_error

    def evaluate_policy(self, tolerance: float) -> NDArray[np.float64]:
        """Evaluate responses and couplings: solve x = reward_gap + discount * transitions @ x."""
        responses, discount = self.responses, self.constants[3]
        num_pairs = self.updated.size
        if responses.starts[-1] == num_pairs:
            # One successor per pair: doubling, as in `planning.policy_values`.
            values, successors, weight = (
                responses.reward_gap.copy(),
                responses.successor_pairs,
                discount,
            )
            while weight > UNIT:
                values = np.asarray(values + weight * values[successors])
                successors, weight = successors[successors], weight * weight
            return values
        transitions = sparse.csr_array(
            (responses.mass, responses.successor_pairs, responses.starts), (num_pairs, num_pairs)
        )

        def system(x: NDArray[Any]) -> NDArray[Any]:
            return np.asarray(x - discount * (transitions @ x))

        operator: Any = linalg.LinearOperator(
            (num_pairs, num_pairs), matvec=system, dtype=np.float64
        )
        residual = responses.reward_gap - system(self.updated)
        step = solve_bicgstab(
            operator,
            residual,
            rtol=SOLVER_TOLERANCE,
            max_iterations=MAX_SOLVER_STEPS,
            atol=tolerance / 8,
        )
        values = np.asarray(np.maximum(self.updated + step, 0.0))
        if np.abs(responses.reward_gap - system(values)).max() < np.abs(residual).max():
            return values
        values = self.updated
        for _ in range(MAX_SOLVER_STEPS):
            values = np.asarray(responses.reward_gap + discount * (transitions @ values))
        return values

"""How well a target's state can imitate a source's state that follows a policy.

The optimistic distance of Castro & Precup (2010): only the action that the policy takes in s
counts, and the best answer of t to it. Policy iteration over answers and couplings, as in
`exact.branching`; there is one player only, so that it cannot go astray.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import linalg

from bisimetric._memory import require_memory
from bisimetric._progress import announce_compilation, convergence_fraction, show_progress
from bisimetric._rounding import TINY, UNIT
from bisimetric.exact._request import SweepLimit, bound_error
from bisimetric.exact._threads import map_chunks
from bisimetric.mdp import MDP
from bisimetric.planning import solve_bicgstab
from bisimetric.uses.policy_transfer import transport_kernels
from bisimetric.uses.policy_transfer.transport_kernels import BestResponses, build_transition_rows

MIN_PARALLEL_PAIRS = 256
"""Pairs that are worth several threads."""
MAX_POLICY_ROUNDS = 1_000
"""Rounds of policy iteration; more mean that rounding stops them, and single sweeps follow."""
MAX_SOLVER_STEPS = 200
"""Steps of the linear solver in a round."""
SOLVER_TOLERANCE = 1e-3
"""The share of what is wrong that the linear solver may leave."""


@dataclasses.dataclass(frozen=True, eq=False)
class ImitationDistance:
    """The distances (S1, S2) from source to target, each within `error`, and the best answers."""

    values: NDArray[np.float64]
    actions: NDArray[np.int64]
    error: float


def solve_imitation(
    source: MDP, policy: NDArray[np.int64], target: MDP, *, tol: float
) -> ImitationDistance:
    """d(s, t) = min_b |R1(s, policy(s)) - R2(t, b)| + discount * W1(d)(P1(s, policy(s)), P2(t, b)).

    By induction V1^policy(s) - d(s, t) is no more than what t is worth. No distance of
    states: nothing is asked of what s does not do, and d(s, t) = 0 says that t can do as s does.

    >>> mdp = MDP.deterministic([[0, 0]], [[0, 1]], discount=0.5)
    >>> other = MDP.deterministic([[0, 1], [1, 1]], [[1, 0], [0.25, 0]], discount=0.5)
    >>> imitation(mdp, np.array([1]), other, tol=1e-6).values
    array([[0. , 1.5]])
    """
    chain, states = source.apply_policy(policy), (source.num_states, target.num_states)
    widest = np.diff(target.P.indptr).reshape(target.R.shape).max(axis=1)
    room = (np.diff(chain.P.indptr)[:, None] + widest - 1).ravel()
    require_memory(
        f"uses.transfer: {states[0]:,} x {states[1]:,} pairs of states need",
        12.0 * room.sum() + 80.0 * room.size,
        "carry from a smaller source, such as one state a class of its relation",
    )
    starts = np.concatenate([[0], np.cumsum(room)])
    answers = BestResponses(
        np.zeros(room.size, np.int64),
        np.zeros(room.size),
        starts,
        np.zeros(starts[-1], np.int64),
        np.zeros(starts[-1]),
    )
    return _ImitationSolver(chain, target, answers).solve(tol)


class _ImitationSolver:
    """The distances d of all pairs, F(d), and the answers that attain it."""

    def __init__(self, chain: MDP, target: MDP, responses: BestResponses) -> None:
        self.shape = (chain.num_states, target.num_states)
        self.rows = build_transition_rows(
            chain.normalised_probabilities, target.normalised_probabilities
        )
        self.distances = np.zeros((self.shape[0], sum(self.shape)))
        self.constants = (chain.R[:, 0].copy(), target.R, target.action_mask, target.discount)
        self.responses, self.updated = responses, np.zeros(responses.reward_gap.size)

    def solve(self, tol: float) -> ImitationDistance:
        """Rounds until F(d) is d, up to what `tol` or rounding allows."""
        discount, support, rounds = self.constants[3], self.rows.max_support, 0
        with announce_compilation("the kernels"):
            residual, largest, doubt = self.sweep()
        limit = SweepLimit(max(self.shape))
        with show_progress(1.0, "imitation: digits of the error") as shown:
            while True:
                least = max(tol * (1 - discount) / 2, (8 * support + 128) * UNIT * largest)
                if residual <= least or limit.is_exceeded(rounds, residual, least):
                    break
                leap = rounds < MAX_POLICY_ROUNDS
                self.distances[:, self.shape[0] :] = (
                    self.evaluate_policy(least) if leap else self.updated
                ).reshape(self.shape)
                residual, largest, doubt = self.sweep()
                rounds += 1
                shown.set_position(
                    convergence_fraction(residual, least, largest), f"round {rounds}"
                )
        # Normalised rows, flows that miss their marginals, and sums: as in `matching`.
        farthest = max(largest, float(self.distances.max()))
        rounding = (12 * support + 32) * (UNIT * farthest + TINY)
        error = bound_error(residual + discount * (doubt + rounding), largest, discount)
        values = self.distances[:, self.shape[0] :].copy()
        return ImitationDistance(values, self.responses.action.reshape(self.shape), error)

    def sweep(self) -> tuple[float, float, float]:
        """F(d) becomes the image; its largest difference from d, its largest entry, its doubt."""

        def part(low: int, high: int) -> Any:
            return transport_kernels.sweep(
                self.rows, self.distances, *self.constants, self.responses, self.updated, low, high
            )

        found = np.array(map_chunks(part, self.updated.size, MIN_PARALLEL_PAIRS))
        residual, largest, doubt = found.max(axis=0).tolist()
        return residual, largest, doubt

    def evaluate_policy(self, tolerance: float) -> NDArray[np.float64]:
        """What the chosen answers and couplings cost for ever: x = gap + discount * ahead @ x."""
        answers, discount = self.responses, self.constants[3]
        pairs = self.updated.size
        if answers.starts[-1] == pairs:
            # One pair leads to one: sums double, as in `planning.policy_values`.
            found, after, weight = answers.reward_gap.copy(), answers.successor_pairs, discount
            while weight > UNIT:
                found = np.asarray(found + weight * found[after])
                after, weight = after[after], weight * weight
            return found
        ahead = sparse.csr_array(
            (answers.mass, answers.successor_pairs, answers.starts), (pairs, pairs)
        )

        def system(x: NDArray[Any]) -> NDArray[Any]:
            return np.asarray(x - discount * (ahead @ x))

        operator: Any = linalg.LinearOperator((pairs, pairs), matvec=system, dtype=np.float64)
        left = answers.reward_gap - system(self.updated)
        step = solve_bicgstab(
            operator,
            left,
            rtol=SOLVER_TOLERANCE,
            max_iterations=MAX_SOLVER_STEPS,
            atol=tolerance / 8,
        )
        found = np.asarray(np.maximum(self.updated + step, 0.0))
        if np.abs(answers.reward_gap - system(found)).max() < np.abs(left).max():
            return found
        found = self.updated
        for _ in range(MAX_SOLVER_STEPS):
            found = np.asarray(answers.reward_gap + discount * (ahead @ found))
        return found

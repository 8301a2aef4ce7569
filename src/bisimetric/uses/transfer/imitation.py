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

from bisimetric.exact.convergence import SweepLimit
from bisimetric.exact.table import proven_error
from bisimetric.exact.threads import in_parts
from bisimetric.mdp import MDP
from bisimetric.memory import require_memory
from bisimetric.planning import solving_step
from bisimetric.progress import bar, compiling, digits
from bisimetric.rounding import TINY, UNIT
from bisimetric.uses.transfer import couplings
from bisimetric.uses.transfer.couplings import Answers, rows_of

ENOUGH_PAIRS = 256
"""Pairs that are worth several threads."""
MOST_LEAPS = 1_000
"""Rounds of policy iteration; more mean that rounding stops them, and single sweeps follow."""
MOST_STEPS = 200
"""Steps of the linear solver in a round."""
COARSE = 1e-3
"""The share of what is wrong that the linear solver may leave."""


@dataclasses.dataclass(frozen=True, eq=False)
class Imitation:
    """The distances (S1, S2) from source to target, each within `error`, and the best answers."""

    values: NDArray[np.float64]
    actions: NDArray[np.int64]
    error: float


def imitation(source: MDP, policy: NDArray[np.int64], target: MDP, *, tol: float) -> Imitation:
    """d(s, t) = min_b |R1(s, policy(s)) - R2(t, b)| + discount * W1(d)(P1(s, policy(s)), P2(t, b)).

    By induction V1^policy(s) - d(s, t) is no more than what t is worth. No distance of
    states: nothing is asked of what s does not do, and d(s, t) = 0 says that t can do as s does.

    >>> mdp = MDP.deterministic([[0, 0]], [[0, 1]], discount=0.5)
    >>> other = MDP.deterministic([[0, 1], [1, 1]], [[1, 0], [0.25, 0]], discount=0.5)
    >>> imitation(mdp, np.array([1]), other, tol=1e-6).values
    array([[0. , 1.5]])
    """
    chain, states = source.under(policy), (source.num_states, target.num_states)
    widest = np.diff(target.P.indptr).reshape(target.R.shape).max(axis=1)
    room = (np.diff(chain.P.indptr)[:, None] + widest - 1).ravel()
    require_memory(
        f"uses.transfer: {states[0]:,} x {states[1]:,} pairs of states need",
        12.0 * room.sum() + 80.0 * room.size,
        "carry from a smaller source, such as one state a class of its relation",
    )
    starts = np.concatenate([[0], np.cumsum(room)])
    answers = Answers(
        np.zeros(room.size, np.int64),
        np.zeros(room.size),
        starts,
        np.zeros(starts[-1], np.int64),
        np.zeros(starts[-1]),
    )
    return _Run(chain, target, answers).solved(tol)


class _Run:
    """The distances d of all pairs, F(d), and the answers that attain it."""

    def __init__(self, chain: MDP, target: MDP, answers: Answers) -> None:
        self.shape = (chain.num_states, target.num_states)
        self.rows = rows_of(chain.shares, target.shares)
        self.table = np.zeros((self.shape[0], sum(self.shape)))
        self.fixed = (chain.R[:, 0].copy(), target.R, target.has, target.discount)
        self.answers, self.image = answers, np.zeros(answers.gap.size)

    def solved(self, tol: float) -> Imitation:
        """Rounds until F(d) is d, up to what `tol` or rounding allows."""
        discount, support, rounds = self.fixed[3], self.rows.support, 0
        with compiling("the kernels"):
            residual, largest, doubt = self.sweep()
        limit = SweepLimit(max(self.shape))
        with bar(1.0, "imitation: digits of the error") as shown:
            while True:
                least = max(tol * (1 - discount) / 2, (8 * support + 128) * UNIT * largest)
                if residual <= least or limit.exceeds(rounds, residual, least):
                    break
                leap = rounds < MOST_LEAPS
                self.table[:, self.shape[0] :] = (
                    self.worth_for_ever(least) if leap else self.image
                ).reshape(self.shape)
                residual, largest, doubt = self.sweep()
                rounds += 1
                shown.at(digits(residual, least, largest), f"round {rounds}")
        # Normalised rows, flows that miss their marginals, and sums: as in `matching`.
        farthest = max(largest, float(self.table.max()))
        rounding = (12 * support + 32) * (UNIT * farthest + TINY)
        error = proven_error(residual + discount * (doubt + rounding), largest, discount)
        values = self.table[:, self.shape[0] :].copy()
        return Imitation(values, self.answers.action.reshape(self.shape), error)

    def sweep(self) -> tuple[float, float, float]:
        """F(d) becomes the image; its largest difference from d, its largest entry, its doubt."""

        def part(low: int, high: int) -> Any:
            return couplings.sweep(
                self.rows, self.table, *self.fixed, self.answers, self.image, low, high
            )

        found = np.array(in_parts(part, self.image.size, ENOUGH_PAIRS))
        residual, largest, doubt = found.max(axis=0).tolist()
        return residual, largest, doubt

    def worth_for_ever(self, small: float) -> NDArray[np.float64]:
        """What the chosen answers and couplings cost for ever: x = gap + discount * ahead @ x."""
        answers, discount = self.answers, self.fixed[3]
        pairs = self.image.size
        if answers.starts[-1] == pairs:
            # One pair leads to one: sums double, as in `planning.policy_values`.
            found, after, weight = answers.gap.copy(), answers.leads_to, discount
            while weight > UNIT:
                found = np.asarray(found + weight * found[after])
                after, weight = after[after], weight * weight
            return found
        ahead = sparse.csr_array((answers.mass, answers.leads_to, answers.starts), (pairs, pairs))

        def system(x: NDArray[Any]) -> NDArray[Any]:
            return np.asarray(x - discount * (ahead @ x))

        operator: Any = linalg.LinearOperator((pairs, pairs), matvec=system, dtype=np.float64)
        left = answers.gap - system(self.image)
        step = solving_step(operator, left, share=COARSE, steps=MOST_STEPS, small=small / 8)
        found = np.asarray(np.maximum(self.image + step, 0.0))
        if np.abs(answers.gap - system(found)).max() < np.abs(left).max():
            return found
        found = self.image
        for _ in range(MOST_STEPS):
            found = np.asarray(answers.gap + discount * (ahead @ found))
        return found

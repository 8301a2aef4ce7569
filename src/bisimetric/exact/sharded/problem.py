"""What a sharded solver is given: one state a class, in an order in which few rows travel."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
from numpy.typing import NDArray

from bisimetric import relation
from bisimetric.errors import InputError
from bisimetric.exact.deterministic.problem import complete_actions
from bisimetric.exact.sharded.layout import order_states
from bisimetric.exact.table import Request
from bisimetric.mdp import MDP


@dataclasses.dataclass(frozen=True)
class ShardedProblem:
    """A deterministic MDP with one state a class.

    Attributes:
        successor: (A, C).
        reward: (A, C).
        place: (S,), the row and column of each state of the whole MDP.
        states: (C,), one state of the whole MDP for each row.
        least: the largest rise that is small enough.
        doubt: by how much F(d) may be off; see `steps_of` and `InducedChain.pair_error`.
    """

    successor: NDArray[np.int32]
    reward: NDArray[np.float64]
    discount: float
    row_index: NDArray[np.int64]
    representatives: NDArray[np.int64]
    residual_tolerance: float
    rounding_bound: float

    @property
    def num_states(self) -> int:
        return int(self.successor.shape[1])

    @property
    def fingerprint(self) -> str:
        """Tells this problem from others, whatever their tolerance."""
        found = hashlib.sha256(np.float64(self.discount).tobytes())
        for array in (self.successor, self.reward, self.row_index):
            found.update(str(array.shape).encode())
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()[:16]


def build_problem(request: Request, mdp: MDP, rounding: float = 0.0) -> ShardedProblem:
    """The problem that an MDP or the chain of a policy poses; refuses what has no rows to move."""
    kind = f"exact.sharded.{request.kind}"
    if not mdp.is_deterministic:
        s, a = mdp.first_stochastic_action()
        where = f"P[{s}, {a}]" if mdp.num_actions > 1 else f"the chain at state {s}"
        raise InputError(
            f"{kind}: {where} has several successors, and rows are moved along single ones only; "
            f"use exact.{request.kind}, sampled or learned for stochastic MDPs."
        )
    least = request.residual_tolerance(mdp, "exact.sharded")
    classes = relation.bisimulation(mdp)
    first = relation.representatives(classes)
    steps = complete_actions(relation.quotient(mdp, classes))
    order = order_states(steps.successor)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return ShardedProblem(
        np.ascontiguousarray(rank[steps.successor[:, order]], dtype=np.int32),
        np.ascontiguousarray(steps.reward[:, order]),
        mdp.discount,
        rank[classes],
        first[order],
        least,
        steps.rounding_bound + rounding,
    )

"""The problem that solvers of deterministic MDPs take, with missing actions completed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._rounding import UNIT
from bisimetric.mdp import MDP, compute_comparison_classes

MAX_SERIAL_STATES = 256
"""States above which a problem is solved on all cores."""


@dataclasses.dataclass(frozen=True)
class DeterministicProblem:
    """A deterministic MDP as the kernels read it, and the residual to reach.

    Attributes:
        successor: (A, S) unsigned.
        reward: (A, S).
        discount: in [0, 1).
        residual_tolerance: the largest |F(d) - d| allowed.
        dtype: of the distance matrix.
        comparison_classes: (S,), or None for one class: d_lax of states of different classes is
            `diameter_bound`. For d~ and d^pi actions ensure that, see `complete_actions`.
        diameter_bound: the largest possible distance.
        cost: (S, S), added to the differences of rewards, symmetric with 0 on the diagonal; or
            None.
        rounding_bound: how much a rounded reward may change F(d), see `ActionCompletion`.
    """

    successor: NDArray[np.uint32]
    reward: NDArray[np.float64]
    discount: float
    residual_tolerance: float
    dtype: np.dtype[Any]
    comparison_classes: NDArray[np.int64] | None = None
    diameter_bound: float = 0.0
    cost: NDArray[np.float64] | None = None
    rounding_bound: float = 0.0

    @property
    def classes(self) -> NDArray[np.int64]:
        """(S,), the comparison classes."""
        if self.comparison_classes is None:
            return np.zeros(self.num_states, np.int64)
        return self.comparison_classes

    @property
    def largest_gap(self) -> float:
        """A bound on the difference of two rewards, and the cost of their pair."""
        cost = 0.0 if self.cost is None else float(self.cost.max())
        return float(np.ptp(self.reward)) + cost

    @property
    def num_states(self) -> int:
        return int(self.successor.shape[1])

    @property
    def num_actions(self) -> int:
        return int(self.successor.shape[0])


def sample_pairs(states: int, number: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a low-discrepancy sample of pairs of states, some of them of a state and itself.

    >>> [sample.tolist() for sample in sample_pairs(10, 3)]
    [[0, 6, 2], [0, 7, 5]]
    """
    k = np.arange(number)
    points = np.stack([k * 0.6180339887498949 % 1, k * 0.7548776662466927 % 1]) * states
    s, t = points.astype(np.int64)
    return s, t


@dataclasses.dataclass(frozen=True)
class ActionCompletion:
    """The dynamics of a deterministic MDP in which every state has every action.

    Attributes:
        successor, reward: (A, S).
        rounding_bound: how much a rounded reward may change F(d).
    """

    successor: NDArray[np.integer]
    reward: NDArray[np.float64]
    rounding_bound: float


def build_problem(
    mdp: MDP,
    dtype: np.dtype[Any],
    residual_tolerance: float,
    diameter_bound: float,
    cost: NDArray[np.float64] | None = None,
    *,
    lax: bool = False,
) -> DeterministicProblem:
    """Return the problem of a deterministic MDP, with missing actions completed.

    Where states are not comparable, an action attains the diameter bound, and `cost` is left out.
    """
    completion = complete_actions(
        mdp, lax=lax, diameter_bound=diameter_bound, has_cost=cost is not None
    )
    if cost is not None:
        classes = compute_comparison_classes(mdp, lax=lax)
        if classes.any():
            cost = np.where(classes[:, None] == classes, cost, 0.0)
    return DeterministicProblem(
        np.ascontiguousarray(completion.successor, dtype=np.uint32),
        np.ascontiguousarray(completion.reward),
        mdp.discount,
        residual_tolerance,
        dtype,
        compute_comparison_classes(mdp, lax=True),
        diameter_bound,
        cost,
        completion.rounding_bound,
    )


def complete_actions(
    mdp: MDP, *, lax: bool = False, diameter_bound: float | None = None, has_cost: bool = False
) -> ActionCompletion:
    """Replace missing actions such that the distances stay the same.

    In d_lax duplicates of an action change nothing: a missing one becomes a copy of the first. Its
    solver reads labels itself.

    In d~ a missing action becomes a self-loop with the least reward. For two states that both lack
    it, discount * d(s, t) <= d(s, t), so it is ignored. States that lack different actions, or have
    different label sets, are at the diameter bound D, which no common action exceeds: additional
    actions ensure that, one per binary digit of the index of the set of actions and labels. They
    pay 0 or D, and lead to one state from everywhere. D is `diameter_bound`, by default that of the
    MDP. If a cost of the pair is added (`has_cost`), a self-loop would repeat it: a missing
    action becomes a copy of the first one instead, as in d_lax, which states of one set share.

    >>> has = [[True, True], [True, False]]
    >>> two = MDP.deterministic([[0, 1], [1, 0]], [[0, 4], [2, 9]], discount=0.5, available=has)
    >>> complete_actions(two).successor.tolist(), complete_actions(two).reward.tolist()
    ([[0, 1], [1, 1], [0, 0]], [[0.0, 2.0], [4.0, 0.0], [0.0, 8.0]])
    """
    successor, reward = mdp.next_state.T, mdp.R.T
    set_index = np.zeros(0, np.int64) if lax else compute_comparison_classes(mdp)
    if mdp.available is None and (lax or not mdp.has_labels):
        return ActionCompletion(successor, reward, 0.0)
    has = mdp.action_mask.T
    if lax or has_cost:
        first, everyone = has.argmax(axis=0), np.arange(mdp.num_states)
        successor = np.where(has, successor, successor[first, everyone])
        reward = np.where(has, reward, reward[first, everyone])
        if lax:
            return ActionCompletion(successor, reward, 0.0)
    # Missing actions are self-loops in the MDP already.
    reward = reward if has_cost else np.where(has, reward, reward[has].min())
    used = has.any(axis=1)
    digits = (set_index >> np.arange(int(set_index.max()).bit_length())[:, None]) & 1
    # Even where all rewards are equal, states with different actions are not bisimilar.
    diameter = mdp.diameter_bound if diameter_bound is None else diameter_bound
    largest = diameter or float(np.finfo(np.float32).tiny)
    return ActionCompletion(
        np.concatenate([successor[used], np.zeros(digits.shape, successor.dtype)]),
        np.concatenate([reward[used], largest * digits]),
        # A difference, a quotient, and 1 - discount in it: three roundings of D. They are slack:
        # F(d) is D at least here, and an action that pays D leads to distance 0, so its value needs
        # none of the three roundings that `bound_error` allows. The second term is not slack.
        4 * UNIT * diameter + (largest - diameter),
    )

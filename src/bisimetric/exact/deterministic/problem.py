"""The problem that solvers of deterministic MDPs take, with missing actions completed."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._rounding import UNIT
from bisimetric.mdp import MDP

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
    """

    successor: NDArray[np.uint32]
    reward: NDArray[np.float64]
    discount: float
    residual_tolerance: float
    dtype: np.dtype[Any]

    @property
    def num_states(self) -> int:
        return int(self.successor.shape[1])

    @property
    def num_actions(self) -> int:
        return int(self.successor.shape[0])


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


def complete_actions(mdp: MDP, *, lax: bool = False) -> ActionCompletion:
    """Replace missing actions such that the distances stay the same.

    In d_lax duplicates of an action change nothing: a missing one becomes a copy of the first.

    In d~ a missing action becomes a self-loop with the least reward. For two states that both lack
    it, discount * d(s, t) <= d(s, t), so it is ignored. States that lack different actions are at
    the diameter bound D, which no common action exceeds: additional actions ensure that, one per
    binary digit of the index of the set of actions. They pay 0 or D, and lead to one state from
    everywhere.

    >>> has = [[True, True], [True, False]]
    >>> two = MDP.deterministic([[0, 1], [1, 0]], [[0, 4], [2, 9]], discount=0.5, available=has)
    >>> complete_actions(two).successor.tolist(), complete_actions(two).reward.tolist()
    ([[0, 1], [1, 1], [0, 0]], [[0.0, 2.0], [4.0, 0.0], [8.0, 0.0]])
    """
    successor, reward = mdp.next_state.T, mdp.R.T
    if mdp.available is None:
        return ActionCompletion(successor, reward, 0.0)
    has = mdp.available.T
    if lax:
        first, everyone = has.argmax(axis=0), np.arange(mdp.num_states)
        successor = np.where(has, successor, successor[first, everyone])
        return ActionCompletion(successor, np.where(has, reward, reward[first, everyone]), 0.0)
    # Missing actions are self-loops in the MDP already.
    reward = np.where(has, reward, reward[has].min())
    used = has.any(axis=1)
    sets, set_index = np.unique(mdp.available, axis=0, return_inverse=True)
    digits = (set_index.reshape(-1) >> np.arange((len(sets) - 1).bit_length())[:, None]) & 1
    # Even where all rewards are equal, states with different actions are not bisimilar.
    largest = mdp.diameter_bound or float(np.finfo(np.float32).tiny)
    return ActionCompletion(
        np.concatenate([successor[used], np.zeros(digits.shape, successor.dtype)]),
        np.concatenate([reward[used], largest * digits]),
        # A difference, a quotient, and 1 - discount in it: three roundings of D. They are slack:
        # F(d) is D at least here, and an action that pays D leads to distance 0, so its value needs
        # none of the three roundings that `bound_error` allows. The second term is not slack.
        4 * UNIT * mdp.diameter_bound + (largest - mdp.diameter_bound),
    )

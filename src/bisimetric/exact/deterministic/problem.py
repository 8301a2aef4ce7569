"""What the solvers of deterministic MDPs are given."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._rounding import UNIT
from bisimetric.mdp import MDP

MAX_SERIAL_STATES = 256
"""States above which a table is worth all cores."""


@dataclasses.dataclass(frozen=True)
class DeterministicProblem:
    """A deterministic MDP as the kernels read it, and what they must reach.

    Attributes:
        successor: (A, S) unsigned.
        reward: (A, S).
        least: the largest |F(d) - d| that is small enough.
        dtype: of the table.
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
    """The steps of a deterministic MDP in which every state has every action.

    Attributes:
        successor, reward: (A, S).
        doubt: by how much F(d) may be off, since a reward was rounded.
    """

    successor: NDArray[np.integer]
    reward: NDArray[np.float64]
    rounding_bound: float


def complete_actions(mdp: MDP, *, lax: bool = False) -> ActionCompletion:
    """The steps of a deterministic MDP; where states lack actions, others with the same distance.

    In d_lax a state answers with what it has, and an action that it has twice changes nothing: one
    that it lacks becomes a copy of its first.

    In d~ an action that a state lacks becomes a step on the spot that pays the least reward. Of two
    states that both lack it, discount * d(s, t) is no more than d(s, t), so it has no say. States
    that lack different actions are at the largest distance D that there is, and nothing that one of
    them has is worth more: further actions see to that, one for each binary digit of the number of
    the set of actions. They pay 0 or D, and lead to the same state from everywhere.

    >>> has = [[True, True], [True, False]]
    >>> two = MDP.deterministic([[0, 1], [1, 0]], [[0, 4], [2, 9]], discount=0.5, available=has)
    >>> steps_of(two).successor.tolist(), steps_of(two).reward.tolist()
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
    # On the spot, lacking actions lead already.
    reward = np.where(has, reward, reward[has].min())
    some = has.any(axis=1)
    sets, number = np.unique(mdp.available, axis=0, return_inverse=True)
    digits = (number.reshape(-1) >> np.arange((len(sets) - 1).bit_length())[:, None]) & 1
    # Also where all rewards are equal, states that have other actions are not alike.
    far = mdp.diameter_bound or float(np.finfo(np.float32).tiny)
    return ActionCompletion(
        np.concatenate([successor[some], np.zeros(digits.shape, successor.dtype)]),
        np.concatenate([reward[some], far * digits]),
        # A difference, a quotient, and 1 - discount in it: three roundings of D. They are slack:
        # F(d) is D at least here, and an action that pays D leads to distance 0, so its worth needs
        # none of the three roundings that `proven_error` allows. The second term is not slack.
        4 * UNIT * mdp.diameter_bound + (far - mdp.diameter_bound),
    )

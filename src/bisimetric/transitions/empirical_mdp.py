"""The MDP that transitions tell of: shares of successors, means of rewards.

R(s, a) from rewards that were paid by outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric._memory import require_memory
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.transitions._validation import TERMINAL

if TYPE_CHECKING:
    from bisimetric.transitions import Transitions


UNSEEN_MODES = ("refuse", "lacking")
BYTES_PER_STATE_ACTION = 100
"""Bytes of memory that a state and action need while the MDP is made."""


def estimate_mdp(transitions: Transitions, discount: float, unseen: str) -> MDP:
    """The MDP of `Transitions.to_mdp`."""
    if unseen not in UNSEEN_MODES:
        raise InputError(f"Transitions: unseen is {unseen!r} and must be refuse or lacking.")
    if (
        transitions.states is None
        or transitions.next_states is None
        or transitions.num_states is None
    ):
        raise InputError(
            f"Transitions: observations {transitions.observations.shape[1:]} are no ids of states, which "
            "an MDP needs; give states=... and next_states=..., a whole number a step."
        )
    if transitions.num_actions is None:
        raise InputError(
            f"Transitions: actions are continuous, {transitions.actions.shape[1:]}, and an MDP has "
            "finitely many; number them from 0."
        )
    states, actions, end = (
        transitions.num_states,
        transitions.num_actions,
        transitions.terminal_state,
    )
    size = states if end is None else states + 1
    require_memory(
        f"Transitions.to_mdp: {size:,} states and {actions} actions need",
        BYTES_PER_STATE_ACTION * size * actions,
        "number the states from 0 without gaps",
    )
    row = transitions.states * actions + transitions.actions
    taken = np.zeros((size, actions), np.bool_)
    taken.ravel()[row] = True
    stays: NDArray[np.bool_] = ~np.logical_or.reduce(taken, axis=1)
    alive = ~stays
    alive[transitions.next_states[~transitions.terminated]] = True
    gaps = alive[:, None] & ~taken
    if unseen == "refuse" and gaps.any():
        raise InputError(_format_unseen(transitions, gaps, int(alive.sum()) * actions))
    return MDP(
        _estimate_probabilities(row, transitions.successors, stays, actions),
        mean_rewards(row, transitions.rewards, size * actions)[0].reshape(size, actions),
        discount,
        actions=transitions.action_names,
        available=taken | stays[:, None],
        **describe_states(transitions.names, transitions.positions, end),
    )


def _estimate_probabilities(
    row: NDArray[np.int64],
    successors: NDArray[np.int64],
    absorbing: NDArray[np.bool_],
    num_actions: int,
) -> sparse.csr_array:
    """P (S * A, S): of each row the shares of its successors, or a step on the spot."""
    size = len(absorbing)
    shape = (size * num_actions, size)
    counts = sparse.csr_array((np.ones(len(row)), (row, successors)), shape)
    # A count divided by the total, so that equal counts of equal totals are equal shares.
    totals = np.bincount(row, minlength=shape[0])
    counts.data /= np.repeat(totals, np.diff(counts.indptr))
    spot = np.repeat(np.flatnonzero(absorbing), num_actions)
    at = np.flatnonzero(np.repeat(absorbing, num_actions))
    return sparse.csr_array(counts + sparse.csr_array((np.ones(len(at)), (at, spot)), shape))


def describe_states(
    names: tuple[str, ...] | None, positions: NDArray[np.float64] | None, terminal_state: int | None
) -> dict[str, Any]:
    """Names and positions of an MDP, the end included: below the map, in the middle."""
    if terminal_state is None:
        return {"names": names, "positions": positions}
    names = tuple(map(str, range(terminal_state))) if names is None else names
    if positions is not None:
        row, column = positions.T
        positions = np.vstack([positions, [row.max() + 2, (column.min() + column.max()) // 2]])
    return {"names": (*names, TERMINAL), "positions": positions}


def _format_unseen(transitions: Transitions, unseen: NDArray[np.bool_], num_pairs: int) -> str:
    s, a = map(int, np.argwhere(unseen)[0])
    state = str(s) if transitions.names is None else transitions.names[s]
    action = str(a) if transitions.action_names is None else transitions.action_names[a]
    return (
        f"Transitions: action {action} was never taken in state {state}, one of "
        f"{int(unseen.sum()):,} gaps in {num_pairs:,} states and actions; collect more steps, or say "
        "unseen='lacking', which leaves each state the actions that were seen in it."
    )


def mean_rewards(
    row: NDArray[np.integer],
    reward: NDArray[np.floating],
    num_rows: int,
    probability: NDArray[np.floating] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The mean reward of each row, and whether its outcomes pay differently, both (rows,).

    `row` and `reward` (n,) describe one outcome each. With `probability` (n,) the mean is the sum
    of probability times reward; without, outcomes count alike, and their order changes nothing.
    A row that always pays the same pays exactly that, and one without outcomes pays 0.

    >>> mean, differs = mean_rewards(np.array([0, 0, 0, 2, 2]), np.array([0.1, 0.1, 0.1, 1, 2]), 3)
    >>> mean.tolist(), differs.tolist()
    ([0.1, 0.0, 1.5], [False, False, True])
    """
    lowest, highest = np.full(num_rows, np.inf), np.full(num_rows, -np.inf)
    with np.errstate(invalid="ignore"):  # what is no number is for the MDP to refuse
        np.minimum.at(lowest, row, reward)
        np.maximum.at(highest, row, reward)
    differs = lowest < highest
    # Sums of equal numbers would round them: only rows that differ are summed.
    same = np.where(lowest > highest, 0.0, lowest)
    if not differs.any():
        return same, differs
    if probability is not None:
        sums = np.bincount(row, weights=probability * reward, minlength=num_rows)
        return np.where(differs, sums, same), differs
    summed = differs[row]
    row, reward = row[summed], reward[summed]
    order = np.lexsort((reward, row))
    sums = np.bincount(row[order], weights=reward[order], minlength=num_rows)
    counts = np.maximum(np.bincount(row, minlength=num_rows), 1)
    return np.where(differs, sums / counts, same), differs

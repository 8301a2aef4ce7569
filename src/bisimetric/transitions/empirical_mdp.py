"""Estimate the empirical MDP of transitions: relative frequencies and mean rewards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric._memory import require_memory
from bisimetric.errors import InputError
from bisimetric.mdp import MDP, TERMINAL

if TYPE_CHECKING:
    from bisimetric.transitions import Transitions

UNSEEN_MODES = ("raise", "missing")
BYTES_PER_STATE_ACTION = 100
"""Memory per state and action while the MDP is estimated."""


def estimate_mdp(transitions: Transitions, discount: float, unseen: str) -> MDP:
    """Estimate the MDP; see `Transitions.to_mdp` for the arguments."""
    if unseen not in UNSEEN_MODES:
        raise InputError(f"Transitions: unseen is {unseen!r} and must be raise or missing.")
    if (
        transitions.states is None
        or transitions.next_states is None
        or transitions.num_states is None
    ):
        raise InputError(
            f"Transitions: observations {transitions.observations.shape[1:]} are no ids of "
            "states, which an MDP needs; give states=... and next_states=..., one id per step."
        )
    if transitions.num_actions is None:
        raise InputError(
            f"Transitions: actions are continuous, {transitions.actions.shape[1:]}, and an MDP has "
            "finitely many; number them from 0."
        )
    actions, terminal = transitions.num_actions, transitions.terminal_state
    size = transitions.num_states + (terminal is not None)
    require_memory(
        f"Transitions.to_mdp: {size:,} states and {actions} actions need",
        BYTES_PER_STATE_ACTION * size * actions,
        "number the states from 0 without gaps",
    )
    row = transitions.states * actions + transitions.actions
    taken = np.zeros((size, actions), np.bool_)
    taken.ravel()[row] = True
    absorbing: NDArray[np.bool_] = ~np.logical_or.reduce(taken, axis=1)
    visited = ~absorbing
    visited[transitions.next_states[~transitions.terminated]] = True
    gaps = visited[:, None] & ~taken
    if unseen == "raise" and gaps.any():
        raise InputError(_format_unseen(transitions, gaps, int(visited.sum()) * actions))
    return MDP(
        _estimate_probabilities(row, transitions.successors, absorbing, actions),
        mean_rewards(row, transitions.rewards, size * actions)[0].reshape(size, actions),
        discount,
        actions=transitions.action_names,
        available=taken | absorbing[:, None],
        **describe_states(transitions.names, transitions.positions, terminal),
        is_empirical=True,
    )


def _estimate_probabilities(
    row: NDArray[np.int64],
    successors: NDArray[np.int64],
    absorbing: NDArray[np.bool_],
    num_actions: int,
) -> sparse.csr_array:
    """Estimate P (S * A, S): relative frequencies, and self-loops in absorbing states."""
    size = len(absorbing)
    shape = (size * num_actions, size)
    counts = sparse.csr_array((np.ones(len(row)), (row, successors)), shape)
    # A count divided by its total: equal counts of equal totals give equal probabilities.
    totals = np.bincount(row, minlength=shape[0])
    counts.data /= np.repeat(totals, np.diff(counts.indptr))
    state = np.repeat(np.flatnonzero(absorbing), num_actions)
    loop = np.flatnonzero(np.repeat(absorbing, num_actions))
    return sparse.csr_array(counts + sparse.csr_array((np.ones(len(loop)), (loop, state)), shape))


def describe_states(
    names: tuple[str, ...] | None, positions: NDArray[np.float64] | None, terminal_state: int | None
) -> dict[str, Any]:
    """Return names and positions with the terminal state appended, centred below the map."""
    if terminal_state is None:
        return {"names": names, "positions": positions}
    names = tuple(map(str, range(terminal_state))) if names is None else names
    if positions is not None:
        row, column = positions.T
        positions = np.vstack([positions, [row.max() + 2, (column.min() + column.max()) // 2]])
    return {"names": (*names, TERMINAL), "positions": positions}


def _format_unseen(transitions: Transitions, unseen: NDArray[np.bool_], num_pairs: int) -> str:
    """Describe the first action that was never taken in a visited state."""
    s, a = map(int, np.argwhere(unseen)[0])
    state = str(s) if transitions.names is None else transitions.names[s]
    action = str(a) if transitions.action_names is None else transitions.action_names[a]
    return (
        f"Transitions: action {action} was never taken in state {state}, one of "
        f"{int(unseen.sum()):,} gaps in {num_pairs:,} state-action pairs; collect more steps, or "
        "pass unseen='missing', which leaves each state the actions that were recorded in it."
    )


def mean_rewards(
    row: NDArray[np.integer],
    reward: NDArray[np.floating],
    num_rows: int,
    probability: NDArray[np.floating] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the mean reward of each row, and whether the rewards of its outcomes differ.

    Rows whose rewards are all equal get exactly that reward, and rows without outcomes 0.

    Args:
        row: (n,) the row of each outcome.
        reward: (n,) the reward of each outcome.
        num_rows: the number of rows.
        probability: (n,) the weight of each outcome; None weighs them equally, and their order
            does not matter.

    Returns:
        The means and whether rewards differ, both (num_rows,).

    >>> mean, differs = mean_rewards(np.array([0, 0, 0, 2, 2]), np.array([0.1, 0.1, 0.1, 1, 2]), 3)
    >>> mean.tolist(), differs.tolist()
    ([0.1, 0.0, 1.5], [False, False, True])
    """
    lowest, highest = np.full(num_rows, np.inf), np.full(num_rows, -np.inf)
    with np.errstate(invalid="ignore"):  # MDP(...) rejects what is not a number
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

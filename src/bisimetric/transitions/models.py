"""The MDP that transitions tell of: shares of successors, means of rewards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.mdp.rewards import mean_rewards
from bisimetric.memory import require_memory
from bisimetric.transitions.checks import END

if TYPE_CHECKING:
    from bisimetric.transitions import Transitions

UNSEEN = ("refuse", "lacking")
ENTRY = 100
"""Bytes of memory that a state and action need while the MDP is made."""


def empirical(steps: Transitions, discount: float, unseen: str) -> MDP:
    """The MDP of `Transitions.to_mdp`."""
    if unseen not in UNSEEN:
        raise InputError(f"Transitions: unseen is {unseen!r} and must be refuse or lacking.")
    if steps.states is None or steps.next_states is None or steps.num_states is None:
        raise InputError(
            f"Transitions: observations {steps.observations.shape[1:]} are no ids of states, which "
            "an MDP needs; give states=... and next_states=..., a whole number a step."
        )
    if steps.num_actions is None:
        raise InputError(
            f"Transitions: actions are continuous, {steps.actions.shape[1:]}, and an MDP has "
            "finitely many; number them from 0."
        )
    states, actions, end = steps.num_states, steps.num_actions, steps.end
    size = states if end is None else states + 1
    require_memory(
        f"Transitions.to_mdp: {size:,} states and {actions} actions need",
        ENTRY * size * actions,
        "number the states from 0 without gaps",
    )
    row = steps.states * actions + steps.actions
    taken = np.zeros((size, actions), np.bool_)
    taken.ravel()[row] = True
    stays: NDArray[np.bool_] = ~np.logical_or.reduce(taken, axis=1)
    alive = ~stays
    alive[steps.next_states[~steps.terminated]] = True
    gaps = alive[:, None] & ~taken
    if unseen == "refuse" and gaps.any():
        raise InputError(_unseen(steps, gaps, int(alive.sum()) * actions))
    return MDP(
        _shares(row, steps.successors, stays, actions),
        mean_rewards(row, steps.rewards, size * actions)[0].reshape(size, actions),
        discount,
        actions=steps.action_names,
        available=taken | stays[:, None],
        **described(steps.names, steps.positions, end),
    )


def _shares(
    row: NDArray[np.int64], successors: NDArray[np.int64], stays: NDArray[np.bool_], actions: int
) -> sparse.csr_array:
    """P (S * A, S): of each row the shares of its successors, or a step on the spot."""
    size = len(stays)
    shape = (size * actions, size)
    counts = sparse.csr_array((np.ones(len(row)), (row, successors)), shape)
    # A count divided by the total, so that equal counts of equal totals are equal shares.
    totals = np.bincount(row, minlength=shape[0])
    counts.data /= np.repeat(totals, np.diff(counts.indptr))
    spot = np.repeat(np.flatnonzero(stays), actions)
    at = np.flatnonzero(np.repeat(stays, actions))
    return sparse.csr_array(counts + sparse.csr_array((np.ones(len(at)), (at, spot)), shape))


def described(
    names: tuple[str, ...] | None, positions: NDArray[np.float64] | None, end: int | None
) -> dict[str, Any]:
    """Names and positions of an MDP, the end included: below the map, in the middle."""
    if end is None:
        return {"names": names, "positions": positions}
    names = tuple(map(str, range(end))) if names is None else names
    if positions is not None:
        row, column = positions.T
        positions = np.vstack([positions, [row.max() + 2, (column.min() + column.max()) // 2]])
    return {"names": (*names, END), "positions": positions}


def _unseen(steps: Transitions, gaps: NDArray[np.bool_], pairs: int) -> str:
    s, a = map(int, np.argwhere(gaps)[0])
    state = str(s) if steps.names is None else steps.names[s]
    action = str(a) if steps.action_names is None else steps.action_names[a]
    return (
        f"Transitions: action {action} was never taken in state {state}, one of "
        f"{int(gaps.sum()):,} gaps in {pairs:,} states and actions; collect more steps, or say "
        "unseen='lacking', which leaves each state the actions that were seen in it."
    )

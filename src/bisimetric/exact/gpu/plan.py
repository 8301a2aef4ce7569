"""The order in which a sweep on a GPU computes states and their actions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray


class SweepPlan(NamedTuple):
    """The order in which a sweep computes states and their actions.

    Attributes:
        order: (S,) the states, int32.
        visits: (S, A, 2) per state of `order` and action: the row of the successor, and the action;
            uint32.
    """

    order: Any
    visits: Any


def plan_sweep(successor: NDArray[np.integer]) -> SweepPlan:
    """Order states and their actions such that neighbours share the row of a successor.

    The last action of a state then leads to the same successor as the first action of the state
    after it, where possible, and the kernel reads that row once.

    Args:
        successor: (A, S), the row of each successor among those that the kernel reads.

    Returns:
        The order, and the visits to rows.

    >>> plan = plan_sweep(np.array([[0, 1, 2], [1, 2, 0]]))
    >>> plan.order.tolist(), plan.visits[:, :, 0].tolist()
    ([0, 2, 1], [[1, 0], [0, 2], [2, 1]])
    """
    num_actions, num_states = successor.shape
    rows = np.ascontiguousarray(successor.T, np.int64)
    # The pairs s * A + a by their successor, for each of which `starts` has the first.
    pairs = np.argsort(rows, axis=None, kind="stable")
    starts = np.searchsorted(rows.ravel()[pairs], np.arange(int(rows.max()) + 2))
    order = np.empty(num_states, np.int32)
    actions = np.tile(np.arange(num_actions, dtype=np.int64), (num_states, 1))
    _link_states(rows, pairs, starts, order, actions)
    visits = np.stack([np.take_along_axis(rows[order], actions, axis=1), actions], axis=2)
    return SweepPlan(order, visits.astype(np.uint32))


@njit(cache=True)
def _link_states(rows, pairs, starts, order, actions):  # type: ignore[no-untyped-def]
    """Fill the order of states, and that of the actions of each, greedily."""
    num_states, num_actions = rows.shape
    is_placed = np.zeros(num_states, np.bool_)
    num_tried = starts[:-1].copy()
    s, entry, lowest = 0, -1, 0
    for i in range(num_states):
        if s < 0:
            while is_placed[lowest]:
                lowest += 1
            s, entry = lowest, -1
        order[i], is_placed[s] = s, True
        following, exit_action, next_entry = -1, -1, -1
        for a in range(num_actions):
            if a == entry and num_actions > 1:
                continue
            row = rows[s, a]
            while num_tried[row] < starts[row + 1]:
                pair = pairs[num_tried[row]]
                if not is_placed[pair // num_actions]:
                    following, exit_action = pair // num_actions, a
                    next_entry = pair % num_actions
                    break
                num_tried[row] += 1
            if following >= 0:
                break
        if entry > 0:
            actions[i, 0], actions[i, entry] = entry, 0
        if exit_action >= 0:
            for j in range(num_actions):
                if actions[i, j] == exit_action:
                    actions[i, j], actions[i, -1] = actions[i, -1], exit_action
                    break
        s, entry = following, next_entry

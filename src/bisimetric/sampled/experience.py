"""What data says of a deterministic MDP: each state and action once."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.memory import require_memory
from bisimetric.sampled.known import TransitionTable, table_from_columns
from bisimetric.transitions.models import describe_states

TERMINAL = -1
"""The end of an episode, until the number of states is known."""

COLUMNS = ("group", "action", "state", "successor", "reward", "weight", "step")
"""The fields with one row a transition."""


@dataclasses.dataclass(frozen=True, eq=False)
class DistinctTransitions:
    """Distinct transitions of data, in the order in which they were first seen.

    Attributes:
        group: (n,), the action; for d^pi 0.
        action: (n,), the action that was taken; 0 where actions are continuous.
        state, successor: (n,) ids, END for the end.
        reward: (n,)
        weight: (n,), how often each is drawn, relative to the others.
        step: (n,), when it was first seen.
        steps: how many transitions there were.
        living: how many ids of states there are, without the end.
        groups: how many groups there are.
        names: of the states, by name of a field: `names`, `actions` and `positions` of an MDP.
    """

    group: NDArray[np.int64]
    action: NDArray[np.int64]
    state: NDArray[np.int64]
    successor: NDArray[np.int64]
    reward: NDArray[np.float64]
    weight: NDArray[np.float64]
    step: NDArray[np.int64]
    num_steps: int
    num_states: int
    num_groups: int
    annotations: dict[str, Any]

    @property
    def has_terminal(self) -> bool:
        return bool((self.successor == TERMINAL).any())

    @property
    def visited(self) -> NDArray[np.bool_]:
        """(states,), whether a state was left, or entered other than by ending; the end is."""
        lived = np.zeros(self.num_states + self.has_terminal, dtype=np.bool_)
        lived[self.state] = True
        lived[self.successor[self.successor != TERMINAL]] = True
        lived[self.num_states :] = True
        return lived


def require_table_memory(kind: str, num_states: int, num_groups: int) -> None:
    """Refuses, before anything is allocated, what the free memory cannot hold."""
    require_memory(
        f"sampled.{kind}: {num_states:,} states need",
        (2 * 8 + 1 + -(-num_groups // 8)) * float(num_states) ** 2 + 40.0 * num_states * num_groups,
        "number the states from 0 without gaps, or take fewer, such as bisimetric.relation's "
        "classes",
    )


def table_from_data(kind: str, data: DistinctTransitions, *, streaming: bool) -> TransitionTable:
    """Experience as the kernels read it, the end with a step on the spot in each group.

    A data set in which no two states can be compared is refused; a stream may bring more.
    """
    living, groups, ends = data.num_states, data.num_groups, data.has_terminal
    group, state = data.group, data.state
    shared = streaming or np.bincount(group).max() > 1
    if kind == "bisimulation" and not shared and len(np.unique(state)) > 1:
        raise InputError(
            "sampled.bisimulation: no two states took the same action, so that no pair can be "
            "compared; collect more, or use sampled.on_policy."
        )
    successor = np.where(data.successor == TERMINAL, living, data.successor)
    reward, weight = data.reward, data.weight
    if ends:
        # Nobody records the steps of an end: each is drawn as often as others of its action.
        total = np.bincount(group, weights=weight, minlength=groups)
        mean = total / np.maximum(np.bincount(group, minlength=groups), 1)
        group = np.concatenate([group, np.arange(groups)])
        state, successor, reward, weight = (
            np.concatenate([column, np.broadcast_to(filler, groups)])
            for column, filler in (
                (state, living),
                (successor, living),
                (reward, 0),
                (weight, mean),
            )
        )
    end = living if ends else None
    return table_from_columns(
        group, state, successor, reward, weight, living + ends, groups, end=end
    )


def mdp_from_data(data: DistinctTransitions, table: TransitionTable, discount: float) -> MDP:
    """What is known as an MDP: actions that were not seen are lacking; see `MDP.available`.

    A state that was never left stays on the spot, for nothing.
    """
    states, rows = table.num_states, table.rows
    next_state = np.tile(np.arange(states)[:, None], table.num_groups)
    rewards = np.zeros((states, table.num_groups))
    available = np.zeros((states, table.num_groups), dtype=np.bool_)
    next_state[rows.state, rows.group] = rows.successor
    rewards[rows.state, rows.group] = rows.reward
    available[rows.state, rows.group] = True
    available[~available.any(axis=1)] = True
    names = data.annotations
    about = describe_states(names["names"], names["positions"], table.terminal)
    return MDP.deterministic(
        next_state,
        rewards,
        discount=discount,
        available=available,
        actions=names["actions"] if table.num_groups == len(names["actions"] or ()) else None,
        **about,
    )

"""What data says of a deterministic MDP: each state and action once."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.memory import require_memory
from bisimetric.sampled.known import Known, sorted_rows
from bisimetric.transitions.models import described

END = -1
"""The end of an episode, until the number of states is known."""

COLUMNS = ("group", "action", "state", "successor", "reward", "weight", "step")
"""The fields with one row a transition."""


@dataclasses.dataclass(frozen=True, eq=False)
class Experience:
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
    steps: int
    living: int
    groups: int
    names: dict[str, Any]

    @property
    def ends(self) -> bool:
        return bool((self.successor == END).any())

    @property
    def lived(self) -> NDArray[np.bool_]:
        """(states,), whether a state was left, or entered other than by ending; the end is."""
        lived = np.zeros(self.living + self.ends, dtype=np.bool_)
        lived[self.state] = True
        lived[self.successor[self.successor != END]] = True
        lived[self.living :] = True
        return lived


def require_tables(verb: str, states: int, groups: int) -> None:
    """Refuses, before anything is allocated, what the free memory cannot hold."""
    require_memory(
        f"sampled.{verb}: {states:,} states need",
        (2 * 8 + 1 + -(-groups // 8)) * float(states) ** 2 + 40.0 * states * groups,
        "number the states from 0 without gaps, or take fewer, such as bisimetric.relation's "
        "classes",
    )


def known_of(verb: str, experience: Experience, *, streaming: bool) -> Known:
    """Experience as the kernels read it, the end with a step on the spot in each group.

    A data set in which no two states can be compared is refused; a stream may bring more.
    """
    living, groups, ends = experience.living, experience.groups, experience.ends
    group, state = experience.group, experience.state
    shared = streaming or np.bincount(group).max() > 1
    if verb == "bisimulation" and not shared and len(np.unique(state)) > 1:
        raise InputError(
            "sampled.bisimulation: no two states took the same action, so that no pair can be "
            "compared; collect more, or use sampled.on_policy."
        )
    successor = np.where(experience.successor == END, living, experience.successor)
    reward, weight = experience.reward, experience.weight
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
    return sorted_rows(group, state, successor, reward, weight, living + ends, groups, end=end)


def model_of(experience: Experience, known: Known, discount: float) -> MDP:
    """What is known as an MDP: actions that were not seen are lacking; see `MDP.available`.

    A state that was never left stays on the spot, for nothing.
    """
    states, rows = known.states, known.rows
    next_state = np.tile(np.arange(states)[:, None], known.groups)
    rewards = np.zeros((states, known.groups))
    available = np.zeros((states, known.groups), dtype=np.bool_)
    next_state[rows.state, rows.group] = rows.successor
    rewards[rows.state, rows.group] = rows.reward
    available[rows.state, rows.group] = True
    available[~available.any(axis=1)] = True
    names = experience.names
    about = described(names["names"], names["positions"], known.end)
    return MDP.deterministic(
        next_state,
        rewards,
        discount=discount,
        available=available,
        actions=names["actions"] if known.groups == len(names["actions"] or ()) else None,
        **about,
    )

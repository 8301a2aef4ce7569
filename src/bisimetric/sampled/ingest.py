"""Ingest recorded transitions of a deterministic MDP: each state and action once.

Streams are merged with what was seen before; contradicting transitions raise InputError.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric._memory import require_memory
from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.sampled.transition_table import (
    TransitionTable,
    require_valid_weights,
    table_from_columns,
)
from bisimetric.transitions import Transitions
from bisimetric.transitions.empirical_mdp import describe_states

TERMINAL = -1
"""The id of the terminal state until the number of states is known."""

COLUMNS = ("group", "action", "state", "successor", "reward", "weight", "step")
"""The fields with one entry per transition."""


@dataclasses.dataclass(frozen=True, eq=False)
class DistinctTransitions:
    """Distinct transitions of data, in the order in which they were first seen.

    Attributes:
        group: (n,), the action; for d^pi 0.
        action: (n,), the action that was taken; 0 where actions are continuous.
        state: (n,) ids.
        successor: (n,) ids, TERMINAL for the terminal state.
        reward: (n,).
        weight: (n,), relative sampling frequencies.
        step: (n,), the step at which each was first seen.
        num_steps: the number of recorded transitions.
        num_states: the number of state ids, without the terminal state.
        num_groups: the number of groups.
        annotations: `names`, `actions` and `positions` of an MDP, by field.
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
        """(states,), whether a state was exited, or entered without terminating, or is terminal."""
        visited = np.zeros(self.num_states + self.has_terminal, dtype=np.bool_)
        visited[self.state] = True
        visited[self.successor[self.successor != TERMINAL]] = True
        visited[self.num_states :] = True
        return visited


def require_table_memory(kind: str, num_states: int, num_groups: int) -> None:
    """Raise InsufficientMemory, before anything is allocated, if the matrix does not fit."""
    require_memory(
        f"sampled.{kind}: {num_states:,} states need",
        (2 * 8 + 1 + -(-num_groups // 8)) * float(num_states) ** 2 + 40.0 * num_states * num_groups,
        "number the states from 0 without gaps, or use fewer, such as the classes of "
        "bisimetric.relation",
    )


def table_from_data(kind: str, data: DistinctTransitions, *, streaming: bool) -> TransitionTable:
    """Build the table of recorded transitions; the terminal state gets a self-loop per group.

    Raises InputError if no two states can be compared, except for a stream, which may bring more.
    """
    terminal, groups = data.num_states, data.num_groups
    group, state = data.group, data.state
    shared = streaming or np.bincount(group).max() > 1
    if kind == "bisimulation" and not shared and len(np.unique(state)) > 1:
        raise InputError(
            "sampled.bisimulation: no two states took the same action, so no pair can be compared; "
            "collect more, or use sampled.on_policy."
        )
    successor = np.where(data.successor == TERMINAL, terminal, data.successor)
    reward, weight = data.reward, data.weight
    if data.has_terminal:
        # Self-loops are not recorded: each gets the mean weight of its group.
        total = np.bincount(group, weights=weight, minlength=groups)
        mean = total / np.maximum(np.bincount(group, minlength=groups), 1)
        group = np.concatenate([group, np.arange(groups)])
        state, successor, reward, weight = (
            np.concatenate([column, np.broadcast_to(filler, groups)])
            for column, filler in (
                (state, terminal),
                (successor, terminal),
                (reward, 0),
                (weight, mean),
            )
        )
    return table_from_columns(
        group,
        state,
        successor,
        reward,
        weight,
        data.num_states + data.has_terminal,
        groups,
        terminal=terminal if data.has_terminal else None,
    )


def mdp_from_data(data: DistinctTransitions, table: TransitionTable, discount: float) -> MDP:
    """Build the known part of the MDP: unseen actions are unavailable (see `MDP.available`).

    A state that was never exited gets self-loops with reward 0.
    """
    states, rows = table.num_states, table.rows
    next_state = np.tile(np.arange(states)[:, None], table.num_groups)
    rewards = np.zeros((states, table.num_groups))
    available = np.zeros((states, table.num_groups), dtype=np.bool_)
    next_state[rows.state, rows.group] = rows.successor
    rewards[rows.state, rows.group] = rows.reward
    available[rows.state, rows.group] = True
    available[~available.any(axis=1)] = True
    annotations = data.annotations
    fields = describe_states(annotations["names"], annotations["positions"], table.terminal)
    actions = annotations["actions"]
    return MDP.deterministic(
        next_state,
        rewards,
        discount=discount,
        available=available,
        actions=actions if table.num_groups == len(actions or ()) else None,
        **fields,
    )


def ingest_transitions(
    kind: str,
    transitions: Transitions,
    policy: NDArray[Any] | None = None,
    weights: ArrayLike | None = None,
    previous: DistinctTransitions | None = None,
    *,
    streaming: bool = False,
) -> tuple[DistinctTransitions, NDArray[np.int64]]:
    """Merge transitions with the previous ones, and return which distinct one each of them is.

    For d^pi, steps that do not take the action of `policy` (S,) are left out; none may remain. The
    policy of a stream may include states that are not seen yet.
    """
    if transitions.states is None:
        raise InputError(
            f"sampled.{kind}: these transitions have observations and no state ids; pass states= "
            "and next_states= to Transitions, or collect them with state_of=."
        )
    new = _read_columns(kind, transitions, weights)
    require_table_memory(kind, new.num_states + 1, new.num_groups)
    if previous is not None:
        new = _renumber_states(kind, new, previous)
    new = _select_policy_steps(new, policy, transitions, streaming)
    arrived = len(new.state)
    if previous is not None:
        new = _concatenate(previous, new)
    first, member = _find_first_rows(new)
    _reject_contradictions(kind, new, first[member])
    merged = {name: getattr(new, name)[first] for name in COLUMNS}
    if weights is not None:
        merged["weight"] = np.bincount(member, weights=new.weight, minlength=len(first))
    return dataclasses.replace(new, **merged), member[len(member) - arrived :]


def _read_columns(
    kind: str, transitions: Transitions, weights: ArrayLike | None
) -> DistinctTransitions:
    """Return all steps in their order, duplicates included."""
    discrete = transitions.actions.ndim == 1
    if kind == "bisimulation" and not discrete:
        raise InputError(
            "sampled.bisimulation: actions are continuous and must be discrete; use "
            "sampled.on_policy."
        )
    n = len(transitions)
    action = transitions.actions if discrete else np.zeros(n, np.int64)
    by_action = kind == "bisimulation"
    weight = np.ones(n)
    if weights is not None:
        try:
            weight = np.asarray(weights, dtype=np.float64)
        except (TypeError, ValueError):
            weight = np.empty(0)
        if weight.shape != (n,):
            raise InputError(
                f"sampled.{kind}: weights have shape {weight.shape} and must be ({n},) numbers, "
                "one per transition."
            )
        require_valid_weights(kind, weight)
    return DistinctTransitions(
        group=action if by_action else np.zeros(n, np.int64),
        action=action,
        state=np.asarray(transitions.states),
        successor=np.where(transitions.terminated, TERMINAL, np.asarray(transitions.next_states)),
        reward=transitions.rewards,
        weight=weight,
        step=np.arange(n),
        num_steps=n,
        num_states=int(transitions.num_states or 0),
        num_groups=int(transitions.num_actions or 1) if by_action else 1,
        annotations={
            "names": transitions.names,
            "actions": transitions.action_names,
            "positions": transitions.positions,
        },
    )


def _select_policy_steps(
    new: DistinctTransitions, policy: NDArray[Any] | None, transitions: Transitions, streaming: bool
) -> DistinctTransitions:
    """Return the steps that follow the policy."""
    if policy is None:
        return new
    if transitions.actions.ndim > 1:
        raise InputError(
            "sampled.on_policy: policy selects steps by their action, and these actions are "
            "continuous; omit it if all data follow one policy."
        )
    spare = len(policy) - new.num_states if policy.ndim == 1 else -1
    if policy.dtype.kind not in "iu" or not (spare == 0 or (streaming and spare > 0)):
        raise InputError(
            f"sampled.on_policy: policy is {policy.dtype} of shape {policy.shape} and must be "
            f"({new.num_states},) actions, one per state."
        )
    selected = new.action == policy[new.state]
    return dataclasses.replace(new, **{name: getattr(new, name)[selected] for name in COLUMNS})


def _concatenate(previous: DistinctTransitions, new: DistinctTransitions) -> DistinctTransitions:
    """Concatenate the columns of both, duplicates included."""
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(previous, name), getattr(new, name)]) for name in COLUMNS
    }
    columns["step"][len(previous.step) :] += previous.num_steps
    return dataclasses.replace(
        new,
        **columns,
        num_steps=previous.num_steps + new.num_steps,
        num_states=max(previous.num_states, new.num_states),
        num_groups=max(previous.num_groups, new.num_groups),
    )


def _renumber_states(
    kind: str, new: DistinctTransitions, previous: DistinctTransitions
) -> DistinctTransitions:
    """Renumber the states of `new` by the ids of `previous`, if both have names."""
    new_names, names = new.annotations["names"], previous.annotations["names"]
    actions = new.annotations["actions"], previous.annotations["actions"]
    if None not in actions and actions[0] != actions[1]:
        raise InputError(
            f"sampled.{kind}: actions are named {', '.join(actions[1])} and then "
            f"{', '.join(actions[0])}; use the same names in the whole stream."
        )
    annotations = {**new.annotations, "actions": actions[0] or actions[1]}
    if (new_names is None) != (names is None):
        named, unnamed = (new, previous) if names is None else (previous, new)
        if unnamed.num_states > named.num_states:
            raise InputError(
                f"sampled.{kind}: {named.num_states} states have names and "
                f"{unnamed.num_states - named.num_states} more have none; name all of them, or "
                "none."
            )
        annotations |= {name: named.annotations[name] for name in ("names", "positions")}
        return dataclasses.replace(new, num_states=named.num_states, annotations=annotations)
    if new_names is None or names is None or new_names[: len(names)] == names:
        if new.num_states < previous.num_states:
            annotations |= {name: previous.annotations[name] for name in ("names", "positions")}
        return dataclasses.replace(new, annotations=annotations)
    union = list(dict.fromkeys([*names, *new_names]))
    index = {name: i for i, name in enumerate(union)}
    ids = np.array([index[name] for name in new_names])
    positions = None
    if new.annotations["positions"] is not None and previous.annotations["positions"] is not None:
        positions = np.zeros((len(union), 2))
        positions[ids] = new.annotations["positions"]
        positions[: len(names)] = previous.annotations["positions"]
    return dataclasses.replace(
        new,
        state=ids[new.state],
        successor=np.where(new.successor == TERMINAL, TERMINAL, ids[new.successor]),
        num_states=len(union),
        annotations={**annotations, "names": tuple(union), "positions": positions},
    )


def _find_first_rows(new: DistinctTransitions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first row of each group and state, in order, and the one that each row repeats."""
    code = new.group * max(new.num_states, 1) + new.state
    _, first, member = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[member.ravel()]


def _reject_contradictions(
    kind: str, new: DistinctTransitions, first_rows: NDArray[np.int64]
) -> None:
    """Raise InputError if a row differs from the first row of its state and action."""
    differs = new.successor != new.successor[first_rows]
    contradictions = np.flatnonzero(differs | (new.reward != new.reward[first_rows]))
    if not len(contradictions):
        return
    later = int(contradictions[0])
    earlier = int(first_rows[later])
    state = _describe_state(new, int(new.state[later]))
    action = _action_name(new, later)
    model = f"use exact.{kind}(transitions.to_mdp()), which estimates probabilities"
    if kind == "on_policy":
        model = "use exact.on_policy(transitions.to_mdp(), policy) with its probabilities (S, A)"
    if kind == "on_policy" and new.action[later] != new.action[earlier]:
        raise InputError(
            f"takes action {_action_name(new, earlier)} (step {new.step[earlier]}) and action "
            f"{action} (step {new.step[later]}) in {state} and must follow a deterministic policy",
            caller="sampled.on_policy",
            argument="source",
            remedy=f"select the steps of one policy, or {model}",
        )
    if differs[later]:
        outcomes = "led to " + " and to ".join(
            f"{_describe_state(new, int(new.successor[row]))} (step {new.step[row]})"
            for row in (earlier, later)
        )
    else:
        outcomes = " and ".join(
            f"paid {float(new.reward[row])!r} (step {new.step[row]})" for row in (earlier, later)
        )
    raise InputError(
        f"must be deterministic, and {state} under action {action} {outcomes}",
        caller=f"sampled.{kind}",
        argument="source",
        remedy=model,
    )


def _describe_state(new: DistinctTransitions, state: int) -> str:
    if state == TERMINAL:
        return "the terminal state"
    names = new.annotations["names"]
    return f"state {state if names is None else names[state]}"


def _action_name(new: DistinctTransitions, row: int) -> str:
    names, action = new.annotations["actions"], int(new.action[row])
    return str(action) if names is None or action >= len(names) else str(names[action])

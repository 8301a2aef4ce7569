"""What data says of a deterministic MDP: each state and action once.

Reading data: the steps that count, joined to what was seen before, contradictions refused.
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


def ingest_transitions(
    kind: str,
    transitions: Transitions,
    policy: NDArray[Any] | None = None,
    weights: ArrayLike | None = None,
    previous: DistinctTransitions | None = None,
    *,
    streaming: bool = False,
) -> tuple[DistinctTransitions, NDArray[np.int64]]:
    """What is known after some transitions, and which of it each of them is, (n,) in order.

    For d^pi, `policy` (S,) leaves out the steps that take another action; there may be none. That
    of a stream may know of states that are still to come.
    """
    if transitions.states is None:
        raise InputError(
            f"sampled.{kind}: these transitions have observations and no ids of states; give "
            "Transitions states= and next_states=, or collect them with state_of=."
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
    """All steps, as they came."""
    numbered = transitions.actions.ndim == 1
    if kind == "bisimulation" and not numbered:
        raise InputError(
            "sampled.bisimulation: actions are not numbered, so that no two are the same; use "
            "sampled.on_policy."
        )
    n = len(transitions)
    action = transitions.actions if numbered else np.zeros(n, np.int64)
    compared = kind == "bisimulation"
    weight = np.ones(n)
    if weights is not None:
        try:
            weight = np.asarray(weights, dtype=np.float64)
        except (TypeError, ValueError):
            weight = np.empty(0)
        if weight.shape != (n,):
            raise InputError(
                f"sampled.{kind}: weights have shape {weight.shape} and must be ({n},) numbers, "
                "one a transition."
            )
        require_valid_weights(kind, weight)
    return DistinctTransitions(
        group=action if compared else np.zeros(n, np.int64),
        action=action,
        state=np.asarray(transitions.states),
        successor=np.where(transitions.terminated, TERMINAL, np.asarray(transitions.next_states)),
        reward=transitions.rewards,
        weight=weight,
        step=np.arange(n),
        num_steps=n,
        num_states=int(transitions.num_states or 0),
        num_groups=int(transitions.num_actions or 1) if compared else 1,
        annotations={
            "names": transitions.names,
            "actions": transitions.action_names,
            "positions": transitions.positions,
        },
    )


def _select_policy_steps(
    new: DistinctTransitions, policy: NDArray[Any] | None, transitions: Transitions, streaming: bool
) -> DistinctTransitions:
    """The steps that follow the policy."""
    if policy is None:
        return new
    if transitions.actions.ndim > 1:
        raise InputError(
            "sampled.on_policy: a policy picks steps by their action, and these are not numbered; "
            "leave it out where one policy made the data."
        )
    spare = len(policy) - new.num_states if policy.ndim == 1 else -1
    if policy.dtype.kind not in "iu" or not (spare == 0 or (streaming and spare > 0)):
        raise InputError(
            f"sampled.on_policy: policy is {policy.dtype} of shape {policy.shape} and must be "
            f"({new.num_states},) actions, one a state."
        )
    kept = new.action == policy[new.state]
    return dataclasses.replace(new, **{name: getattr(new, name)[kept] for name in COLUMNS})


def _concatenate(previous: DistinctTransitions, new: DistinctTransitions) -> DistinctTransitions:
    """Both, one after the other, not yet merged."""
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
    """New experience by the ids of what was known before, where both have names."""
    theirs, ours = new.annotations["names"], previous.annotations["names"]
    actions = new.annotations["actions"], previous.annotations["actions"]
    if None not in actions and actions[0] != actions[1]:
        raise InputError(
            f"sampled.{kind}: actions are named {', '.join(actions[1])} and then "
            f"{', '.join(actions[0])}; name them alike in all parts."
        )
    named = {**new.annotations, "actions": actions[0] or actions[1]}
    if (theirs is None) != (ours is None):
        with_names, without = (new, previous) if ours is None else (previous, new)
        if without.num_states > with_names.num_states:
            raise InputError(
                f"sampled.{kind}: {with_names.num_states} states have names and "
                f"{without.num_states - with_names.num_states} more came without; name all of them, or "
                "none."
            )
        called = with_names.annotations
        named |= {"names": called["names"], "positions": called["positions"]}
        return dataclasses.replace(new, num_states=with_names.num_states, annotations=named)
    if theirs is None or ours is None or theirs[: len(ours)] == ours:
        if new.num_states < previous.num_states:
            named |= {name: previous.annotations[name] for name in ("names", "positions")}
        return dataclasses.replace(new, annotations=named)
    names = list(dict.fromkeys([*ours, *theirs]))
    index = {name: at for at, name in enumerate(names)}
    to = np.array([index[name] for name in theirs])
    places = None
    if new.annotations["positions"] is not None and previous.annotations["positions"] is not None:
        places = np.zeros((len(names), 2))
        places[to] = new.annotations["positions"]
        places[: len(ours)] = previous.annotations["positions"]
    return dataclasses.replace(
        new,
        state=to[new.state],
        successor=np.where(new.successor == TERMINAL, TERMINAL, to[new.successor]),
        num_states=len(names),
        annotations={**named, "names": tuple(names), "positions": places},
    )


def _find_first_rows(new: DistinctTransitions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of each group and state, in the order of rows, and which one each row is of."""
    code = new.group * max(new.num_states, 1) + new.state
    _, first, member = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[member.ravel()]


def _reject_contradictions(
    kind: str, new: DistinctTransitions, first_rows: NDArray[np.int64]
) -> None:
    """Refuses data in which one state and action have two outcomes; `first` (n,) is the other."""
    elsewhere = new.successor != new.successor[first_rows]
    wrong = np.flatnonzero(elsewhere | (new.reward != new.reward[first_rows]))
    if not len(wrong):
        return
    later = int(wrong[0])
    earlier = int(first_rows[later])
    where = _state_name(new, int(new.state[later]))
    action = _action_name(new, later)
    model = f"use exact.{kind}(transitions.to_mdp()), which counts how often each happens"
    if kind == "on_policy":
        model = "use exact.on_policy(transitions.to_mdp(), policy) with its probabilities (S, A)"
    if kind == "on_policy" and new.action[later] != new.action[earlier]:
        raise InputError(
            f"sampled.on_policy: state {where} takes action {_action_name(new, earlier)} (step "
            f"{new.step[earlier]}) and action {action} (step {new.step[later]}), and "
            f"sampled pairs need one that takes one; pass policy= to pick its steps, or {model}."
        )
    if elsewhere[later]:
        what = "led to " + " and to ".join(
            f"state {_state_name(new, int(new.successor[row]))} (step {new.step[row]})"
            for row in (earlier, later)
        )
    else:
        what = " and ".join(
            f"paid {float(new.reward[row])!r} (step {new.step[row]})" for row in (earlier, later)
        )
    raise InputError(
        f"sampled.{kind}: state {where} and action {action} {what}, and sampled pairs "
        f"need a deterministic MDP; {model}."
    )


def _state_name(new: DistinctTransitions, state: int) -> str:
    if state == TERMINAL:
        return "end"
    names = new.annotations["names"]
    return str(state) if names is None else names[state]


def _action_name(new: DistinctTransitions, row: int) -> str:
    names, action = new.annotations["actions"], int(new.action[row])
    return str(action) if names is None or action >= len(names) else str(names[action])

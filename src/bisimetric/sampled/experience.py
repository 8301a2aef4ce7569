"""What data says of a deterministic MDP: each state and action once, contradictions refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.mdp import MDP
from bisimetric.sampled.known import Known, refuse_bad_weights, sorted_rows
from bisimetric.transitions import Transitions
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


def gathered(
    verb: str,
    transitions: Transitions,
    policy: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    before: Experience | None = None,
) -> tuple[Experience, NDArray[np.int64]]:
    """What is known after some transitions, and which of it each of them is, (n,) in order.

    For d^pi, `policy` (S,) leaves out the steps that take another action.
    """
    if transitions.states is None:
        raise InputError(
            f"sampled.{verb}: these transitions have observations and no ids of states; give "
            "Transitions states= and next_states=, or collect them with state_of=."
        )
    new = _read(verb, transitions, policy, weights)
    arrived = len(new.state)
    if before is not None:
        new = _after(before, new)
    first, member = _first_of_each(new)
    _refuse_contradiction(verb, new, first[member])
    merged = {name: getattr(new, name)[first] for name in COLUMNS}
    if weights is not None:
        merged["weight"] = np.bincount(member, weights=new.weight)
    return dataclasses.replace(new, **merged), member[len(member) - arrived :]


def known_of(verb: str, experience: Experience) -> Known:
    """Experience as the kernels read it, the end with a step on the spot in each group."""
    living, groups, ends = experience.living, experience.groups, experience.ends
    group, state = experience.group, experience.state
    shared = np.bincount(group).max() > 1
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


def _kept(transitions: Transitions, policy: ArrayLike | None) -> NDArray[np.bool_]:
    """The steps (n,) that follow the policy."""
    if policy is None:
        return np.ones(len(transitions), dtype=np.bool_)
    chosen, states = np.asarray(policy), transitions.states
    if chosen.shape != (transitions.num_states,) or chosen.dtype.kind not in "iu":
        raise InputError(
            f"sampled.on_policy: policy is {chosen.dtype} of shape {chosen.shape} and must be "
            f"({transitions.num_states},) actions, one a state."
        )
    if transitions.actions.ndim > 1:
        raise InputError(
            "sampled.on_policy: a policy picks steps by their action, and these are not numbered; "
            "leave it out where one policy made the data."
        )
    kept: NDArray[np.bool_] = transitions.actions == chosen[states]
    if not kept.any():
        raise InputError("sampled.on_policy: no step of the data takes the action of the policy.")
    return kept


def _read(
    verb: str, transitions: Transitions, policy: ArrayLike | None, weights: ArrayLike | None
) -> Experience:
    """The steps that count, as they came."""
    numbered = transitions.actions.ndim == 1
    if verb == "bisimulation" and not numbered:
        raise InputError(
            "sampled.bisimulation: actions are not numbered, so that no two are the same; use "
            "sampled.on_policy."
        )
    kept = np.flatnonzero(_kept(transitions, policy))
    n = len(transitions)
    action = transitions.actions if numbered else np.zeros(n, np.int64)
    compared = verb == "bisimulation"
    weight = np.ones(n)
    if weights is not None:
        weight = np.asarray(weights, dtype=np.float64)
        if weight.shape != (n,):
            raise InputError(
                f"sampled.{verb}: weights have shape {weight.shape} and must be ({n},), one a "
                "transition."
            )
        refuse_bad_weights(verb, weight)
    return Experience(
        group=action[kept] if compared else np.zeros(len(kept), np.int64),
        action=action[kept],
        state=np.asarray(transitions.states)[kept],
        successor=np.where(transitions.terminated, END, np.asarray(transitions.next_states))[kept],
        reward=transitions.rewards[kept],
        weight=weight[kept],
        step=kept,
        steps=n,
        living=int(transitions.num_states or 0),
        groups=int(transitions.num_actions or 1) if compared else 1,
        names={
            "names": transitions.names,
            "actions": transitions.action_names,
            "positions": transitions.positions,
        },
    )


def _after(before: Experience, new: Experience) -> Experience:
    """Both, one after the other, not yet merged; named states are the same by name."""
    new = _renumbered(new, before)
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(before, name), getattr(new, name)]) for name in COLUMNS
    }
    columns["step"][len(before.step) :] += before.steps
    return dataclasses.replace(
        new,
        **columns,
        steps=before.steps + new.steps,
        living=max(before.living, new.living),
        groups=max(before.groups, new.groups),
    )


def _renumbered(new: Experience, before: Experience) -> Experience:
    """New experience by the ids of what was known before, where both have names."""
    theirs, ours = new.names["names"], before.names["names"]
    if theirs is None or ours is None:
        if theirs is not None or ours is None:
            return new
        if new.living > before.living:
            raise InputError(
                f"sampled: {before.living} states have names and {new.living - before.living} more "
                "came without; name all of them, or none."
            )
        return dataclasses.replace(new, names={**new.names, **_kept_names(before)})
    if theirs[: len(ours)] == ours:
        return new
    names = list(dict.fromkeys([*ours, *theirs]))
    index = {name: at for at, name in enumerate(names)}
    to = np.array([index[name] for name in theirs])
    places = None
    if new.names["positions"] is not None and before.names["positions"] is not None:
        places = np.zeros((len(names), 2))
        places[to] = new.names["positions"]
        places[: len(ours)] = before.names["positions"]
    return dataclasses.replace(
        new,
        state=to[new.state],
        successor=np.where(new.successor == END, END, to[new.successor]),
        living=len(names),
        names={**new.names, "names": tuple(names), "positions": places},
    )


def _kept_names(before: Experience) -> dict[str, Any]:
    return {name: before.names[name] for name in ("names", "positions")}


def _first_of_each(new: Experience) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of each group and state, in the order of rows, and which one each row is of."""
    code = new.group * (int(new.state.max()) + 1) + new.state
    _, first, member = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[member.ravel()]


def _refuse_contradiction(verb: str, new: Experience, first: NDArray[np.int64]) -> None:
    """Refuses data in which one state and action have two outcomes; `first` (n,) is the other."""
    elsewhere = new.successor != new.successor[first]
    wrong = np.flatnonzero(elsewhere | (new.reward != new.reward[first]))
    if not len(wrong):
        return
    later = int(wrong[0])
    earlier = int(first[later])
    where = _name(new, int(new.state[later]))
    action = _action(new, later)
    model = f"use exact.{verb}(transitions.to_mdp()), which counts how often each happens"
    if verb == "on_policy":
        model = "use exact.on_policy(transitions.to_mdp(), policy) with its probabilities (S, A)"
    if verb == "on_policy" and new.action[later] != new.action[earlier]:
        raise InputError(
            f"sampled.on_policy: state {where} takes action {_action(new, earlier)} (step "
            f"{new.step[earlier]}) and action {action} (step {new.step[later]}), and "
            f"sampled pairs need one that takes one; pass policy= to pick its steps, or {model}."
        )
    if elsewhere[later]:
        what = "led to " + " and to ".join(
            f"state {_name(new, int(new.successor[row]))} (step {new.step[row]})"
            for row in (earlier, later)
        )
    else:
        what = " and ".join(
            f"paid {float(new.reward[row])!r} (step {new.step[row]})" for row in (earlier, later)
        )
    raise InputError(
        f"sampled.{verb}: state {where} and action {action} {what}, and sampled pairs "
        f"need a deterministic MDP; {model}."
    )


def _name(new: Experience, state: int) -> str:
    if state == END:
        return "end"
    names = new.names["names"]
    return str(state) if names is None else names[state]


def _action(new: Experience, row: int) -> str:
    names, action = new.names["actions"], int(new.action[row])
    return str(action) if names is None else str(names[action])

"""Reading data: the steps that count, joined to what was seen before, contradictions refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.sampled.experience import COLUMNS, END, Experience, require_tables
from bisimetric.sampled.known import refuse_bad_weights
from bisimetric.transitions import Transitions


def gathered(
    verb: str,
    transitions: Transitions,
    policy: NDArray[Any] | None = None,
    weights: ArrayLike | None = None,
    before: Experience | None = None,
    *,
    streaming: bool = False,
) -> tuple[Experience, NDArray[np.int64]]:
    """What is known after some transitions, and which of it each of them is, (n,) in order.

    For d^pi, `policy` (S,) leaves out the steps that take another action; there may be none. That
    of a stream may know of states that are still to come.
    """
    if transitions.states is None:
        raise InputError(
            f"sampled.{verb}: these transitions have observations and no ids of states; give "
            "Transitions states= and next_states=, or collect them with state_of=."
        )
    new = _read(verb, transitions, weights)
    require_tables(verb, new.living + 1, new.groups)
    if before is not None:
        new = _renumbered(verb, new, before)
    new = _followed(new, policy, transitions, streaming)
    arrived = len(new.state)
    if before is not None:
        new = _after(before, new)
    first, member = _first_of_each(new)
    _refuse_contradiction(verb, new, first[member])
    merged = {name: getattr(new, name)[first] for name in COLUMNS}
    if weights is not None:
        merged["weight"] = np.bincount(member, weights=new.weight, minlength=len(first))
    return dataclasses.replace(new, **merged), member[len(member) - arrived :]


def _read(verb: str, transitions: Transitions, weights: ArrayLike | None) -> Experience:
    """All steps, as they came."""
    numbered = transitions.actions.ndim == 1
    if verb == "bisimulation" and not numbered:
        raise InputError(
            "sampled.bisimulation: actions are not numbered, so that no two are the same; use "
            "sampled.on_policy."
        )
    n = len(transitions)
    action = transitions.actions if numbered else np.zeros(n, np.int64)
    compared = verb == "bisimulation"
    weight = np.ones(n)
    if weights is not None:
        try:
            weight = np.asarray(weights, dtype=np.float64)
        except (TypeError, ValueError):
            weight = np.empty(0)
        if weight.shape != (n,):
            raise InputError(
                f"sampled.{verb}: weights have shape {weight.shape} and must be ({n},) numbers, "
                "one a transition."
            )
        refuse_bad_weights(verb, weight)
    return Experience(
        group=action if compared else np.zeros(n, np.int64),
        action=action,
        state=np.asarray(transitions.states),
        successor=np.where(transitions.terminated, END, np.asarray(transitions.next_states)),
        reward=transitions.rewards,
        weight=weight,
        step=np.arange(n),
        steps=n,
        living=int(transitions.num_states or 0),
        groups=int(transitions.num_actions or 1) if compared else 1,
        names={
            "names": transitions.names,
            "actions": transitions.action_names,
            "positions": transitions.positions,
        },
    )


def _followed(
    new: Experience, policy: NDArray[Any] | None, transitions: Transitions, streaming: bool
) -> Experience:
    """The steps that follow the policy."""
    if policy is None:
        return new
    if transitions.actions.ndim > 1:
        raise InputError(
            "sampled.on_policy: a policy picks steps by their action, and these are not numbered; "
            "leave it out where one policy made the data."
        )
    spare = len(policy) - new.living if policy.ndim == 1 else -1
    if policy.dtype.kind not in "iu" or not (spare == 0 or (streaming and spare > 0)):
        raise InputError(
            f"sampled.on_policy: policy is {policy.dtype} of shape {policy.shape} and must be "
            f"({new.living},) actions, one a state."
        )
    kept = new.action == policy[new.state]
    return dataclasses.replace(new, **{name: getattr(new, name)[kept] for name in COLUMNS})


def _after(before: Experience, new: Experience) -> Experience:
    """Both, one after the other, not yet merged."""
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


def _renumbered(verb: str, new: Experience, before: Experience) -> Experience:
    """New experience by the ids of what was known before, where both have names."""
    theirs, ours = new.names["names"], before.names["names"]
    actions = new.names["actions"], before.names["actions"]
    if None not in actions and actions[0] != actions[1]:
        raise InputError(
            f"sampled.{verb}: actions are named {', '.join(actions[1])} and then "
            f"{', '.join(actions[0])}; name them alike in all parts."
        )
    named = {**new.names, "actions": actions[0] or actions[1]}
    if (theirs is None) != (ours is None):
        with_names, without = (new, before) if ours is None else (before, new)
        if without.living > with_names.living:
            raise InputError(
                f"sampled.{verb}: {with_names.living} states have names and "
                f"{without.living - with_names.living} more came without; name all of them, or "
                "none."
            )
        called = with_names.names
        named |= {"names": called["names"], "positions": called["positions"]}
        return dataclasses.replace(new, living=with_names.living, names=named)
    if theirs is None or ours is None or theirs[: len(ours)] == ours:
        if new.living < before.living:
            named |= {name: before.names[name] for name in ("names", "positions")}
        return dataclasses.replace(new, names=named)
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
        names={**named, "names": tuple(names), "positions": places},
    )


def _first_of_each(new: Experience) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first row of each group and state, in the order of rows, and which one each row is of."""
    code = new.group * max(new.living, 1) + new.state
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
    return str(action) if names is None or action >= len(names) else str(names[action])

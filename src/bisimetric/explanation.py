"""Why two states are as far apart as they are: the path whose reward gaps add up to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric.errors import InputError
from bisimetric.mdp import MDP

ENOUGH_STEPS = 10_000
SHOWN_STEPS = 24


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of the two states side by side.

    Attributes:
        states: the pair of state ids before the step.
        actions: the action of each; equal but for lax and on-policy distances.
        gap: abs(R(s, a) - R(t, b)).
        adds: discount^k * gap, what the step adds to the distance.
        leads_to: the pair of state ids after the step.
    """

    states: tuple[int, int]
    actions: tuple[int, int]
    gap: float
    adds: float
    leads_to: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The steps whose gaps add up to d(s, t).

    The path ends in a pair at distance 0, or returns to an earlier pair: then the steps from
    `loop` on repeat for ever. Put together, d(s, t) = `total` to within the distance's error.

    Attributes:
        steps: the path, one step each.
        loop: index of the first step that repeats for ever, or None.
        total: what all steps add, the repetitions included.
        distance: d(s, t) as computed.
        value_gap: abs(V(s) - V(t)), V* or V^pi, which the distance bounds.
    """

    mdp: MDP
    kind: str
    states: tuple[int, int]
    distance: float
    error: float
    steps: tuple[Step, ...]
    loop: int | None
    total: float
    value_gap: float

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def explain(
    mdp: MDP,
    values: NDArray[np.floating],
    error: float,
    kind: str,
    policy: NDArray[Any] | None,
    states: tuple[int, int],
) -> Explanation:
    """Follows, from a pair of states, the choices that the distance makes.

    d~ takes the action with the largest gap + discount * d(successors); d^pi the policy's; d_lax
    the action that the other state answers worst, and its best answer. `policy` is that of an
    on-policy distance, else None.
    """
    if not mdp.is_deterministic:
        raise InputError("explain: the MDP is stochastic; paths exist in deterministic MDPs only.")
    dynamics = mdp if policy is None else mdp.under(policy)
    played = policy if policy is None or policy.ndim == 1 else policy.argmax(axis=1)
    steps: list[Step] = []
    seen: dict[tuple[int, int], int] = {}
    pair, weight = states, 1.0
    while pair not in seen and pair[0] != pair[1] and len(steps) < ENOUGH_STEPS:
        if values[pair] == 0:
            break
        seen[pair] = len(steps)
        s, t = pair
        a, b = _choice(dynamics, values, kind, pair)
        gap = abs(float(dynamics.R[s, a] - dynamics.R[t, b]))
        after = (int(dynamics.next_state[s, a]), int(dynamics.next_state[t, b]))
        actions = (a, b) if played is None else (int(played[s]), int(played[t]))
        steps.append(Step(pair, actions, gap, weight * gap, after))
        pair, weight = after, weight * mdp.discount
    loop = seen.get(pair)
    total = sum(step.adds for step in steps)
    if loop is not None:
        once = sum(step.adds for step in steps[loop:])
        total += once / (1 - mdp.discount ** (len(steps) - loop)) - once
    else:
        total += weight * float(values[pair])
    return Explanation(
        mdp=mdp,
        kind=kind,
        states=states,
        distance=float(values[states]),
        error=error,
        steps=tuple(steps),
        loop=loop,
        total=total,
        value_gap=_value_gap(mdp, policy, states),
    )


def _choice(
    mdp: MDP, values: NDArray[np.floating], kind: str, pair: tuple[int, int]
) -> tuple[int, int]:
    """The two actions that attain F(d)(s, t)."""
    s, t = pair
    gaps = np.abs(mdp.R[s][:, None] - mdp.R[t][None, :])
    ahead = values[np.ix_(mdp.next_state[s], mdp.next_state[t])]
    backup = gaps + mdp.discount * ahead
    if kind != "lax":
        action = int(np.argmax(np.diagonal(backup)))
        return action, action
    first, second = backup.min(axis=1), backup.min(axis=0)
    if first.max() >= second.max():
        action = int(np.argmax(first))
        return action, int(np.argmin(backup[action]))
    answer = int(np.argmax(second))
    return int(np.argmin(backup[:, answer])), answer


def _value_gap(mdp: MDP, policy: NDArray[Any] | None, states: tuple[int, int]) -> float:
    loose = 1e-3 * max(1.0, float(np.ptp(mdp.R))) / (1 - mdp.discount)
    if policy is not None:
        V = planning.policy_values(mdp, policy, tol=loose)
    else:
        V = planning.optimal_values(mdp, tol=loose)
    return abs(float(V.values[states[0]] - V.values[states[1]]))


def _lines(why: Explanation) -> Iterator[str]:
    mdp = why.mdp
    names = [mdp.name(s) for s in why.states]
    title = {"bisimulation": "d~", "on_policy": "d^pi", "lax": "d_lax"}.get(why.kind, why.kind)
    yield (
        f"{title}({names[0]}; {names[1]}) = {why.distance:.6g}, proven to {why.error:.1g}, "
        f"at discount {mdp.discount:g}"
    )
    if not why.steps:
        same = why.states[0] == why.states[1]
        yield "they are the same state" if same else "they behave alike: no step tells them apart"
        return
    rows: list[tuple[str, ...]] = [
        ("step", "first", "second", "action", "reward gap", "adds", "so far")
    ]
    so_far = 0.0
    for k, step in enumerate(why.steps):
        so_far += step.adds
        if k < SHOWN_STEPS:
            a, b = (mdp.action_name(action) for action in step.actions)
            rows.append(
                (
                    str(k),
                    *(mdp.name(s) for s in step.states),
                    a if step.actions[0] == step.actions[1] else f"{a} / {b}",
                    f"{step.gap:g}",
                    f"{step.adds:.4f}",
                    f"{so_far:.4f}",
                )
            )
    widths = [max(len(row[i]) for row in rows) for i in range(7)]
    for row in rows:
        left = [text.ljust(width) for text, width in zip(row[:4], widths, strict=False)]
        right = [text.rjust(width) for text, width in zip(row[4:], widths[4:], strict=True)]
        yield "  " + "  ".join(left + right)
    if len(why.steps) > SHOWN_STEPS:
        yield f"  ... {len(why.steps) - SHOWN_STEPS} more steps, up to {so_far:.4f}"
    if why.loop is not None:
        what = (
            f"step {why.loop} repeats"
            if why.loop == len(why.steps) - 1
            else f"steps {why.loop} to {len(why.steps) - 1} repeat"
        )
        yield f"  {what} for ever: {why.total - so_far:.4f} more, {why.total:.4f} in all"
    else:
        a, b = (mdp.name(s) for s in why.steps[-1].leads_to)
        where = f"both are in {a}" if a == b else f"{a} and {b} behave alike"
        if why.total - so_far <= max(why.error, 1e-9):
            yield f"  then {where}: {why.total:.4f} in all"
        else:
            yield f"  the rest of the path adds {why.total - so_far:.4f}: {why.total:.4f} in all"
    which = "under the policy" if why.kind == "on_policy" else "under the best policy"
    yield (
        f"so their values {which} differ by at most {why.distance:.6g}; "
        f"they differ by {why.value_gap:.6g}"
    )

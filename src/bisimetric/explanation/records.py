"""What an explanation holds: steps of two states side by side, and what each adds."""

from __future__ import annotations

import dataclasses

from bisimetric.explanation import text
from bisimetric.mdp import MDP


@dataclasses.dataclass(frozen=True)
class Match:
    """Some mass of the first state's successors, matched with as much of the second's.

    Attributes:
        states: the successor of the first state, and that of the second.
        mass: how much probability is matched so.
        distance: d of the two successors.
        adds: discount * mass * distance, what the match adds to the distance before the step.
    """

    states: tuple[int, int]
    mass: float
    distance: float
    adds: float


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of the two states side by side.

    Attributes:
        states: the pair of state ids before the step.
        actions: the action of each; equal but for lax and on-policy distances; None where a policy
            mixes actions.
        gap: abs(R(s, a) - R(t, b)).
        adds: weight * gap, what the gap adds to the whole distance.
        leads_to: the pair of state ids after the step; of several, one that adds most.
        coupling: how the successors are matched, what adds most first, mass in a common state
            last; gap + sum of their `adds` is the distance of `states`. Empty where each state
            has one successor.
        weight: discount^k, times the mass of the matches on the way here.
    """

    states: tuple[int, int]
    actions: tuple[int, int] | None
    gap: float
    adds: float
    leads_to: tuple[int, int]
    coupling: tuple[Match, ...] = ()
    weight: float = 1.0


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The steps whose gaps add up to d(s, t).

    Where every pair has one successor, the steps are a path: it ends in a pair at distance 0, or
    returns to an earlier pair, and then the steps from `loop` on repeat for ever. Where successors
    branch, each step shows their coupling, and the next step follows the match that adds most,
    matches of states at distance 0 from its own taken together.
    Put together, d(s, t) = `total` to within the distance's error.

    Attributes:
        steps: the path, one step each.
        loop: index of the step that the last one leads back to, or None.
        total: what all steps add, the repetitions included; with couplings, what the gap and the
            matches of the first step add.
        distance: d(s, t) as computed.
        error: a proven bound on its error; infinite for an estimate.
        value_gap: abs(V(s) - V(t)), V* or V^pi, which the distance bounds.
        apart: the pair at the end of the steps whose states have different actions, and are
            therefore as far apart as states can be; else None.
        estimate: of a table from samples, an estimate of the largest error; else None.
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
    apart: tuple[int, int] | None = None
    estimate: float | None = None

    def __str__(self) -> str:
        return "\n".join(text.lines(self))

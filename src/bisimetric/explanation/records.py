"""What an explanation holds: steps of two states side by side, and what each adds."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from bisimetric.explanation import text
from bisimetric.mdp import MDP


@dataclasses.dataclass(frozen=True)
class Proof:
    """What is proven of one distance of a table.

    Attributes:
        error: a bound on its error; infinite where there is none.
        estimate: of a table from draws, an estimate of its largest error; of one that is not
            complete, a bound on how far it is from what the known transitions tell; else None.
        known: (S, A), or (S, 1) for a policy, the transitions that were seen, where the table comes
            from experience; else None.
        complete: whether they determine the whole table. If not, it compares two states by the
            actions known in both, and a distance without a finite error is a lower bound.
    """

    error: float
    estimate: float | None = None
    known: NDArray[np.bool_] | None = dataclasses.field(default=None, repr=False, compare=False)
    complete: bool = True

    @property
    def is_lower_bound(self) -> bool:
        """Whether the true distance may be any larger."""
        return not self.complete and math.isinf(self.error)


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
    contribution: float


@dataclasses.dataclass(frozen=True)
class PairStep:
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
    reward_gap: float
    contribution: float
    next_states: tuple[int, int]
    coupling: tuple[Match, ...] = ()
    weight: float = 1.0


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The steps whose gaps add up to d(s, t).

    Where every pair has one successor, the steps are a path: it ends in a pair at distance 0, or
    returns to an earlier pair, and then the steps from `loop` on repeat for ever. Where successors
    branch, each step shows their coupling, and the next step follows the match that adds most,
    matches of states at distance 0 from its own taken together.
    Put together, `total` is within twice the distance's error of d(s, t): couplings are found to
    rounding, like those of the table. In a table from draws that has not converged, `total` may be
    the larger one.

    Attributes:
        steps: the path, one step each.
        loop: index of the step that the last one leads back to, or None.
        total: what all steps add, the repetitions included; with couplings, what the gap and the
            matches of the first step add.
        distance: d(s, t) as computed.
        proof: what is proven of it.
        value_gap: abs(V(s) - V(t)), V* or V^pi, which the distance bounds; None where not all of
            the MDP is known.
        value_gap_error: a proven bound on the error of `value_gap`.
        apart: the pair at the end of the steps whose states have different actions, and are
            therefore as far apart as states can be; else None.
        bisimilar: whether the states after the last step (without steps: the two states) are proven
            to be bisimilar. If not, they may still be: then their distance is at most the error.
    """

    mdp: MDP
    kind: str
    states: tuple[int, int]
    distance: float
    proof: Proof
    steps: tuple[PairStep, ...]
    loop_start: int | None
    total: float
    value_gap: float | None
    mismatched_pair: tuple[int, int] | None = None
    value_gap_error: float = 0.0
    bisimilar: bool = False

    @property
    def error(self) -> float:
        """A proven bound on the error of `distance`; infinite where there is none."""
        return self.proof.error

    @property
    def estimate(self) -> float | None:
        """See `Proof`."""
        return self.proof.estimate

    def __str__(self) -> str:
        return "\n".join(text.format_lines(self))

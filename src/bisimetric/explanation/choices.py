"""The actions that a distance looks at, and what is known of a way through the pairs."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric.explanation.records import PairStep
from bisimetric.mdp import MDP


class PairPath(NamedTuple):
    """The steps from a pair of states on; see `Explanation`."""

    steps: tuple[PairStep, ...]
    loop_start: int | None
    total: float
    final_pair: tuple[int, int]
    mismatched_pair: tuple[int, int] | None


@dataclasses.dataclass(frozen=True, eq=False)
class PairChoices:
    """What a distance chooses from, in each pair of states.

    Attributes:
        mdp: the dynamics; for a policy, its chain.
        values: (S, S), the table.
        kind: which distance it is.
        played: (S,), the policy's actions, -1 where it mixes several; None without a policy.
        known: the transitions that were seen, where the table comes from experience; else None.
        complete: whether they determine the whole table. If not, only known ones are compared.
    """

    mdp: MDP
    values: NDArray[np.floating]
    kind: str
    policy_actions: NDArray[Any] | None = None
    known: NDArray[np.bool_] | None = None
    complete: bool = True

    @property
    def zero_is_proven(self) -> bool:
        """Whether states at distance 0 are near; draws may just not tell them apart yet."""
        return self.known is None

    def action_sets_differ(self, pair: tuple[int, int]) -> bool:
        """Whether d~ puts two states as far apart as possible because their actions differ."""
        available = self.mdp.available
        if available is None or self.kind != "bisimulation" or not self.complete:
            return False
        return bool((available[pair[0]] != available[pair[1]]).any())

    def ends_at(self, pair: tuple[int, int]) -> bool:
        """Whether no step leads on, for the sets of actions differ, or no action is compared."""
        return self.action_sets_differ(pair) or not self.compared_actions(pair).any()

    def compared_actions(self, pair: tuple[int, int]) -> NDArray[np.bool_]:
        """The pairs of actions (A, A) that the distance compares."""
        compared = np.ones((self.mdp.num_actions,) * 2, dtype=bool)
        if self.kind != "lax":
            compared = np.eye(self.mdp.num_actions, dtype=bool)
        has = self.mdp.available if self.complete else self.known
        if has is not None:
            compared &= np.outer(has[pair[0]], has[pair[1]])
        return compared

    def reported_actions(
        self, chosen: tuple[int, int], pair: tuple[int, int]
    ) -> tuple[int, int] | None:
        """The actions chosen, or the policy's, or None where it mixes several."""
        if self.policy_actions is None:
            return chosen
        first, second = int(self.policy_actions[pair[0]]), int(self.policy_actions[pair[1]])
        return None if min(first, second) < 0 else (first, second)


def select_actions(
    backup: NDArray[np.float64], compared: NDArray[np.bool_], kind: str
) -> tuple[int, int]:
    """The two actions that attain F(d)(s, t), given gap + discount * distance of each two."""
    if kind != "lax":
        action = int(np.where(compared, backup, -np.inf).diagonal().argmax())
        return action, action
    answers = np.where(compared, backup, np.inf)
    first, second = answers.min(axis=1), answers.min(axis=0)
    first[~compared.any(axis=1)] = second[~compared.any(axis=0)] = -np.inf
    if first.max() >= second.max():
        action = int(np.argmax(first))
        return action, int(np.argmin(answers[action]))
    answer = int(np.argmax(second))
    return int(np.argmin(answers[:, answer])), answer

"""The actions that a distance looks at, and what is known of a way through the pairs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric.explanation.records import Step
from bisimetric.mdp import MDP


class Way(NamedTuple):
    """The steps from a pair of states on; see `Explanation`."""

    steps: tuple[Step, ...]
    loop: int | None
    total: float
    apart: tuple[int, int] | None


def action_sets_differ(mdp: MDP, kind: str, pair: tuple[int, int]) -> bool:
    """Whether d~ puts two states as far apart as possible because their actions differ."""
    if mdp.available is None or kind != "bisimulation":
        return False
    return bool((mdp.available[pair[0]] != mdp.available[pair[1]]).any())


def candidates(mdp: MDP, kind: str, pair: tuple[int, int]) -> NDArray[np.bool_]:
    """The pairs of actions (A, A) that the distance compares."""
    compared = np.ones((mdp.num_actions,) * 2, dtype=bool)
    if kind != "lax":
        compared = np.eye(mdp.num_actions, dtype=bool)
    if mdp.available is not None:
        compared &= np.outer(mdp.available[pair[0]], mdp.available[pair[1]])
    return compared


def attained(
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


def actions_played(
    chosen: tuple[int, int], played: NDArray[Any] | None, pair: tuple[int, int]
) -> tuple[int, int] | None:
    """The actions to speak of: those chosen, or the policy's, or None where it mixes several."""
    if played is None:
        return chosen
    first, second = int(played[pair[0]]), int(played[pair[1]])
    return None if min(first, second) < 0 else (first, second)

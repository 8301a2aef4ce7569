"""The path of a pair with one successor: its reward gaps, discounted, add up to the distance."""

from __future__ import annotations

import math

import numpy as np

from bisimetric.explanation.choices import PairChoices, PairPath, select_actions
from bisimetric.explanation.records import PairStep

MAX_PATH_STEPS = 10_000


def follow_path(choices: PairChoices, states: tuple[int, int]) -> PairPath:
    """The path from `states`, until it ends at distance 0 or returns to an earlier pair."""
    mdp, values = choices.mdp, choices.values
    steps: list[PairStep] = []
    seen: dict[tuple[int, int], int] = {}
    pair, weight = states, 1.0
    while pair not in seen and pair[0] != pair[1] and len(steps) < MAX_PATH_STEPS:
        if values[pair] == 0 or choices.ends_at(pair):
            break
        seen[pair] = len(steps)
        s, t = pair
        gaps = np.abs(mdp.R[s][:, None] - mdp.R[t][None, :])
        ahead = values[np.ix_(mdp.next_state[s], mdp.next_state[t])]
        a, b = select_actions(
            gaps + mdp.discount * ahead, choices.compared_actions(pair), choices.kind
        )
        after = (int(mdp.next_state[s, a]), int(mdp.next_state[t, b]))
        gap = float(gaps[a, b])
        actions = choices.reported_actions((a, b), pair)
        steps.append(PairStep(pair, actions, gap, weight * gap, after, weight=weight))
        pair, weight = after, weight * mdp.discount
    loop = seen.get(pair)
    if loop is not None:
        once = math.fsum(step.contribution for step in steps[loop:])
        rest = once / (1 - mdp.discount ** (len(steps) - loop))
        total = math.fsum([*(step.contribution for step in steps[:loop]), rest])
    else:
        total = math.fsum([*(step.contribution for step in steps), weight * float(values[pair])])
    return PairPath(
        tuple(steps), loop, total, pair, pair if choices.action_sets_differ(pair) else None
    )

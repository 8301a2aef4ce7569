"""The path of a pair with one successor: its reward gaps, discounted, add up to the distance."""

from __future__ import annotations

import math

import numpy as np

from bisimetric.explanation.choices import Choices, Way, attained
from bisimetric.explanation.records import Step

ENOUGH_STEPS = 10_000


def follow(choices: Choices, states: tuple[int, int]) -> Way:
    """The path from `states`, until it ends at distance 0 or returns to an earlier pair."""
    mdp, values = choices.mdp, choices.values
    steps: list[Step] = []
    seen: dict[tuple[int, int], int] = {}
    pair, weight = states, 1.0
    while pair not in seen and pair[0] != pair[1] and len(steps) < ENOUGH_STEPS:
        if values[pair] == 0 or choices.end_at(pair):
            break
        seen[pair] = len(steps)
        s, t = pair
        gaps = np.abs(mdp.R[s][:, None] - mdp.R[t][None, :])
        ahead = values[np.ix_(mdp.next_state[s], mdp.next_state[t])]
        a, b = attained(gaps + mdp.discount * ahead, choices.candidates(pair), choices.kind)
        after = (int(mdp.next_state[s, a]), int(mdp.next_state[t, b]))
        gap = float(gaps[a, b])
        actions = choices.spoken_of((a, b), pair)
        steps.append(Step(pair, actions, gap, weight * gap, after, weight=weight))
        pair, weight = after, weight * mdp.discount
    loop = seen.get(pair)
    if loop is not None:
        once = math.fsum(step.adds for step in steps[loop:])
        rest = once / (1 - mdp.discount ** (len(steps) - loop))
        total = math.fsum([*(step.adds for step in steps[:loop]), rest])
    else:
        total = math.fsum([*(step.adds for step in steps), weight * float(values[pair])])
    return Way(tuple(steps), loop, total, pair, pair if choices.sets_differ(pair) else None)

"""Small MDPs from hypothesis, with the edge cases planted inside them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

from bisimetric import MDP

DISCOUNTS = [0.0, 0.3, 0.9, 0.99, 0.999]
REWARDS = st.one_of(
    st.sampled_from([0.0, 0.0, 1.0, -1.0, 0.5]),
    st.floats(-10, 10, allow_nan=False, width=32),
)


def _masks(states: int, actions: int) -> st.SearchStrategy[Any]:
    """Which actions states have, (S, A), at least one each."""
    kept = st.lists(st.booleans(), min_size=actions, max_size=actions).filter(any)
    return st.lists(kept, min_size=states, max_size=states).map(np.array)


@st.composite
def deterministic_mdps(
    draw: st.DrawFn,
    max_states: int = 6,
    max_actions: int = 3,
    discounts: list[float] = DISCOUNTS,
    available: bool = False,
) -> MDP:
    """One to `max_states` states; perhaps zero rewards, equal rows, an absorbing state.

    With `available`, some states lack some actions.
    """
    states = draw(st.integers(1, max_states))
    actions = draw(st.integers(1, max_actions))
    size = states * actions
    successors = draw(st.lists(st.integers(0, states - 1), min_size=size, max_size=size))
    rewards = draw(st.lists(REWARDS, min_size=size, max_size=size))
    n = np.array(successors).reshape(states, actions)
    R = np.array(rewards, dtype=float).reshape(states, actions)
    planted = draw(st.sampled_from(["nothing", "zero rewards", "equal rows", "absorbing"]))
    if planted == "zero rewards":
        R[:] = 0.0
    elif planted == "equal rows":
        n[-1], R[-1] = n[0], R[0]
    elif planted == "absorbing":
        n[-1], R[-1] = states - 1, 0.0
    has = draw(_masks(states, actions)) if available else None
    return MDP.deterministic(n, R, discount=draw(st.sampled_from(discounts)), available=has)


PLANTED = ["absorbing", "equal rows", "split mass", "tiny", "zero rewards"]
SHARES = st.sampled_from([0.0, 0.25, 1 / 3, 0.5, 1.0])


@st.composite
def stochastic_mdps(
    draw: st.DrawFn,
    max_states: int = 5,
    max_actions: int = 3,
    max_successors: int = 4,
    discounts: list[float] = DISCOUNTS,
    available: bool = False,
) -> MDP:
    """One to `max_states` states, each row with one to `max_successors` successors.

    Successors may have probability 0, and rows equal probabilities. Any of these may be planted:
    an absorbing state, two states with equal rows, two that are bisimilar only ("split mass": what
    leads to state 0 is shared with its copy, row by row), probabilities of 1e-12, zero rewards.
    Some of these MDPs are deterministic. With `available`, some states lack some actions.
    """
    states = draw(st.integers(1, max_states))
    actions = draw(st.integers(1, max_actions))
    planted = draw(st.sets(st.sampled_from(PLANTED)))
    most = draw(st.sampled_from([min(max_successors, states)] * 7 + [1]))
    fewest = draw(st.integers(1, most))
    P = np.zeros((states, actions, states))
    for row in P.reshape(-1, states):
        found = draw(
            st.lists(st.integers(0, states - 1), min_size=fewest, max_size=most, unique=True)
        )
        weights = draw(st.tuples(st.integers(1, 3), *[st.integers(0, 3)] * (len(found) - 1)))
        row[found] = np.array(weights) / sum(weights)
        if "tiny" in planted and len(found) > 1 and draw(st.booleans()):
            row[found[0]], row[found[1]] = row[found[0]] + row[found[1]] - 1e-12, 1e-12
    reward = st.sampled_from([0.0, -0.0, 1.0]) if draw(st.booleans()) else REWARDS
    rewards = draw(st.lists(reward, min_size=states * actions, max_size=states * actions))
    R = np.array(rewards).reshape(states, actions)
    if "zero rewards" in planted:
        R[:] = 0.0
    mask = np.ones((states, actions), bool)
    if available:
        mask = draw(_masks(states, actions))
    if "absorbing" in planted:
        P[-1], R[-1] = np.eye(states)[-1], 0.0
    if "equal rows" in planted or "split mass" in planted:
        P[-1], R[-1], mask[-1] = P[0], R[0], mask[0]
    if "split mass" in planted and most > 1:
        for row in P.reshape(-1, states):
            share, both = draw(SHARES), row[0] + row[-1]
            row[0], row[-1] = share * both, (1 - share) * both
    rows, successors = np.nonzero(P.reshape(-1, states) >= 0)  # zeros stay in the input
    entries = P.reshape(-1, states)[rows, successors]
    matrix = sparse.csr_array((entries, (rows, successors)), (states * actions, states))
    discount = draw(st.sampled_from(discounts))
    return MDP(matrix, R, discount, available=mask if available else None)

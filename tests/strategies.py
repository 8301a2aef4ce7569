"""Small MDPs from hypothesis, with the edge cases planted inside them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from bisimetric import MDP

DISCOUNTS = [0.0, 0.3, 0.9, 0.99, 0.999]
REWARDS = st.one_of(
    st.sampled_from([0.0, 0.0, 1.0, -1.0, 0.5]),
    st.floats(-10, 10, allow_nan=False, width=32),
)


@st.composite
def deterministic_mdps(
    draw: st.DrawFn, max_states: int = 6, max_actions: int = 3, discounts: list[float] = DISCOUNTS
) -> MDP:
    """One to `max_states` states; perhaps zero rewards, equal rows, an absorbing state."""
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
    return MDP.deterministic(n, R, discount=draw(st.sampled_from(discounts)))

"""A recorded game of a few steps, whose features identify its futures."""

from __future__ import annotations

import numpy as np

from bisimetric.transitions import Transitions

CYCLE, FEATURES = 12, 6


def make_game(steps: int = 600, seed: int = 0, length: int = 3 * CYCLE) -> Transitions:
    """Record a cyclic game with one reward per cycle, which terminates after three cycles.

    The features identify the step of the game, and so its future.
    """
    rng = np.random.default_rng(seed)
    at = np.arange(steps + 1) % length
    basis = rng.normal(size=(length, FEATURES)).astype(np.float16)
    terminated = at[:-1] == length - 1
    rewards = np.where(at[:-1] % CYCLE == 5, 1.0, 0.0)
    return Transitions(
        basis[at[:-1]],
        at[:-1] % 2,
        rewards,
        basis[(at[:-1] + 1) % length],
        terminated,
        metadata={"game": "x"},
    )

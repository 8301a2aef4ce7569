"""Steps chosen at random: whole episodes dealt to parts, and single steps drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import InputError, require_integer

NUM_SPLIT_TRIALS = 32
"""Random deals of episodes to parts, of which the nearest to the shares is kept."""

FRACTION_TOLERANCE = 1e-8
"""How far shares may sum from 1."""


def find_episode_boundaries(ended: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Where episodes start, and n at last, (episodes + 1,); `ended` (n,) closes them.

    >>> boundaries(np.array([False, True, False])).tolist()
    [0, 2, 3]
    """
    stops = np.flatnonzero(ended[:-1]) + 1
    return np.concatenate([[0], stops, [len(ended)]])


def assign_episodes(
    lengths: NDArray[np.int64], fractions: tuple[float, ...], seed: Any
) -> NDArray[np.int64]:
    """The part of each episode, (episodes,): steps in the given shares, each part with one."""
    wanted = _validate_fractions(fractions)
    episodes, parts = len(lengths), len(fractions)
    if episodes < parts:
        raise InputError(
            f"Transitions: {episodes} episodes cannot be split into {parts} parts, which get whole "
            "ones; collect more, or ask for fewer parts."
        )
    rng = np.random.default_rng(require_integer("split", "key", seed))
    total = lengths.sum()
    targets = np.minimum(np.cumsum(wanted) * total, total)
    nearest, least = np.zeros(episodes, np.int64), np.inf
    for _ in range(NUM_SPLIT_TRIALS):
        order = rng.permutation(episodes)
        steps = np.concatenate([[0], np.cumsum(lengths[order])])
        cuts = _place_cuts(steps, targets[:-1])
        miss = np.abs(np.diff(steps[cuts]) - wanted * total).sum()
        if miss < least:
            least = miss
            nearest[order] = np.repeat(np.arange(parts), np.diff(cuts))
        if miss < 1:
            break
    return nearest


def _place_cuts(steps: NDArray[np.int64], targets: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many of the episodes come before each cut; `steps` are those before each episode."""
    after = np.searchsorted(steps, targets)
    cuts = np.where(steps[after] - targets < targets - steps[after - 1], after, after - 1)
    episodes, parts = len(steps) - 1, len(targets) + 1
    # A cut leaves at least one episode to every part before it and after it.
    for part in range(1, parts):
        before = cuts[part - 2] if part > 1 else 0
        cuts[part - 1] = np.clip(cuts[part - 1], before + 1, episodes - (parts - part))
    return np.concatenate([[0], cuts, [episodes]])


def sample_indices(num_steps: int, n: Any, seed: Any, replacement: bool) -> NDArray[np.int64]:
    """Indices (n,) of random steps."""
    size = require_integer("sample", "n", n, 1)
    if size > num_steps and not replacement:
        raise InputError(
            f"sample: n is {size:,} and there are {num_steps:,} steps; take at most so many, or say "
            "replacement=True."
        )
    rng = np.random.default_rng(require_integer("sample", "key", seed))
    return rng.choice(num_steps, size, replace=replacement)


def _validate_fractions(fractions: tuple[float, ...]) -> NDArray[np.float64]:
    try:
        wanted = np.array(fractions, dtype=np.float64)
        if wanted.ndim == 1 and (wanted > 0).all() and abs(wanted.sum() - 1) <= FRACTION_TOLERANCE:
            return np.asarray(wanted / wanted.sum())
    except (TypeError, ValueError):
        pass
    listed = ", ".join(map(str, fractions)) or "none"
    raise InputError(f"split: the shares are {listed} and must be positive and sum to 1.")

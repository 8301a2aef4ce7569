"""What an importer says once: rewards that became expectations, actions that some states lack."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import ExpectedReward, MissingActions
from bisimetric.mdp.rewards import mean_rewards

PACKAGE = __name__.partition(".")[0]


def expected_rewards(
    where: str,
    row: NDArray[np.integer],
    probability: NDArray[np.floating],
    reward: NDArray[np.floating],
    rows: int,
) -> NDArray[np.float64]:
    """R(row) = sum of probability times reward over the outcomes of each row, (rows,).

    `row`, `probability` and `reward` (n,) describe one outcome each. Where outcomes of one row
    that can happen pay differently, an `ExpectedReward` says so, once.

    >>> expected_rewards("doc", np.array([0, 0]), np.array([0.5, 0.5]), np.array([2.0, 2.0]), 1)
    array([2.])
    """
    possible = probability > 0
    mean, differs = mean_rewards(row[possible], reward[possible], rows, probability[possible])
    if differs.any():
        say(
            ExpectedReward,
            f"{where}: the reward depends on the successor for {differs.sum()} of {rows} states "
            "and actions; its expectation is used.",
        )
    return mean


def about_missing(where: str, available: NDArray[np.bool_]) -> None:
    """Says, once, that some states lack some of the actions: `available` is (S, A)."""
    lacking = int((~available.all(axis=1)).sum())
    if lacking:
        say(
            MissingActions,
            f"{where}: {lacking} of {len(available)} states lack some actions; they are at the "
            "largest possible bisimulation distance from states with other actions.",
        )


def say(category: type[Warning], message: str) -> None:
    """Warns at the line outside of this package that asked for the import."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and _ours(frame.f_globals):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, category, stacklevel=depth)


def _ours(names: dict[str, Any]) -> bool:
    return str(names.get("__name__")).partition(".")[0] == PACKAGE

"""Warnings of importers: rewards that became expectations, states that lack actions."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.errors import ExpectedRewardWarning, MissingActionsWarning
from bisimetric.transitions.empirical_mdp import mean_rewards

PACKAGE = __name__.partition(".")[0]


def compute_expected_rewards(
    caller: str,
    rows: NDArray[np.integer],
    probabilities: NDArray[np.floating],
    rewards: NDArray[np.floating],
    num_rows: int,
) -> NDArray[np.float64]:
    """Compute R (num_rows,), the sum of probability times reward over the outcomes of each row.

    `rows`, `probabilities` and `rewards` (n,) describe one outcome each. Where possible outcomes of
    one row pay differently, an `ExpectedRewardWarning` is issued once.

    >>> half = np.array([0.5, 0.5])
    >>> compute_expected_rewards("doc", np.array([0, 0]), half, np.array([2.0, 2.0]), 1)
    array([2.])
    """
    possible = probabilities > 0
    mean, differs = mean_rewards(
        rows[possible], rewards[possible], num_rows, probabilities[possible]
    )
    if differs.any():
        warn_caller(
            ExpectedRewardWarning,
            f"{caller}: the reward depends on the successor for {differs.sum()} of {num_rows} "
            "states and actions; its expectation is used.",
        )
    return mean


def warn_missing_actions(caller: str, available: NDArray[np.bool_]) -> None:
    """Warn once if some states lack some actions: `available` is (S, A)."""
    lacking = int((~available.all(axis=1)).sum())
    if lacking:
        warn_caller(
            MissingActionsWarning,
            f"{caller}: {lacking} of {len(available)} states lack some actions; they are at the "
            "largest possible bisimulation distance from states with other actions.",
        )


def warn_caller(category: type[Warning], message: str) -> None:
    """Warn at the line outside of this package that started the import."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_own_module(frame.f_globals):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, category, stacklevel=depth)


def _is_own_module(module_globals: dict[str, Any]) -> bool:
    return str(module_globals.get("__name__")).partition(".")[0] == PACKAGE

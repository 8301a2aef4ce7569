"""What is proven of distances, for the uses that promise something by them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bisimetric.distance import Distance
from bisimetric.mdp import MDP

ROUNDING = 1e-9
"""The share by which a bound is raised, far more than the rounding of its sums."""


def proven(d: Any) -> float:
    """The proven error of all distances of d, infinite where there is none.

    A table from data proves nothing of ids that were never lived in.

    >>> proven([[0.0, 1.0], [1.0, 0.0]])
    inf
    """
    if not isinstance(d, Distance) or (d.coverage is not None and not d.coverage.lived.all()):
        return math.inf
    return d.error


def difference(mdp: MDP, other: MDP) -> str | None:
    """How the other MDP differs from the one that a proof speaks of, by its numbers, or None.

    >>> mdp = MDP.deterministic([[0]], [[1]], discount=0.5)
    >>> difference(mdp, mdp.replace(discount=0.9)), difference(mdp, mdp.replace(names="x"))
    ('its discount is 0.9 and not 0.5', None)
    """
    if mdp.discount != other.discount:
        return f"its discount is {other.discount:g} and not {mdp.discount:g}"
    for what, here, there in zip(("states", "actions"), mdp.R.shape, other.R.shape, strict=True):
        if here != there:
            return f"it has {there:,} {what} and not {here:,}"
    if (mdp.R != other.R).any():
        return "its rewards differ"
    if (mdp.has != other.has).any():
        return "its available actions differ"
    if not all(
        np.array_equal(getattr(mdp.P, part), getattr(other.P, part))
        for part in ("indptr", "indices", "data")
    ):
        return "its transitions differ"
    return None

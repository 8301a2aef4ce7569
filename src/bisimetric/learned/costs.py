"""Costs besides the differences of rewards: ground distances of observations, and gaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric.errors import InputError
from bisimetric.exact._gap_solver import add_ground_distance, describe_gap, evaluate_gap
from bisimetric.exact.gaps import GapFunction
from bisimetric.learned.losses import LOSSES, LearnedKind
from bisimetric.mdp import MDP
from bisimetric.mdp._validation import resolve_policy


def build_cost(
    kind: LearnedKind, mdp: MDP, policy: ArrayLike | None, gap: ArrayLike | GapFunction | None
) -> NDArray[np.float64]:
    """Return what is added to the differences of rewards, (0, 1 or A, S, S).

    >>> two = MDP.deterministic([[0], [1]], [[0], [0]], discount=0.5, observations=[[0], [3]])
    >>> build_cost("bisimulation", two, None, None).tolist()
    [[[0.0, 3.0], [3.0, 0.0]]]
    """
    if gap is None:
        ground = mdp.ground_distance
        return np.zeros((0, 0, 0)) if ground is None else ground.matrix[None]
    actions = None
    if not LOSSES[kind].same_actions:
        actions = resolve_policy(kind, mdp, policy, caller="learned")
    table = evaluate_gap(f"learned.{kind}", kind, mdp, gap, actions, check_triangles=False)
    return add_ground_distance(table, mdp)[0][:, 0]


def require_gap_of_mdp(kind: LearnedKind, source: object, gap: Any) -> None:
    """Raise InputError for a gap without an MDP, whose states have ids."""
    if gap is not None and not isinstance(source, MDP):
        raise InputError(
            f"is that of states of an MDP, and the source is {type(source).__name__}",
            caller=f"learned.{kind}",
            argument="gap",
            remedy="pass an MDP, such as Transitions.to_mdp(discount=...), or leave gap out",
        )


def describe_costs(
    mdp: MDP | None, gap: ArrayLike | GapFunction | None = None
) -> dict[str, str | list[str]]:
    """Return what the metadata say of what is compared besides rewards."""
    described: dict[str, Any] = {} if gap is None else {"gap": describe_gap(gap)}
    if mdp is not None and mdp.ground_distance is not None:
        described["ground_distance"] = mdp.ground_distance.description
    if mdp is not None and mdp.has_labels:
        described["labels"] = list(mdp.labels or ())
    return described


def require_rewards_only(caller: str, metadata: Mapping[str, Any]) -> None:
    """Raise InputError for a distance that compares more than rewards, which transitions lack."""
    for name in ("gap", "ground_distance", "labels"):
        if name in metadata:
            what = "a gap of its own" if name == "gap" else f"{name.replace('_', ' ')}s"
            what = "labels" if name == "labels" else what
            raise InputError(
                f"{caller}: this distance has {what}, and transitions are compared by rewards; "
                "compare it with exact distances (reference=)."
            )

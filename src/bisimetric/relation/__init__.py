"""Bisimulation relations of MDPs by partition refinement, quotient MDPs and lifted policies."""

from bisimetric.relation.api import (
    RELATION_TOL,
    bisimulation,
    lax,
    on_policy,
    quotient,
    representatives,
)
from bisimetric.relation.lifting import lift_policy, match_actions

__all__ = [
    "RELATION_TOL",
    "bisimulation",
    "lax",
    "lift_policy",
    "match_actions",
    "on_policy",
    "quotient",
    "representatives",
]

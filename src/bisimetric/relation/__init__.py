"""Bisimulation relations of MDPs by partition refinement, and quotient MDPs."""

from bisimetric.relation.api import (
    RELATION_TOL,
    bisimulation,
    lax,
    on_policy,
    quotient,
    representatives,
)

__all__ = ["RELATION_TOL", "bisimulation", "lax", "on_policy", "quotient", "representatives"]

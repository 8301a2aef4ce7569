"""Bisimulation relations of MDPs by partition refinement, quotient MDPs, formulas."""

from bisimetric.relation.abstractions import (
    a_star_irrelevance,
    check_abstraction,
    pi_star_irrelevance,
    q_pi_irrelevance,
    q_star_irrelevance,
)
from bisimetric.relation.api import (
    RELATION_TOL,
    bisimulation,
    lax,
    on_policy,
    quotient,
    representatives,
)
from bisimetric.relation.distinguishing import Witness, distinguish
from bisimetric.relation.formulas import Condition, Formula, evaluate
from bisimetric.relation.lifting import lift_policy, match_actions
from bisimetric.relation.robustness import robust

__all__ = [
    "RELATION_TOL",
    "Condition",
    "Formula",
    "Witness",
    "a_star_irrelevance",
    "bisimulation",
    "check_abstraction",
    "distinguish",
    "evaluate",
    "lax",
    "lift_policy",
    "match_actions",
    "on_policy",
    "pi_star_irrelevance",
    "q_pi_irrelevance",
    "q_star_irrelevance",
    "quotient",
    "representatives",
    "robust",
]

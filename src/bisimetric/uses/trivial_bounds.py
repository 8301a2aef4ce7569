"""Trivial bounds: what holds without any distance, and bounds that prove no more.

**Regret.** With V_min(s) the least value of any policy in s, no policy has a regret above

    trivial = min(max_s V(s) - V_min(s), (max R - min R) / (1 - discount)),

where V is V*, or V^pi where the regret is against a policy pi. The first term needs V and V_min;
where the MDP is not solved, the second one alone is the trivial bound. -V_min is the optimal value
of the MDP with rewards -R, so that both terms are computed with proven errors and rounded upward.

**Values.** No two of the values V(s) (or Q(s, a), for the same a) of a set differ by more than
their range, max V - min V.

A bound is *vacuous* if it is above 0 and at least the trivial one, so that it proves nothing. An
infinite bound, which means that nothing is proven, is vacuous.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bisimetric import planning
from bisimetric.mdp import MDP
from bisimetric.planning import ValueFunction
from bisimetric.uses.certificates import add_upward, diameter_bound


def bound_any_regret(mdp: MDP, V: ValueFunction) -> float:
    """Bound V(s) - V^policy(s) for every policy and every state of an MDP.

    Args:
        mdp: the MDP.
        V: the values (S,) that the regret is against, with a proven error.

    >>> mdp = MDP.deterministic([[0, 1], [1, 1]], [[0, 1], [0, 0]], discount=0.5)
    >>> V = planning.optimal_values(mdp)
    >>> round(bound_any_regret(mdp, V), 6), diameter_bound(mdp)  # the reward of 1 is paid once
    (1.0, 2.0)
    """
    negated = planning.optimal_values(mdp.replace(R=-mdp.R), tol=math.inf)
    regrets = add_upward(V.values, negated.values, add_upward(V.error, negated.error))
    return min(float(regrets.max()), diameter_bound(mdp))


def bound_range(values: NDArray[np.float64], error: float, labels: NDArray[np.int64]) -> float:
    """Bound the largest difference between two values with the same label.

    Args:
        values: (n,), each within `error` of the exact one.
        error: of each value.
        labels: (n,), at least 0; only values with the same label are compared.

    >>> bound_range(np.array([0.0, 1.0, 5.0]), 0.0, np.array([0, 0, 1]))
    1.0
    """
    largest = np.full(int(labels.max()) + 1, -np.inf)
    least = np.full_like(largest, np.inf)
    np.maximum.at(largest, labels, values)
    np.minimum.at(least, labels, values)
    present = largest >= least
    return float(add_upward(largest[present], -least[present], 2 * error).max())


def is_vacuous(bound: float, trivial: float) -> bool:
    """Return whether a bound proves no more than the trivial one does.

    >>> is_vacuous(5.4, 1.0), is_vacuous(0.2, 1.0), is_vacuous(0.0, 0.0), is_vacuous(math.inf, 1.0)
    (True, False, False, True)
    """
    return bound > 0 and bound >= trivial


def format_bound(bound: float, trivial: float, digits: int = 4) -> str:
    """Format a bound, and mark a vacuous one.

    >>> format_bound(0.19, 15.26), format_bound(20.0, 15.26)
    ('0.19', '20 (vacuous: at least the trivial bound, 15.26)')
    """
    mark = f" (vacuous: at least the trivial bound, {trivial:.{digits}g})"
    return f"{bound:.{digits}g}{mark if is_vacuous(bound, trivial) else ''}"

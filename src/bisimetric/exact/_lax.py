"""d_lax, the lax bisimulation metric (Taylor et al. 2009)."""

from __future__ import annotations

from numpy.typing import DTypeLike

from bisimetric.distance import Distance
from bisimetric.exact._quotient_solver import DeterministicSolver, solve_on_quotient
from bisimetric.exact._request import build_request
from bisimetric.exact.deterministic import lax_solver
from bisimetric.mdp import MDP, reject_label_actions
from bisimetric.mdp._validation import require_mdp


def lax(mdp: MDP, *, tol: float | None = None, dtype: DTypeLike = "float64") -> Distance:
    """Compute the lax bisimulation metric d_lax of an MDP, every entry proven to `tol`.

    With delta((s, a), (t, b)) = |R(s, a) - R(t, b)| + discount * W1(d_lax)(P(s, a), P(t, b)),

        d_lax(s, t) = max(max_a min_b delta((s, a), (t, b)), max_b min_a delta((s, a), (t, b))),

    the Hausdorff distance between the actions of s and those of t: each action is matched with the
    best response among the actions of the other state. |V*(s) - V*(t)| <= d_lax(s, t) <= d~(s, t).

    Actions that encode labels of states (`MDP.label_actions`) must not be matched with others.

    Args:
        mdp: the MDP.
        tol: bound on the true error of every entry; default 1e-6.
        dtype: of the distance matrix, float64 or float32. Without `tol`, a float32 matrix has the
            `error` that its rounding allows.

    Returns:
        The distance matrix with its proven error, in units of reward.

    Raises:
        InputError: an argument has the wrong type or value, or actions encode labels.
        NotConverged: rounding does not allow `tol`; `partial` holds the distance that was proven.
        InsufficientMemory: the matrix does not fit into memory.

    >>> from bisimetric import worlds
    >>> lax(worlds.load("pessimism"))("s", "t")
    0.0
    """
    require_mdp("exact.lax", mdp)
    reject_label_actions("exact.lax", mdp)
    solver = DeterministicSolver(lax_solver.solve, 1, 6)
    return solve_on_quotient(build_request("lax", tol, dtype), mdp, solver)

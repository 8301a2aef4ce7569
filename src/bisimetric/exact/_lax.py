"""d_lax, the lax bisimulation metric (Taylor et al. 2009)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from numpy.typing import DTypeLike

from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.exact import _query
from bisimetric.exact._query import QueryResult
from bisimetric.exact._quotient_solver import DeterministicSolver, solve_on_quotient
from bisimetric.exact._request import build_request
from bisimetric.exact.deterministic import lax_solver
from bisimetric.implicit_mdp import ImplicitMDP
from bisimetric.mdp import MDP, reject_label_actions


@overload
def lax(mdp: MDP, *, tol: float | None = None, dtype: DTypeLike = "float64") -> Distance: ...
@overload
def lax(
    mdp: MDP | ImplicitMDP,
    *,
    pairs: Sequence[tuple[Any, Any]],
    tol: float | None = None,
    max_pairs: int | None = None,
) -> QueryResult: ...
def lax(
    mdp: MDP | ImplicitMDP,
    *,
    tol: float | None = None,
    dtype: DTypeLike = "float64",
    pairs: Sequence[tuple[Any, Any]] | None = None,
    max_pairs: int | None = None,
) -> Distance | QueryResult:
    """The lax bisimulation metric d_lax of an MDP, every entry proven to `tol`.

    With delta((s, a), (t, b)) = |R(s, a) - R(t, b)| + discount * W1(d_lax)(P(s, a), P(t, b)),

    d_lax(s, t) = max(max_a min_b delta((s, a), (t, b)), max_b min_a delta((s, a), (t, b))),

    the Hausdorff distance between the actions of s and those of t: an action may be answered by
    any action that the other state has. |V*(s) - V*(t)| <= d_lax(s, t) <= d~(s, t).

    Actions that encode labels of states (`MDP.label_actions`) must not be answered by others, so
    that an MDP with them raises an `InputError`.

    Args:
        tol: bound on the true error of every entry; default 1e-6.
        dtype: of the table, float64 or float32.
        pairs, max_pairs: only these (s, t), as in `exact.bisimulation`; returns an `Answer`.

    >>> from bisimetric import worlds
    >>> lax(worlds.load("pessimism"))("s", "t")
    0.0
    """
    if pairs is not None:
        return _query.query("lax", mdp, pairs, tol=tol, max_pairs=max_pairs)
    if not isinstance(mdp, MDP):
        raise InputError("exact.lax: Successors need pairs=[(s, t), ...] to start from.")
    reject_label_actions("exact.lax", mdp)
    return solve_on_quotient(
        build_request("lax", tol, dtype), mdp, DeterministicSolver(lax_solver.solve, 1, 6)
    )

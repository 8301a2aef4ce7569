"""d^pi, the on-policy bisimulation metric (Castro 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from numpy.typing import ArrayLike, DTypeLike

from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.exact import _query
from bisimetric.exact._query import QueryResult
from bisimetric.exact._quotient_solver import (
    DeterministicSolver,
    select_solver,
    solve_on_quotient,
    validate_device,
)
from bisimetric.exact._request import build_request, resolve_policy
from bisimetric.exact.deterministic import doubling
from bisimetric.implicit_mdp import ImplicitMDP, PolicyFunction
from bisimetric.mdp import MDP, induce_chain


@overload
def on_policy(
    mdp: MDP,
    policy: ArrayLike | None = None,
    *,
    tol: float | None = None,
    dtype: DTypeLike = "float64",
    device: str | None = None,
) -> Distance: ...
@overload
def on_policy(
    mdp: MDP | ImplicitMDP,
    policy: ArrayLike | PolicyFunction | None = None,
    *,
    pairs: Sequence[tuple[Any, Any]],
    tol: float | None = None,
    max_pairs: int | None = None,
) -> QueryResult: ...
def on_policy(
    mdp: MDP | ImplicitMDP,
    policy: Any = None,
    *,
    tol: float | None = None,
    dtype: DTypeLike = "float64",
    pairs: Sequence[tuple[Any, Any]] | None = None,
    max_pairs: int | None = None,
    device: str | None = None,
) -> Distance | QueryResult:
    """The on-policy metric d^pi of an MDP and a policy, every entry proven to `tol`.

    d^pi(s, t) = |R^pi(s) - R^pi(t)| + discount * W1(d^pi)(P^pi(s), P^pi(t))

    with R^pi and P^pi those of the chain that the policy induces (`MDP.under`), whose rounding is
    part of the error; |V^pi(s) - V^pi(t)| <= d^pi(s, t).
    Where the chain is deterministic every pair has one successor, so the first k terms of the sum
    double in one pass (`exact/deterministic/doubling.py`). Otherwise it is found by policy
    iteration over couplings (`exact/stochastic/policy_iteration.py`).

    Args:
        policy: (S,) actions or (S, A) probabilities; default: the policy that the world comes with,
            or the only one there is. For `Successors`, a function from a state to an action.
        tol: bound on the true error of every entry; default 1e-6.
        dtype: of the table, float64 or float32.
        pairs, max_pairs: only these (s, t), as in `exact.bisimulation`; returns an `Answer`.
        device: "cpu", the default, or "gpu", as in `exact.bisimulation`.

    >>> from bisimetric import worlds
    >>> d = on_policy(worlds.load("pessimism"), [0, 1, 0])
    >>> round(d("s", "t"), 6), round(d("s", "u"), 6)
    (0.0, 10.0)
    """
    validate_device("on_policy", device, pairs=pairs)
    if isinstance(mdp, MDP):
        policy = resolve_policy("on_policy", mdp, policy)
    if pairs is not None:
        return _query.query("on_policy", mdp, pairs, policy=policy, tol=tol, max_pairs=max_pairs)
    if not isinstance(mdp, MDP):
        raise InputError("exact.on_policy: Successors need pairs=[(s, t), ...] to start from.")
    chain = induce_chain(mdp, policy)
    wanted = build_request("on_policy", tol, dtype)
    solver = select_solver(
        device, wanted, chain.mdp, DeterministicSolver(doubling.solve, 2, 0.5), "levels"
    )
    return solve_on_quotient(wanted, mdp, solver, chain=chain, policy=policy)

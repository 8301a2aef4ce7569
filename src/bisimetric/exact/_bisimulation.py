"""d~, the bisimulation metric (Ferns et al. 2004)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from numpy.typing import DTypeLike

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
from bisimetric.exact._request import build_request
from bisimetric.exact.deterministic import policy_iteration
from bisimetric.exact.stochastic import monte_carlo as sampling
from bisimetric.implicit_mdp import ImplicitMDP
from bisimetric.mdp import MDP


@overload
def bisimulation(
    mdp: MDP,
    *,
    tol: float | None = None,
    dtype: DTypeLike = "float64",
    samples: int | None = None,
    seed: int = 0,
    device: str | None = None,
) -> Distance: ...
@overload
def bisimulation(
    mdp: MDP | ImplicitMDP,
    *,
    pairs: Sequence[tuple[Any, Any]],
    tol: float | None = None,
    max_pairs: int | None = None,
) -> QueryResult: ...
def bisimulation(
    mdp: MDP | ImplicitMDP,
    *,
    tol: float | None = None,
    dtype: DTypeLike = "float64",
    samples: int | None = None,
    seed: int = 0,
    pairs: Sequence[tuple[Any, Any]] | None = None,
    max_pairs: int | None = None,
    device: str | None = None,
) -> Distance | QueryResult:
    """The bisimulation metric d~ of an MDP, every entry proven to `tol`.

    d~(s, t) = max_a |R(s, a) - R(t, a)| + discount * W1(d~)(P(s, a), P(t, a))

    with W1 the least cost of moving one distribution onto the other; |V*(s) - V*(t)| <= d~(s, t).
    At a discount above 0, d~(s, t) = 0 iff s and t are bisimilar; at 0 only the rewards count. An
    entry of 0 proves no more than that d~(s, t) is at most the error. In a deterministic MDP W1 is
    the distance of the two successors, and d~ the optimal value function of the pair graph
    (`exact/deterministic`). In others, policy iteration over actions and couplings finds it
    (`exact/stochastic/policy_iteration.py`). States
    whose available actions differ are at the largest possible distance, the range of the rewards
    divided by 1 - discount.

    Args:
        tol: bound on the true error of every entry; default 1e-6.
        dtype: of the table, float64 or float32. Without `tol`, a float32 table has the `error`
            that its rounding allows.
        samples: replace each distribution by so many draws, and W1 by an assignment of them (Ferns
            et al. 2006): less work where supports are large. The table is an estimate then: its
            `error` is infinite and its `estimate` says about how far off it is.
        key: of the draws.
        pairs: compute only these (s, t), from no more pairs than they reach, also for `Successors`.
            Returns an `Answer`.
        max_pairs: with `pairs`, how many may be explored; default 2,000,000 for `Successors`, for
            an MDP what the memory holds.
        device: "cpu", the default, or "gpu": the table of a deterministic MDP on an NVIDIA GPU
            (`exact/gpu`), with the same proof.

    >>> from bisimetric import worlds
    >>> d = bisimulation(worlds.load("mirrored-rooms", discount=0.99))
    >>> round(float(d.values.max()), 2), d.error <= 1e-6
    (150.25, True)
    >>> bisimulation(worlds.load("pessimism"), pairs=[("s", "t")])
    Answer(bisimulation, 1 pair, largest 10, error <= ..., 3 explored)
    """
    validate_device("bisimulation", device, samples=samples, pairs=pairs)
    if pairs is not None:
        if samples is not None:
            raise InputError("exact.bisimulation: takes samples or pairs, not both.")
        return _query.query("bisimulation", mdp, pairs, tol=tol, max_pairs=max_pairs)
    if not isinstance(mdp, MDP):
        raise InputError("exact.bisimulation: Successors need pairs=[(s, t), ...] to start from.")
    wanted = build_request("bisimulation", tol, dtype)
    solver = DeterministicSolver(policy_iteration.solve, 2 if mdp.num_actions == 1 else 1, 4.5)
    if samples is not None:
        return sampling.estimate_bisimulation(wanted, mdp, solver, samples, seed)
    return solve_on_quotient(wanted, mdp, select_solver(device, wanted, mdp, solver, "rising"))

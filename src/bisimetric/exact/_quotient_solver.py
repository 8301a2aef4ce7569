"""Distances on one state a class: alike states share their rows, so one of them is enough.

Where a table is computed: on the processor, or on a GPU.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric import relation
from bisimetric._progress import announce_compilation
from bisimetric._rounding import UNIT
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.exact._request import Request, SolverResult, bound_error, require_matrix_memory
from bisimetric.exact.deterministic.problem import (
    MAX_SERIAL_STATES,
    DeterministicProblem,
    complete_actions,
)
from bisimetric.exact.stochastic import policy_iteration
from bisimetric.mdp import MDP, InducedChain


@dataclasses.dataclass(frozen=True)
class DeterministicSolver:
    """How a distance of deterministic MDPs is solved.

    Attributes:
        solve: from a problem to its table.
        tables: the memory that it takes, in tables.
        scratch: and in bytes for each entry of one.
        toy: whether a toy problem is solved first, which compiles its kernels.
    """

    solve: Callable[[DeterministicProblem], SolverResult]
    num_matrices: int
    scratch_bytes: float
    needs_warm_up: bool = True


def solve_on_quotient(
    request: Request,
    mdp: MDP,
    solver: DeterministicSolver,
    *,
    chain: InducedChain | None = None,
    policy: NDArray[Any] | None = None,
) -> Distance:
    """The distance that was asked for, of `mdp` or of the `chain` that a policy induces.

    States in one class of the relation are at distance 0 and share their rows, so the problem is
    solved on one state a class and copied out.
    """
    dynamics = mdp if chain is None else chain.mdp
    lax, states = request.kind == "lax", dynamics.num_states
    table_bytes = states**2 * request.dtype.itemsize
    require_matrix_memory(request.kind, states, table_bytes)
    classes = relation.lax(dynamics) if lax else relation.bisimulation(dynamics)
    members = int(classes.max()) + 1
    copied, spread = 0, 0.0
    if members < states:
        copied = table_bytes
        spread = 2 * dynamics.discount * _bound_mass_error(dynamics, classes, lax)
        dynamics = relation.quotient(dynamics, classes)
    if dynamics.is_deterministic:
        table = _solve_deterministic(request, dynamics, solver, states, copied)
    else:
        table = _solve_stochastic(request, dynamics, states, copied)
    residual = table.residual + spread * table.largest
    if chain is not None:
        residual += chain.pair_error(table.largest + table.residual)
    error = bound_error(residual, table.largest, dynamics.discount)
    values = table.values[np.ix_(classes, classes)] if copied else table.values
    return request.build_distance(values, error, mdp, policy, {**table.details, "classes": members})


def _solve_deterministic(
    request: Request, mdp: MDP, solver: DeterministicSolver, num_states: int, copy_bytes: float
) -> SolverResult:
    """The table of a deterministic MDP."""
    work = mdp.num_states**2 * (solver.num_matrices * request.dtype.itemsize + solver.scratch_bytes)
    require_matrix_memory(request.kind, num_states, work + copy_bytes)
    if solver.needs_warm_up:
        _warm_up_deterministic(solver.solve, request.dtype, mdp.num_states > MAX_SERIAL_STATES)
    least = request.residual_tolerance(mdp)
    steps = complete_actions(mdp, lax=request.kind == "lax")
    problem = DeterministicProblem(
        np.ascontiguousarray(steps.successor, dtype=np.uint32),
        np.ascontiguousarray(steps.reward),
        mdp.discount,
        least,
        request.dtype,
    )
    table = solver.solve(problem)
    return dataclasses.replace(table, residual=table.residual + steps.rounding_bound)


def _solve_stochastic(
    request: Request, mdp: MDP, num_states: int, copy_bytes: float
) -> SolverResult:
    """The table of any MDP."""
    lax = request.kind == "lax"
    require_matrix_memory(
        request.kind, num_states, policy_iteration.estimate_memory(mdp, lax=lax) + copy_bytes
    )
    _warm_up_stochastic()
    table = policy_iteration.solve(mdp, request.residual_tolerance(mdp), lax=lax)
    values = table.values.astype(request.dtype)
    if mdp.discount > 0:
        # States of different classes are not at distance 0, however small it is.
        apart = ~np.eye(len(values), dtype=np.bool_)
        np.maximum(values, np.finfo(values.dtype).tiny, out=values, where=apart)
    # A table that is rounded to float32 differs from its residual's by that rounding, twice.
    moved = float(np.abs(values - table.values).max()) * (1 + mdp.discount)
    return dataclasses.replace(table, values=values, residual=table.residual + moved)


def _bound_mass_error(mdp: MDP, classes: NDArray[np.int64], lax: bool) -> float:
    """The most mass by which a row differs, class by class, from the row that stands for it.

    Probabilities within a tolerance count as equal in `relation`. With such a mass e, W1 to the row
    of the first state of a class is at most e times the largest distance, for s and again for t.
    """
    if mdp.is_deterministic:
        return 0.0
    states, actions = mdp.R.shape
    row = np.repeat(np.arange(states * actions), np.diff(mdp.P.indptr))
    shape = (states * actions, int(classes.max()) + 1)
    by_class: Any = sparse.csr_array(
        (mdp.normalised_probabilities.data, (row, classes[mdp.P.indices])), shape
    )
    first = relation.representatives(classes)[classes]
    everyone = np.arange(states)
    has = mdp.action_mask
    there, back = (np.where(mask, np.inf, 0.0) for mask in (has, has[first]))
    for a in range(actions):
        for b in range(actions) if lax else [a]:
            apart = by_class[everyone * actions + a] - by_class[first * actions + b]
            same = (mdp.R[:, a] == mdp.R[first, b]) & has[:, a] & has[first, b]
            moved = np.where(same, abs(apart).sum(axis=1) / 2, np.inf)
            there[:, a] = np.minimum(there[:, a], moved)
            back[:, b] = np.minimum(back[:, b], moved)
    # The sums over classes have roundings of their own, one a term.
    widest = int(np.diff(mdp.P.indptr).max())
    return float(max(there.max(), back.max())) + 4 * widest * UNIT


@functools.cache
def _warm_up_deterministic(
    solve: Callable[[DeterministicProblem], SolverResult], dtype: np.dtype[Any], large: bool
) -> None:
    """Solves a toy problem, so that kernels are compiled before the bar of the real one."""
    states = MAX_SERIAL_STATES + 1 if large else 8
    s = np.arange(states)
    reward = (s[None] % 5).astype(np.float64)
    toy = DeterministicProblem(
        (s * 7 + 3)[None].astype(np.uint32) % states, reward, 0.5, 1e-6, dtype
    )
    with announce_compilation("the kernels"):
        solve(toy)


@functools.cache
def _warm_up_stochastic() -> None:
    """Solves a toy MDP, likewise."""
    toy = MDP([[[0.5, 0.5]], [[0.0, 1.0]]], [[0.0], [1.0]], discount=0.5)
    with announce_compilation("the kernels"):
        policy_iteration.solve(toy, 1e-6)


def validate_device(kind: str, device: str | None, **options: Any) -> None:
    """Refuses a device that is none, or that does not do what else is asked for."""
    if device not in (None, "cpu", "gpu"):
        raise InputError(f"exact.{kind}: device is {device!r} and must be 'cpu' or 'gpu'.")
    asked = [name for name, value in options.items() if value is not None]
    if device == "gpu" and asked:
        raise InputError(
            f"exact.{kind}: device='gpu' is for whole tables; leave {asked[0]} out, or the device."
        )


def select_solver(
    device: str | None,
    request: Request,
    dynamics: MDP,
    cpu_solver: DeterministicSolver,
    gpu_method: Literal["rising", "levels"],
) -> DeterministicSolver:
    """The solver `here`, of the processor, or that of `exact.gpu` with the name `there`."""
    if device != "gpu":
        return cpu_solver
    if not dynamics.is_deterministic:
        raise InputError(
            f"exact.{request.kind}: states of this MDP branch, and device='gpu' is for "
            "deterministic MDPs; leave device out."
        )
    from bisimetric.exact.gpu import bisimulation, cuda, on_policy

    cuda.find_device()
    # What it takes is of the GPU; here is only the table that comes back.
    return DeterministicSolver(
        {"rising": bisimulation, "levels": on_policy}[gpu_method].solve, 1, 0.0, needs_warm_up=False
    )

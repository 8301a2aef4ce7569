"""Solve on the quotient MDP: pick a device and a solver, expand the classes to all states."""

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
from bisimetric.exact._gap_solver import DeterministicSolve, solve_costs
from bisimetric.exact._request import Request, SolverResult, bound_error, require_matrix_memory
from bisimetric.exact.deterministic.problem import (
    MAX_SERIAL_STATES,
    DeterministicProblem,
    build_problem,
)
from bisimetric.exact.stochastic import policy_iteration
from bisimetric.mdp import MDP, InducedChain
from bisimetric.relation.api import compute_classes


@dataclasses.dataclass(frozen=True)
class DeterministicSolver:
    """A solver for deterministic MDPs, with its memory use.

    Attributes:
        solve: from a problem to its distance matrix.
        num_matrices: the memory that it takes, in distance matrices.
        scratch_bytes: further bytes per entry of a matrix.
        needs_warm_up: whether a small problem is solved first, which compiles its kernels.
        on_gpu: whether it runs on a GPU; then it takes a `cost` too, and stochastic MDPs are
            solved there.
    """

    solve: Callable[[DeterministicProblem], SolverResult]
    num_matrices: int
    scratch_bytes: float
    needs_warm_up: bool = True
    on_gpu: bool = False

    @property
    def gpu_solve(self) -> DeterministicSolve | None:
        """`solve`, if it runs on a GPU."""
        return self.solve if self.on_gpu else None


def solve_on_quotient(
    request: Request,
    mdp: MDP,
    solver: DeterministicSolver,
    *,
    chain: InducedChain | None = None,
    policy: NDArray[Any] | None = None,
    reward_tol: float = 0.0,
) -> Distance:
    """Compute the requested distance of `mdp`, or of the `chain` that a policy induces.

    States in one class of the relation are at distance 0 and have equal rows, so the problem is
    solved on one state per class and expanded. Rewards within `reward_tol`, and probabilities
    within the tolerance of `relation`, count as equal; the error contains what that changes.
    """
    dynamics = mdp if chain is None else chain.mdp
    lax, num_states = request.kind == "lax", dynamics.num_states
    matrix_bytes = num_states**2 * request.dtype.itemsize
    require_matrix_memory(request.kind, num_states, matrix_bytes)
    classes = compute_classes(dynamics, lax=lax, reward_tol=reward_tol)
    num_classes = int(classes.max()) + 1
    whole, copy_bytes = dynamics, 0
    if num_classes < num_states:
        copy_bytes = matrix_bytes
        dynamics = relation.quotient(dynamics, classes)
    ground = dynamics.ground_distance
    if ground is not None:
        diameter, cost = whole.diameter_bound, ground.matrix[None, None]
        request.require_range(whole)
        solution = solve_costs(
            request, dynamics, cost, diameter, gpu_solve=solver.gpu_solve, copy_bytes=copy_bytes
        )
    elif dynamics.is_deterministic and (lax or dynamics.choice_labels is None):
        solution = _solve_deterministic(request, dynamics, solver, whole, copy_bytes)
    else:
        solution = _solve_stochastic(request, dynamics, whole, copy_bytes, solver.on_gpu)
    residual = solution.residual
    if ground is not None:
        # The ground distance, and adding it.
        residual += ground.rounding_error + UNIT * solution.largest
    if num_classes < num_states and not (whole.is_deterministic and reward_tol == 0):
        residual += _bound_merge_error(whole, classes, lax, solution.largest)
    if chain is not None:
        residual += chain.pair_error(solution.largest + solution.residual)
    error = bound_error(residual, solution.largest, dynamics.discount)
    values = solution.values[np.ix_(classes, classes)] if copy_bytes else solution.values
    details = {**solution.details, "classes": num_classes}
    return request.build_distance(values, error, mdp, policy, details)


def _solve_deterministic(
    request: Request, mdp: MDP, solver: DeterministicSolver, whole: MDP, copy_bytes: float
) -> SolverResult:
    """Solve a deterministic quotient of the whole MDP, which has its diameter bound."""
    entry_bytes = solver.num_matrices * request.dtype.itemsize + solver.scratch_bytes
    work = mdp.num_states**2 * entry_bytes
    require_matrix_memory(request.kind, whole.num_states, work + copy_bytes)
    if solver.needs_warm_up:
        _warm_up_deterministic(solver.solve, request.dtype, mdp.num_states > MAX_SERIAL_STATES)
    tolerance = request.residual_tolerance(whole)
    problem = build_problem(
        mdp, request.dtype, tolerance, whole.diameter_bound, lax=request.kind == "lax"
    )
    solution = solver.solve(problem)
    return dataclasses.replace(solution, residual=solution.residual + problem.rounding_bound)


def _solve_stochastic(
    request: Request, mdp: MDP, whole: MDP, copy_bytes: float, on_gpu: bool
) -> SolverResult:
    """Solve any quotient of the whole MDP, which has its diameter bound."""
    lax, tolerance = request.kind == "lax", request.residual_tolerance(whole)
    if on_gpu:
        from bisimetric.exact.gpu import stochastic

        matrix_bytes = mdp.num_states**2 * request.dtype.itemsize
        require_matrix_memory(request.kind, whole.num_states, matrix_bytes + copy_bytes)
        return stochastic.solve(
            mdp, tolerance, request.dtype, kind=request.kind, diameter_bound=whole.diameter_bound
        )
    work = policy_iteration.estimate_memory(mdp, lax=lax, residual_tolerance=tolerance)
    require_matrix_memory(request.kind, whole.num_states, work + copy_bytes)
    types = policy_iteration.choose_types(mdp, lax=lax, residual_tolerance=tolerance)
    _warm_up_stochastic(types.is_packed, types.vector == np.float32)
    solution = policy_iteration.solve(mdp, tolerance, lax=lax, diameter_bound=whole.diameter_bound)
    # States of different classes are not at distance 0, however small it is, but at discount 0.
    values, moved = policy_iteration.round_matrix(
        solution.values, request.dtype, raise_zeros=mdp.discount > 0
    )
    # Rounding the matrix to float32 changes d and F(d) in the residual.
    residual = solution.residual + moved * (1 + mdp.discount)
    return dataclasses.replace(solution, values=values, residual=residual)


def _bound_merge_error(mdp: MDP, classes: NDArray[np.int64], lax: bool, largest: float) -> float:
    """Bound the change of F(d) when the rows of a state are replaced by its representative's.

    Probabilities and rewards within a tolerance count as equal in `relation`. Between an action of
    a state and the one that it is matched with, let g be the difference of the rewards and e the
    total variation of the class distributions. Then W1 to the row of the first state of a class is
    at most e times the largest distance, so that F(d) changes by at most g + discount * e *
    largest, for s and again for t.
    """
    num_states, num_actions = mdp.R.shape
    row = np.repeat(np.arange(num_states * num_actions), np.diff(mdp.P.indptr))
    shape = (num_states * num_actions, int(classes.max()) + 1)
    entries = (mdp.normalised_probabilities.data, (row, classes[mdp.P.indices]))
    by_class: Any = sparse.csr_array(entries, shape)
    first = relation.representatives(classes)[classes]
    everyone = np.arange(num_states)
    has = mdp.action_mask
    groups = np.zeros(num_actions, np.int64) if lax else mdp.choice_groups
    forward, backward = (np.where(mask, np.inf, 0.0) for mask in (has, has[first]))
    for a in range(num_actions):
        for b in np.flatnonzero(groups == groups[a]):
            difference = by_class[everyone * num_actions + a] - by_class[first * num_actions + b]
            moved = np.abs(mdp.R[:, a] - mdp.R[first, b])
            moved += mdp.discount * largest * abs(difference).sum(axis=1) / 2
            moved = np.where(has[:, a] & has[first, b], moved, np.inf)
            forward[:, a] = np.minimum(forward[:, a], moved)
            backward[:, b] = np.minimum(backward[:, b], moved)
    # The sums over classes have one rounding per term, and the rest a few.
    max_support = int(np.diff(mdp.P.indptr).max())
    rounding = mdp.discount * (4 * max_support + 8) * UNIT * largest
    return 2 * (float(max(forward.max(), backward.max())) * (1 + 8 * UNIT) + rounding)


@functools.cache
def _warm_up_deterministic(
    solve: Callable[[DeterministicProblem], SolverResult], dtype: np.dtype[Any], large: bool
) -> None:
    """Compile the kernels on a small problem, before the progress bar of the real one."""
    num_states = MAX_SERIAL_STATES + 1 if large else 8
    s = np.arange(num_states)
    reward = (s[None] % 5).astype(np.float64)
    successor = (s * 7 + 3)[None].astype(np.uint32) % num_states
    with announce_compilation("the kernels"):
        solve(DeterministicProblem(successor, reward, 0.5, 1e-6, dtype))


@functools.cache
def _warm_up_stochastic(few_successors: bool, single: bool) -> None:
    """Compile the kernels on a small MDP, whose numbers have the same types."""
    states, successors = (5, 3) if few_successors else (20, 17)
    s, i = np.arange(states)[:, None], np.arange(successors)
    P = np.zeros((states, 1, states))
    P[s, 0, (s + i * i) % states] += 1 / successors
    P /= P.sum(axis=-1, keepdims=True)
    small = MDP(P, s % 3 + 0.25 * (s % 2), discount=0.5 if single else 0.9995)
    with announce_compilation("the kernels"):
        policy_iteration.solve(small, 1e-6)


def validate_device(kind: str, device: str | None, **options: Any) -> None:
    """Raise InputError for an unknown device, or for options that a GPU does not support."""
    caller = f"exact.{kind}"
    if device not in (None, "cpu", "gpu"):
        raise InputError(
            f"is {device!r} and must be 'cpu' or 'gpu'", caller=caller, argument="device"
        )
    unsupported = [name for name, value in options.items() if value is not None]
    if device == "gpu" and unsupported:
        raise InputError(
            f"{caller}: device='gpu' computes whole matrices; leave {unsupported[0]} out, or the "
            "device."
        )


def select_solver(
    device: str | None,
    request: Request,
    dynamics: MDP,
    cpu_solver: DeterministicSolver,
    gpu_method: Literal["bisimulation", "on_policy", "lax"],
) -> DeterministicSolver:
    """Return the solver for the device: `cpu_solver`, or the method of `exact.gpu`."""
    if device != "gpu":
        return cpu_solver
    from bisimetric.exact.gpu import bisimulation, cuda, lax, on_policy

    cuda.find_device()
    methods = {"bisimulation": bisimulation, "on_policy": on_policy, "lax": lax}
    solve = methods[gpu_method].solve
    # The solver allocates on the GPU; on the host there is only the resulting matrix.
    return DeterministicSolver(solve, 1, 0.0, needs_warm_up=False, on_gpu=True)

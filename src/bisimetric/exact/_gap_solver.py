"""Distances with a gap of their own in place of the differences of rewards."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bisimetric import _memory
from bisimetric._rounding import TINY, UNIT
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.exact._request import (
    Request,
    SolverResult,
    bound_error,
    require_matrix_memory,
)
from bisimetric.exact.deterministic import doubling, gap_iteration
from bisimetric.exact.deterministic.problem import DeterministicProblem, build_problem
from bisimetric.exact.gaps import GapFunction
from bisimetric.exact.stochastic import policy_iteration
from bisimetric.mdp import MDP, InducedChain, compute_comparison_classes

DeterministicSolve = Callable[[DeterministicProblem], SolverResult]

ROW_BLOCK = 256
"""Rows of states that a gap function is evaluated for at once."""
NUM_TRIPLES = 100_000
"""Random triples whose triangle inequality is checked."""
ROUNDING = 1e-12
"""Relative asymmetry, or violation of the triangle inequality, that counts as rounding."""


def solve_with_gap(
    request: Request,
    mdp: MDP,
    gap: ArrayLike | GapFunction,
    *,
    chain: InducedChain | None = None,
    policy: NDArray[Any] | None = None,
    gpu_solve: DeterministicSolve | None = None,
) -> Distance:
    """Compute the requested distance of `mdp`, or of a `chain`, with another gap.

    F(d) = max_a gap + discount * W1(d) is a contraction whatever the gap, so that its residual
    proves the error. The transport keeps common mass in place, which is W1 where d is a
    pseudometric, as it is if every gap is one. The ground distance of observations is added. No
    distance exceeds D = max gap / (1 - discount). States are not merged by a relation.
    """
    dynamics = mdp if chain is None else chain.mdp
    table = evaluate_gap(
        f"exact.{request.kind}", request.kind, mdp, gap, policy,
        check_triangles=not dynamics.is_deterministic,
    )  # fmt: skip
    table, rounding = add_ground_distance(table, mdp)
    dynamics = dynamics.replace(R=np.zeros(dynamics.R.shape))
    diameter = bound_diameter(table, dynamics, request.kind == "lax")
    if not diameter < float(np.finfo(request.dtype).max):
        raise InputError(
            f"exact.{request.kind}: a gap of {table.max():g} makes distances that {request.dtype} "
            "cannot hold; scale the gap down."
        )
    solution = solve_costs(request, dynamics, table, diameter, gpu_solve=gpu_solve)
    residual = solution.residual + rounding
    if chain is not None:
        largest = solution.largest + solution.residual
        residual += dataclasses.replace(chain, reward_error=0.0).pair_error(largest)
    error = bound_error(residual, solution.largest, dynamics.discount)
    bound = diameter * (1 + 8 * UNIT) + TINY
    error = bound if error > bound and solution.values.max() <= bound else error
    return request.build_distance(
        solution.values, error, mdp, policy, {**solution.details, "gap": describe_gap(gap)}
    )


def add_ground_distance(table: NDArray[np.float64], mdp: MDP) -> tuple[NDArray[np.float64], float]:
    """Add the ground distance of observations, if any; return a bound on the rounding too."""
    ground = mdp.ground_distance
    if ground is None:
        return table, 0.0
    table = table + ground.matrix
    return table, ground.rounding_error + UNIT * float(table.max())


def solve_costs(
    request: Request,
    mdp: MDP,
    cost: NDArray[np.float64],
    diameter: float,
    *,
    gpu_solve: DeterministicSolve | None = None,
    copy_bytes: float = 0.0,
) -> SolverResult:
    """Compute the requested distance with costs besides the differences of rewards.

    Args:
        request: the validated options.
        mdp: the MDP, or the chain of a policy.
        cost: (1 or A, 1 or A, S, S): entry [a, b, s, t] is added to |R(s, a) - R(t, b)|.
        diameter: the distance of states that are not comparable, which bounds all others.
        gpu_solve: the solver of `exact.gpu` for a deterministic MDP and a cost without actions;
            what else there is, `exact.gpu.stochastic` solves.
        copy_bytes: memory for another copy of the matrix.

    Returns:
        The matrix in the requested dtype. The residual includes all roundings but those of `cost`
        and of adding it.
    """
    lax, discount, states = request.kind == "lax", mdp.discount, mdp.num_states
    tolerance = max(request.tol * (1 - discount) / 2, 8 * UNIT * diameter)
    classes = compute_comparison_classes(mdp, lax=lax)
    is_deterministic = mdp.is_deterministic and (lax or mdp.choice_labels is None)
    if gpu_solve is not None and not (is_deterministic and cost.shape[:2] == (1, 1)):
        from bisimetric.exact.gpu import stochastic

        require_matrix_memory(request.kind, states, copy_bytes + states**2 * request.dtype.itemsize)
        return stochastic.solve(
            mdp, tolerance, request.dtype, kind=request.kind, cost=cost, diameter_bound=diameter
        )
    if gpu_solve is not None:
        problem = build_problem(mdp, request.dtype, tolerance, diameter, cost[0, 0], lax=lax)
        solution = gpu_solve(problem)
        return dataclasses.replace(solution, residual=solution.residual + problem.rounding_bound)
    if mdp.num_actions == 1 and mdp.is_deterministic and not classes.any():
        require_matrix_memory(
            request.kind, states, copy_bytes + 3.0 * states**2 * request.dtype.itemsize
        )
        reward = mdp.R[:, 0]
        gap = np.abs(reward[:, None] - reward) + cost[0, 0]
        return doubling.solve_gaps(gap, mdp.next_state[:, 0], discount, tolerance, request.dtype)
    if mdp.is_deterministic and not lax and mdp.choice_labels is None:
        work = gap_iteration.NUM_MATRICES * 8.0 * states**2
        require_matrix_memory(request.kind, states, work + copy_bytes)
        solution = gap_iteration.solve(
            mdp.R, cost[:, 0], mdp.next_state, mdp.action_mask, classes, discount, diameter,
            tolerance,
        )  # fmt: skip
    else:
        work = policy_iteration.estimate_memory(mdp, lax=lax, residual_tolerance=tolerance)
        require_matrix_memory(request.kind, states, work + copy_bytes)
        solution = policy_iteration.solve(
            mdp, tolerance, lax=lax, cost=cost, diameter_bound=diameter
        )
    return _round_matrix(solution, request, discount)


def _round_matrix(solution: SolverResult, request: Request, discount: float) -> SolverResult:
    """Round the matrix to the dtype, which changes d and F(d) in the residual."""
    values, moved = policy_iteration.round_matrix(solution.values, request.dtype)
    residual = solution.residual + moved * (1 + discount)
    return dataclasses.replace(solution, values=values, residual=residual)


def describe_gap(gap: ArrayLike | GapFunction) -> str:
    """Return what the metadata say of a gap."""
    return "function" if callable(gap) else f"array {np.shape(gap)}"


def bound_diameter(table: NDArray[np.float64], dynamics: MDP, lax: bool) -> float:
    """Return max gap / (1 - discount), or 1 / (1 - discount) if only labels differ."""
    largest, classes = float(table.max()), compute_comparison_classes(dynamics, lax=lax)
    with np.errstate(over="ignore"):
        return (largest if largest > 0 or not classes.any() else 1.0) / (1 - dynamics.discount)


def evaluate_gap(
    caller: str,
    kind: str,
    mdp: MDP,
    gap: ArrayLike | GapFunction,
    policy: NDArray[Any] | None,
    *,
    check_triangles: bool,
) -> NDArray[np.float64]:
    """Return the gap as (1 or A, 1 or A, S, S), validated: entry [a, b, s, t] is gap(s, a, t, b).

    With a policy it has no actions. With `check_triangles`, the triangle inequality is checked on
    random triples.
    """
    states, actions = mdp.R.shape
    single = policy is not None
    pairs = kind == "lax" or mdp.choice_labels is not None
    if callable(gap):
        shape = (1, 1) if single else (actions, actions if pairs else 1)
        _memory.require_memory(
            f"{caller}: the gap of {states:,} states needs",
            8.0 * shape[0] * shape[1] * states**2,
            "pass a matrix (S, S), which no action changes",
        )
        table = np.empty((*shape, states, states))
        for a in range(shape[0]):
            for b in range(shape[1]):
                own, other = (a, b) if shape[1] > 1 else (a, a)
                _evaluate_block(caller, gap, policy, own, other, table[a, b])
        if (table == table[:1, :1]).all():  # no action changes it
            table = table[:1, :1].copy()
    else:
        table = _arrange_array(caller, np.asarray(gap), states, actions, single, pairs)
    _validate_table(caller, table, check_triangles)
    if mdp.available is not None and table.shape[0] > 1:
        # What no state can pay does not count in the diameter bound.
        for a in range(actions):
            for b in range(table.shape[1]):
                other = b if table.shape[1] > 1 else a
                table[a, b] *= mdp.available[:, a, None] & mdp.available[None, :, other]
    return table


def _evaluate_block(
    caller: str,
    gap: GapFunction,
    policy: NDArray[Any] | None,
    a: int,
    b: int,
    out: NDArray[np.float64],
) -> None:
    """Evaluate a gap function for all states, block by block."""
    t = np.arange(len(out))[None, :]
    for start in range(0, len(out), ROW_BLOCK):
        s = np.arange(start, min(start + ROW_BLOCK, len(out)))[:, None]
        actions: tuple[Any, Any] = (a, b)
        if policy is not None:
            actions = (policy[s], policy[t]) if policy.ndim == 1 else (None, None)
        block = np.asarray(gap(s, actions[0], t, actions[1]), np.float64)
        if block.shape not in ((), (len(s), len(out))):
            raise InputError(
                f"{caller}: gap(s, a, t, b) returns shape {block.shape} for s of shape {s.shape} "
                f"and t of shape {t.shape}, and must return {(len(s), len(out))}."
            )
        out[start : start + len(s)] = block


def _arrange_array(
    caller: str, array: NDArray[Any], states: int, actions: int, single: bool, pairs: bool
) -> NDArray[np.float64]:
    """Arrange a gap array by actions first."""
    if array.dtype.kind not in "biuf":
        raise InputError(f"{caller}: gap is {array.dtype} and must be numbers or a function.")
    array = np.array(array, np.float64)
    wanted: list[tuple[int, ...]] = [(states, states)]
    if array.shape == (states, states):
        return array[None, None]
    if not single:
        wanted.append((states, actions, states, actions))
        if array.shape == wanted[-1]:
            by_action = np.ascontiguousarray(array.transpose(1, 3, 0, 2))
            if pairs:
                return by_action
            return np.ascontiguousarray(by_action[np.arange(actions), np.arange(actions)])[:, None]
        if not pairs:
            wanted.append((states, states, actions))
            if array.shape == wanted[-1]:
                return np.ascontiguousarray(array.transpose(2, 0, 1))[:, None]
    options = " or ".join(map(str, wanted))
    raise InputError(f"{caller}: gap has shape {array.shape} and must be {options}, or a function.")


def _validate_table(caller: str, table: NDArray[np.float64], check_triangles: bool) -> None:
    """Raise InputError unless gaps are finite, at least 0, symmetric and 0 on the diagonal.

    With `check_triangles`, the triangle inequality is checked on random triples.
    """
    low, high = float(table.min()), float(table.max())
    if not (np.isfinite(low) and np.isfinite(high) and low >= 0):
        raise InputError(f"{caller}: gaps go from {low:g} to {high:g} and must be finite and >= 0.")
    square = table.shape[0] == table.shape[1]
    for a in range(table.shape[0]):
        for b in range(table.shape[1]):
            mirrored = table[b, a].T if square else table[a, b].T
            asymmetry = float(np.abs(table[a, b] - mirrored).max())
            if asymmetry > ROUNDING * high:
                raise InputError(
                    f"{caller}: gap(s, a, t, b) and gap(t, b, s, a) differ by {asymmetry:.2g}; a "
                    "gap must be symmetric."
                )
            if asymmetry > 0:  # by rounding: the larger one counts
                np.maximum(table[a, b], mirrored.copy(), out=table[a, b])
        own = table[a, a if square else 0]
        if own.diagonal().any():
            raise InputError(
                f"{caller}: gap(s, a, s, a) is {own.diagonal().max():g} and must be 0."
            )
    if not check_triangles:
        return
    rng = np.random.default_rng(0)
    s, t, u = rng.integers(table.shape[2], size=(3, NUM_TRIPLES))
    for a in range(table.shape[0]):
        own = table[a, a if square else 0]
        excess = float((own[s, u] - own[s, t] - own[t, u]).max())
        if excess > ROUNDING * high:
            raise InputError(
                f"{caller}: the gap violates the triangle inequality by {excess:.2g}, and W1 "
                "needs it; pass a pseudometric of state-action pairs."
            )

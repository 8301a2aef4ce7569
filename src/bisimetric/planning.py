"""Compute V*, V^pi, action values and greedy policies, each to a proven error."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import linalg
from threadpoolctl import ThreadpoolController

from bisimetric._rounding import TINY, UNIT
from bisimetric.errors import InputError, NotConverged
from bisimetric.mdp import MDP, InducedChain, induce_chain
from bisimetric.mdp._validation import require_mdp

__all__ = [
    "ValueFunction",
    "action_values",
    "greedy_policy",
    "optimal_values",
    "policy_values",
]

MAX_POLICY_ITERATIONS = 10_000
"""Policy iteration needs a few; many more mean that rounding errors cause a cycle."""
MAX_SWEEPS, NUM_STABLE_SWEEPS = 256, 4
"""Sweeps of value iteration for a warm start, and sweeps without a change that end it."""
MAX_REFINEMENTS, REFINEMENT_TOLERANCE, MAX_SOLVER_ITERATIONS = 8, 1e-6, 200
"""Iterative refinement of the linear solver: rounds, relative tolerance, iterations per round."""


@dataclasses.dataclass(frozen=True, eq=False)
class ValueFunction:
    """A value function with a proven error.

    Attributes:
        values: (S,).
        error: upper bound on the absolute error of every value.

    >>> mdp = MDP.deterministic([[1], [1]], [[0.0], [1.0]], discount=0.5)
    >>> V = optimal_values(mdp)
    >>> V.values, V.error < 1e-9
    (array([1., 2.]), True)
    """

    values: NDArray[np.float64]
    error: float

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=copy)


def optimal_values(mdp: MDP, *, tol: float = 1e-6) -> ValueFunction:
    """Compute the optimal value function V* to a proven error.

    V*(s) = max_a R(s, a) + discount * sum_s' P(s, a)(s') V*(s').

    By Howard's policy iteration. The result V is put back into the equation; its residual r
    proves |V - V*| <= r / (1 - discount) (Puterman 1994, theorem 6.3.1).

    Args:
        mdp: any MDP.
        tol: the largest absolute error to accept.

    Returns:
        The optimal value function and its error, at most `tol`.

    Raises:
        InputError: values could exceed the range of float64.
        NotConverged: float64 cannot prove `tol`; the exception carries the values.

    >>> mdp = MDP.deterministic([[1, 0], [1, 0]], [[0, 2], [1, 3]], discount=0.5)
    >>> optimal_values(mdp).values
    array([4., 5.])
    """
    require_mdp("planning.optimal_values", mdp)
    _require_representable_values("optimal_values", mdp)
    # Evaluation of a deterministic chain is cheap, so it needs no warm start.
    _, V = _policy_iteration(
        mdp, _initial_policy(mdp) if mdp.is_deterministic else _warm_start_policy(mdp)
    )
    return _certify_values("optimal_values", V, action_values(mdp, V).max(axis=1), mdp, tol)


def policy_values(mdp: MDP, policy: ArrayLike, *, tol: float = 1e-6) -> ValueFunction:
    """Compute the value function V^pi of a policy to a proven error.

    V^pi(s) = R^pi(s) + discount * sum_s' P^pi(s)(s') V^pi(s'), with R^pi and P^pi of
    `MDP.apply_policy`, whose rounding is part of the error.

    Args:
        mdp: any MDP.
        policy: (S,) actions or (S, A) probabilities.
        tol: the largest absolute error to accept.

    Returns:
        The value function and its error, at most `tol`.

    Raises:
        InputError: the policy is invalid, or values could exceed the range of float64.
        NotConverged: float64 cannot prove `tol`; the exception carries the values.

    >>> mdp = MDP.deterministic([[1, 0], [1, 0]], [[0, 2], [1, 3]], discount=0.5)
    >>> policy_values(mdp, [0, 0]).values
    array([1., 2.])
    """
    require_mdp("planning.policy_values", mdp)
    _require_representable_values("policy_values", mdp)
    chain = induce_chain(mdp, policy)
    V = _evaluate_chain(chain.mdp)
    image = action_values(chain.mdp, V)[:, 0]
    return _certify_values("policy_values", V, image, chain.mdp, tol, chain)


def greedy_policy(
    mdp: MDP, values: ArrayLike | ValueFunction | None = None, *, tol: float = 1e-6
) -> NDArray[np.int64]:
    """Return the policy that is greedy for a value function, or an optimal policy.

    Args:
        mdp: any MDP.
        values: (S,) or a `ValueFunction`; None computes an optimal policy.
        tol: without `values`, the value of the policy is proven to be within `tol` of V*.

    Returns:
        One action per state, (S,).

    Raises:
        InputError: values could exceed the range of float64.
        NotConverged: float64 cannot prove `tol`.

    >>> mdp = MDP.deterministic([[1, 0], [1, 0]], [[0, 2], [1, 3]], discount=0.5)
    >>> greedy_policy(mdp)
    array([1, 1])
    """
    require_mdp("planning.greedy_policy", mdp)
    if values is not None:
        return np.asarray(action_values(mdp, values).argmax(axis=1))
    _require_representable_values("greedy_policy", mdp)
    policy, V = _policy_iteration(mdp, _initial_policy(mdp))
    # |V^pi - V*| <= |V^pi - V| + |V - V*|; each residual proves one half.
    best = action_values(mdp, V)
    _certify_values("greedy_policy", V, best.max(axis=1), mdp, tol / 2)
    _certify_values("greedy_policy", V, best[np.arange(len(V)), policy], mdp, tol / 2)
    return policy


def action_values(mdp: MDP, values: ArrayLike | ValueFunction) -> NDArray[np.float64]:
    """Compute the action values of a value function.

    Q(s, a) = R(s, a) + discount * sum_s' P(s, a)(s') V(s'); up to rounding,
    max |Q - Q*| <= discount * max |V - V*|.

    Args:
        mdp: any MDP.
        values: (S,) or a `ValueFunction`.

    Returns:
        Q (S, A), minus infinity for missing actions.

    >>> mdp = MDP.deterministic([[1, 0], [1, 0]], [[0, 2], [1, 3]], discount=0.5)
    >>> action_values(mdp, optimal_values(mdp))
    array([[2.5, 4. ],
           [3.5, 5. ]])
    """
    require_mdp("planning.action_values", mdp)
    Q = mdp.R + mdp.discount * (mdp.normalised_probabilities @ np.asarray(values)).reshape(
        mdp.R.shape
    )
    return Q if mdp.available is None else np.where(mdp.available, Q, -np.inf)


def _require_representable_values(caller: str, mdp: MDP) -> None:
    """Raise InputError if a value function may exceed the range of float64."""
    with np.errstate(over="ignore"):
        largest = float(np.abs(mdp.R).max()) / (1 - mdp.discount)
    # A quarter, so that sums of a value and a reward stay finite too.
    if not largest < float(np.finfo(np.float64).max) / 4:
        raise InputError(
            f"planning.{caller}: rewards from {mdp.R.min():g} to {mdp.R.max():g} make values that "
            "float64 cannot hold; scale the rewards down."
        )


def _initial_policy(mdp: MDP) -> NDArray[np.int64]:
    """Return the greedy policy for the reward, or the first available actions."""
    return np.asarray(np.argmax(mdp.R if mdp.available is None else mdp.available, axis=1))


def _warm_start_policy(mdp: MDP) -> NDArray[np.int64]:
    """Return the greedy policy after some sweeps of value iteration, which are cheap."""
    V, policy, num_stable = np.zeros(mdp.num_states), np.zeros(mdp.num_states, np.int64), 0
    for _ in range(MAX_SWEEPS):
        Q = action_values(mdp, V)
        V, previous, policy = Q.max(axis=1), policy, Q.argmax(axis=1)
        num_stable = num_stable + 1 if (policy == previous).all() else 0
        if num_stable == NUM_STABLE_SWEEPS:
            break
    return policy


def _policy_iteration(
    mdp: MDP, policy: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Run Howard's policy iteration; return the final policy and its values."""
    every_state = np.arange(mdp.num_states)
    for _ in range(MAX_POLICY_ITERATIONS):
        V = _evaluate_chain(mdp.apply_policy(policy))
        Q = action_values(mdp, V)
        # Only a gain beyond rounding changes an action, so that no policy recurs.
        rounding = 64 * (UNIT * _largest_magnitude(mdp, V) + TINY)
        better = Q.max(axis=1) > Q[every_state, policy] + rounding
        if not better.any():
            break
        policy = np.where(better, Q.argmax(axis=1), policy)
    return policy, V


def _evaluate_chain(chain: MDP) -> NDArray[np.float64]:
    """Return V of a chain; V_2k(s) = V_k(s) + discount^k V_k(n_k(s)) if it is deterministic."""
    R, discount = chain.R[:, 0], chain.discount
    if not chain.is_deterministic:
        return _solve_linear_system(
            sparse.eye_array(chain.num_states) - discount * chain.normalised_probabilities, R
        )
    V, successor, weight = R.copy(), chain.next_state[:, 0], discount
    while weight > UNIT:
        V = V + weight * V[successor]
        successor, weight = successor[successor], weight * weight
    return np.asarray(R + discount * V[chain.next_state[:, 0]])


def _solve_linear_system(system: sparse.csr_array, R: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve system V = R up to rounding.

    By iterative refinement with BiCGSTAB, and by a sparse factorisation where that does not
    converge, as on long chains. The factors of a well-connected graph would be dense. If the system
    is singular in float64, the last refinement is returned; the caller checks its residual.
    """
    V, residual = np.zeros(R.shape), R
    max_successors = int(np.diff(system.indptr).max())
    for _ in range(MAX_REFINEMENTS):
        with np.errstate(over="ignore", invalid="ignore"):
            refined = V + solve_bicgstab(
                system, residual, rtol=REFINEMENT_TOLERANCE, max_iterations=MAX_SOLVER_ITERATIONS
            )
            new_residual = R - system @ refined
        negligible = (max_successors + 4) * UNIT * float(np.abs(R).max() + np.abs(refined).max())
        if np.abs(new_residual).max() <= negligible:
            return refined
        if not np.abs(new_residual).max() < np.abs(residual).max() / 2:
            break
        V, residual = refined, new_residual
    try:
        solution = np.asarray(linalg.splu(system.tocsc()).solve(R)).reshape(R.shape)
    except RuntimeError:  # singular in float64, with a discount next to 1
        return V
    return solution if np.isfinite(solution).all() else V


def solve_bicgstab(
    system: Any,
    right_hand_side: NDArray[np.float64],
    *,
    rtol: float,
    max_iterations: int,
    atol: float = 0.0,
) -> NDArray[np.float64]:
    """Solve system @ x = right_hand_side with BiCGSTAB, to `rtol` or `atol`, in `max_iterations`.

    On one thread: more gain nothing here, slow each other down on a busy machine, and round
    differently from run to run.
    """
    # Squares of huge rewards overflow; callers check the residual.
    ignored = np.errstate(over="ignore", invalid="ignore", divide="ignore")
    with ignored, _thread_controller().limit(limits=1, user_api="blas"):
        solution, _ = linalg.bicgstab(
            system, right_hand_side, rtol=rtol, atol=atol, maxiter=max_iterations
        )
    return np.asarray(solution)


@functools.cache
def _thread_controller() -> ThreadpoolController:
    """Return the controller of the libraries with thread pools in this process."""
    return ThreadpoolController()


def _largest_magnitude(mdp: MDP, V: NDArray[np.float64]) -> float:
    """Return the largest absolute reward plus the largest absolute value."""
    return float(np.abs(mdp.R).max() + np.abs(V).max())


def _certify_values(
    caller: str,
    V: NDArray[np.float64],
    image: NDArray[np.float64],
    mdp: MDP,
    tol: float,
    chain: InducedChain | None = None,
) -> ValueFunction:
    """Return values with the error that their residual proves, the rounding of the image included.

    The rounding of a sum is relative to its terms, or at most TINY per operation where it
    underflows. The rounding of a `chain` is added.
    """
    max_successors = int(np.diff(mdp.P.indptr).max())
    rounding = (2 * max_successors + 6) * (UNIT * _largest_magnitude(mdp, V) + TINY)
    if chain is not None:
        rounding += chain.value_error(float(np.abs(V).max()))
    error = (float(np.abs(image - V).max()) + rounding) / (1 - mdp.discount) * (1 + 8 * UNIT)
    if not np.isfinite(error):
        error = np.inf
    values = ValueFunction(V, error)
    if not error <= tol:
        finite = np.isfinite(error)
        remedy = f"pass tol={_round_up(error):g} or more" if finite else "scale the rewards down"
        raise NotConverged(
            f"planning.{caller}: float64 proves an error of {error:.2g} here and not tol={tol:g}; "
            f"{remedy}.",
            values,
        )
    return values


def _round_up(error: float) -> float:
    """Round up to one significant digit."""
    digit = 10.0 ** np.floor(np.log10(error))
    return float(np.ceil(error / digit) * digit) if digit > 0 else error

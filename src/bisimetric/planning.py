"""V*, V^pi, action values and greedy policies: what the distances bound, each to a proven error."""

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

MAX_POLICY_ITERATIONS = 10_000
"""Rounds of policy iteration, which needs a few; more mean that rounding goes in circles."""
MAX_SWEEPS, NUM_STABLE_SWEEPS = 256, 4
"""Of value iteration before that, at most, and those that change no action when it is at rest."""
MAX_REFINEMENTS, REFINEMENT_TOLERANCE, MAX_SOLVER_ITERATIONS = 8, 1e-6, 200
"""Of the linear solver: how often what is left is solved for, to which share, in how many steps."""


@dataclasses.dataclass(frozen=True, eq=False)
class ValueFunction:
    """A value function: `values` (S,), each within the proven `error` of the true one."""

    values: NDArray[np.float64]
    error: float

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=copy)


def optimal_values(mdp: MDP, *, tol: float = 1e-6) -> ValueFunction:
    """V*(s) = max_a R(s, a) + discount * sum_s' P(s, a)(s') V*(s'), to a proven error.

    Howard's policy iteration; the answer V is put back into the equation, and a residual r
    proves |V - V*| <= r / (1 - discount) (Puterman 1994, theorem 6.3.1).

    >>> mdp = MDP.deterministic([[1, 0], [1, 0]], [[0, 2], [1, 3]], discount=0.5)
    >>> optimal_values(mdp).values
    array([4., 5.])
    """
    require_mdp("planning.optimal_values", mdp)
    _require_representable_values("optimal_values", mdp)
    # Where evaluating a policy is cheap, it need not start from a good one.
    _, V = _policy_iteration(
        mdp, _initial_policy(mdp) if mdp.is_deterministic else _warm_start_policy(mdp)
    )
    return _certify_values("optimal_values", V, action_values(mdp, V).max(axis=1), mdp, tol)


def policy_values(mdp: MDP, policy: ArrayLike, *, tol: float = 1e-6) -> ValueFunction:
    """V^pi(s) = R^pi(s) + discount * sum_s' P^pi(s)(s') V^pi(s'), to a proven error.

    R^pi and P^pi are those of `MDP.under`; their rounding is part of the error.

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
    """The actions (S,) that are greedy for `values`; without `values`, an optimal policy.

    Without `values` the policy's own value is proven to lie within `tol` of V* everywhere.

    >>> mdp = MDP.deterministic([[1, 0], [1, 0]], [[0, 2], [1, 3]], discount=0.5)
    >>> greedy_policy(mdp)
    array([1, 1])
    """
    require_mdp("planning.greedy_policy", mdp)
    if values is not None:
        return np.asarray(action_values(mdp, values).argmax(axis=1))
    _require_representable_values("greedy_policy", mdp)
    policy, V = _policy_iteration(mdp, _initial_policy(mdp))
    # |V^pi - V*| <= |V^pi - V| + |V - V*|, and each residual proves one half.
    best = action_values(mdp, V)
    _certify_values("greedy_policy", V, best.max(axis=1), mdp, tol / 2)
    _certify_values("greedy_policy", V, best[np.arange(len(V)), policy], mdp, tol / 2)
    return policy


def action_values(mdp: MDP, values: ArrayLike | ValueFunction) -> NDArray[np.float64]:
    """Q(s, a) = R(s, a) + discount * sum_s' P(s, a)(s') V(s'), (S, A), from the values V (S,).

    Minus infinity for an action that a state lacks. No farther from Q* than discount times as far
    as V is from V*, but for rounding.

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
    """Raises InputError where a value function may exceed the largest float64."""
    with np.errstate(over="ignore"):
        largest = float(np.abs(mdp.R).max()) / (1 - mdp.discount)
    # Sums of a value and a reward stay finite too.
    if not largest < float(np.finfo(np.float64).max) / 4:
        raise InputError(
            f"planning.{caller}: rewards from {mdp.R.min():g} to {mdp.R.max():g} make values that "
            "float64 cannot hold; scale the rewards down."
        )


def _initial_policy(mdp: MDP) -> NDArray[np.int64]:
    return np.asarray(np.argmax(mdp.R if mdp.available is None else mdp.available, axis=1))


def _warm_start_policy(mdp: MDP) -> NDArray[np.int64]:
    """What is greedy after some value iteration: news of a goal travel a step a sweep, cheaply."""
    V, policy, unchanged = np.zeros(mdp.num_states), np.zeros(mdp.num_states, np.int64), 0
    for _ in range(MAX_SWEEPS):
        Q = action_values(mdp, V)
        V, before, policy = Q.max(axis=1), policy, Q.argmax(axis=1)
        unchanged = unchanged + 1 if (policy == before).all() else 0
        if unchanged == NUM_STABLE_SWEEPS:
            break
    return policy


def _policy_iteration(
    mdp: MDP, policy: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    everyone = np.arange(mdp.num_states)
    for _ in range(MAX_POLICY_ITERATIONS):
        V = _evaluate_chain(mdp.apply_policy(policy))
        Q = action_values(mdp, V)
        # Only a gain beyond rounding changes an action, so that no policy comes back.
        beyond = 64 * (UNIT * _largest_magnitude(mdp, V) + TINY)
        better = Q.max(axis=1) > Q[everyone, policy] + beyond
        if not better.any():
            break
        policy = np.where(better, Q.argmax(axis=1), policy)
    return policy, V


def _evaluate_chain(chain: MDP) -> NDArray[np.float64]:
    """V of a chain; by doubling V_2k(s) = V_k(s) + discount^k V_k(n_k(s)) where deterministic."""
    R, discount = chain.R[:, 0], chain.discount
    if not chain.is_deterministic:
        return _solve_linear_system(
            sparse.eye_array(chain.num_states) - discount * chain.normalised_probabilities, R
        )
    V, ahead, weight = R.copy(), chain.next_state[:, 0], discount
    while weight > UNIT:
        V = V + weight * V[ahead]
        ahead, weight = ahead[ahead], weight * weight
    return np.asarray(R + discount * V[chain.next_state[:, 0]])


def _solve_linear_system(system: sparse.csr_array, R: NDArray[np.float64]) -> NDArray[np.float64]:
    """V with system V = R, up to rounding.

    Refined by BiCGSTAB, whose steps are cheap; directly where that does not get there, as on long
    chains. The factors of a graph in which all is near to all would fill a whole table. Where the
    system is singular in float64, the last refinement is returned; its residual tells.
    """
    V, left = np.zeros(R.shape), R
    longest = int(np.diff(system.indptr).max())
    for _ in range(MAX_REFINEMENTS):
        with np.errstate(over="ignore", invalid="ignore"):
            refined = V + solve_bicgstab(
                system, left, rtol=REFINEMENT_TOLERANCE, max_iterations=MAX_SOLVER_ITERATIONS
            )
            rest = R - system @ refined
        small = (longest + 4) * UNIT * float(np.abs(R).max() + np.abs(refined).max())
        if np.abs(rest).max() <= small:
            return refined
        if not np.abs(rest).max() < np.abs(left).max() / 2:
            break
        V, left = refined, rest
    try:
        found = np.asarray(linalg.splu(system.tocsc()).solve(R)).reshape(R.shape)
    except RuntimeError:  # singular in float64, with a discount next to 1
        return V
    return found if np.isfinite(found).all() else V


def solve_bicgstab(
    system: Any,
    right_hand_side: NDArray[np.float64],
    *,
    rtol: float,
    max_iterations: int,
    atol: float = 0.0,
) -> NDArray[np.float64]:
    """x with system @ x = left, to a share of what is left or to `small`, in some steps at most.

    By BiCGSTAB on one thread: several gain nothing here, wait for each other on a busy machine, and
    round differently from run to run.
    """
    # Squares of huge rewards overflow; whoever calls looks at the residual.
    ignored = np.errstate(over="ignore", invalid="ignore", divide="ignore")
    with ignored, _thread_controller().limit(limits=1, user_api="blas"):
        found, _ = linalg.bicgstab(
            system, right_hand_side, rtol=rtol, atol=atol, maxiter=max_iterations
        )
    return np.asarray(found)


@functools.cache
def _thread_controller() -> ThreadpoolController:
    """The libraries in this process that have threads of their own."""
    return ThreadpoolController()


def _largest_magnitude(mdp: MDP, V: NDArray[np.float64]) -> float:
    return float(np.abs(mdp.R).max() + np.abs(V).max())


def _certify_values(
    caller: str,
    V: NDArray[np.float64],
    image: NDArray[np.float64],
    mdp: MDP,
    tol: float,
    chain: InducedChain | None = None,
) -> ValueFunction:
    """Values with the error that their residual proves, the rounding of the image included.

    That of a sum is relative to its terms, or at most TINY per operation where it underflows. A
    `chain` has a rounding of its own.
    """
    longest = int(np.diff(mdp.P.indptr).max())
    rounding = (2 * longest + 6) * (UNIT * _largest_magnitude(mdp, V) + TINY)
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
    """The error with one digit, rounded up."""
    digit = 10.0 ** np.floor(np.log10(error))
    return float(np.ceil(error / digit) * digit) if digit > 0 else error

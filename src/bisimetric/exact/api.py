"""d~ (Ferns et al. 2004), d^pi (Castro 2020) and d_lax (Taylor et al. 2009) of all pairs."""

from __future__ import annotations

from numpy.typing import ArrayLike, DTypeLike

from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.exact._gap_solver import solve_with_gap
from bisimetric.exact._quotient_solver import (
    DeterministicSolver,
    select_solver,
    solve_on_quotient,
    validate_device,
)
from bisimetric.exact._request import build_request
from bisimetric.exact.deterministic import doubling, lax_solver, policy_iteration
from bisimetric.exact.gaps import GapFunction
from bisimetric.exact.stochastic import monte_carlo
from bisimetric.mdp import MDP, induce_chain
from bisimetric.mdp._validation import require_mdp, resolve_policy


def bisimulation(
    mdp: MDP,
    *,
    tol: float | None = None,
    normalised_tol: float | None = None,
    dtype: DTypeLike = "float64",
    samples: int | None = None,
    seed: int = 0,
    device: str | None = None,
    reward_tol: float = 0.0,
    gap: ArrayLike | GapFunction | None = None,
) -> Distance:
    """Compute the bisimulation metric d~ of an MDP, every entry proven to `tol`.

        d~(s, t) = max_a |R(s, a) - R(t, a)| + discount * W1(d~)(P(s, a), P(t, a))

    W1 is the Kantorovich (1-Wasserstein) distance; |V*(s) - V*(t)| <= d~(s, t). At a discount
    above 0, d~(s, t) = 0 iff s and t are bisimilar; at 0 only the rewards count. A computed 0
    proves no more than that d~(s, t) is at most the error. In a deterministic MDP W1 is the
    distance of the two successors, and d~ the optimal value function of the pair graph
    (`exact/deterministic`). Otherwise policy iteration over actions and couplings computes it
    (`exact/stochastic`). States whose label sets or available actions differ are at the largest
    possible distance, the reward range divided by 1 - discount (`MDP.diameter_bound`). Actions with
    equal choice labels are compared as sets, by the Hausdorff distance of `lax`. In all distances
    the ground distance of observations (`MDP.observations`) is added to the difference of rewards.

    Args:
        mdp: the MDP.
        tol: bound on the true error of every entry; default 1e-6.
        normalised_tol: in place of `tol`, a bound on the error of (1 - discount) d, which does not
            grow with the horizon: for discounts near 1.
        dtype: of the distance matrix, float64 or float32. Without `tol`, a float32 matrix has the
            `error` that its rounding allows.
        samples: Monte Carlo estimate: replace each distribution by this many samples, and W1 by
            an assignment of them (Ferns et al. 2006), which is less work where supports are large.
            The `error` of the result is infinite, and its `estimate` says about how far off it is;
            `exact.sampling_error` bounds that with some probability ("pac_bound" in `metadata`).
        seed: of the samples.
        device: "cpu", the default, or "gpu": on an NVIDIA GPU (`exact/gpu`), with the same proof;
            at most 32 successors per state and action.
        reward_tol: rewards of one action that differ by no more count as equal in the relation by
            which states are merged first (`relation.bisimulation`); the `error` contains what that
            changes.
        gap: immediate costs in place of |R(s, a) - R(t, a)|: (S, S), (S, S, A), or a function
            gap(s, a, t, b) of arrays, see `exact.gaps`. Each must be a pseudometric. Then d~ does
            not bound values; `samples` and `reward_tol` are not supported.

    Returns:
        The distance matrix with its proven error, in units of reward.

    Raises:
        InputError: an argument has the wrong type or value, or `device` cannot do what is asked.
        NotConverged: rounding does not allow `tol`; `partial` holds the distance that was proven.
        InsufficientMemory: the matrix does not fit into memory.

    >>> from bisimetric import worlds
    >>> d = bisimulation(worlds.load("mirrored-rooms", discount=0.99))
    >>> round(float(d.values.max()), 2), d.error <= 1e-6
    (150.25, True)
    """
    require_mdp("exact.bisimulation", mdp)
    validate_device("bisimulation", device, samples=samples)
    request = build_request(
        "bisimulation", tol, dtype, normalised_tol=normalised_tol, discount=mdp.discount
    )
    solver = DeterministicSolver(policy_iteration.solve, 2 if mdp.num_actions == 1 else 1, 5.5)
    if gap is not None:
        _reject_options("bisimulation", samples=samples, reward_tol=reward_tol)
        solver = select_solver(device, request, mdp, solver, "bisimulation")
        return solve_with_gap(request, mdp, gap, gpu_solve=solver.gpu_solve)
    if samples is not None:
        return monte_carlo.estimate_bisimulation(request, mdp, solver, samples, seed)
    solver = select_solver(device, request, mdp, solver, "bisimulation")
    return solve_on_quotient(request, mdp, solver, reward_tol=reward_tol)


def on_policy(
    mdp: MDP,
    policy: ArrayLike | None = None,
    *,
    tol: float | None = None,
    normalised_tol: float | None = None,
    dtype: DTypeLike = "float64",
    device: str | None = None,
    reward_tol: float = 0.0,
    gap: ArrayLike | GapFunction | None = None,
) -> Distance:
    """Compute the on-policy metric d^pi of an MDP and a policy, every entry proven to `tol`.

        d^pi(s, t) = |R^pi(s) - R^pi(t)| + discount * W1(d^pi)(P^pi(s), P^pi(t))

    R^pi and P^pi are those of the Markov chain that the policy induces (`MDP.apply_policy`), whose
    rounding is part of the error; |V^pi(s) - V^pi(t)| <= d^pi(s, t). In a deterministic chain every
    pair has one successor, so the number of summed terms doubles in each pass
    (`exact/deterministic/doubling.py`). Otherwise policy iteration over couplings computes it
    (`exact/stochastic`). States whose label sets differ are at the diameter bound of the chain.

    Args:
        mdp: the MDP.
        policy: (S,) actions or (S, A) probabilities; default: the MDP's own policy, or the only
            one where there is a single action.
        tol: bound on the true error of every entry; default 1e-6.
        normalised_tol: in place of `tol`, a bound on the error of (1 - discount) d, which does not
            grow with the horizon: for discounts near 1.
        dtype: of the distance matrix, float64 or float32. Without `tol`, a float32 matrix has the
            `error` that its rounding allows.
        device: "cpu", the default, or "gpu": on an NVIDIA GPU (`exact/gpu`), with the same proof;
            at most 32 successors per state.
        reward_tol: rewards of one action that differ by no more count as equal in the relation by
            which states are merged first (`relation.bisimulation`); the `error` contains what that
            changes.
        gap: immediate costs in place of |R^pi(s) - R^pi(t)|: (S, S), or a function gap(s, a, t, b)
            of arrays, see `exact.gaps`: policy similarity, several rewards, ground distances. It
            must be a pseudometric. Then d^pi does not bound values; `reward_tol` is not supported.

    Returns:
        The distance matrix with its proven error, in units of reward.

    Raises:
        InputError: an argument has the wrong type or value, or the MDP comes with no policy.
        NotConverged: rounding does not allow `tol`; `partial` holds the distance that was proven.
        InsufficientMemory: the matrix does not fit into memory.

    >>> from bisimetric import worlds
    >>> d = on_policy(worlds.load("pessimism"), [0, 1, 0])
    >>> round(d("s", "t"), 6), round(d("s", "u"), 6)
    (0.0, 10.0)
    """
    require_mdp("exact.on_policy", mdp)
    validate_device("on_policy", device)
    actions = resolve_policy("on_policy", mdp, policy)
    chain = induce_chain(mdp, actions)
    request = build_request(
        "on_policy", tol, dtype, normalised_tol=normalised_tol, discount=mdp.discount
    )
    if gap is not None:
        _reject_options("on_policy", reward_tol=reward_tol)
    if chain.mdp.has_labels:
        # Pairs with different labels have no successor, so that the sum does not double.
        solver = DeterministicSolver(policy_iteration.solve, 1, 5.5)
        solver = select_solver(device, request, chain.mdp, solver, "bisimulation")
    else:
        solver = DeterministicSolver(doubling.solve, 2, 0.5)
        solver = select_solver(device, request, chain.mdp, solver, "on_policy")
    if gap is not None:
        return solve_with_gap(
            request, mdp, gap, chain=chain, policy=actions, gpu_solve=solver.gpu_solve
        )
    return solve_on_quotient(
        request, mdp, solver, chain=chain, policy=actions, reward_tol=reward_tol
    )


def lax(
    mdp: MDP,
    *,
    tol: float | None = None,
    normalised_tol: float | None = None,
    dtype: DTypeLike = "float64",
    device: str | None = None,
    reward_tol: float = 0.0,
    gap: ArrayLike | GapFunction | None = None,
) -> Distance:
    """Compute the lax bisimulation metric d_lax of an MDP, every entry proven to `tol`.

    With delta((s, a), (t, b)) = |R(s, a) - R(t, b)| + discount * W1(d_lax)(P(s, a), P(t, b)),

        d_lax(s, t) = max(max_a min_b delta((s, a), (t, b)), max_b min_a delta((s, a), (t, b))),

    the Hausdorff distance between the actions of s and those of t: each action is matched with the
    best response among the actions of the other state. |V*(s) - V*(t)| <= d_lax(s, t) <= d~(s, t).

    States with different label sets (`MDP.labels`) are at the diameter bound; choice labels are
    ignored.

    Args:
        mdp: the MDP.
        tol: bound on the true error of every entry; default 1e-6.
        normalised_tol: in place of `tol`, a bound on the error of (1 - discount) d, which does not
            grow with the horizon: for discounts near 1.
        dtype: of the distance matrix, float64 or float32. Without `tol`, a float32 matrix has the
            `error` that its rounding allows.
        device: "cpu", the default, or "gpu": on an NVIDIA GPU (`exact/gpu`), with the same proof;
            at most 32 successors per state and action.
        reward_tol: rewards that differ by no more count as equal in the relation by
            which states are merged first (`relation.lax`); the `error` contains what that
            changes.
        gap: immediate costs in place of |R(s, a) - R(t, b)|: (S, S), (S, A, S, A), or a function
            gap(s, a, t, b) of arrays, see `exact.gaps`. It must be a pseudometric. Then d_lax does
            not bound values; `reward_tol` is not supported. On a GPU no action may change it.

    Returns:
        The distance matrix with its proven error, in units of reward.

    Raises:
        InputError: an argument has the wrong type or value, or `device` cannot do what is asked.
        NotConverged: rounding does not allow `tol`; `partial` holds the distance that was proven.
        InsufficientMemory: the matrix does not fit into memory.

    >>> from bisimetric import worlds
    >>> lax(worlds.load("pessimism"))("s", "t")
    0.0
    """
    require_mdp("exact.lax", mdp)
    validate_device("lax", device)
    request = build_request("lax", tol, dtype, normalised_tol=normalised_tol, discount=mdp.discount)
    solver = DeterministicSolver(lax_solver.solve, 1, 8)
    solver = select_solver(device, request, mdp, solver, "lax")
    if gap is not None:
        _reject_options("lax", reward_tol=reward_tol)
        return solve_with_gap(request, mdp, gap, gpu_solve=solver.gpu_solve)
    return solve_on_quotient(request, mdp, solver, reward_tol=reward_tol)


def _reject_options(kind: str, **options: object) -> None:
    """Raise InputError for options that distances with a gap do not support."""
    for name, value in options.items():
        if value not in (None, 0.0):
            raise InputError(f"exact.{kind}: gap and {name} do not go together; leave one out.")

"""d~, the bisimulation metric (Ferns et al. 2004)."""

from __future__ import annotations

from numpy.typing import DTypeLike

from bisimetric.distance import Distance
from bisimetric.exact._quotient_solver import (
    DeterministicSolver,
    select_solver,
    solve_on_quotient,
    validate_device,
)
from bisimetric.exact._request import build_request
from bisimetric.exact.deterministic import policy_iteration
from bisimetric.exact.stochastic import monte_carlo
from bisimetric.mdp import MDP
from bisimetric.mdp._validation import require_mdp


def bisimulation(
    mdp: MDP,
    *,
    tol: float | None = None,
    dtype: DTypeLike = "float64",
    samples: int | None = None,
    seed: int = 0,
    device: str | None = None,
) -> Distance:
    """Compute the bisimulation metric d~ of an MDP, every entry proven to `tol`.

        d~(s, t) = max_a |R(s, a) - R(t, a)| + discount * W1(d~)(P(s, a), P(t, a))

    W1 is the Kantorovich (1-Wasserstein) distance; |V*(s) - V*(t)| <= d~(s, t). At a discount
    above 0, d~(s, t) = 0 iff s and t are bisimilar; at 0 only the rewards count. A computed 0
    proves no more than that d~(s, t) is at most the error. In a deterministic MDP W1 is the
    distance of the two successors, and d~ the optimal value function of the pair graph
    (`exact/deterministic`). Otherwise policy iteration over actions and couplings computes it
    (`exact/stochastic`). States whose available actions differ are at the largest possible
    distance, the reward range divided by 1 - discount.

    Args:
        mdp: the MDP.
        tol: bound on the true error of every entry; default 1e-6.
        dtype: of the distance matrix, float64 or float32. Without `tol`, a float32 matrix has the
            `error` that its rounding allows.
        samples: Monte Carlo estimate: replace each distribution by this many samples, and W1 by
            an assignment of them (Ferns et al. 2006), which is less work where supports are large.
            The `error` of the result is infinite, and its `estimate` says about how far off it is.
        seed: of the samples.
        device: "cpu", the default, or "gpu": a deterministic MDP on an NVIDIA GPU (`exact/gpu`),
            with the same proof.

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
    request = build_request("bisimulation", tol, dtype)
    solver = DeterministicSolver(policy_iteration.solve, 2 if mdp.num_actions == 1 else 1, 4.5)
    if samples is not None:
        return monte_carlo.estimate_bisimulation(request, mdp, solver, samples, seed)
    solver = select_solver(device, request, mdp, solver, "bisimulation")
    return solve_on_quotient(request, mdp, solver)

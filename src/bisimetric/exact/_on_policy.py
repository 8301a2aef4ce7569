"""d^pi, the on-policy bisimulation metric (Castro 2020)."""

from __future__ import annotations

from numpy.typing import ArrayLike, DTypeLike

from bisimetric.distance import Distance
from bisimetric.exact._quotient_solver import (
    DeterministicSolver,
    select_solver,
    solve_on_quotient,
    validate_device,
)
from bisimetric.exact._request import build_request
from bisimetric.exact.deterministic import doubling
from bisimetric.mdp import MDP, induce_chain
from bisimetric.mdp._validation import require_mdp, resolve_policy


def on_policy(
    mdp: MDP,
    policy: ArrayLike | None = None,
    *,
    tol: float | None = None,
    dtype: DTypeLike = "float64",
    device: str | None = None,
) -> Distance:
    """Compute the on-policy metric d^pi of an MDP and a policy, every entry proven to `tol`.

        d^pi(s, t) = |R^pi(s) - R^pi(t)| + discount * W1(d^pi)(P^pi(s), P^pi(t))

    R^pi and P^pi are those of the Markov chain that the policy induces (`MDP.apply_policy`), whose
    rounding is part of the error; |V^pi(s) - V^pi(t)| <= d^pi(s, t). In a deterministic chain every
    pair has one successor, so the number of summed terms doubles in each pass
    (`exact/deterministic/doubling.py`). Otherwise policy iteration over couplings computes it
    (`exact/stochastic`).

    Args:
        mdp: the MDP.
        policy: (S,) actions or (S, A) probabilities; default: the MDP's own policy, or the only
            one where there is a single action.
        tol: bound on the true error of every entry; default 1e-6.
        dtype: of the distance matrix, float64 or float32. Without `tol`, a float32 matrix has the
            `error` that its rounding allows.
        device: "cpu", the default, or "gpu": a deterministic chain on an NVIDIA GPU (`exact/gpu`),
            with the same proof.

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
    request = build_request("on_policy", tol, dtype)
    solver = DeterministicSolver(doubling.solve, 2, 0.5)
    solver = select_solver(device, request, chain.mdp, solver, "on_policy")
    return solve_on_quotient(request, mdp, solver, chain=chain, policy=actions)

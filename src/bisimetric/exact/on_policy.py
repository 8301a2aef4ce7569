"""d^pi, the on-policy bisimulation metric of a deterministic MDP (Castro 2020)."""

from __future__ import annotations

from numpy.typing import ArrayLike, DTypeLike

from bisimetric import relation
from bisimetric.distance import Distance
from bisimetric.errors import InputError
from bisimetric.exact.doubling import solve
from bisimetric.exact.table import solved
from bisimetric.mdp import MDP, checked_policy


def on_policy(
    mdp: MDP,
    policy: ArrayLike | None = None,
    *,
    tol: float | None = None,
    dtype: DTypeLike = "float64",
) -> Distance:
    """The on-policy metric d^pi of a deterministic MDP, every entry proven to `tol`.

    d^pi(s, t) = |R(s, pi(s)) - R(t, pi(t))| + discount * d^pi(n(s, pi(s)), n(t, pi(t)))

    and |V^pi(s) - V^pi(t)| <= d^pi(s, t). Every pair has one successor, so the first k terms of
    the sum double in one pass: d_2k(s, t) = d_k(s, t) + discount^k * d_k(n_k(s), n_k(t)), and a
    dozen passes suffice. A last pass puts the answer back into the equation for `error`.

    Args:
        policy: (S,) actions, or (S, A) probabilities that leave each state one successor;
            default: the policy that the world comes with.
        tol: bound on the true error of every entry; default 1e-6.
        dtype: of the table, float64 or float32.

    >>> from bisimetric import worlds
    >>> d = on_policy(worlds.load("pessimism"), [0, 1, 0])
    >>> round(d("s", "t"), 6), round(d("s", "u"), 6)
    (0.0, 10.0)
    """
    if policy is None:
        if mdp.policy is None:
            raise InputError(
                "exact.on_policy: this MDP comes with no policy; pass one, such as "
                "planning.greedy_policy(mdp)."
            )
        policy = mdp.policy
    checked = checked_policy(mdp, policy)
    return solved(
        "on_policy",
        mdp,
        of=mdp.under(checked),
        labels=relation.bisimulation,
        solve=solve,
        tables=2,
        scratch=0.5,
        tol=tol,
        dtype=dtype,
        policy=checked,
    )

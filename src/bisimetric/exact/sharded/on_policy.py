"""d^pi, the on-policy bisimulation metric, with its rows split over devices and processes."""

from __future__ import annotations

import os
from collections.abc import Mapping

from numpy.typing import ArrayLike, DTypeLike

from bisimetric.distance import Distance
from bisimetric.exact.sharded.joining import jax_package
from bisimetric.exact.table import given_policy, request
from bisimetric.mdp import MDP, induce_chain


def on_policy(
    mdp: MDP,
    policy: ArrayLike | None = None,
    *,
    tol: float | None = None,
    dtype: DTypeLike = "float64",
    output: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    every: float = 600.0,
    device: str | None = None,
    block: int | None = None,
    limit: float | None = None,
    about: Mapping[str, str] | None = None,
) -> Distance:
    """The on-policy metric d^pi of a deterministic chain, every entry proven to `tol`.

    d^pi(s, t) = |R^pi(s) - R^pi(t)| + discount * d^pi(next(s), next(t))

    is `exact.on_policy`'s, found by doubling: about a dozen exchanges of rows.

    Args:
        policy: (S,) actions or (S, A) probabilities under which every state has one successor;
            default: the policy that the world comes with, or the only one there is.
        tol, dtype, output, checkpoint, every, device, block, limit, about: as in
            `exact.sharded.bisimulation`.

    >>> from bisimetric import worlds
    >>> d = on_policy(worlds.load("pessimism"), [0, 1, 0])
    >>> round(d("s", "t"), 6), round(d("s", "u"), 6)
    (0.0, 10.0)
    """
    jax_package()
    from bisimetric.exact.sharded.solving import Options, answered

    policy = given_policy("on_policy", mdp, policy)
    wanted = request("on_policy", tol, dtype)
    options = Options(output, checkpoint, every, device, block, limit, about or {})
    chain = induce_chain(mdp, policy)
    # Where every state has one successor, the chain's rounding is that of its rewards alone.
    return answered(wanted, mdp, chain.mdp, policy, options, rounding=chain.pair_error(0.0))

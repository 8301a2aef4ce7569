"""d^pi, the on-policy bisimulation metric, with its rows split over devices and processes."""

from __future__ import annotations

import os
from collections.abc import Mapping

from numpy.typing import ArrayLike, DTypeLike

from bisimetric.distance import Distance
from bisimetric.exact.sharded.joining import require_jax
from bisimetric.exact.table import build_request, resolve_policy
from bisimetric.mdp import MDP, induce_chain


def on_policy(
    mdp: MDP,
    policy: ArrayLike | None = None,
    *,
    tol: float | None = None,
    dtype: DTypeLike = "float64",
    output: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 600.0,
    device: str | None = None,
    block_bytes: int | None = None,
    memory_limit: float | None = None,
    metadata: Mapping[str, str] | None = None,
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
    require_jax()
    from bisimetric.exact.sharded.solving import ShardedOptions, compute_distance

    policy = resolve_policy("on_policy", mdp, policy)
    wanted = build_request("on_policy", tol, dtype)
    options = ShardedOptions(
        output, checkpoint, checkpoint_every, device, block_bytes, memory_limit, metadata or {}
    )
    chain = induce_chain(mdp, policy)
    # Where every state has one successor, the chain's rounding is that of its rewards alone.
    return compute_distance(wanted, mdp, chain.mdp, policy, options, rounding=chain.pair_error(0.0))

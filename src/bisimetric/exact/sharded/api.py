"""d~, the bisimulation metric, with its rows split over devices and processes.

d^pi, the on-policy bisimulation metric, with its rows split over devices and processes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from numpy.typing import ArrayLike, DTypeLike

from bisimetric.distance import Distance
from bisimetric.exact._request import build_request
from bisimetric.exact.sharded.cluster import require_jax
from bisimetric.mdp import MDP, induce_chain
from bisimetric.mdp._validation import resolve_policy


def bisimulation(
    mdp: MDP,
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
    """The bisimulation metric d~ of a deterministic MDP, every entry proven to `tol`.

    d~(s, t) = max_a |R(s, a) - R(t, a)| + discount * d~(next(s, a), next(t, a))

    is `exact.bisimulation`'s, computed by all devices of all processes that were started together:
    each holds its share of the rows twice and one block of others' rows, never the whole table. All
    processes make the same call and get the same answer, bit for bit whatever their number.

    Args:
        tol, dtype: as in `exact.bisimulation`.
        output: where the table goes: a folder such as d.zarr, on a disk that all processes share
            and of which `Distance.load` reads only the rows that are asked for; or an .npz file.
            The latter, and None, take the memory of the whole table.
        checkpoint: a folder that keeps the run. Where it holds one, that goes on, with any number
            of processes. It is emptied once `output` is written.
        every: seconds between checkpoints.
        device: "cpu" or "gpu"; default: the best that JAX finds.
        block: bytes of rows on their way at a time; default: 64 MiB, and 1 GiB on accelerators.
        limit: bytes that each device may hold; default: what is free.
        about: what else to keep with the table in `made`, such as the name of its world.

    >>> from bisimetric import worlds
    >>> d = bisimulation(worlds.load("mirrored-rooms", discount=0.9))
    >>> round(d("1,5", "5,5"), 4), d.error < 1e-6
    (11.5532, True)
    """
    require_jax()
    from bisimetric.exact.sharded.driver import ShardedOptions, compute_distance

    wanted = build_request("bisimulation", tol, dtype)
    options = ShardedOptions(
        output, checkpoint, checkpoint_every, device, block_bytes, memory_limit, metadata or {}
    )
    return compute_distance(wanted, mdp, mdp, None, options)


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
    from bisimetric.exact.sharded.driver import ShardedOptions, compute_distance

    policy = resolve_policy("on_policy", mdp, policy)
    wanted = build_request("on_policy", tol, dtype)
    options = ShardedOptions(
        output, checkpoint, checkpoint_every, device, block_bytes, memory_limit, metadata or {}
    )
    chain = induce_chain(mdp, policy)
    # Where every state has one successor, the chain's rounding is that of its rewards alone.
    return compute_distance(wanted, mdp, chain.mdp, policy, options, rounding=chain.pair_error(0.0))

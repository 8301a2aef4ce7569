"""d~ and d^pi with the rows of their matrix split over devices and processes."""

from __future__ import annotations

import os
from collections.abc import Mapping

from numpy.typing import ArrayLike, DTypeLike

from bisimetric.distance import Distance
from bisimetric.exact._request import build_request
from bisimetric.exact.gaps import GapFunction
from bisimetric.exact.sharded.cluster import require_jax
from bisimetric.mdp import MDP, induce_chain
from bisimetric.mdp._validation import resolve_policy


def bisimulation(
    mdp: MDP,
    *,
    tol: float | None = None,
    normalised_tol: float | None = None,
    dtype: DTypeLike = "float64",
    output: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 600.0,
    resume: str | os.PathLike[str] | None = None,
    device: str | None = None,
    block_bytes: int | None = None,
    memory_limit: float | None = None,
    metadata: Mapping[str, str] | None = None,
    gap: ArrayLike | GapFunction | None = None,
) -> Distance:
    """Compute the bisimulation metric d~ of a deterministic MDP on all devices of all processes.

    d~(s, t) = max_a |R(s, a) - R(t, a)| + discount * d~(next(s, a), next(t, a))

    Each device holds its rows of the matrix twice and one block of other devices' rows, never the
    whole matrix. All processes make the same call and get the same result, bit for bit for any
    number of them. With CUDA kernels, which need CuPy, one process with all GPUs and several
    processes agree within the error; `Distance.metadata["sweep_kernel"]` says which kernel ran.

    Args:
        mdp: a deterministic MDP.
        tol: a bound on the error of every entry; default: 1e-6, which a float32 matrix may miss.
        normalised_tol: in place of `tol`, a bound on the error of (1 - discount) d, which does not
            grow with the horizon: for discounts near 1.
        dtype: "float64" or "float32", the type of the matrix.
        output: where to write the matrix: a folder such as d.zarr on a shared disk, of which
            `Distance.load` reads only the rows that are used; or an .npz file. An .npz file, and
            the default None, need memory for the whole matrix.
        checkpoint: folder to write checkpoints to. It is emptied once `output` is written.
        checkpoint_every: seconds between checkpoints.
        resume: folder of checkpoints to resume from, with any number of processes; it may be
            `checkpoint` itself.
        device: "cpu" or "gpu"; default: the best that JAX finds.
        block_bytes: bytes of rows exchanged at a time; default: 64 MiB, 1 GiB on accelerators.
        memory_limit: bytes that each device may use; default: the free memory.
        metadata: further entries of `Distance.metadata`, such as the name of the MDP.
        gap: immediate costs in place of the differences of rewards that no action changes: (S, S),
            or a function gap(s, a, t, b) of arrays, see `exact.gaps`. It must be a pseudometric.
            Then the distance does not bound values. Each process holds the whole gap.

    Returns:
        The distance; with a folder as `output`, its matrix stays on disk.

    Raises:
        InputError: if the MDP is stochastic, an argument is invalid, JAX is not installed, the
            processes do not agree on the arguments, `resume` holds no run or another one, or
            `checkpoint` holds a run that is not resumed.
        InsufficientMemory: if the devices cannot hold the rows.
        NotConverged: if rounding keeps the error above `tol`; it holds the partial distance.
        ConnectionAbortedError: if another process failed.

    >>> from bisimetric import worlds
    >>> d = bisimulation(worlds.load("mirrored-rooms", discount=0.9))
    >>> round(d("1,5", "5,5"), 4), d.error < 1e-6
    (11.5532, True)
    """
    require_jax()
    from bisimetric.exact.sharded.driver import ShardedConfig, compute_distance

    request = build_request(
        "bisimulation", tol, dtype, normalised_tol=normalised_tol, discount=mdp.discount
    )
    config = ShardedConfig(
        output,
        checkpoint,
        checkpoint_every,
        resume,
        device,
        block_bytes,
        memory_limit,
        metadata or {},
    )
    return compute_distance(request, mdp, mdp, None, config, gap=gap)


def on_policy(
    mdp: MDP,
    policy: ArrayLike | None = None,
    *,
    tol: float | None = None,
    normalised_tol: float | None = None,
    dtype: DTypeLike = "float64",
    output: str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 600.0,
    resume: str | os.PathLike[str] | None = None,
    device: str | None = None,
    block_bytes: int | None = None,
    memory_limit: float | None = None,
    metadata: Mapping[str, str] | None = None,
    gap: ArrayLike | GapFunction | None = None,
) -> Distance:
    """Compute the on-policy metric d^pi of a deterministic chain on all devices of all processes.

    d^pi(s, t) = |R^pi(s) - R^pi(t)| + discount * d^pi(next(s), next(t))

    is computed by doubling, with about a dozen exchanges of rows.

    Args:
        mdp: the MDP.
        policy: (S,) actions or (S, A) probabilities under which every state has one successor;
            default: the MDP's own policy, or the only one if there is one action.
        tol: a bound on the error of every entry; default: 1e-6, which a float32 matrix may miss.
        normalised_tol: in place of `tol`, a bound on the error of (1 - discount) d, which does not
            grow with the horizon: for discounts near 1.
        dtype: "float64" or "float32", the type of the matrix.
        output: where to write the matrix: a folder such as d.zarr on a shared disk, of which
            `Distance.load` reads only the rows that are used; or an .npz file. An .npz file, and
            the default None, need memory for the whole matrix.
        checkpoint: folder to write checkpoints to. It is emptied once `output` is written.
        checkpoint_every: seconds between checkpoints.
        resume: folder of checkpoints to resume from, with any number of processes; it may be
            `checkpoint` itself.
        device: "cpu" or "gpu"; default: the best that JAX finds.
        block_bytes: bytes of rows exchanged at a time; default: 64 MiB, 1 GiB on accelerators.
        memory_limit: bytes that each device may use; default: the free memory.
        metadata: further entries of `Distance.metadata`, such as the name of the MDP.
        gap: immediate costs in place of the differences of rewards that no action changes: (S, S),
            or a function gap(s, a, t, b) of arrays, see `exact.gaps`. It must be a pseudometric.
            Then the distance does not bound values. Each process holds the whole gap.

    Returns:
        The distance; with a folder as `output`, its matrix stays on disk.

    Raises:
        InputError: if the chain is stochastic, an argument is invalid, JAX is not installed, the
            processes do not agree on the arguments, `resume` holds no run or another one, or
            `checkpoint` holds a run that is not resumed.
        InsufficientMemory: if the devices cannot hold the rows.
        NotConverged: if rounding keeps the error above `tol`; it holds the partial distance.
        ConnectionAbortedError: if another process failed.

    >>> from bisimetric import worlds
    >>> d = on_policy(worlds.load("pessimism"), [0, 1, 0])
    >>> round(d("s", "t"), 6), round(d("s", "u"), 6)
    (0.0, 10.0)
    """
    require_jax()
    from bisimetric.exact.sharded.driver import ShardedConfig, compute_distance

    policy = resolve_policy("on_policy", mdp, policy)
    request = build_request(
        "on_policy", tol, dtype, normalised_tol=normalised_tol, discount=mdp.discount
    )
    config = ShardedConfig(
        output,
        checkpoint,
        checkpoint_every,
        resume,
        device,
        block_bytes,
        memory_limit,
        metadata or {},
    )
    chain = induce_chain(mdp, policy)
    # In a deterministic chain only the rewards are rounded.
    rounding = chain.pair_error(0.0) if gap is None else 0.0
    return compute_distance(request, mdp, chain.mdp, policy, config, rounding=rounding, gap=gap)

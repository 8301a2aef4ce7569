"""d~, the bisimulation metric, with its rows split over devices and processes."""

from __future__ import annotations

import os
from collections.abc import Mapping

from numpy.typing import DTypeLike

from bisimetric.distance import Distance
from bisimetric.exact.sharded.joining import jax_package
from bisimetric.exact.table import request
from bisimetric.mdp import MDP


def bisimulation(
    mdp: MDP,
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
    jax_package()
    from bisimetric.exact.sharded.solving import Options, answered

    wanted = request("bisimulation", tol, dtype)
    options = Options(output, checkpoint, every, device, block, limit, about or {})
    return answered(wanted, mdp, mdp, None, options)

"""How the rows of a table are split over devices, in which order, and what that takes.

What a sharded solver is given: one state a class, in an order in which few rows travel.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from bisimetric import relation
from bisimetric.errors import InputError, InsufficientMemory
from bisimetric.exact._request import Request
from bisimetric.exact.deterministic.problem import complete_actions
from bisimetric.mdp import MDP

CPU_BLOCK_BYTES, ACCELERATOR_BLOCK_BYTES = 2**26, 2**30
"""Bytes of rows that are on their way at a time: to a processor, and to an accelerator."""
BATCH_ENTRIES = 2**25
"""Entries that an accelerator works on together; a processor takes row by row."""
MIN_BATCHES = 16
"""Batches that the rows of a device make, at least: the last one is padded."""
BLOCK_COPIES = 3
"""A block is held by the sender, by the receiver, and once while it is used."""
SCRATCH_NUMBERS = 4
"""Numbers in float64 that are held for each entry of the rows that are worked on together."""
CHUNK_BYTES = 2**16
"""Bytes of a stored table that are read together, where a row is shorter."""
CYCLE_EVALUATION_PERIOD, MAX_CYCLE_STEPS = 8, 1024
"""Sweeps between leaps, and the most steps of their paths."""
REORDERING_GAIN = 0.5
"""Another order is taken where it makes the way to successors shorter by this factor."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """The rows of a table over devices: device k holds rows k * height to (k + 1) * height.

    Attributes:
        states: rows and columns of the table.
        height: rows of a device; those beyond `states` are padding.
        batch: rows that a device works on together.
        travel: rows in a block that is on its way.
        chunk: rows of a stored table that are read together.
        shard: rows in one file of a stored table; they make up the height.
    """

    num_states: int
    num_devices: int
    dtype: np.dtype[Any]
    rows_per_device: int
    batch_rows: int
    block_rows: int
    chunk_rows: int
    shard_rows: int
    block_bytes: int

    @property
    def row_bytes(self) -> int:
        return self.num_states * self.dtype.itemsize

    @property
    def local_bytes(self) -> int:
        """The rows of one device, once."""
        return self.rows_per_device * self.row_bytes

    @property
    def exchange_bytes(self) -> int:
        """What is on its way, in all its copies."""
        return max(self.block_bytes, BLOCK_COPIES * self.block_rows * self.row_bytes)

    @property
    def device_bytes(self) -> int:
        """Bytes on a device: its own rows twice, a block, and the rows that are worked on."""
        return (
            2 * self.local_bytes
            + self.exchange_bytes
            + 8 * SCRATCH_NUMBERS * self.batch_rows * self.num_states
        )


def choose_batch_rows(num_states: int, num_devices: int) -> int:
    """How many rows an accelerator works on together, a power of 2.

    >>> batch_of(60_000, 1), batch_of(300_000, 8), batch_of(1_000, 1)
    (512, 64, 32)
    """
    most = min(BATCH_ENTRIES // num_states, num_states // (num_devices * MIN_BATCHES))
    return 1 << max(0, most.bit_length() - 1)


def build_layout(
    num_states: int,
    num_devices: int,
    dtype: np.dtype[Any],
    *,
    block_bytes: int = CPU_BLOCK_BYTES,
    batch_rows: int = 1,
) -> Layout:
    """The split of a table over devices.

    >>> split = laid_out(1000, 3, np.dtype("float32"))
    >>> split.height, split.shard, split.chunk
    (336, 336, 16)
    """
    row, least = num_states * dtype.itemsize, -(-num_states // num_devices)
    chunk = 1
    # In small tables pieces are shorter, so that rounding up leaves no device without rows.
    while 2 * chunk * row <= CHUNK_BYTES and 16 * chunk <= least:
        chunk *= 2
    unit = max(chunk, batch_rows)
    # Files of at most a quarter of a block: writing one holds it a few times.
    files = max(1, -(-least * row * 4 // block_bytes))
    shard = unit * -(-least // (unit * min(files, -(-least // unit))))
    height = shard * -(-least // shard)
    travel = max(1, min(height, block_bytes // (BLOCK_COPIES * row)))
    return Layout(
        num_states, num_devices, dtype, height, batch_rows, travel, chunk, shard, block_bytes
    )


def order_states(successor: NDArray[np.integer]) -> NDArray[np.int64]:
    """An order of the states in which successors lie near each other, if one is cheaply found.

    The reverse order of Cuthill and McKee of the graph of successors (A, S), or, where it does not
    make the mean way |s - next(s, a)| much shorter, the order that they came in.

    >>> far = (np.arange(9) + 4) % 9
    >>> rank = np.argsort(ordered(far[None]))
    >>> int(np.abs(rank[far] - rank).max())
    2
    >>> ordered(np.array([[1, 2, 3, 3]])).tolist()
    [0, 1, 2, 3]
    """
    actions, states = successor.shape
    given = np.arange(states)
    graph = sparse.csr_array(
        (
            np.ones(actions * states, np.int8),
            (np.tile(given, actions), successor.ravel().astype(np.int64)),
        ),
        (states, states),
    )
    order = np.asarray(reverse_cuthill_mckee(graph + graph.T, symmetric_mode=True), np.int64)
    rank = np.empty(states, np.int64)
    rank[order] = given
    way = np.abs(successor.astype(np.int64) - given).mean()
    shorter = np.abs(rank[successor] - rank).mean()
    return order if shorter < REORDERING_GAIN * way else given


def require_device_memory(caller: str, layout: Layout, available_bytes: float, origin: str) -> None:
    """Refuses a table that the devices cannot hold, and says how many could."""
    if layout.device_bytes <= available_bytes:
        return
    enough = layout.num_devices
    while (
        enough < layout.num_states
        and build_layout(
            layout.num_states,
            enough,
            layout.dtype,
            block_bytes=layout.block_bytes,
            batch_rows=layout.batch_rows,
        ).device_bytes
        > available_bytes
    ):
        enough += max(1, enough // 64)
    last = build_layout(
        layout.num_states,
        enough,
        layout.dtype,
        block_bytes=layout.block_bytes,
        batch_rows=layout.batch_rows,
    )
    remedy = (
        f"{enough:,} of them would do"
        if last.device_bytes <= available_bytes
        else "a smaller block may do, or fewer states"
    )
    one = layout.num_devices == 1
    raise InsufficientMemory(
        f"{caller}: {layout.num_states:,} states need {format_bytes(layout.device_bytes)} on "
        f"{'the one device' if one else f'each of {layout.num_devices} devices'}, and "
        f"{format_bytes(available_bytes)} are {origin} there; {remedy}."
    )


def format_bytes(num_bytes: float) -> str:
    """A number of bytes in words.

    >>> gigabytes(3 * 2**29), gigabytes(2**20)
    ('1.5 GiB', '1 MiB')
    """
    return f"{num_bytes / 2**30:.3g} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:.3g} MiB"


@dataclasses.dataclass(frozen=True)
class ShardedProblem:
    """A deterministic MDP with one state a class.

    Attributes:
        successor: (A, C).
        reward: (A, C).
        place: (S,), the row and column of each state of the whole MDP.
        states: (C,), one state of the whole MDP for each row.
        least: the largest rise that is small enough.
        doubt: by how much F(d) may be off; see `steps_of` and `InducedChain.pair_error`.
    """

    successor: NDArray[np.int32]
    reward: NDArray[np.float64]
    discount: float
    row_index: NDArray[np.int64]
    representatives: NDArray[np.int64]
    residual_tolerance: float
    rounding_bound: float

    @property
    def num_states(self) -> int:
        return int(self.successor.shape[1])

    @property
    def fingerprint(self) -> str:
        """Tells this problem from others, whatever their tolerance."""
        found = hashlib.sha256(np.float64(self.discount).tobytes())
        for array in (self.successor, self.reward, self.row_index):
            found.update(str(array.shape).encode())
            found.update(np.ascontiguousarray(array).tobytes())
        return found.hexdigest()[:16]


def build_problem(request: Request, mdp: MDP, rounding: float = 0.0) -> ShardedProblem:
    """The problem that an MDP or the chain of a policy poses; refuses what has no rows to move."""
    kind = f"exact.sharded.{request.kind}"
    if not mdp.is_deterministic:
        s, a = mdp.first_stochastic_action()
        where = f"P[{s}, {a}]" if mdp.num_actions > 1 else f"the chain at state {s}"
        raise InputError(
            f"{kind}: {where} has several successors, and rows are moved along single ones only; "
            f"use exact.{request.kind}, sampled or learned for stochastic MDPs."
        )
    least = request.residual_tolerance(mdp, "exact.sharded")
    classes = relation.bisimulation(mdp)
    first = relation.representatives(classes)
    steps = complete_actions(relation.quotient(mdp, classes))
    order = order_states(steps.successor)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return ShardedProblem(
        np.ascontiguousarray(rank[steps.successor[:, order]], dtype=np.int32),
        np.ascontiguousarray(steps.reward[:, order]),
        mdp.discount,
        rank[classes],
        first[order],
        least,
        steps.rounding_bound + rounding,
    )

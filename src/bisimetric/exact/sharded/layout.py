"""The layout of a matrix: how its rows are split over devices, in which order, and its memory.

The problem has one row per class of bisimilar states, ordered so that few rows are exchanged.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from bisimetric import relation
from bisimetric._rounding import UNIT
from bisimetric._text import format_bytes
from bisimetric.errors import InputError, InsufficientMemory
from bisimetric.exact._gap_solver import add_ground_distance, bound_diameter
from bisimetric.exact._request import Request
from bisimetric.exact.deterministic.problem import complete_actions
from bisimetric.mdp import MDP, compute_comparison_classes
from bisimetric.relation.api import compute_classes

CPU_BLOCK_BYTES, ACCELERATOR_BLOCK_BYTES = 2**26, 2**30
"""Default bytes of rows that are exchanged at a time, on CPUs and on accelerators."""
BATCH_ENTRIES = 2**25
"""Entries per batch on an accelerator; a CPU processes row by row."""
MIN_BATCHES = 16
"""The minimum number of batches per device, because the last one is padded."""
BLOCK_COPIES = 3
"""Copies of a block: at the sender, at the receiver, and while it is used."""
SCRATCH_NUMBERS = 4
"""Scratch memory per entry of a batch, in float64 numbers."""
CHUNK_BYTES = 2**16
"""Bytes per chunk of a matrix on disk, unless a row is longer."""
CYCLE_EVALUATION_PERIOD, MAX_CYCLE_STEPS = 8, 1024
"""Sweeps between two cycle evaluations, and the maximum length of their paths."""
REORDERING_GAIN = 0.5
"""States are reordered if this reduces the mean distance to successors to this share."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """The rows of a matrix over devices: device k holds rows k * n to (k + 1) * n - 1.

    Attributes:
        num_states: rows and columns of the matrix.
        num_devices: the number of devices.
        dtype: the type of the matrix.
        rows_per_device: n; rows from `num_states` on are padding.
        batch_rows: rows that a device processes at once.
        block_rows: rows per exchanged block.
        chunk_rows: rows per chunk on disk, the unit of reading.
        shard_rows: rows per file on disk, a divisor of `rows_per_device`.
        block_bytes: bytes for exchanged blocks.
        has_cost: whether devices also hold their rows of a cost, in float64.
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
    has_cost: bool = False

    @property
    def row_bytes(self) -> int:
        return self.num_states * self.dtype.itemsize

    @property
    def local_bytes(self) -> int:
        """Bytes of one copy of a device's rows."""
        return self.rows_per_device * self.row_bytes

    @property
    def exchange_bytes(self) -> int:
        """Bytes of an exchanged block, in all its copies."""
        return max(self.block_bytes, BLOCK_COPIES * self.block_rows * self.row_bytes)

    @property
    def device_bytes(self) -> int:
        """Bytes on a device: two copies of its rows, a cost, a block, and scratch memory."""
        return (
            2 * self.local_bytes
            + 8 * self.has_cost * self.rows_per_device * self.num_states
            + self.exchange_bytes
            + 8 * SCRATCH_NUMBERS * self.batch_rows * self.num_states
        )


def choose_batch_rows(num_states: int, num_devices: int) -> int:
    """Choose the rows per batch on an accelerator, a power of 2.

    >>> choose_batch_rows(60_000, 1), choose_batch_rows(300_000, 8), choose_batch_rows(1_000, 1)
    (512, 64, 32)
    """
    limit = min(BATCH_ENTRIES // num_states, num_states // (num_devices * MIN_BATCHES))
    return 1 << max(0, limit.bit_length() - 1)


def build_layout(
    num_states: int,
    num_devices: int,
    dtype: np.dtype[Any],
    *,
    block_bytes: int = CPU_BLOCK_BYTES,
    batch_rows: int = 1,
    has_cost: bool = False,
) -> Layout:
    """Split the rows of a matrix over devices.

    >>> layout = build_layout(1000, 3, np.dtype("float32"))
    >>> layout.rows_per_device, layout.shard_rows, layout.chunk_rows
    (336, 336, 16)
    """
    row_bytes, min_rows = num_states * dtype.itemsize, -(-num_states // num_devices)
    chunk = 1
    # Small matrices have smaller chunks, so that rounding up leaves no device without rows.
    while 2 * chunk * row_bytes <= CHUNK_BYTES and 16 * chunk <= min_rows:
        chunk *= 2
    unit = max(chunk, batch_rows)
    # Files of at most a quarter of a block: writing one holds a few copies of it.
    files = max(1, -(-min_rows * row_bytes * 4 // block_bytes))
    shard = unit * -(-min_rows // (unit * min(files, -(-min_rows // unit))))
    rows = shard * -(-min_rows // shard)
    block = max(1, min(rows, block_bytes // (BLOCK_COPIES * row_bytes)))
    return Layout(
        num_states, num_devices, dtype, rows, batch_rows, block, chunk, shard, block_bytes, has_cost
    )


def order_states(successor: NDArray[np.integer]) -> NDArray[np.int64]:
    """Order states so that successors have nearby numbers.

    The order is reverse Cuthill-McKee on the graph of successors (A, S), or the original one if
    that does not reduce the mean |s - next(s, a)| much.

    >>> successor = (np.arange(9) + 4) % 9
    >>> rank = np.argsort(order_states(successor[None]))
    >>> int(np.abs(rank[successor] - rank).max())
    2
    >>> order_states(np.array([[1, 2, 3, 3]])).tolist()
    [0, 1, 2, 3]
    """
    actions, states = successor.shape
    original = np.arange(states)
    graph = sparse.csr_array(
        (
            np.ones(actions * states, np.int8),
            (np.tile(original, actions), successor.ravel().astype(np.int64)),
        ),
        (states, states),
    )
    order = np.asarray(reverse_cuthill_mckee(graph + graph.T, symmetric_mode=True), np.int64)
    rank = np.empty(states, np.int64)
    rank[order] = original
    before = np.abs(successor.astype(np.int64) - original).mean()
    after = np.abs(rank[successor] - rank).mean()
    return order if after < REORDERING_GAIN * before else original


def require_device_memory(caller: str, layout: Layout, available_bytes: float, origin: str) -> None:
    """Raise InsufficientMemory if the devices cannot hold a matrix, and say how many could."""
    if layout.device_bytes <= available_bytes:
        return

    def fits(num_devices: int) -> bool:
        block, batch = layout.block_bytes, layout.batch_rows
        alternative = build_layout(
            layout.num_states,
            num_devices,
            layout.dtype,
            block_bytes=block,
            batch_rows=batch,
            has_cost=layout.has_cost,
        )
        return alternative.device_bytes <= available_bytes

    sufficient = layout.num_devices
    while sufficient < layout.num_states and not fits(sufficient):
        sufficient += max(1, sufficient // 64)
    remedy = (
        f"use {sufficient:,} devices"
        if fits(sufficient)
        else "use a smaller block_bytes, or fewer states"
    )
    one = layout.num_devices == 1
    raise InsufficientMemory(
        f"{caller}: {layout.num_states:,} states need {format_bytes(layout.device_bytes)} on "
        f"{'the one device' if one else f'each of {layout.num_devices} devices'}, and "
        f"{format_bytes(available_bytes)} are {origin} there; {remedy}."
    )


@dataclasses.dataclass(frozen=True)
class ShardedProblem:
    """A deterministic MDP with one state per class of bisimilar states.

    Attributes:
        successor: (A, C).
        reward: (A, C).
        discount: the discount factor.
        row_index: (S,), the row and column of each state of the original MDP.
        representatives: (C,), one state of the original MDP per row.
        residual_tolerance: the largest increase at which iteration stops.
        rounding_bound: a bound on the error of F(d); see `complete_actions` and
            `InducedChain.pair_error`.
        cost: from rows and columns, arrays of states of the original MDP that broadcast, to what is
            added to the differences of rewards; or None.
        cost_fingerprint: a hash of the cost.
        largest_cost: a bound on the cost.
        classes: (C,), comparison classes: between two of them there is no cost.
    """

    successor: NDArray[np.int32]
    reward: NDArray[np.float64]
    discount: float
    row_index: NDArray[np.int64]
    representatives: NDArray[np.int64]
    residual_tolerance: float
    rounding_bound: float
    cost: Callable[[Any, Any], NDArray[np.float64]] | None = None
    cost_fingerprint: str = ""
    largest_cost: float = 0.0
    classes: NDArray[np.int64] | None = None

    @property
    def largest_gap(self) -> float:
        """A bound on the difference of two rewards, and the cost of their pair."""
        return float(np.ptp(self.reward)) + self.largest_cost

    @property
    def compute_cost_rows(self) -> Callable[[NDArray[np.int64]], NDArray[np.float64]] | None:
        """The function from some rows to their costs, (rows, C); None without a cost."""
        cost, classes = self.cost, self.classes
        if cost is None:
            return None

        def compute(rows: NDArray[np.int64]) -> NDArray[np.float64]:
            found = cost(self.representatives[rows, None], self.representatives)
            if classes is None:
                return found
            return np.where(classes[rows, None] == classes, found, 0.0)

        return compute

    @property
    def num_states(self) -> int:
        return int(self.successor.shape[1])

    @property
    def fingerprint(self) -> str:
        """A hash of the problem without its tolerance."""
        digest = hashlib.sha256(np.float64(self.discount).tobytes())
        digest.update(self.cost_fingerprint.encode())
        for array in (self.successor, self.reward, self.row_index):
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]


def build_problem(
    request: Request,
    mdp: MDP,
    rounding: float = 0.0,
    gap: NDArray[np.float64] | None = None,
) -> ShardedProblem:
    """Build the problem of a deterministic MDP or chain; raise InputError for a stochastic one.

    A `gap`, (1 or A, 1, S, S) from `evaluate_gap`, takes the place of the differences of rewards.
    """
    caller = f"exact.sharded.{request.kind}"
    if not mdp.is_deterministic:
        s, a = mdp.first_stochastic_action()
        place = f"P[{s}, {a}]" if mdp.num_actions > 1 else f"the chain at state {s}"
        raise InputError(
            f"{caller}: {place} has several successors, and sharding needs deterministic dynamics; "
            f"use exact.{request.kind}, or learned."
        )
    if mdp.choice_labels is not None:
        raise InputError(
            f"{caller}: sharding does not compare actions of equal choice labels as sets; use "
            f"exact.{request.kind}."
        )
    ground, diameter, cost = mdp.ground_distance, mdp.diameter_bound, None
    largest, fingerprint = 0.0, ""
    if gap is not None:
        mdp = mdp.replace(R=np.zeros(mdp.R.shape))
        table = _require_one_gap(caller, add_ground_distance(gap, mdp)[0])
        cost = _build_lookup(table)
        diameter, largest = bound_diameter(table, mdp, lax=False), float(table.max())
        fingerprint = hashlib.sha256(np.ascontiguousarray(table).tobytes()).hexdigest()
        classes = np.arange(mdp.num_states)
    else:
        classes = compute_classes(mdp)
        if ground is not None:
            cost, largest, fingerprint = ground, ground.largest, ground.fingerprint
    request.require_range(mdp, "exact.sharded", diameter)
    tolerance = max(request.tol * (1 - mdp.discount) / 2, 8 * UNIT * diameter)
    if ground is not None:
        rounding += ground.rounding_error + UNIT * diameter
    representatives = relation.representatives(classes)
    small = relation.quotient(mdp, classes)
    transitions = complete_actions(small, diameter_bound=diameter, has_cost=cost is not None)
    comparison = compute_comparison_classes(small)
    order = order_states(transitions.successor)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return ShardedProblem(
        np.ascontiguousarray(rank[transitions.successor[:, order]], dtype=np.int32),
        np.ascontiguousarray(transitions.reward[:, order]),
        mdp.discount,
        rank[classes],
        representatives[order],
        tolerance,
        transitions.rounding_bound + rounding,
        cost,
        fingerprint,
        largest,
        comparison[order] if comparison.any() else None,
    )


def _build_lookup(table: NDArray[np.float64]) -> Callable[[Any, Any], NDArray[np.float64]]:
    return lambda s, t: table[s, t]


def _require_one_gap(caller: str, table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a gap (S, S) that no action changes, or raise InputError."""
    if table.shape[:2] != (1, 1):
        raise InputError(
            f"{caller}: sharding takes a gap that no action changes, (S, S), and this one depends "
            "on actions; use exact.bisimulation."
        )
    return table[0, 0]

"""Backward propagation of increases to predecessor pairs: prioritised sweeping by work lists.

Lists hold pairs s * S + t with t < s. The largest distances are propagated first: most pairs then
increase only once. A layer is the upper part of the pending pairs, and what reaches its floor
meanwhile; the next one begins when few of its pairs are left. A long queue is propagated in slices,
on several threads, a short one on one: which of both does not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric.exact._phases import choose_num_threads, plan_items, share_phases
from bisimetric.exact.deterministic import propagation_kernels, table_kernels
from bisimetric.exact.deterministic.problem import DeterministicProblem, sample_pairs
from bisimetric.exact.deterministic.propagation_kernels import (
    NUM_CHUNKS,
    NUM_PARTITIONS,
    PHASES,
    SPLIT_PHASES,
)

CAPACITY = 0.06
"""Pairs of a queue, and predecessors of a slice, as a fraction of all pairs."""
PENDING_CAPACITY = 0.15
LAYER_FRACTION = 0.25
"""The fraction of the pending pairs that begin a layer."""
MIN_LAYER, MAX_LAYER = 64, 0.01
"""The fewest pairs that begin a layer, and the most, as a fraction of all pairs."""
NUM_SAMPLES = 1024
QUEUE_FRACTION = 0.06
"""The next layer begins when this fraction of the queue is left, so that no queue is short."""
MAX_SERIAL_PAIRS = 2**8
"""Pairs of a queue that are propagated on one thread."""
PAIRS_PER_CALL = 2**13
"""Pairs that are propagated on one thread before cycles are evaluated."""
MIN_PARALLEL_PAIRS = 2**10
"""Pairs that are worth several threads: most reads of their predecessors miss the cache."""
GROWTH_PER_CALL = 4
"""A queue that is so many times as long as at first is worth more threads."""
MAX_CALL_VISITS = 2**26
"""Predecessors visited before a thread returns to Python, where it can be interrupted."""
MIN_PARALLEL_PENDING = 2**17
"""Pending pairs that are worth several threads, when they are split."""


class WorkLists:
    """The pairs of a distance matrix whose increase has not been propagated.

    Attributes:
        marked: (S, S): PENDING, QUEUED, MOVED, or 0.
        queue: pairs to propagate in this layer, `queue_length` of them.
        pending: other marked pairs, and their distances when they were listed: `num_pending`. Some
            may have been propagated since. Pairs of a distance below floors[1] are marked only.
        floors: the least distances of the queue, and of the pending pairs.
        lowest: pairs below are left to the next sweep.
        num_visited: predecessors visited so far.
    """

    def __init__(self, problem: DeterministicProblem, d: NDArray[Any]) -> None:
        states = problem.num_states
        self.num_pairs = states * (states - 1) // 2
        self.problem, self.d = problem, d
        self.marked = np.zeros((states, states), np.uint8)
        capacity = int(CAPACITY * self.num_pairs) + NUM_CHUNKS * NUM_PARTITIONS
        self.queues, self.next_queue = (
            np.empty((2, capacity), np.int64),
            np.empty(capacity, np.int64),
        )
        self.turn = 0
        self.candidates, self.candidate_values = np.empty(capacity, np.int64), np.empty(capacity)
        capacity = int(PENDING_CAPACITY * self.num_pairs) + NUM_CHUNKS * NUM_PARTITIONS
        self.pending, self.pending_values = np.empty(capacity, np.int64), np.empty(capacity)
        self.queue_length, self.num_pending, self.num_visited = 0, 0, 0
        self.min_length = 0
        self.floors, self.lowest = np.array([np.inf, np.inf]), -np.inf
        self.index = index_predecessors(problem.successor, problem.reward)
        self.row_starts = np.zeros(states + 1, np.int64)
        s, t = sample_pairs(states, 20_000)
        self.sample_pairs = (np.maximum(s, t), np.minimum(s, t))

    @property
    def queue(self) -> NDArray[np.int64]:
        """The queue, of `queue_length` pairs."""
        queue: NDArray[np.int64] = self.queues[self.turn]
        return queue

    def clear(self) -> None:
        """Remove all pairs, and mirror the matrix, for the next sweep."""
        self.queue_length, self.num_pending = 0, 0
        self.floors[:] = np.inf
        table_kernels.clear(self.marked)
        table_kernels.mirror(self.d)

    def estimate_quantile(self, fraction: float) -> float:
        """Estimate a quantile of the distances from a sample."""
        return float(np.quantile(self.d[self.sample_pairs], fraction))

    @property
    def is_settled(self) -> bool:
        """Whether the next layer can begin: with pairs of the queue, if these are few."""
        return self.queue_length <= (self.min_length if self.num_pending else 0)

    def start_layer(self) -> bool:
        """Move the largest pending pairs to the queue; return whether there are any."""
        if self.num_pending == 0 and not self._list_marked():
            return False
        if self.num_pending > 0.9 * len(self.pending):
            self._shorten()
        step = -(-self.num_pending // NUM_SAMPLES)
        sample = np.sort(self.pending_values[: self.num_pending : step])
        size = max(MIN_LAYER, min(LAYER_FRACTION * self.num_pending, MAX_LAYER * self.num_pairs))
        fraction = min(1.0, size / self.num_pending)
        self.floors[0] = sample[int((1 - fraction) * len(sample))]
        counts = np.zeros((NUM_CHUNKS, 2), np.int64)
        plan = plan_items(SPLIT_PHASES, choose_num_threads(self.num_pending, MIN_PARALLEL_PENDING))
        arguments = (
            self.marked, self.pending, self.pending_values, self.num_pending, self.floors[0],
            self.next_queue, self.candidates, self.queue, self.queue_length, counts,
        )  # fmt: skip
        share_phases(propagation_kernels.prepare_split, arguments, plan)
        num_removed, num_moved = (int(total) for total in counts.sum(axis=0))
        self.num_pending -= num_removed
        self.queue_length += num_moved
        self.min_length = int(QUEUE_FRACTION * self.queue_length)
        return True

    def _list_marked(self) -> bool:
        """List the largest marked pairs as pending; return whether there are any."""
        if self.floors[1] <= self.lowest:
            return False
        s, t = self.sample_pairs
        sample = self.d[s, t][self.marked[s, t] != 0]
        sample = sample[sample < self.floors[1]]
        fraction = 0.5 * PENDING_CAPACITY * len(s) / max(1, len(sample))
        self.floors[1] = np.quantile(sample, 1 - fraction) if fraction < 0.7 else -np.inf
        self.floors[1] = max(self.lowest, self.floors[1])
        # Many equal distances may not fit: the next sweep finds them.
        count = table_kernels.collect_changed(
            self.d, self.marked, self.floors[1], self.row_starts, self.pending, self.pending_values
        )
        self.num_pending = max(0, count)
        return count > 0

    def _shorten(self) -> None:
        """Remove the lower half of the pending pairs from the list; they stay marked."""
        values = self.pending_values[: self.num_pending]
        self.floors[1] = np.median(values[:: -(-len(values) // NUM_SAMPLES)])
        self.num_pending = propagation_kernels.keep_largest(self.pending, values, self.floors[1])

    def propagate(self, max_listed: float = np.inf, max_visited: float = np.inf) -> bool:
        """Propagate pairs of the queue: each d(x, y) that leads to (s, t) is raised to
        gap + discount * d(s, t). Returns False where a pair has too many predecessors.

        May end before the queue is empty, and does where both lists have more than `max_listed`
        pairs, or after so many visits in all.
        """
        p = self.problem
        if self.queue_length <= MAX_SERIAL_PAIRS:
            self.queue_length, self.num_pending, visited = propagation_kernels.propagate_serially(
                self.d, self.queue, self.queue_length, self.pending, self.pending_values,
                self.num_pending, self.marked, *self.index, p.discount, p.residual_tolerance,
                self.floors, PAIRS_PER_CALL, MAX_SERIAL_PAIRS,
            )  # fmt: skip
            self.num_visited += visited
            return True
        length = propagation_kernels.select_slice(
            self.queue, self.queue_length, self.index[0], len(self.d), len(self.candidates)
        )
        if length == 0:
            return False
        num_threads = choose_num_threads(self.queue_length, MIN_PARALLEL_PAIRS)
        max_length = GROWTH_PER_CALL * self.queue_length
        max_visited = min(max_visited, self.num_visited + MAX_CALL_VISITS)
        min_length = max(MAX_SERIAL_PAIRS, self.min_length if self.num_pending else 0)
        limits = np.array([min_length, max_length, max_listed, max_visited])
        state = np.array(
            [self.turn, length, self.queue_length, self.num_pending, self.num_visited], np.int64
        )
        ends = np.zeros((NUM_CHUNKS, NUM_PARTITIONS), np.int64)
        counts = np.zeros((NUM_PARTITIONS, 2), np.int64)
        num_visited = np.zeros(NUM_CHUNKS, np.int64)
        plan = plan_items(PHASES, num_threads, repeats=True)
        arguments = (
            self.d, self.queues, self.next_queue, self.pending, self.pending_values, self.marked,
            self.candidates, self.candidate_values, *self.index, p.discount, p.residual_tolerance,
            self.floors, state, limits, ends, counts, num_visited,
        )  # fmt: skip
        share_phases(propagation_kernels.prepare_propagation, arguments, plan)
        self.turn, length, self.queue_length, self.num_pending, self.num_visited = state.tolist()
        return length > 0 or self.queue_length == 0


def index_predecessors(
    successor: NDArray[np.uint32], reward: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.float64]]:
    """Sort the states by successor and action: those that reach s by a start at starts[s * A + a].

    Returns the starts, the states, and their rewards for that action.
    """
    actions, states = successor.shape
    keys = (successor.astype(np.int64) * actions + np.arange(actions)[:, None]).reshape(-1)
    order = np.argsort(keys, kind="stable")
    starts = np.zeros(states * actions + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=states * actions), out=starts[1:])
    return starts, (order % states).astype(np.uint32), reward.reshape(-1)[order]

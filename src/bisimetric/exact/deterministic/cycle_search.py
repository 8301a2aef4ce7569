"""Search for the cycles of the pair graph with the largest infinite-horizon value.

If (s, t) has the largest distance d~ = M, the rewards along its optimal path satisfy

    sum over i < k of discount^i gap_i >= (1 - discount^k) M        for every k,

since no pair on the path has a larger distance (cf. the cycle lemma, Dvoretzky & Motzkin 1947).
Paths from all pairs are therefore left as soon as they violate this for a level M. Of the paths to
the same pair only the one that is worth most so far is continued, as in the algorithm of Bellman &
Ford. If it reaches a pair again with a larger surplus, repeating that cycle is worth more than M,
and the search continues at its value as the level. At a level for which the expected number of
paths does not grow with their length, few are left after some steps; if no cycle is found, no
distance exceeds the level.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from bisimetric.exact._phases import plan_items, share_phases, share_rows
from bisimetric.exact.deterministic import cycle_kernels
from bisimetric.exact.deterministic.pair_kernels import one_minus_power
from bisimetric.exact.deterministic.problem import DeterministicProblem, sample_pairs
from bisimetric.exact.deterministic.propagation_kernels import NUM_CHUNKS, NUM_PARTITIONS, PHASES
from bisimetric.exact.deterministic.table_kernels import MIN_PARALLEL_ENTRIES

HIGHEST_LEVEL, LEVEL_STEP = 1.03, 0.008
"""The first level, relative to the estimate, and by how much each is below the one before, until a
cycle is found."""
START_LEVELS = 1.0, 0.98
"""Pairs are selected once for all levels above the first, and again down to the second."""
CAPACITY, MIN_CAPACITY = 0.25, 2**14
"""Entries of a search: a fraction of all pairs, and the least number."""
MAX_EFFORT, MAX_LAST_EFFORT = 0.75, 0.02
"""Entries of all searches per pair, after which no other begins; the second, of a search that found
a cycle: it is repeated at a higher level only if that is cheap."""
CLIMB_FACTOR = 1.5
"""A search ends when it has so many times as many entries as when it found its last cycle."""
MIN_IMPROVEMENT = 1e-6
MIN_GAIN = 1e-5
"""The least increase of a surplus, in units of the mean gap of a path at the level."""
MAX_SEARCHES = 32
MAX_BATCH, BATCH_FRACTION = 2**11, 2**-10
"""The most entries that are continued together, also as a fraction of those of a search: with more
the search is broad, and ends before its paths are long enough for cycles."""
MIN_ANCESTORS = 256
"""Pairs that fewer pairs lead to are left out: their value is of no use for the others."""
MIN_PARALLEL_STARTS = 2**10
ENTRIES_PER_THREAD = 2**7
"""Entries of a batch that are worth another thread: they take some fifty microseconds."""
MAX_STEPS_PER_BIT = 3
"""Steps to all states of a graph that mixes fast, per binary digit of their number."""
MIN_GAP = 1e-290
"""Where all gaps are smaller, quotients of them overflow, and no cycle is searched for."""
NUM_SAMPLES, NUM_BINS = 4096, 64
"""Pairs, and bins of a histogram of their gaps, from which the level is estimated."""


def find_cycle(
    problem: DeterministicProblem,
    starts: NDArray[np.int64],
    predecessors: NDArray[np.uint32],
    scratch: NDArray[np.floating],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Find a cycle of large value, and a path to it; return their pairs s * S + t, t < s, and the
    values of those.

    See `propagation.index_predecessors` for `starts` and `predecessors`. `scratch` is a contiguous
    matrix of zeros, which is used, and filled with zeros again.
    """
    estimate = estimate_level(problem)
    search = _Search(problem, starts, predecessors, scratch)
    num_pairs = problem.num_states * (problem.num_states - 1) // 2
    level = HIGHEST_LEVEL * estimate
    while level > START_LEVELS[1] * estimate and search.num_searches < MAX_SEARCHES:
        start_level = START_LEVELS[level < START_LEVELS[0] * estimate] * estimate
        num_entries, num_blocked = search.num_entries, len(search.blocked)
        if search.run(level, start_level):
            level = search.value * (1 + MIN_IMPROVEMENT)
            if search.num_entries - num_entries > max(MIN_CAPACITY, MAX_LAST_EFFORT * num_pairs):
                break
        elif len(search.blocked) == num_blocked:
            if search.value > 0.0:
                break
            level -= LEVEL_STEP * estimate
        if search.num_entries > MAX_EFFORT * num_pairs:
            break
    search.clear()
    return search.pairs, search.values


class _Search:
    """The matrix and the entries of successive searches, and the best path into a cycle so far."""

    def __init__(
        self,
        problem: DeterministicProblem,
        starts: NDArray[np.int64],
        predecessors: NDArray[np.uint32],
        scratch: NDArray[np.floating],
    ) -> None:
        self.discount, self.index = problem.discount, (starts, predecessors)
        self.successor, self.reward = problem.successor.T.copy(), problem.reward.T.copy()
        num_pairs = problem.num_states * (problem.num_states - 1) // 2
        capacity = int(max(MIN_CAPACITY, CAPACITY * num_pairs))
        self.surplus = scratch.reshape(-1)
        self.entry_pairs, self.entry_values = np.empty(capacity, np.int64), np.empty(capacity)
        self.links = np.empty((capacity, 3), np.int32)
        self.heads = np.empty(cycle_kernels.NUM_BUCKETS, np.int32)
        self.batch = np.empty(min(MAX_BATCH, int(BATCH_FRACTION * capacity)), np.int32)
        # All candidates of a chunk may be in one partition.
        candidates = -(-len(self.batch) // NUM_CHUNKS) * self.successor.shape[1]
        shape = NUM_PARTITIONS, NUM_CHUNKS, candidates
        self.candidate_pairs, self.candidate_values = np.empty(shape, np.int64), np.empty(shape)
        self.candidate_links = np.empty((*shape, 3), np.int32)
        self.blocked = np.zeros(0, np.int64)
        self.start_level, self.starts = np.inf, np.zeros(0, np.int64)
        self.num_searches, self.num_entries = 0, 0
        self.pairs, self.values = np.zeros(0, np.int64), np.zeros(0)

    @property
    def value(self) -> float:
        """The largest value of the best path; 0 if there is none."""
        return float(self.values.max(initial=0.0))

    def run(self, level: float, start_level: float) -> bool:
        """Search at a level and above, among the pairs that may be worth `start_level`.

        Returns whether a better path was found. Pairs of others that few pairs lead to are blocked.
        """
        if self.start_level != start_level:
            self.start_level, self.starts = start_level, self._select_starts(start_level)
        starts = self.starts[self._retest_starts(level)]
        # Half of the entries are left for the paths.
        starts = starts[:: 1 + 2 * len(starts) // len(self.entry_pairs)]
        value = self.value
        count = self.search_level(level, starts)
        self.surplus[self.entry_pairs[:count]] = 0.0
        self.surplus[self.blocked] = np.inf
        self.num_searches += 1
        self.num_entries += count
        return self.value > value

    def search_level(self, level: float, starts: NDArray[np.int64]) -> int:
        """Search for a path from one of the starts into a cycle, worth more than a level.

        The surplus of a pair is the level minus what the rest of a path must be worth from there;
        the matrix holds the largest one found per pair. Entries are pairs with their surplus, the
        entry before, the entry after it in a bucket, and their steps (`links`). Batches of those of
        the largest surplus come first. When a cycle is found, its value is the next level, at which
        the search continues.

        Returns the number of entries. The search ends when no path is left, there is no memory for
        further entries, or none is found for long.
        """
        count: int = cycle_kernels.list_starts(
            starts, self.surplus, self.entry_pairs, self.entry_values, self.links, self.heads
        )
        num_listed = count
        max_entries = len(self.entry_pairs) - len(self.batch) * self.successor.shape[1]
        while True:
            count, num_listed, last = self._take_steps(level, count, num_listed, max_entries)
            if last == cycle_kernels.NONE or not self._add_path(self._trace_path(last)):
                return count
            new_level = max(level, self.value * (1 + MIN_IMPROVEMENT))
            cycle_kernels.raise_level(
                self.surplus, self.entry_pairs, self.entry_values, self.links, self.heads,
                num_listed, count, self.discount, new_level - level,
            )  # fmt: skip
            level, num_listed = new_level, 0
            max_entries = min(max_entries, max(MIN_CAPACITY, int(CLIMB_FACTOR * count)))

    def _add_path(self, path: list[int]) -> bool:
        """Keep a path into a cycle if it is worth more than the best so far. Returns whether it is.
        Pairs at its beginning that few pairs lead to are blocked."""
        pairs, values = self._evaluate(path)
        used = self._count_few_ancestors(pairs)
        self.blocked = np.concatenate([self.blocked, pairs[:used]])
        self.surplus[self.blocked] = np.inf
        if values[used:].max(initial=0.0) <= self.value * (1 + MIN_IMPROVEMENT):
            return False
        self.pairs, self.values = pairs[used:], values[used:]
        return True

    def _take_steps(
        self, level: float, count: int, num_listed: int, max_entries: int
    ) -> tuple[int, int, int]:
        """Take steps from the best entries, in batches, until one closes a cycle, none is left, or
        there are too many. Returns the number of entries, that before the last step, and the first
        that closes a cycle."""
        min_gain = MIN_GAIN * (1 - self.discount) * level
        # A path of the largest gaps only would have a surplus of several times the mean gap.
        width = 8 * (1 - self.discount) * level / cycle_kernels.NUM_BUCKETS
        ends = np.zeros((NUM_PARTITIONS, NUM_CHUNKS), np.int64)
        counts, cycles = np.zeros((2, NUM_PARTITIONS), np.int64)
        num_threads = max(1, len(self.batch) // ENTRIES_PER_THREAD)
        if num_threads > 1:
            num_threads = min(num_threads, numba.get_num_threads())
        plan = plan_items(PHASES, num_threads, repeats=True)
        size, last = (
            cycle_kernels.take_batch(
                self.entry_values, self.links, self.heads, num_listed, count, width, self.batch
            ),
            cycle_kernels.NONE,
        )
        num_listed = count
        while last == cycle_kernels.NONE and size > 0 and count <= max_entries:
            state = np.array([count, num_listed, size, last, 0], np.int64)
            arguments = (
                self.successor, self.reward, self.discount, level, min_gain, width, max_entries,
                self.surplus, self.entry_pairs, self.entry_values, self.links, self.heads,
                self.batch, self.candidate_pairs, self.candidate_values, self.candidate_links, ends,
                counts, cycles, state,
            )  # fmt: skip
            share_phases(cycle_kernels.prepare_search, arguments, plan)
            count, num_listed, size, last, _ = state.tolist()
        return count, num_listed, last

    def clear(self) -> None:
        """Fill the matrix with zeros."""
        self.surplus[self.blocked] = 0.0

    def _select_starts(self, level: float) -> NDArray[np.int64]:
        order = np.argsort(self.reward.T, axis=1, kind="stable").astype(np.uint32)
        sorted_reward = np.take_along_axis(self.reward.T, order, axis=1)
        states, pairs = len(self.successor), self.entry_pairs
        counts = np.zeros(states, np.int64)
        arguments = (
            self.successor, self.reward, order, sorted_reward, self.discount, level, pairs, counts
        )  # fmt: skip
        share_rows(
            cycle_kernels.prepare_selection, arguments, states, 2 * states, MIN_PARALLEL_ENTRIES
        )
        rows = np.repeat(np.arange(states), counts)
        columns = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.unique(pairs[rows * (len(pairs) // states) + columns])

    def _retest_starts(self, level: float) -> NDArray[np.bool_]:
        has_path = np.empty(len(self.starts), np.bool_)
        arguments = (
            self.successor, self.reward, self.discount, level, self.starts, has_path
        )  # fmt: skip
        share_rows(
            cycle_kernels.prepare_retest, arguments, len(self.starts), 1, MIN_PARALLEL_STARTS
        )
        return has_path

    def _trace_path(self, last: int) -> list[int]:
        """Return the pairs on the way to an entry, up to the first that is reached twice."""
        entries = []
        while last != cycle_kernels.NONE:
            entries.append(last)
            last = int(self.links[last, 0])
        path: list[int] = []
        steps: dict[int, int] = {}
        for pair in self.entry_pairs[entries[::-1]].tolist():
            path.append(pair)
            if steps.setdefault(pair, len(steps)) < len(path) - 1:
                break
        return path

    def _evaluate(self, path: list[int]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the pairs of a path whose last pair has occurred before, and their values."""
        states = len(self.successor)
        pairs = np.array(path)
        s, t = np.divmod(pairs, states)
        x, y = self.successor[s[:-1]].astype(np.int64), self.successor[t[:-1]].astype(np.int64)
        is_taken = np.maximum(x, y) * states + np.minimum(x, y) == pairs[1:, None]
        gap = np.abs(self.reward[s[:-1]] - self.reward[t[:-1]])
        gap = np.where(is_taken, gap, 0.0).max(axis=1)
        first = path.index(path[-1])
        value = 0.0
        for each in gap[first:][::-1]:
            value = each + self.discount * value
        value /= one_minus_power(self.discount, len(gap) - first)
        values = np.empty(len(gap))
        for k in range(len(gap) - 1, -1, -1):
            value = gap[k] + self.discount * value
            values[k] = value
        return pairs[:-1], values

    def _count_few_ancestors(self, pairs: NDArray[np.int64]) -> int:
        """Return how many pairs at the beginning of a path fewer than `MIN_ANCESTORS` lead to."""
        states, actions = self.successor.shape
        for k, (s, t) in enumerate(zip(*np.divmod(pairs, states), strict=True)):
            if cycle_kernels.has_ancestors(s, t, *self.index, actions, MIN_ANCESTORS):
                return k
        return len(pairs)


def mixes_fast(successor: NDArray[np.uint32]) -> bool:
    """Return whether state 0 reaches most states, and those in O(log S) steps, as in random graphs.

    Elsewhere, as in grids, paths to the best cycle are long, and the search does not pay: most
    pairs change many times until their distance has converged.
    """
    states = successor.shape[1]
    reached, frontier = np.zeros(states, np.bool_), np.zeros(1, np.uint32)
    for _ in range(MAX_STEPS_PER_BIT * states.bit_length()):
        reached[frontier] = True
        following = np.unique(successor[:, frontier])
        frontier = following[~reached[following]]
        if len(frontier) == 0:
            return bool(reached.sum() > states // 2)
    return False


def estimate_level(problem: DeterministicProblem) -> float:
    """Estimate the largest value that arbitrarily long paths attain.

    If the gaps of actions were drawn independently, the expected number of paths of length k with
    mean gap x would be at most (A E[exp(theta (gap - x))])^k for every theta > 0. It does not grow
    at the least x for which some theta makes that 1 (the speed of a branching random walk, Biggins
    1976). Actions that merge the pair end the path.
    """
    s, t = sample_pairs(problem.num_states, NUM_SAMPLES)
    gap = np.abs(problem.reward[:, s] - problem.reward[:, t])
    gap = gap[problem.successor[:, s] != problem.successor[:, t]]
    largest = float(gap.max(initial=0.0))
    if not MIN_GAP < largest < np.inf:
        return 0.0
    bins = np.bincount((gap / largest * (NUM_BINS - 1)).astype(np.int64), minlength=NUM_BINS)
    theta = np.geomspace(0.1, 2.0 * NUM_BINS, 64)
    centres = (np.arange(NUM_BINS) + 0.5) / NUM_BINS
    paths = np.exp(np.outer(theta, centres)) @ (bins / NUM_SAMPLES)
    mean = largest * float((np.log(paths) / theta).min())
    return mean / (1 - problem.discount)

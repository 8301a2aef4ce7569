"""Compiled kernels of backward propagation: they find the predecessors of pairs, and raise them.

Pairs are encoded as s * S + t with t < s; see `propagation.WorkLists` for the lists and marks.
Successive pairs of a list are far apart in the matrix, and memory latency is most of the work. So
entries are read into the cache some pairs ahead.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bisimetric._transport import NO_ALLOCATION
from bisimetric.exact._intrinsics import pack_call, prefetch
from bisimetric.exact._phases import end_rounds, finish_part, start_part
from bisimetric.exact.deterministic.pair_kernels import MOVED, PENDING, raise_value

SLICE_SIZE, BATCH_SIZE = 64, 256
"""Pairs whose predecessors are listed together, and predecessors that are compared together."""
NUM_PARTITIONS = 16
PARTITION_SHIFT = 6
"""So many pairs in a row, as a power of 2, are in the same partition."""
NUM_CHUNKS = 32
"""Chunks of a slice that are searched in parallel; fixed, so that the order is too."""
NUM_SAMPLES, SAMPLE_MARGIN = 512, 1.25
"""Pairs of the queue whose predecessors are counted, and the margin for the others. Only those that
increase take memory."""
PREFETCH_DISTANCE = 16
"""Candidates whose entries are read ahead: about as many reads as a core can have in flight."""
FIND = 0
SPLIT_PHASES = NUM_CHUNKS, NUM_CHUNKS
"""The phases of a split, and their items: pairs are found in chunks, and then moved."""
SEARCH, APPLY, APPEND = 0, 1, 2
PHASES = NUM_CHUNKS, NUM_PARTITIONS, NUM_PARTITIONS, 1
"""The phases of the propagation of a slice, and their items: the last selects the next slice."""
TURN, LENGTH, QUEUE_LENGTH, NUM_PENDING, VISITED = 0, 1, 2, 3, 4
"""The state of a propagation: which of two queues is read, the pairs of the slice and of the lists,
and the predecessors visited so far."""
MIN_LENGTH, MAX_LENGTH, MAX_LISTED, MAX_VISITED = 0, 1, 2, 3
"""Its limits: the propagation ends where the queue is not longer than the first, or longer than the
second, both lists are longer than the third, or so many predecessors have been visited."""


@njit(nogil=True, **NO_ALLOCATION)
def split_parts(
    progress, part, parts, marked, pending, pending_values, num_pending, floor, positions, pairs,
    queue, queue_length, counts,
):  # fmt: skip
    """Append the pending pairs of at least `floor` to the queue, those of each chunk as many as fit
    into its part of the queue. The last ones fill the gaps.

    Pairs that are not marked as pending have been propagated since, or are in the queue. `counts`
    receives per chunk how many are removed from the pending pairs, and how many are appended.
    """
    size = (len(queue) - queue_length) // NUM_CHUNKS
    while True:
        part, is_ready = start_part(progress, parts, part)
        if not is_ready:
            return part
        _, low, high, kind = parts[part]
        for chunk in range(low, high):
            if kind == FIND:
                _find_largest(
                    marked, pending, pending_values, num_pending, floor, positions, pairs, size,
                    counts, chunk,
                )  # fmt: skip
            else:
                first, n = chunk * size, queue_length + counts[:chunk, 1].sum()
                for k in range(counts[chunk, 1]):
                    queue[n + k] = pairs[first + k]
                _fill_gaps(pending, pending_values, num_pending, positions, size, counts, chunk)
        part = finish_part(progress)


@njit(cache=True)
def prepare_split(pack, progress, parts, *arguments):
    return pack_call(split_parts, pack, (progress, parts, *arguments))


@njit(inline="always")
def _find_largest(
    marked, pending, pending_values, num_pending, floor, positions, pairs, size, counts, chunk
):
    """Find the pending pairs of a chunk of at least `floor`: their values become -1."""
    flat_marked = marked.reshape(-1)
    first, n, m = chunk * size, 0, 0
    low, high = num_pending * chunk // NUM_CHUNKS, num_pending * (chunk + 1) // NUM_CHUNKS
    k = low
    while k < high and n < size:  # without a branch on the value, which would be mispredicted
        positions[first + n] = k
        n += pending_values[k] >= floor
        k += 1
    for i in range(first, first + n):
        prefetch(flat_marked, pending[positions[min(i + PREFETCH_DISTANCE, first + n - 1)]])
        pending_values[positions[i]] = -1.0
        # Pairs that are listed twice are also moved twice, in whatever order they are found.
        pair = pending[positions[i]]
        mark = flat_marked[pair]
        is_pending = (mark == PENDING) | (mark == MOVED)
        pairs[first + m] = pair
        flat_marked[pair] = MOVED if is_pending else mark
        m += is_pending
    counts[chunk, 0], counts[chunk, 1] = n, m


@njit(inline="always")
def _fill_gaps(pending, pending_values, num_pending, positions, size, counts, chunk):
    """Move some of the last pending pairs to the positions of those removed from a chunk: the gaps
    of all chunks are filled from left to right."""
    rest = num_pending - counts[:, 0].sum()
    skipped, source = counts[:chunk, 0].sum(), 0
    for k in range(NUM_CHUNKS):
        low, high = num_pending * k // NUM_CHUNKS, num_pending * (k + 1) // NUM_CHUNKS
        source, removed = max(low, rest), counts[k, 0]
        if low < rest < high:
            own = positions[k * size : k * size + removed]
            removed -= np.searchsorted(own, rest)
        if high > rest and skipped < high - source - removed:
            break
        skipped -= high - source - removed if high > rest else 0
    for i in range(chunk * size, chunk * size + counts[chunk, 0]):
        if positions[i] >= rest:
            return
        while skipped > 0 or pending_values[source] < 0.0:
            skipped -= pending_values[source] >= 0.0
            source += 1
        pending[positions[i]], pending_values[positions[i]] = (
            pending[source],
            pending_values[source],
        )
        source += 1


@njit(cache=True, nogil=True)
def keep_largest(pairs, values, floor):
    """Move the pairs whose value is at least `floor` to the beginning; return how many."""
    n = 0
    for k in range(len(values)):  # without a branch, which would be mispredicted
        pairs[n], values[n] = pairs[k], values[k]
        n += values[k] >= floor
    return n


@njit(cache=True, nogil=True)
def propagate_serially(
    d, queue, end, pending, pending_values, m, marked, starts, predecessors, rewards, discount,
    tolerance, floors, max_pairs, max_length,
):  # fmt: skip
    """Propagate `max_pairs` pairs, and those that they raise, or until the queue is empty or longer
    than `max_length`. Returns the lengths of both lists, and the number of
    predecessors visited."""
    ranges, futures, pair, value = _allocate_slice((starts.shape[0] - 1) // d.shape[0])
    return _propagate_slices(
        d, queue, end, pending, pending_values, m, marked, starts, predecessors, rewards, discount,
        tolerance, floors, max_pairs, max_length, ranges, futures, pair, value,
    )  # fmt: skip


@njit(nogil=True, **NO_ALLOCATION)
def _propagate_slices(
    d, queue, end, pending, pending_values, m, marked, starts, predecessors, rewards, discount,
    tolerance, floors, max_pairs, max_length, ranges, futures, pair, value,
):  # fmt: skip
    """The same, in memory from `_allocate_slice`: a kernel that allocates counts references at each
    pair that it raises."""
    states = np.int64(d.shape[0])
    actions = (starts.shape[0] - 1) // states
    flat, flat_marked = d.reshape(-1), marked.reshape(-1)
    visited, at = 0, 0
    while at < min(end, max_pairs) and end - at <= max_length:
        stop = min(end, at + SLICE_SIZE)
        total = _list_ranges(
            flat, states, queue, at, stop, flat_marked, starts, actions, discount, ranges,
            futures,
        )  # fmt: skip
        at = stop
        job, i, j = 0, ranges[0, 0], ranges[0, 2]
        for first in range(0, total, BATCH_SIZE):
            size = min(BATCH_SIZE, total - first)
            job, i, j = _list_predecessors(
                flat, ranges, futures, predecessors, rewards, states, job, i, j, size, pair, value
            )
            count = _keep_increases(flat, pair, value, size, tolerance)
            for k in range(count):
                prefetch(flat_marked, pair[k])
            for k in range(count):
                end, m = raise_value(
                    flat, pair[k], value[k], tolerance, floors, flat_marked, queue, end, pending,
                    pending_values, m,
                )  # fmt: skip
        visited += total
    for k in range(at, end):
        queue[k - at] = queue[k]
    return end - at, m, visited


@njit(inline="always")
def _allocate_slice(actions):
    """Return memory for the ranges of a slice, their values, and a batch of predecessors with
    theirs."""
    max_ranges = SLICE_SIZE * actions + 1
    ranges, futures = np.empty((max_ranges, 4), np.int64), np.empty(max_ranges)
    return ranges, futures, np.empty(BATCH_SIZE, np.int64), np.empty(BATCH_SIZE)


@njit(inline="always")
def _list_ranges(
    flat, states, queue, low, high, flat_marked, starts, actions, discount, ranges, futures
):
    """List the predecessors of some pairs, as ranges of those of s and of t by the same action.
    Returns how many pairs that makes."""
    n, total = 0, 0
    for k in range(low, high):
        prefetch(flat, queue[k])
        prefetch(flat_marked, queue[k])
    for k in range(low, high):
        pair = queue[k]
        s = np.int64(np.uint64(pair) // np.uint64(states))
        t = pair - s * states
        flat_marked[pair] = 0
        future = discount * flat[pair]
        for a in range(actions):
            ranges[n, 0], ranges[n, 1] = starts[s * actions + a], starts[s * actions + a + 1]
            ranges[n, 2], ranges[n, 3] = starts[t * actions + a], starts[t * actions + a + 1]
            futures[n] = future
            size = (ranges[n, 1] - ranges[n, 0]) * (ranges[n, 3] - ranges[n, 2])
            total += size
            n += size > 0
    return total


@njit(inline="always")
def _list_predecessors(
    flat, ranges, futures, predecessors, rewards, states, job, i, j, size, pair, value
):
    """List the next pairs of the ranges, and their new values. Without branches, which would be
    mispredicted: most ranges are short."""
    for k in range(size):
        x, y = np.int64(predecessors[i]), np.int64(predecessors[j])
        pair[k] = max(x, y) * states + min(x, y)
        prefetch(flat, pair[k])
        value[k] = abs(rewards[i] - rewards[j]) + futures[job]
        j += 1
        is_last = j == ranges[job, 3]
        i += is_last
        is_done = is_last & (i == ranges[job, 1])
        job += is_done
        i = ranges[job, 0] if is_done else i
        j = ranges[job, 2] if is_last else j
    return job, i, j


@njit(inline="always")
def _keep_increases(flat, pair, value, size, tolerance):
    """Keep the pairs that increase; return how many."""
    count = 0
    for k in range(size):
        increases = value[k] > flat[pair[k]] + tolerance
        pair[count], value[count] = pair[k], value[k]
        count += increases
    return count


@njit(cache=True, nogil=True)
def select_slice(queue, queue_length, starts, states, max_predecessors):
    """Return how many pairs of the queue have at most so many predecessors.

    A sample decides whether all have; only otherwise they are counted one by one.
    """
    actions = (starts.shape[0] - 1) // states
    total, stride = 0, 1 + queue_length // NUM_SAMPLES
    for k in range(0, queue_length, stride):
        total += _count_predecessors(queue[k], starts, states, actions)
    if SAMPLE_MARGIN * stride * total <= max_predecessors:
        return queue_length
    total = 0
    for k in range(queue_length):
        total += _count_predecessors(queue[k], starts, states, actions)
        if total > max_predecessors:
            return k
    return queue_length


@njit(inline="always")
def _count_predecessors(pair, starts, states, actions):
    i, j = pair // states * actions, pair % states * actions
    count = 0
    for a in range(actions):
        count += (starts[i + a + 1] - starts[i + a]) * (starts[j + a + 1] - starts[j + a])
    return count


@njit(cache=True, nogil=True)
def propagate_parts(
    progress, part, parts, d, queues, next_queue, pending, pending_values, marked, candidates,
    candidate_values, starts, predecessors, rewards, discount, tolerance, floors, state, limits,
    ends, counts, num_visited,
):  # fmt: skip
    """Propagate slices of the queue, one per round, see `propagation.WorkLists.propagate`."""
    memory = _allocate_slice((starts.shape[0] - 1) // d.shape[0])
    while True:
        part, is_ready = start_part(progress, parts, part)
        if not is_ready:
            return part
        _, low, high, kind = parts[part % len(parts)]
        queue, following_queue = queues[state[TURN]], queues[1 - state[TURN]]
        length, queue_length, num_pending = state[LENGTH], state[QUEUE_LENGTH], state[NUM_PENDING]
        if kind == SEARCH:
            _search_predecessors(
                d, queue, length, marked, candidates, candidate_values, starts, predecessors,
                rewards, discount, tolerance, ends, num_visited, low, high, memory,
            )  # fmt: skip
        elif kind == APPLY:
            _apply_candidates(
                d, next_queue, marked, candidates, candidate_values, tolerance, floors, ends,
                counts, low, high,
            )  # fmt: skip
        elif kind == APPEND:
            _append_partitions(
                queue, length, queue_length, following_queue, next_queue, pending, pending_values,
                num_pending, candidates, candidate_values, counts, low, high,
            )  # fmt: skip
        else:
            state[QUEUE_LENGTH] = min(len(queue), queue_length - length + counts[:, 0].sum())
            state[NUM_PENDING] = min(len(pending), num_pending + counts[:, 1].sum())
            state[VISITED] += num_visited.sum()
            state[LENGTH] = select_slice(
                following_queue, state[QUEUE_LENGTH], starts, d.shape[0], len(candidates)
            )
            state[TURN] = 1 - state[TURN]
            ends[:], num_visited[:] = 0, 0
            if _is_last_round(state, limits):
                end_rounds(progress, parts, part)
        part = finish_part(progress)


@njit(cache=True)
def prepare_propagation(pack, progress, parts, *arguments):
    return pack_call(propagate_parts, pack, (progress, parts, *arguments))


@njit(inline="always")
def _is_last_round(state, limits):
    """Return whether another round needs other threads, or none."""
    length, num_pending = state[QUEUE_LENGTH], state[NUM_PENDING]
    is_too_short = length <= limits[MIN_LENGTH] or state[LENGTH] == 0
    is_too_long = length > limits[MAX_LENGTH] or length + num_pending > limits[MAX_LISTED]
    return is_too_short or is_too_long or state[VISITED] >= limits[MAX_VISITED]


@njit(nogil=True, **NO_ALLOCATION)
def _search_predecessors(
    d, queue, num_pairs, marked, candidates, candidate_values, starts, predecessors, rewards,
    discount, tolerance, ends, num_visited, low, high, memory,
):  # fmt: skip
    """Find the predecessors of some chunks of a slice that increase.

    Each chunk has a part of `candidates` per partition of the pairs, and counts them in `ends`.
    Those that do not fit are found by the next sweep.
    """
    states = np.int64(d.shape[0])
    actions = (starts.shape[0] - 1) // states
    flat, flat_marked = d.reshape(-1), marked.reshape(-1)
    capacity = candidates.shape[0] // (NUM_CHUNKS * NUM_PARTITIONS)
    ranges, futures, pair, value = memory
    for chunk in range(low, high):
        end = num_pairs * (chunk + 1) // NUM_CHUNKS
        for at in range(num_pairs * chunk // NUM_CHUNKS, end, SLICE_SIZE):
            total = _list_ranges(
                flat, states, queue, at, min(end, at + SLICE_SIZE), flat_marked, starts, actions,
                discount, ranges, futures,
            )  # fmt: skip
            job, i, j = 0, ranges[0, 0], ranges[0, 2]
            for first in range(0, total, BATCH_SIZE):
                size = min(BATCH_SIZE, total - first)
                job, i, j = _list_predecessors(
                    flat, ranges, futures, predecessors, rewards, states, job, i, j, size, pair,
                    value,
                )  # fmt: skip
                for k in range(_keep_increases(flat, pair, value, size, tolerance)):
                    partition = (pair[k] >> PARTITION_SHIFT) % NUM_PARTITIONS
                    count = ends[chunk, partition]
                    if count < capacity:
                        place = (partition * NUM_CHUNKS + chunk) * capacity + count
                        candidates[place], candidate_values[place] = pair[k], value[k]
                        ends[chunk, partition] = count + 1
            num_visited[chunk] += total


@njit(nogil=True, **NO_ALLOCATION)
def _apply_candidates(
    d, next_queue, marked, candidates, candidate_values, tolerance, floors, ends, counts, low, high
):
    """Apply the candidates. Each partition of the pairs takes its candidates in the same order,
    whatever the number of threads, and has a part of `next_queue`. Pairs to list as pending
    replace the first candidates of the partition."""
    flat, flat_marked = d.reshape(-1), marked.reshape(-1)
    capacity = candidates.shape[0] // (NUM_CHUNKS * NUM_PARTITIONS)
    size = NUM_CHUNKS * capacity
    for partition in range(low, high):
        own = slice(partition * size, (partition + 1) * size)
        queue, pending, pending_values = next_queue[own], candidates[own], candidate_values[own]
        n, m = 0, 0
        for chunk in range(NUM_CHUNKS):
            end = chunk * capacity + ends[chunk, partition]
            for k in range(chunk * capacity, end):
                ahead = pending[min(k + PREFETCH_DISTANCE, end - 1)]
                prefetch(flat, ahead)
                prefetch(flat_marked, ahead)
                n, m = raise_value(
                    flat, pending[k], pending_values[k], tolerance, floors, flat_marked, queue, n,
                    pending, pending_values, m,
                )  # fmt: skip
        counts[partition, 0], counts[partition, 1] = n, m


@njit(cache=True, nogil=True)
def _append_partitions(
    queue, at, end, following_queue, next_queue, pending, pending_values, num_pending, candidates,
    candidate_values, counts, low, high,
):  # fmt: skip
    """Append the lists of some partitions to the rest of the queue, and to the pending pairs."""
    if low == 0:
        following_queue[: end - at] = queue[at:end]
    size = next_queue.shape[0] // (NUM_CHUNKS * NUM_PARTITIONS) * NUM_CHUNKS
    for partition in range(low, high):
        n, m = end - at + counts[:partition, 0].sum(), num_pending + counts[:partition, 1].sum()
        first = partition * size
        for k in range(min(counts[partition, 0], following_queue.shape[0] - n)):
            following_queue[n + k] = next_queue[first + k]
        for k in range(min(counts[partition, 1], pending.shape[0] - m)):
            pending[m + k], pending_values[m + k] = (
                candidates[first + k],
                candidate_values[first + k],
            )

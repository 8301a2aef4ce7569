"""Compiled kernels that follow single pairs through the pair graph, forwards and backwards.

Pairs are encoded as s * S + t with t < s; only that half of the matrix is read and written, so
`table_kernels.mirror` must follow before the next sweep.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric.exact._threads import map_chunks

MIN_PARALLEL_PREDECESSORS = 2**14
"""Predecessors that are worth several threads: most reads of their distances miss the cache."""
BATCH_SIZE = 256
NUM_PARTITIONS = 16
NUM_CHUNKS = 32
"""Chunks of a work list that are searched in parallel; fixed, so that the order is too."""


@njit(inline="always")
def read_lower(d, s, t):
    return d[max(s, t), min(s, t)]


@njit(cache=True)
def one_minus_power(discount, steps):
    """Return 1 - discount^steps to a few roundings, also where the power is nearly 1."""
    return 1.0 if discount == 0.0 else -np.expm1(steps * np.log(discount))


@njit(cache=True)
def decode_choice(choice, actions):
    """Return the actions of s and t of a choice (side * A + action) * A + response."""
    action, response = np.int64(choice) // actions % actions, np.int64(choice) % actions
    return (action, response) if choice < actions * actions else (response, action)


@njit(cache=True)
def find_best_action(d, successor, reward, discount, s, t):
    """Return the action that attains F(d)(s, t), and its value."""
    best, action = -1.0, 0
    for a in range(successor.shape[0]):
        value = abs(reward[a, s] - reward[a, t]) + discount * read_lower(
            d, successor[a, s], successor[a, t]
        )
        if value > best:
            best, action = value, a
    return action, best


@njit(cache=True)
def evaluate_path(
    d, s, t, stamp, marks, path, successor, reward, discount, tolerance, queue, marked, n
):
    """Follow the greedy actions from a pair into a cycle, and raise cycle and path to their value.

    Repeating a cycle is a policy, and its infinite-horizon value a lower bound, which value
    iteration would approach as discount^k. Pairs visited under the same `stamp` are not followed
    again. Pairs that increase by more than `tolerance` are marked and queued. Returns the new
    length of the queue, the steps, and the increase at the cycle.
    """
    states = d.shape[0]
    length, cycle, lift = 0, -1, 0.0
    while True:
        if s < t:
            s, t = t, s
        if s == t or marks[s, t] == stamp:
            break
        if marks[s, t] == stamp + 1:
            cycle = length - 1
            while path[cycle] != s * states + t:
                cycle -= 1
            break
        # After the marks: a cycle through all pairs fills the path before it is detected.
        if length == path.shape[0]:
            break
        marks[s, t] = stamp + 1
        path[length] = s * states + t
        length += 1
        action, _ = find_best_action(d, successor, reward, discount, s, t)
        s, t = np.int64(successor[action, s]), np.int64(successor[action, t])
    if cycle >= 0:
        value = 0.0
        for k in range(length - 1, cycle - 1, -1):
            x, y = path[k] // states, path[k] % states
            action, _ = find_best_action(d, successor, reward, discount, x, y)
            value = abs(reward[action, x] - reward[action, y]) + discount * value
        value /= one_minus_power(discount, length - cycle)
        lift = value - d[s, t]
        n = raise_value(d, s, t, value, tolerance, -1.0, queue, marked, n)
    for k in range(length - 1, -1, -1):
        x, y = path[k] // states, path[k] % states
        _, value = find_best_action(d, successor, reward, discount, x, y)
        n = raise_value(d, x, y, value, tolerance, -1.0, queue, marked, n)
        marks[x, y] = stamp
    return n, length, lift


@njit(cache=True)
def evaluate_cycles(
    d, starts, num_pairs, stamp, marks, path, successor, reward, discount, tolerance, queue, marked,
    n,
):  # fmt: skip
    """Evaluate the cycles that greedy actions lead to from some pairs. Returns the new length of
    the queue, the number of paths, how many of them increased a cycle, and the steps."""
    states = d.shape[0]
    num_paths, num_lifted, steps = 0, 0, 0
    for k in range(num_pairs):
        s, t = starts[k] // states, starts[k] % states
        n, length, lift = evaluate_path(
            d, s, t, stamp, marks, path, successor, reward, discount, tolerance, queue, marked, n
        )
        num_paths += length > 0
        num_lifted += lift > tolerance
        steps += length
    return n, num_paths, num_lifted, steps


@njit(cache=True)
def evaluate_marked_cycles(
    d, stride, stamp, marks, path, successor, reward, discount, tolerance, queue, marked
):
    """Evaluate the cycles from every `stride`-th marked pair, into an empty queue."""
    n, num_paths, num_lifted, steps, num_marked = 0, 0, 0, 0, 0
    for s in range(d.shape[0]):
        for t in range(s):
            if marked[s, t]:
                num_marked += 1
                if num_marked % stride == 0:
                    n, length, lift = evaluate_path(
                        d, s, t, stamp, marks, path, successor, reward, discount, tolerance, queue,
                        marked, n,
                    )  # fmt: skip
                    num_paths += length > 0
                    num_lifted += lift > tolerance
                    steps += length
    return n, num_paths, num_lifted, steps


@njit(inline="always")
def raise_value(d, s, t, value, tolerance, floor, queue, marked, n):
    if value > d[s, t] + tolerance and d.dtype.type(value) > d[s, t]:
        is_queued = marked[s, t] and d[s, t] >= floor
        d[s, t] = value
        marked[s, t] = True
        if value >= floor and not is_queued and n < queue.shape[0]:
            queue[n] = s * d.shape[0] + t
            n += 1
    return n


def count_predecessors(
    queue: NDArray[Any], num_pairs: int, states: int, predecessor_starts: NDArray[Any]
) -> int:
    """Count the predecessors of the pairs of a queue."""
    return sum(
        map_chunks(
            lambda low, high: _count_predecessors(queue, states, predecessor_starts, low, high),
            num_pairs,
            MIN_PARALLEL_PREDECESSORS,
        )
    )


@njit(cache=True, nogil=True)
def _count_predecessors(queue, states, predecessor_starts, low, high):
    total = 0
    for k in range(low, high):
        s, t = queue[k] // states, queue[k] % states
        for a in range(predecessor_starts.shape[0]):
            total += (predecessor_starts[a, s + 1] - predecessor_starts[a, s]) * (
                predecessor_starts[a, t + 1] - predecessor_starts[a, t]
            )
    return total


def propagate(
    d: NDArray[Any],
    queue: NDArray[Any],
    queue_length: int,
    next_queue: NDArray[Any],
    marked: NDArray[Any],
    candidate_pairs: NDArray[Any],
    candidate_values: NDArray[Any],
    predecessor_starts: NDArray[Any],
    predecessors: NDArray[Any],
    reward: NDArray[Any],
    discount: float,
    tolerance: float,
    floor: float,
    num_predecessors: int,
) -> int:
    """Propagate the values of a queue to the predecessors: d(x, y) >= gap + discount * d(s, t).

    Pairs that increase are marked until they are propagated themselves; those of at least `floor`
    are written to `next_queue`. Returns how many.
    """
    ends = np.zeros((NUM_CHUNKS, NUM_PARTITIONS), np.int64)
    counts = np.zeros(NUM_PARTITIONS, np.int64)

    def search_chunk(low: int, high: int) -> None:
        _search_predecessors(
            d, queue, queue_length, marked, candidate_pairs, candidate_values, predecessor_starts,
            predecessors, reward, discount, tolerance, ends, low, high,
        )  # fmt: skip

    def apply_chunk(low: int, high: int) -> None:
        _apply_candidates(
            d, next_queue, marked, candidate_pairs, candidate_values, tolerance, floor, ends,
            counts, low, high,
        )  # fmt: skip

    map_chunks(
        search_chunk,
        NUM_CHUNKS,
        -(-NUM_CHUNKS * MIN_PARALLEL_PREDECESSORS // max(1, num_predecessors)),
    )
    map_chunks(
        apply_chunk,
        NUM_PARTITIONS,
        -(-NUM_PARTITIONS * MIN_PARALLEL_PREDECESSORS // max(1, int(ends.sum()))),
    )
    return int(_concatenate_partitions(next_queue, counts))


@njit(cache=True, nogil=True)
def _search_predecessors(
    d, queue, num_pairs, marked, candidate_pairs, candidate_values, predecessor_starts,
    predecessors, reward, discount, tolerance, ends, low, high,
):  # fmt: skip
    """Find the predecessors of some chunks of a queue that increase.

    Each chunk has a part of `candidate_pairs` per partition of the rows, and counts them in `ends`.
    """
    states = d.shape[0]
    flat = d.reshape(-1)
    capacity = candidate_pairs.shape[0] // (NUM_CHUNKS * NUM_PARTITIONS)
    pair, value = np.empty(BATCH_SIZE, np.int64), np.empty(BATCH_SIZE)
    partition = np.empty(BATCH_SIZE, np.int64)
    for chunk in range(low, high):
        n = 0
        first = num_pairs * chunk // NUM_CHUNKS
        last = num_pairs * (chunk + 1) // NUM_CHUNKS
        for k in range(first, last + 1):
            if k < last:
                s, t = queue[k] // states, queue[k] % states
                marked[s, t] = False
                future = discount * d[s, t]
                for a in range(predecessor_starts.shape[0]):
                    for i in range(predecessor_starts[a, s], predecessor_starts[a, s + 1]):
                        x = np.int64(predecessors[a, i])
                        own = reward[a, x]
                        for j in range(predecessor_starts[a, t], predecessor_starts[a, t + 1]):
                            y = np.int64(predecessors[a, j])
                            partition[n] = max(x, y) % NUM_PARTITIONS
                            pair[n] = max(x, y) * states + min(x, y)
                            value[n] = abs(own - reward[a, y]) + future
                            n += 1
                            if n == BATCH_SIZE:
                                _filter_candidates(
                                    flat, pair, value, partition, n, tolerance, candidate_pairs,
                                    candidate_values, capacity, chunk, ends,
                                )  # fmt: skip
                                n = 0
            else:
                _filter_candidates(
                    flat, pair, value, partition, n, tolerance, candidate_pairs, candidate_values,
                    capacity, chunk, ends,
                )  # fmt: skip


@njit(inline="always")
def _filter_candidates(
    flat, pair, value, partition, num_pairs, tolerance, candidate_pairs, candidate_values, capacity,
    chunk, ends,
):  # fmt: skip
    """Keep the candidates that increase. A separate loop, so that many reads are in flight at once:
    they are scattered over the matrix, and memory latency is most of the work. Those that do not
    fit are found by the next sweep."""
    for k in range(num_pairs):
        if value[k] > flat[pair[k]] + tolerance:
            count = ends[chunk, partition[k]]
            if count < capacity:
                at = (partition[k] * NUM_CHUNKS + chunk) * capacity + count
                candidate_pairs[at] = pair[k]
                candidate_values[at] = value[k]
                ends[chunk, partition[k]] = count + 1


@njit(cache=True, nogil=True)
def _apply_candidates(
    d, next_queue, marked, candidate_pairs, candidate_values, tolerance, floor, ends, counts, low,
    high,
):  # fmt: skip
    """Apply the candidates. Each partition of the rows takes its candidates in the same order,
    whatever the number of threads."""
    states = d.shape[0]
    capacity = candidate_pairs.shape[0] // (NUM_CHUNKS * NUM_PARTITIONS)
    queue_size = next_queue.shape[0] // NUM_PARTITIONS
    for partition in range(low, high):
        own = next_queue[partition * queue_size : (partition + 1) * queue_size]
        n = 0
        for chunk in range(NUM_CHUNKS):
            first = (partition * NUM_CHUNKS + chunk) * capacity
            for k in range(first, first + ends[chunk, partition]):
                s, t = candidate_pairs[k] // states, candidate_pairs[k] % states
                n = raise_value(d, s, t, candidate_values[k], tolerance, floor, own, marked, n)
        counts[partition] = n


@njit(cache=True)
def _concatenate_partitions(next_queue, counts):
    """Concatenate the queues of the partitions; return the number of pairs."""
    queue_size = next_queue.shape[0] // NUM_PARTITIONS
    total = counts[0]
    for part in range(1, NUM_PARTITIONS):
        for k in range(part * queue_size, part * queue_size + counts[part]):
            next_queue[total] = next_queue[k]
            total += 1
    return total


@njit(cache=True)
def evaluate_policy(d, choice, marks, path, successor, reward, discount, no_choice):
    """Set d to the value of a fixed policy: d(s, t) = gap + discount * d(its successor pair).

    `choice[s, t]` sends (s, t) to (n(s, a), n(t, b)), see `decode_choice`; pairs with the choice
    `no_choice` keep their value. Every other pair has one successor, so each lies on a path into a
    cycle, whose value is a geometric series, or to a pair without a choice: exact, with one visit
    per pair. A path longer than `path` is cut at a pair that keeps its old value.
    """
    states, actions = d.shape[0], successor.shape[0]
    marks[:] = 0
    for s0 in range(states):
        for t0 in range(s0):
            s, t = s0, t0
            length, cycle = 0, -1
            while True:
                if s < t:
                    s, t = t, s
                if s == t or marks[s, t] == 2 or choice[s, t] == no_choice:
                    break
                if marks[s, t] == 1:
                    cycle = length - 1
                    while path[cycle] != s * states + t:
                        cycle -= 1
                    break
                if length == path.shape[0]:
                    break
                marks[s, t] = 1
                path[length] = s * states + t
                length += 1
                a, b = decode_choice(choice[s, t], actions)
                s, t = np.int64(successor[a, s]), np.int64(successor[b, t])
            if cycle >= 0:
                value = 0.0
                for k in range(length - 1, cycle - 1, -1):
                    x, y = path[k] // states, path[k] % states
                    a, b = decode_choice(choice[x, y], actions)
                    value = abs(reward[a, x] - reward[b, y]) + discount * value
                d[s, t] = value / one_minus_power(discount, length - cycle)
            future = 0.0 if s == t else np.float64(d[s, t])
            for k in range(length - 1, -1, -1):
                x, y = path[k] // states, path[k] % states
                a, b = decode_choice(choice[x, y], actions)
                future = abs(reward[a, x] - reward[b, y]) + discount * future
                d[x, y] = future
                marks[x, y] = 2


@njit(cache=True)
def solve_by_policy_iteration(
    d, choice, marks, path, successor, reward, discount, tolerance, max_rounds
):
    """Run Howard's policy iteration for d~ on one core, for small problems.

    In exact arithmetic no policy recurs. With rounding one may, so that rounds are limited; the
    residual is that of d in any case. Returns the largest |F(d) - d|, the largest F(d) and the
    number of rounds.
    """
    states, actions = d.shape[0], successor.shape[0]
    rounds = 0
    while True:
        rounds += 1
        any_increased, residual, largest = False, 0.0, 0.0
        for s in range(states):
            for t in range(s):
                action, value = find_best_action(d, successor, reward, discount, s, t)
                old = d[s, t]
                residual = max(residual, abs(value - old))
                largest = max(largest, value)
                if rounds == 1 or value > old + tolerance or (old == 0.0 and value > 0.0):
                    any_increased = any_increased or d.dtype.type(value) > old
                    choice[s, t] = action * actions + action
        if not any_increased or rounds == max_rounds:
            return residual, largest, rounds
        evaluate_policy(d, choice, marks, path, successor, reward, discount, actions * actions)

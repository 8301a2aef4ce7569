"""Compiled kernels that follow single pairs through the pair graph, forwards and backwards.

Pairs are numbers s * S + t with t < s; only that half of the table is read and written, so
`sweeps.mirror` must follow before the next sweep.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric.exact._threads import map_chunks

MIN_PARALLEL_PREDECESSORS = 2**14
"""Predecessors that are worth many threads: most reads of their distances miss the cache."""
BATCH_SIZE = 256
NUM_PARTITIONS = 4
NUM_CHUNKS = 32
"""Parts of a work list that are searched side by side; fixed, so that the order is too."""


@njit(inline="always")
def read_lower(d, s, t):
    return d[max(s, t), min(s, t)]


@njit(cache=True)
def one_minus_power(discount, steps):
    """1 - discount^steps to a few roundings, also where the power is nearly 1."""
    return 1.0 if discount == 0.0 else -np.expm1(steps * np.log(discount))


@njit(cache=True)
def decode_choice(choice, actions):
    """The actions of s and t in a choice (side * A + action) * A + answer; s acts on side 0."""
    action, answer = np.int64(choice) // actions % actions, np.int64(choice) % actions
    return (action, answer) if choice < actions * actions else (answer, action)


@njit(cache=True)
def find_best_action(d, successor, reward, discount, s, t):
    """The action that attains F(d)(s, t), and its value."""
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
    d, s, t, stamp, marks, path, successor, reward, discount, least, queue, marked, n
):
    """Follows the best actions from a pair to the cycle that they end in, and raises both.

    Going round a cycle for ever is a policy, and its value a lower bound: the cycle is lifted to
    it at once, which value iteration would approach by discount^k, and the path behind it after
    it. Pairs visited under the same `stamp` are not followed again. Pairs that rise by more than
    `least` are marked and join the queue. Returns its new length, the steps, and the lift.
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
        # After the marks: a cycle through all pairs fills the path before it is seen to close.
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
        n = raise_value(d, s, t, value, least, -1.0, queue, marked, n)
    for k in range(length - 1, -1, -1):
        x, y = path[k] // states, path[k] % states
        _, value = find_best_action(d, successor, reward, discount, x, y)
        n = raise_value(d, x, y, value, least, -1.0, queue, marked, n)
        marks[x, y] = stamp
    return n, length, lift


@njit(cache=True)
def evaluate_cycles(
    d, starts, count, stamp, marks, path, successor, reward, discount, least, queue, marked, n
):
    """Follows the best actions from some pairs. Returns the new length of the queue, how many
    pairs were not on the path of another, how many of their cycles were lifted, and the steps."""
    states = d.shape[0]
    alone, lifted, steps = 0, 0, 0
    for k in range(count):
        s, t = starts[k] // states, starts[k] % states
        n, length, lift = evaluate_path(
            d, s, t, stamp, marks, path, successor, reward, discount, least, queue, marked, n
        )
        alone += length > 0
        lifted += lift > least
        steps += length
    return n, alone, lifted, steps


@njit(cache=True)
def evaluate_marked_cycles(
    d, stride, stamp, marks, path, successor, reward, discount, least, queue, marked
):
    """`leap` from every `stride`-th marked pair, with a queue of what rises."""
    n, alone, lifted, steps, seen = 0, 0, 0, 0, 0
    for s in range(d.shape[0]):
        for t in range(s):
            if marked[s, t]:
                seen += 1
                if seen % stride == 0:
                    n, length, lift = evaluate_path(
                        d, s, t, stamp, marks, path, successor, reward, discount, least, queue,
                        marked, n,
                    )  # fmt: skip
                    alone += length > 0
                    lifted += lift > least
                    steps += length
    return n, alone, lifted, steps


@njit(inline="always")
def raise_value(d, s, t, value, least, floor, queue, marked, n):
    if value > d[s, t] + least and d.dtype.type(value) > d[s, t]:
        before = marked[s, t] and d[s, t] >= floor
        d[s, t] = value
        marked[s, t] = True
        if value >= floor and not before and n < queue.shape[0]:
            queue[n] = s * d.shape[0] + t
            n += 1
    return n


def count_predecessors(queue: NDArray[Any], count: int, states: int, first: NDArray[Any]) -> int:
    """How many predecessors the pairs of a queue have."""
    return sum(
        map_chunks(
            lambda low, high: _count_predecessors(queue, states, first, low, high),
            count,
            MIN_PARALLEL_PREDECESSORS,
        )
    )


@njit(cache=True, nogil=True)
def _count_predecessors(queue, states, first, low, high):
    total = 0
    for k in range(low, high):
        s, t = queue[k] // states, queue[k] % states
        for a in range(first.shape[0]):
            total += (first[a, s + 1] - first[a, s]) * (first[a, t + 1] - first[a, t])
    return total


@njit(cache=True)
def filter_candidates(flat, pair, value, count, least, spill, spilled, at, end):
    """Keeps the candidates that would rise. A loop of its own, so that many reads are under way
    at once: they go all over the table, and waiting for them is most of the work."""
    for k in range(count):
        if value[k] > flat[pair[k]] + least and at < end:
            spill[at] = pair[k]
            spilled[at] = value[k]
            at += 1
    return at


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
    """Hands the values of a queue on to its predecessors: d(x, y) >= gap + discount * d(s, t).

    Pairs that rise are marked until they are handed on themselves; those of at least `floor` are
    `following`. Returns how many. `wide` is the number of predecessors.
    """
    ends, counts = np.zeros(NUM_CHUNKS, np.int64), np.zeros(NUM_PARTITIONS, np.int64)

    def search(low: int, high: int) -> None:
        _search_predecessors(
            d, queue, queue_length, marked, candidate_pairs, candidate_values, predecessor_starts, predecessors, reward, discount, tolerance, ends,
            low, high,
        )  # fmt: skip

    def take(low: int, high: int) -> None:
        _apply_candidates(
            d,
            next_queue,
            marked,
            candidate_pairs,
            candidate_values,
            tolerance,
            floor,
            ends,
            counts,
            low,
            high,
        )

    map_chunks(
        search, NUM_CHUNKS, -(-NUM_CHUNKS * MIN_PARALLEL_PREDECESSORS // max(1, num_predecessors))
    )
    found = int((ends - np.arange(NUM_CHUNKS) * (len(candidate_pairs) // NUM_CHUNKS)).sum())
    map_chunks(
        take, NUM_PARTITIONS, -(-NUM_PARTITIONS * MIN_PARALLEL_PREDECESSORS // max(1, found))
    )
    return int(_concatenate_partitions(next_queue, counts))


@njit(cache=True, nogil=True)
def _search_predecessors(
    d, queue, count, marked, spill, spilled, first, before, reward, discount, least, ends, low,
    high,
):  # fmt: skip
    """The predecessors of some chunks of a queue that would rise: those of a chunk begin at its
    place in `spill`, and end at its `ends`."""
    states = d.shape[0]
    flat = d.reshape(-1)
    room = spill.shape[0] // NUM_CHUNKS
    pair, value = np.empty(BATCH_SIZE, np.int64), np.empty(BATCH_SIZE)
    for chunk in range(low, high):
        at, end = chunk * room, (chunk + 1) * room
        n = 0
        for k in range(count * chunk // NUM_CHUNKS, count * (chunk + 1) // NUM_CHUNKS):
            s, t = queue[k] // states, queue[k] % states
            marked[s, t] = False
            ahead = discount * d[s, t]
            for a in range(first.shape[0]):
                for i in range(first[a, s], first[a, s + 1]):
                    x = np.int64(before[a, i])
                    own = reward[a, x]
                    for j in range(first[a, t], first[a, t + 1]):
                        y = np.int64(before[a, j])
                        pair[n] = max(x, y) * states + min(x, y)
                        value[n] = abs(own - reward[a, y]) + ahead
                        n += 1
                        if n == BATCH_SIZE:
                            at = filter_candidates(
                                flat, pair, value, n, least, spill, spilled, at, end
                            )
                            n = 0
        ends[chunk] = filter_candidates(flat, pair, value, n, least, spill, spilled, at, end)


@njit(cache=True, nogil=True)
def _apply_candidates(d, following, marked, spill, spilled, least, floor, ends, counts, low, high):
    """Raises what was found. Each part of the rows takes its candidates in the same order, on
    however many threads."""
    states = d.shape[0]
    room, share = spill.shape[0] // NUM_CHUNKS, following.shape[0] // NUM_PARTITIONS
    for part in range(low, high):
        own = following[part * share : (part + 1) * share]
        n = 0
        for chunk in range(NUM_CHUNKS):
            for k in range(chunk * room, ends[chunk]):
                s = spill[k] // states
                if s % NUM_PARTITIONS == part:
                    t = spill[k] % states
                    n = raise_value(d, s, t, spilled[k], least, floor, own, marked, n)
        counts[part] = n


@njit(cache=True)
def _concatenate_partitions(following, counts):
    """Moves what the parts have found together; returns how many pairs that is."""
    share = following.shape[0] // NUM_PARTITIONS
    total = counts[0]
    for part in range(1, NUM_PARTITIONS):
        for k in range(part * share, part * share + counts[part]):
            following[total] = following[k]
            total += 1
    return total


@njit(cache=True)
def evaluate_policy(d, choice, marks, path, successor, reward, discount):
    """Sets d to the value of a fixed choice: d(s, t) = gap + discount * d(where it leads).

    `choice[s, t]` sends (s, t) to (n(s, a), n(t, b)), see `moves`. Every pair has one successor, so
    each lies on a path into a cycle, whose value is a geometric series: exact, and each pair
    is visited once. A path longer than `path` is cut at a pair that keeps its old value.
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
                if s == t or marks[s, t] == 2:
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
            ahead = 0.0 if s == t else np.float64(d[s, t])
            for k in range(length - 1, -1, -1):
                x, y = path[k] // states, path[k] % states
                a, b = decode_choice(choice[x, y], actions)
                ahead = abs(reward[a, x] - reward[b, y]) + discount * ahead
                d[x, y] = ahead
                marks[x, y] = 2


@njit(cache=True)
def solve_by_policy_iteration(
    d, choice, marks, path, successor, reward, discount, least, max_rounds
):
    """Howard's policy iteration for d~ on one core, for tables too small for anything else.

    In exact arithmetic no policy comes back. With roundings one may, so that rounds are limited;
    the residual is that of the table in any case. Returns the largest |F(d) - d|, the largest F(d)
    and the number of rounds.
    """
    states, actions = d.shape[0], successor.shape[0]
    rounds = 0
    while True:
        rounds += 1
        rose, residual, largest = False, 0.0, 0.0
        for s in range(states):
            for t in range(s):
                action, value = find_best_action(d, successor, reward, discount, s, t)
                old = d[s, t]
                residual = max(residual, abs(value - old))
                largest = max(largest, value)
                if rounds == 1 or value > old + least or (old == 0.0 and value > 0.0):
                    rose = rose or d.dtype.type(value) > old
                    choice[s, t] = action * actions + action
        if not rose or rounds == max_rounds:
            return residual, largest, rounds
        evaluate_policy(d, choice, marks, path, successor, reward, discount)

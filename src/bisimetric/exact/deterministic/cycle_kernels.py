"""Compiled kernels of the search for cycles of the pair graph, see `cycle_search`."""

from __future__ import annotations

import numpy as np
from numba import njit

from bisimetric._transport import NO_ALLOCATION
from bisimetric.exact._intrinsics import pack_call, pack_rows, prefetch
from bisimetric.exact._phases import end_rounds, finish_part, start_part
from bisimetric.exact.deterministic.propagation_kernels import (
    APPEND,
    APPLY,
    NUM_CHUNKS,
    NUM_PARTITIONS,
    PARTITION_SHIFT,
    SEARCH,
)

START_DEPTH, START_VISITS = 16, 64
"""Steps of the paths by which pairs are selected, and pairs visited per path at most."""
RETEST_DEPTH, RETEST_VISITS = 32, 512
"""The same for the pairs that are left, at the level of a search."""
STEP_DEPTH, STEP_VISITS = 12, 128
"""The same for each step of a search."""
MAX_LENGTH = 2**10
"""The most steps of a path."""
NUM_BUCKETS = 256
MIN_BATCH_FRACTION = 1 / 4
"""Entries of the next best bucket are added to a batch that is filled less than that."""
PREFETCH_DISTANCE, ENTRIES_AHEAD = 4, 16
"""Entries whose pairs are read into the cache ahead: with their successors, and alone."""
COUNT, LISTED, SIZE, LAST, NUM_ROUNDS = 0, 1, 2, 3, 4
"""The state of a search: the number of entries, those before the last step, the entries of the next
batch, the first entry that closes a cycle, and the steps of this call."""
MAX_CALL_ROUNDS = 256
"""Steps after which a thread returns to Python, where it can be interrupted."""
NONE, LEFT, REACHED, WAITING = -1, -2, -3, -4
"""Instead of the next entry in a bucket: there is none; the path is not continued; the pair has
been reached before, by a path of a smaller surplus; the entry is taken out of its bucket while the
level is raised."""


@njit(inline="always")
def _has_path(
    successor, reward, level, scale, s, t, needed, depth, max_visits, first, second, steps, needs
):
    """Return whether a path of `depth` steps from (s, t) is worth what is `needed`, or `max_visits`
    pairs do not decide it. Depth first, with the stack in the last four arguments."""
    first[0], second[0], steps[0], needs[0] = s, t, 0, needed
    size, visits = 1, 0
    while size > 0:
        size -= 1
        x, y, step, need = first[size], second[size], steps[size], needs[size]
        visits += 1
        if step >= depth or visits >= max_visits:
            return True
        for a in range(successor.shape[1]):
            remaining = (need - abs(reward[x, a] - reward[y, a])) * scale
            if remaining <= level and successor[x, a] != successor[y, a]:
                first[size], second[size] = successor[x, a], successor[y, a]
                steps[size], needs[size] = step + 1, remaining
                size += 1
    return False


@njit(cache=True, nogil=True)
def select_starts(
    successor, reward, order, sorted_reward, discount, level, pairs, counts, low, high
):  # fmt: skip
    """List the pairs s * S + t with paths of `START_DEPTH` steps that are worth a level, where s is
    in a range, and has the larger reward of the first action. Each s has an equal part of `pairs`,
    and lists as many as fit."""
    states, actions = successor.shape
    least, scale = (1 - discount) * level, 1 / discount
    stack, needs = (
        np.empty((3, START_DEPTH * actions + 1), np.int64),
        np.empty(START_DEPTH * actions + 1),
    )
    first, second, steps = stack[0], stack[1], stack[2]
    capacity = len(pairs) // states
    for s in range(low, high):
        n = 0
        for a in range(actions):
            own, x, i = reward[s, a], np.int64(successor[s, a]), 0
            while i < states and own - sorted_reward[a, i] >= least:
                t = np.int64(order[a, i])
                y, needed = np.int64(successor[t, a]), (level - own + sorted_reward[a, i]) * scale
                i += 1
                if x == y:
                    continue
                if n < capacity and _has_path(
                    successor, reward, level, scale, x, y, needed, START_DEPTH, START_VISITS, first,
                    second, steps, needs,
                ):  # fmt: skip
                    pairs[s * capacity + n] = max(s, t) * states + min(s, t)
                    n += 1
        counts[s] = n


@njit(cache=True)
def prepare_selection(pack, *arguments):
    return pack_rows(select_starts, pack, arguments)


@njit(cache=True, nogil=True)
def retest_starts(successor, reward, discount, level, pairs, has_path, low, high):
    """Set which of some pairs have paths of `RETEST_DEPTH` steps that are worth a level."""
    states, actions = successor.shape
    stack, needs = (
        np.empty((3, RETEST_DEPTH * actions + 1), np.int64),
        np.empty(RETEST_DEPTH * actions + 1),
    )
    first, second, steps = stack[0], stack[1], stack[2]
    for k in range(low, high):
        has_path[k] = _has_path(
            successor, reward, level, 1 / discount, pairs[k] // states, pairs[k] % states, level,
            RETEST_DEPTH, RETEST_VISITS, first, second, steps, needs,
        )  # fmt: skip


@njit(cache=True)
def prepare_retest(pack, *arguments):
    return pack_rows(retest_starts, pack, arguments)


@njit(cache=True)
def list_starts(starts, surplus, pairs, values, links, heads):
    """Make the starts the first entries, but for those whose surplus is not 0; return how many."""
    heads[:] = NONE
    n = 0
    for k in range(len(starts)):
        if surplus[starts[k]] == 0.0:
            pairs[n], values[n] = starts[k], 0.0
            links[n, 0], links[n, 1], links[n, 2] = NONE, heads[0], 0
            heads[0] = n
            n += 1
    return n


@njit(cache=True, nogil=True)
def take_batch(values, links, heads, low, high, width, batch):
    """Put the entries from `low` to `high` into the buckets of their surplus, of some width, and
    take the best ones out. Returns how many are in `batch`."""
    for k in range(low, high):
        if links[k, 1] == NONE:
            into = np.int64(min(values[k] / width, NUM_BUCKETS - 1.0))
            links[k, 1], heads[into] = heads[into], k
    n = 0
    for bucket in range(NUM_BUCKETS - 1, -1, -1):
        at = heads[bucket]
        while at != NONE and n < len(batch):
            batch[n] = at
            n, at = n + 1, links[at, 1]
        heads[bucket] = at
        if n >= MIN_BATCH_FRACTION * len(batch):
            break
    return n


@njit(cache=True)
def raise_level(surplus, pairs, values, links, heads, low, high, discount, increase):
    """Lower the surplus of the entries before `high` to that at a level higher by `increase`.

    After k steps it is less by (discount^-k - 1) * increase. Paths of negative surplus are left.
    Those that wait for their next step, in a bucket or from `low` on, are to be put into buckets
    again, by `take_batch` from 0 on.
    """
    for k in range(low, high):
        links[k, 1] = WAITING if links[k, 1] == NONE else LEFT
    for bucket in range(NUM_BUCKETS):
        at, heads[bucket] = heads[bucket], NONE
        while at != NONE:
            links[at, 1], at = WAITING, links[at, 1]
    growth = np.expm1(-np.arange(MAX_LENGTH + 1) * np.log(discount))
    for k in range(high):
        prefetch(surplus, pairs[min(k + ENTRIES_AHEAD, high - 1)])
        if surplus[pairs[k]] != np.inf:
            surplus[pairs[k]] = 0.0
        values[k] -= growth[links[k, 2]] * increase
    for k in range(high):
        prefetch(surplus, pairs[min(k + ENTRIES_AHEAD, high - 1)])
        links[k, 1] = NONE if links[k, 1] == WAITING and values[k] >= 0.0 else LEFT
        surplus[pairs[k]] = max(surplus[pairs[k]], values[k])


@njit(cache=True, nogil=True)
def search_parts(
    progress, part, parts, successor, reward, discount, level, min_gain, width, max_entries,
    surplus, pairs, values, links, heads, batch, candidate_pairs, candidate_values,
    candidate_links, ends, counts, cycles, state,
):  # fmt: skip
    """Take one step per round from the entries of a batch, see
    `cycle_search._Search.search_level`."""
    memory = _allocate_stack(successor.shape[1])
    while True:
        part, is_ready = start_part(progress, parts, part)
        if not is_ready:
            return part
        _, low, high, kind = parts[part % len(parts)]
        if kind == SEARCH:
            _find_candidates(
                successor, reward, discount, level, min_gain, surplus, pairs, values, links, batch,
                state[SIZE], candidate_pairs, candidate_values, candidate_links, ends, low, high,
                memory,
            )  # fmt: skip
        elif kind == APPLY:
            _apply_candidates(
                surplus, min_gain, candidate_pairs, candidate_values, candidate_links, ends, counts,
                low, high,
            )  # fmt: skip
        elif kind == APPEND:
            _append_entries(
                pairs, values, links, state[COUNT], candidate_pairs, candidate_values,
                candidate_links, counts, cycles, low, high,
            )  # fmt: skip
        else:
            ends[:] = 0
            state[COUNT] += counts.sum()
            for cycle in cycles:
                if cycle != NONE and (state[LAST] == NONE or cycle < state[LAST]):
                    state[LAST] = cycle
            if state[LAST] == NONE:
                state[SIZE] = take_batch(
                    values, links, heads, state[LISTED], state[COUNT], width, batch
                )
                state[LISTED] = state[COUNT]
            state[NUM_ROUNDS] += 1
            has_ended = state[SIZE] == 0 or state[COUNT] > max_entries
            if has_ended or state[LAST] != NONE or state[NUM_ROUNDS] == MAX_CALL_ROUNDS:
                end_rounds(progress, parts, part)
        part = finish_part(progress)


@njit(cache=True)
def prepare_search(pack, progress, parts, *arguments):
    return pack_call(search_parts, pack, (progress, parts, *arguments))


@njit(inline="always")
def _allocate_stack(actions):
    """Return memory for `_has_path` of `STEP_DEPTH` steps."""
    size = STEP_DEPTH * actions + 1
    return np.empty((3, size), np.int64), np.empty(size)


@njit(nogil=True, **NO_ALLOCATION)
def _find_candidates(
    successor, reward, discount, level, min_gain, surplus, pairs, values, links, batch, size,
    candidate_pairs, candidate_values, candidate_links, ends, low, high, memory,
):  # fmt: skip
    """Find the next pairs whose surplus increases, and whether they have a path from there."""
    states, actions = successor.shape
    least, scale = (1 - discount) * level, 1 / discount
    stack, needs = memory
    first, second, steps = stack[0], stack[1], stack[2]
    for chunk in range(low, high):
        begin, end = size * chunk // NUM_CHUNKS, size * (chunk + 1) // NUM_CHUNKS
        for k in range(begin, end):
            if k + PREFETCH_DISTANCE < end:
                ahead = pairs[batch[k + PREFETCH_DISTANCE]]
                prefetch(surplus, ahead)
                s, t = ahead // states, ahead % states
                for a in range(actions):
                    x, y = np.int64(successor[s, a]), np.int64(successor[t, a])
                    prefetch(surplus, max(x, y) * states + min(x, y))
            at = np.int64(batch[k])
            if surplus[pairs[at]] > values[at] + min_gain or links[at, 2] == MAX_LENGTH:
                continue  # a better path to the pair has been found since, or this one is too long
            s, t, rest = pairs[at] // states, pairs[at] % states, values[at] - least
            for a in range(actions):
                value = (rest + abs(reward[s, a] - reward[t, a])) * scale
                x, y = np.int64(successor[s, a]), np.int64(successor[t, a])
                pair = max(x, y) * states + min(x, y)
                if value <= 0.0 or x == y or value <= surplus[pair] + min_gain:
                    continue
                has_path = _has_path(
                    successor, reward, level, scale, x, y, level - value, STEP_DEPTH, STEP_VISITS,
                    first, second, steps, needs,
                )  # fmt: skip
                partition = (pair >> PARTITION_SHIFT) % NUM_PARTITIONS
                n = ends[partition, chunk]
                candidate_pairs[partition, chunk, n] = pair
                candidate_values[partition, chunk, n] = value
                candidate_links[partition, chunk, n, 0] = at
                candidate_links[partition, chunk, n, 1] = NONE if has_path else LEFT
                candidate_links[partition, chunk, n, 2] = links[at, 2] + 1
                ends[partition, chunk] = n + 1


@njit(nogil=True, **NO_ALLOCATION)
def _apply_candidates(
    surplus, min_gain, candidate_pairs, candidate_values, candidate_links, ends, counts, low, high
):
    """Increase the surplus of the pairs of some partitions, in the same order whatever the number
    of threads. Candidates that do so replace the first ones of the partition."""
    for partition in range(low, high):
        pairs = candidate_pairs[partition].reshape(-1)
        values = candidate_values[partition].reshape(-1)
        links = candidate_links[partition].reshape(-1, 3)
        size, n = candidate_pairs.shape[2], 0
        for chunk in range(NUM_CHUNKS):
            for k in range(chunk * size, chunk * size + ends[partition, chunk]):
                old = surplus[pairs[k]]
                if values[k] > old + min_gain:
                    surplus[pairs[k]] = values[k]
                    pairs[n], values[n] = pairs[k], values[k]
                    links[n, 0], links[n, 1], links[n, 2] = links[k, 0], links[k, 1], links[k, 2]
                    # Only a pair that has been reached before can close a cycle.
                    if old > 0.0 and links[n, 1] == NONE:
                        links[n, 1] = REACHED
                    n += 1
        counts[partition] = n


@njit(nogil=True, **NO_ALLOCATION)
def _append_entries(
    pairs, values, links, num_entries, candidate_pairs, candidate_values, candidate_links, counts,
    cycles, low, high,
):  # fmt: skip
    """Append the candidates of some partitions to the entries, and look for a cycle: the first
    entry of each partition that closes one is in `cycles`."""
    for partition in range(low, high):
        own_pairs = candidate_pairs[partition].reshape(-1)
        own_values = candidate_values[partition].reshape(-1)
        own_links = candidate_links[partition].reshape(-1, 3)
        begin = num_entries + counts[:partition].sum()
        cycles[partition] = NONE
        for k in range(counts[partition]):
            n, pair, state = begin + k, own_pairs[k], own_links[k, 1]
            pairs[n], values[n] = pair, own_values[k]
            links[n, 0], links[n, 2] = own_links[k, 0], own_links[k, 2]
            links[n, 1] = NONE if state == REACHED else state
            if state == REACHED and cycles[partition] == NONE:
                before = np.int64(own_links[k, 0])
                while before != NONE and pairs[before] != pair:
                    before = links[before, 0]
                if before != NONE:
                    cycles[partition] = n


@njit(cache=True, nogil=True)
def has_ancestors(s, t, starts, predecessors, actions, min_pairs):
    """Return whether `min_pairs` pairs, (s, t) with t < s included, lead to (s, t)."""
    pairs, n, at = np.empty((min_pairs, 2), np.int64), 1, 0
    pairs[0, 0], pairs[0, 1] = s, t
    while at < n:
        s, t = pairs[at, 0] * actions, pairs[at, 1] * actions
        at += 1
        for a in range(actions):
            for i in range(starts[s + a], starts[s + a + 1]):
                for j in range(starts[t + a], starts[t + a + 1]):
                    x, y = np.int64(predecessors[i]), np.int64(predecessors[j])
                    x, y = max(x, y), min(x, y)
                    k = 0
                    while k < n and (pairs[k, 0] != x or pairs[k, 1] != y):
                        k += 1
                    if k == n:
                        pairs[n, 0], pairs[n, 1] = x, y
                        n += 1
                        if n == min_pairs:
                            return True
    return False

"""Compiled kernels that follow single pairs through the pair graph, forwards and backwards.

Pairs are encoded as s * S + t with t < s; only that half of the matrix is read and written, so
`table_kernels.mirror` must follow before the next sweep.
"""

from __future__ import annotations

import numpy as np
from numba import njit

PENDING, QUEUED, MOVED = 1, 2, 3
"""Marks of pairs whose increase has not been propagated, see `propagation.WorkLists`: the last is
in the queue, and was pending before."""


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
    d, s, t, stamp, marks, path, successor, reward, discount, tolerance, floors, marked, queue, n,
    pending, pending_values, m,
):  # fmt: skip
    """Follow the greedy actions from a pair into a cycle, and raise cycle and path to their value.

    Repeating a cycle is a policy, and its infinite-horizon value a lower bound, which value
    iteration would approach as discount^k. Pairs visited under the same `stamp` are not followed
    again. Pairs that increase are listed as `raise_value` does. Returns the lengths of both lists,
    the steps, the increase at the cycle, and its value.
    """
    states, flat, flat_marked = d.shape[0], d.reshape(-1), marked.reshape(-1)
    length, cycle, lift, cycle_value = 0, -1, 0.0, 0.0
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
        lift, cycle_value = value - d[s, t], value
        n, m = raise_value(
            flat, s * states + t, value, tolerance, floors, flat_marked, queue, n, pending,
            pending_values, m,
        )  # fmt: skip
    for k in range(length - 1, -1, -1):
        x, y = path[k] // states, path[k] % states
        _, value = find_best_action(d, successor, reward, discount, x, y)
        n, m = raise_value(
            flat, path[k], value, tolerance, floors, flat_marked, queue, n, pending, pending_values,
            m,
        )  # fmt: skip
        marks[x, y] = stamp
    return n, m, length, lift, cycle_value


@njit(cache=True)
def evaluate_cycles(
    d, starts, stamp, marks, path, successor, reward, discount, tolerance, floors, marked, queue, n,
    pending, pending_values, m,
):  # fmt: skip
    """Evaluate the cycles that greedy actions lead to from some pairs. Returns the lengths of both
    lists, the largest value of a cycle that increased, the number of paths, how many of them
    increased a cycle, and the steps."""
    states = d.shape[0]
    largest, num_paths, num_lifted, steps = 0.0, 0, 0, 0
    for k in range(len(starts)):
        s, t = starts[k] // states, starts[k] % states
        n, m, length, lift, value = evaluate_path(
            d, s, t, stamp, marks, path, successor, reward, discount, tolerance, floors, marked,
            queue, n, pending, pending_values, m,
        )  # fmt: skip
        num_paths += length > 0
        steps += length
        if lift > tolerance:
            num_lifted += 1
            largest = max(largest, value)
    return n, m, largest, num_paths, num_lifted, steps


@njit(cache=True)
def list_marked(marked, stride):
    """Return every `stride`-th marked pair, s * S + t."""
    states, num_marked = marked.shape[0], 0
    pairs = np.empty(states * states // (2 * stride) + 1, np.int64)
    for s in range(states):
        for t in range(s):
            if marked[s, t]:
                num_marked += 1
                if num_marked % stride == 0:
                    pairs[num_marked // stride - 1] = s * states + t
    return pairs[: num_marked // stride]


@njit(inline="always")
def raise_value(
    d, pair, value, tolerance, floors, marked, queue, n, pending, pending_values, m
):  # fmt: skip
    """Raise a distance if that is an increase by more than `tolerance`, and list the pair: in the
    queue from floors[0], and as pending from floors[1]. The matrices are flat. Returns the lengths
    of both lists.

    Without branches, since none of the conditions can be predicted.
    """
    old, mark = d[pair], marked[pair]
    is_increase = (value > old + tolerance) & (d.dtype.type(value) > old)
    d[pair] = value if is_increase else old
    is_new = is_increase & (mark < QUEUED)
    is_high = value >= floors[0]
    waits, joins = is_new & ~is_high, is_new & is_high & (n < queue.shape[0])
    marked[pair] = QUEUED if joins else (PENDING if waits else mark)
    is_listed = (mark == PENDING) & (old >= floors[1])
    waits &= (value >= floors[1]) & ~is_listed & (m < pending.shape[0])
    # Written in any case: the entry after the last is free, unless the list is full.
    if n < queue.shape[0]:
        queue[n] = pair
    if m < pending.shape[0]:
        pending[m], pending_values[m] = pair, value
    return n + joins, m + waits


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

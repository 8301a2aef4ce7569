"""Distances of explored pairs where every move leads a pair to one pair: a graph, no couplings.

The pairs are solved where they lie, in the order in which they were reached, by two moves. A sweep
gives every pair its best action once, in place, from the deepest pair to the first, then back. A
leap gives every pair what the actions chosen last are worth for ever; they send each pair to one
other, so that takes one visit a pair.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bisimetric._progress import convergence_fraction, show_progress
from bisimetric.exact._request import SweepLimit
from bisimetric.exact.queries.pair_search import (
    STATE_BITS,
    STATE_MASK,
    PairSearch,
    TransitionRows,
    find_slot,
    have_same_actions,
)

FIRST_EVALUATION = 4
"""Sweeps of d_lax before the first leap; d~ leaps after every one."""
PATIENCE = 8
"""Leaps in a row that may gain nothing, before they become rarer."""
MAX_RESPONSES = 50
"""Rounds of policy iteration in which answers become optimal."""
PRECISION_FLOOR = 2 * float(np.finfo(np.float64).eps)
"""Below this share of the largest distance no sweep can help; the proven error then says so."""


def solve(
    pair_search: PairSearch,
    rows: TransitionRows,
    reward: NDArray[np.float64],
    discount: float,
    residual_tolerance: float,
    *,
    lax: bool,
    frontier_value: float,
) -> tuple[NDArray[np.float64], float, float, dict[str, Any]]:
    """The distances of the expanded pairs, their residual, the largest one, and how.

    Pairs that were not expanded count as `beyond`, and so do those whose states differ in their
    actions. A leap of d~ is a step of Howard's policy iteration. For d_lax, a game, it is one of
    Newton's method (Pollatschek & Avi-Itzhak 1969) and may go astray: after the first that gained
    nothing, the actions of the maximising player are held until the answers to them are optimal
    (Hoffman & Karp 1966), whose values increase from leap to leap. Rounding may lead either astray.
    After leaps that gained nothing the next are twice as far apart, and sweeps, value iteration,
    converge in between.
    """
    pairs, count = pair_search.pairs, pair_search.num_expanded
    actions = rows.has.shape[1]
    ahead = np.empty((count, actions**2 if lax else actions), np.int32)
    # The last two: pairs that count as `beyond`, and a state and itself.
    d = np.zeros(count + 2)
    d[count] = frontier_value
    leads_to, gap = np.full(count, count + 1, np.int32), np.zeros(count)
    turns = np.zeros(count, np.int32)
    _link_successors(rows, lax, pairs, count, pair_search.slots, ahead, d, gap)
    visited, path = np.zeros(count, np.uint8), np.empty(count, np.int32)

    def sweep(backward: bool, write: bool = True) -> tuple[float, float]:
        return _sweep(  # type: ignore[no-any-return]
            rows.has, reward, discount, lax, pairs, ahead, d, leads_to, gap, turns, backward,
            write,
        )  # fmt: skip

    def evaluate(respond: bool) -> None:
        for _ in range(MAX_RESPONSES if respond else 1):
            _evaluate_policy(leads_to, gap, discount, d, visited, path)
            if not respond or not _improve_responses(
                rows.has,
                reward,
                discount,
                pairs,
                ahead,
                d,
                leads_to,
                gap,
                turns,
                residual_tolerance,
            ):
                return

    number, leaps, since, before, vain = 0, 0, 0, np.inf, 0
    leaping, respond = True, False
    interval = FIRST_EVALUATION if lax else 1
    window = 16 * math.isqrt(2 * count)
    limit = SweepLimit(window)
    with show_progress(1.0, "pairs: digits of the error") as shown:
        while True:
            residual, largest = sweep(number % 2 == 0)
            number, since = number + 1, since + 1
            small = max(residual_tolerance, PRECISION_FLOOR * largest)
            if residual <= small:
                # The sweep changed the values; this one does not, so its residual is theirs.
                residual, largest = sweep(False, write=False)
                if residual <= small:
                    break
            elif limit.is_exceeded(number, residual, small):
                if not leaping:
                    residual, largest = sweep(False, write=False)
                    break
                # Leaps that go astray undo what sweeps have gained.
                leaping, limit = False, SweepLimit(window)
            elif leaping and since >= interval:
                vain = vain + 1 if residual > before * discount**since else 0
                if lax and vain and not respond:
                    respond, interval, vain = True, 1, 0
                elif vain == PATIENCE:
                    interval, vain = 2 * interval, 0
                before, since, leaps = residual, 0, leaps + 1
                evaluate(respond)
            shown.set_position(convergence_fraction(residual, small, largest), f"sweep {number}")
    how = {"method": "sweep, leap", "sweeps": number, "leaps": leaps}
    return d[:count], residual, largest, how


@njit(cache=True)
def _link_successors(
    ground: Any, lax: Any, found: Any, count: Any, slots: Any, ahead: Any, d: Any, gap: Any
) -> None:
    """Writes where every move of every pair leads; first -1 for a pair that has none."""
    actions = ground.has.shape[1]
    first, states = ground.first, ground.states
    for i in range(count):
        s, t = found[i] >> STATE_BITS, found[i] & STATE_MASK
        if not lax and not have_same_actions(ground, s, t):
            ahead[i, 0] = -1
            d[i] = gap[i] = d[count]
            continue
        for move in range(ahead.shape[1]):
            a, b = (move // actions, move % actions) if lax else (move, move)
            ahead[i, move] = count + 1
            if ground.has[s, a] and ground.has[t, b]:
                x, y = np.int64(states[first[s, a]]), np.int64(states[first[t, b]])
                if x != y:
                    pair = (max(x, y) << STATE_BITS) | min(x, y)
                    ahead[i, move] = min(slots[find_slot(slots, found, pair)], count)


@njit(cache=True)
def _sweep(
    has: Any,
    reward: Any,
    discount: Any,
    lax: Any,
    found: Any,
    ahead: Any,
    d: Any,
    leads_to: Any,
    gap: Any,
    turns: Any,
    backward: Any,
    write: Any,
) -> Any:
    """F(d) in place, with the moves that attain it; the largest |F(d) - d| and F(d).

    `turns` receives side * A + action of the maximising player, who acts for s on side 0.
    """
    count, actions = len(ahead), has.shape[1]
    residual, largest = 0.0, 0.0
    for k in range(count):
        i = count - 1 - k if backward else k
        if ahead[i, 0] < 0:
            continue
        s, t = found[i] >> STATE_BITS, found[i] & STATE_MASK
        value, best, chosen, taken = -1.0, 0.0, 0, 0
        for turn in range(2 * actions if lax else actions):
            own = turn % actions
            if not (has[s, own] if turn < actions else has[t, own]):
                continue
            if not lax:
                least = abs(reward[s, own] - reward[t, own])
                answer, cost = own, least
                least += discount * d[ahead[i, own]]
            else:
                least, answer, cost = np.inf, 0, 0.0
                for other in range(actions):
                    a, b = (own, other) if turn < actions else (other, own)
                    if not (has[s, a] and has[t, b]):
                        continue
                    here = abs(reward[s, a] - reward[t, b])
                    worth = here + discount * d[ahead[i, a * actions + b]]
                    if worth < least:
                        least, answer, cost = worth, a * actions + b, here
                    if worth <= value:
                        break
            if least > value:
                value, best, chosen, taken = least, cost, answer, turn
        residual, largest = max(residual, abs(value - d[i])), max(largest, value)
        if write:
            d[i], leads_to[i], gap[i], turns[i] = value, ahead[i, chosen], best, taken
    return residual, largest


@njit(cache=True)
def _improve_responses(
    has: Any,
    reward: Any,
    discount: Any,
    found: Any,
    ahead: Any,
    d: Any,
    leads_to: Any,
    gap: Any,
    turns: Any,
    least: Any,
) -> Any:
    """The best answer of d_lax to the action that each pair holds; how many answers changed.

    An answer changes only where that lowers the value by more than `least`.
    """
    actions, changed = has.shape[1], 0
    for i in range(len(ahead)):
        s, t = found[i] >> STATE_BITS, found[i] & STATE_MASK
        own, first = turns[i] % actions, turns[i] < actions
        lowest = gap[i] + discount * d[leads_to[i]] - least
        improved = False
        for other in range(actions):
            a, b = (own, other) if first else (other, own)
            if has[s, a] and has[t, b]:
                here = abs(reward[s, a] - reward[t, b])
                there = ahead[i, a * actions + b]
                worth = here + discount * d[there]
                if worth < lowest:
                    lowest, leads_to[i], gap[i], improved = worth, there, here, True
        changed += improved
    return changed


@njit(cache=True)
def _evaluate_policy(
    leads_to: Any, gap: Any, discount: Any, d: Any, visited: Any, path: Any
) -> None:
    """Every pair becomes what the chosen moves are worth for ever, cycles first."""
    count = len(leads_to)
    visited[:] = 0
    for start in range(count):
        length, i = 0, start
        while i < count and visited[i] == 0:
            visited[i] = 1
            path[length] = i
            length += 1
            i = leads_to[i]
        if i < count and visited[i] == 1:
            # Once round the cycle that ends this path, from i to i.
            value, weight, k = 0.0, 1.0, i
            while True:
                value += weight * gap[k]
                weight *= discount
                k = leads_to[k]
                if k == i:
                    break
            d[i] = value / (1.0 - weight)
        for back in range(length - 1, -1, -1):
            k = path[back]
            d[k] = gap[k] + discount * d[leads_to[k]]
            visited[k] = 2

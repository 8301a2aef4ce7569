"""Solve explored pairs whose moves are deterministic: a graph, without couplings.

Value iteration alternates with policy evaluation, in the order in which pairs were discovered. A
sweep is one in-place Bellman update per pair, backwards and forwards in turn. The greedy moves send
each pair to one other, so that evaluating them exactly takes one visit per pair.
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
    QueryRows,
    are_comparable,
    find_slot,
)

FIRST_EVALUATION = 4
"""Sweeps of d_lax before the first policy evaluation; d~ evaluates after every sweep."""
PATIENCE = 8
"""Evaluations in a row without gain, before they become rarer."""
MAX_RESPONSES = 50
"""Rounds of policy iteration over the responses."""
PRECISION_FLOOR = 2 * float(np.finfo(np.float64).eps)
"""Below this fraction of the largest distance no sweep can help; the proven error includes it."""


def solve(
    pair_search: PairSearch,
    rows: QueryRows,
    reward: NDArray[np.float64],
    cost: NDArray[np.float64],
    discount: float,
    residual_tolerance: float,
    *,
    lax: bool,
    frontier_value: float,
) -> tuple[NDArray[np.float64], float, float, dict[str, Any]]:
    """Compute the distances of the expanded pairs, their residual, the largest one, and statistics.

    `cost` (n, 0, 1 or moves) is added to the differences of rewards, by pair and move.
    Pairs that were not expanded count as `frontier_value`, and so do those whose labels or
    available actions differ. For d~ an evaluation is a step of Howard's policy iteration. For
    d_lax, a game, it is one of Newton's method (Pollatschek & Avi-Itzhak 1969) and may diverge:
    after the first without gain, the actions of the maximising player are held until the responses
    to them are optimal (Hoffman & Karp 1966), whose values increase monotonically. Rounding may
    spoil either. After evaluations without gain the interval between them doubles, and value
    iteration converges in between.
    """
    pairs, num_pairs = pair_search.pairs, pair_search.num_expanded
    num_actions = rows.available.shape[1]
    successor = np.empty((num_pairs, num_actions**2 if lax else num_actions), np.int32)
    # The last two entries: pairs at the frontier, and pairs of equal states.
    d = np.zeros(num_pairs + 2)
    d[num_pairs] = frontier_value
    chosen, gap = np.full(num_pairs, num_pairs + 1, np.int32), np.zeros(num_pairs)
    turns = np.zeros(num_pairs, np.int32)
    _link_successors(rows, lax, pairs, num_pairs, pair_search.slots, successor, d, gap)
    visited, path = np.zeros(num_pairs, np.uint8), np.empty(num_pairs, np.int32)

    def sweep(backward: bool, write: bool = True) -> tuple[float, float]:
        return _sweep(  # type: ignore[no-any-return]
            rows.available, reward, cost, discount, lax, pairs, successor, d, chosen, gap, turns,
            backward, write,
        )  # fmt: skip

    def evaluate(optimise_responses: bool) -> None:
        for _ in range(MAX_RESPONSES if optimise_responses else 1):
            _evaluate_policy(chosen, gap, discount, d, visited, path)
            if not optimise_responses or not _improve_responses(
                rows.available, reward, cost, discount, pairs, successor, d, chosen, gap, turns,
                residual_tolerance,
            ):  # fmt: skip
                return

    num_sweeps, num_evaluations, since, previous, without_gain = 0, 0, 0, np.inf, 0
    evaluating, optimise_responses = True, False
    interval = FIRST_EVALUATION if lax else 1
    window = 16 * math.isqrt(2 * num_pairs)
    limit = SweepLimit(window)
    with show_progress(1.0, "pairs: digits of the error") as progress:
        while True:
            residual, largest = sweep(num_sweeps % 2 == 0)
            num_sweeps, since = num_sweeps + 1, since + 1
            tolerance = max(residual_tolerance, PRECISION_FLOOR * largest)
            if residual <= tolerance:
                # That sweep changed the values; the residual of the result needs one that does not.
                residual, largest = sweep(False, write=False)
                if residual <= tolerance:
                    break
            elif limit.is_exceeded(num_sweeps, residual, tolerance):
                if not evaluating:
                    residual, largest = sweep(False, write=False)
                    break
                # Diverging evaluations undo what sweeps have gained.
                evaluating, limit = False, SweepLimit(window)
            elif evaluating and since >= interval:
                without_gain = without_gain + 1 if residual > previous * discount**since else 0
                if lax and without_gain and not optimise_responses:
                    optimise_responses, interval, without_gain = True, 1, 0
                elif without_gain == PATIENCE:
                    interval, without_gain = 2 * interval, 0
                previous, since, num_evaluations = residual, 0, num_evaluations + 1
                evaluate(optimise_responses)
            fraction = convergence_fraction(residual, tolerance, largest)
            progress.set_position(fraction, f"sweep {num_sweeps}")
    details = {
        "method": "value iteration, policy evaluation",
        "sweeps": num_sweeps,
        "evaluations": num_evaluations,
    }
    return d[:num_pairs], residual, largest, details


@njit(cache=True)
def _link_successors(
    rows: Any, lax: Any, pairs: Any, num_pairs: Any, slots: Any, successor: Any, d: Any, gap: Any
) -> None:
    """Write the successor of every move of every pair; -1 first if not comparable."""
    actions = rows.available.shape[1]
    starts, successors = rows.starts, rows.successors
    for i in range(num_pairs):
        s, t = pairs[i] >> STATE_BITS, pairs[i] & STATE_MASK
        if not are_comparable(rows, s, t, lax):
            successor[i, 0] = -1
            d[i] = gap[i] = d[num_pairs]
            continue
        for move in range(successor.shape[1]):
            a, b = (move // actions, move % actions) if lax else (move, move)
            successor[i, move] = num_pairs + 1
            if rows.available[s, a] and rows.available[t, b]:
                x, y = np.int64(successors[starts[s, a]]), np.int64(successors[starts[t, b]])
                if x != y:
                    pair = (max(x, y) << STATE_BITS) | min(x, y)
                    successor[i, move] = min(slots[find_slot(slots, pairs, pair)], num_pairs)


@njit(cache=True, inline="always")
def _compute_gap(reward: Any, cost: Any, i: Any, s: Any, a: Any, t: Any, b: Any, move: Any) -> Any:
    """Return the immediate cost of a move of pair i."""
    gap = abs(reward[s, a] - reward[t, b])
    if cost.shape[1] == 0:
        return gap
    return gap + cost[i, min(move, cost.shape[1] - 1)]


@njit(cache=True)
def _sweep(
    available: Any,
    reward: Any,
    cost: Any,
    discount: Any,
    lax: Any,
    pairs: Any,
    successor: Any,
    d: Any,
    chosen: Any,
    gap: Any,
    turns: Any,
    backward: Any,
    write: Any,
) -> Any:
    """Update F(d) in place with the greedy moves; return the largest |F(d) - d| and F(d).

    `turns` receives side * A + action of the maximising player, who acts for s on side 0.
    """
    num_pairs, actions = len(successor), available.shape[1]
    residual, largest = 0.0, 0.0
    for k in range(num_pairs):
        i = num_pairs - 1 - k if backward else k
        if successor[i, 0] < 0:
            continue
        s, t = pairs[i] >> STATE_BITS, pairs[i] & STATE_MASK
        value, best, best_move, best_turn = -1.0, 0.0, 0, 0
        for turn in range(2 * actions if lax else actions):
            own = turn % actions
            if not (available[s, own] if turn < actions else available[t, own]):
                continue
            if not lax:
                least = _compute_gap(reward, cost, i, s, own, t, own, own)
                move, paid = own, least
                least += discount * d[successor[i, own]]
            else:
                least, move, paid = np.inf, 0, 0.0
                for other in range(actions):
                    a, b = (own, other) if turn < actions else (other, own)
                    if not (available[s, a] and available[t, b]):
                        continue
                    here = _compute_gap(reward, cost, i, s, a, t, b, a * actions + b)
                    candidate = here + discount * d[successor[i, a * actions + b]]
                    if candidate < least:
                        least, move, paid = candidate, a * actions + b, here
                    if candidate <= value:
                        break
            if least > value:
                value, best, best_move, best_turn = least, paid, move, turn
        residual, largest = max(residual, abs(value - d[i])), max(largest, value)
        if write:
            d[i], chosen[i], gap[i], turns[i] = value, successor[i, best_move], best, best_turn
    return residual, largest


@njit(cache=True)
def _improve_responses(
    available: Any,
    reward: Any,
    cost: Any,
    discount: Any,
    pairs: Any,
    successor: Any,
    d: Any,
    chosen: Any,
    gap: Any,
    turns: Any,
    tolerance: Any,
) -> Any:
    """Choose the best response of d_lax to each pair's action; return how many changed.

    A response changes only where that lowers the value by more than `tolerance`.
    """
    actions, changed = available.shape[1], 0
    for i in range(len(successor)):
        if successor[i, 0] < 0:
            continue
        s, t = pairs[i] >> STATE_BITS, pairs[i] & STATE_MASK
        own, first = turns[i] % actions, turns[i] < actions
        lowest = gap[i] + discount * d[chosen[i]] - tolerance
        improved = False
        for other in range(actions):
            a, b = (own, other) if first else (other, own)
            if available[s, a] and available[t, b]:
                here = _compute_gap(reward, cost, i, s, a, t, b, a * actions + b)
                following = successor[i, a * actions + b]
                candidate = here + discount * d[following]
                if candidate < lowest:
                    lowest, chosen[i], gap[i], improved = candidate, following, here, True
        changed += improved
    return changed


@njit(cache=True)
def _evaluate_policy(chosen: Any, gap: Any, discount: Any, d: Any, visited: Any, path: Any) -> None:
    """Set every pair to the infinite-horizon value of the chosen moves, cycles first."""
    num_pairs = len(chosen)
    visited[:] = 0
    for start in range(num_pairs):
        length, i = 0, start
        while i < num_pairs and visited[i] == 0:
            visited[i] = 1
            path[length] = i
            length += 1
            i = chosen[i]
        if i < num_pairs and visited[i] == 1:
            # The value of the cycle at the end of this path, once around from i to i.
            value, weight, k = 0.0, 1.0, i
            while True:
                value += weight * gap[k]
                weight *= discount
                k = chosen[k]
                if k == i:
                    break
            d[i] = value / (1.0 - weight)
        for back in range(length - 1, -1, -1):
            k = path[back]
            d[k] = gap[k] + discount * d[chosen[k]]
            visited[k] = 2

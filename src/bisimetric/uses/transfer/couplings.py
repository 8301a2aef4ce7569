"""Kernels for two MDPs: W1 between what the one and the other may come to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from bisimetric import transport
from bisimetric.rounding import UNIT


class Rows(NamedTuple):
    """Distributions as the kernels read them: row i is `first[i]:first[i + 1]`.

    Those of the source come first, on its states; those of the target follow, on ids from
    `states_1` on, the number of states of the source.
    """

    first: NDArray[Any]
    states: NDArray[Any]
    share: NDArray[Any]
    states_1: int
    support: int  # of the widest row


class Answers(NamedTuple):
    """What a sweep finds of each pair (s, t), at s * S2 + t.

    The action of t that answers best, its reward gap, and a coupling: the pairs that it leads to
    and their masses, from `starts[pair]` on; what is left of the room of a pair holds mass 0.
    """

    action: NDArray[Any]
    gap: NDArray[Any]
    starts: NDArray[Any]
    leads_to: NDArray[Any]
    mass: NDArray[Any]


def rows_of(source: sparse.csr_array, target: sparse.csr_array) -> Rows:
    """The rows of two matrices, each with one column a state, for the kernels."""
    P: Any = sparse.block_diag([source, target], format="csr")
    P.sort_indices()
    return Rows(
        P.indptr.astype(np.int64),
        P.indices.astype(np.int32),
        P.data,
        source.shape[1],
        int(np.diff(P.indptr).max()),
    )


@njit(cache=True)
def _moved(room: Any, rows: Rows, table: Any, p: int, q: int) -> Any:
    """W1 of two rows: the number of rows and columns of the problem, its cost, its doubt.

    The cost is that of a coupling, and so is not too small but for rounding; it is too large by
    at most the doubt (weak duality, as in `exact.couplings`).
    """
    costs = transport.Costs(table, np.empty(0, np.int64), table.shape[1])
    first = rows.first
    n, m = transport.reduce(
        room, rows.states, rows.share, first[p], first[p + 1], first[q], first[q + 1]
    )
    transport.north_west(room, n, m)
    transport.send(room, n, m)
    doubt = 0.0
    if n > 1 and m > 1:
        largest = transport.gather(room, costs, n, m)
        least, longest = transport.improve(room, n, m, largest)
        doubt = (transport.LOOSE + (4 * rows.support + 16) * UNIT) * (largest + 2 * longest)
        doubt = max(doubt, doubt - least)
    return n, m, transport.total(room, costs, n, m), doubt


@njit(cache=True, nogil=True)
def fill(rows: Rows, table: Any, count: int, out: Any, start: int, low: int, high: int) -> float:
    """W1 between the `count` rows of the source and some of the target; the largest doubt.

    Row i of the source and row `start` + j of the target make out[i, j], for j from low to high.
    """
    room = transport.space(rows.support)
    most = 0.0
    for j in range(low, high):
        for i in range(count):
            _, _, cost, doubt = _moved(room, rows, table, i, count + start + j)
            out[i, j] = cost
            most = max(most, doubt)
    return most


@njit(cache=True, nogil=True)
def sweep(
    rows: Rows,
    table: Any,
    reward_1: Any,
    reward_2: Any,
    has: Any,
    discount: float,
    answers: Answers,
    image: Any,
    low: int,
    high: int,
) -> Any:
    """min_b |r(s) - R(t, b)| + discount * W1(d)(p(s), P(t, b)) for the pairs from low to high.

    Each s has one reward and one row. The minima go into `image`, what attains them into
    `answers`. Returns the largest difference from d, the largest minimum, and the largest doubt.
    """
    room = transport.space(rows.support)
    states_1 = len(reward_1)
    states_2, actions = reward_2.shape
    residual, largest, most = 0.0, 0.0, 0.0
    for pair in range(low, high):
        s, t = pair // states_2, pair % states_2
        best = np.inf
        at = answers.starts[pair]
        for b in range(actions):
            gap = abs(reward_1[s] - reward_2[t, b])
            if not has[t, b] or gap >= best:
                continue
            n, m, cost, doubt = _moved(room, rows, table, s, states_1 + t * actions + b)
            most = max(most, doubt)
            value = gap + discount * cost
            if value < best:
                best, at = value, answers.starts[pair]
                answers.action[pair], answers.gap[pair] = b, gap
                for v in range(1, n + m):
                    u = room.ints[transport.PARENT, v]
                    i, j = (v, u - n) if v < n else (u, v - n)
                    x, y = room.ints[transport.X, i], room.ints[transport.Y, j] - rows.states_1
                    answers.leads_to[at] = x * states_2 + y
                    answers.mass[at] = room.reals[transport.FLOW, v]
                    at += 1
        for rest in range(at, answers.starts[pair + 1]):
            answers.leads_to[rest], answers.mass[rest] = pair, 0.0
        image[pair] = best
        residual = max(residual, abs(best - table[s, rows.states_1 + t]))
        largest = max(largest, best)
    return residual, largest, most

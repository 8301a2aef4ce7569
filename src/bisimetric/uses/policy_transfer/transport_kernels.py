"""Kernels for two MDPs: W1 between what the one and the other may come to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from bisimetric import _transport
from bisimetric._rounding import UNIT


class TransitionRows(NamedTuple):
    """Distributions as the kernels read them: row i is `first[i]:first[i + 1]`.

    Those of the source come first, on its states; those of the target follow, on ids from
    `states_1` on, the number of states of the source.
    """

    row_starts: NDArray[Any]
    states: NDArray[Any]
    probabilities: NDArray[Any]
    num_source_states: int
    max_support: int  # of the widest row


class BestResponses(NamedTuple):
    """What a sweep finds of each pair (s, t), at s * S2 + t.

    The action of t that answers best, its reward gap, and a coupling: the pairs that it leads to
    and their masses, from `starts[pair]` on; what is left of the room of a pair holds mass 0.
    """

    action: NDArray[Any]
    reward_gap: NDArray[Any]
    starts: NDArray[Any]
    successor_pairs: NDArray[Any]
    mass: NDArray[Any]


def build_transition_rows(source: sparse.csr_array, target: sparse.csr_array) -> TransitionRows:
    """The rows of two matrices, each with one column a state, for the kernels."""
    P: Any = sparse.block_diag([source, target], format="csr")
    P.sort_indices()
    return TransitionRows(
        P.indptr.astype(np.int64),
        P.indices.astype(np.int32),
        P.data,
        source.shape[1],
        int(np.diff(P.indptr).max()),
    )


@njit(cache=True)
def _solve_transport(workspace: Any, rows: TransitionRows, distances: Any, p: int, q: int) -> Any:
    """W1 of two rows: the number of rows and columns of the problem, its cost, its doubt.

    The cost is that of a coupling, and so is not too small but for rounding; it is too large by
    at most the doubt (weak duality, as in `exact.couplings`).
    """
    costs = _transport.Costs(distances, np.empty(0, np.int64), distances.shape[1])
    first = rows.row_starts
    n, m = _transport.cancel_common_mass(
        workspace, rows.states, rows.probabilities, first[p], first[p + 1], first[q], first[q + 1]
    )
    _transport.build_northwest_tree(workspace, n, m)
    _transport.compute_flows(workspace, n, m)
    doubt = 0.0
    if n > 1 and m > 1:
        largest = _transport.gather_costs(workspace, costs, n, m)
        least, longest = _transport.optimise_tree(workspace, n, m, largest)
        doubt = (_transport.REDUCED_COST_TOLERANCE + (4 * rows.max_support + 16) * UNIT) * (
            largest + 2 * longest
        )
        doubt = max(doubt, doubt - least)
    return n, m, _transport.compute_cost(workspace, costs, n, m), doubt


@njit(cache=True, nogil=True)
def fill_transport_costs(
    rows: TransitionRows,
    distances: Any,
    num_source_rows: int,
    out: Any,
    start: int,
    low: int,
    high: int,
) -> float:
    """W1 between the `count` rows of the source and some of the target; the largest doubt.

    Row i of the source and row `start` + j of the target make out[i, j], for j from low to high.
    """
    room = _transport.allocate_workspace(rows.max_support)
    most = 0.0
    for j in range(low, high):
        for i in range(num_source_rows):
            _, _, cost, doubt = _solve_transport(
                room, rows, distances, i, num_source_rows + start + j
            )
            out[i, j] = cost
            most = max(most, doubt)
    return most


@njit(cache=True, nogil=True)
def sweep(
    rows: TransitionRows,
    distances: Any,
    source_rewards: Any,
    target_rewards: Any,
    available: Any,
    discount: float,
    responses: BestResponses,
    updated: Any,
    low: int,
    high: int,
) -> Any:
    """min_b |r(s) - R(t, b)| + discount * W1(d)(p(s), P(t, b)) for the pairs from low to high.

    Each s has one reward and one row. The minima go into `image`, what attains them into
    `answers`. Returns the largest difference from d, the largest minimum, and the largest doubt.
    """
    room = _transport.allocate_workspace(rows.max_support)
    states_1 = len(source_rewards)
    states_2, actions = target_rewards.shape
    residual, largest, most = 0.0, 0.0, 0.0
    for pair in range(low, high):
        s, t = pair // states_2, pair % states_2
        best = np.inf
        at = responses.starts[pair]
        for b in range(actions):
            gap = abs(source_rewards[s] - target_rewards[t, b])
            if not available[t, b] or gap >= best:
                continue
            n, m, cost, doubt = _solve_transport(
                room, rows, distances, s, states_1 + t * actions + b
            )
            most = max(most, doubt)
            value = gap + discount * cost
            if value < best:
                best, at = value, responses.starts[pair]
                responses.action[pair], responses.reward_gap[pair] = b, gap
                for v in range(1, n + m):
                    u = room.ints[_transport.PARENT, v]
                    i, j = (v, u - n) if v < n else (u, v - n)
                    x, y = (
                        room.ints[_transport.ROW_STATE, i],
                        room.ints[_transport.COLUMN_STATE, j] - rows.num_source_states,
                    )
                    responses.successor_pairs[at] = x * states_2 + y
                    responses.mass[at] = room.reals[_transport.FLOW, v]
                    at += 1
        for rest in range(at, responses.starts[pair + 1]):
            responses.successor_pairs[rest], responses.mass[rest] = pair, 0.0
        updated[pair] = best
        residual = max(residual, abs(best - distances[s, rows.num_source_states + t]))
        largest = max(largest, best)
    return residual, largest, most

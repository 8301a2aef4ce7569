"""Numba kernels for two MDPs: W1 between the successor distributions of source and target."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from bisimetric import _transport


class TransitionRows(NamedTuple):
    """Distributions in CSR form: row i is `row_starts[i]:row_starts[i + 1]`.

    Those of the source come first, on its states; those of the target follow, on ids from
    `num_source_states` on.
    """

    row_starts: NDArray[Any]
    states: NDArray[Any]
    probabilities: NDArray[Any]
    num_source_states: int
    max_support: int  # of the widest row


class BestResponses(NamedTuple):
    """The best response to each pair (s, t), at index s * S2 + t.

    The best action of t, its reward gap, and a coupling: successor pairs and their masses from
    `starts[pair]` on; unused entries of a pair have mass 0.
    """

    action: NDArray[Any]
    reward_gap: NDArray[Any]
    starts: NDArray[Any]
    successor_pairs: NDArray[Any]
    mass: NDArray[Any]


def build_transition_rows(source: sparse.csr_array, target: sparse.csr_array) -> TransitionRows:
    """Stack the rows of two matrices, each with one column per state."""
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
    """Solve W1 of two rows; return the size n, m of the problem, its cost and a bound on its error.

    The cost is that of a coupling, hence no lower than W1 up to rounding, and higher by at most the
    error (weak duality, as in `exact.stochastic`).
    """
    costs = _transport.Costs(distances, np.empty(0, np.int64), distances.shape[1])
    starts = rows.row_starts
    return _transport.solve_w1(
        workspace, rows.states, rows.probabilities, starts[p], starts[p + 1], starts[q],
        starts[q + 1], costs, rows.max_support,
    )  # fmt: skip


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
    """Write W1 between rows of source and target and return the largest error.

    Row i of the source and row `start` + j of the target give out[i, j], for j from low to high.
    """
    workspace = _transport.allocate_workspace(rows.max_support)
    max_error = 0.0
    for j in range(low, high):
        for i in range(num_source_rows):
            _, _, cost, error = _solve_transport(
                workspace, rows, distances, i, num_source_rows + start + j
            )
            out[i, j] = cost
            max_error = max(max_error, error)
    return max_error


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
    """Update the pairs from low to high: min_b |r(s) - R(t, b)| + discount * W1(d)(p(s), P(t, b)).

    Each s has one reward and one row. The minima are written to `updated`, what attains them to
    `responses`. Returns the largest difference from d, the largest minimum, and the largest error.
    """
    workspace = _transport.allocate_workspace(rows.max_support)
    num_source_states = len(source_rewards)
    num_target_states, num_actions = target_rewards.shape
    residual, largest, max_error = 0.0, 0.0, 0.0
    for pair in range(low, high):
        s, t = pair // num_target_states, pair % num_target_states
        best = np.inf
        position = responses.starts[pair]
        for b in range(num_actions):
            gap = abs(source_rewards[s] - target_rewards[t, b])
            if not available[t, b] or gap >= best:
                continue
            n, m, cost, error = _solve_transport(
                workspace, rows, distances, s, num_source_states + t * num_actions + b
            )
            max_error = max(max_error, error)
            value = gap + discount * cost
            if value < best:
                best, position = value, responses.starts[pair]
                responses.action[pair], responses.reward_gap[pair] = b, gap
                for v in range(1, n + m):
                    u = workspace.ints[_transport.PARENT, v]
                    i, j = (v, u - n) if v < n else (u, v - n)
                    x, y = (
                        workspace.ints[_transport.ROW_STATE, i],
                        workspace.ints[_transport.COLUMN_STATE, j] - rows.num_source_states,
                    )
                    responses.successor_pairs[position] = x * num_target_states + y
                    responses.mass[position] = workspace.reals[_transport.FLOW, v]
                    position += 1
        for rest in range(position, responses.starts[pair + 1]):
            responses.successor_pairs[rest], responses.mass[rest] = pair, 0.0
        updated[pair] = best
        residual = max(residual, abs(best - distances[s, rows.num_source_states + t]))
        largest = max(largest, best)
    return residual, largest, max_error

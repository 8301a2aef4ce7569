"""What the actions of a source tell of the actions of a target: bounds on what those are worth."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bisimetric.exact.threads import map_chunks
from bisimetric.mdp import MDP
from bisimetric.memory import require_memory
from bisimetric.progress import announce_compilation, show_progress
from bisimetric.rounding import TINY, UNIT
from bisimetric.uses.proofs import add_upward
from bisimetric.uses.transfer import couplings
from bisimetric.uses.transfer.couplings import build_transition_rows

BLOCK_ENTRIES = 2**22
"""Entries of the table of two actions that are worked on in one go."""
TIE_TOLERANCE = 2.0**-40
"""The share of a distance by which a farther match must be better, so that of equals the nearest
is taken."""
MIN_PARALLEL_ROWS = 2
"""Rows of such a block that are worth many threads, where both sides branch."""


class ActionBounds(NamedTuple):
    """For each action (t, b) of the target, (S2, A2), what the source's actions tell of it.

    Attributes:
        low: max_(s, a) Q1(s, a) - delta, minus infinity for an action that t lacks.
        up: min_(s, a) Q1(s, a) + delta, minus infinity likewise.
        below, above: the numbers s * A1 + a of those that attain `low` and `up`.
        low_delta, up_delta: their delta.
        answers: delta of (t, b) to the one action that t was to answer; infinite where t lacks b.
        error: how far the bounds may be from those that the given table and Q make.
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    lower_matches: NDArray[np.int64]
    upper_matches: NDArray[np.int64]
    lower_distances: NDArray[np.float64]
    upper_distances: NDArray[np.float64]
    response_distances: NDArray[np.float64]
    error: float


def bound_actions(
    source: MDP,
    target: MDP,
    d: NDArray[np.floating],
    Q: NDArray[np.float64],
    nearest_actions: NDArray[np.int64],
    comparable: NDArray[np.bool_],
) -> ActionBounds:
    """Bounds from delta((s, a), (t, b)) = |R1(s, a) - R2(t, b)| + discount * W1(d)(P1, P2).

    Where W1 lies between the distributions P1(s, a) and P2(t, b). The deltas are made and used
    block by block, none of them is kept.

    Args:
        d: (S1, S1 + S2), the rows of the source in a table of the union.
        Q: (S1, A1), the action values of the source.
        asked: (S2,), the number s * A1 + a of the action that each t is to answer.
        compared: (A1, A2), the actions that are compared at all.
    """
    rows, columns = source.R.size, target.R.size
    distances = _ActionDistances(source, target, d)
    size = min(columns, max(1, BLOCK_ENTRIES // rows))
    require_memory(f"uses.transfer: {rows:,} actions need", 40.0 * rows * size, "take fewer states")
    where = source.action_mask.ravel()
    apart = ~np.tile(comparable, (source.num_states, 1))
    value = np.where(where, Q.ravel(), 0.0)[:, None]
    found: dict[str, NDArray[Any]] = {
        name: np.empty(columns, np.int64 if name in ("below", "above") else np.float64)
        for name in ActionBounds._fields[:-1]
    }
    with show_progress(columns, "actions matched") as shown:
        for start in range(0, columns, size):
            part = np.arange(start, min(columns, start + size))
            delta = distances.compute_block(part)
            delta[apart[:, part % target.num_actions] | ~where[:, None]] = np.inf
            each = np.arange(len(part))
            far = (1 + TIE_TOLERANCE) * delta
            below, above = (value - far).argmax(axis=0), (value + far).argmin(axis=0)
            least, most = delta[below, each], delta[above, each]
            found["below"][part], found["low_delta"][part] = below, least
            found["above"][part], found["up_delta"][part] = above, most
            found["low"][part] = value[below, 0] - least
            found["up"][part] = value[above, 0] + most
            found["answers"][part] = delta[nearest_actions[part // target.num_actions], each]
            shown.set_position(part[-1] + 1)
    tables = {name: numbers.reshape(target.R.shape) for name, numbers in found.items()}
    for name, nothing in (("low", -np.inf), ("up", -np.inf), ("answers", np.inf)):
        tables[name][~target.action_mask] = nothing
    return ActionBounds(**tables, error=distances.error)


class _ActionDistances:
    """The deltas of two MDPs, some columns at a time, and how wrong they may be by rounding."""

    def __init__(self, source: MDP, target: MDP, d: NDArray[np.floating]) -> None:
        self.source, self.target = source, target
        self.target_probabilities = target.normalised_probabilities
        self.single_coupling = source.is_deterministic or target.is_deterministic
        # Rounded masses may have to go as far as any two states are apart.
        self.largest, self.transport_error = float(d[:, source.num_states :].max()), 0.0
        if self.single_coupling:
            # Where one side is certain there is one coupling, and its cost is a mean.
            self.expected_distances = source.normalised_probabilities @ d[
                :, source.num_states :
            ].astype(np.float64)
        else:
            self.distances = np.ascontiguousarray(d, np.float64)
            self.rows = build_transition_rows(
                source.normalised_probabilities, self.target_probabilities
            )

    def compute_block(self, columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """delta (S1 * A1, n) for the target's actions of the numbers t * A2 + b."""
        if self.single_coupling:
            far = np.asarray((self.target_probabilities[columns] @ self.expected_distances.T).T)
        else:
            far = np.empty((self.source.R.size, len(columns)))
            with announce_compilation("the kernels"):
                doubts = map_chunks(
                    lambda low, high: couplings.fill_transport_costs(
                        self.rows,
                        self.distances,
                        self.source.R.size,
                        far,
                        int(columns[0]),
                        low,
                        high,
                    ),
                    len(columns),
                    MIN_PARALLEL_ROWS,
                )
            self.transport_error = max(self.transport_error, *doubts)
        gaps = np.abs(self.source.R.reshape(-1, 1) - self.target.R.ravel()[columns])
        delta = gaps + self.target.discount * far
        self.largest = max(self.largest, float(delta.max()))
        return np.asarray(delta)

    @property
    def error(self) -> float:
        """How far the deltas so far may be from those that the table makes.

        With n the most entries of a row: dividing two rows by their sums takes n + 1 units each,
        the flows of a coupling miss their marginals by at most 8 n, and sums over them take 2 n; a
        few more are for the gap, the discount, the sum, and that with an action value. A match
        that is nearer may be worse by a `TIE`.
        """
        widest = max(int(np.diff(mdp.P.indptr).max()) for mdp in (self.source, self.target))
        rounding = (12 * widest + 32) * (UNIT * self.largest + TINY)
        return float(
            add_upward(
                self.target.discount * self.transport_error, rounding, TIE_TOLERANCE * self.largest
            )
        )

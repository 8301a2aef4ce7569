"""Distances of stochastic MDPs: policy iteration over actions and couplings.

Bacci, Bacci, Larsen & Mardare (2013), On-the-fly exact computation of bisimilarity distances;
Tang & van Breugel (2016), Computing probabilistic bisimilarity distances via policy iteration;
Pollatschek & Avi-Itzhak (1969), Algorithms for stochastic games with geometrical interpretation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bisimetric import planning
from bisimetric._progress import ProgressBar, show_progress
from bisimetric._rounding import TINY, UNIT, choose_scale
from bisimetric._transport import Costs
from bisimetric.exact._phases import share_rows
from bisimetric.exact._request import SolverResult
from bisimetric.exact._threads import map_chunks
from bisimetric.exact.stochastic import coupling_kernels, distance_kernels
from bisimetric.exact.stochastic.coupling_kernels import KernelMDP
from bisimetric.exact.stochastic.game_iteration import iterate_pairs
from bisimetric.exact.stochastic.move_cache import (
    MAX_PACKED_SUPPORT,
    UNBOUNDED,
    CouplingCache,
    PairLayout,
    shift_bounds,
)
from bisimetric.exact.stochastic.policy_evaluation import (
    PolicyEvaluation,
    choose_vector_dtype,
    compute_bytes,
)
from bisimetric.exact.stochastic.topological_order import PairLevel, order_pairs
from bisimetric.mdp import MDP, compute_comparison_classes

MAX_DRIFT = 1.0
"""The drift, in units of the diameter bound, at which it becomes part of the cached bounds, so that
these are not rounded to a fraction of a large drift."""
MIN_PARALLEL_BOUNDS = 2**18
"""Cached bounds that are worth several threads."""
MAX_BLOCK, BLOCK_COSTS = 256, 25_600
"""Pairs that are swept together: at most so many, and so many costs of moves."""
MIN_PARALLEL_BLOCKS = 4
"""Blocks of a sweep that are worth several threads, if there are many."""
ENTRIES_PER_COST = 16
"""A cost of a transport problem takes as long as so many entries of a deterministic sweep."""
MIN_PARALLEL_ROWS = 64
"""Rows of a matrix that are worth several threads."""


def solve(
    mdp: MDP,
    residual_tolerance: float,
    *,
    lax: bool = False,
    cost: NDArray[np.float64] | None = None,
    diameter_bound: float | None = None,
) -> SolverResult:
    """Compute d~ or d_lax of any MDP, to a residual tolerance.

    The initial distance is |V(s) - V(t)|, a lower bound, with states sorted by V, so that the first
    couplings are optimal for it. With a `cost`, (1 or A, 1 or A, S, S), which is added to the
    differences of rewards, it is 0. `diameter_bound` is the distance of states that are not
    comparable; default `mdp.diameter_bound`.
    """
    diameter = mdp.diameter_bound if diameter_bound is None else diameter_bound
    scale = choose_scale(diameter)
    mdp = mdp.replace(R=mdp.R / scale)
    initial, order = sort_states(mdp, has_cost=cost is not None)
    model = build_kernel_mdp(mdp, order, lax, diameter / scale)
    if cost is not None:
        model = model._replace(cost=np.ascontiguousarray(cost / scale))
    states = len(order)
    costs = Costs(np.zeros(1 + states * (states - 1) // 2), np.empty(0, np.int64), states)
    map_chunks(
        lambda *rows: distance_kernels.fill_differences(initial, costs.values, *rows),
        states,
        MIN_PARALLEL_ROWS,
    )
    tolerance = residual_tolerance / scale
    residual, largest, details = _iterate_levels(
        _CouplingIteration(model, costs, tolerance), tolerance
    )
    position, values = np.argsort(order), np.empty((states, states))
    map_chunks(
        lambda *rows: distance_kernels.expand_matrix(costs.values, position, scale, values, *rows),
        states,
        MIN_PARALLEL_ROWS,
    )
    return SolverResult(values, residual * scale, largest * scale, details)


def solve_pairs(
    mdp: MDP,
    pair_codes: NDArray[np.int64],
    residual_tolerance: float,
    *,
    lax: bool = False,
    cost: NDArray[np.float64] | None = None,
    diameter_bound: float = 0.0,
    frontier_value: float = 0.0,
) -> tuple[NDArray[np.float64], float, float, dict[str, Any]]:
    """Compute the distances of some pairs: values, residual, largest F(d) and statistics.

    `pair_codes` are s * S + t of the pairs, t < s, in increasing order, of comparable states; other
    pairs of different states are at distance `frontier_value`. With a `cost` as in `solve`,
    `diameter_bound` bounds the distances.
    """
    diameter = max(mdp.diameter_bound, diameter_bound, frontier_value)
    scale = choose_scale(diameter)
    mdp = mdp.replace(R=mdp.R / scale)
    model = build_kernel_mdp(mdp, np.arange(mdp.num_states), lax, diameter / scale)
    if cost is not None:
        model = model._replace(cost=np.ascontiguousarray(cost / scale))
    values = np.zeros(1 + len(pair_codes))
    values[0] = frontier_value / scale
    costs, tolerance = Costs(values, pair_codes, mdp.num_states), residual_tolerance / scale
    residual, largest, details = _iterate_levels(
        _CouplingIteration(model, costs, tolerance), tolerance
    )
    return values[1:] * scale, residual * scale, largest * scale, details


def round_matrix(
    values: NDArray[np.floating], dtype: np.dtype[Any], *, raise_zeros: bool = False
) -> tuple[NDArray[np.floating], float]:
    """Round a distance matrix to a dtype, in place if it has it; return its largest change too.

    With `raise_zeros`, entries off the diagonal become at least the least normal number.
    """
    rounded = values if values.dtype == dtype else np.empty(values.shape, dtype)
    floor = float(np.finfo(dtype).tiny) if raise_zeros else 0.0
    changes = map_chunks(
        lambda *rows: distance_kernels.round_matrix(values, floor, rounded, *rows),
        len(values),
        MIN_PARALLEL_ROWS,
    )
    return rounded, float(max(changes, default=0.0))


def apply_operator(
    mdp: MDP, d: NDArray[np.float64], s: NDArray[np.int64], t: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Compute F(d) of d~ at the pairs (s, t), t < s, for a distance matrix d."""
    model = build_kernel_mdp(mdp, np.arange(mdp.num_states), False, mdp.diameter_bound)
    costs = Costs(d, np.empty(0, np.int64), len(d))
    pairs = zip(s.tolist(), t.tolist(), strict=True)
    return np.array([coupling_kernels.apply_operator_at(model, costs, *pair) for pair in pairs])


def _iterate_levels(
    iteration: _CouplingIteration, residual_tolerance: float
) -> tuple[float, float, dict[str, Any]]:
    """Iterate to the residual tolerance; return the residual, the largest F(d) and statistics."""
    rounds, is_hopeless, num_levels = 0, False, len(iteration.levels)
    if num_levels > 0:
        rounds, is_hopeless = _solve_levels(iteration, residual_tolerance)
    with show_progress(1.0, "couplings: digits of the error") as progress:
        # After the levels, one sweep proves the error.
        solved = iterate_pairs(
            iteration, residual_tolerance, progress.set_position, is_hopeless=is_hopeless
        )
    # Sums over a row, and dividing it by its sum, take one rounding per term. Below the normal
    # numbers, where small rewards may be in this unit, a rounding is TINY / 2: of each term, of
    # both rewards, and of a cost.
    terms = 4 * iteration.model.max_support + 8
    rounding = terms * (UNIT * solved.largest + TINY)
    rounding += iteration.transport_error
    bound = iteration.model.discount * rounding + 2 * TINY
    details = {
        "method": "policy iteration over couplings",
        "rounds": rounds + solved.rounds,
        "levels": max(1, num_levels),
    }
    return solved.residual + bound, solved.largest, details


def _solve_levels(iteration: _CouplingIteration, residual_tolerance: float) -> tuple[int, bool]:
    """Solve level by level; return the most rounds of a level, and whether one did not converge."""
    rounds, num_solved, is_hopeless = 0, 0, False
    with show_progress(float(iteration.num_pairs), "couplings: solved pairs") as progress:
        for number, level in enumerate(iteration.levels, 1):
            report = _report_level(progress, num_solved, level, f"level {number}")
            report(0.0, "first sweep")
            iteration.start_level(level.pairs)
            if level.is_cyclic:
                solved = iterate_pairs(iteration, residual_tolerance, report)
                rounds, largest = max(rounds, solved.rounds), solved.largest
                is_hopeless = is_hopeless or solved.is_hopeless
            else:
                _, largest = iteration.sweep(in_place=True)
            iteration.finish_level(largest)
            num_solved += len(level.pairs)
    iteration.finish_levels()
    return rounds, is_hopeless


def _report_level(
    progress: ProgressBar, num_solved: int, level: PairLevel, name: str
) -> Callable[[float, str], None]:
    """Return a function that shows the fraction of a level that has converged."""
    return lambda fraction, note: progress.set_position(
        num_solved + fraction * len(level.pairs), f"{name}, {note}"
    )


def estimate_memory(mdp: MDP, *, lax: bool = False, residual_tolerance: float = 1.0) -> float:
    """Return the bytes that `solve` takes, the returned matrix included."""
    states, actions = mdp.R.shape
    support = np.diff(mdp.P.indptr).reshape(states, actions)
    pairs = states * (states - 1) / 2
    types = choose_types(mdp, lax=lax, residual_tolerance=residual_tolerance)
    matches = lax or mdp.choice_labels is not None
    moves = actions**2 if matches else actions
    nodes = 2 * float(support.sum(axis=1).mean()) * (actions if matches else 1)
    node_bytes = np.dtype(types.node).itemsize / (2 if types.is_packed else 1)
    vector_bytes, mass_bytes = compute_bytes(types.vector)
    entries = 2 * float(support.max(axis=1).mean()) - 1
    # The distance, the trees, bounds and choice, and the topological order with its keys.
    work = 8 + nodes * node_bytes + 2 * moves + np.dtype(types.choice).itemsize + 2 * 4
    work += vector_bytes + entries * (mass_bytes + np.dtype(types.position).itemsize)
    # At the end there are the distances, once per pair, and the matrix.
    return float(max(pairs * work, pairs * 8 + 8 * states**2) + 8 * int(support.max()) ** 2)


class _CouplingIteration:
    """The distances d, F(d) - d, and the cached coupling of every move.

    Sweeps and evaluations are of the current pairs: all of them, or those of one level.
    """

    def __init__(self, model: KernelMDP, costs: Costs, residual_tolerance: float) -> None:
        states, actions = model.reward.shape
        self.model, self.costs, self.num_pairs = model, costs, len(costs.values) - 1
        moves = actions**2 if model.match_freely else actions
        types = _choose_types(
            model.max_support, actions, model.match_freely, costs.pair_codes.size, model.discount,
            residual_tolerance,
        )  # fmt: skip
        support = np.diff(model.row_starts).reshape(states, actions)
        nodes = support.sum(axis=1) * (actions if model.match_freely else 1)
        # Pairs of different threads share no byte.
        nodes += nodes % 2 if types.is_packed else 0
        layout, num_nodes = _lay_out_pairs(nodes, nodes, costs)
        self.cache = CouplingCache(
            bound=np.full(self.num_pairs * moves, UNBOUNDED, np.uint16),
            choice=np.zeros(self.num_pairs, types.choice),
            trees=np.zeros(num_nodes // 2 if types.is_packed else num_nodes, types.node),
            layout=layout,
            is_packed=types.is_packed,
        )
        largest = support.max(axis=1)
        self.evaluation = PolicyEvaluation(
            model, costs, *_lay_out_pairs(largest - 1, largest, costs), types.position, types.vector
        )
        self.levels = order_pairs(model, costs, self.num_pairs)
        self.pairs = np.empty(0, np.uint32)  # empty: all pairs are current
        self.drift = self.max_drift = 0.0
        self.solved_largest = 0.0
        self.transport_error = 0.0
        self._pair_entries = ENTRIES_PER_COST * moves * model.max_support**2
        self._block_size = max(1, min(MAX_BLOCK, BLOCK_COSTS // (moves * model.max_support**2)))

    @property
    def count(self) -> int:
        """The number of current pairs."""
        return self.pairs.size if self.pairs.size > 0 else self.num_pairs

    def start_level(self, pairs: NDArray[np.uint32]) -> None:
        """Make some pairs current that no solved pair depends on.

        None of their moves is cached, so that the drift starts at 0.
        """
        self.evaluation.clear(self.pairs)
        self.pairs, self.drift = pairs, 0.0

    def finish_level(self, largest: float) -> None:
        """Record the largest F(d) of a level, and its drift."""
        self.solved_largest = max(self.solved_largest, largest)
        self.max_drift = max(self.max_drift, self.drift)

    def finish_levels(self) -> None:
        """Make all pairs current; the largest drift of a level bounds that of every pair."""
        self.pairs, self.drift = np.empty(0, np.uint32), self.max_drift

    def sweep(self, *, hold_actions: bool = False, in_place: bool = False) -> tuple[float, float]:
        """Compute F(d) - d; return its largest magnitude, and the largest F(d)."""
        num_blocks = -(-self.count // self._block_size)
        maxima = np.zeros((num_blocks, 3))
        arguments = (
            self.model, self.cache, self.costs, self.evaluation.couplings,
            self.evaluation.residual, self.drift, hold_actions, in_place, self.pairs,
            self._block_size, maxima,
        )  # fmt: skip
        entries = self._block_size * self._pair_entries
        share_rows(
            coupling_kernels.prepare_sweep,
            arguments,
            num_blocks,
            entries,
            MIN_PARALLEL_BLOCKS * entries,
        )
        residual, largest, transport_error = maxima.max(axis=0, initial=0.0).tolist()
        # The bounds on moves that a sweep rules out may come from an earlier one.
        self.transport_error = max(self.transport_error, transport_error)
        return residual, largest

    def evaluate(self, residual: float, tolerance: float) -> None:
        """Set d to the infinite-horizon value of the actions and couplings of the last sweep."""
        evaluation = self.evaluation
        if not evaluation.solve(self.cache.choice, self.pairs, residual, tolerance):
            self.sweep(hold_actions=True)
            evaluation.iterate_values(self.cache.choice, self.pairs)
        self._add(evaluation.correction)

    def apply_backup(self) -> None:
        """Set d to F(d): a sweep of value iteration."""
        self._add(self.evaluation.residual)

    def _add(self, step: NDArray[np.floating]) -> None:
        increase, decrease = self.evaluation.apply(step, self.pairs)
        self.drift += decrease if self.model.match_freely else increase
        if self.drift > MAX_DRIFT:
            bounds, change = self.cache.bound, self.model.discount * self.drift
            part = MIN_PARALLEL_BOUNDS
            map_chunks(
                lambda low, high: shift_bounds(
                    bounds, change, low * part, min(high * part, bounds.size)
                ),
                -(-bounds.size // part),
                1,
            )
            self.drift = 0.0


def sort_states(mdp: MDP, *, has_cost: bool) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the optimal values in increasing order, and the states; 0 with a cost."""
    V = np.zeros(mdp.num_states) if has_cost else planning.optimal_values(mdp, tol=math.inf).values
    order = np.argsort(V, kind="stable")
    return V[order], order


def build_kernel_mdp(
    mdp: MDP, order: NDArray[np.int64], lax: bool, diameter_bound: float
) -> KernelMDP:
    """Return the MDP for the kernels, renumbered: state i is state order[i] of the MDP."""
    actions = mdp.num_actions
    rank = np.argsort(order)
    rows = (order[:, None] * actions + np.arange(actions)).ravel()
    P: Any = mdp.normalised_probabilities[rows]
    P = sparse.csr_array((P.data, rank[P.indices], P.indptr), P.shape)
    P.sort_indices()
    return KernelMDP(
        P.indptr.astype(np.int64), P.indices.astype(np.int32), P.data, mdp.R[order],
        mdp.action_mask[order], compute_comparison_classes(mdp, lax=lax)[order],
        np.zeros(actions, np.int64) if lax else mdp.choice_groups, np.empty((0, 0, 0, 0)),
        mdp.discount, diameter_bound, lax or mdp.choice_labels is not None,
        int(np.diff(P.indptr).max()),
    )  # fmt: skip


def _lay_out_pairs(
    first: NDArray[np.int64], second: NDArray[np.int64], costs: Costs
) -> tuple[PairLayout, int]:
    """Lay out first[s] + second[t] entries of each pair (s, t), t < s; return their number too."""
    states, codes = costs.num_states, costs.pair_codes
    if codes.size > 0:
        preceding, sizes = np.empty(0, np.int64), first[codes // states] + second[codes % states]
    else:
        preceding = np.cumsum(second) - second
        sizes = np.arange(states) * first + preceding
    ends = np.cumsum(sizes)
    return PairLayout(ends - sizes, first, preceding), int(ends[-1])


class KernelTypes(NamedTuple):
    """Types of cached numbers: few combinations, since the kernels are compiled for each."""

    node: type[np.unsignedinteger[Any]]  # of a tree
    choice: type[np.unsignedinteger[Any]]
    position: type[np.unsignedinteger[Any]]  # two positions in rows of P, or the index of a pair
    is_packed: bool  # whether two nodes share a byte
    vector: type[np.floating[Any]]


def choose_types(mdp: MDP, *, lax: bool, residual_tolerance: float) -> KernelTypes:
    """Return the types with which `solve` computes."""
    max_support = int(np.diff(mdp.P.indptr).max())
    matches = lax or mdp.choice_labels is not None
    tolerance = residual_tolerance / choose_scale(mdp.diameter_bound)
    return _choose_types(max_support, mdp.num_actions, matches, 0, mdp.discount, tolerance)


def _choose_types(
    max_support: int,
    num_actions: int,
    match_freely: bool,
    num_coded_pairs: int,
    discount: float,
    residual_tolerance: float,
) -> KernelTypes:
    """Return the types; where some pairs have codes, successors are stored as their indices."""
    vector = choose_vector_dtype(discount, residual_tolerance)
    choices = 2 * num_actions**2 if match_freely else num_actions
    if max_support <= MAX_PACKED_SUPPORT and choices <= 2**8 and num_coded_pairs == 0:
        return KernelTypes(np.uint8, np.uint8, np.uint8, True, vector)
    if max_support <= 2**16 and num_coded_pairs <= 2**32:
        return KernelTypes(np.uint16, np.uint32, np.uint32, False, vector)
    return KernelTypes(np.uint32, np.uint32, np.uint64, False, vector)

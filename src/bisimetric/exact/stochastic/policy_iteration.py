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
from scipy.sparse import linalg

from bisimetric import planning
from bisimetric._progress import ProgressBar, convergence_fraction, show_progress
from bisimetric._rounding import TINY, UNIT
from bisimetric._transport import Costs
from bisimetric.exact._request import SolverResult, SweepLimit
from bisimetric.exact._threads import map_chunks
from bisimetric.exact.stochastic import coupling_kernels
from bisimetric.exact.stochastic.coupling_kernels import CouplingCache, KernelMDP
from bisimetric.exact.stochastic.topological_order import PairLevel, order_pairs
from bisimetric.mdp import MDP, compute_comparison_classes

PATIENCE = 8
"""Rounds that may pass without a smaller residual."""
MAX_RESPONSES = 50
"""Rounds in which only couplings (and responses) change, before actions do again."""
MIN_FALLBACK_SWEEPS = 16
"""Sweeps of value iteration when policy iteration diverges for the first time."""
EVALUATION_TOLERANCE = 1e-3
"""The relative residual of a policy evaluation."""
MAX_LINEAR_STEPS = 200
"""Iterations of the linear solver in one evaluation."""
MIN_PARALLEL_PAIRS, MIN_PARALLEL_ROWS = 256, 128
"""Pairs, and rows of a matrix, that are worth several threads."""


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
    scale = _choose_scale(diameter)
    mdp = mdp.replace(R=mdp.R / scale)
    if cost is None:
        V = planning.optimal_values(mdp, tol=math.inf).values
    else:
        V = np.zeros(mdp.num_states)
    order = np.argsort(V, kind="stable")
    model = build_kernel_mdp(mdp, order, lax, diameter / scale)
    if cost is not None:
        model = model._replace(cost=np.ascontiguousarray(cost / scale))
    costs = Costs(np.abs(V[order, None] - V[None, order]), np.empty(0, np.int64), len(V))
    iteration = _CouplingIteration(model, costs, _lay_out_all_pairs(model))
    residual, largest, details = _iterate_levels(iteration, residual_tolerance / scale)
    back = np.argsort(order)
    values = costs.values[np.ix_(back, back)] * scale
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
    scale = _choose_scale(diameter)
    mdp = mdp.replace(R=mdp.R / scale)
    model = build_kernel_mdp(mdp, np.arange(mdp.num_states), lax, diameter / scale)
    if cost is not None:
        model = model._replace(cost=np.ascontiguousarray(cost / scale))
    values = np.zeros((1, 1 + len(pair_codes)))
    values[0, 0] = frontier_value / scale
    iteration = _CouplingIteration(
        model, Costs(values, pair_codes, mdp.num_states), _lay_out_pairs(model, pair_codes)
    )
    residual, largest, details = _iterate_levels(iteration, residual_tolerance / scale)
    return iteration.costs.values[0, 1:] * scale, residual * scale, largest * scale, details


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
        solved = _iterate_pairs(
            iteration, residual_tolerance, progress.set_position, prove=True,
            is_solved=num_levels > 0, is_hopeless=is_hopeless,
        )  # fmt: skip
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
                solved = _iterate_pairs(iteration, residual_tolerance, report)
                rounds, largest = max(rounds, solved.rounds), solved.largest
                is_hopeless = is_hopeless or solved.is_hopeless
            else:
                _, largest = iteration.sweep()
                iteration.set_values(iteration.backup)
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


class _IterationResult(NamedTuple):
    """The largest |F(d) - d| and F(d), the rounds, and whether the tolerance is out of reach."""

    residual: float
    largest: float
    rounds: int
    is_hopeless: bool


def _iterate_pairs(
    iteration: _CouplingIteration,
    residual_tolerance: float,
    report: Callable[[float, str], None],
    *,
    prove: bool = False,
    is_solved: bool = False,
    is_hopeless: bool = False,
) -> _IterationResult:
    """Iterate on the current pairs to the residual tolerance.

    In each round a sweep finds the best actions and couplings of every pair; their infinite-horizon
    value solves a sparse linear system. For chains this is Howard's policy iteration. With actions
    it is Newton's method for a game (Pollatschek & Avi-Itzhak), fast but able to diverge: after
    `PATIENCE` rounds without gain, actions are held until the couplings have converged (Hoffman &
    Karp); if rounding spoils even that, sweeps of value iteration follow, twice as many each time,
    so that it terminates; at a discount next to 1, `SweepLimit` stops it.

    With `prove` the result is that of a sweep that checks every coupling; with `is_solved` that
    sweep is the first, and with `is_hopeless` also the last. `report` receives the progress.
    """
    best, without_gain, rounds = math.inf, 0, 0
    hold_actions, fallback_sweeps, remaining_sweeps = False, MIN_FALLBACK_SWEEPS, 0
    limit = SweepLimit(math.isqrt(2 * iteration.backup.size))
    residual, largest = iteration.sweep(recheck_all=is_solved)
    is_checked = is_solved
    while True:
        # The precision floor of F, whose sums have one rounding per term.
        tolerance = max(
            residual_tolerance,
            (8 * iteration.model.max_support + 128) * UNIT * max(largest, iteration.solved_largest),
        )
        is_hopeless = is_hopeless or limit.is_exceeded(rounds, residual, tolerance)
        if residual <= tolerance or is_hopeless:
            # In exact arithmetic a sweep that skips trees with drift below `optimal_until` is
            # as good: reduced costs, sums of at most n + m costs, moved by less than their
            # least one. The float32 rounding of `optimal_until` is far below FLOAT32_MARGIN,
            # and that of the reduced costs is in the transport error of the sweep that computed
            # them. So this sweep is slack.
            if prove and not is_checked:
                residual, largest = iteration.sweep(recheck_all=True)
            if residual <= tolerance or is_hopeless:
                return _IterationResult(residual, largest, rounds, is_hopeless)
        rounds += 1
        without_gain = 0 if residual < best else without_gain + 1
        best = min(best, residual)
        if without_gain > PATIENCE:
            if hold_actions:
                remaining_sweeps, fallback_sweeps = fallback_sweeps, 2 * fallback_sweeps
            hold_actions, without_gain = True, 0
        if remaining_sweeps > 0:
            remaining_sweeps -= 1
            iteration.set_values(iteration.backup)
        else:
            iteration.evaluate(tolerance)
            for _ in range(MAX_RESPONSES if hold_actions else 0):
                if iteration.sweep(hold_actions=True)[0] <= max(
                    tolerance, EVALUATION_TOLERANCE * residual
                ):
                    break
                iteration.evaluate(tolerance)
        residual, largest = iteration.sweep()
        is_checked = False
        report(convergence_fraction(residual, tolerance, largest), f"round {rounds}")


def estimate_memory(mdp: MDP, *, lax: bool = False) -> float:
    """Return the bytes that `solve` takes, the returned matrix included."""
    states, actions = mdp.R.shape
    support = np.diff(mdp.P.indptr).reshape(states, actions)
    pairs = states * (states - 1) / 2
    moves = actions**2 if lax or mdp.choice_labels is not None else actions
    nodes = 2 * float(support.mean())
    max_support = int(support.max())
    tree_bytes = moves * nodes * np.dtype(_choose_node_dtype(max_support)).itemsize
    chosen_bytes = nodes * (8 + 4)
    krylov_bytes = 8 * 8
    order_bytes = 2 * 8
    return float(
        pairs * (tree_bytes + 12 * moves + chosen_bytes + krylov_bytes + order_bytes)
        + 24 * states**2
        + 8 * max_support**2
    )


class _CouplingIteration:
    """The distances d, F(d), and the cached coupling of every move.

    Sweeps and evaluations are of the current pairs: all of them, or those of one level.
    """

    def __init__(self, model: KernelMDP, costs: Costs, layout: _TreeLayout) -> None:
        actions, pairs = model.reward.shape[1], layout.num_pairs
        moves = actions**2 if model.match_freely else actions
        self.model, self.costs = model, costs
        self.cache = CouplingCache(
            # Bounds on the value of a move: from above for d~, from below for d_lax.
            value=np.full(pairs * moves, 0.0 if model.match_freely else np.inf, np.float32),
            value_drift=np.full(pairs * moves, -1e30 if model.match_freely else 0.0, np.float32),
            optimal_until=np.full(pairs * moves, -1, np.float32),
            choice=np.zeros(pairs, np.uint32),
            trees=np.zeros(layout.size, _choose_node_dtype(model.max_support)),
            tree_starts=layout.starts,
            preceding_support=layout.preceding_support,
        )
        self.levels = order_pairs(model, costs, pairs)
        self.num_pairs = pairs
        self.pairs = self.position = np.empty(0, np.int64)  # empty: all pairs are current
        self.backup = np.empty(pairs)
        self.drift = self.max_drift = 0.0
        self.solved_largest = 0.0
        self.transport_error = 0.0

    def start_level(self, pairs: NDArray[np.int64]) -> None:
        """Make some pairs current that no solved pair depends on.

        None of their moves is cached, so that the drift starts at 0.
        """
        if self.position.size == 0:
            self.position = np.full(self.num_pairs, -1, np.int64)
        self.position[self.pairs] = -1
        self.position[pairs] = np.arange(len(pairs))
        self.pairs, self.backup, self.drift = pairs, np.empty(len(pairs)), 0.0

    def finish_level(self, largest: float) -> None:
        """Record the largest F(d) of a level, and its drift."""
        self.solved_largest = max(self.solved_largest, largest)
        self.max_drift = max(self.max_drift, self.drift)

    def finish_levels(self) -> None:
        """Make all pairs current; the largest drift of a level bounds that of every pair."""
        self.pairs = self.position = np.empty(0, np.int64)
        self.backup, self.drift = np.empty(self.num_pairs), self.max_drift

    def _map_pairs(self, kernel: Callable[..., Any], *inputs: Any) -> list[Any]:
        """Call kernel(model, cache, costs, *inputs, low, high) for chunks of the current pairs."""
        first = (self.model, self.cache, self.costs, *inputs)
        return map_chunks(
            lambda *chunk: kernel(*first, *chunk), self.backup.size, MIN_PARALLEL_PAIRS
        )

    def sweep(
        self, *, hold_actions: bool = False, recheck_all: bool = False
    ) -> tuple[float, float]:
        """Set `backup` to F(d); return its largest difference from d, and its largest entry."""
        maxima = self._map_pairs(
            coupling_kernels.sweep, self.backup, self.drift, hold_actions, recheck_all, self.pairs
        )
        residual, largest, transport_error = map(float, np.array(maxima).max(axis=0))
        # Couplings that a sweep skips were computed in an earlier one.
        self.transport_error = max(self.transport_error, transport_error)
        return residual, largest

    def evaluate(self, tolerance: float) -> None:
        """Set d to the infinite-horizon value of the chosen actions and couplings."""
        num_rows = self.backup.size
        starts = np.zeros(num_rows + 1, np.int64)
        self._map_pairs(coupling_kernels.count_successors, starts, self.pairs)
        np.cumsum(starts, out=starts)
        index = np.int32 if max(num_rows, starts[-1]) < 2**31 else np.int64
        successors, mass, gap = (
            np.empty(starts[-1], index),
            np.empty(starts[-1]),
            np.empty(num_rows),
        )
        self._map_pairs(
            coupling_kernels.write_policy_matrix, starts, successors, mass, gap, self.pairs,
            self.position,
        )  # fmt: skip
        shape = (num_rows, num_rows)
        transition = sparse.csr_array((mass, successors, starts.astype(index)), shape)
        self.set_values(
            _evaluate_policy(gap, transition, self.model.discount, self.backup, tolerance)
        )

    def set_values(self, values: NDArray[np.float64]) -> None:
        """Set d to the values of the current pairs, clipped at 0."""
        d = self.costs.values
        np.maximum(values, 0.0, out=values)
        if self.pairs.size > 0:
            changes = map_chunks(
                lambda *chunk: coupling_kernels.write_values(
                    values, self.pairs, self.costs, *chunk
                ),
                len(values),
                MIN_PARALLEL_PAIRS,
            )
            change = float(max(changes))
        elif self.costs.pair_codes.size == 0:
            changes = map_chunks(
                lambda *chunk: coupling_kernels.fill_symmetric(values, d, *chunk),
                len(d),
                MIN_PARALLEL_ROWS,
            )
            change = float(max(changes))
        else:
            change = float(np.abs(values - d[0, 1:]).max())
            d[0, 1:] = values
        self.drift += change


def _evaluate_policy(
    reward_gap: NDArray[np.float64],
    transition: sparse.csr_array,
    discount: float,
    initial: NDArray[np.float64],
    tolerance: float,
) -> NDArray[np.float64]:
    """Solve x = reward_gap + discount * transition @ x to a fraction of the initial residual."""
    pairs = len(reward_gap)

    def system(x: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(x - discount * (transition @ x))

    operator: Any = linalg.LinearOperator((pairs, pairs), matvec=system, dtype=np.float64)
    initial_residual = reward_gap - system(initial)
    solution = initial + planning.solve_bicgstab(
        operator,
        initial_residual,
        rtol=EVALUATION_TOLERANCE,
        max_iterations=MAX_LINEAR_STEPS,
        atol=tolerance / 8,
    )
    if np.abs(reward_gap - system(solution)).max() < np.abs(initial_residual).max():
        return solution
    for _ in range(MAX_LINEAR_STEPS):
        initial = reward_gap + discount * (transition @ initial)
    return initial


def _choose_scale(diameter_bound: float) -> float:
    """Return a power of two near the diameter bound.

    Cached numbers are float32, whose range is narrow; dividing by a power of two rounds only what
    falls below the normal numbers.
    """
    exponent = math.frexp(diameter_bound)[1]
    return 1.0 if diameter_bound == 0 else math.ldexp(1.0, max(-1000, min(1000, exponent)))


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


class _TreeLayout(NamedTuple):
    """Where the trees of all moves are stored; see `CouplingCache`."""

    num_pairs: int
    starts: NDArray[np.int64]
    preceding_support: NDArray[np.int64]
    size: int


def _lay_out_all_pairs(model: KernelMDP) -> _TreeLayout:
    """Lay out all pairs: the tree of (s, t) comes after those of s with every smaller t."""
    states, actions = model.reward.shape
    support = np.diff(model.row_starts).reshape(states, actions)
    preceding = np.zeros((actions, states), np.int64)
    preceding[:, 1:] = np.cumsum(support[:-1].T, axis=1)
    own = np.arange(states)[:, None] * support
    sizes = own[:, :, None] + preceding.T[:, None, :] if model.match_freely else own + preceding.T
    ends = np.cumsum(sizes)
    starts = np.concatenate([[0], ends[:-1]]).reshape(states, -1)
    return _TreeLayout(states * (states - 1) // 2, starts, preceding, int(ends[-1]) + 1)


def _lay_out_pairs(model: KernelMDP, pair_codes: NDArray[np.int64]) -> _TreeLayout:
    """Lay out some pairs, one after the other."""
    states, actions = model.reward.shape
    support = np.diff(model.row_starts).reshape(states, actions)
    first, second = support[pair_codes // states], support[pair_codes % states]
    sizes = first[:, :, None] + second[:, None, :] if model.match_freely else first + second
    ends = np.cumsum(sizes)
    starts = np.concatenate([[0], ends[:-1]]).reshape(len(pair_codes), -1)
    return _TreeLayout(len(pair_codes), starts, np.empty((0, 0), np.int64), int(ends[-1]) + 1)


def _choose_node_dtype(support: int) -> type[np.unsignedinteger[Any]]:
    """Return the narrowest integer type for the nodes of a tree."""
    return np.uint8 if 2 * support < 2**8 else np.uint16 if 2 * support < 2**16 else np.uint32

"""Distances where pairs branch: policy iteration over actions and couplings.

Bacci, Bacci, Larsen & Mardare (2013), On-the-fly exact computation of bisimilarity distances;
Tang & van Breugel (2016), Computing probabilistic bisimilarity distances via policy iteration;
Pollatschek & Avi-Itzhak (1969), Algorithms for stochastic games with geometrical interpretation.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import linalg

from bisimetric import planning
from bisimetric._progress import convergence_fraction, show_progress
from bisimetric._rounding import TINY, UNIT
from bisimetric._transport import Costs
from bisimetric.exact._request import SolverResult, SweepLimit
from bisimetric.exact._threads import map_chunks
from bisimetric.exact.stochastic import coupling_kernels
from bisimetric.exact.stochastic.coupling_kernels import CouplingCache, KernelMDP
from bisimetric.mdp import MDP

PATIENCE = 8
"""Rounds that may pass without a smaller residual."""
MAX_RESPONSES = 50
"""Rounds in which only couplings change, before actions do again."""
MIN_FALLBACK_SWEEPS = 16
"""Sweeps of value iteration when policy iteration goes astray for the first time."""
EVALUATION_TOLERANCE = 1e-3
"""The share of the residual that an evaluation may leave."""
MAX_LINEAR_STEPS = 200
"""Steps of the linear solver in one evaluation."""
MIN_PARALLEL_PAIRS, MIN_PARALLEL_ROWS = 256, 128
"""Pairs, and rows of a table, that are worth many threads."""


def solve(mdp: MDP, residual_tolerance: float, *, lax: bool = False) -> SolverResult:
    """The table of d~ or d_lax of any MDP, to a residual of `least`.

    The table begins at |V(s) - V(t)|, a lower bound, with states numbered by V, so that the first
    couplings are optimal for it.
    """
    unit = _choose_scale(mdp.diameter_bound)
    mdp = mdp.replace(R=mdp.R / unit)
    V = planning.optimal_values(mdp, tol=math.inf).values
    order = np.argsort(V, kind="stable")
    model = _build_kernel_mdp(mdp, order, lax)
    costs = Costs(np.abs(V[order, None] - V[None, order]), np.empty(0, np.int64), len(V))
    run = _CouplingIteration(model, costs, _lay_out_all_pairs(model))
    residual, largest, rounds = _iterate(run, residual_tolerance / unit)
    back = np.argsort(order)
    how = {"method": "policy iteration over couplings", "rounds": rounds}
    return SolverResult(
        costs.table[np.ix_(back, back)] * unit, residual * unit, largest * unit, how
    )


def solve_pairs(
    mdp: MDP,
    pair_codes: NDArray[np.int64],
    residual_tolerance: float,
    *,
    lax: bool = False,
    frontier_value: float = 0.0,
) -> tuple[NDArray[np.float64], float, float, dict[str, Any]]:
    """The distances of some pairs only: values, residual, largest value, and how.

    `codes` are s * S + t of the pairs, t < s, in rising order; other pairs of different states are
    taken to be `beyond` apart.
    """
    unit = _choose_scale(max(mdp.diameter_bound, frontier_value))
    mdp = mdp.replace(R=mdp.R / unit)
    model = _build_kernel_mdp(mdp, np.arange(mdp.num_states), lax)
    table = np.zeros((1, 1 + len(pair_codes)))
    table[0, 0] = frontier_value / unit
    run = _CouplingIteration(
        model, Costs(table, pair_codes, mdp.num_states), _lay_out_pairs(model, pair_codes)
    )
    residual, largest, rounds = _iterate(run, residual_tolerance / unit)
    how = {"method": "policy iteration over couplings", "rounds": rounds}
    return run.costs.table[0, 1:] * unit, residual * unit, largest * unit, how


def apply_operator(
    mdp: MDP, d: NDArray[np.float64], s: NDArray[np.int64], t: NDArray[np.int64]
) -> NDArray[np.float64]:
    """F(d) of d~ at the pairs (s, t), t < s, for a table d."""
    model = _build_kernel_mdp(mdp, np.arange(mdp.num_states), lax=False)
    costs = Costs(d, np.empty(0, np.int64), len(d))
    pairs = zip(s.tolist(), t.tolist(), strict=True)
    return np.array([coupling_kernels.apply_operator_at(model, costs, *pair) for pair in pairs])


def _iterate(iteration: _CouplingIteration, residual_tolerance: float) -> tuple[float, float, int]:
    """Rounds until |F(d) - d| is `least`; that residual, the largest F(d), the rounds.

    In each round a sweep finds the best actions and couplings of every pair; what they are worth
    for ever solves a sparse linear system. For chains this is Howard's policy iteration. With
    actions it is Newton's method for a game (Pollatschek & Avi-Itzhak), quick but able to go
    astray: after `PATIENCE` rounds without gain, actions are held until the couplings are at rest
    (Hoffman & Karp); if rounding spoils even that, sweeps of value iteration alone follow, twice as
    many each time, so that it ends; at a discount next to 1, `SweepLimit` ends it.
    """
    best, without_gain, rounds = math.inf, 0, 0
    hold, rest, resting = False, MIN_FALLBACK_SWEEPS, 0
    limit = SweepLimit(math.isqrt(2 * iteration.backup.size))
    residual, largest = iteration.sweep()
    with show_progress(1.0, "couplings: digits of the error") as shown:
        while True:
            # Below the grain of F, whose sums have as many roundings as terms, nothing can fall.
            small = max(residual_tolerance, (8 * iteration.model.support + 128) * UNIT * largest)
            hopeless = limit.is_exceeded(rounds, residual, small)
            if residual <= small or hopeless:
                # In exact arithmetic a sweep that skips trees within their `safe` drift is as good:
                # reduced costs, sums of at most n + m costs, moved by less than their least one.
                # What float32 rounds in `safe` is far below MARGIN, and the rounding of the reduced
                # costs is in the doubt of the sweep that computed them. So this sweep is slack.
                residual, largest = iteration.sweep(recheck_all=True)
                if residual <= small or hopeless:
                    # Sums over a row, and dividing it by its sum, take a rounding a term.
                    # Below the normal numbers, where small rewards may be in this unit, a rounding
                    # is TINY / 2: of each term, and of both rewards.
                    terms = 4 * iteration.model.support + 8
                    rounding = terms * (UNIT * largest + TINY)
                    doubt = iteration.model.discount * (iteration.transport_error + rounding) + TINY
                    return residual + doubt, largest, rounds
            rounds += 1
            without_gain = 0 if residual < best else without_gain + 1
            best = min(best, residual)
            if without_gain > PATIENCE:
                if hold:
                    resting, rest = rest, 2 * rest
                hold, without_gain = True, 0
            if resting > 0:
                resting -= 1
                iteration.set_values(iteration.backup)
            else:
                iteration.evaluate(small)
                for _ in range(MAX_RESPONSES if hold else 0):
                    if iteration.sweep(hold_actions=True)[0] <= max(
                        small, EVALUATION_TOLERANCE * residual
                    ):
                        break
                    iteration.evaluate(small)
            residual, largest = iteration.sweep()
            shown.set_position(convergence_fraction(residual, small, largest), f"round {rounds}")


def estimate_memory(mdp: MDP, *, lax: bool = False) -> float:
    """Bytes that `solve` takes, the table that it returns included."""
    states, actions = mdp.R.shape
    support = np.diff(mdp.P.indptr).reshape(states, actions)
    pairs = states * (states - 1) / 2
    moves = actions**2 if lax else actions
    nodes = 2 * float(support.mean())
    widest = int(support.max())
    trees = moves * nodes * np.dtype(_choose_node_dtype(widest)).itemsize
    chosen = nodes * (8 + 4)
    krylov = 8 * 8
    return float(pairs * (trees + 12 * moves + chosen + krylov) + 24 * states**2 + 8 * widest**2)


class _CouplingIteration:
    """The distances d, F(d), and what is known of every move."""

    def __init__(self, model: KernelMDP, costs: Costs, slots: _TreeLayout) -> None:
        actions, pairs = model.reward.shape[1], slots.pairs
        moves = actions**2 if model.lax else actions
        self.model, self.costs = model, costs
        self.cache = CouplingCache(
            # Nothing is known of a move: it may be worth anything for d~, as little as 0 for d_lax.
            worth=np.full(pairs * moves, 0.0 if model.lax else np.inf, np.float32),
            when=np.full(pairs * moves, -1e30 if model.lax else 0.0, np.float32),
            safe=np.full(pairs * moves, -1, np.float32),
            choice=np.zeros(pairs, np.uint32),
            trees=np.zeros(slots.size, _choose_node_dtype(model.support)),
            slots=slots.starts,
            before=slots.before,
        )
        self.backup = np.zeros(pairs)
        self.drift = 0.0
        self.transport_error = 0.0

    def sweep(
        self, *, hold_actions: bool = False, recheck_all: bool = False
    ) -> tuple[float, float]:
        """F(d) becomes the image; its largest difference from d, and its largest entry."""

        def part(low: int, high: int) -> tuple[float, float, float]:
            found: tuple[float, float, float] = coupling_kernels.sweep(
                self.model, self.cache, self.costs, self.backup, self.drift, hold_actions, recheck_all,
                low, high,
            )  # fmt: skip
            return found

        parts = np.array(map_chunks(part, self.backup.size, MIN_PARALLEL_PAIRS))
        residual, largest, doubt = map(float, parts.max(axis=0))
        # Moves that a sweep passes over were worked out in an earlier one.
        self.transport_error = max(self.transport_error, doubt)
        return residual, largest

    def evaluate(self, tolerance: float) -> None:
        """d becomes what the chosen actions and couplings are worth for ever."""
        known, pairs = (self.model, self.cache, self.costs), self.backup.size
        starts = np.zeros(pairs + 1, np.int64)
        map_chunks(
            lambda *part: coupling_kernels.count_successors(*known, starts, *part),
            pairs,
            MIN_PARALLEL_PAIRS,
        )
        np.cumsum(starts, out=starts)
        index = np.int32 if max(pairs, starts[-1]) < 2**31 else np.int64
        leads_to, mass, gap = np.empty(starts[-1], index), np.empty(starts[-1]), np.empty(pairs)
        into = (starts, leads_to, mass, gap)
        map_chunks(
            lambda *part: coupling_kernels.write_policy_matrix(*known, *into, *part),
            pairs,
            MIN_PARALLEL_PAIRS,
        )
        ahead = sparse.csr_array((mass, leads_to, starts.astype(index)), (pairs, pairs))
        self.set_values(_evaluate_policy(gap, ahead, self.model.discount, self.backup, tolerance))

    def set_values(self, values: NDArray[np.float64]) -> None:
        """d becomes the given values of all pairs, which are not below 0."""
        table = self.costs.table
        np.maximum(values, 0.0, out=values)
        if self.costs.codes.size == 0:
            rows = map_chunks(
                lambda *part: coupling_kernels.fill_symmetric(values, table, *part),
                len(table),
                MIN_PARALLEL_ROWS,
            )
            moved = float(max(rows))
        else:
            moved = float(np.abs(values - table[0, 1:]).max())
            table[0, 1:] = values
        self.drift += moved


def _evaluate_policy(
    reward_gap: NDArray[np.float64],
    transition: sparse.csr_array,
    discount: float,
    initial: NDArray[np.float64],
    tolerance: float,
) -> NDArray[np.float64]:
    """x = gap + discount * ahead @ x, to a small share of what the guess leaves."""
    pairs = len(reward_gap)

    def system(x: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(x - discount * (transition @ x))

    operator: Any = linalg.LinearOperator((pairs, pairs), matvec=system, dtype=np.float64)
    left = reward_gap - system(initial)
    found = initial + planning.solve_bicgstab(
        operator,
        left,
        rtol=EVALUATION_TOLERANCE,
        max_iterations=MAX_LINEAR_STEPS,
        atol=tolerance / 8,
    )
    if np.abs(reward_gap - system(found)).max() < np.abs(left).max():
        return found
    for _ in range(MAX_LINEAR_STEPS):
        initial = reward_gap + discount * (transition @ initial)
    return initial


def _choose_scale(diameter_bound: float) -> float:
    """A power of two near the largest possible distance.

    What is remembered of a move is a float32, whose range is narrow; to divide by a power of two
    rounds nothing but what falls below the normal numbers.
    """
    exponent = math.frexp(diameter_bound)[1]
    return 1.0 if diameter_bound == 0 else math.ldexp(1.0, max(-1000, min(1000, exponent)))


def _build_kernel_mdp(mdp: MDP, order: NDArray[np.int64], lax: bool) -> KernelMDP:
    """The MDP for the kernels, its states renumbered: state i is state order[i] of the MDP."""
    actions = mdp.num_actions
    rank = np.argsort(order)
    rows = (order[:, None] * actions + np.arange(actions)).ravel()
    P: Any = mdp.normalised_probabilities[rows]
    P = sparse.csr_array((P.data, rank[P.indices], P.indptr), P.shape)
    P.sort_indices()
    return KernelMDP(
        P.indptr.astype(np.int64),
        P.indices.astype(np.int32),
        P.data,
        mdp.R[order],
        mdp.action_mask[order],
        mdp.discount,
        mdp.diameter_bound,
        lax,
        int(np.diff(P.indptr).max()),
    )


class _TreeLayout(NamedTuple):
    """Where the trees of all moves are kept; see `couplings.Memory`."""

    pairs: int
    starts: NDArray[np.int64]
    before: NDArray[np.int64]
    size: int


def _lay_out_all_pairs(model: KernelMDP) -> _TreeLayout:
    """For all pairs: the tree of (s, t) comes after those of s with every earlier t."""
    states, actions = model.reward.shape
    support = np.diff(model.first).reshape(states, actions)
    before = np.zeros((actions, states), np.int64)
    before[:, 1:] = np.cumsum(support[:-1].T, axis=1)
    own = np.arange(states)[:, None] * support
    sizes = own[:, :, None] + before.T[:, None, :] if model.lax else own + before.T
    ends = np.cumsum(sizes)
    starts = np.concatenate([[0], ends[:-1]]).reshape(states, -1)
    return _TreeLayout(states * (states - 1) // 2, starts, before, int(ends[-1]) + 1)


def _lay_out_pairs(model: KernelMDP, pair_codes: NDArray[np.int64]) -> _TreeLayout:
    """For some pairs, one after the other."""
    states, actions = model.reward.shape
    support = np.diff(model.first).reshape(states, actions)
    first, second = support[pair_codes // states], support[pair_codes % states]
    sizes = first[:, :, None] + second[:, None, :] if model.lax else first + second
    ends = np.cumsum(sizes)
    starts = np.concatenate([[0], ends[:-1]]).reshape(len(pair_codes), -1)
    return _TreeLayout(len(pair_codes), starts, np.empty((0, 0), np.int64), int(ends[-1]) + 1)


def _choose_node_dtype(support: int) -> type[np.unsignedinteger[Any]]:
    """The narrowest numbers for the nodes of a tree."""
    return np.uint8 if 2 * support < 2**8 else np.uint16 if 2 * support < 2**16 else np.uint32

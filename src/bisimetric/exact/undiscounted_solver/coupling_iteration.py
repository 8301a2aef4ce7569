"""Undiscounted distances of undecided pairs: policy iteration over couplings, with certificates.

Let D be the operator D(d)(x) = min_f sum_y f(y) d(y) on the undecided pairs x, over the couplings f
of a pair that keep common mass in place, with d = 1 on the other pairs of different states and 0 on
equal states. The true distance d* is its only fixed point in [0, 1]: see the proof in
docs/concepts/undiscounted.md. So by Knaster & Tarski

    l <= D(l)  implies  l <= d*,    and    u >= D(u)  implies  u >= d*.

For u a coupling per pair is enough: u is its value, the probability to reach a pair at distance 1.
For l potentials prove that no coupling costs less. Both are computed with a slack c > 0 that
exceeds every rounding: l = P l + r - c and u = P u + r + c for the matrix P of the couplings.

Bacci, Bacci, Larsen & Mardare (2013), On-the-fly exact computation of bisimilarity distances;
Tang & van Breugel (2016), Computing probabilistic bisimilarity distances via policy iteration.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph, linalg

from bisimetric import planning
from bisimetric._progress import show_progress
from bisimetric.exact._threads import map_chunks
from bisimetric.exact.undiscounted_solver import pair_kernels
from bisimetric.exact.undiscounted_solver.distance_one import UndecidedPairs
from bisimetric.exact.undiscounted_solver.fixed_point import FixedPointRows
from bisimetric.exact.undiscounted_solver.pair_kernels import Couplings, Moves

MIN_PARALLEL_PAIRS = 256
"""Pairs that are worth several threads."""
MIN_SLACK = 2.0**-42
"""The least slack per unit of leaving mass: above the rounding of a transport problem."""
SLACK_GROWTH = 16.0
"""The factor by which the slack grows where it does not cover the rounding."""
MAX_ROUNDS = 1000
"""Rounds of policy iteration before the trivial bounds 0 and 1 are returned."""
MAX_BLOCK = 1000
"""Pairs of a strongly connected component up to which systems are factorised at once."""
MIN_ACCURACY = 1e-14
"""The least residual that BiCGSTAB is asked for."""
MAX_LINEAR_STEPS = 500
"""Iterations of the linear solver before the factorisation is tried."""


class CertifiedBounds(NamedTuple):
    """Proven bounds on the distances of the undecided pairs, and the rounds that they took."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    rounds: int
    expected_steps: float


def solve(rows: FixedPointRows, pairs: UndecidedPairs, moves: Moves, tol: float) -> CertifiedBounds:
    """Bound the distances of the undecided pairs of a chain.

    upper - lower <= tol if rounding allows it.
    """
    if pairs.size == 0:
        return CertifiedBounds(np.empty(0), np.empty(0), 0, 0.0)
    iteration = CouplingIteration(rows, pairs, moves)
    best = CertifiedBounds(np.zeros(pairs.size), np.ones(pairs.size), 0, math.inf)
    with show_progress(1.0, "couplings: proven pairs") as progress:
        iteration.improve()
        slack, steps = iteration.choose_slack(tol)
        for rounds in range(1, MAX_ROUNDS):
            iteration.values = np.maximum(iteration.evaluate(-slack, -1.0), 0.0)
            num_changed, num_unproven = iteration.improve()
            progress.set_position(1 - num_unproven / pairs.size, f"round {rounds}")
            if num_unproven == 0:
                upper = np.minimum(iteration.evaluate(slack, 1.0), 1.0)
                if iteration.count_unproven_upper(upper) == 0:
                    best = CertifiedBounds(iteration.values, upper, rounds, steps)
                    if (upper - iteration.values).max() <= tol:
                        break
                    # Better couplings may take more steps than those that the slack was chosen for.
                    smaller, steps = iteration.choose_slack(tol)
                    if smaller >= slack / 2:
                        break
                    slack = smaller
                    continue
            if num_changed == 0 or num_unproven == 0:
                slack *= SLACK_GROWTH
                if slack > 1:
                    break
    return best


def estimate_memory(rows: FixedPointRows, moves: Moves) -> float:
    """Return the bytes that `solve` takes."""
    support = np.diff(rows.row_starts)
    nodes = float(support[moves.first_row].sum() + support[moves.second_row].sum())
    # Trees; the matrix of the policy, twice; vectors of values, slacks and the linear solver.
    return nodes * (_choose_node_dtype(rows)().itemsize + 24) + len(moves.pair) * 8 * 24.0


def _choose_node_dtype(rows: FixedPointRows) -> type[np.unsignedinteger[Any]]:
    """Return the narrowest integer type for the nodes of a tree."""
    return np.uint8 if 2 * rows.max_support < 2**8 else np.uint32


class CouplingIteration:
    """The values of the undecided pairs, one coupling per move, and one selected move per pair."""

    def __init__(self, rows: FixedPointRows, pairs: UndecidedPairs, moves: Moves) -> None:
        support = np.diff(rows.row_starts)
        starts = np.zeros(len(moves.pair) + 1, np.int64)
        np.cumsum(support[moves.first_row] + support[moves.second_row], out=starts[1:])
        self.rows, self.pairs, self.moves = rows, pairs, moves
        self.selected = moves.starts[:-1].copy()
        self.couplings = Couplings(np.zeros(starts[-1], _choose_node_dtype(rows)), starts)
        self.values = np.zeros(pairs.size)
        self.slack = np.empty((2, len(moves.pair)))
        self.map_moves(pair_kernels.bound_slack, pairs, moves, self.slack)

    def improve(self) -> tuple[int, int]:
        """Set selected couplings to optimal ones; count changes and unproven lower bounds."""
        found = map_kernel(
            pair_kernels.improve_couplings,
            self.pairs.size,
            *(self.rows, self.couplings, self.pairs, self.moves, self.selected),
            *(self.values, self.slack),
        )
        changed, unproven = zip(*found, strict=True)
        return sum(changed), sum(unproven)

    def count_unproven_upper(self, values: NDArray[np.float64]) -> int:
        """Count the moves whose coupling does not prove the upper bound of their pair."""
        kernel = pair_kernels.count_unproven_upper
        return sum(
            self.map_moves(kernel, self.couplings, self.pairs, self.moves, values, self.slack)
        )

    def choose_slack(self, tol: float) -> tuple[float, float]:
        """Return a slack with which bounds are `tol` apart, if possible, and the expected steps."""
        transition, _, leaving = self.build_matrix(self.selected)
        system = sparse.csr_array(sparse.eye_array(self.pairs.size) - transition)
        costs = self.slack[:, self.selected] / leaving
        steps = float(solve_system(system, costs[0], 0.01).max())
        rounding = float(solve_system(system, costs[1], 0.0).max()) if costs[1].any() else 0.0
        return max(MIN_SLACK, (tol / 2 - rounding) / 2 / steps), steps

    def evaluate(
        self, slack: float, rounding: float, positive: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64]:
        """Solve x = P x + r + slack * (leaving mass) + rounding * (rounding of the rows).

        With `positive`, other pairs have the value 0.
        """
        transition, rewards, leaving = self.build_matrix(self.selected)
        if positive is not None:
            rewards, leaving = rewards * positive, np.where(positive, leaving, 1.0)
            transition = sparse.diags_array(positive.astype(np.float64)) @ transition
        system = sparse.csr_array(sparse.eye_array(self.pairs.size) - transition)
        added = self.slack[:, self.selected]
        # The slack of rows has a margin of its own.
        right = rewards + slack * added[0] + 1.001 * rounding * added[1]
        return solve_system(system, right / leaving, abs(slack) / 8)

    def build_matrix(
        self, selected: NDArray[np.int64]
    ) -> tuple[sparse.csr_array, NDArray[Any], NDArray[Any]]:
        """Return the couplings of some moves as a matrix P, r, and the mass that leaves each pair.

        Rows of P are divided by the leaving mass: they are those of a chain that leaves its pair in
        every step.
        """
        tree_starts, size = self.couplings.tree_starts, len(selected)
        starts = np.zeros(size + 1, np.int64)
        np.cumsum(tree_starts[selected + 1] - tree_starts[selected], out=starts[1:])
        index = np.int32 if starts[-1] < 2**31 else np.int64
        successors, masses = np.empty(starts[-1], index), np.empty(starts[-1])
        rewards, leaving = np.empty(size), np.empty(size)
        map_kernel(
            pair_kernels.write_couplings,
            size,
            *(self.rows, self.couplings, self.pairs, self.moves, selected),
            *(starts, successors, masses, rewards, leaving),
        )
        masses /= np.repeat(np.where(leaving > 0, leaving, 1.0), np.diff(starts))
        shape = (size, self.pairs.size)
        transition = sparse.csr_array((masses, successors, starts.astype(index)), shape)
        transition.eliminate_zeros()
        return transition, rewards, leaving

    def map_moves(self, kernel: Any, *arguments: Any) -> list[Any]:
        """Run a kernel on all moves, and return its results by chunks."""
        return map_kernel(kernel, len(self.moves.pair), self.rows, *arguments)


def map_kernel(kernel: Any, size: int, *arguments: Any) -> list[Any]:
    """Run a kernel on the chunks of a range."""
    return map_chunks(lambda low, high: kernel(*arguments, low, high), size, MIN_PARALLEL_PAIRS)


def solve_system(
    system: sparse.csr_array, right: NDArray[np.float64], accuracy: float
) -> NDArray[np.float64]:
    """Solve system @ x = right, to an absolute residual if possible; callers check the result.

    In topological order of the strongly connected components the system is block triangular, and
    an LU factorisation fills in only blocks. BiCGSTAB comes first where a block is large.
    """
    _, component = csgraph.connected_components(system, connection="strong")
    if np.bincount(component).max() > MAX_BLOCK:
        scale = max(accuracy, MIN_ACCURACY)
        x = planning.solve_bicgstab(
            system, right, rtol=0.0, max_iterations=MAX_LINEAR_STEPS, atol=scale
        )
        if np.abs(right - system @ x).max() <= scale:
            return x
    # SciPy numbers the components so that edges lead to smaller numbers; if not, it is only slower.
    sources = np.repeat(component, np.diff(system.indptr))
    is_triangular = bool((sources >= component[system.indices]).all())
    order = np.argsort(component, kind="stable")
    factors = linalg.splu(
        system[order][:, order].tocsc(),
        permc_spec="NATURAL" if is_triangular else "COLAMD",
        diag_pivot_thresh=0.0,
    )
    x = np.empty(len(right))
    x[order] = factors.solve(right[order])
    x[order] += factors.solve((right - system @ x)[order])
    return x

"""d~ of a deterministic MDP: monotone iteration of lower bounds, from below.

d~ is the optimal value function of the pair graph, in which one action moves both states (Ferns &
Precup 2014). Four operations increase the bounds:

    cycle search       where all states are a few steps apart, the cycles of the largest value are
                       searched for first
    Bellman sweep      one in-place update per pair (value iteration)
    cycle evaluation   from pairs that still increase, greedy actions are followed into a cycle,
                       which is set to its infinite-horizon value at once (policy iteration)
    propagation        increases propagate to predecessor pairs through a work list (prioritised
                       sweeping); while many pairs still change, only those of the largest
                       distances, where the cycles are

The iteration has converged when a sweep increases nothing; its residual proves the error.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bisimetric._progress import show_progress
from bisimetric.exact._request import SolverResult, SweepLimit
from bisimetric.exact.deterministic import cycle_search, doubling, pair_kernels, table_kernels
from bisimetric.exact.deterministic.problem import MAX_SERIAL_STATES, DeterministicProblem
from bisimetric.exact.deterministic.propagation import WorkLists

FEW_CHANGED = 0.025
"""When a sweep increases less than this fraction of pairs, propagation does the rest."""
MAX_CHANGED = 0.1
"""While a sweep increases more than this fraction of pairs, sweeps take less time than propagation:
their reads are in order, and they run on all cores."""
FALLING = 0.95
"""Sweeps go on while each increases fewer pairs, by this factor."""
MIN_SEARCH_DISCOUNT = 0.8
"""Below, a few sweeps suffice, and the best cycles are not searched for."""
START_EFFORT = 0.7
"""Predecessors visited from the best cycles before the first sweep, per pair."""
TOP_FRACTION = 0.05
"""While most pairs change, only this fraction, the largest distances, is propagated."""
MAX_TOP_EFFORT = 0.3
"""Predecessors of the largest distances visited before the next sweep, per pair."""
TOP_SETTLED_EFFORT = 0.05
"""The largest distances have converged when fewer predecessors per pair are visited."""
MAX_EFFORT = 8
"""Predecessors visited before the next sweep, per pair."""
SWEEPS_PER_EVALUATION = 3
MAX_GROWTH = 2
"""Propagation ends when so many times as many pairs are pending as at first: a better cycle was
found, and sweeps spread its value at less cost."""
PRODUCTIVE_FRACTION = 0.3
"""Cycle evaluation is repeated when it increases a cycle for more than this fraction of paths."""
MAX_ROUNDS = 1000
"""Rounds of policy iteration, which needs a few; with more, rounding makes it cycle."""
NUM_BLOCKS = 8
"""Blocks of rows of an in-place sweep."""
VISITS_PER_STEP = 4
MAX_ROW_STARTS, MAX_CYCLE_STARTS = 256, 64
"""Paths of a cycle evaluation after a sweep, and during propagation: it runs on one core."""


def solve(problem: DeterministicProblem) -> SolverResult:
    """Compute d~ of a problem of any size."""
    if problem.num_actions == 1:
        return doubling.solve(problem)
    if problem.num_states <= MAX_SERIAL_STATES:
        return _solve_small(problem)
    return _solve_large(problem)


def _solve_small(problem: DeterministicProblem) -> SolverResult:
    states = problem.num_states
    d = np.zeros((states, states))
    residual, largest, rounds = pair_kernels.solve_by_policy_iteration(
        d, np.zeros((states, states), np.uint32), np.zeros((states, states), np.uint8),
        np.empty(max(1, states * (states - 1) // 2), np.int64), problem.successor, problem.reward,
        problem.discount, problem.residual_tolerance, MAX_ROUNDS,
    )  # fmt: skip
    d += d.T
    values = d.astype(problem.dtype)
    # Rounding the matrix to float32 changes d and F(d) in the residual.
    moved = float(np.abs(values - d).max()) * (1 + problem.discount)
    details = {"method": "policy iteration", "rounds": rounds}
    return SolverResult(values, residual + moved, largest, details)


def _solve_large(problem: DeterministicProblem) -> SolverResult:
    iteration = _PolicyIteration(problem)
    pairs = iteration.num_pairs
    has_settled = iteration.start_from_best_cycle()
    num_sweeps, since, previous = 0, 0, (pairs, pairs)
    limit = SweepLimit(16 * problem.num_states)
    with show_progress(pairs, "d~: pairs settled") as progress:
        while True:
            num_increased, residual, largest = iteration.sweep(backward=num_sweeps % 2 == 1)
            num_sweeps, since = num_sweeps + 1, since + 1
            if num_increased == 0:
                break
            if limit.is_exceeded(num_sweeps, residual, problem.residual_tolerance):
                # That sweep changed the matrix; the residual of the result needs one that does not.
                _, residual, largest = iteration.sweep(write=False)
                break
            bound = residual / (1 - problem.discount)
            progress.set_position(
                pairs - num_increased, f"sweep {num_sweeps}, error <= {bound:.1g}"
            )
            few_changed = num_increased < FEW_CHANGED * pairs
            has_settled = has_settled and largest <= iteration.max_value
            # Sweeps of both directions: pairs follow each other in one of them.
            is_falling = num_increased < FALLING * max(previous)
            previous = previous[1], num_increased
            if has_settled and is_falling and num_increased > MAX_CHANGED * pairs:
                continue
            if few_changed or has_settled or since >= SWEEPS_PER_EVALUATION:
                iteration.max_value = largest
                iteration.evaluate_steepest_cycles()
                is_sparse = num_increased <= MAX_CHANGED * pairs or not is_falling
                if few_changed or (has_settled and is_sparse):
                    iteration.propagate(MAX_EFFORT, max_growth=MAX_GROWTH)
                else:
                    floor = iteration.lists.estimate_quantile(1 - TOP_FRACTION)
                    lowest = floor + iteration.max_value - largest
                    effort = iteration.propagate(MAX_TOP_EFFORT, lowest=lowest)
                    # Once the largest distances have converged, all others are propagated.
                    has_settled = iteration.max_value <= largest and effort < TOP_SETTLED_EFFORT
                since = 0
    details = {
        "method": "value iteration, cycle evaluation, propagation",
        "sweeps": num_sweeps,
        "propagated": iteration.lists.num_visited,
    }
    return SolverResult(iteration.d, residual, largest, details)


class _PolicyIteration:
    """The distance matrix, marks and work lists: about 1.6 matrices of memory in all."""

    def __init__(self, problem: DeterministicProblem) -> None:
        states = problem.num_states
        self.problem = problem
        self.num_pairs = states * (states - 1) // 2
        self.d = np.zeros((states, states), problem.dtype)
        self.lists = WorkLists(problem, self.d)
        self.marks = np.zeros((states, states), np.uint8)
        self.stamp = -1
        self.is_productive = False
        self.path_steps = 0
        self.block_rows = table_kernels.choose_block_size(states, NUM_BLOCKS)
        self.backup = np.empty((self.block_rows, states))
        self.row_stats = np.zeros((states, 4))
        self.path = np.empty(min(self.num_pairs, 2**20), np.int64)
        self.max_value = 0.0

    def start_from_best_cycle(self) -> bool:
        """Set the best cycle found to its value, and propagate that to the largest distances.
        Returns whether any was found."""
        if self.problem.discount < MIN_SEARCH_DISCOUNT or not cycle_search.mixes_fast(
            self.problem.successor
        ):
            return False
        pairs, values = cycle_search.find_cycle(self.problem, *self.lists.index[:2], self.d)
        if len(pairs) == 0:
            return False
        s, t = np.divmod(pairs, len(self.d))
        self.d[s, t] = values
        self.lists.marked[s, t] = pair_kernels.PENDING
        self.max_value = float(self.d[s, t].max())
        self.propagate(START_EFFORT)
        return True

    def sweep(self, *, backward: bool = False, write: bool = True) -> tuple[int, float, float]:
        """Sweep once, in place unless `write` is False.

        Returns how many pairs increased, the largest |F(d) - d| and the largest F(d).
        """
        p = self.problem
        table_kernels.sweep_bisimulation(
            self.d, self.backup, p.successor, p.reward, p.discount, p.residual_tolerance,
            self.lists.marked, self.row_stats, backward=backward, write=write,
        )  # fmt: skip
        num_increased, residual, largest = (
            self.row_stats[:, 0].sum(),
            self.row_stats[:, 1],
            self.row_stats[:, 2],
        )
        return int(num_increased), float(residual.max()), float(largest.max())

    def evaluate_steepest_cycles(self) -> None:
        """Evaluate the cycles from the steepest increases of some rows, then from more and more
        increased pairs, while that is productive."""
        rows = np.flatnonzero(self.row_stats[:, 0])
        rows = rows[:: 1 + len(rows) // MAX_ROW_STARTS]
        starts = rows * len(self.d) + self.row_stats[rows, 3].astype(np.int64)
        self.evaluate_cycles(starts)
        stride = 64
        while stride >= 1 and self.is_productive:
            self.evaluate_cycles(pair_kernels.list_marked(self.lists.marked, stride))
            stride //= 4

    def evaluate_cycles(self, starts: NDArray[np.int64]) -> None:
        """Evaluate the cycles from some pairs, and list what increases."""
        p, lists = self.problem, self.lists
        queue_length, num_pending = lists.queue_length, lists.num_pending
        lists.queue_length, lists.num_pending, largest, num_paths, num_lifted, self.path_steps = (
            pair_kernels.evaluate_cycles(
                self.d, starts, self.next_stamp(), self.marks, self.path, p.successor, p.reward,
                p.discount, p.residual_tolerance, lists.floors, lists.marked, lists.queue,
                queue_length, lists.pending, lists.pending_values, num_pending,
            )
        )  # fmt: skip
        self.max_value = max(self.max_value, largest)
        self.is_productive = num_lifted > PRODUCTIVE_FRACTION * num_paths

    def propagate(
        self, max_effort: float, *, lowest: float = -np.inf, max_growth: float = np.inf
    ) -> float:
        """Propagate the marked pairs of at least `lowest`, the largest first: most pairs then
        increase only once.

        Stops when more than `max_effort` predecessors per pair have been visited. Returns how many.
        """
        lists = self.lists
        lists.lowest = lowest
        first = last_evaluation = lists.num_visited
        limit = lists.num_visited + max_effort * self.num_pairs
        max_listed, visits_per_step = np.inf, VISITS_PER_STEP
        while lists.num_visited <= limit:
            if lists.is_settled:
                if lists.num_pending == 0:
                    max_listed = np.inf
                if not lists.start_layer():
                    break
            num_listed = lists.num_pending + lists.queue_length
            if num_listed > max_listed:
                break
            max_listed = min(max_listed, max_growth * num_listed)
            # Cycle evaluation takes no more of the time than propagation, and less and less while
            # it finds nothing: it runs on one core.
            next_evaluation = last_evaluation + visits_per_step * self.path_steps
            if not lists.propagate(max_listed, min(limit, next_evaluation)):
                break
            if lists.num_visited >= next_evaluation and lists.queue_length:
                count = min(lists.queue_length, MAX_CYCLE_STARTS)
                starts = np.linspace(0, lists.queue_length - 1, count).astype(np.int64)
                self.evaluate_cycles(lists.queue[starts])
                last_evaluation = lists.num_visited
                visits_per_step = VISITS_PER_STEP if self.is_productive else 2 * visits_per_step
        lists.clear()
        return (lists.num_visited - first) / self.num_pairs

    def next_stamp(self) -> int:
        """Return a mark for the pairs that an evaluation visits, two above the last."""
        self.stamp += 2
        if self.stamp > 250:
            self.marks[:] = 0
            self.stamp = 1
        return self.stamp

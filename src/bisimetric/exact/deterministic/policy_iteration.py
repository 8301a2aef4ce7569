"""d~ of a deterministic MDP: monotone iteration of lower bounds, from below.

d~ is the optimal value function of the pair graph, in which one action moves both states (Ferns &
Precup 2014). Three operations increase the bounds:

    Bellman sweep      one in-place update per pair (value iteration)
    cycle evaluation   from pairs that still increase, greedy actions are followed into a cycle,
                       which is set to its infinite-horizon value at once (policy iteration)
    propagation        increases propagate to predecessor pairs through a work list (prioritised
                       sweeping); while many pairs still change, only those of the largest
                       distances, where the cycles are

The iteration has converged when a sweep increases nothing; its residual proves the error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bisimetric._progress import ProgressBar, show_progress
from bisimetric.exact._request import SolverResult, SweepLimit
from bisimetric.exact.deterministic import doubling, pair_kernels, table_kernels
from bisimetric.exact.deterministic.problem import MAX_SERIAL_STATES, DeterministicProblem

FEW_CHANGED = 0.025
"""When a sweep increases less than this fraction of pairs, propagation does the rest."""
MAX_WORK_LIST = 0.1
"""A work list is propagated while its predecessors are at most this fraction of all pairs."""
TOP_FRACTION = 0.02
"""While most pairs change, only this fraction, the largest distances, is propagated."""
TOP_SETTLED_EFFORT = 0.05
"""The largest distances have converged when fewer predecessors than this fraction are visited."""
MAX_TOP_EFFORT = 0.1
"""Predecessors of the largest distances visited before the next sweep, per pair."""
MAX_CHANGED = 0.05
"""While a sweep increases more than this fraction of pairs, sweeps take less time than propagation:
their reads are in order, and they run on all cores."""
FALLING = 0.95
"""Sweeps go on while each increases fewer pairs, by this factor."""
LAYER_FRACTION = 0.02
"""The fraction of pairs that are propagated together."""
MAX_EFFORT_PER_PAIR = 8
"""Predecessors visited before the next sweep, per pair."""
SPARSE_WRITE_FRACTION = 0.2
"""A block with fewer changes than this fraction is written entry by entry."""
PRODUCTIVE_FRACTION = 0.3
"""Cycle evaluation is repeated when it increases a cycle for more than this fraction of paths."""
MAX_ROUNDS = 1000
"""Rounds of policy iteration, which needs a few; with more, rounding makes it cycle."""
SWEEPS_PER_EVALUATION = 3
NUM_BLOCKS = 8
"""Blocks of rows of an in-place sweep."""
PROPAGATIONS_PER_EVALUATION = 8
MAX_CYCLE_STARTS = 2000


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
    num_sweeps, since, few_changed, has_settled, previous = 0, 0, False, False, pairs
    limit = SweepLimit(16 * problem.num_states)
    with show_progress(pairs, "d~: pairs settled") as progress:
        while True:
            num_increased, residual, largest = iteration.sweep(
                backward=num_sweeps % 2 == 1,
                find_steepest=few_changed or has_settled or since + 1 >= SWEEPS_PER_EVALUATION,
            )
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
            is_falling = num_increased < FALLING * previous
            previous = num_increased
            if has_settled and is_falling and num_increased > MAX_CHANGED * pairs:
                continue
            if few_changed or has_settled or since >= SWEEPS_PER_EVALUATION:
                iteration.max_value = largest
                iteration.evaluate_steepest_cycles()
                effort = iteration.propagate_layer(
                    iteration.estimate_quantile(1 - TOP_FRACTION) + iteration.max_value - largest,
                    MAX_TOP_EFFORT,
                )
                # Once the largest distances have converged, propagate all others in their order.
                has_settled = iteration.max_value <= largest and effort < TOP_SETTLED_EFFORT * pairs
                is_sparse = num_increased <= MAX_CHANGED * pairs or not is_falling
                if few_changed or (has_settled and is_sparse):
                    iteration.propagate_all_layers(progress)
                iteration.finish_propagation()
                since = 0
    details = {
        "method": "value iteration, cycle evaluation, propagation",
        "sweeps": num_sweeps,
        "propagated": iteration.num_propagated,
    }
    return SolverResult(iteration.d, residual, largest, details)


class _PolicyIteration:
    """The distance matrix, marks and work lists: about 1.6 matrices of memory in all."""

    def __init__(self, problem: DeterministicProblem) -> None:
        states = problem.num_states
        self.problem = problem
        self.num_pairs = states * (states - 1) // 2
        self.d = np.zeros((states, states), problem.dtype)
        self.changed = np.zeros((states, -(-states // 8) * 8), np.bool_)
        self.marks = np.zeros((states, states), np.uint8)
        self.stamp = -1
        self.is_productive = False
        self.path_steps = 0
        self.block_rows = table_kernels.choose_block_size(states, NUM_BLOCKS)
        self.backup = np.empty((self.block_rows, states))
        self.row_stats = np.zeros((states, 4))
        self.row_starts = np.zeros(states + 1, np.int64)
        parts = pair_kernels.NUM_CHUNKS * pair_kernels.NUM_PARTITIONS
        capacity = int(MAX_WORK_LIST * self.num_pairs) + parts
        self.queue, self.next_queue = np.empty(capacity, np.int64), np.empty(capacity, np.int64)
        self.candidate_pairs, self.candidate_values = (
            np.empty(capacity, np.int64),
            np.empty(capacity),
        )
        self.path = np.empty(min(self.num_pairs, 2**20), np.int64)
        self.predecessor_starts, self.predecessors = _index_predecessors(problem.successor)
        self.num_propagated = 0
        self.max_value = 0.0
        # A low-discrepancy sample of pairs t <= s.
        k = np.arange(20_000)
        points = np.stack([k * 0.6180339887498949 % 1, k * 0.7548776662466927 % 1]) * states
        s, t = points.astype(np.int64)
        self.sample_pairs = (np.maximum(s, t), np.minimum(s, t))

    def sweep(
        self, *, backward: bool = False, find_steepest: bool = False, write: bool = True
    ) -> tuple[int, float, float]:
        """Sweep once, in place unless `write` is False.

        Returns how many pairs increased, the largest |F(d) - d| and the largest F(d).
        """
        states, p = self.problem.num_states, self.problem
        blocks = range(0, states, self.block_rows)
        for low in reversed(blocks) if backward else blocks:
            high = min(states, low + self.block_rows)
            table_kernels.sweep_bisimulation_block(
                self.d, self.backup, low, high, p.successor, p.reward, p.discount,
                p.residual_tolerance, self.changed, self.row_stats, find_steepest,
            )  # fmt: skip
            fraction = self.row_stats[low:high, 0].sum() / max(1, (high - low) * (high + low) // 2)
            if write and fraction > SPARSE_WRITE_FRACTION:
                table_kernels.write_block(self.d, self.backup, low, high)
            elif write and fraction > 0:
                table_kernels.write_changes(self.d, self.backup, low, high, self.changed)
        num_increased, residual, largest = (
            self.row_stats[:, 0].sum(),
            self.row_stats[:, 1],
            self.row_stats[:, 2],
        )
        return int(num_increased), float(residual.max()), float(largest.max())

    def evaluate_steepest_cycles(self) -> None:
        """Evaluate the cycles from the steepest increase of each row, then from more and more
        increased pairs, while that is productive."""
        rows = np.flatnonzero(self.row_stats[:, 0])
        self.evaluate_cycles(rows * len(self.d) + self.row_stats[rows, 3].astype(np.int64), 0)
        stride = 64
        while stride >= 1 and self.is_productive:
            p = self.problem
            self.record_evaluation(
                0,
                *pair_kernels.evaluate_marked_cycles(
                    self.d, stride, self.next_stamp(), self.marks, self.path, p.successor,
                    p.reward, p.discount, p.residual_tolerance, self.queue, self.changed,
                ),
            )  # fmt: skip
            stride //= 4

    def propagate_layer(self, floor: float, max_effort: float = 1.0) -> int:
        """Propagate the marked pairs of at least `floor` until none is left; return the number of
        predecessors visited."""
        p, states = self.problem, len(self.d)
        count = table_kernels.collect_changed(
            self.d, self.changed, floor, self.row_starts, self.queue
        )
        effort, generation, last_evaluation = 0, 0, 0
        while count > 0 and effort <= max_effort * self.num_pairs:
            num_predecessors = pair_kernels.count_predecessors(
                self.queue, count, states, self.predecessor_starts
            )
            if num_predecessors > MAX_WORK_LIST * self.num_pairs:
                break
            count = pair_kernels.propagate(
                self.d, self.queue, count, self.next_queue, self.changed, self.candidate_pairs,
                self.candidate_values, self.predecessor_starts, self.predecessors, p.reward,
                p.discount, p.residual_tolerance, floor, num_predecessors,
            )  # fmt: skip
            self.queue, self.next_queue = self.next_queue, self.queue
            effort, generation = effort + num_predecessors, generation + 1
            # Cycle evaluation takes no more of the time than propagation, however long its paths.
            earned = effort - last_evaluation >= self.path_steps
            if count > 0 and generation % PROPAGATIONS_PER_EVALUATION == 0 and earned:
                starts = np.linspace(0, count - 1, min(count, MAX_CYCLE_STARTS)).astype(np.int64)
                count = self.evaluate_cycles(self.queue[starts], count)
                last_evaluation = effort
        self.num_propagated += effort
        return effort

    def propagate_all_layers(self, progress: ProgressBar) -> None:
        """Propagate all marked pairs, the largest first: most then increase only once."""
        s, t = self.sample_pairs
        effort = 0
        while effort <= MAX_EFFORT_PER_PAIR * self.num_pairs:
            marked = self.d[s, t][self.changed[s, t]]
            progress.set_position(self.num_pairs * (1 - len(marked) / len(s)), "propagation")
            fraction = LAYER_FRACTION * len(s) / max(1, len(marked))
            floor = float(np.quantile(marked, 1 - fraction)) if fraction < 0.7 else -1.0
            top = self.max_value
            visited = self.propagate_layer(floor)
            # A better cycle changes all of this again; the next sweeps do that at less cost.
            if floor < 0 or visited == 0 or self.max_value > top:
                return
            effort += visited

    def finish_propagation(self) -> None:
        """Clear the marks and mirror the matrix, for the next sweep."""
        self.changed[:] = False
        table_kernels.mirror(self.d)

    def evaluate_cycles(self, starts: NDArray[np.int64], queue_length: int) -> int:
        """Evaluate the cycles from some pairs, queue what increases, return the queue length."""
        p = self.problem
        return self.record_evaluation(
            queue_length,
            *pair_kernels.evaluate_cycles(
                self.d, starts, len(starts), self.next_stamp(), self.marks, self.path,
                p.successor, p.reward, p.discount, p.residual_tolerance, self.queue, self.changed,
                queue_length,
            ),
        )  # fmt: skip

    def record_evaluation(
        self, queue_length: int, count: int, num_paths: int, num_lifted: int, steps: int
    ) -> int:
        """Record the statistics of a cycle evaluation; return the queue length."""
        s, t = np.divmod(self.queue[queue_length:count], len(self.d))
        self.max_value = max(self.max_value, float(self.d[s, t].max(initial=0.0)))
        self.is_productive = num_lifted > PRODUCTIVE_FRACTION * num_paths
        self.path_steps = steps
        return int(count)

    def next_stamp(self) -> int:
        """Return a mark for the pairs that an evaluation visits, two above the last."""
        self.stamp += 2
        if self.stamp > 250:
            self.marks[:] = 0
            self.stamp = 1
        return self.stamp

    def estimate_quantile(self, fraction: float) -> float:
        """Estimate a quantile of the distances from the sample."""
        return float(np.quantile(self.d[self.sample_pairs], fraction))


def _index_predecessors(successor: NDArray[np.uint32]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Sort the states of each action by successor: those of s start at starts[a, s]."""
    actions, states = successor.shape
    starts = np.zeros((actions, states + 1), np.int64)
    predecessors = np.argsort(successor, axis=1, kind="stable").astype(np.uint32)
    for a in range(actions):
        starts[a, 1:] = np.cumsum(np.bincount(successor[a], minlength=states))
    return starts, predecessors

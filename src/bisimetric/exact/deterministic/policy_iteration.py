"""d~ of a deterministic MDP: a table of lower bounds that rises to it.

d~ is the optimal value function of the pair graph, in which one action moves both states (Ferns &
Precup 2014). Three moves raise the table:

    sweep   every pair takes its best action once (value iteration, in place)
    leap    from pairs that still rise, the best actions are followed into a cycle; what it is
            worth for ever is set at once, instead of one discount factor a sweep
    push    pairs that rose hand it on to their predecessors, from a work list; while most pairs
            still rise, only among the largest distances, where the cycles lie

The end is a sweep in which nothing rises; its residual proves the error.
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
"""When less than this share of pairs rises in a sweep, the rest is left to pushes."""
MAX_WORK_LIST = 0.1
"""A work list is pushed on while its predecessors are at most this share of all pairs."""
TOP_FRACTION = 0.02
"""While most pairs change, only this share, the largest distances, is worked out at once."""
TOP_SETTLED_EFFORT = 0.05
"""The top is at rest when a push there looks at fewer predecessors than this share of pairs."""
LAYER_FRACTION = 0.02
"""The share of pairs that are handed on together."""
MAX_EFFORT_PER_PAIR = 8
"""Predecessors a pair that are looked at before the next sweep."""
SPARSE_WRITE_FRACTION = 0.2
"""A block in which less than this share has changed is written entry by entry."""
PRODUCTIVE_FRACTION = 0.3
"""Leaps that lift a cycle for more than this share of their pairs are worth repeating."""
MAX_ROUNDS = 1000
"""Rounds of policy iteration, which needs a few; more mean that rounding leads it in circles."""
SWEEPS_PER_EVALUATION = 3
PROPAGATIONS_PER_EVALUATION = 8
MAX_CYCLE_STARTS = 2000


def solve(problem: DeterministicProblem) -> SolverResult:
    """The table of d~ for a problem of any size."""
    if problem.num_actions == 1:
        return doubling.solve(problem)
    return (
        _solve_small(problem) if problem.num_states <= MAX_SERIAL_STATES else _solve_large(problem)
    )


def _solve_small(problem: DeterministicProblem) -> SolverResult:
    states = problem.num_states
    d = np.zeros((states, states))
    residual, largest, rounds = pair_kernels.solve_by_policy_iteration(
        d,
        np.zeros((states, states), np.uint32),
        np.zeros((states, states), np.uint8),
        np.empty(max(1, states * (states - 1) // 2), np.int64),
        problem.successor,
        problem.reward,
        problem.discount,
        problem.residual_tolerance,
        MAX_ROUNDS,
    )
    d += d.T
    values = d.astype(problem.dtype)
    # A table that is rounded to float32 differs from its residual's by that rounding, twice.
    moved = float(np.abs(values - d).max()) * (1 + problem.discount)
    return SolverResult(
        values, residual + moved, largest, {"method": "policy iteration", "rounds": rounds}
    )


def _solve_large(problem: DeterministicProblem) -> SolverResult:
    space = _PolicyIteration(problem)
    pairs = space.num_pairs
    number, since, few = 0, 0, False
    limit = SweepLimit(16 * problem.num_states)
    with show_progress(pairs, "d~: pairs settled") as shown:
        while True:
            rose, residual, largest = space.sweep(
                backward=number % 2 == 1, find_steepest=few or since + 1 >= SWEEPS_PER_EVALUATION
            )
            number, since = number + 1, since + 1
            if rose == 0:
                break
            if limit.is_exceeded(number, residual, problem.residual_tolerance):
                # The sweep changed the table; this one does not, so its residual is the table's.
                _, residual, largest = space.sweep(write=False)
                break
            bound = residual / (1 - problem.discount)
            shown.set_position(pairs - rose, f"sweep {number}, error <= {bound:.1g}")
            few = rose < FEW_CHANGED * pairs
            if few or since >= SWEEPS_PER_EVALUATION:
                space.max_value = largest
                space.evaluate_steepest_cycles()
                effort = space.propagate_layer(
                    space.estimate_quantile(1 - TOP_FRACTION) + space.max_value - largest
                )
                # Once the top is at rest, all else is worth working out, from the top down.
                if few or (space.max_value <= largest and effort < TOP_SETTLED_EFFORT * pairs):
                    space.propagate_all_layers(shown)
                space.finish_propagation()
                since = 0
    how = {"method": "sweep, leap, push", "sweeps": number, "pushed": space.num_propagated}
    return SolverResult(space.d, residual, largest, how)


class _PolicyIteration:
    """The table, the marks and the work lists: about 1.5 tables of memory in all."""

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
        self.block_rows = table_kernels.choose_block_size(states)
        self.backup = np.empty((self.block_rows, states))
        self.row_stats = np.zeros((states, 4))
        self.row_starts = np.zeros(states + 1, np.int64)
        room = int(MAX_WORK_LIST * self.num_pairs) + pair_kernels.NUM_CHUNKS
        self.queue, self.next_queue = np.empty(room, np.int64), np.empty(room, np.int64)
        self.candidate_pairs, self.candidate_values = np.empty(room, np.int64), np.empty(room)
        self.path = np.empty(min(self.num_pairs, 2**20), np.int64)
        self.predecessor_starts, self.predecessors = _index_predecessors(problem.successor)
        self.num_propagated = 0
        self.max_value = 0.0
        # Some pairs t <= s, spread evenly over the table.
        k = np.arange(50_000)
        places = np.stack([k * 0.6180339887498949 % 1, k * 0.7548776662466927 % 1]) * states
        s, t = places.astype(np.int64)
        self.sample_pairs = (np.maximum(s, t), np.minimum(s, t))

    def sweep(
        self, *, backward: bool = False, find_steepest: bool = False, write: bool = True
    ) -> tuple[int, float, float]:
        """One sweep, in place unless it only looks.

        Returns how many pairs rose, the largest |F(d) - d| and the largest F(d).
        """
        states, p = self.problem.num_states, self.problem
        blocks = range(0, states, self.block_rows)
        for low in reversed(blocks) if backward else blocks:
            high = min(states, low + self.block_rows)
            table_kernels.sweep_bisimulation_block(
                self.d, self.backup, low, high, p.successor, p.reward, p.discount, p.residual_tolerance,
                self.changed, self.row_stats, find_steepest,
            )  # fmt: skip
            share = self.row_stats[low:high, 0].sum() / max(1, (high - low) * (high + low) // 2)
            if share > 0 and write:
                many = share > SPARSE_WRITE_FRACTION
                table_kernels.write_changes(self.d, self.backup, low, high, self.changed, many)
        rose, residual, largest = (
            self.row_stats[:, 0].sum(),
            self.row_stats[:, 1],
            self.row_stats[:, 2],
        )
        return int(rose), float(residual.max()), float(largest.max())

    def evaluate_steepest_cycles(self) -> None:
        """Leaps from the pair of each row that rose most; from more and more of the pairs that
        rose, while that finds many cycles."""
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

    def propagate_layer(self, floor: float) -> int:
        """Hands on the marked pairs of at least `floor` until no more rise; returns the effort,
        the number of predecessors looked at."""
        p, states = self.problem, len(self.d)
        count = table_kernels.collect_changed(
            self.d, self.changed, floor, self.row_starts, self.queue
        )
        effort, generation, at_last_leap = 0, 0, 0
        while count > 0 and effort <= self.num_pairs:
            wide = pair_kernels.count_predecessors(
                self.queue, count, states, self.predecessor_starts
            )
            if wide > MAX_WORK_LIST * self.num_pairs:
                break
            count = pair_kernels.propagate(
                self.d, self.queue, count, self.next_queue, self.changed, self.candidate_pairs, self.candidate_values,
                self.predecessor_starts, self.predecessors, p.reward, p.discount, p.residual_tolerance, floor,
                wide,
            )  # fmt: skip
            self.queue, self.next_queue = self.next_queue, self.queue
            effort, generation = effort + wide, generation + 1
            # Leaps take no more of the time than pushes, however long their paths are.
            earned = effort - at_last_leap >= self.path_steps
            if count > 0 and generation % PROPAGATIONS_PER_EVALUATION == 0 and earned:
                some = np.linspace(0, count - 1, min(count, MAX_CYCLE_STARTS)).astype(np.int64)
                count = self.evaluate_cycles(self.queue[some], count)
                at_last_leap = effort
        self.num_propagated += effort
        return effort

    def propagate_all_layers(self, progress: ProgressBar) -> None:
        """Hands on all marked pairs, the largest first: most then rise only once."""
        s, t = self.sample_pairs
        effort = 0
        while effort <= MAX_EFFORT_PER_PAIR * self.num_pairs:
            marked = self.d[s, t][self.changed[s, t]]
            progress.set_position(self.num_pairs * (1 - len(marked) / len(s)), "from the top down")
            share = LAYER_FRACTION * len(s) / max(1, len(marked))
            floor = float(np.quantile(marked, 1 - share)) if share < 0.7 else -1.0
            top = self.max_value
            worth = self.propagate_layer(floor)
            # A better cycle makes all of this anew; the next sweeps spread it at less cost.
            if floor < 0 or worth == 0 or self.max_value > top:
                return
            effort += worth

    def finish_propagation(self) -> None:
        """Makes the table ready for a sweep again."""
        self.changed[:] = False
        table_kernels.mirror(self.d)

    def evaluate_cycles(self, starts: NDArray[np.int64], queue_length: int) -> int:
        """Leaps from some pairs; what rises joins the queue, whose new length is returned."""
        p = self.problem
        return self.record_evaluation(
            queue_length,
            *pair_kernels.evaluate_cycles(
                self.d, starts, len(starts), self.next_stamp(), self.marks, self.path,
                p.successor, p.reward, p.discount, p.residual_tolerance, self.queue, self.changed, queue_length,
            ),
        )  # fmt: skip

    def record_evaluation(
        self, queue_length: int, count: int, num_paths: int, num_lifted: int, steps: int
    ) -> int:
        """Takes note of what a leap has found; returns the length of the queue."""
        s, t = np.divmod(self.queue[queue_length:count], len(self.d))
        self.max_value = max(self.max_value, float(self.d[s, t].max(initial=0.0)))
        self.is_productive = num_lifted > PRODUCTIVE_FRACTION * num_paths
        self.path_steps = steps
        return int(count)

    def next_stamp(self) -> int:
        """A mark for the pairs that a leap has visited, two above the last."""
        self.stamp += 2
        if self.stamp > 250:
            self.marks[:] = 0
            self.stamp = 1
        return self.stamp

    def estimate_quantile(self, share: float) -> float:
        """About the given quantile of the table."""
        return float(np.quantile(self.d[self.sample_pairs], share))


def _index_predecessors(successor: NDArray[np.uint32]) -> tuple[NDArray[Any], NDArray[Any]]:
    """For each action, the states by successor: those of s are before[a, first[a, s]:...]."""
    actions, states = successor.shape
    first = np.zeros((actions, states + 1), np.int64)
    before = np.argsort(successor, axis=1, kind="stable").astype(np.uint32)
    for a in range(actions):
        first[a, 1:] = np.cumsum(np.bincount(successor[a], minlength=states))
    return first, before

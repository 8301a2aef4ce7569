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

from bisimetric.exact.convergence import SweepLimit
from bisimetric.exact.deterministic import doubling, paths, sweeps
from bisimetric.exact.deterministic.problem import LARGE, Problem
from bisimetric.exact.table import Table
from bisimetric.progress import Bar, bar

FEW = 0.025
"""When less than this share of pairs rises in a sweep, the rest is left to pushes."""
NARROW = 0.1
"""A work list is pushed on while its predecessors are at most this share of all pairs."""
FOCUS = 0.02
"""While most pairs change, only this share, the largest distances, is worked out at once."""
EASY = 0.05
"""The top is at rest when a push there looks at fewer predecessors than this share of pairs."""
LAYER = 0.02
"""The share of pairs that are handed on together."""
ENOUGH = 8
"""Predecessors a pair that are looked at before the next sweep."""
SCATTERED = 0.2
"""A block in which less than this share has changed is written entry by entry."""
MANY = 0.3
"""Leaps that lift a cycle for more than this share of their pairs are worth repeating."""
MAX_ROUNDS = 1000
"""Rounds of policy iteration, which needs a few; more mean that rounding leads it in circles."""
SWEEPS_BETWEEN = 3
PUSHES_BETWEEN = 8
LEAPS_AT_ONCE = 2000


def solve(problem: Problem) -> Table:
    """The table of d~ for a problem of any size."""
    if problem.num_actions == 1:
        return doubling.solve(problem)
    return _solve_small(problem) if problem.num_states <= LARGE else _solve_large(problem)


def _solve_small(problem: Problem) -> Table:
    states = problem.num_states
    d = np.zeros((states, states))
    residual, largest, rounds = paths.policy_iteration(
        d,
        np.zeros((states, states), np.uint32),
        np.zeros((states, states), np.uint8),
        np.empty(max(1, states * (states - 1) // 2), np.int64),
        problem.successor,
        problem.reward,
        problem.discount,
        problem.least,
        MAX_ROUNDS,
    )
    d += d.T
    values = d.astype(problem.dtype)
    # A table that is rounded to float32 differs from its residual's by that rounding, twice.
    moved = float(np.abs(values - d).max()) * (1 + problem.discount)
    return Table(
        values, residual + moved, largest, {"method": "policy iteration", "rounds": rounds}
    )


def _solve_large(problem: Problem) -> Table:
    space = _Workspace(problem)
    pairs = space.pairs
    number, since, few = 0, 0, False
    limit = SweepLimit(16 * problem.num_states)
    with bar(pairs, "d~: pairs settled") as shown:
        while True:
            rose, residual, largest = space.sweep(
                backward=number % 2 == 1, seek=few or since + 1 >= SWEEPS_BETWEEN
            )
            number, since = number + 1, since + 1
            if rose == 0:
                break
            if limit.exceeds(number, residual, problem.least):
                # The sweep changed the table; this one does not, so its residual is the table's.
                _, residual, largest = space.sweep(write=False)
                break
            bound = residual / (1 - problem.discount)
            shown.at(pairs - rose, f"sweep {number}, error <= {bound:.1g}")
            few = rose < FEW * pairs
            if few or since >= SWEEPS_BETWEEN:
                space.top = largest
                space.leap_from_steepest()
                effort = space.push_layer(space.quantile(1 - FOCUS) + space.top - largest)
                # Once the top is at rest, all else is worth working out, from the top down.
                if few or (space.top <= largest and effort < EASY * pairs):
                    space.push_all_layers(shown)
                space.tidy()
                since = 0
    how = {"method": "sweep, leap, push", "sweeps": number, "pushed": space.pushed}
    return Table(space.d, residual, largest, how)


class _Workspace:
    """The table, the marks and the work lists: about 1.5 tables of memory in all."""

    def __init__(self, problem: Problem) -> None:
        states = problem.num_states
        self.problem = problem
        self.pairs = states * (states - 1) // 2
        self.d = np.zeros((states, states), problem.dtype)
        self.changed = np.zeros((states, -(-states // 8) * 8), np.bool_)
        self.marks = np.zeros((states, states), np.uint8)
        self.stamp = -1
        self.found_many = False
        self.steps = 0
        self.block = sweeps.block_size(states)
        self.fresh = np.empty((self.block, states))
        self.tally = np.zeros((states, 4))
        self.starts = np.zeros(states + 1, np.int64)
        room = int(NARROW * self.pairs) + paths.CHUNKS
        self.queue, self.following = np.empty(room, np.int64), np.empty(room, np.int64)
        self.spill, self.spilled = np.empty(room, np.int64), np.empty(room)
        self.path = np.empty(min(self.pairs, 2**20), np.int64)
        self.first, self.before = _predecessors(problem.successor)
        self.pushed = 0
        self.top = 0.0
        # Some pairs t <= s, spread evenly over the table.
        k = np.arange(50_000)
        places = np.stack([k * 0.6180339887498949 % 1, k * 0.7548776662466927 % 1]) * states
        s, t = places.astype(np.int64)
        self.sample = (np.maximum(s, t), np.minimum(s, t))

    def sweep(
        self, *, backward: bool = False, seek: bool = False, write: bool = True
    ) -> tuple[int, float, float]:
        """One sweep, in place unless it only looks.

        Returns how many pairs rose, the largest |F(d) - d| and the largest F(d).
        """
        states, p = self.problem.num_states, self.problem
        blocks = range(0, states, self.block)
        for low in reversed(blocks) if backward else blocks:
            high = min(states, low + self.block)
            sweeps.bisimulation_block(
                self.d, self.fresh, low, high, p.successor, p.reward, p.discount, p.least,
                self.changed, self.tally, seek,
            )  # fmt: skip
            share = self.tally[low:high, 0].sum() / max(1, (high - low) * (high + low) // 2)
            if share > 0 and write:
                many = share > SCATTERED
                sweeps.write_changes(self.d, self.fresh, low, high, self.changed, many)
        rose, residual, largest = self.tally[:, 0].sum(), self.tally[:, 1], self.tally[:, 2]
        return int(rose), float(residual.max()), float(largest.max())

    def leap_from_steepest(self) -> None:
        """Leaps from the pair of each row that rose most; from more and more of the pairs that
        rose, while that finds many cycles."""
        rows = np.flatnonzero(self.tally[:, 0])
        self.leap(rows * len(self.d) + self.tally[rows, 3].astype(np.int64), 0)
        stride = 64
        while stride >= 1 and self.found_many:
            p = self.problem
            self.took(
                0,
                *paths.leap_everywhere(
                    self.d, stride, self.fresh_stamp(), self.marks, self.path, p.successor,
                    p.reward, p.discount, p.least, self.queue, self.changed,
                ),
            )  # fmt: skip
            stride //= 4

    def push_layer(self, floor: float) -> int:
        """Hands on the marked pairs of at least `floor` until no more rise; returns the effort,
        the number of predecessors looked at."""
        p, states = self.problem, len(self.d)
        count = sweeps.collect(self.d, self.changed, floor, self.starts, self.queue)
        effort, generation, at_last_leap = 0, 0, 0
        while count > 0 and effort <= self.pairs:
            wide = paths.work(self.queue, count, states, self.first)
            if wide > NARROW * self.pairs:
                break
            count = paths.push(
                self.d, self.queue, count, self.following, self.changed, self.spill, self.spilled,
                self.first, self.before, p.reward, p.discount, p.least, floor,
                wide,
            )  # fmt: skip
            self.queue, self.following = self.following, self.queue
            effort, generation = effort + wide, generation + 1
            # Leaps take no more of the time than pushes, however long their paths are.
            earned = effort - at_last_leap >= self.steps
            if count > 0 and generation % PUSHES_BETWEEN == 0 and earned:
                some = np.linspace(0, count - 1, min(count, LEAPS_AT_ONCE)).astype(np.int64)
                count = self.leap(self.queue[some], count)
                at_last_leap = effort
        self.pushed += effort
        return effort

    def push_all_layers(self, shown: Bar) -> None:
        """Hands on all marked pairs, the largest first: most then rise only once."""
        s, t = self.sample
        effort = 0
        while effort <= ENOUGH * self.pairs:
            marked = self.d[s, t][self.changed[s, t]]
            shown.at(self.pairs * (1 - len(marked) / len(s)), "from the top down")
            share = LAYER * len(s) / max(1, len(marked))
            floor = float(np.quantile(marked, 1 - share)) if share < 0.7 else -1.0
            top = self.top
            worth = self.push_layer(floor)
            # A better cycle makes all of this anew; the next sweeps spread it at less cost.
            if floor < 0 or worth == 0 or self.top > top:
                return
            effort += worth

    def tidy(self) -> None:
        """Makes the table ready for a sweep again."""
        self.changed[:] = False
        sweeps.mirror(self.d)

    def leap(self, starts: NDArray[np.int64], before: int) -> int:
        """Leaps from some pairs; what rises joins the queue, whose new length is returned."""
        p = self.problem
        return self.took(
            before,
            *paths.leap(
                self.d, starts, len(starts), self.fresh_stamp(), self.marks, self.path,
                p.successor, p.reward, p.discount, p.least, self.queue, self.changed, before,
            ),
        )  # fmt: skip

    def took(self, before: int, count: int, alone: int, lifted: int, steps: int) -> int:
        """Takes note of what a leap has found; returns the length of the queue."""
        s, t = np.divmod(self.queue[before:count], len(self.d))
        self.top = max(self.top, float(self.d[s, t].max(initial=0.0)))
        self.found_many = lifted > MANY * alone
        self.steps = steps
        return int(count)

    def fresh_stamp(self) -> int:
        """A mark for the pairs that a leap has visited, two above the last."""
        self.stamp += 2
        if self.stamp > 250:
            self.marks[:] = 0
            self.stamp = 1
        return self.stamp

    def quantile(self, share: float) -> float:
        """About the given quantile of the table."""
        return float(np.quantile(self.d[self.sample], share))


def _predecessors(successor: NDArray[np.uint32]) -> tuple[NDArray[Any], NDArray[Any]]:
    """For each action, the states by successor: those of s are before[a, first[a, s]:...]."""
    actions, states = successor.shape
    first = np.zeros((actions, states + 1), np.int64)
    before = np.argsort(successor, axis=1, kind="stable").astype(np.uint32)
    for a in range(actions):
        first[a, 1:] = np.cumsum(np.bincount(successor[a], minlength=states))
    return first, before

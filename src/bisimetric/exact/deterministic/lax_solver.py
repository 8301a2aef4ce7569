"""d_lax of a deterministic MDP: the value of a game on the pair graph.

The greedy choices of both players send each pair to one other, so that their value is computed
exactly, in one visit per pair. Taking their infinite-horizon value as the next matrix is a Newton
step (Pollatschek & Avi-Itzhak 1969), which may diverge in games. So it is that of lambda-policy
iteration (Bertsekas & Ioffe 1996), which trusts a choice less the later it is made:

    start     in-place sweeps; a multiple of 1 is added to all distances, since their mean
              approaches its limit only as discount^k
    rounds    one in-place sweep that records the greedy choices, then their value, with a lambda
              that is nearer to 1 the fewer choices changed in the last round

Both are in single precision until rounding matters, and then in double precision.

If that fails to reduce the residual, the actions of the maximising player are held until the
responses to them are optimal (Hoffman & Karp 1966): those values increase monotonically, at any
discount. Where rounding spoils even that, value iteration does the rest. The residual of the result
proves its error.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from bisimetric._progress import ProgressBar, convergence_fraction, show_progress
from bisimetric._rounding import choose_scale
from bisimetric.exact._request import SolverResult, SweepLimit
from bisimetric.exact.deterministic import evaluation_kernels, lax_kernels, table_kernels
from bisimetric.exact.deterministic.problem import (
    MAX_SERIAL_STATES,
    DeterministicProblem,
    sample_pairs,
)

MAX_START_SWEEPS = 24
START_REDUCTION = 0.05
"""The start ends when the residual is this fraction of the first."""
FIRST_SHIFT = 4
"""Sweeps before the mean is extrapolated for the first time."""
SWEEPS_PER_SHIFT = 3
CHANGE_RATE = 2.0
"""The rate at which trust in a choice decays per step, in units of the fraction that changed."""
GOOD_STEP = 0.75
"""Precise steps go on while each reduces the residual to this fraction."""
PATIENCE, HOLD_PATIENCE = 24, 200
"""Rounds in which the residual must halve, the second while actions are held."""
DIVERGED = 8
"""Steps have failed when the residual is so many times that of the start."""
MAX_ROUNDS = 10_000
SWEEPS_PER_HOLD = 64
"""Sweeps between two rounds while actions are held: responses are then nearly optimal."""
MAX_RESPONSES = 50
"""Rounds of policy iteration over the responses."""
NUM_BLOCKS = 4
"""Blocks of rows of an in-place sweep."""
CODE_MARGIN, START_CODE_MARGIN = 4, 8
"""Sweeps with choices end at a residual of so many times their error, the second in single
precision, where choices between nearly equal actions never settle."""
MAX_START_ERROR = 0.01
"""The largest relative error of a useful start in single precision."""
SINGLE = np.finfo(np.float32)
NUM_SAMPLES = 4_000
"""Pairs on which the mean change of a sweep is measured."""


def solve(problem: DeterministicProblem) -> SolverResult:
    """Compute d_lax by lambda-policy iteration, at first in single precision."""
    iteration = _LaxIteration(problem)
    with show_progress(1.0, "d_lax: digits of the error") as progress:
        iteration.progress = progress
        if not iteration.can_start_in_single_precision:
            iteration.run_start()
            has_failed = iteration.run_rounds()
        else:
            has_failed = iteration.start_in_single_precision() or iteration.run_rounds()
        if has_failed:
            iteration.run_rounds(hold_actions=True)
        residual, largest = iteration.finish()
    details = {
        "method": "value iteration, lambda-policy iteration",
        "sweeps": iteration.num_sweeps,
        "evaluations": iteration.num_evaluations,
    }
    return SolverResult(iteration.d, residual, largest, details)


class _LaxIteration:
    """The distance matrix and the choices of both players: about 1.4 matrices of memory in all.

    Sums have the type of the rewards.
    """

    def __init__(self, problem: DeterministicProblem) -> None:
        states, kind = problem.num_states, problem.reward.dtype
        self.problem = problem
        self.operator = lax_kernels.LaxOperator(
            problem.successor,
            problem.reward,
            kind.type(problem.discount),
            problem.classes,
            kind.type(problem.diameter_bound),
        )
        self.d = np.zeros((states, states), problem.dtype)
        self.code_bits = lax_kernels.count_code_bits(problem.num_actions)
        self.choice = np.zeros((states, states), np.min_scalar_type(2**self.code_bits - 1))
        self.block_rows = table_kernels.choose_block_size(states, NUM_BLOCKS)
        self.backup = np.empty((self.block_rows, states), kind)
        self.row_stats = np.zeros((states, 3))
        self.num_sweeps, self.num_evaluations = 0, 0
        self.num_changed, self.code_margin = 0, CODE_MARGIN
        self.residual, self.largest = np.inf, 0.0
        self.progress: ProgressBar | None = None
        s, t = sample_pairs(states, NUM_SAMPLES)
        self.sample_pairs = s[s != t], t[s != t]

    @property
    def bound(self) -> float:
        """The largest possible distance, also of states with different labels."""
        p = self.problem
        return max(p.diameter_bound, p.largest_gap / (1 - p.discount))

    @property
    def code_error(self) -> float:
        """The largest relative error of a sweep with choices, whose codes replace the last bits."""
        return 2.0**self.code_bits * float(np.finfo(self.problem.reward.dtype).eps)

    @property
    def can_start_in_single_precision(self) -> bool:
        """Whether the errors of sweeps in single precision, over time, are small."""
        p = self.problem
        error = self.code_error * float(SINGLE.eps / np.finfo(p.reward.dtype).eps)
        is_accurate = error <= MAX_START_ERROR * (1 - p.discount)
        return p.num_states > MAX_SERIAL_STATES and is_accurate and 0 < self.bound < np.inf

    def start_in_single_precision(self) -> bool:
        """Take the solution in single precision for a start; return whether that failed.

        Sweeps then read half the memory. Distances are scaled, so that float32 can hold them
        whatever the units of the rewards.
        """
        p, scale = self.problem, choose_scale(self.bound)
        start = _LaxIteration(
            dataclasses.replace(
                p,
                reward=((p.reward - p.reward.min()) / scale).astype(SINGLE.dtype),
                diameter_bound=p.diameter_bound / scale,
                residual_tolerance=0.0,
                dtype=SINGLE.dtype,
            )
        )
        start.progress = self.progress
        start.choice, start.code_margin = self.choice, START_CODE_MARGIN
        start.run_start()
        has_failed = start.run_rounds()
        np.multiply(start.d, scale, out=self.d, dtype=np.float64)
        self.num_sweeps, self.num_evaluations = start.num_sweeps, start.num_evaluations
        self.residual, self.largest = start.residual * scale, start.largest * scale
        return has_failed

    @property
    def tolerance(self) -> float:
        """The residual to reach; below the precision floor no sweep can help."""
        # Residuals of rounded matrices stay at up to four units of roundoff.
        dtype = self.problem.dtype
        precision_floor = (2 if dtype == np.float64 else 4) * float(np.finfo(dtype).eps)
        return max(self.problem.residual_tolerance, precision_floor * self.largest)

    @property
    def has_converged(self) -> bool:
        """Whether only sweeps without choices, which are more precise, can do better."""
        return self.residual <= max(
            self.tolerance, self.code_margin * self.code_error * self.largest
        )

    def sweep(
        self, *, with_choices: bool = True, write: bool = True, hold_actions: bool = False
    ) -> None:
        """Sweep once, in place unless `write` is False, in alternating directions."""
        lax_kernels.sweep(
            self.d, self.backup, self.operator, self.row_stats, self.choice,
            backward=self.num_sweeps % 2 == 1, write=write,
            code_bits=self.code_bits if with_choices else 0, hold_actions=hold_actions,
            tolerance=self.problem.residual_tolerance,
        )  # fmt: skip
        self.num_sweeps += 1
        self.num_changed = int(self.row_stats[:, 2].sum())
        self.residual, self.largest = (float(each) for each in self.row_stats[:, :2].max(axis=0))
        if self.progress is not None:
            position = convergence_fraction(self.residual, self.tolerance, self.largest)
            self.progress.set_position(position, f"sweep {self.num_sweeps}")

    def run_start(self) -> None:
        """Sweep until most choices are settled; extrapolate the mean of the distances."""
        self.sweep()
        target, change, amount = START_REDUCTION * self.residual, 0.0, 0.0
        for number in range(2, MAX_START_SWEEPS + 1):
            if self.residual <= target or self.has_converged or self.num_changed == 0:
                return
            before = self.sample_mean()
            self.sweep()
            if number >= FIRST_SHIFT and (number - FIRST_SHIFT) % SWEEPS_PER_SHIFT == 0:
                previous, change = change, self.sample_mean() - before
                # In-place sweeps contract a constant somewhat faster than by the discount.
                contraction = 1 - self.problem.discount
                slope = (change - previous) / amount if amount else -1.5 * contraction
                amount = -change / min(slope, -0.5 * contraction)
                lax_kernels.shift(self.d, amount, self.bound)

    def run_rounds(self, *, hold_actions: bool = False) -> bool:
        """Sweep and evaluate in turn, until converged; return whether that stopped helping."""
        p = self.problem
        num_pairs = max(1, p.num_states * (p.num_states - 1) // 2)
        patience = HOLD_PATIENCE if hold_actions else PATIENCE
        first, deadline, goal = self.residual, patience, self.residual / 2
        is_settled = False
        for number in range(1, MAX_ROUNDS):
            for _ in range(SWEEPS_PER_HOLD if hold_actions else 1):
                self.sweep()
                if self.has_converged:
                    return False
            if is_settled and self.num_changed == 0 and not hold_actions:
                return False
            is_settled = self.num_changed == 0
            if self.residual <= goal:
                deadline, goal = number + patience, self.residual / 2
            has_diverged = self.residual > DIVERGED * first
            if number >= deadline or (has_diverged and not hold_actions):
                return True
            if hold_actions:
                self.evaluate()
                self.optimise_responses()
            else:
                self.evaluate(1 / (1 + CHANGE_RATE * self.num_changed / num_pairs))
        return True

    def evaluate(self, trace_decay: float = 1.0) -> None:
        """Take the values of the choices for distances."""
        p = self.problem
        evaluation_kernels.evaluate_choices(
            self.d, self.choice, p.successor, p.reward, p.discount, self.code_bits, trace_decay
        )
        self.num_evaluations += 1

    def optimise_responses(self) -> None:
        """Improve the responses to the actions of the maximising player, by policy iteration."""
        for _ in range(MAX_RESPONSES):
            self.sweep(hold_actions=True, write=False)
            if self.num_changed == 0:
                return
            self.evaluate()

    def finish(self) -> tuple[float, float]:
        """Reach the tolerance by precise sweeps; return the largest |F(d) - d| and F(d)."""
        p, limit, previous = self.problem, SweepLimit(16 * self.problem.num_states), np.inf
        self.sweep(with_choices=False)
        while self.tolerance < self.residual < GOOD_STEP * previous:
            previous = self.residual
            lax_kernels.select_choices(
                self.d, p.successor, p.reward, p.discount, self.choice, self.code_bits
            )
            self.evaluate()
            self.sweep(with_choices=False)
        for number in itertools.count(1):
            is_exceeded = limit.is_exceeded(number, self.residual, self.tolerance)
            if self.residual <= self.tolerance or is_exceeded:
                # That sweep changed the matrix; the residual of the result needs one that does not.
                self.sweep(with_choices=False, write=False)
                if self.residual <= self.tolerance or is_exceeded:
                    break
            self.sweep(with_choices=False)
        return self.residual, self.largest

    def sample_mean(self) -> float:
        """Return the mean distance of the sample."""
        # Divided first: the sum of large distances may overflow.
        sample = self.d[self.sample_pairs].astype(np.float64)
        return float((sample / max(1, len(sample))).sum())

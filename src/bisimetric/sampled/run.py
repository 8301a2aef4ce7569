"""SampledRun: a sampled distance in progress, which can be saved and resumed."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

import bisimetric
from bisimetric._progress import announce_compilation
from bisimetric._rounding import UNIT
from bisimetric.distance import Coverage, Distance, Kind
from bisimetric.errors import InputError, require_integer
from bisimetric.exact._request import bound_error
from bisimetric.exact._threads import map_chunks
from bisimetric.exact.gaps import GapFunction
from bisimetric.mdp import MDP
from bisimetric.sampled import files, kernels, samplers
from bisimetric.sampled.ingest import require_table_memory
from bisimetric.sampled.samplers import (
    PairUpdater,
    Sampler,
    SamplerState,
    build_updater,
    enlarge_state,
)
from bisimetric.sampled.sources import SampledSource, apply_gap, open_source
from bisimetric.sampled.transition_table import TransitionTable, table_from_mdp
from bisimetric.transitions import Transitions

STEPS_PER_BLOCK = 1 << 16
"""Steps between two checks for an interrupt."""

POLL_SECONDS = 0.1
"""Seconds between checks for an interrupt where no signal wakes the waiting thread."""

MIN_PARALLEL_ROWS = 500
"""Transitions above which their pairs are examined by several threads."""


KINDS = ("bisimulation", "on_policy")
T = TypeVar("T")


class ResidualBound(NamedTuple):
    """The largest remaining increase, the error that it proves, and the rounding bound."""

    residual: float
    error: float
    rounding: float


class SampledRun:
    """Monotone iteration from below on sampled pairs of transitions.

    Starts at 0 and applies equation 3 of Castro (2020) to one pair of transitions per step:

    d(s, t) = max(d(s, t), |r - r'| + discount * d(s', t'))

    After any number of steps the values are lower bounds. The same source, sampler and seed give
    the same run, however its steps are split into calls, also across `save` and `resume`.

    Args:
        kind: "bisimulation" or "on_policy".
        source: an MDP, or `Transitions` with state ids.
        policy: (S,) actions, for "on_policy"; default: the MDP's own, or all steps of the data.
        discount: discount factor; default: the MDP's, or 0.99 for data.
        sampler: `Uniform` (default), `Trajectories`, `AllActions` or `Prioritised`.
        seed: seed of the random numbers.
        gap: immediate costs in place of |r - r'|; see `sampled.bisimulation`.

    Attributes:
        kind: "bisimulation" or "on_policy".
        discount: the discount factor.
        sampler: the sampler.
        seed: the seed.
        steps: the number of pairs of transitions that were used.
        source: the known transitions and their origin.
        values: (S, S), the current distances, a read-only view.
        paired: (S, S, bytes), one bit per action with which states s < t were sampled together.

    Raises:
        InputError: if an argument is invalid, or the MDP, the policy or the data are stochastic.
        InsufficientMemory: if the distance matrix does not fit into memory.

    >>> from bisimetric import worlds
    >>> run = SampledRun("bisimulation", worlds.load("pessimism", discount=0.9), seed=1)
    >>> _ = run.advance(1000)
    >>> round(run.to_distance()("s", "t"), 3)
    10.0
    """

    def __init__(
        self,
        kind: Kind,
        source: MDP | Transitions | SampledSource,
        *,
        policy: ArrayLike | None = None,
        discount: float | None = None,
        sampler: Sampler | None = None,
        seed: int = 0,
        gap: ArrayLike | GapFunction | None = None,
    ) -> None:
        if kind not in KINDS:
            raise InputError(f"sampled: kind is {kind!r} and must be {' or '.join(KINDS)}.")
        self.kind: Kind = kind
        self.sampler = samplers.validate_sampler(kind, sampler)
        self.seed = require_integer(f"sampled.{kind}", "seed", seed)
        self.steps = 0
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="bisimetric sampled")
        if not isinstance(source, SampledSource):
            source = open_source(kind, source, policy, discount, self.sampler)
        if gap is not None:
            source = apply_gap(source, gap)
        self.source = source
        self.discount = source.discount
        table = source.table
        compile_kernels(samplers.get_sampler_name(self.sampler))
        self._values = table.initial_values()
        self._paired = np.zeros(
            (table.num_states, table.num_states, table.group_bytes), dtype=np.uint8
        )
        self._updater = self._build_updater(source, None)

    def _build_updater(self, source: SampledSource, state: SamplerState | None) -> PairUpdater:
        return build_updater(
            self.sampler, source.table, self.discount, self.seed, source.order, state
        )

    @property
    def values(self) -> NDArray[np.float64]:
        """(S, S), the current distances, a read-only view."""
        return _read_only_view(self._values)

    @property
    def paired(self) -> NDArray[np.uint8]:
        """(S, S, bytes), one bit per action with which states s < t were sampled together."""
        return _read_only_view(self._paired)

    @property
    def sampler_state(self) -> SamplerState:
        """The state of the sampler besides the number of steps."""
        return self._updater.state

    def advance(self, steps: int) -> float:
        """Apply equation 3 to pairs of transitions.

        Args:
            steps: how many pairs to sample.

        Returns:
            The largest increase of any distance.

        Raises:
            InputError: if `steps` is negative.
        """
        if steps < 0:
            raise InputError(f"SampledRun.advance: steps is {steps} and must be at least 0.")
        return self._run_uninterrupted(self._advance, int(steps))

    def _run_uninterrupted(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run `work` in another thread, where an interrupt cannot leave the state inconsistent."""
        self._halted = False
        future = self._worker.submit(work, *arguments)
        interrupt = None
        while not future.done():
            try:
                wait([future], timeout=POLL_SECONDS)
            except KeyboardInterrupt as error:
                self._halted, interrupt = True, error
        if interrupt is not None:
            raise interrupt
        return future.result()

    def _advance(self, steps: int) -> float:
        increase, last = 0.0, self.steps + steps
        while self.steps < last and not self._halted:
            size = min(STEPS_PER_BLOCK, last - self.steps)
            largest = self._updater.advance(self._values, self._paired, self.steps, size)
            increase = max(increase, largest)
            self.steps += size
        return increase

    def add_transitions(self, transitions: Transitions) -> None:
        """Add transitions to the known ones; new state ids enlarge the matrix.

        Args:
            transitions: more data, with state ids.

        Raises:
            InputError: if the run is on an MDP, or the data contradict the known transitions.
            InsufficientMemory: if the larger matrix does not fit into memory.
        """
        self._run_uninterrupted(self._add_transitions, transitions)

    def _add_transitions(self, transitions: Transitions) -> None:
        source, before = self.source.extend(transitions), self.source.table
        after, values, paired = source.table, self._values, self._paired
        if (after.num_states, after.terminal, after.group_bytes) != (
            before.num_states,
            before.terminal,
            before.group_bytes,
        ):
            values, paired = self._enlarge(before, after)
        updater = self._build_updater(source, enlarge_state(self.sampler_state, before, after))
        self.source, self._values, self._paired, self._updater = source, values, paired, updater

    def _enlarge(
        self, before: TransitionTable, after: TransitionTable
    ) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
        """Return values and pairing bits for more states; the terminal state stays last."""
        require_table_memory(self.kind, after.num_states, after.num_groups)
        indices = np.arange(before.num_states)
        if before.terminal is not None:
            indices[before.terminal] = after.num_states - 1
        values = np.zeros((after.num_states, after.num_states))
        values[np.ix_(indices, indices)] = self._values
        paired = np.zeros((after.num_states, after.num_states, after.group_bytes), dtype=np.uint8)
        paired[np.ix_(indices, indices, np.arange(before.group_bytes))] = self._paired
        return values, paired

    def compute_bound(self) -> float:
        """Bound how far the values are from what the known transitions determine.

        d <= F(d) for the operator F of the known transitions, a contraction, so its fixed point is
        at most max(F(d) - d) / (1 - discount) away (Banach). Examines every pair of known
        transitions once.

        Returns:
            The bound, rounding included.
        """
        return self._compute_bound(np.empty((0, 0), dtype=np.bool_)).error

    @property
    def converged(self) -> bool:
        """Whether no pair of known transitions would change any value."""
        return self._compute_bound(np.empty((0, 0), dtype=np.bool_)).residual == 0

    def _compute_bound(self, mask: NDArray[np.bool_]) -> ResidualBound:
        """Compute the residual of the pairs of states in `mask`, and the error that it proves."""
        rows, values = self.source.table.rows, self._values
        chunks = map_chunks(
            lambda low, high: kernels.compute_residual(
                values, rows, self.discount, mask, low, high
            ),
            len(rows.state),
            MIN_PARALLEL_ROWS,
        )
        residual = max((float(increase) for increase, _ in chunks), default=0.0)
        largest = max([float(values.max()), *(float(value) for _, value in chunks)])
        if not math.isfinite(largest):
            raise InputError(
                f"sampled.{self.kind}: rewards and discount make distances that float64 cannot "
                "hold; scale the rewards down."
            )
        # A reward gap has the errors of two rewards.
        gap_error = 2 * self.source.table.reward_error + self.source.table.cost_error
        error = bound_error(residual + gap_error, largest, self.discount)
        return ResidualBound(residual, error, bound_error(gap_error, largest, self.discount))

    def compute_coverage(self) -> Coverage:
        """Compute what was observed and which distances that determines.

        Returns:
            The coverage of the known transitions.
        """
        table = self.source.table
        determined = np.ones((table.num_states, table.num_states), dtype=np.bool_)
        if table.mdp is None:
            determined = table.jointly_observed
            kernels.remove_undetermined(determined, table.rows, *table.predecessors)
        everything = bool(determined.all())
        _, error, rounding = self._compute_bound(determined[:0, :0] if everything else determined)
        if table.diameter_bound is not None:
            # Distances lie between 0 and the diameter bound.
            error = min(error, table.diameter_bound * (1 + 8 * UNIT) + rounding)
        num_paired = map_chunks(
            lambda low, high: kernels.count_paired(self._paired, low, high),
            table.num_states,
            MIN_PARALLEL_ROWS,
        )
        visited = np.ones(table.num_states, np.bool_)
        if self.source.data is not None:
            visited = self.source.data.visited
        return Coverage(
            table.observed, determined, error, rounding, sum(num_paired), table.num_pairs, visited
        )

    def to_distance(self, **metadata: Any) -> Distance:
        """Return the current values as a distance, with what is proven for them.

        Args:
            **metadata: further entries of `Distance.metadata`.

        Returns:
            The distance, with its coverage.
        """
        coverage, mdp = self.compute_coverage(), self.source.to_mdp()
        complete = coverage.complete
        metadata = {
            "method": "sampled",
            "sampler": samplers.get_sampler_name(self.sampler),
            "seed": self.seed,
            "steps": self.steps,
            **metadata,
            **({} if self.source.gap is None else {"gap": self.source.gap}),
            "bisimetric": bisimetric.__version__,
            "numpy": np.__version__,
        }
        return Distance(
            self._values.copy(),
            coverage.error if complete else math.inf,
            self.kind,
            mdp,
            self.source.model_policy,
            metadata,
            None if complete else self.compute_bound(),
            coverage=coverage,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint, atomically.

        Args:
            path: the `.npz` file to write or replace.

        Raises:
            OSError: if it cannot be written.
        """
        files.write_run(path, self)

    def resume(self, path: str | os.PathLike[str]) -> SampledRun:
        """Resume from a checkpoint.

        Args:
            path: a file that `save` wrote.

        Returns:
            This run.

        Raises:
            InputError: if the file is damaged, or of a run with another kind, source, discount,
                sampler or seed.
        """
        self.steps, arrays = files.read_run(path, self)
        self._values, self._paired = arrays["values"], arrays["paired"]
        state = {name: arrays[f"state_{name}"] for name in self.sampler_state}
        self._updater = self._build_updater(self.source, state)
        return self


def _read_only_view(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


@functools.cache
def compile_kernels(name: samplers.SamplerName) -> None:
    """Run the kernels on a small MDP, so that they are compiled before a time limit starts."""
    toy = table_from_mdp(
        MDP.deterministic([[1], [1]], [[0.0], [1.0]], discount=0.5), "bisimulation"
    )
    values, paired = np.zeros((2, 2)), np.zeros((2, 2, 1), np.uint8)
    with announce_compilation("the kernels"):
        for order in (None, np.zeros(1, np.int64)):
            updater = build_updater(samplers.SAMPLERS[name](), toy, 0.5, 0, order)
            updater.advance(values, paired, 0, 1)
        kernels.compute_residual(values, toy.rows, 0.5, np.ones((2, 2), np.bool_), 0, 2)
        kernels.remove_undetermined(np.ones((2, 2), np.bool_), toy.rows, *toy.predecessors)
        kernels.count_paired(paired, 0, 2)

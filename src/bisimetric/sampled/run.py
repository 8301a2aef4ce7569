"""Run: a sampled distance while it is being computed, step by step, to be kept and gone on with."""

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
from bisimetric.sampled.sources import SampledSource, open_source
from bisimetric.sampled.transition_table import TransitionTable, table_from_mdp
from bisimetric.transitions import Transitions

STEPS_PER_BLOCK = 1 << 16
"""Steps that an interrupt waits for, at most."""

POLL_SECONDS = 0.1
"""Seconds after which a waiting thread looks for an interrupt, where no signal wakes it."""

MIN_PARALLEL_ROWS = 500
"""Transitions from which on looking at all pairs of them is worth many threads."""


KINDS = ("bisimulation", "on_policy")
T = TypeVar("T")


class ResidualBound(NamedTuple):
    """The largest rise that is left, the error that it proves, and what rounding may have added."""

    residual: float
    error: float
    rounding: float


class SampledRun:
    """A table of distances that rises, pair by pair, to what the transitions determine.

    Starts at 0 and applies equation 3 of Castro (2020) to one pair of transitions a step. After
    any number of steps the table is a lower bound. The same source, sampler and key give the same
    run, however it is cut into calls, also through `save` and `load`.

    Attributes:
        kind: "bisimulation" or "on_policy".
        discount, sampler, key: as given.
        steps: how many pairs of transitions were used.
        source: what is known, and where it comes from.
        values: (S, S), the table as it is: read-only, it changes with the run.
        met: (S, S, bytes), the actions that two states s < t were drawn together with, one a bit.

    >>> from bisimetric import worlds
    >>> run = Run("bisimulation", worlds.load("pessimism", discount=0.9), key=1)
    >>> _ = run.advance(1000)
    >>> round(run.distance()("s", "t"), 3)
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
    ) -> None:
        if kind not in KINDS:
            raise InputError(f"sampled: kind is {kind!r} and must be {' or '.join(KINDS)}.")
        self.kind: Kind = kind
        self.sampler = samplers.validate_sampler(kind, sampler)
        self.seed = require_integer(f"sampled.{kind}", "key", seed)
        self.steps = 0
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="bisimetric sampled")
        if not isinstance(source, SampledSource):
            source = open_source(kind, source, policy, discount, self.sampler)
        self.source = source
        self.discount = source.discount
        known = source.table
        compile_kernels(samplers.get_sampler_name(self.sampler))
        self._values = known.initial_values()
        self._paired = np.zeros(
            (known.num_states, known.num_states, known.group_bytes), dtype=np.uint8
        )
        self._updater = self._build_updater(source, None)

    def _build_updater(self, source: SampledSource, state: SamplerState | None) -> PairUpdater:
        return build_updater(
            self.sampler, source.table, self.discount, self.seed, source.order, state
        )

    @property
    def values(self) -> NDArray[np.float64]:
        return _read_only_view(self._values)

    @property
    def paired(self) -> NDArray[np.uint8]:
        return _read_only_view(self._paired)

    @property
    def sampler_state(self) -> SamplerState:
        """What the sampler remembers besides the number of steps."""
        return self._updater.state

    def advance(self, steps: int) -> float:
        """Applies equation 3 to so many pairs of transitions; returns the largest rise."""
        if steps < 0:
            raise InputError(f"Run.advance: steps is {steps} and must be at least 0.")
        return self._run_uninterrupted(self._advance, int(steps))

    def _run_uninterrupted(self, work: Callable[..., T], *arguments: Any) -> T:
        """Does some work in a thread of its own, where no interrupt can leave it half done."""
        self._halted = False
        done = self._worker.submit(work, *arguments)
        interrupt = None
        while not done.done():
            try:
                wait([done], timeout=POLL_SECONDS)
            except KeyboardInterrupt as stop:
                self._halted, interrupt = True, stop
        if interrupt is not None:
            raise interrupt
        return done.result()

    def _advance(self, steps: int) -> float:
        rise, last = 0.0, self.steps + steps
        while self.steps < last and not self._halted:
            size = min(STEPS_PER_BLOCK, last - self.steps)
            rise = max(rise, self._updater.advance(self._values, self._paired, self.steps, size))
            self.steps += size
        return rise

    def add_transitions(self, transitions: Transitions) -> None:
        """Learns of more transitions; the table keeps what it has. New ids make it larger."""
        self._run_uninterrupted(self._add_transitions, transitions)

    def _add_transitions(self, transitions: Transitions) -> None:
        source, before = self.source.extend(transitions), self.source.table
        known, table, met = source.table, self._values, self._paired
        if (known.num_states, known.terminal, known.group_bytes) != (
            before.num_states,
            before.terminal,
            before.group_bytes,
        ):
            table, met = self._enlarge(before, known)
        engine = self._build_updater(source, enlarge_state(self.sampler_state, before, known))
        self.source, self._values, self._paired, self._updater = source, table, met, engine

    def _enlarge(
        self, before: TransitionTable, after: TransitionTable
    ) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
        """The table, and what was drawn together, for more states."""
        require_table_memory(self.kind, after.num_states, after.num_groups)
        kept = np.arange(before.num_states)
        if before.terminal is not None:
            kept[before.terminal] = after.num_states - 1
        table = np.zeros((after.num_states, after.num_states))
        table[np.ix_(kept, kept)] = self._values
        met = np.zeros((after.num_states, after.num_states, after.group_bytes), dtype=np.uint8)
        met[np.ix_(kept, kept, np.arange(before.group_bytes))] = self._paired
        return table, met

    def compute_bound(self) -> float:
        """How far the table is, at most, from what the known transitions determine.

        d <= F(d) for the operator F of the known transitions, a contraction, so that its fixed
        point is at most max(F(d) - d) / (1 - discount) away (Banach). Looks at every pair of known
        transitions once, and includes rounding.
        """
        return self._compute_bound(np.empty((0, 0), dtype=np.bool_)).error

    @property
    def converged(self) -> bool:
        """Whether no pair of known transitions would change the table any more."""
        return self._compute_bound(np.empty((0, 0), dtype=np.bool_)).residual == 0

    def _compute_bound(self, mask: NDArray[np.bool_]) -> ResidualBound:
        """What is left to rise for the pairs of states that count, and what that proves."""
        rows, table = self.source.table.rows, self._values
        seen = map_chunks(
            lambda low, high: kernels.compute_residual(table, rows, self.discount, mask, low, high),
            len(rows.state),
            MIN_PARALLEL_ROWS,
        )
        rise = max((float(rise) for rise, _ in seen), default=0.0)
        largest = max([float(table.max()), *(float(each) for _, each in seen)])
        if not math.isfinite(largest):
            raise InputError(
                f"sampled.{self.kind}: rewards and discount make distances that float64 cannot "
                "hold; scale the rewards down."
            )
        # Two rewards differ in each step, and each may be off.
        off = 2 * self.source.table.reward_error
        error = bound_error(rise + off, largest, self.discount)
        return ResidualBound(rise, error, bound_error(off, largest, self.discount))

    def compute_coverage(self) -> Coverage:
        """What was seen, and what the table can mean."""
        known = self.source.table
        determined = np.ones((known.num_states, known.num_states), dtype=np.bool_)
        if known.mdp is None:
            determined = known.jointly_observed
            kernels.remove_undetermined(determined, known.rows, *known.predecessors)
        everything = bool(determined.all())
        _, error, rounding = self._compute_bound(determined[:0, :0] if everything else determined)
        if known.mdp is not None:
            # No distance is larger than the largest possible, and none below 0.
            error = min(error, self.source.to_mdp().diameter_bound * (1 + 4 * UNIT) + rounding)
        met = map_chunks(
            lambda low, high: kernels.count_paired(self._paired, low, high),
            known.num_states,
            MIN_PARALLEL_ROWS,
        )
        lived = np.ones(known.num_states, np.bool_)
        if self.source.data is not None:
            lived = self.source.data.visited
        return Coverage(
            known.observed, determined, error, rounding, sum(met), known.num_pairs, lived
        )

    def to_distance(self, **metadata: Any) -> Distance:
        """The table so far, with what is proven of it; `made` says more of how it was made."""
        coverage, model = self.compute_coverage(), self.source.to_mdp()
        sure = coverage.complete
        how = {
            "method": "sampled",
            "sampler": samplers.get_sampler_name(self.sampler),
            "key": self.seed,
            "steps": self.steps,
            **metadata,
            "bisimetric": bisimetric.__version__,
            "numpy": np.__version__,
        }
        return Distance(
            self._values.copy(),
            coverage.error if sure else math.inf,
            self.kind,
            model,
            self.source.model_policy,
            how,
            None if sure else self.compute_bound(),
            coverage=coverage,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all that it takes to go on; the file appears whole or not at all."""
        files.write_run(path, self)

    def resume(self, path: str | os.PathLike[str]) -> SampledRun:
        """Goes on from where a run was saved; returns itself.

        Refuses a file of another kind, source, discount, sampler or key.
        """
        self.steps, found = files.read_run(path, self)
        self._values, self._paired = found["values"], found["met"]
        memory = {name: found[f"memory_{name}"] for name in self.sampler_state}
        self._updater = self._build_updater(self.source, memory)
        return self


def _read_only_view(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


@functools.cache
def compile_kernels(name: samplers.SamplerName) -> None:
    """Runs the kernels on a toy, so that they are compiled before any clock starts."""
    toy = table_from_mdp(
        MDP.deterministic([[1], [1]], [[0.0], [1.0]], discount=0.5), "bisimulation"
    )
    table, met = np.zeros((2, 2)), np.zeros((2, 2, 1), np.uint8)
    with announce_compilation("the kernels"):
        for order in (None, np.zeros(1, np.int64)):
            build_updater(samplers.SAMPLERS[name](), toy, 0.5, 0, order).advance(table, met, 0, 1)
        kernels.compute_residual(table, toy.rows, 0.5, np.ones((2, 2), np.bool_), 0, 2)
        kernels.remove_undetermined(np.ones((2, 2), np.bool_), toy.rows, *toy.predecessors)
        kernels.count_paired(met, 0, 2)

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
from bisimetric.distance import Coverage, Distance, Kind
from bisimetric.errors import InputError, whole
from bisimetric.exact.table import proven_error
from bisimetric.exact.threads import in_parts
from bisimetric.mdp import MDP
from bisimetric.progress import compiling
from bisimetric.rounding import UNIT
from bisimetric.sampled import files, samplers, updates
from bisimetric.sampled.engines import Engine, Memory, engine_of, grown
from bisimetric.sampled.experience import require_tables
from bisimetric.sampled.known import Known, of_model
from bisimetric.sampled.samplers import Sampler
from bisimetric.sampled.sources import Source, opened
from bisimetric.transitions import Transitions

BLOCK = 1 << 16
"""Steps that an interrupt waits for, at most."""

AWAKE = 0.1
"""Seconds after which a waiting thread looks for an interrupt, where no signal wakes it."""

WORTH = 500
"""Transitions from which on looking at all pairs of them is worth many threads."""


KINDS = ("bisimulation", "on_policy")
T = TypeVar("T")


class Bound(NamedTuple):
    """The largest rise that is left, the error that it proves, and what rounding may have added."""

    rise: float
    error: float
    rounding: float


class Run:
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
        source: MDP | Transitions | Source,
        *,
        policy: ArrayLike | None = None,
        discount: float | None = None,
        sampler: Sampler | None = None,
        key: int = 0,
    ) -> None:
        if kind not in KINDS:
            raise InputError(f"sampled: kind is {kind!r} and must be {' or '.join(KINDS)}.")
        self.kind: Kind = kind
        self.sampler = samplers.checked(kind, sampler)
        self.key = whole(f"sampled.{kind}", "key", key)
        self.steps = 0
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="bisimetric sampled")
        if not isinstance(source, Source):
            source = opened(kind, source, policy, discount, self.sampler)
        self.source = source
        self.discount = source.discount
        known = source.known
        compile_once(samplers.name_of(self.sampler))
        self._table = known.first_table()
        self._met = np.zeros((known.states, known.states, known.width), dtype=np.uint8)
        self._engine = self._engine_of(source, None)

    def _engine_of(self, source: Source, memory: Memory | None) -> Engine:
        return engine_of(self.sampler, source.known, self.discount, self.key, source.order, memory)

    @property
    def values(self) -> NDArray[np.float64]:
        return _view(self._table)

    @property
    def met(self) -> NDArray[np.uint8]:
        return _view(self._met)

    @property
    def memory(self) -> Memory:
        """What the sampler remembers besides the number of steps."""
        return self._engine.memory

    def advance(self, steps: int) -> float:
        """Applies equation 3 to so many pairs of transitions; returns the largest rise."""
        if steps < 0:
            raise InputError(f"Run.advance: steps is {steps} and must be at least 0.")
        return self._whole(self._advance, int(steps))

    def _whole(self, work: Callable[..., T], *given: Any) -> T:
        """Does some work in a thread of its own, where no interrupt can leave it half done."""
        self._halted = False
        done = self._worker.submit(work, *given)
        interrupt = None
        while not done.done():
            try:
                wait([done], timeout=AWAKE)
            except KeyboardInterrupt as stop:
                self._halted, interrupt = True, stop
        if interrupt is not None:
            raise interrupt
        return done.result()

    def _advance(self, steps: int) -> float:
        rise, last = 0.0, self.steps + steps
        while self.steps < last and not self._halted:
            size = min(BLOCK, last - self.steps)
            rise = max(rise, self._engine.advance(self._table, self._met, self.steps, size))
            self.steps += size
        return rise

    def absorb(self, transitions: Transitions) -> None:
        """Learns of more transitions; the table keeps what it has. New ids make it larger."""
        self._whole(self._absorb, transitions)

    def _absorb(self, transitions: Transitions) -> None:
        source, before = self.source.after(transitions), self.source.known
        known, table, met = source.known, self._table, self._met
        if (known.states, known.end, known.width) != (before.states, before.end, before.width):
            table, met = self._larger(before, known)
        engine = self._engine_of(source, grown(self.memory, before, known))
        self.source, self._table, self._met, self._engine = source, table, met, engine

    def _larger(self, before: Known, known: Known) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
        """The table, and what was drawn together, for more states."""
        require_tables(self.kind, known.states, known.groups)
        kept = np.arange(before.states)
        if before.end is not None:
            kept[before.end] = known.states - 1
        table = np.zeros((known.states, known.states))
        table[np.ix_(kept, kept)] = self._table
        met = np.zeros((known.states, known.states, known.width), dtype=np.uint8)
        met[np.ix_(kept, kept, np.arange(before.width))] = self._met
        return table, met

    def bound(self) -> float:
        """How far the table is, at most, from what the known transitions determine.

        d <= F(d) for the operator F of the known transitions, a contraction, so that its fixed
        point is at most max(F(d) - d) / (1 - discount) away (Banach). Looks at every pair of known
        transitions once, and includes rounding.
        """
        return self._bound(np.empty((0, 0), dtype=np.bool_)).error

    @property
    def at_rest(self) -> bool:
        """Whether no pair of known transitions would change the table any more."""
        return self._bound(np.empty((0, 0), dtype=np.bool_)).rise == 0

    def _bound(self, counts: NDArray[np.bool_]) -> Bound:
        """What is left to rise for the pairs of states that count, and what that proves."""
        rows, table = self.source.known.rows, self._table
        seen = in_parts(
            lambda low, high: updates.remaining(table, rows, self.discount, counts, low, high),
            len(rows.state),
            WORTH,
        )
        rise = max((float(rise) for rise, _ in seen), default=0.0)
        largest = max([float(table.max()), *(float(each) for _, each in seen)])
        if not math.isfinite(largest):
            raise InputError(
                f"sampled.{self.kind}: rewards and discount make distances that float64 cannot "
                "hold; scale the rewards down."
            )
        # Two rewards differ in each step, and each may be off.
        off = 2 * self.source.known.reward_error
        error = proven_error(rise + off, largest, self.discount)
        return Bound(rise, error, proven_error(off, largest, self.discount))

    def coverage(self) -> Coverage:
        """What was seen, and what the table can mean."""
        known = self.source.known
        determined = np.ones((known.states, known.states), dtype=np.bool_)
        if known.mdp is None:
            determined = known.together
            updates.determined(determined, known.rows, *known.backwards)
        everything = bool(determined.all())
        _, error, rounding = self._bound(determined[:0, :0] if everything else determined)
        if known.mdp is not None:
            # No distance is larger than the largest possible, and none below 0.
            error = min(error, self.source.model().farthest * (1 + 4 * UNIT) + rounding)
        met = in_parts(
            lambda low, high: updates.drawn_together(self._met, low, high), known.states, WORTH
        )
        lived = np.ones(known.states, np.bool_)
        if self.source.experience is not None:
            lived = self.source.experience.lived
        return Coverage(known.seen, determined, error, rounding, sum(met), known.num_pairs, lived)

    def distance(self, **made: Any) -> Distance:
        """The table so far, with what is proven of it; `made` says more of how it was made."""
        coverage, model = self.coverage(), self.source.model()
        sure = coverage.complete
        how = {
            "method": "sampled",
            "sampler": samplers.name_of(self.sampler),
            "key": self.key,
            "steps": self.steps,
            **made,
            "bisimetric": bisimetric.__version__,
            "numpy": np.__version__,
        }
        return Distance(
            self._table.copy(),
            coverage.error if sure else math.inf,
            self.kind,
            model,
            self.source.followed,
            how,
            None if sure else self.bound(),
            coverage=coverage,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all that it takes to go on; the file appears whole or not at all."""
        files.save(path, self)

    def resume(self, path: str | os.PathLike[str]) -> Run:
        """Goes on from where a run was saved; returns itself.

        Refuses a file of another kind, source, discount, sampler or key.
        """
        self.steps, found = files.saved(path, self)
        self._table, self._met = found["values"], found["met"]
        memory = {name: found[f"memory_{name}"] for name in self.memory}
        self._engine = self._engine_of(self.source, memory)
        return self


def _view(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


@functools.cache
def compile_once(name: samplers.Name) -> None:
    """Runs the kernels on a toy, so that they are compiled before any clock starts."""
    toy = of_model(MDP.deterministic([[1], [1]], [[0.0], [1.0]], discount=0.5), "bisimulation")
    table, met = np.zeros((2, 2)), np.zeros((2, 2, 1), np.uint8)
    with compiling("the kernels"):
        for order in (None, np.zeros(1, np.int64)):
            engine_of(samplers.SAMPLERS[name](), toy, 0.5, 0, order).advance(table, met, 0, 1)
        updates.remaining(table, toy.rows, 0.5, np.ones((2, 2), np.bool_), 0, 2)
        updates.determined(np.ones((2, 2), np.bool_), toy.rows, *toy.backwards)
        updates.drawn_together(met, 0, 2)

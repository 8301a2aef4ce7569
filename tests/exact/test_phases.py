"""Parallel loops of several phases: their order, errors, interrupts and number of threads."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from bisimetric.exact._phases import (
    MAX_PART_ENTRIES,
    NO_PART,
    NUM_DONE,
    Phase,
    Plan,
    choose_num_threads,
    finish_part,
    plan_phases,
    share_phases,
    start_part,
)

NUM_PHASES, SIZE = 40, 300


def plan_copies(threads: int) -> Plan:
    """Plan phases that each read the whole vector that the one before has written."""
    phases = [Phase((k,), 0, np.full(SIZE, 10)) for k in range(1, NUM_PHASES)]
    return plan_phases(phases, threads, 1)


@njit(nogil=True)
def run_copies(progress: Any, part: int, parts: Any, max_parts: int, vectors: Any) -> int:
    """Add 1 to the least entry of the vector before."""
    for _ in range(max_parts):
        part, is_ready = start_part(progress, parts, part)
        if not is_ready:
            return part
        _, low, high, phase = parts[part]
        for k in range(low, high):
            vectors[phase, k] += vectors[phase - 1].min() + 1
        part = finish_part(progress)
    return part


@pytest.fixture
def many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.get_num_threads", lambda: 16)


@pytest.mark.usefixtures("many_threads")
@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("max_parts", [1, 7, 10**6])
def test_no_part_starts_before_the_phase_before_is_done(threads: int, max_parts: int) -> None:
    plan = plan_copies(threads)
    vectors = np.zeros((NUM_PHASES, SIZE), np.int64)
    for _ in range(20):
        vectors[:] = 0
        share_phases(
            lambda progress, part: int(run_copies(progress, part, plan.parts, max_parts, vectors)),
            plan,
        )
        assert (vectors == np.arange(NUM_PHASES)[:, None]).all()


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("unit", [1, 4])
def test_parts_cover_all_items_in_order(threads: int, unit: int) -> None:
    entries = np.arange(1000) * MAX_PART_ENTRIES // 5000
    plan = plan_phases([Phase((3,), 50, entries, unit), Phase((4,), 0, entries)], threads, 2**18)
    first, second = (plan.parts[plan.parts[:, 3] == label] for label in (3, 4))
    assert (first[:, 0] == 0).all()
    assert (second[:, 0] == len(first)).all()
    for parts, offset in ((first, 50), (second, 0)):
        assert parts[0, 1] == offset
        assert parts[-1, 2] == offset + 1000
        assert (parts[1:, 1] == parts[:-1, 2]).all()
    assert ((first[:, 1] - 50) % unit == 0).all()
    sizes = np.add.reduceat(entries, second[:, 1])
    assert sizes.max() <= MAX_PART_ENTRIES + entries.max()
    assert plan.parts_per_call >= 1


@pytest.mark.usefixtures("many_threads")
def test_short_loops_get_few_threads() -> None:
    assert choose_num_threads(999, 1000) == 1
    assert choose_num_threads(1000, 1000) == 2
    assert choose_num_threads(10**6, 1000) == 16


class Worker:
    """Runs parts in Python, and fails at one of them."""

    def __init__(self, parts: NDArray[np.int64], failing: int, failure: BaseException) -> None:
        self.parts, self.failing, self.failure = parts, failing, failure
        self.running, self.threads = 0, set[str]()
        self.done: list[int] = []
        self.lock = threading.Lock()

    def run(self, progress: NDArray[np.int64], part: int) -> int:
        with self.lock:
            if part == NO_PART:
                part = int(progress[0])
                progress[0] += 1
            if part >= len(self.parts):
                return NO_PART
            if progress[NUM_DONE] < self.parts[part, 0]:
                return part
            self.running += 1
            self.threads.add(threading.current_thread().name)
        try:
            time.sleep(0.002)
            if part == self.failing:
                raise self.failure
            self.done.append(part)
        finally:
            with self.lock:
                self.running -= 1
                progress[NUM_DONE] += part != self.failing
        return NO_PART


@pytest.mark.usefixtures("many_threads")
@pytest.mark.parametrize("threads", [1, 4, 16])
@pytest.mark.parametrize("failing", [0, 30])
def test_an_error_in_one_part_ends_the_loop_on_all_threads(threads: int, failing: int) -> None:
    phases = [Phase((), 0, np.ones(20, np.int64))] * 5
    plan = plan_phases(phases, 16, 1)._replace(num_threads=threads)
    assert len(plan.parts) == 100
    worker = Worker(plan.parts, failing, RuntimeError("no"))
    with pytest.raises(RuntimeError, match="no"):
        share_phases(worker.run, plan)
    assert worker.running == 0
    num_done = len(worker.done)
    assert num_done < 40 + 16
    time.sleep(0.01)
    assert len(worker.done) == num_done
    # Threads are fit for the next loop.
    worker = Worker(plan.parts, -1, RuntimeError())
    share_phases(worker.run, plan)
    assert sorted(worker.done) == list(range(100))
    assert (len(worker.threads) > 1) is (threads > 1)


@pytest.mark.usefixtures("many_threads")
@pytest.mark.parametrize("threads", [1, 16])
def test_an_interrupt_ends_the_loop_on_all_threads(threads: int) -> None:
    phases = [Phase((), 0, np.ones(20, np.int64))] * 50
    plan = plan_phases(phases, 16, 1)._replace(num_threads=threads)
    worker = Worker(plan.parts, -1, RuntimeError())
    timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        share_phases(worker.run, plan)
    assert worker.running == 0
    num_done = len(worker.done)
    assert 0 < num_done < 1000
    time.sleep(0.01)
    assert len(worker.done) == num_done

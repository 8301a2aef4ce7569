"""Parallel loops of several phases: their order, errors, interrupts and number of threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
from numba import njit

from bisimetric.exact._intrinsics import add, pack_call, pack_rows, sleep_briefly
from bisimetric.exact._phases import (
    MAX_PART_ENTRIES,
    Phase,
    Plan,
    choose_num_threads,
    end_rounds,
    finish_part,
    plan_items,
    plan_phases,
    share_phases,
    share_rows,
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


@njit
def prepare_copies(pack: Any, progress: Any, parts: Any, *arguments: Any) -> int:
    return int(pack_call(run_copies, pack, (progress, parts, *arguments)))


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
        share_phases(prepare_copies, (max_parts, vectors), plan)
        assert (vectors == np.arange(NUM_PHASES)[:, None]).all()


@njit(nogil=True)
def run_sums(progress: Any, part: int, parts: Any, vectors: Any, num_rounds: int) -> int:
    """Set a vector to the sums of two entries of the other one, in turn."""
    while True:
        part, is_ready = start_part(progress, parts, part)
        if not is_ready:
            return part
        _, low, high, phase = parts[part % len(parts)]
        number = part // len(parts)
        if phase == 0:
            old, new = vectors[number % 2], vectors[1 - number % 2]
            for k in range(low, high):
                new[k] = (old[k] + old[(k + 1) % len(old)]) % 1_000_003
        elif number + 1 == num_rounds:
            end_rounds(progress, parts, part)
        part = finish_part(progress)


@njit
def prepare_sums(pack: Any, progress: Any, parts: Any, *arguments: Any) -> int:
    return int(pack_call(run_sums, pack, (progress, parts, *arguments)))


@pytest.mark.usefixtures("many_threads")
@pytest.mark.parametrize("threads", [1, 2, 16])
def test_rounds_are_repeated_until_the_kernel_ends_them(threads: int) -> None:
    expected = np.arange(64)
    for _ in range(100):
        expected = (expected + np.roll(expected, -1)) % 1_000_003
    for _ in range(20):
        vectors = np.array([np.arange(64), np.zeros(64, np.int64)])
        share_phases(prepare_sums, (vectors, 100), plan_items((64, 1), threads, repeats=True))
        assert vectors[0].tolist() == expected.tolist()


@njit(nogil=True)
def count_rows(counts: Any, amounts: Any, low: int, high: int) -> None:
    for k in range(low, high):
        counts[k] += amounts[1]


@njit
def prepare_rows(pack: Any, *arguments: Any) -> int:
    return int(pack_rows(count_rows, pack, arguments))


@pytest.mark.usefixtures("many_threads")
@pytest.mark.parametrize("min_parallel", [1, 10**9])
@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_every_row_is_computed_once(rows: int, min_parallel: int) -> None:
    counts = np.zeros(rows, np.int64)
    share_rows(prepare_rows, (counts, (0.5, 3)), rows, 10, min_parallel)
    assert (counts == 3).all()


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


@njit(nogil=True)
def run_slowly(progress: Any, part: int, parts: Any, failing: int, done: Any, state: Any) -> int:
    """Sleep in each part, and fail in one of them."""
    part, is_ready = start_part(progress, parts, part)
    if not is_ready:
        return part
    running = add(state, 0, 1) + 1
    state[1] = max(state[1], running)
    for _ in range(10):
        sleep_briefly()
    if part == failing:
        raise ValueError("no")
    done[part] += 1
    add(state, 0, -1)
    return int(finish_part(progress))


@njit
def prepare_slowly(pack: Any, progress: Any, parts: Any, *arguments: Any) -> int:
    return int(pack_call(run_slowly, pack, (progress, parts, *arguments)))


def plan_slowly(num_phases: int, threads: int) -> Plan:
    phases = [Phase((), 0, np.ones(20, np.int64))] * num_phases
    return plan_phases(phases, 16, 1)._replace(num_threads=threads)


@pytest.mark.usefixtures("many_threads")
@pytest.mark.parametrize("threads", [1, 4, 16])
@pytest.mark.parametrize("failing", [0, 30])
def test_an_error_in_one_part_ends_the_loop_on_all_threads(threads: int, failing: int) -> None:
    plan = plan_slowly(5, threads)
    assert len(plan.parts) == 100
    done, state = np.zeros(100, np.int64), np.zeros(2, np.int64)
    with pytest.raises(RuntimeError, match="loop failed"):
        share_phases(prepare_slowly, (failing, done, state), plan)
    num_done = done.sum()
    assert num_done < 40 + 16
    time.sleep(0.02)
    assert done.sum() == num_done
    # Threads are fit for the next loop.
    done[:], state[:] = 0, 0
    share_phases(prepare_slowly, (-1, done, state), plan)
    assert (done == 1).all()
    assert state[0] == 0
    assert (state[1] > 1) is np.bool_(threads > 1)


@pytest.mark.usefixtures("many_threads")
@pytest.mark.parametrize("threads", [1, 16])
def test_an_interrupt_ends_the_loop_on_all_threads(threads: int) -> None:
    plan = plan_slowly(50, threads)
    done, state = np.zeros(1000, np.int64), np.zeros(2, np.int64)
    share_phases(prepare_slowly, (-1, done, state), plan_slowly(1, threads))  # compiles
    done[:] = 0
    timer = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        share_phases(prepare_slowly, (-1, done, state), plan)
    num_done = done.sum()
    assert 0 < num_done < 1000
    time.sleep(0.02)
    assert done.sum() == num_done


@pytest.mark.usefixtures("many_threads")
def test_loops_of_several_threads_do_not_disturb_each_other() -> None:
    plan, results = plan_copies(4), []

    def run() -> None:
        vectors = np.zeros((NUM_PHASES, SIZE), np.int64)
        for _ in range(10):
            vectors[:] = 0
            share_phases(prepare_copies, (7, vectors), plan)
            results.append((vectors == np.arange(NUM_PHASES)[:, None]).all())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 40


FORK = """
import os
from bisimetric import exact, worlds
mdp = worlds.load("random", states=700)
d = exact.bisimulation(mdp).values
child = os.fork()
if child == 0:
    os._exit(0 if (exact.bisimulation(mdp).values == d).all() else 1)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_threads_of_its_own() -> None:
    environment = {**os.environ, "NUMBA_NUM_THREADS": "3"}
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=300, env=environment)

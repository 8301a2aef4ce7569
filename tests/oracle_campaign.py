"""Checks the library against the oracle on generated cases, and prints every violation.

    python tests/oracle_campaign.py --cases 5000 --seed 1
    python tests/oracle_campaign.py --seed 17 --cases 1 --only 'exact.mico$'

Properties run in a process of their own, so that one that hangs is found, ended and counted. A
line `property seed=n: ...` is reproduced by the second form.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import functools
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

LIMIT = 20.0  # seconds of the processor per property and case, compilation included
HANGS = 2  # of a case, before the next one follows
BUSY = 6  # how many times as long that may take where other processes run


@dataclasses.dataclass(frozen=True)
class Property:
    """A check, which cases it is for, and that one case in `every` runs it."""

    check: Callable[..., Iterator[str]]
    every: int = 1
    restricted: dict[str, Any] = dataclasses.field(default_factory=dict)


@functools.cache
def properties() -> dict[str, Property]:
    """All properties by name."""
    from tests import oracle_properties as checks

    found: dict[str, Property] = {}

    def add(name: str, check: Any, *given: Any, every: int = 1, **options: Any) -> None:
        restricted = options.pop("restricted", {})
        found[name] = Property(functools.partial(check, *given, **options), every, restricted)

    partial = functools.partial
    single = {"deterministic": True}
    whole = {"deterministic": True, "lacking": False}
    for kind in checks.KINDS:
        table = partial(checks.tables, kind=kind)
        certain = {"drawn": False}
        add(f"exact.{kind}", table)
        add(f"exact.{kind} tol=1e3", table, tol=1e3)
        add(f"exact.{kind} tol=1e-3", table, tol=1e-3, every=2)
        add(f"exact.{kind} tol=1e-300", table, tol=1e-300, every=2)
        add(f"exact.{kind} float32", table, dtype="float32", every=2)
        add(f"exact.{kind} float32 tol=1e3", table, dtype="float32", tol=1e3, every=4)
        if kind in ("on_policy", "mico"):
            add(f"exact.{kind} actions", table, every=2, restricted=certain)
            add(f"exact.{kind} actions tol=1e3", table, tol=1e3, every=4, restricted=certain)
        aggregate = partial(checks.aggregate, kind=kind)
        add(f"uses.aggregate {kind}", aggregate, tol=None, every=2)
        add(f"uses.aggregate {kind} tol=20", aggregate, tol=20.0, every=2)
        wide = partial(checks.wide_rows, kind=kind)
        add(f"wide rows {kind} 40", wide, width=40, discount=0.9, every=8)
        add(f"wide rows {kind} 250", wide, width=250, discount=0.2, every=200)
        add(f"wide rows {kind} 567", wide, width=567, discount=0.5, every=1000)
        if kind == "mico":
            continue
        add(f"uses.compress {kind}", partial(checks.compress, kind=kind), every=4)
        pairs = partial(checks.pairs_of_mdp, kind=kind)
        add(f"pairs {kind}", pairs)
        add(f"pairs {kind} tol=1e3", pairs, tol=1e3, every=2)
        implicit = partial(checks.pairs_of_successors, kind=kind)
        add(f"Successors {kind}", implicit, ranged=False)
        add(f"Successors {kind} reward_range", implicit, ranged=True)
        add(f"Successors {kind} reward_range tol=1e3", implicit, ranged=True, tol=1e3, every=2)
        hidden = partial(checks.hidden_reward, kind=kind)
        add(f"hidden reward {kind}", hidden, ranged=False, every=4)
        add(f"hidden reward {kind} reward_range", hidden, ranged=True, every=4)
        add(f"relation.{kind}", partial(checks.relations, kind=kind))
    for kind in ("bisimulation", "on_policy"):
        draws = partial(checks.sampled_tables, kind=kind)
        add(f"sampled.{kind} mdp", draws, recorded=False, every=4, restricted=whole)
        add(f"sampled.{kind} transitions", draws, recorded=True, every=4, restricted=whole)
        gpu = partial(checks.gpu, kind=kind)
        add(f"gpu {kind}", gpu, every=10, restricted=single)
        add(f"gpu {kind} float32", gpu, every=10, dtype="float32", restricted=single)
        processes = partial(checks.sharded, kind=kind)
        add(f"exact.sharded.{kind}", processes, every=50, restricted=single)
        add(f"exact.sharded.{kind} tol=1e3", processes, every=100, tol=1e3, restricted=single)
    for rule in ("optimistic", "nearest", "pessimistic", "hopeful"):
        add(f"uses.transfer {rule}", checks.transfer, rule=rule, every=6)
    add("planning.optimal_values", checks.optimal_values)
    add("planning.optimal_values tol=1e3", checks.optimal_values, tol=1e3, every=2)
    add("planning.policy_values", checks.policy_values)
    add("planning.policy_values tol=1e-300", checks.policy_values, tol=1e-300, every=2)
    add("planning.greedy_policy", checks.greedy_policy)
    add("planning.greedy_policy tol=1e3", checks.greedy_policy, tol=1e3, every=2)
    return found


@dataclasses.dataclass(frozen=True)
class Finding:
    """A violated property: `what` is "violation", "warning", "hang" or the name of an error."""

    name: str
    seed: int
    what: str
    detail: str

    def __str__(self) -> str:
        return f"{self.name} seed={self.seed}: {self.what}: {self.detail}"


def check(name: str, seed: int) -> list[Finding]:
    """One property of one case, in this process."""
    from bisimetric import InputError
    from tests.high_precision import Undecided

    held = properties()[name]
    subject = _subject(seed, tuple(sorted(held.restricted.items())))
    found = []
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            found += [Finding(name, seed, "violation", text) for text in held.check(subject)]
        except Undecided as stop:
            found.append(Finding(name, seed, "undecided", str(stop)))
        except InputError as stop:
            # Distances and values beyond the largest float are refused, in as many words.
            if not re.search("makes? (distances|values) that float", str(stop)):
                found.append(Finding(name, seed, "InputError", str(stop)))
        except Exception as stop:
            where = traceback.extract_tb(stop.__traceback__)[-1]
            text = f"{stop} ({Path(where.filename).name}:{where.lineno})"
            found.append(Finding(name, seed, type(stop).__name__, text))
    texts = [f"{w.category.__name__}: {w.message} ({Path(w.filename).name})" for w in heard]
    return found + [Finding(name, seed, "warning", text) for text in sorted(set(texts))]


@functools.lru_cache(2)
def _subject(seed: int, restricted: tuple[tuple[str, Any], ...]) -> Any:
    from tests import oracle_properties as checks

    return checks.Subject(seed, **dict(restricted))


class Worker:
    """A process that checks what it is told, and may be ended."""

    def __init__(self, limit: float = LIMIT) -> None:
        self.limit = limit
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.oracle_campaign", "--worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        answers: queue.Queue[str] = queue.Queue()

        def read(process: subprocess.Popen[str]) -> None:
            assert process.stdout is not None
            with process.stdout:
                for line in process.stdout:
                    answers.put(line)
            answers.put("")

        self._reader = threading.Thread(target=read, args=(self._process,), daemon=True)
        self._reader.start()
        self._answers = answers

    def check(self, name: str, seed: int) -> list[Finding]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, seed]) + "\n")
        self._process.stdin.flush()
        line = self._answer()
        if line is None:
            self.end()
            self._start()
            return [Finding(name, seed, "hang", f"more than {self.limit:.0f} s")]
        if not line:
            code = self.end()
            self._start()
            return [Finding(name, seed, "crash", f"exit status {code}")]
        return [Finding(**each) for each in json.loads(line)]

    def _answer(self) -> str | None:
        """The next line; None where it took too much time of the processor."""
        process = psutil.Process(self._process.pid)
        before, begun = process.cpu_times().user, time.monotonic()
        while time.monotonic() - begun < BUSY * self.limit:
            with contextlib.suppress(queue.Empty):
                return self._answers.get(timeout=1.0)
            if process.is_running() and process.cpu_times().user - before > self.limit:
                return None
        return None

    def end(self) -> int:
        """Ends the process, if it has not ended, and gives its exit status."""
        assert self._process.stdin is not None
        self._process.kill()
        code = self._process.wait()
        self._reader.join()
        self._process.stdin.close()
        return code


def work() -> None:
    """Answers lines [name, seed] with findings, until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is no answer
    for line in sys.stdin:
        found = check(*json.loads(line))
        answers.write(json.dumps([dataclasses.asdict(each) for each in found]) + "\n")
        answers.flush()


@dataclasses.dataclass
class Report:
    """How often each property was checked, what was found, and the seconds that took."""

    checked: collections.Counter[str]
    seconds: collections.Counter[str]
    findings: list[Finding]

    def print(self) -> None:
        failed = collections.Counter((each.name, each.what) for each in self.findings)
        for name, count in self.checked.items():
            what = ", ".join(f"{n} {w}" for (other, w), n in failed.items() if other == name)
            mean = 1000 * self.seconds[name] / count
            print(f"{name:45} {count:7} checked {mean:7.1f} ms  {what or 'held'}")
        print(f"{sum(self.checked.values())} checks, {len(self.findings)} findings")


def campaign(
    cases: int,
    seed: int,
    only: str | None = None,
    seconds: float | None = None,
    limit: float = LIMIT,
    *,
    tell: bool,
) -> Report:
    """Checks the properties (those whose name `only` matches) of `cases` seeds from `seed`."""
    report = Report(collections.Counter(), collections.Counter(), [])
    worker, begun = Worker(limit), time.monotonic()
    try:
        for case in range(seed, seed + cases):
            hangs = 0
            for place, (name, held) in enumerate(properties().items()):
                skipped = (case + place) % held.every if only is None else not re.search(only, name)
                if skipped or hangs == HANGS:
                    continue
                start = time.monotonic()
                found = worker.check(name, case)
                report.seconds[name] += time.monotonic() - start  # type: ignore[assignment]
                report.checked[name] += 1
                report.findings += found
                hangs += any(each.what == "hang" for each in found)
                for each in found if tell else []:
                    print(each, flush=True)
            if seconds is not None and time.monotonic() - begun > seconds:
                break
    finally:
        worker.end()
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="a regular expression: properties whose name it matches")
    parser.add_argument("--seconds", type=float, help="no new case after so long")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds per check")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work()
        return 0
    # So that the worker ends with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    report = campaign(given.cases, given.seed, given.only, given.seconds, given.limit, tell=True)
    report.print()
    return bool(report.findings)


if __name__ == "__main__":
    sys.exit(main())

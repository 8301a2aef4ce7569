"""Check the library against the oracle on generated cases, and print every violation.

    python -m tests.oracle_campaign --cases 5000 --seed 1
    python -m tests.oracle_campaign --seed 17 --cases 1 --only 'exact.mico$'

Properties run in a separate process, so that one that hangs is killed and counted. A line
`property seed=n: ...` is reproduced by the second form.
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

CPU_SECONDS = 20.0  # per property and case, compilation included
MAX_HANGS = 2  # per case
MAX_WALL_FACTOR = 6  # wall time per CPU time, where other processes run


@dataclasses.dataclass(frozen=True)
class Property:
    """A check, the options of its cases, and its period: one case in `period` runs it."""

    check: Callable[..., Iterator[str]]
    period: int = 1
    restricted: dict[str, Any] = dataclasses.field(default_factory=dict)


@functools.cache
def properties() -> dict[str, Property]:
    """All properties by name."""
    from tests import oracle_properties as checks

    found: dict[str, Property] = {}

    def add(name: str, check: Any, *given: Any, period: int = 1, **options: Any) -> None:
        restricted = options.pop("restricted", {})
        found[name] = Property(functools.partial(check, *given, **options), period, restricted)

    partial = functools.partial
    single = {"deterministic": True}
    unrestricted = {"deterministic": True, "lacking": False}
    for kind in checks.KINDS:
        table = partial(checks.tables, kind=kind)
        certain = {"drawn": False}
        add(f"exact.{kind}", table)
        add(f"exact.{kind} tol=1e3", table, tol=1e3)
        add(f"exact.{kind} tol=1e-3", table, tol=1e-3, period=2)
        add(f"exact.{kind} tol=1e-300", table, tol=1e-300, period=2)
        add(f"exact.{kind} float32", table, dtype="float32", period=2)
        add(f"exact.{kind} float32 tol=1e3", table, dtype="float32", tol=1e3, period=4)
        if kind in ("on_policy", "mico"):
            add(f"exact.{kind} actions", table, period=2, restricted=certain)
            add(f"exact.{kind} actions tol=1e3", table, tol=1e3, period=4, restricted=certain)
        aggregate = partial(checks.aggregate, kind=kind)
        add(f"uses.aggregate {kind}", aggregate, tol=None, period=2)
        add(f"uses.aggregate {kind} tol=20", aggregate, tol=20.0, period=2)
        wide = partial(checks.wide_rows, kind=kind)
        add(f"wide rows {kind} 40", wide, width=40, discount=0.9, period=8)
        add(f"wide rows {kind} 250", wide, width=250, discount=0.2, period=200)
        add(f"wide rows {kind} 567", wide, width=567, discount=0.5, period=1000)
        if kind == "mico":
            continue
        add(f"uses.compress {kind}", partial(checks.compress, kind=kind), period=4)
        add(f"exact.asynchronous {kind}", partial(checks.asynchronous, kind=kind))
        pairs = partial(checks.pairs_of_mdp, kind=kind)
        add(f"pairs {kind}", pairs)
        add(f"pairs {kind} tol=1e3", pairs, tol=1e3, period=2)
        implicit = partial(checks.pairs_of_successors, kind=kind)
        add(f"ImplicitMDP {kind}", implicit, ranged=False)
        add(f"ImplicitMDP {kind} reward_range", implicit, ranged=True)
        add(f"ImplicitMDP {kind} reward_range tol=1e3", implicit, ranged=True, tol=1e3, period=2)
        hidden = partial(checks.hidden_reward, kind=kind)
        add(f"hidden reward {kind}", hidden, ranged=False, period=4)
        add(f"hidden reward {kind} reward_range", hidden, ranged=True, period=4)
        add(f"relation.{kind}", partial(checks.relations, kind=kind))
        gpu = partial(checks.gpu, kind=kind)
        add(f"gpu {kind}", gpu, period=10, restricted=single)
        add(f"gpu {kind} float32", gpu, period=10, dtype="float32", restricted=single)
    for kind in ("bisimulation", "on_policy"):
        draws = partial(checks.sampled_tables, kind=kind)
        add(f"sampled.{kind} mdp", draws, recorded=False, period=4, restricted=unrestricted)
        add(f"sampled.{kind} transitions", draws, recorded=True, period=4, restricted=unrestricted)
        processes = partial(checks.sharded, kind=kind)
        add(f"exact.sharded.{kind}", processes, period=50, restricted=single)
        add(f"exact.sharded.{kind} tol=1e3", processes, period=100, tol=1e3, restricted=single)
    for kind in ("bisimulation", "on_policy", "lax"):
        gpu = partial(checks.gpu, kind=kind)
        several = {"deterministic": False}
        add(f"gpu stochastic {kind}", gpu, period=10, restricted=several)
        add(f"gpu stochastic {kind} float32", gpu, period=20, dtype="float32", restricted=several)
        add(f"gpu stochastic {kind} tol=1e-300", gpu, period=20, tol=1e-300, restricted=several)
    for rule in ("optimistic", "nearest", "pessimistic", "hopeful"):
        add(f"uses.transfer {rule}", checks.transfer, rule=rule, period=6)
    add("planning.optimal_values", checks.optimal_values)
    add("planning.optimal_values tol=1e3", checks.optimal_values, tol=1e3, period=2)
    add("planning.policy_values", checks.policy_values)
    add("planning.policy_values tol=1e-300", checks.policy_values, tol=1e-300, period=2)
    add("planning.greedy_policy", checks.greedy_policy)
    add("planning.greedy_policy tol=1e3", checks.greedy_policy, tol=1e3, period=2)
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
    """Check one property of one case, in this process."""
    from bisimetric import InputError
    from bisimetric.errors import NearTieWarning
    from tests.high_precision import Undecided

    prop = properties()[name]
    subject = _subject(seed, tuple(sorted(prop.restricted.items())))
    found = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", NearTieWarning)  # adversarial rewards are near-ties
        try:
            found += [Finding(name, seed, "violation", text) for text in prop.check(subject)]
        except Undecided as stop:
            found.append(Finding(name, seed, "undecided", str(stop)))
        except InputError as stop:
            # Distances and values beyond the largest float raise with this message.
            if not re.search("makes? (distances|values) that float", str(stop)):
                found.append(Finding(name, seed, "InputError", str(stop)))
        except Exception as stop:
            where = traceback.extract_tb(stop.__traceback__)[-1]
            text = f"{stop} ({Path(where.filename).name}:{where.lineno})"
            found.append(Finding(name, seed, type(stop).__name__, text))
    texts = [f"{w.category.__name__}: {w.message} ({Path(w.filename).name})" for w in caught]
    return found + [Finding(name, seed, "warning", text) for text in sorted(set(texts))]


@functools.lru_cache(2)
def _subject(seed: int, restricted: tuple[tuple[str, Any], ...]) -> Any:
    from tests import oracle_properties as checks

    return checks.Subject(seed, **dict(restricted))


class Worker:
    """A process that checks properties on request, and may be killed."""

    def __init__(self, limit: float = CPU_SECONDS) -> None:
        self.limit = limit
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.oracle_campaign", "--worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        replies: queue.Queue[str] = queue.Queue()

        def read(process: subprocess.Popen[str]) -> None:
            assert process.stdout is not None
            with process.stdout:
                for line in process.stdout:
                    replies.put(line)
            replies.put("")

        self._reader = threading.Thread(target=read, args=(self._process,), daemon=True)
        self._reader.start()
        self._replies = replies

    def check(self, name: str, seed: int) -> list[Finding]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, seed]) + "\n")
        self._process.stdin.flush()
        line = self._read_reply()
        if line is None:
            self.end()
            self._start()
            return [Finding(name, seed, "hang", f"more than {self.limit:.0f} s")]
        if not line:
            code = self.end()
            self._start()
            return [Finding(name, seed, "crash", f"exit status {code}")]
        return [Finding(**each) for each in json.loads(line)]

    def _read_reply(self) -> str | None:
        """Read the next line; None where it took too much CPU time."""
        process = psutil.Process(self._process.pid)
        before, started = process.cpu_times().user, time.monotonic()
        while time.monotonic() - started < MAX_WALL_FACTOR * self.limit:
            with contextlib.suppress(queue.Empty):
                return self._replies.get(timeout=1.0)
            if process.is_running() and process.cpu_times().user - before > self.limit:
                return None
        return None

    def end(self) -> int:
        """Kill the process, and return its exit status."""
        assert self._process.stdin is not None
        self._process.kill()
        code = self._process.wait()
        self._reader.join()
        self._process.stdin.close()
        return code


def work() -> None:
    """Reply to each line [name, seed] with findings."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # other output is not a reply
    for line in sys.stdin:
        found = check(*json.loads(line))
        replies.write(json.dumps([dataclasses.asdict(each) for each in found]) + "\n")
        replies.flush()


@dataclasses.dataclass
class Report:
    """How often each property was checked, the findings, and the seconds."""

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
    limit: float = CPU_SECONDS,
    *,
    verbose: bool,
) -> Report:
    """Check the properties (those whose name `only` matches) of `cases` seeds from `seed`."""
    report = Report(collections.Counter(), collections.Counter(), [])
    worker, started = Worker(limit), time.monotonic()
    try:
        for case in range(seed, seed + cases):
            hangs = 0
            for position, (name, prop) in enumerate(properties().items()):
                skipped = (
                    (case + position) % prop.period if only is None else not re.search(only, name)
                )
                if skipped or hangs == MAX_HANGS:
                    continue
                start = time.monotonic()
                found = worker.check(name, case)
                report.seconds[name] += time.monotonic() - start  # type: ignore[assignment]
                report.checked[name] += 1
                report.findings += found
                hangs += any(each.what == "hang" for each in found)
                for each in found if verbose else []:
                    print(each, flush=True)
            if seconds is not None and time.monotonic() - started > seconds:
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
    parser.add_argument("--limit", type=float, default=CPU_SECONDS, help="seconds per check")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work()
        return 0
    # The worker ends with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    report = campaign(given.cases, given.seed, given.only, given.seconds, given.limit, verbose=True)
    report.print()
    return bool(report.findings)


if __name__ == "__main__":
    sys.exit(main())

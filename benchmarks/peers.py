"""Compare with other programs: `make peers`, or `python benchmarks/peers.py [--write] [name ...]`.

Both sides solve the same MDP to the same stated error in one run. Times are CPU seconds of one
thread, because most peers use one, after compilation. `--published FOLDER` names a checkout of
github.com/google-research/google-research for the published code; without it these rows are left
out. `--write` puts the rows into docs/reports/peers.md; rows that were not measured stay there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

import report
from bisimetric import MDP, exact, relation, sampled, worlds
from planted import plant_classes
from sinkhorn import SinkhornValueIteration

PEERS = Path(__file__).parents[1] / ".venv-peers" / "bin" / "python"
PAGE = report.REPORTS / "peers.md"
HEADER = ("peer", "task", "error", "peer's time", "bisimetric", "ratio")
ORDER = (
    "google-research, `bisimulation_aaai2020`",
    "google-research, `rl_metrics_aaai2021`",
    "google-research, `ksme`",
    "Sinkhorn value iteration",
    "POT, `ot.emd2` on every pair",
    "Storm",
    "Storm, decision diagrams",
)
Row = tuple[str, ...]


def measure_seconds(work: Callable[[], Any], repeat: int = 5) -> float:
    """Return the least CPU time of some runs, in seconds, after one that compiles."""
    work()
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def run_peer(script: str, *arguments: object) -> dict[str, float]:
    """Run a script in the environment of the peers; return the JSON that it prints."""
    if not PEERS.exists():
        raise SystemExit("the peers are not installed: run this as `make peers`.")
    done = subprocess.run(
        [PEERS, Path(__file__).with_name(script), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(
    peer: str,
    task: str,
    error: str,
    theirs: float,
    ours: float,
    peers_note: str = "",
    note: str = "",
) -> Row:
    """Return a row; the ratio is above 1 where bisimetric is faster."""
    ratio = theirs / ours
    shown = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"
    return (
        peer,
        task,
        error,
        report.format_seconds(theirs) + peers_note,
        report.format_seconds(ours) + note,
        shown,
    )


def require_close(values: NDArray[np.floating[Any]], d: Any, error: float, what: str) -> None:
    """Raise if two distance matrices differ by more than their errors."""
    gap = float(np.abs(values - d.values).max())
    if gap > error + d.error + 1e-9:
        raise RuntimeError(f"{what}: the two distances differ by {gap:.3g}")


def published(folder: Path | None) -> Iterator[Row]:
    """The published code of Castro (2020) and of two later papers, unchanged."""
    if folder is None:
        print("published: left out; it needs --published FOLDER, see --help", flush=True)
        return
    with tempfile.TemporaryDirectory() as scratch:
        yield from _published_grids(folder, Path(scratch))
        yield from _published_random(folder, Path(scratch))


def _published_grids(folder: Path, scratch: Path) -> Iterator[Row]:
    peer, out = "google-research, `bisimulation_aaai2020`", scratch / "out.npz"
    configs = folder / "bisimulation_aaai2020" / "grid_world" / "configs"
    for task, name, symbol in (
        ("rooms", "mirrored_rooms.grid", "d~"),
        ("policy", "mirrored_rooms_policy.grid", "d^pi"),
    ):
        grid = scratch / f"{task}.txt"
        grid.write_text((configs / name).read_text())
        mdp = worlds.load(str(grid), discount=0.99)

        def solve(tol: float, mdp: MDP = mdp, task: str = task) -> Any:
            if task == "rooms":
                return exact.bisimulation(mdp, tol=tol)
            return exact.on_policy(mdp, mdp.policy, tol=tol)

        for tol in (0.001, 1e-6 / 99):
            error = tol * 99
            seen = run_peer("peers_published.py", folder, task, tol, out)
            require_close(np.load(out)["values"], solve(error), error, f"{peer}, {task}")
            seconds = measure_seconds(lambda solve=solve, error=error: solve(error), 50)  # type: ignore[misc]
            yield compare(
                peer,
                f"{symbol}, 31 states, discount 0.99",
                f"{error:.2g}",
                seen["seconds"],
                seconds,
                f", {seen['iterations']:,} sweeps",
            )
    mdp = worlds.load(str(scratch / "rooms.txt"), discount=0.99)
    seen = run_peer("peers_published.py", folder, "sampled", 200_000, out)
    d = exact.bisimulation(mdp)
    run = sampled.SampledRun("bisimulation", mdp, sampler=sampled.Uniform())
    run.advance(1)
    start, updates = time.process_time(), 1
    while np.abs(run.values - d.values).max() > 1e-3:
        run.advance(100_000)
        updates += 100_000
    ours = report.format_seconds(time.process_time() - start)
    yield (
        peer,
        "d~ from sampled transitions, 31 states, discount 0.99",
        "0.001",
        f"not reached: {seen['least']:.0f} or more in {seen['iterations'] - 1:,} updates",
        f"{ours}, {updates / 1e6:.1f} million updates",
        "",
    )


def _published_random(folder: Path, scratch: Path) -> Iterator[Row]:
    out = scratch / "out.npz"
    for task, symbol in (("bisimulation", "d~"), ("lax", "d_lax")):
        for error in (1e-2, 1e-6):
            peer = "google-research, `rl_metrics_aaai2021`"
            seen = run_peer("peers_published.py", folder, task, error / 9, out)
            with np.load(out) as stored:
                values, P, R = stored["values"], stored["P"], stored["R"]
            mdp = MDP(P, R, discount=0.9)
            solve = {"bisimulation": exact.bisimulation, "lax": exact.lax}[task]
            require_close(values, solve(mdp, tol=error), error, f"{peer}, {task}")
            seconds = measure_seconds(lambda s=solve, m=mdp, e=error: s(m, tol=e), 10)  # type: ignore[misc]
            size = "20 random states, 2 actions, discount 0.9"
            yield compare(peer, f"{symbol}, {size}", f"{error:.2g}", seen["seconds"], seconds)
    for states in (10, 50):
        seen = run_peer("peers_published.py", folder, "mico", states, out)
        with np.load(out) as stored:
            mdp = MDP(stored["P"], stored["R"], discount=0.9)
            values, policy = stored["values"], stored["policy"]
        require_close(values, exact.mico(mdp, policy), 0.0, "MICo")
        seconds = measure_seconds(lambda m=mdp, p=policy: exact.mico(m, p), 10)  # type: ignore[misc]
        task = f"MICo, {states} random states, discount 0.9"
        yield compare("google-research, `ksme`", task, "1e-06", seen["seconds"], seconds)


SETTINGS = ((0.03, 0.0), (0.1, 0.0), (0.3, 0.0), (1.0, 0.0), (3.0, 0.0), (1.0, 0.5))
"""Step sizes eta, and exponents of their decay, that are tried for Sinkhorn value iteration."""


def time_sinkhorn(
    mdp: MDP, values: NDArray[np.floating[Any]], errors: Sequence[float], limit: float
) -> dict[float, tuple[float, int]]:
    """Return CPU seconds and iterations to each error, by the best setting for each.

    Only the iterations, one rounding and one evaluation are counted, as if the setting and the
    number of iterations were known beforehand. A setting ends after `limit` seconds of iterations.
    """
    best: dict[float, tuple[float, int]] = {}
    for eta, decay in SETTINGS:
        solver, seconds, remaining = SinkhornValueIteration(mdp, eta, decay), 0.0, list(errors)
        while remaining and seconds < limit:
            start = time.process_time()
            solver.iterate(max(1, solver.iterations // 4))
            seconds += time.process_time() - start
            while remaining:
                start = time.process_time()
                bound = solver.bound(remaining[0] / 10)
                total = seconds + time.process_time() - start
                if np.abs(bound - values).max() > remaining[0]:
                    break
                found = (total, solver.iterations)
                best[remaining[0]] = min(best.get(remaining[0], found), found)
                remaining.pop(0)
    return best


def sinkhorn() -> Iterator[Row]:
    """Sinkhorn value iteration on chains with small and with full supports."""
    tiny = worlds.load("random", states=5, actions=1, successors=2, discount=0.9)
    time_sinkhorn(tiny, exact.bisimulation(tiny).values, [1.0], 1.0)
    for states, successors, limit in ((80, 8, 5.0), (50, 50, 5.0), (100, 100, 8.0)):
        options = {"states": states, "actions": 1, "successors": successors, "discount": 0.9}
        mdp = worlds.load("random", **options)
        d = exact.bisimulation(mdp, tol=1e-8)
        errors = (0.1, 1e-2, 1e-3, 1e-6) if states < 100 else (0.1, 1e-2)
        best = time_sinkhorn(mdp, d.values, errors, limit)
        task = f"d~, chain of {states} states with {successors} successors, discount 0.9"
        for error in errors:
            seconds = measure_seconds(
                lambda mdp=mdp, error=error: exact.bisimulation(mdp, tol=error),  # type: ignore[misc]
                5 if states < 100 else 1,
            )
            peer = "Sinkhorn value iteration"
            if error in best:
                theirs, iterations = best[error]
                note = f", {iterations:,} iterations"
                yield compare(peer, task, f"{error:.2g}", theirs, seconds, note)
            else:
                ours, text = report.format_seconds(seconds), f"not reached in {limit:.0f} s"
                digits = math.floor(math.log10(limit / seconds))
                least = math.floor(limit / seconds / 10**digits) * 10**digits
                yield (peer, task, f"{error:.2g}", text, ours, f"> {least:,.0f}")


def pot() -> Iterator[Row]:
    """One call of POT's `ot.emd2` on the supports per pair and action, repeated to the error."""
    for states, actions, successors, errors in (
        (80, 1, 8, (1e-2, 1e-6)),
        (50, 1, 50, (1e-2,)),
        (40, 4, 5, (1e-2, 1e-6)),
        (120, 4, 100, (1e-2, 1e-6)),
    ):
        mdp = worlds.load(
            "random", states=states, actions=actions, successors=successors, discount=0.9
        )
        shape = (states, actions, successors)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "mdp.npz"
            np.savez(
                path,
                successors=mdp.P.indices.reshape(shape),
                probabilities=mdp.P.data.reshape(shape),
                R=mdp.R,
                discount=mdp.discount,
            )
            for error in errors:
                seen = run_peer("peers_pot.py", path, error)
                d = exact.bisimulation(mdp, tol=error)
                require_close(np.load(path.with_suffix(".npy")), d, error, "POT")
                seconds = measure_seconds(
                    lambda mdp=mdp, error=error: exact.bisimulation(mdp, tol=error)  # type: ignore[misc]
                )
                kind = "chain of " if actions == 1 else ""
                name = f"{kind}{states} states" + (f", {actions} actions" if actions > 1 else "")
                yield compare(
                    "POT, `ot.emd2` on every pair",
                    f"d~, {name}, {successors} successors, discount 0.9",
                    f"{error:.2g}",
                    seen["seconds"],
                    seconds,
                    f", {seen['sweeps']} sweeps, {seen['call']:.0f} µs per call",
                )


def storm() -> Iterator[Row]:
    """Bisimulation minimisation by Storm: from arrays, from files, and by decision diagrams."""
    with tempfile.TemporaryDirectory() as folder:
        yield _storm_arrays(Path(folder))
        yield _storm_files(Path(folder))
        for components, levels in ((32, 2), (16, 4)):
            yield _storm_symbolic(Path(folder), components, levels)


def _storm_arrays(folder: Path) -> Row:
    """A planted stochastic MDP with rewards, from arrays."""
    planted = plant_classes(100_000, 2_000, 4, 3, seed=0)
    P, path = planted.P, folder / "mdp.npz"
    np.savez(path, R=planted.R, data=P.data, indices=P.indices, indptr=P.indptr)
    seen = run_peer("peers_stormpy.py", "arrays", path, 5)
    _require_classes(relation.bisimulation(MDP(P, planted.R, 0.9)), planted.classes, seen)
    seconds = measure_seconds(lambda: relation.bisimulation(MDP(P, planted.R, 0.9)))
    return _compare_storm(
        f"classes of an MDP with rewards, 100,000 states, {P.nnz:,} transitions, from arrays",
        seen,
        seconds,
    )


def _storm_files(folder: Path) -> Row:
    """A planted Markov chain with four labels, from explicit files."""
    planted = plant_classes(100_000, 2_000, 1, 3, seed=0)
    rng = np.random.default_rng(0)
    labels = np.hstack([planted.R > 0, rng.integers(2, size=(2_000, 3))[planted.classes] > 0])
    write_explicit_files(planted.P.tocoo(), labels, folder)
    seen = run_peer("peers_stormpy.py", "files", folder / "storm.tra", 5)

    def read() -> MDP:
        return worlds.from_prism(folder / "ours.tra", observe="a,b,c,d", discount=0.9)

    mdp = read()
    _require_classes(relation.bisimulation(mdp), planted.classes, seen)
    seconds = measure_seconds(lambda: relation.bisimulation(mdp))
    return _compare_storm(
        f"classes of a chain with 4 labels, 100,000 states, {planted.P.nnz:,} transitions, "
        "from files",
        seen,
        seconds + measure_seconds(read),
        f", of which {report.format_seconds(seconds)} to refine",
    )


def write_explicit_files(P: Any, labels: NDArray[np.bool_], folder: Path) -> None:
    """Write a chain with labels a, b, ... in the explicit formats of Storm and of PRISM."""
    lines = [f"{s} {t} {p!r}" for s, t, p in zip(P.row, P.col, P.data.tolist(), strict=True)]
    (folder / "storm.tra").write_text("\n".join(["dtmc", *lines]) + "\n")
    (folder / "ours.tra").write_text("\n".join([f"{len(labels)} {len(lines)}", *lines]) + "\n")
    names = ["init", *"abcdefgh"[: labels.shape[1]]]
    initial = np.arange(len(labels)) == 0
    held = [np.flatnonzero(row).tolist() for row in np.column_stack([initial, labels])]
    by_name = [f"{s} {' '.join(names[i] for i in row)}" for s, row in enumerate(held) if row]
    by_number = [f"{s}: {' '.join(map(str, row))}" for s, row in enumerate(held) if row]
    declaration = ["#DECLARATION", " ".join(names), "#END"]
    (folder / "storm.lab").write_text("\n".join([*declaration, *by_name]) + "\n")
    numbered = " ".join(f'{i}="{name}"' for i, name in enumerate(names))
    (folder / "ours.lab").write_text("\n".join([numbered, *by_number]) + "\n")


def _storm_symbolic(folder: Path, components: int, levels: int) -> Row:
    """Independent components that wear out, as PRISM source, by decision diagrams."""
    path = folder / "components.pm"
    path.write_text(write_components(components, levels))
    seen = run_peer("peers_stormpy.py", "symbolic", path)
    task = f"classes of {components} components, {seen['states']:,} states, from PRISM source"
    theirs = f"{report.format_seconds(seen['build'] + seen['minimise'])}, {seen['classes']} classes"
    return ("Storm, decision diagrams", task, "0", theirs, "not possible", "")


def write_components(components: int, levels: int) -> str:
    """Return PRISM source of independent components, of which one per step may wear out.

    Every probability is a power of 2, so that sums of them are exact, if `components` is one.
    """
    last = levels - 1
    others = [f"module c{i} = c1 [x1=x{i}] endmodule" for i in range(2, components + 1)]
    failed = " & ".join(f"x{i}={last}" for i in range(1, components + 1))
    first = f"""dtmc
module c1
  x1 : [0..{last}] init 0;
  [] x1<{last} -> 0.5:(x1'=x1) + 0.5:(x1'=x1+1);
  [] x1={last} -> 1:(x1'=x1);
endmodule"""
    return "\n".join([first, *others, f'label "failed" = {failed};']) + "\n"


def _require_classes(
    found: NDArray[np.int64], planted: NDArray[np.int64], seen: dict[str, float]
) -> None:
    """Raise unless the classes are the planted ones, as many as Storm finds."""
    both = len(np.unique(found * (planted.max() + 1) + planted))
    if not both == found.max() + 1 == planted.max() + 1 == seen["classes"]:
        raise RuntimeError(f"{found.max() + 1} classes, Storm {seen['classes']}: not the planted")


def _compare_storm(task: str, seen: dict[str, float], seconds: float, note: str = "") -> Row:
    peers_note = f", of which {report.format_seconds(seen['minimise'])} to minimise"
    theirs = seen["build"] + seen["minimise"]
    return compare("Storm", task, "0", theirs, seconds, peers_note, note)


COMPARISONS: dict[str, Callable[[], Iterator[Row]]] = {
    "sinkhorn": sinkhorn,
    "pot": pot,
    "storm": storm,
}
NAMES = ["published", *COMPARISONS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="name")
    parser.add_argument("--published", type=Path, help="a checkout of google-research")
    parser.add_argument("--write", action="store_true", help=f"write the rows to {PAGE.name}")
    arguments = parser.parse_args()
    numba.set_num_threads(1)
    machine = report.describe_machine()
    print(machine, report.format_row(HEADER), sep="\n\n", flush=True)
    rows = []
    for name in arguments.names or NAMES:
        measured = published(arguments.published) if name == "published" else COMPARISONS[name]()
        for row in measured:
            rows.append(row)
            print(report.format_row(row), flush=True)
    if arguments.write:
        write_rows(rows, machine)


def write_rows(rows: Sequence[Row], machine: str) -> None:
    """Put rows into the page, in place of those of the same peers."""
    stored = report.read_results(PAGE)
    if stored and stored[0] != machine:
        raise SystemExit(f"{PAGE.name} was measured on another machine: {stored[0]}")
    peers = {row[0] for row in rows}
    kept = [tuple(line[2:-2].split(" | ")) for line in stored[4:]]
    table = [row for row in kept if row[0] not in peers] + list(rows)
    table.sort(key=lambda row: ORDER.index(row[0]) if row[0] in ORDER else len(ORDER))
    lines = [report.format_row(row) for row in table]
    head = [machine, "", report.format_row(HEADER), "|" + "---|" * len(HEADER)]
    report.write_results(PAGE, [*head, *lines])


if __name__ == "__main__":
    main()

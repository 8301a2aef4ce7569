"""Classes of labelled models, against Storm: `python benchmarks/labelled_models.py [--write]`.

The models are those that stormpy ships, built and exported by Storm itself (`storm_models.py`, in
the environment of `make peers`), and a planted chain and MDP. Both sides read explicit files and
preserve all labels but "init", which Storm ignores. Times are CPU seconds of one thread, the least
of five runs after compilation, all in one run. `--write` puts the table into docs/reports/peers.md.
"""

from __future__ import annotations

import argparse
import tempfile
import textwrap
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import peers
import report
from bisimetric import MDP, relation, worlds
from planted import plant_classes

HEADER = (
    "model",
    "states",
    "transitions",
    "classes: `lax`",
    "Storm",
    "with choice labels: `bisimulation`",
    "Storm ",
    "with rewards: `lax`",
    "Storm  ",
    "import + classes",
    "Storm: import + classes",
)
EMBEDDED_TOL = 1e-9
"""Seconds: rounding is below, and the differences of mean times in states are above 1e-4."""
BEGIN, END = "<!-- labelled models -->\n", "<!-- end of labelled models -->\n"


def compare(name: str, folder: Path, seen: dict[str, Any]) -> tuple[str, ...]:
    """Return the row of a model; raise if the classes differ."""

    def read(**rewards: Any) -> MDP:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # states lack choices of others
            path = folder / f"{name}.tra"
            return worlds.from_prism(path, observe=seen["labels"], discount=0.9, **rewards)

    mdp = read()
    lax = int(relation.lax(mdp).max()) + 1
    named = int(relation.bisimulation(mdp).max()) + 1
    expected = (seen["classes"], seen["classes"] if seen["chain"] else seen["choice_classes"])
    if (lax, named) != expected:
        raise RuntimeError(f"{name}: {lax} and {named} classes, and Storm has {expected}")
    paid = _count_reward_classes(name, folder, seen, read)
    seconds = peers.measure_seconds(read), peers.measure_seconds(lambda: relation.lax(mdp))
    chain = bool(seen["chain"])
    return (
        name,
        f"{seen['states']:,}",
        f"{seen['transitions']:,}",
        f"{lax:,}",
        f"{seen['classes']:,}",
        "" if chain else f"{named:,}",
        "" if chain else f"{seen['choice_classes']:,}",
        *([f"{paid:,}"] * 2 if paid else ["", ""]),
        " + ".join(map(report.format_seconds, seconds)),
        " + ".join(report.format_seconds(seen[key]) for key in ("import", "minimise")),
    )


def compare_embedded(name: str, folder: Path, seen: dict[str, Any]) -> tuple[str, ...]:
    """Return the row of an embedded chain, whose rewards 1 / E(s) differ by rounding."""
    chain = worlds.from_prism(
        folder / f"{name}.tra",
        observe=seen["labels"],
        discount=0.9,
        srew=folder / f"{name}.srew.txt",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # near-ties
        exactly = int(relation.lax(chain).max()) + 1
    classes = int(relation.lax(chain, reward_tol=EMBEDDED_TOL).max()) + 1
    if classes != seen["classes"]:
        raise RuntimeError(f"{name}: {classes} classes, and Storm has {seen['classes']}")
    print(f"{name}: {exactly:,} classes without reward_tol, {classes:,} with {EMBEDDED_TOL:g}")
    counts = f"{seen['states']:,}", f"{seen['transitions']:,}"
    return (name, *counts, "", "", "", "", f"{classes:,}", f"{seen['classes']:,}", "", "")


def _count_reward_classes(
    name: str, folder: Path, seen: dict[str, Any], read: Callable[..., MDP]
) -> int | None:
    """Return the classes with rewards, or None without; raise if they differ from Storm's."""
    files = {kind: folder / f"{name}.{kind}.txt" for kind in ("srew", "trew")}
    found = {kind: path for kind, path in files.items() if path.exists()}
    if not found:
        return None
    classes = int(relation.lax(read(**found)).max()) + 1
    if classes != seen["reward_classes"]:
        raise RuntimeError(f"{name}: {classes} classes with rewards, and Storm has {seen}")
    return classes


def compare_planted(folder: Path, states: int, actions: int) -> tuple[str, ...]:
    """Compare on a planted chain or MDP with four labels and no choice labels."""
    planted = plant_classes(states, 2_000, actions, 3, seed=0)
    rng = np.random.default_rng(0)
    held = rng.integers(2, size=(2_000, 3))[planted.classes] > 0
    labels = np.hstack([planted.R[:, :1] > 0, held])
    name = "planted chain" if actions == 1 else "planted MDP"
    P = planted.P.tocoo()
    peers.write_explicit_files(P, labels, folder)
    if actions > 1:
        lines = [
            f"{row // actions} {row % actions} {successor} {probability!r}"
            for row, successor, probability in zip(P.row, P.col, P.data.tolist(), strict=True)
        ]
        counts = f"{states} {states * actions} {len(lines)}"
        (folder / "ours.tra").write_text("\n".join([counts, *lines]) + "\n")
        (folder / "storm.tra").write_text("\n".join(["mdp", *lines]) + "\n")
    seen: dict[str, Any] = peers.run_peer("peers_stormpy.py", "files", folder / "storm.tra", 5)
    facts = {**seen, "chain": True, "labels": list("abcd"), "import": seen["build"]}
    return (name, *compare("ours", folder, facts)[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="update docs/reports/peers.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found: dict[str, Any] = peers.run_peer("storm_models.py", folder)
        rows = [
            (compare_embedded if seen.get("embedded") else compare)(model, folder, seen)
            for model, seen in found.items()
        ]
        rows.append(compare_planted(folder, 100_000, 1))
        rows.append(compare_planted(folder, 50_000, 2))
    lines = [report.format_row(HEADER), report.format_row(["---"] + ["---:"] * (len(HEADER) - 1))]
    lines += map(report.format_row, rows)
    machine = textwrap.fill(report.describe_machine(), 100)
    table = "\n".join([machine, "", *lines]) + "\n"
    print(table)
    if options.write:
        page = peers.PAGE
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Undiscounted distances of labelled models: `python benchmarks/undiscounted.py [--write] [NAME]`.

The models are those of `undiscounted_models.py`, built and exported by Storm in the environment of
`make peers`. Times are those of `exact.undiscounted` after compilation, all steps included, on all
cores; the CPU time is the sum over the cores. The distances are proven to 1e-6. `--write` puts the
table into docs/concepts/undiscounted.md.
"""

from __future__ import annotations

import argparse
import tempfile
import textwrap
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import peers
import report
from bisimetric import MDP, Distance, exact, worlds

PAGE = Path(__file__).parents[1] / "docs" / "concepts" / "undiscounted.md"
HEADER = (
    "model",
    "states",
    "transitions",
    "classes",
    "pairs of classes",
    "distance 1",
    "undecided",
    "largest undecided distance",
    "error",
    "steps",
    "CPU time",
    "time",
)


def read(folder: Path, name: str, facts: dict[str, Any]) -> MDP:
    """Read an exported model with its labels; choices of equal labels are matched in order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # states lack choices of others
        mdp = worlds.from_prism(folder / f"{name}.tra", observe=facts["labels"])
    return mdp.replace(choice_labels=None)


def measure(name: str, mdp: MDP, transitions: int) -> tuple[str, ...]:
    """Return the row of a model."""
    start = time.process_time()
    d = exact.undiscounted(mdp)
    cpu_seconds = time.process_time() - start
    found = d.metadata
    pairs = found["classes"] * (found["classes"] - 1) // 2
    return (
        name,
        f"{mdp.num_states:,}",
        f"{transitions:,}",
        f"{found['classes']:,}",
        f"{pairs:,}",
        f"{pairs - found['undecided']:,}",
        f"{found['undecided']:,}",
        describe_largest(d),
        f"{d.error:.1e}" if d.error else "0",
        f"{found['expected_steps']:.0f}" if found["undecided"] else "",
        report.format_seconds(cpu_seconds),
        report.format_seconds(found["seconds"]),
    )


def describe_largest(d: Distance) -> str:
    """Return the proven bounds on the largest distance below 1, or nothing where there is none."""
    below = np.where(d.values < 1, d.values, 0)
    s, t = np.unravel_index(int(np.argmax(below)), below.shape)
    if below[s, t] == 0:
        return ""
    low, high = d.bounds(int(s), int(t))
    return f"{low:.7f} to {high:.7f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="models; default: all")
    parser.add_argument("--write", action="store_true", help=f"update {PAGE.name}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found: dict[str, Any] = peers.run_peer("undiscounted_models.py", folder)
        for warm_up in ("die", "two_dice"):
            exact.undiscounted(read(folder, warm_up, found[warm_up]))
        rows = []
        for model, facts in found.items():
            if not options.names or model in options.names:
                mdp = read(folder, model, facts)
                rows.append(measure(model, mdp, facts["transitions"]))
                print(report.format_row(rows[-1]), flush=True)
    lines = [report.format_row(HEADER), report.format_row(["---"] + ["---:"] * (len(HEADER) - 1))]
    lines += map(report.format_row, rows)
    machine = textwrap.wrap(report.describe_machine(), 100)
    table = ["", *machine, "", *lines, ""]
    print("\n".join(table))
    if options.write:
        report.write_results(PAGE, table)


if __name__ == "__main__":
    main()

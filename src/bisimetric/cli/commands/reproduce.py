"""`bisimetric reproduce`: the figures and experiments of the paper, made anew."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from bisimetric.cli.arguments import count


def convergence(
    output: Annotated[Path, arg(aliases=["-o"], metavar="FOLDER")] = Path("convergence"),
    keys: Annotated[int, arg(metavar="N")] = 10,
    steps: Annotated[str, arg(metavar="N")] = "10M",
    goal: Annotated[float, arg(metavar="T")] = 1e-3,
    discount: Annotated[float, arg(metavar="G")] = 0.99,
) -> int:
    """How many samples d~ and d^pi take on the paper's 31 states, by sampler.

    Args:
        output: where the figure and its numbers go; it is made where it is missing
        keys: how many runs of each sampler
        steps: where a run ends at the latest, in pairs of transitions
        goal: the error that the table of samples is for
        discount: of the paper's world

    Examples:
        bisimetric reproduce convergence
        bisimetric reproduce convergence -o figures --keys 20 --goal 1e-2
    """
    most = count("--steps", steps, least=1)
    from bisimetric.cli import report
    from bisimetric.paper import convergence as library

    words = ["bisimetric", "reproduce", "convergence", "-o", str(output)]
    for name, value in (("keys", keys), ("steps", most), ("goal", goal), ("discount", discount)):
        words += [f"--{name}", str(value)]
    results = library.reproduce(
        output, keys=keys, steps=most, goal=goal, discount=discount, command=shlex.join(words)
    )
    print(*library.lines(results), sep="\n")
    print(*report.saved_lines([output / "convergence.png", output / "convergence.json"]), sep="\n")
    return 0 if results.bisimulation.below and results.on_policy.below else 1

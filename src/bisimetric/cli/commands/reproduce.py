"""`bisimetric reproduce`: the figures and experiments of the paper, made anew.

`bisimetric demo`: the main job on the built-in default.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal, get_args

from tyro.conf import FlagCreatePairsOff, arg

from bisimetric.cli.options import parse_count, program_name

Part = Literal["no-noise", "noise", "policy", "policy-noise"]
WorldName = Literal[
    "rooms", "rooms-noise", "policy", "policy-noise", "obstacles", "minigrid", "walls", "lava"
]
WORLDS: tuple[WorldName, ...] = get_args(WorldName)
PARTS: tuple[Part, ...] = get_args(Part)
Flag = FlagCreatePairsOff[bool]


def convergence(
    output: Annotated[Path, arg(aliases=["-o"], metavar="FOLDER")] = Path("convergence"),
    seeds: Annotated[int, arg(metavar="N")] = 10,
    steps: Annotated[str, arg(metavar="N")] = "10M",
    target_error: Annotated[float, arg(metavar="T")] = 1e-3,
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
    most = parse_count("--steps", steps, minimum=1)
    from bisimetric.cli import report
    from bisimetric.paper import convergence as library

    words = ["bisimetric", "reproduce", "convergence", "-o", str(output)]
    for name, value in (
        ("keys", seeds),
        ("steps", most),
        ("goal", target_error),
        ("discount", discount),
    ):
        words += [f"--{name}", str(value)]
    results = library.reproduce(
        output,
        num_seeds=seeds,
        steps=most,
        target_error=target_error,
        discount=discount,
        command=shlex.join(words),
    )
    print(*library.format_table(results), sep="\n")
    print(
        *report.describe_saved([output / "convergence.png", output / "convergence.json"]), sep="\n"
    )
    return 0 if results.bisimulation.lemma_holds and results.on_policy.lemma_holds else 1


def algorithms(
    output: Annotated[Path, arg(aliases=["-o"], metavar="FOLDER")] = Path("recipes"),
    quick: Flag = False,
    updates: Annotated[
        str | None, arg(metavar="N", help_behavior_hint="(default: 24k; quick: 4k)")
    ] = None,
    seeds: Annotated[
        int | None, arg(metavar="N", help_behavior_hint="(default: 10; quick: 2)")
    ] = None,
    worlds: tuple[WorldName, ...] = WORLDS,
    ablation: Flag = False,
) -> int:
    """The paper's way to learn a distance beside that of `bisimetric learned`, on eight worlds.

    Errors against the exact metric, step by step. For a GPU; on a processor name one of the trials
    without noise. What the folder holds already is kept.

    Args:
        output: where figures and curves go; it is made where it is missing
        quick: fewer steps and seeds
        steps: how many each network learns for
        seeds: how many networks of each kind
        trials: the worlds
        ablation: also with one thing changed at a time

    Examples:
        bisimetric reproduce recipes --quick --trials rooms
        bisimetric reproduce recipes --trials rooms --ablation -o figures
    """
    most = None if updates is None else parse_count("--steps", updates, minimum=1)
    from bisimetric.cli import report
    from bisimetric.paper import algorithms as library

    names = [*library.ALGORITHMS, *(library.ABLATIONS if ablation else ())]
    found = library.measure(output, worlds, names, updates=most, num_seeds=seeds, quick=quick)
    print(*library.format_table(found), sep="\n")
    print(*report.describe_saved(library.draw_figures(output)), sep="\n")
    return 0


def gridworld(
    output: Annotated[Path, arg(aliases=["-o"], metavar="FOLDER")] = Path("gridworld"),
    quick: Flag = False,
    updates: Annotated[
        str | None, arg(metavar="N", help_behavior_hint="(default: 240k; quick: fewer)")
    ] = None,
    seeds: Annotated[
        int | None, arg(metavar="N", help_behavior_hint="(default: 10; quick: 3)")
    ] = None,
    parts: tuple[Part, ...] = PARTS,
    resume: Flag = False,
) -> int:
    """Networks learn d~ and d^pi of the paper's 31 states, with noise and without.

    Their errors over steps, the learned tables, and samples of the noisy world aggregated by the
    learned distance. The whole experiment is for a GPU; on a processor use --quick.

    Args:
        output: where figures, curves and networks go; it is made where it is missing
        quick: some minutes on two processor cores: fewer steps and seeds, small batches with noise
        steps: how many each network learns for
        seeds: how many networks of each part
        parts: d~ and, under a policy, d^pi; without noise and with it
        resume: keep the parts that the folder holds, and go on with one that was broken off

    Examples:
        bisimetric reproduce gridworld --quick
        bisimetric reproduce gridworld --parts noise -o figures --resume
    """
    most = None if updates is None else parse_count("--steps", updates, minimum=1)
    from bisimetric.cli import report
    from bisimetric.paper import gridworld as library

    words = ["bisimetric", "reproduce", "gridworld", "-o", str(output)]
    words += ["--quick"] if quick else []
    for name, value in (("steps", most), ("seeds", seeds)):
        words += [] if value is None else [f"--{name}", str(value)]
    words += ["--parts", *parts]
    results = library.measure(
        output,
        parts,
        updates=most,
        num_seeds=seeds,
        quick=quick,
        resume=resume,
        command=shlex.join(words),
    )
    print(*library.format_table(results), sep="\n")
    print(*report.describe_saved(library.draw_figures(output)), sep="\n")
    return 0


def demo(output: Annotated[Path, arg(aliases=["-o"], metavar="FOLDER")] = Path("demo")) -> int:
    """The three distances on the paper's 31 states: checked, shown, drawn and saved.

    Args:
        output: where the tables and pictures go; it is made where it is missing

    Examples:
        bisimetric demo
        bisimetric demo --output somewhere/else
    """
    from bisimetric import demo as library

    return library.run(output, program=program_name())

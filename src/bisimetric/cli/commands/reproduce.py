"""`bisimetric reproduce` and `bisimetric demo`: figures and experiments of the paper."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal, get_args

from tyro.conf import arg

from bisimetric.cli.options import (
    DiscountArg,
    NumSeedsArg,
    parse_count,
    parse_optional_count,
    program_name,
)
from bisimetric.errors import InputError

FolderArg = Annotated[Path, arg(aliases=["-o"], metavar="FOLDER")]
Part = Literal["no-noise", "noise", "policy", "policy-noise"]
WorldName = Literal[
    "rooms", "rooms-noise", "policy", "policy-noise", "obstacles", "minigrid", "walls", "lava"
]
WORLDS: tuple[WorldName, ...] = get_args(WorldName)
PARTS: tuple[Part, ...] = get_args(Part)
BenchmarkMDP = Literal["rooms", "walls", "minigrid", "frozen-lake", "inventory", "lava", "queue"]
LossName = Literal[
    "mico",
    "reduced-mico",
    "dbc",
    "normalised-dbc",
    "simsr",
    "rap",
    "deepmdp",
    "pair-q",
    "on-policy",
    "untrained",
]
LOSSES: tuple[LossName, ...] = get_args(LossName)


def convergence(
    output: FolderArg = Path("convergence"),
    num_seeds: NumSeedsArg = 10,
    steps: Annotated[str, arg(metavar="N")] = "10M",
    target_error: Annotated[float, arg(metavar="T")] = 1e-3,
    discount: DiscountArg = 0.99,
) -> int:
    """Measure the samples that d~ and d^pi take on the paper's 31 states, per sampler.

    Args:
        output: the folder of the figure and its data; created where it is missing
        num_seeds: the number of runs per sampler
        steps: the largest number of transition pairs per run
        target_error: the error whose sample complexity is tabulated
        discount: discount factor of the paper's world

    Examples:
        bisimetric reproduce convergence
        bisimetric reproduce convergence -o figures --num-seeds 20 --target-error 1e-2
    """
    num_steps = parse_count("--steps", steps, minimum=1)
    from bisimetric.cli import report
    from bisimetric.paper import convergence as library

    flags = {
        "--num-seeds": num_seeds,
        "--steps": num_steps,
        "--target-error": target_error,
        "--discount": discount,
    }
    words = ["bisimetric", "reproduce", "convergence", "-o", str(output)]
    words += [str(word) for item in flags.items() for word in item]
    results = library.reproduce(
        output,
        num_seeds=num_seeds,
        steps=num_steps,
        target_error=target_error,
        discount=discount,
        command=shlex.join(words),
    )
    saved = [output / "convergence.png", output / "convergence.json"]
    report.emit(library.format_table(results), report.describe_saved(saved))
    report.emit_fields(results, "lemma_holds")
    report.emit_values(
        samplers=[row._asdict() for row in library.tabulate(results)],
        lemma={
            curves.kind: {
                "holds": curves.lemma_holds,
                "max_excess": curves.max_excess,
                "max_allowed_excess": curves.max_allowed_excess,
            }
            for curves in (results.bisimulation, results.on_policy)
        },
        seconds=results.metadata["seconds"],
    )
    return 0 if results.lemma_holds else 1


def algorithms(
    output: FolderArg = Path("algorithms"),
    quick: bool = False,
    updates: Annotated[
        str | None, arg(metavar="N", help_behavior_hint="(default: 24k; quick: 4k)")
    ] = None,
    num_seeds: Annotated[
        int | None,
        arg(aliases=["--seeds"], metavar="N", help_behavior_hint="(default: 10; quick: 2)"),
    ] = None,
    worlds: tuple[WorldName, ...] = WORLDS,
    ablation: bool = False,
) -> int:
    """Compare the paper's learning algorithm with that of `bisimetric learned` on eight worlds.

    Errors against the exact metric over the updates. For a GPU; on a CPU select one of the worlds
    without noise. Runs found in the output folder are reused.

    Args:
        output: the folder of figures and curves; created where it is missing
        quick: fewer updates and seeds
        updates: gradient updates per network
        num_seeds: the number of networks per algorithm
        worlds: the worlds
        ablation: also change one component at a time

    Examples:
        bisimetric reproduce algorithms --quick --worlds rooms
        bisimetric reproduce algorithms --worlds rooms --ablation -o figures
    """
    num_updates = parse_optional_count("--updates", updates)
    from bisimetric.cli import report
    from bisimetric.paper import algorithms as library

    names = [*library.ALGORITHMS, *(library.ABLATIONS if ablation else ())]
    curves = library.measure(
        output, worlds, names, updates=num_updates, num_seeds=num_seeds, quick=quick
    )
    saved = report.describe_saved(library.draw_figures(output))
    report.emit(library.format_table(curves), saved)
    report.emit_values(
        runs=[
            {**row._asdict(), "seconds": run.metadata["seconds"], "device": run.metadata["device"]}
            for row, run in zip(library.tabulate(curves), curves, strict=True)
        ]
    )
    return 0


def gridworld(
    output: FolderArg = Path("gridworld"),
    quick: bool = False,
    updates: Annotated[
        str | None, arg(metavar="N", help_behavior_hint="(default: 240k; quick: fewer)")
    ] = None,
    num_seeds: Annotated[
        int | None,
        arg(aliases=["--seeds"], metavar="N", help_behavior_hint="(default: 10; quick: 3)"),
    ] = None,
    parts: tuple[Part, ...] = PARTS,
    resume: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")] = None,
) -> int:
    """Learn d~ and d^pi of the paper's 31 states, with noise and without.

    Errors over the updates, the learned distances, and samples of the noisy world aggregated by
    the learned distance. The whole experiment is for a GPU; on a CPU use --quick.

    Args:
        output: the folder of figures, curves and networks; created where it is missing
        quick: minutes on two CPU cores: fewer updates and seeds, small batches with noise
        updates: gradient updates per network
        num_seeds: the number of networks per part
        parts: d~ and, under a policy, d^pi; without noise and with it
        resume: continue in this folder: keep its complete parts and resume an interrupted one

    Examples:
        bisimetric reproduce gridworld --quick
        bisimetric reproduce gridworld --parts noise --resume figures
    """
    num_updates = parse_optional_count("--updates", updates)
    if resume is not None and output not in (resume, Path("gridworld")):
        raise InputError(f"--resume {resume} writes to that folder; leave out -o {output}.")
    folder = output if resume is None else resume
    from bisimetric.cli import report
    from bisimetric.paper import gridworld as library

    words = ["bisimetric", "reproduce", "gridworld", "-o", str(folder)]
    words += ["--quick"] if quick else []
    for flag, value in (("--updates", num_updates), ("--num-seeds", num_seeds)):
        words += [] if value is None else [flag, str(value)]
    words += ["--parts", *parts]
    results = library.measure(
        folder,
        parts,
        updates=num_updates,
        num_seeds=num_seeds,
        quick=quick,
        resume=resume is not None,
        command=shlex.join(words),
    )
    saved = report.describe_saved(library.draw_figures(folder))
    report.emit(library.format_table(results), saved)
    report.emit_values(
        errors=[row._asdict() for each in results.values() for row in library.tabulate(each)],
        parts={
            name: {key: each.metadata[key] for key in ("seconds", "device")}
            for name, each in results.items()
        },
    )
    return 0


def claims(output: FolderArg = Path("claims"), quick: bool = False) -> int:
    """Check every definition, theorem, figure, experiment and claim of the paper, one by one.

    Theorems on random MDPs, the sampled metrics, and learning on the paper's 31 states, with
    ablations. Claims about Atari games are shown from the record of full runs; the report names
    their commands. The whole is for a GPU; on a CPU use --quick. Runs found in the output folder
    are reused.

    Args:
        output: the folder of networks, curves and claims.json; created where it is missing
        quick: minutes on two CPU cores: fewer MDPs, seeds and updates

    Examples:
        bisimetric reproduce claims --quick
        bisimetric reproduce claims -o claims
    """
    from bisimetric.cli import report
    from bisimetric.paper import claims as library

    outcomes = library.measure(output, quick=quick)
    record = library.load_record()
    saved = report.describe_saved([output / "claims.json"])
    report.emit(library.format_report(outcomes, record), saved)
    report.emit_values(
        claims={
            claim.name: {
                **library.find_outcome(claim, {**record, **outcomes})._asdict(),
                "measured": claim.outcome in outcomes,
            }
            for claim in library.load_claims()
        }
    )
    contradictions = library.find_contradictions(outcomes, record)
    if contradictions:
        report.emit([f"FAILS: other verdicts than recorded for {', '.join(contradictions)}"])
    return 1 if contradictions else 0


def losses(
    output: FolderArg = Path("losses"),
    quick: bool = False,
    updates: Annotated[
        str | None, arg(metavar="N", help_behavior_hint="(default: 4k; quick: 400)")
    ] = None,
    num_seeds: Annotated[
        int | None,
        arg(aliases=["--seeds"], metavar="N", help_behavior_hint="(default: 10; quick: 2)"),
    ] = None,
    mdps: Annotated[
        tuple[BenchmarkMDP, ...] | None,
        arg(help_behavior_hint="(default: all; quick: rooms inventory)"),
    ] = None,
    losses: tuple[LossName, ...] = LOSSES,
    skip_tuning: bool = False,
) -> int:
    """Measure how accurate the metrics of representation losses are, on MDPs with exact metrics.

    Each loss trains the same encoder alone; its distance is scored against its own fixed point,
    d^pi and d~. The whole experiment is for a GPU; on a CPU use --quick. Losses and MDPs found in
    the output folder are reused, so an interrupted run is resumed by the same command.

    Args:
        output: the folder of scores, tables and figures; created where it is missing
        quick: minutes on two CPU cores: fewer updates, seeds and MDPs, and no tuning
        updates: gradient updates per network
        num_seeds: the number of networks per loss, MDP, policy and kind of distractors
        mdps: the MDPs; lava and queue are held out
        losses: the losses
        skip_tuning: take the settings that the report selected, rather than tune each loss

    Examples:
        bisimetric reproduce losses --quick
        bisimetric reproduce losses --mdps rooms --losses mico simsr --skip-tuning -o scores
    """
    num_updates = parse_optional_count("--updates", updates)
    from bisimetric.cli import report
    from bisimetric.paper import loss_benchmark as library

    rows = library.measure(
        output,
        mdps,
        losses,
        num_seeds=num_seeds,
        updates=num_updates,
        quick=quick,
        tune=False if skip_tuning else None,
    )
    figures = library.draw_figures(rows, output)
    tables = library.write_tables(rows, output)
    saved = report.describe_saved([output / library.RESULTS, tables, *figures])
    report.emit(library.format_table(rows), saved)
    report.emit_values(summary=library.tabulate(rows))
    return 0


def demo(output: FolderArg = Path("demo")) -> int:
    """Compute three distances of the paper's 31 states: check, show, draw and save them.

    Args:
        output: the folder of distances and figures; created where it is missing

    Examples:
        bisimetric demo
        bisimetric demo --output somewhere/else
    """
    from bisimetric import demo as library

    return library.run(output, program=program_name())

"""`bisimetric sharded` and `bisimetric spread`: tables that several processes hold together."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import OmitArgPrefixes, Positional, arg

from bisimetric.cli.options import AccuracyArg, PolicyArg, WorldArg, program_name, resolve_policy

if TYPE_CHECKING:
    from bisimetric.distance import Distance


@dataclasses.dataclass(frozen=True)
class ShardedOptions:
    """Where a sharded table is computed and kept."""

    output: Annotated[Path | None, arg(aliases=["-o"], metavar="PATH", help_behavior_hint="")] = (
        None
    )
    """the folder of the table, such as d.zarr, which is read row by row; or an .npz file"""
    checkpoint: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")] = None
    """a folder that keeps the run; the same command goes on with it"""
    checkpoint_every: Annotated[float, arg(metavar="SECONDS")] = 600.0
    """seconds between checkpoints"""
    device: Annotated[
        str | None, arg(metavar="NAME", help_behavior_hint="(default: the best there is)")
    ] = None
    """cpu or gpu"""

    def to_arguments(self, world: str, **details: str) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "about": {"world": world, **details}}


ShardedArg = OmitArgPrefixes[ShardedOptions]
CommandArg = Annotated[
    Positional[tuple[str, ...]], arg(metavar="-- COMMAND ...", help_behavior_hint="")
]


def bisimulation(world: WorldArg, accuracy: AccuracyArg, run_options: ShardedArg) -> None:
    """d~ of a deterministic world, its rows split over all processes that run this command.

    `bisimetric spread` starts them on one machine; srun, mpirun or Kubernetes on a cluster.

    Examples:
        bisimetric sharded bisimulation open-grid -o d.zarr --checkpoint run --every 60
        srun -n 64 bisimetric sharded bisimulation model.npz --dtype float32 -o d.zarr
    """
    mdp = world.load()
    from bisimetric.exact import sharded

    options = run_options.to_arguments(world.world)
    with _report_checkpoint(run_options):
        distance = sharded.bisimulation(mdp, tol=accuracy.tol, dtype=accuracy.dtype, **options)
    _print_result(distance, run_options)


def on_policy(
    world: WorldArg, accuracy: AccuracyArg, run_options: ShardedArg, policy: PolicyArg = None
) -> None:
    """d^pi of a deterministic world, its rows split over all processes that run this command.

    `bisimetric spread` starts them on one machine; srun, mpirun or Kubernetes on a cluster.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action a state

    Examples:
        bisimetric sharded on-policy open-grid --policy optimal -o d.zarr
        mpirun -n 16 bisimetric sharded on-policy model.npz --policy actions.npy -o d.zarr
    """
    mdp = world.load()
    actions, called = resolve_policy(mdp, policy)
    from bisimetric.exact import sharded

    options = run_options.to_arguments(world.world, policy=called)
    with _report_checkpoint(run_options):
        distance = sharded.on_policy(
            mdp, actions, tol=accuracy.tol, dtype=accuracy.dtype, **options
        )
    _print_result(distance, run_options)


def launch(command: CommandArg, processes: Annotated[int, arg(aliases=["-n"], metavar="N")]) -> int:
    """Starts a command in several processes on this machine, which work on one table together.

    On a cluster srun, mpirun or a Kubernetes job do that.

    Args:
        command: what to run: `bisimetric sharded ...`, or a program that calls `exact.sharded`
        processes: how many

    Examples:
        bisimetric spread -n 4 -- bisimetric sharded bisimulation open-grid -o d.zarr
        bisimetric spread -n 2 -- bisimetric sharded on-policy open-grid -o d.zarr
    """
    from bisimetric.exact.sharded.launcher import launch as started

    return started(command, processes)


@contextlib.contextmanager
def _report_checkpoint(options: ShardedOptions) -> Iterator[None]:
    """Makes an interrupt tell how the run goes on."""
    try:
        yield
    except KeyboardInterrupt:
        folder = options.checkpoint
        if folder is None:
            raise KeyboardInterrupt("--checkpoint FOLDER would keep such a run") from None
        if (folder / "manifest.json").is_file():
            raise KeyboardInterrupt(f"the same command goes on from {folder}") from None
        raise


def _print_result(distance: Distance, options: ShardedOptions) -> None:
    """Says what was found, in the first process only."""
    import jax

    if jax.process_index() == 0:
        from bisimetric.cli import report

        report.print_lines(_describe(distance), report.describe_saved([options.output]))
        report.print_lines(report.suggest_commands(distance, options.output, program_name()))


def _describe(distance: Distance) -> Iterator[str]:
    from bisimetric.cli import report

    made = distance.metadata
    yield from report.describe_header(distance)
    alike = report.format_count(made["classes"], "class", "classes")
    yield f"classes    {alike} of states that are alike"
    held = f"{report.format_count(made['processes'], 'process', 'processes')}, "
    yield f"held by    {held}{report.format_count(made['devices'], 'device')}"
    yield f"seconds    {made['seconds']:.3g}"

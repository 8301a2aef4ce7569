"""`bisimetric sharded` and `bisimetric launch`: distances stored by several processes together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from bisimetric._text import pluralise
from bisimetric.cli.options import (
    AccuracyOptions,
    DeviceArg,
    OutputArg,
    PolicyArg,
    WorldOptions,
    program_name,
    resolve_policy,
)
from bisimetric.cli.output import report_checkpoint

if TYPE_CHECKING:
    from bisimetric.cli.report import Fact
    from bisimetric.distance import Distance

CommandArg = Annotated[
    Positional[tuple[str, ...]], arg(metavar="-- COMMAND ...", help_behavior_hint="")
]


@dataclasses.dataclass(frozen=True)
class ShardedRunOptions:
    """Where a sharded matrix is computed and stored."""

    output: OutputArg = None
    """the folder of the matrix, such as d.zarr, which is read row by row; or an .npz file"""
    checkpoint: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")] = None
    """a folder to write checkpoints to"""
    checkpoint_every: Annotated[float, arg(metavar="SECONDS")] = 600.0
    """seconds between two checkpoints"""
    resume: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="")] = None
    """continue from a folder of checkpoints, with any number of processes"""
    device: DeviceArg = None
    """the devices to compute on"""

    def to_arguments(self, world: str, **details: str) -> dict[str, Any]:
        """Return the arguments of `sharded.bisimulation` and `sharded.on_policy`."""
        return {**dataclasses.asdict(self), "metadata": {"world": world, **details}}

    def report_checkpoint(self) -> AbstractContextManager[None]:
        """Let an interrupt say how the run is resumed."""
        manifest = None if self.checkpoint is None else self.checkpoint / "manifest.json"
        return report_checkpoint(self.checkpoint, "FOLDER", manifest)


def bisimulation(world: WorldOptions, accuracy: AccuracyOptions, run: ShardedRunOptions) -> None:
    """d~ of a deterministic world; its rows are divided among all processes with this command.

    `bisimetric launch` starts them on one machine; srun, mpirun or Kubernetes on a cluster.

    Examples:
        bisimetric sharded bisimulation open-grid -o d.zarr --checkpoint run --checkpoint-every 60
        bisimetric sharded bisimulation open-grid -o d.zarr --checkpoint run --resume run
        srun -n 64 bisimetric sharded bisimulation model.npz --dtype float32 -o d.zarr
    """
    mdp = world.load()
    from bisimetric.exact import sharded

    options = run.to_arguments(world.world)
    with run.report_checkpoint():
        distance = sharded.bisimulation(mdp, **accuracy.tolerance, dtype=accuracy.dtype, **options)
    _print_result(distance, run)


def on_policy(
    world: WorldOptions, accuracy: AccuracyOptions, run: ShardedRunOptions, policy: PolicyArg = None
) -> None:
    """d^pi of a deterministic world; its rows are divided among all processes with this command.

    `bisimetric launch` starts them on one machine; srun, mpirun or Kubernetes on a cluster.

    Args:
        policy: `own` (the world's), `optimal`, or a .npy or .txt file with one action per state

    Examples:
        bisimetric sharded on-policy open-grid --policy optimal -o d.zarr
        mpirun -n 16 bisimetric sharded on-policy model.npz --policy actions.npy -o d.zarr
    """
    mdp = world.load()
    actions, name = resolve_policy(mdp, policy)
    from bisimetric.exact import sharded

    options = run.to_arguments(world.world, policy=name)
    with run.report_checkpoint():
        distance = sharded.on_policy(
            mdp, actions, **accuracy.tolerance, dtype=accuracy.dtype, **options
        )
    _print_result(distance, run)


def launch(command: CommandArg, processes: Annotated[int, arg(aliases=["-n"], metavar="N")]) -> int:
    """Start a command in several processes on this machine, which compute one matrix together.

    On a cluster srun, mpirun or a Kubernetes job do that.

    Args:
        command: what to run: `bisimetric sharded ...`, or a program that calls `exact.sharded`
        processes: the number of processes

    Examples:
        bisimetric launch -n 4 -- bisimetric sharded bisimulation open-grid -o d.zarr
        bisimetric launch -n 2 -- bisimetric sharded on-policy open-grid -o d.zarr
    """
    from bisimetric.exact.sharded import launcher

    return launcher.launch(command, processes)


def _print_result(distance: Distance, run: ShardedRunOptions) -> None:
    """Report the result, in the first process only."""
    import jax

    if jax.process_index() == 0:
        from bisimetric.cli import report

        report.emit(_describe(distance), report.describe_saved([run.output]))
        report.emit(report.suggest_commands(distance, run.output, program_name()))


def _describe(distance: Distance) -> Iterator[Fact]:
    from bisimetric.cli.report import Fact, describe_header, describe_seconds

    metadata = distance.metadata
    yield from describe_header(distance)
    classes = pluralise(metadata["classes"], "class", "classes")
    yield Fact("classes", f"{classes} of bisimilar states", metadata["classes"])
    processes = pluralise(metadata["processes"], "process", "processes")
    text = f"{processes}, {pluralise(metadata['devices'], 'device')}"
    value = {name: metadata[name] for name in ("processes", "devices")}
    yield Fact("shards", text, value)
    yield describe_seconds(metadata["seconds"])

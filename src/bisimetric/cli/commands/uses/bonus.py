"""`bisimetric uses bonus`: compare exploration bonuses, among them those by a distance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from bisimetric.cli.options import (
    FigureArg,
    NumSeedsArg,
    OutputArg,
    WorldOptions,
    parse_count,
    validate_files,
)
from bisimetric.cli.output import reject_networks
from bisimetric.errors import InputError

if TYPE_CHECKING:
    from bisimetric.cli.report import Fact
    from bisimetric.distance import Distance
    from bisimetric.mdp import MDP
    from bisimetric.uses.exploration import experiment

BonusName = Literal["none", "counts", "distance", "nearest", "online"]
BONUSES: dict[BonusName, tuple[str, experiment.BonusSource]] = {
    "none": ("no bonus", "none"),
    "counts": ("counts", "states"),
    "distance": ("distance", "distance"),
    "nearest": ("distance, nearest visit", "distance"),
    "online": ("online distance", "own steps"),
}


def bonus(
    world: WorldOptions,
    bonuses: tuple[BonusName, ...] = ("none", "counts", "distance"),
    distance: Annotated[
        Path | None, arg(metavar="DISTANCE", help_behavior_hint="(default: d~, discount 0.9)")
    ] = None,
    steps: Annotated[str, arg(metavar="N")] = "10k",
    num_seeds: NumSeedsArg = 5,
    start: Annotated[str, arg(metavar="STATE")] = "0",
    max_episode_steps: Annotated[int, arg(metavar="N")] = 200,
    bonus_scale: Annotated[float, arg(metavar="X")] = 0.001,
    initial_value: Annotated[float, arg(metavar="Q")] = 0.1,
    radius: Annotated[
        float | None, arg(metavar="X", help_behavior_hint="(default: the median distance)")
    ] = None,
    output: OutputArg = None,
    plot_curves: FigureArg = None,
) -> None:
    """Compare exploration bonuses in a world: the states and goals that Q-learning finds.

    The agent is tabular Q-learning. A bonus is paid for new states: not visited before (counts),
    or far from all visited states (distance, by default that of the world's own model).

    Args:
        bonuses: the bonuses to compare
        distance: distances of the world's states saved with -o, for the bonus by distance
        steps: environment steps per run; 10000, 10_000, 1e4 or 10k
        num_seeds: the number of runs per bonus
        start: the initial state of episodes, by name or id
        max_episode_steps: truncate episodes after so many steps
        bonus_scale: the largest bonus, in units of the largest reward
        initial_value: the initial action values, in the same units
        radius: the distance within which a visit counts
        output: save the curves as a .npz file
        plot_curves: save a figure of the curves

    Examples:
        bisimetric uses bonus mirrored-rooms
        bisimetric uses bonus MiniGrid-FourRooms-v0 --num-seeds 10 --steps 40k --plot-curves b.png
        bisimetric uses bonus rooms.txt --distance d.npz --bonuses counts distance -o curves.npz
    """
    num_steps = parse_count("--steps", steps, minimum=1)
    inputs = [world.world, distance]
    validate_files(output, [plot_curves], content="curves", suffix=".npz", inputs=inputs)
    if not bonuses:
        raise InputError("--bonuses: there is nothing to compare; name at least one.")
    mdp = world.load()
    from bisimetric import views
    from bisimetric.cli import report
    from bisimetric.uses.exploration import experiment
    from bisimetric.views.exploration import plot_exploration
    from bisimetric.views.terminal import format_comparison

    by_distance = {"distance", "nearest"} & set(bonuses)
    d = _read_distance(mdp, world, distance) if by_distance else None
    arms: dict[str, experiment.ExplorationArm] = {}
    for name in bonuses:
        title, source = BONUSES[name]
        arms[title] = experiment.ExplorationArm(
            source,
            d if name in by_distance else None,
            bonus_scale=bonus_scale,
            initial_value=initial_value,
            radius=radius,
            rule="nearest" if name == "nearest" else "counts",
        )
    comparison = experiment.compare(
        mdp,
        arms,
        steps=num_steps,
        num_seeds=num_seeds,
        start=start,
        max_episode_steps=max_episode_steps,
    )
    if output is not None:
        comparison.save(output)
    table = format_comparison(comparison)
    lines = _describe(mdp, world, d, distance)
    report.emit(lines, [""], table, [""], report.describe_saved([output]))
    report.emit_fields(
        comparison, "names", "steps", "visited", "goals", "first_goal", "num_reachable"
    )
    if plot_curves is not None:
        views.save_figure(plot_exploration({world.world: comparison}), plot_curves)
    report.emit(report.describe_saved([plot_curves]))


def _read_distance(mdp: MDP, world: WorldOptions, path: Path | None) -> Distance:
    """Return the given distance, or d~ of the world."""
    from bisimetric import exact
    from bisimetric.distance import Distance
    from bisimetric.uses.exploration.experiment import DISTANCE_DISCOUNT

    if path is None:
        return exact.bisimulation(mdp.replace(discount=min(mdp.discount, DISTANCE_DISCOUNT)))
    reject_networks(path)
    distance = Distance.load(path)
    if distance.mdp.num_states != mdp.num_states:
        raise InputError(
            f"{path} has {distance.mdp.num_states} states and {world.world} has {mdp.num_states}; "
            "compute the distances of this world."
        )
    return distance


def _describe(
    mdp: MDP, world: WorldOptions, d: Distance | None, path: Path | None
) -> Iterator[Fact | str]:
    from bisimetric.cli.report import describe_kind, describe_mdp

    yield describe_mdp("world", world.world, mdp)
    if d is None:
        return
    source = "" if path is None else f", {path}"
    yield describe_kind(d.kind, f", discount {d.mdp.discount:g}{source}")
    if d.values.max() == 0:
        yield "           all distances are 0: no state is new"
    elif path is None:
        yield "           of the world's own model, which includes its rewards"
